//! The one call of the mount API that no crate has: mount_setattr(2).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Changes one detached mount: sets and clears attributes (`MOUNT_ATTR_*`) and makes it private, so that
/// nothing mounted on it reaches anywhere else. Linux 5.12.
pub fn set_private_with(mount: impl AsFd, set: u64, clear: u64) -> io::Result<()> {
    let attributes =
        libc::mount_attr { attr_set: set, attr_clr: clear, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    // SAFETY: the descriptor is borrowed for the whole call, the path is a NUL-terminated literal, and the
    // kernel only reads `attributes`, whose exact size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
