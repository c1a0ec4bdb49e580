//! Functions that are not served: each is answered with its library's status for that, counted, and named once in
//! the log.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::panic::catch_unwind;
use std::sync::{LazyLock, Mutex, PoisonError};

use vgpu_remoting::cudnn::{Status, Version};

use crate::process::is_forked;
use crate::{cudart, log};

/// How often each was called, by library and name.
type Calls = HashMap<(&'static str, String), u64>;

static CALLS: LazyLock<Mutex<Calls>> = LazyLock::new(Mutex::default);

/// Notes a call. A child that was forked does not: a thread that it does not have may hold the lock.
fn note(library: &'static str, name: &CStr) {
    if is_forked() {
        return;
    }
    let name = name.to_string_lossy().into_owned();
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let count = calls.entry((library, name.clone())).or_default();
    *count += 1;
    if *count == 1 {
        log(&format!("{library}: {name} is not served: it says that it is not supported"));
    }
}

macro_rules! libraries {
    ($($name:ident $library:literal $status:expr;)*) => {
        $(
            // SAFETY: the name is this function's alone.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(name: *const c_char) -> c_int {
                // SAFETY: only facades call it, with a constant of theirs.
                let name = unsafe { CStr::from_ptr(name) };
                let _ = catch_unwind(|| note($library, name));
                $status
            }
        )*
    };
}

libraries! {
    vgpu_cudnn_8_unserved "libcudnn.so.8" Status::NotSupported.code(Version::V8);
    vgpu_cudnn_9_unserved "libcudnn.so.9" Status::NotSupported.code(Version::V9);
    vgpu_cudart_12_unserved "libcudart.so.12" cudart::failed(801);
    vgpu_cuda_1_unserved "libcuda.so.1" 801;
    vgpu_cublas_12_unserved "libcublas.so.12" 15;
}
