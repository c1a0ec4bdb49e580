//! The runtime's streams and events. Order is total in a process, so that a stream is a number, to wait for one is to
//! wait for all, and a stream need not be told to wait for an event.
#![allow(unsafe_code, non_snake_case, reason = "C functions")]

use std::ffi::{c_int, c_uint};

use super::{Error, INVALID, answer, give};
use crate::handles::Handles;

/// `cudaErrorInvalidResourceHandle`
const NO_SUCH: Error = Error(400);

/// Those that were created; the default ones always are.
static STREAMS: Handles<()> = Handles::new();

/// Whether each was recorded.
static EVENTS: Handles<bool> = Handles::new();

/// Is there this stream?
///
/// # Errors
/// That there is not.
pub fn known(stream: u64) -> Result<(), Error> {
    // The default one, and by the names `cudaStreamLegacy` and `cudaStreamPerThread`.
    if stream <= 2 { Ok(()) } else { STREAMS.get(stream).ok_or(NO_SUCH) }
}

// SAFETY, of the names here: each is its function's alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaStreamCreate(stream: *mut u64) -> c_int {
    answer(|_| {
        if stream.is_null() {
            return Err(INVALID);
        }
        // SAFETY: it is the program's own, as of all pointers here.
        unsafe { give(stream, STREAMS.create(())) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaStreamDestroy(stream: u64) -> c_int {
    answer(|_| STREAMS.destroy(stream).ok_or(NO_SUCH))
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaStreamSynchronize(stream: u64) -> c_int {
    answer(|session| {
        known(stream)?;
        Ok(session.synchronise()?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) -> c_int {
    answer(|_| {
        known(stream)?;
        EVENTS.get(event).map(|_| ()).ok_or(NO_SUCH)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaEventCreate(event: *mut u64) -> c_int {
    answer(|_| {
        if event.is_null() {
            return Err(INVALID);
        }
        // SAFETY: as above.
        unsafe { give(event, EVENTS.create(false)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaEventRecord(event: u64, stream: u64) -> c_int {
    answer(|session| {
        known(stream)?;
        EVENTS.set(event, true).ok_or(NO_SUCH)?;
        Ok(session.mark(event)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaEventSynchronize(event: u64) -> c_int {
    answer(|session| match EVENTS.get(event) {
        None => Err(NO_SUCH),
        Some(false) => Ok(()),
        Some(true) => Ok(session.synchronise()?),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaEventElapsedTime(
    milliseconds: *mut f32,
    from: u64,
    to: u64,
) -> c_int {
    answer(|session| {
        if [from, to].map(|event| EVENTS.get(event)) != [Some(true); 2] {
            return Err(NO_SUCH);
        }
        // SAFETY: as above.
        unsafe { give(milliseconds, session.elapsed(from, to)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaEventDestroy(event: u64) -> c_int {
    answer(|session| match EVENTS.destroy(event) {
        None => Err(NO_SUCH),
        Some(false) => Ok(()),
        Some(true) => Ok(session.forget(event)?),
    })
}
