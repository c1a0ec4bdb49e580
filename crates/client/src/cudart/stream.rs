//! The runtime's streams and events.
#![allow(unsafe_code, non_snake_case, reason = "C functions")]

use std::ffi::{c_int, c_uint};

use super::{INVALID, answer, give};
use crate::device::{event as events, stream as streams};

// SAFETY, of the names here: each is its function's alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaStreamCreate(stream: *mut u64) -> c_int {
    answer(|_| {
        if stream.is_null() {
            return Err(INVALID);
        }
        // SAFETY: it is the program's own, as of all pointers here.
        unsafe { give(stream, streams::create(0)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaStreamDestroy(stream: u64) -> c_int {
    answer(|_| streams::destroy(stream))
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaStreamSynchronize(stream: u64) -> c_int {
    answer(|session| streams::synchronise(session, stream))
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) -> c_int {
    answer(|_| {
        streams::known(stream)?;
        events::known(event)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaEventCreate(event: *mut u64) -> c_int {
    answer(|_| {
        if event.is_null() {
            return Err(INVALID);
        }
        // SAFETY: as above.
        unsafe { give(event, events::create(0)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaEventRecord(event: u64, stream: u64) -> c_int {
    answer(|session| events::record(session, event, stream))
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaEventSynchronize(event: u64) -> c_int {
    answer(|session| events::synchronise(session, event))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaEventElapsedTime(
    milliseconds: *mut f32,
    from: u64,
    to: u64,
) -> c_int {
    answer(|session| {
        let elapsed = events::elapsed(session, from, to)?;
        // SAFETY: as above.
        unsafe { give(milliseconds, elapsed) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaEventDestroy(event: u64) -> c_int {
    answer(|session| events::destroy(session, event))
}
