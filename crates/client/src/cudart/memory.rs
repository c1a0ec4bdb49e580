//! The runtime's device memory, which is the worker's. A program's own memory is copied from and to before a call
//! returns.
#![allow(unsafe_code, non_snake_case, reason = "C functions")]

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use vgpu_remoting::cudnn::{Result, Status};
use vgpu_remoting::reuse::Thread;
use vgpu_remoting::session::Session;

use super::{INVALID_VALUE, failed};
use crate::process;

/// `cudaError_t` of a status.
fn error(status: Status) -> c_int {
    match status {
        Status::BadParam | Status::InvalidValue => INVALID_VALUE,
        Status::AllocFailed => 2,
        Status::NotInitialized => 3,
        // `cudaErrorLaunchFailure`: also where the worker is gone, since then nothing works any more.
        Status::ExecutionFailed => 719,
        Status::NotSupported => 801,
        Status::InternalError => 999,
    }
}

fn answer(call: impl FnOnce(&Session<'static>, &mut Thread) -> Result) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(|| process::call(call)));
    match result.unwrap_or(Err(Status::InternalError)) {
        Ok(()) => 0,
        Err(status) => failed(error(status)),
    }
}

// SAFETY, of the names here: each is its function's alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaMalloc(address: *mut u64, bytes: usize) -> c_int {
    answer(|session, _| {
        if address.is_null() {
            return Err(Status::InvalidValue);
        }
        // None of no bytes, as the runtime has it.
        let allocated = if bytes == 0 { 0 } else { session.allocate(bytes as u64)? };
        // SAFETY: it is not NULL, so the program's own, of a pointer's size.
        unsafe { address.write_unaligned(allocated) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaFree(address: u64) -> c_int {
    answer(|session, _| if address == 0 { Ok(()) } else { session.free(address) })
}

/// `cudaMemcpyKind`
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const BY_ADDRESS: c_int = 4;

/// Both on the host, or both on the device, are not served.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaMemcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
) -> c_int {
    answer(|session, _| {
        if bytes == 0 {
            return Ok(());
        }
        if to.is_null() || from.is_null() || isize::try_from(bytes).is_err() {
            return Err(Status::InvalidValue);
        }
        let device = session.client().channel().device();
        let on_device = |address: usize| device.contains(&(address as u64));
        match (kind, on_device(from.addr()), on_device(to.addr())) {
            (HOST_TO_DEVICE | BY_ADDRESS, false, true) => {
                // SAFETY: it is not NULL and not the device's, so the program's own, of so many bytes.
                let from = unsafe { std::slice::from_raw_parts(from.cast(), bytes) };
                session.copy_in(to.addr() as u64, from)
            }
            (DEVICE_TO_HOST | BY_ADDRESS, true, false) => {
                // SAFETY: as above.
                let to = unsafe { std::slice::from_raw_parts_mut(to.cast(), bytes) };
                session.copy_out(to, from.addr() as u64)
            }
            (0 | 3 | BY_ADDRESS, false, false) | (0 | 3 | BY_ADDRESS, true, true) => {
                Err(Status::NotSupported)
            }
            _ => Err(Status::InvalidValue),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaDeviceSynchronize() -> c_int {
    answer(|session, _| session.synchronise())
}
