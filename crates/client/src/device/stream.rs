//! Streams. Order is total in a process, so that a stream is a number, and to wait for one is to wait for all.

use vgpu_remoting::deferred::Progress;
use vgpu_remoting::session::Session;

use super::{Error, context};
use crate::handles::Handles;

/// What is known of one.
#[derive(Clone, Copy)]
struct Stream {
    context: u64,
    flags: u32,
}

static STREAMS: Handles<Stream> = Handles::new();

/// The one flag: it does not wait for the default stream, which comes to nothing where order is total.
const NON_BLOCKING: u32 = 1;

/// What all have: there is no other.
pub const PRIORITY: i32 = 0;

/// A new one of the current context's.
///
/// # Errors
/// `INVALID_VALUE` for flags that there are not; where no context is current.
pub fn create(flags: u32) -> Result<u64, Error> {
    if flags & !NON_BLOCKING != 0 {
        return Err(Error::INVALID_VALUE);
    }
    Ok(STREAMS.create(Stream { context: context::current()?, flags }))
}

/// What is known of one that was created, of the default ones nothing.
fn get(stream: u64) -> Result<Option<Stream>, Error> {
    // The default one, and by the names `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
    if stream <= 2 { Ok(None) } else { STREAMS.get(stream).ok_or(Error::INVALID_HANDLE).map(Some) }
}

/// The flags of one.
///
/// # Errors
/// `INVALID_HANDLE` where there is no such.
pub fn flags(stream: u64) -> Result<u32, Error> {
    Ok(get(stream)?.map_or(0, |stream| stream.flags))
}

/// The context of one, which of the default ones is the current one.
///
/// # Errors
/// As [`flags`]; where no context is current.
pub fn context(stream: u64) -> Result<u64, Error> {
    get(stream)?.map_or_else(context::current, |stream| Ok(stream.context))
}

/// Is there this stream?
///
/// # Errors
/// As [`flags`].
pub fn known(stream: u64) -> Result<(), Error> {
    get(stream).map(|_| ())
}

/// Waits until all that was sent is done.
///
/// # Errors
/// As [`flags`]; of what was sent.
pub fn synchronise(session: &Session<'_>, stream: u64) -> Result<(), Error> {
    known(stream)?;
    Ok(session.synchronise()?)
}

/// Is all done that was sent?
///
/// # Errors
/// `NOT_READY` where it waits for a function of the program's, else as [`synchronise`], since only waiting tells.
pub fn query(session: &Session<'_>, stream: u64) -> Result<(), Error> {
    known(stream)?;
    match session.client().progress(session.client().moment()) {
        Progress::Pending => Err(Error::NOT_READY),
        _ => Ok(session.synchronise()?),
    }
}

/// Ends one; the default ones have no end.
///
/// # Errors
/// As [`flags`].
pub fn destroy(stream: u64) -> Result<(), Error> {
    STREAMS.destroy(stream).map(|_| ()).ok_or(Error::INVALID_HANDLE)
}

/// Ends those of a context.
pub fn end_of(context: u64) {
    STREAMS.destroy_if(|stream| stream.context == context);
}
