//! The driver's C functions that want no driver. A description of an error is its name: the driver's own are not ours.
#![allow(unsafe_code, reason = "C functions")]

mod names;

use std::ffi::{CStr, c_char, c_int};

use crate::name_of;

/// The version of CUDA that is stood in for, 12.4.
pub const VERSION: c_int = 12_040;

/// `CUDA_ERROR_INVALID_VALUE`
const INVALID_VALUE: c_int = 1;

fn name(error: c_int) -> Option<&'static CStr> {
    name_of(names::NAMES, error)
}

// SAFETY, of the names here: each is its function's alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cuda_1_cuDriverGetVersion(version: *mut c_int) -> c_int {
    if version.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: it is not NULL, so the program's own, of an `int`'s size.
    unsafe { version.write_unaligned(VERSION) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cuda_1_cuGetErrorName(error: c_int, text: *mut *const c_char) -> c_int {
    if text.is_null() {
        return INVALID_VALUE;
    }
    let name = name(error);
    // SAFETY: it is not NULL, so the program's own, of a pointer's size.
    unsafe { text.write_unaligned(name.map_or(std::ptr::null(), CStr::as_ptr)) };
    if name.is_some() { 0 } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cuda_1_cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: as the caller says.
    unsafe { vgpu_cuda_1_cuGetErrorName(error, text) }
}
