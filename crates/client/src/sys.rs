//! All `unsafe` of this crate that is not a C function's own: what this process's children run, and what is loaded.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// Has `child` run in each child that this process forks, before `fork` returns there.
pub fn in_forked_children(child: extern "C" fn()) {
    // SAFETY: `child` is of a library that is never unloaded. Only memory can be lacking, some bytes: nothing is to be
    // done about that.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// The address of a function of a library, by that's name, by which a program would load it. It stays loaded.
pub fn function(library: &CStr, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: what loading it runs, a program's loading it would run.
    let library = NonNull::new(unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY) })?;
    // SAFETY: it is a library's handle.
    NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) }).map(NonNull::as_ptr)
}
