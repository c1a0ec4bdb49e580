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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::path::Path;

    use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, makedev, mknodat};
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    use super::*;
    use crate::sys::bpf::{self, Insn};

    /// Runs `body` in a process that has but one thread, as vgpu has, and mounts of its own.
    fn alone(body: impl FnOnce() + std::panic::UnwindSafe) {
        // SAFETY: glibc makes its own locks usable in the child, which ends without returning.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            exit_now(std::panic::catch_unwind(body).map_or(1, |()| 0));
        }
        let status = waitid(WaitId::Pid(Pid::from_raw(pid).unwrap()), WaitIdOptions::EXITED);
        assert_eq!(status.unwrap().unwrap().exit_status(), Some(0), "the child panicked");
    }

    fn status(pidfd: &OwnedFd) -> Option<i32> {
        waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).unwrap().unwrap().exit_status()
    }

    fn refused(result: io::Result<Fork>) -> Option<i32> {
        result.unwrap_err().raw_os_error()
    }

    #[test]
    fn a_process_with_threads_is_refused() {
        // The test harness has one for each test.
        assert_eq!(refused(fork_into(None)), Some(libc::EINVAL));
    }

    #[test]
    fn pid_and_pidfd_are_the_childs() {
        alone(|| {
            let Fork::Parent { pidfd, pid } = fork_into(None).unwrap() else { exit_now(7) };
            let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            assert_eq!(ended.unwrap().unwrap().exit_status(), Some(7));
            assert_eq!(status(&pidfd), Some(7));
        });
    }

    /// A cgroup v2 hierarchy and a cgroup in it, in a mount namespace of its own.
    fn with_cgroup(body: impl FnOnce(&Path) + std::panic::UnwindSafe) {
        alone(|| {
            let hierarchy = tempfile::tempdir().unwrap();
            // SAFETY: only mounts are unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            mount("none", hierarchy.path(), "cgroup2", MountFlags::empty(), None).unwrap();
            let cgroup = hierarchy.path().join(format!("vgpu-test-clone-{}", std::process::id()));
            fs::create_dir(&cgroup).unwrap();
            let result = std::panic::catch_unwind(|| body(&cgroup));
            fs::remove_dir(&cgroup).unwrap();
            rustix::mount::unmount(hierarchy.path(), rustix::mount::UnmountFlags::empty()).unwrap();
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    /// The error number of a child's question whether it may open the node, 0 for yes.
    fn asked_inside(cgroup: &fs::File, node: &Path) -> Option<i32> {
        let Fork::Parent { pidfd, .. } = fork_into(Some(cgroup.as_fd())).unwrap() else {
            let asked = accessat(CWD, node, Access::READ_OK | Access::WRITE_OK, AtFlags::empty());
            exit_now(asked.map_or_else(|e| e.raw_os_error() as u8, |()| 0));
        };
        status(&pidfd)
    }

    #[test]
    #[ignore = "needs root: makes cgroups"]
    fn the_child_is_ruled_by_its_cgroup_without_opening_anything() {
        with_cgroup(|cgroup| {
            let dir = tempfile::tempdir().unwrap();
            let node = dir.path().join("nvidia0");
            mknodat(CWD, &node, FileType::CharacterDevice, 0o666.into(), makedev(195, 0)).unwrap();
            let cgroup = fs::File::open(cgroup).unwrap();
            assert_eq!(asked_inside(&cgroup, &node), Some(0));
            let deny = [Insn::new(0xb7, 0, 0, 0, 0), Insn::new(0x95, 0, 0, 0, 0)];
            let deny = bpf::load("deny", &deny).unwrap();
            bpf::attach(cgroup.as_fd(), deny.as_fd(), bpf::ALLOW_MULTI).unwrap();
            assert_eq!(asked_inside(&cgroup, &node), Some(libc::EPERM));
        });
    }

    #[test]
    #[ignore = "needs root: makes cgroups"]
    fn a_cgroup_that_takes_no_process_is_an_error() {
        with_cgroup(|cgroup| {
            let into = |dir: &Path| refused(fork_into(Some(fs::File::open(dir).unwrap().as_fd())));
            assert_eq!(into(Path::new("/")), Some(libc::EBADF));
            let controllers = fs::read_to_string(cgroup.with_file_name("cgroup.controllers")).unwrap();
            let any = controllers.split_whitespace().next().expect("v2 has a controller");
            for dir in [cgroup.parent().unwrap(), cgroup] {
                fs::write(dir.join("cgroup.subtree_control"), format!("+{any}")).unwrap();
            }
            assert_eq!(into(cgroup), Some(libc::EBUSY), "not a leaf");
        });
    }
}
