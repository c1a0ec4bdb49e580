//! Descriptors that this process was started with and does not know. Touches this process alone.

#![allow(unsafe_code)]

use std::io;

/// Marks every descriptor from `first` on close-on-exec, so that no program started later has them
/// (`close_range(2)`, Linux 5.11).
///
/// # Errors
/// The kernel's.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    const TO_THE_LAST: u32 = u32::MAX;
    // SAFETY: with CLOSE_RANGE_CLOEXEC the call closes nothing; it sets a flag on open descriptors,
    // which stay valid for whoever owns them, and touches no memory of ours.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, TO_THE_LAST, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
