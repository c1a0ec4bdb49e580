//! faccessat2(2) on an opened file, which no crate passes on.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// May this process open the file behind the descriptor (`O_PATH` will do) for reading and writing? The
/// kernel asks permissions, security modules and the device cgroup, as it does in open(2), and leaves the
/// driver alone. Linux 5.8.
///
/// # Errors
/// EPERM where the device cgroup denies it, EACCES where permissions do.
pub fn may_read_and_write(file: impl AsFd) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for the whole call, and the path is a NUL-terminated literal.
    let result = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::R_OK | libc::W_OK,
            libc::AT_EMPTY_PATH,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
