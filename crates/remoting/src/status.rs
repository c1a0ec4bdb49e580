//! What a worker says of itself and of its clients to whoever asks on its socket: one JSON object, in a line. Touches
//! nothing.

use std::fmt::{self, Display, Formatter};

use crate::counters::{Counts, Totals};

/// What one says who asks, instead of what a client says. It is the same in each build.
pub const HELLO: [u8; 8] = *b"vgpustat";

/// What there is to say. As text it is JSON, of a length that is bounded whatever clients do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// How much device memory clients can have together, in bytes.
    pub limit: u64,
    /// How much they have.
    pub used: u64,
    /// How many processes are served.
    pub live: usize,
    /// How many were, with those.
    pub ever: u64,
    /// What they all have counted.
    pub totals: Totals,
}

impl Display for Status {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { limit, used, live, ever, totals } = self;
        let Counts { calls, records, wakes, predicted, known, new, bytes } = totals.counts;
        write!(f, r#"{{"backend":"cpu","memory":{{"limit":{limit},"used":{used}}},"#)?;
        write!(f, r#""processes":{{"live":{live},"ever":{ever}}},"#)?;
        write!(f, r#""counters":{{"calls":{calls},"records":{records},"wakeups":{wakes},"#)?;
        write!(f, r#""predicted":{predicted},"known":{known},"new":{new},"bytes":{bytes}}},"#)?;
        f.write_str(r#""unserved":{"functions":{"#)?;
        for (i, (name, count)) in totals.unserved.iter().enumerate() {
            // There is nothing in a name that JSON would have escaped.
            write!(f, r#"{}"{name}":{count}"#, if i == 0 { "" } else { "," })?;
        }
        write!(f, r#"}},"others":{}}}}}"#, totals.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_json() {
        let counts =
            Counts { calls: 1, records: 2, wakes: 3, predicted: 4, known: 5, new: 6, bytes: u64::MAX };
        let unserved = vec![("cudnnCTCLoss".into(), 7), ("cuFoo".into(), 8)];
        let status = Status {
            limit: 1024,
            used: 512,
            live: 1,
            ever: 2,
            totals: Totals { counts, unserved, others: 9 },
        };
        assert_eq!(
            status.to_string(),
            r#"{"backend":"cpu","memory":{"limit":1024,"used":512},"processes":{"live":1,"ever":2},"#
                .to_owned()
                + r#""counters":{"calls":1,"records":2,"wakeups":3,"predicted":4,"known":5,"new":6,"#
                + r#""bytes":18446744073709551615},"#
                + r#""unserved":{"functions":{"cudnnCTCLoss":7,"cuFoo":8},"others":9}}"#
        );
        let none = Status::default().to_string();
        assert!(none.ends_with(r#""unserved":{"functions":{},"others":0}}"#), "{none}");
    }
}
