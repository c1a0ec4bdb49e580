//! The cgroups of workers, one for each below `vgpu`, in each hierarchy that matters: by these a worker is held to its
//! memory, found, and killed. Makes, writes and removes cgroups there alone.

use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::types::Bytes;

/// Above the workers' cgroups, in each of [`HIERARCHIES`] that is mounted.
const CGROUP: &str = "vgpu";

/// Where hierarchies are mounted in which processes are ended as a group, or held to memory and numbers: v2, or of v1
/// systemd's own and two controllers.
const HIERARCHIES: [&str; 5] = [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/unified",
    "/sys/fs/cgroup/systemd",
    "/sys/fs/cgroup/memory",
    "/sys/fs/cgroup/pids",
];

/// Memory that a worker may have beside its type's, in bytes: for its program, and what it keeps of each client.
const BESIDE: u64 = 256 << 20;

/// How many threads it may have: two for each client, and as many connections again.
const THREADS: u64 = 512;

/// The cgroups above the workers', where there are any.
fn open_cgroups() -> impl Iterator<Item = OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    mounted().filter_map(move |root| openat(CWD, format!("{root}/{CGROUP}"), flags, Mode::empty()).ok())
}

fn mounted() -> impl Iterator<Item = &'static str> {
    let is_cgroups = |root: &&str| {
        let kind = rustix::fs::statfs(*root).map(|fs| fs.f_type);
        matches!(kind, Ok(libc::CGROUP_SUPER_MAGIC | libc::CGROUP2_SUPER_MAGIC))
    };
    HIERARCHIES.into_iter().filter(is_cgroups)
}

/// Moves a worker into cgroups of its own. Where the host has a controller, it is held there to twice its type's memory,
/// since it has as much for memory of programs that it shares, and to so many threads.
///
/// # Errors
/// The kernel's.
pub fn enter(name: &str, pid: u32, memory: Bytes) -> io::Result<()> {
    let most = memory.0.saturating_mul(2).saturating_add(BESIDE);
    for root in mounted() {
        let root = openat(CWD, root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Of v2 alone; a host without these controllers has no such limits.
        let _ = write(&root, "cgroup.subtree_control", "+memory +pids");
        make(&root, CGROUP)?;
        let _ = write(&root, &format!("{CGROUP}/cgroup.subtree_control"), "+memory +pids");
        let own = format!("{CGROUP}/{name}");
        make(&root, &own)?;
        for (file, limit) in [("memory.max", most), ("memory.limit_in_bytes", most), ("pids.max", THREADS)] {
            match write(&root, &format!("{own}/{file}"), &limit.to_string()) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                written => written?,
            }
        }
        write(&root, &format!("{own}/cgroup.procs"), &pid.to_string())?;
    }
    Ok(())
}

fn make(root: &OwnedFd, path: &str) -> io::Result<()> {
    match mkdirat(root, path, Mode::from_raw_mode(0o755)) {
        Err(e) if e != Errno::EXIST => Err(e.into()),
        _ => Ok(()),
    }
}

fn write(root: &OwnedFd, path: &str, text: &str) -> io::Result<()> {
    let file = openat(root, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    std::fs::File::from(file).write_all(text.as_bytes())
}

/// Kills what is in a worker's cgroups, and removes these. The flag tells whether they are gone: processes may take their
/// time to end.
pub fn end(name: &str) -> bool {
    let mut gone = true;
    for cgroups in open_cgroups() {
        // What is not dead keeps its cgroup from being removed.
        let _ = kill_all(&cgroups, name);
        gone &= matches!(unlinkat(&cgroups, name, AtFlags::REMOVEDIR), Ok(()) | Err(Errno::NOENT));
    }
    gone
}

/// Kills each process of a cgroup. A number may be another process's by the time that it is opened: then it is not there
/// any more when it is looked for again.
fn kill_all(cgroups: &OwnedFd, name: &str) -> io::Result<()> {
    let procs = || -> io::Result<String> {
        let file =
            openat(cgroups, format!("{name}/cgroup.procs"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        std::io::read_to_string(std::fs::File::from(file))
    };
    for line in procs()?.lines() {
        let Some(pid) = line.parse().ok().and_then(Pid::from_raw) else { continue };
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        if procs()?.lines().any(|again| again == line) {
            pidfd_send_signal(&process, Signal::KILL)?;
            // It does so at once, but for one that the kernel holds up.
            let patience = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience));
        }
    }
    Ok(())
}
