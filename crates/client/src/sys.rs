//! All `unsafe` of this crate that is not a C function's own: what this process's children run.
#![allow(unsafe_code)]

/// Has `child` run in each child that this process forks, before `fork` returns there.
pub fn in_forked_children(child: extern "C" fn()) {
    // SAFETY: `child` is of a library that is never unloaded. Only memory can be lacking, some bytes: nothing is to be
    // done about that.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}
