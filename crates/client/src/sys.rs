//! All `unsafe` of this crate that is not a C function's own: what this process's children run, and what is loaded.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::process::Entered;

thread_local! {
    /// What the thread keeps, but while it is in a call. Without a destructor of its own, so that nothing is asked when it
    /// is used.
    static KEPT: Cell<*mut Entered> = const { Cell::new(ptr::null_mut()) };
}

/// Has this thread keep that, and gives what it has kept.
#[inline(always)]
pub fn replace_kept(keep: Option<Box<Entered>>) -> Option<Box<Entered>> {
    let kept = KEPT.replace(keep.map_or(ptr::null_mut(), Box::into_raw));
    // SAFETY: what is there was put there above, and is there no more.
    NonNull::new(kept).map(|kept| unsafe { Box::from_raw(kept.as_ptr()) })
}

/// Has `end` run when this thread ends: after the destructors of its data of C++ and Rust, which may make calls; for those
/// of pthread_key_create(3), which may too, it has several turns. Where the process has no keys left, it has none, and
/// what its threads keep is lost.
pub fn at_thread_end(end: extern "C" fn(*mut c_void)) {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the place is a key's, and `end` of a library that is never unloaded.
        let created = unsafe { libc::pthread_key_create(&raw mut key, Some(end)) };
        (created == 0).then_some(key)
    });
    if let Some(key) = key {
        // SAFETY: the key was created above, and never deleted. The value only has to be one: nothing is read there.
        unsafe { libc::pthread_setspecific(*key, ptr::dangling()) };
    }
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
