//! What cuBLAS says of itself, and of its statuses. A description of a status is its name.
#![allow(unsafe_code, reason = "C functions")]

use std::ffi::{CStr, c_char, c_int};

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

#[unsafe(no_mangle)]
extern "C" fn vgpu_cublas_12_cublasGetCudartVersion() -> usize {
    cuda::VERSION as usize
}
