//! All `unsafe` of this crate that is not a C function's own: what threads keep, what this process's children run, and
//! what is loaded.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, compiler_fence};

use crate::process::Entered;

thread_local! {
    /// What the thread keeps, but while it is in a call. Without a destructor of its own, so that nothing is asked when it
    /// is used.
    static KEPT: Cell<*mut Entered> = const { Cell::new(ptr::null_mut()) };
}

/// Has this thread keep that, and gives what it has kept. A signal that interrupts it after what comes before, or before
/// what comes after, finds it so.
#[inline]
pub fn replace_kept(keep: Option<Box<Entered>>) -> Option<Box<Entered>> {
    compiler_fence(Ordering::SeqCst);
    let kept = KEPT.replace(keep.map_or(ptr::null_mut(), Box::into_raw));
    compiler_fence(Ordering::SeqCst);
    // SAFETY: what is there was put there above, and is there no more.
    NonNull::new(kept).map(|kept| unsafe { Box::from_raw(kept.as_ptr()) })
}

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
