//! What cuDNN says of itself, and of its statuses. Versions are those of the libraries that the rules were found with.
#![allow(unsafe_code, non_snake_case, reason = "the names are the library's")]

use std::ffi::{CStr, c_char, c_int};

use vgpu_remoting::cudnn::{Status, Version};

use super::answer;
use crate::arguments::all_there;
use crate::name_of;

/// Major, minor and patch level.
const fn version(version: Version) -> [i32; 3] {
    match version {
        Version::V8 => [8, 9, 7],
        Version::V9 => [9, 1, 0],
    }
}

/// `cudnnGetVersion`: a number of all three, as the version counts them.
const fn number(of: Version) -> usize {
    let [major, minor, patch] = version(of);
    let thousands = if matches!(of, Version::V8) { 1000 } else { 10_000 };
    (major * thousands + minor * 100 + patch) as usize
}

/// The CUDA runtime that the library was built with.
const fn runtime(version: Version) -> usize {
    match version {
        Version::V8 => 12_020,
        Version::V9 => 12_040,
    }
}

/// The newest kind of GPU that the library knows: compute capability 9.0.
const MAX_DEVICE: usize = 900;

/// `cudnnGetProperty`.
///
/// # Errors
/// That it is none, which the versions call by different names.
fn property(of: Version, property: c_int) -> Result<c_int, Status> {
    let none = if of == Version::V8 { Status::InvalidValue } else { Status::BadParam };
    usize::try_from(property).ok().and_then(|property| version(of).get(property).copied()).ok_or(none)
}

/// The names of statuses, by number.
const NAMES_8: &[(i32, &CStr)] = &[
    (0, c"CUDNN_STATUS_SUCCESS"),
    (1, c"CUDNN_STATUS_NOT_INITIALIZED"),
    (2, c"CUDNN_STATUS_ALLOC_FAILED"),
    (3, c"CUDNN_STATUS_BAD_PARAM"),
    (4, c"CUDNN_STATUS_INTERNAL_ERROR"),
    (5, c"CUDNN_STATUS_INVALID_VALUE"),
    (6, c"CUDNN_STATUS_ARCH_MISMATCH"),
    (7, c"CUDNN_STATUS_MAPPING_ERROR"),
    (8, c"CUDNN_STATUS_EXECUTION_FAILED"),
    (9, c"CUDNN_STATUS_NOT_SUPPORTED"),
    (10, c"CUDNN_STATUS_LICENSE_ERROR"),
    (11, c"CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING"),
    (12, c"CUDNN_STATUS_RUNTIME_IN_PROGRESS"),
    (13, c"CUDNN_STATUS_RUNTIME_FP_OVERFLOW"),
    (14, c"CUDNN_STATUS_VERSION_MISMATCH"),
];

const NAMES_9: &[(i32, &CStr)] = &[
    (0, c"CUDNN_STATUS_SUCCESS"),
    (1001, c"CUDNN_STATUS_NOT_INITIALIZED"),
    (1002, c"CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"),
    (1003, c"CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH"),
    (1004, c"CUDNN_STATUS_DEPRECATED"),
    (1005, c"CUDNN_STATUS_LICENSE_ERROR"),
    (1006, c"CUDNN_STATUS_RUNTIME_IN_PROGRESS"),
    (1007, c"CUDNN_STATUS_RUNTIME_FP_OVERFLOW"),
    (2000, c"CUDNN_STATUS_BAD_PARAM"),
    (2001, c"CUDNN_STATUS_INVALID_VALUE"),
    (2002, c"CUDNN_STATUS_BAD_PARAM_NULL_POINTER"),
    (2003, c"CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER"),
    (2004, c"CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED"),
    (2005, c"CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND"),
    (2006, c"CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT"),
    (2007, c"CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH"),
    (2008, c"CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH"),
    (2009, c"CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES"),
    (2010, c"CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE"),
    (3000, c"CUDNN_STATUS_NOT_SUPPORTED"),
    (3001, c"CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN"),
    (3002, c"CUDNN_STATUS_NOT_SUPPORTED_SHAPE"),
    (3003, c"CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE"),
    (3004, c"CUDNN_STATUS_NOT_SUPPORTED_LAYOUT"),
    (3005, c"CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER"),
    (3006, c"CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART"),
    (3007, c"CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH"),
    (3008, c"CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING"),
    (3009, c"CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"),
    (3010, c"CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT"),
    (3011, c"CUDNN_STATUS_NOT_SUPPORTED_PADDING"),
    (3012, c"CUDNN_STATUS_NOT_SUPPORTED_BAD_LAUNCH_PARAM"),
    (4000, c"CUDNN_STATUS_INTERNAL_ERROR"),
    (4001, c"CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED"),
    (4002, c"CUDNN_STATUS_INTERNAL_ERROR_UNEXPECTED_VALUE"),
    (4003, c"CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
    (4004, c"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    (4005, c"CUDNN_STATUS_INTERNAL_ERROR_BAD_LAUNCH_PARAM"),
    (4006, c"CUDNN_STATUS_INTERNAL_ERROR_TEXTURE_CREATION_FAILED"),
    (5000, c"CUDNN_STATUS_EXECUTION_FAILED"),
    (5001, c"CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER"),
    (5002, c"CUDNN_STATUS_EXECUTION_FAILED_CUBLAS"),
    (5003, c"CUDNN_STATUS_EXECUTION_FAILED_CUDART"),
    (5004, c"CUDNN_STATUS_EXECUTION_FAILED_CURAND"),
];

/// `cudnnGetErrorString`.
fn name(version: Version, status: c_int) -> &'static CStr {
    let names = if version == Version::V8 { NAMES_8 } else { NAMES_9 };
    name_of(names, status).unwrap_or(c"CUDNN_UNKNOWN_STATUS")
}

macro_rules! functions {
    ($version:ident $prefix:literal) => {
        // SAFETY, of this one and those below: the name is this function's alone.
        #[unsafe(export_name = concat!($prefix, "cudnnGetVersion"))]
        extern "C" fn cudnnGetVersion() -> usize {
            number(Version::$version)
        }

        #[unsafe(export_name = concat!($prefix, "cudnnGetCudartVersion"))]
        extern "C" fn cudnnGetCudartVersion() -> usize {
            runtime(Version::$version)
        }

        #[unsafe(export_name = concat!($prefix, "cudnnGetMaxDeviceVersion"))]
        extern "C" fn cudnnGetMaxDeviceVersion() -> usize {
            MAX_DEVICE
        }

        #[unsafe(export_name = concat!($prefix, "cudnnGetErrorString"))]
        extern "C" fn cudnnGetErrorString(status: c_int) -> *const c_char {
            name(Version::$version, status).as_ptr()
        }

        #[unsafe(export_name = concat!($prefix, "cudnnGetProperty"))]
        unsafe extern "C" fn cudnnGetProperty(which: c_int, value: *mut c_int) -> c_int {
            answer(Version::$version, || {
                all_there(&[!value.is_null()])?;
                let property = property(Version::$version, which)?;
                // SAFETY: it is not NULL, so the program's own, of an `int`'s size.
                unsafe { value.write_unaligned(property) };
                Ok(())
            })
        }
    };
}

mod v8 {
    use super::*;
    functions!(V8 "vgpu_cudnn_8_");
}

mod v9 {
    use super::*;
    functions!(V9 "vgpu_cudnn_9_");

    /// What was wrong with the last call, in words, which version 9 has and we do not.
    #[unsafe(export_name = "vgpu_cudnn_9_cudnnGetLastErrorString")]
    unsafe extern "C" fn cudnnGetLastErrorString(message: *mut c_char, size: usize) {
        if !message.is_null() && size > 0 {
            // SAFETY: it is the program's own, of so many bytes.
            unsafe { message.write(0) };
        }
    }
}
