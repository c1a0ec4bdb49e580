//! What is changed of a process here: the file system ids of the child that enters a container.
#![allow(unsafe_code)]

use rustix::process::{parent_process_death_signal, set_parent_process_death_signal};

/// From here on files are created as this user and group, and nothing else changes: setfsuid(2),
/// setfsgid(2). Root of the host has no id in a container with mappings of its own, and the kernel refuses
/// to create files without one (EOVERFLOW).
pub fn create_files_as(uid: u32, gid: u32) {
    // With these ids the kernel forgets it (prctl(2), PR_SET_PDEATHSIG).
    let when_parent_dies = parent_process_death_signal().ok().flatten();
    // SAFETY: both calls change only the calling thread's credentials and touch no memory. They cannot
    // fail for root; if they did, creating the first file would.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
    if when_parent_dies.is_some() {
        let _ = set_parent_process_death_signal(when_parent_dies);
    }
}
