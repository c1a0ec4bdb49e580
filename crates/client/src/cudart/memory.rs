//! The runtime's device memory, which is the worker's. A program's own memory is copied from and to before a call
//! returns, also where the call need not wait for that; what stays on the device is done later, in order.
#![allow(unsafe_code, non_snake_case, reason = "C functions")]

use std::ffi::{c_int, c_void};
use std::{ptr, slice};

use vgpu_remoting::memory::Rows;
use vgpu_remoting::session::Session;

use super::{INVALID, answer, give};
use crate::device::stream::known;
use crate::device::{Error, memory};

// SAFETY, of the names here: each is its function's alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaMalloc(address: *mut u64, bytes: usize) -> c_int {
    answer(|session| {
        if address.is_null() {
            return Err(INVALID);
        }
        // None of no bytes, as the runtime has it.
        let allocated = if bytes == 0 { 0 } else { memory::allocate(session, bytes as u64)? };
        // SAFETY: it is the program's own, as of all pointers here.
        unsafe { give(address, allocated) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaFree(address: u64) -> c_int {
    answer(|session| if address == 0 { Ok(()) } else { memory::free(session, address) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    answer(|session| {
        if free.is_null() || total.is_null() {
            return Err(INVALID);
        }
        let (now_free, all) = session.memory_info()?;
        // SAFETY: as above.
        unsafe {
            give(free, now_free as usize)?;
            give(total, all as usize)
        }
    })
}

/// `cudaMemcpyKind`
const HOST_TO_HOST: c_int = 0;
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const DEVICE_TO_DEVICE: c_int = 3;
const BY_ADDRESS: c_int = 4;

/// One row, of whatever length.
fn row(address: usize) -> Rows {
    Rows { address: address as u64, pitch: 0 }
}

/// # Safety
/// What is not the device's is NULL, or the program's own, of so many bytes.
unsafe fn copy(
    session: &Session<'_>,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
) -> Result<(), Error> {
    if bytes == 0 {
        return Ok(());
    }
    if to.is_null() || from.is_null() || isize::try_from(bytes).is_err() {
        return Err(INVALID);
    }
    let device = session.client().channel().device();
    let on_device = |address: usize| device.contains(&(address as u64));
    match (kind, on_device(from.addr()), on_device(to.addr())) {
        (HOST_TO_DEVICE | BY_ADDRESS, false, true) => {
            // SAFETY: it is not NULL and not the device's, so the program's own, of so many bytes.
            let from = unsafe { slice::from_raw_parts(from.cast(), bytes) };
            session.copy_in(to.addr() as u64, from)?;
        }
        (DEVICE_TO_HOST | BY_ADDRESS, true, false) => {
            // SAFETY: as above.
            let to = unsafe { slice::from_raw_parts_mut(to.cast(), bytes) };
            session.copy_out(to, from.addr() as u64)?;
        }
        (DEVICE_TO_DEVICE | BY_ADDRESS, true, true) => {
            session.copy(row(to.addr()), row(from.addr()), bytes as u64, 1)?;
        }
        (HOST_TO_HOST | BY_ADDRESS, false, false) => {
            // All that was sent before comes first, on whatever stream.
            session.synchronise()?;
            // SAFETY: as above, of both; they may overlap.
            unsafe { ptr::copy(from.cast::<u8>(), to.cast(), bytes) };
        }
        _ => return Err(INVALID),
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaMemcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: as the C function's declaration says.
    answer(|session| unsafe { copy(session, to, from, bytes, kind) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: u64,
) -> c_int {
    answer(|session| {
        known(stream)?;
        // SAFETY: as above.
        unsafe { copy(session, to, from, bytes, kind) }
    })
}

fn fill(session: &Session<'_>, address: usize, value: c_int, bytes: usize) -> Result<(), Error> {
    match (bytes, session.client().channel().device().contains(&(address as u64))) {
        (0, _) => Ok(()),
        (_, true) => Ok(session.fill(row(address), bytes as u64, 1, u64::from(value as u8), 1)?),
        (_, false) => Err(INVALID),
    }
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaMemset(address: usize, value: c_int, bytes: usize) -> c_int {
    answer(|session| fill(session, address, value, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaMemsetAsync(
    address: usize,
    value: c_int,
    bytes: usize,
    stream: u64,
) -> c_int {
    answer(|session| {
        known(stream)?;
        fill(session, address, value, bytes)
    })
}
