//! What cuBLAS says of itself, and of its statuses. A description of a status is its name.
#![allow(unsafe_code, reason = "C functions")]

use std::ffi::{CStr, c_char, c_int};

use super::{INVALID_VALUE, ask};
use crate::functions::functions;
use crate::pointers::Out;
use crate::{cuda, name_of};

const NAMES: &[(i32, &CStr)] = &[
    (0, c"CUBLAS_STATUS_SUCCESS"),
    (1, c"CUBLAS_STATUS_NOT_INITIALIZED"),
    (3, c"CUBLAS_STATUS_ALLOC_FAILED"),
    (7, c"CUBLAS_STATUS_INVALID_VALUE"),
    (8, c"CUBLAS_STATUS_ARCH_MISMATCH"),
    (11, c"CUBLAS_STATUS_MAPPING_ERROR"),
    (13, c"CUBLAS_STATUS_EXECUTION_FAILED"),
    (14, c"CUBLAS_STATUS_INTERNAL_ERROR"),
    (15, c"CUBLAS_STATUS_NOT_SUPPORTED"),
    (16, c"CUBLAS_STATUS_LICENSE_ERROR"),
];

// SAFETY, of the names here: each is its function's alone.
#[unsafe(no_mangle)]
extern "C" fn vgpu_cublas_12_cublasGetStatusName(status: c_int) -> *const c_char {
    name_of(NAMES, status).unwrap_or(c"unknown status").as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cublas_12_cublasGetStatusString(status: c_int) -> *const c_char {
    vgpu_cublas_12_cublasGetStatusName(status)
}

/// Major, minor and patch.
const VERSION: [c_int; 3] = [12, 4, 5];

functions! { "vgpu_cublas_12_"
    ask [cublasGetVersion_v2] (handle: u64, version: Out<c_int>) = |session| {
        session.handles().get(handle)?;
        let [major, minor, patch] = VERSION;
        version.give(major * 10000 + minor * 100 + patch).map_err(|_| INVALID_VALUE)
    };
    ask [cublasGetProperty] (property: c_int, value: Out<c_int>) = |_| {
        let number = usize::try_from(property).ok().and_then(|property| VERSION.get(property));
        let number = number.ok_or(INVALID_VALUE)?;
        value.give(*number).map_err(|_| INVALID_VALUE)
    };
    // There is none that the backend would use.
    ask [cublasSetWorkspace_v2] (handle: u64, workspace: u64, _size: usize) = |session| {
        session.handles().get(handle)?;
        if workspace.is_multiple_of(256) { Ok(()) } else { Err(INVALID_VALUE) }
    };
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cublas_12_cublasGetCudartVersion() -> usize {
    cuda::VERSION as usize
}
