//! The runtime's devices: the worker's one, if there is a worker.
#![allow(unsafe_code, non_snake_case, reason = "C functions")]

use std::ffi::c_int;

use vgpu_remoting::session::Session;

use super::{Error, answer, give};

/// `cudaErrorNoDevice`
const NO_DEVICE: Error = Error(100);

/// `cudaErrorInvalidDevice`
const INVALID_DEVICE: Error = Error(101);

/// Is there a worker that has device memory?
fn is_there(session: &Session<'_>) -> bool {
    !session.client().channel().device().is_empty()
}

// SAFETY, of the names here: each is its function's alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaGetDeviceCount(count: *mut c_int) -> c_int {
    answer(|session| {
        // SAFETY: it is NULL or the program's own, as of all pointers here.
        unsafe { give(count, is_there(session).into()) }?;
        if is_there(session) { Ok(()) } else { Err(NO_DEVICE) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaGetDevice(device: *mut c_int) -> c_int {
    answer(|session| {
        if !is_there(session) {
            return Err(NO_DEVICE);
        }
        // SAFETY: as above.
        unsafe { give(device, 0) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaSetDevice(device: c_int) -> c_int {
    answer(|session| match (is_there(session), device) {
        (true, 0) => Ok(()),
        (true, _) => Err(INVALID_DEVICE),
        (false, _) => Err(NO_DEVICE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaDeviceSynchronize() -> c_int {
    answer(|session| Ok(session.synchronise()?))
}
