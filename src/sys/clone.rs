//! clone3(2): a child that is in a given cgroup from its first instruction on.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::Pid;

const CLONE_PIDFD: u64 = 0x1000;
/// libc has it cut to 32 bits.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Which of the two processes this is.
#[derive(Debug)]
pub enum Fork {
    /// The new one.
    Child,
    /// The old one.
    Parent {
        /// The child, for waitid(2) and poll(2); close-on-exec.
        pidfd: OwnedFd,
        /// Its number, in this process's pid namespace.
        pid: Pid,
    },
}

/// Forks. With `cgroup`, a directory of cgroup v2, the child is born in that cgroup and is counted, limited
/// and ruled as its other processes are; where the cgroup is frozen it does not run. The parent gets SIGCHLD.
///
/// # Errors
/// EINVAL where this process has a second thread: the child would have whatever locks that thread held, and
/// nobody to release them. EAGAIN where the cgroup's `pids.max` (or this process's RLIMIT_NPROC) leaves no
/// room. EBUSY where the cgroup hands controllers to cgroups beneath it. EBADF where `cgroup` is of v1.
pub fn fork_into(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Fork> {
    // SAFETY: CLONE_THREAD unshares nothing; it succeeds where there is but one thread (unshare(2)).
    if unsafe { libc::unshare(libc::CLONE_THREAD) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: CLONE_PIDFD,
        pidfd: std::ptr::from_mut(&mut pidfd).expose_provenance() as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM the child has its own copy of everything and goes on where the parent does,
    // as after fork(2); there was no other thread. `pidfd` lives until after the call.
    let result =
        unsafe { libc::syscall(libc::SYS_clone3, std::ptr::from_mut(&mut args), size_of::<CloneArgs>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // A pid is an int.
    let Some(pid) = Pid::from_raw(result as i32) else { return Ok(Fork::Child) };
    // SAFETY: the kernel has just made this descriptor for us, nobody else knows it.
    Ok(Fork::Parent { pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) }, pid })
}

/// Ends this process at once: nothing that was copied from the parent is flushed, unlocked or dropped.
pub fn exit_now(status: u8) -> ! {
    // SAFETY: it does not return, and runs nothing of ours.
    unsafe { libc::_exit(status.into()) }
}

/// `struct clone_args`, the version with `cgroup` (Linux 5.7).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}
