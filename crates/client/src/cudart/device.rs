//! The runtime's devices: the worker's one, if there is a worker.
#![allow(unsafe_code, non_snake_case, reason = "C functions")]

use std::ffi::c_int;

use super::{answer, ask, give};
use crate::device::{Error, is_there};

// SAFETY, of the names here: each is its function's alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaGetDeviceCount(count: *mut c_int) -> c_int {
    ask(|session| {
        // SAFETY: it is NULL or the program's own, as of all pointers here.
        unsafe { give(count, is_there(session).into()) }?;
        if is_there(session) { Ok(()) } else { Err(Error::NO_DEVICE) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaGetDevice(device: *mut c_int) -> c_int {
    ask(|session| {
        if !is_there(session) {
            return Err(Error::NO_DEVICE);
        }
        // SAFETY: as above.
        unsafe { give(device, 0) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaSetDevice(device: c_int) -> c_int {
    answer(|_| if device == 0 { Ok(()) } else { Err(Error::INVALID_DEVICE) })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaDeviceSynchronize() -> c_int {
    answer(|session| Ok(session.synchronise()?))
}
