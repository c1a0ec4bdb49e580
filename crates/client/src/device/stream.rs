//! Streams. Order is total in a process, so that a stream is a number, and to wait for one is to wait for all.

use vgpu_remoting::session::Session;

use super::Error;
use crate::handles::Handles;

/// With its flags.
static STREAMS: Handles<u32> = Handles::new();

/// The one flag: it does not wait for the default stream, which comes to nothing where order is total.
const NON_BLOCKING: u32 = 1;

/// A new one.
///
/// # Errors
/// `INVALID_VALUE` for flags that there are not.
pub fn create(flags: u32) -> Result<u64, Error> {
    if flags & !NON_BLOCKING == 0 { Ok(STREAMS.create(flags)) } else { Err(Error::INVALID_VALUE) }
}

/// The flags of one.
///
/// # Errors
/// `INVALID_HANDLE` where there is no such.
pub fn flags(stream: u64) -> Result<u32, Error> {
    // The default one, and by the names `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
    if stream <= 2 { Ok(0) } else { STREAMS.get(stream).ok_or(Error::INVALID_HANDLE) }
}

/// Is there this stream?
///
/// # Errors
/// As [`flags`].
pub fn known(stream: u64) -> Result<(), Error> {
    flags(stream).map(|_| ())
}

/// Waits until all that was sent is done.
///
/// # Errors
/// As [`flags`]; of what was sent.
pub fn synchronise(session: &Session<'_>, stream: u64) -> Result<(), Error> {
    known(stream)?;
    Ok(session.synchronise()?)
}

/// Ends one; the default ones have no end.
///
/// # Errors
/// As [`flags`].
pub fn destroy(stream: u64) -> Result<(), Error> {
    STREAMS.destroy(stream).map(|_| ()).ok_or(Error::INVALID_HANDLE)
}
