//! Events: moments between the records of a process. A stream need not be told to wait for one, since order is total.

use vgpu_remoting::deferred::Progress;
use vgpu_remoting::session::Session;
use vgpu_remoting::worker::MAX_EVENTS;

use super::{Error, context, stream};
use crate::handles::Handles;

/// What is known of one.
#[derive(Clone, Copy)]
struct Event {
    context: u64,
    flags: u32,
    /// When, as functions of the program's have their turns.
    recorded: Option<u64>,
}

impl Event {
    /// Has the worker a moment for it?
    fn is_marked(self) -> bool {
        self.recorded.is_some() && self.flags & DISABLE_TIMING == 0
    }
}

static EVENTS: Handles<Event> = Handles::new();

/// The flags that there are: how to wait, whether the moment is of interest, whether other processes are to see it.
const BLOCKING_SYNC: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

/// A new one of the current context's.
///
/// # Errors
/// `INVALID_VALUE` for flags that there are not, or that do not go together; `OUT_OF_MEMORY` where there are as many as the
/// worker has moments for; where no context is current.
pub fn create(flags: u32) -> Result<u64, Error> {
    let interprocess_with_time = flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS;
    if flags & !(BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS) != 0 || interprocess_with_time {
        return Err(Error::INVALID_VALUE);
    }
    let event = Event { context: context::current()?, flags, recorded: None };
    EVENTS.create_within(MAX_EVENTS, event).ok_or(Error::OUT_OF_MEMORY)
}

fn get(event: u64) -> Result<Event, Error> {
    EVENTS.get(event).ok_or(Error::INVALID_HANDLE)
}

/// Is there this event?
///
/// # Errors
/// `INVALID_HANDLE` where there is not.
pub fn known(event: u64) -> Result<(), Error> {
    get(event).map(|_| ())
}

/// Has it mark the moment at which all that was sent before is done.
///
/// # Errors
/// `INVALID_HANDLE` where event or stream is none, or they are of different contexts; of the way to the worker.
pub fn record(session: &Session<'_>, event: u64, stream: u64) -> Result<(), Error> {
    let recorded = Event { recorded: Some(session.client().moment()), ..get(event)? };
    if stream::context(stream)? != recorded.context {
        return Err(Error::INVALID_HANDLE);
    }
    EVENTS.set(event, recorded).ok_or(Error::INVALID_HANDLE)?;
    if recorded.is_marked() { Ok(session.mark(event)?) } else { Ok(()) }
}

/// Waits until all that was sent before it was recorded is done, if it was; and all that was sent after, but for what
/// waits for a function of the program's.
///
/// # Errors
/// As [`known`]; of what was sent.
pub fn synchronise(session: &Session<'_>, event: u64) -> Result<(), Error> {
    match get(event)?.recorded {
        Some(moment) if !session.client().reach(moment) => Ok(session.synchronise()?),
        _ => Ok(()),
    }
}

/// Is all done that was sent before it was recorded?
///
/// # Errors
/// `NOT_READY` where that waits for a function of the program's, or it is not known, else as [`synchronise`], since only
/// waiting tells.
pub fn query(session: &Session<'_>, event: u64) -> Result<(), Error> {
    let Some(moment) = get(event)?.recorded else { return Ok(()) };
    match session.client().progress(moment) {
        Progress::Done => Ok(()),
        Progress::Pending | Progress::Unknown => Err(Error::NOT_READY),
        Progress::Sent => Ok(session.synchronise()?),
    }
}

/// Milliseconds from one to the other.
///
/// # Errors
/// `INVALID_HANDLE` where one is none, was not recorded, or has no time; of what was sent.
pub fn elapsed(session: &Session<'_>, from: u64, to: u64) -> Result<f32, Error> {
    if !get(from)?.is_marked() || !get(to)?.is_marked() {
        return Err(Error::INVALID_HANDLE);
    }
    Ok(session.elapsed(from, to)?)
}

/// Ends one.
///
/// # Errors
/// As [`known`]; of the way to the worker.
pub fn destroy(session: &Session<'_>, event: u64) -> Result<(), Error> {
    let ended = EVENTS.destroy(event).ok_or(Error::INVALID_HANDLE)?;
    if ended.is_marked() { Ok(session.forget(event)?) } else { Ok(()) }
}

/// Ends those of a context, and says of which the worker has moments.
pub fn end_of(context: u64) -> Vec<u64> {
    let ended = EVENTS.destroy_if(|event| event.context == context).into_iter();
    ended.filter(|(_, ended)| ended.is_marked()).map(|(event, _)| event).collect()
}
