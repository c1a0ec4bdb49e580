//! Functions of the program's that have their turn among its records (`cuLaunchHostFunc`), and the records that are sent
//! after them, which wait here meanwhile. So whoever sends need not wait, as long as there is room. Touches nothing.

use std::collections::VecDeque;
use std::fmt;
use std::thread::{self, ThreadId};

use crate::ring::Gone;
use crate::wire::Words;

/// How many wait before others that nobody waits for are to: a megabyte or two.
pub const ROOM: usize = 4096;

/// A function, which is told the answer that a record in its place had.
pub type Function = Box<dyn FnOnce(Result<Words, Gone>) + Send>;

/// What waits.
pub enum Waiting {
    /// A record, with its head.
    Record(Box<Words>),
    /// A function, with the place of the answer that it is told.
    Function(Function, u8),
}

/// How it is with what was sent before some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is done: a later function has its turn.
    Done,
    /// It is not: an earlier function is not done.
    Pending,
    /// It is not known here, and a later function will tell.
    Unknown,
    /// It is not known here: a record sent now is answered once it is done.
    Sent,
}

/// The functions of a process.
#[derive(Default)]
pub struct Deferred {
    waiting: VecDeque<Waiting>,
    /// How many there have been; how many of them have had their turn; how many of these are done.
    asked: u64,
    begun: u64,
    done: u64,
    /// Who runs them.
    runner: Option<ThreadId>,
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waiting, asked, begun, done, runner } = self;
        write!(f, "{} wait; {asked} asked, {begun} begun, {done} done by {runner:?}", waiting.len())
    }
}

impl Deferred {
    /// Is one not done, so that records wait?
    #[must_use]
    pub fn holds(&self) -> bool {
        self.asked > self.done
    }

    /// Is there no room for more, which is to wait until there is?
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= ROOM
    }

    /// Has a function wait for its turn.
    pub fn ask(&mut self, function: Function, place: u8) {
        self.asked += 1;
        self.waiting.push_back(Waiting::Function(function, place));
    }

    /// Has a record wait for the functions before it.
    pub fn hold(&mut self, record: Words) {
        self.waiting.push_back(Waiting::Record(record.into()));
    }

    /// What comes next.
    pub fn take(&mut self) -> Option<Waiting> {
        self.waiting.pop_front()
    }

    /// The next function has its turn.
    pub fn begin(&mut self) {
        self.begun += 1;
        self.runner = Some(thread::current().id());
    }

    /// It is done.
    pub fn end(&mut self) {
        self.done += 1;
        self.runner = None;
    }

    /// Is this a function's own thread, for which nothing can be waited?
    #[must_use]
    pub fn runs_here(&self) -> bool {
        self.runner == Some(thread::current().id())
    }

    /// This moment, by a number.
    #[must_use]
    pub fn moment(&self) -> u64 {
        self.asked
    }

    /// How it is with what was sent before a moment.
    #[must_use]
    pub fn progress(&self, moment: u64) -> Progress {
        if self.begun > moment {
            Progress::Done
        } else if self.done < moment {
            Progress::Pending
        } else if self.asked > moment {
            Progress::Unknown
        } else {
            Progress::Sent
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_between_two_functions() {
        let mut deferred = Deferred::default();
        let first = deferred.moment();
        assert_eq!((deferred.progress(first), deferred.holds()), (Progress::Sent, false));
        deferred.ask(Box::new(|_| ()), 0);
        let second = deferred.moment();
        let both = |deferred: &Deferred| [first, second].map(|moment| deferred.progress(moment));
        assert_eq!((both(&deferred), deferred.holds()), ([Progress::Unknown, Progress::Pending], true));
        deferred.begin();
        assert_eq!(both(&deferred), [Progress::Done, Progress::Pending]);
        assert!(deferred.runs_here());
        deferred.end();
        assert_eq!((both(&deferred), deferred.holds()), ([Progress::Done, Progress::Sent], false));
        assert!(!deferred.runs_here());
        deferred.begin();
        assert!(!thread::spawn(move || deferred.runs_here()).join().unwrap());
    }
}
