//! The worker of one container: started by the hook, found again by its socket, ended with its lease. Touches `workers`
//! in the state directory, the cgroups below `vgpu`, and that process.
//!
//! It outlives the hook: it goes on until no process is left in its container's cgroup, or it is killed. So it has
//! nothing of the hook's standard streams, it makes a session of its own, and it leaves those cgroups with which an
//! engine that is stopped, or a session that is closed, would end it. It gets one of its own, by which it is found and
//! killed whatever its clients do to it, and in which it has as much memory as its type, with some for itself.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, mkdirat, openat, unlinkat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::error::{Exit, OrExit, Result};
use crate::journal;
use crate::pool::Lease;
use crate::pool::store::StateDir;
use crate::types::Bytes;

/// Where the sockets are, in the state directory. Nobody but root looks in there.
const DIR: &str = "workers";

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

/// How long a worker may take to answer the hook that has started it. It does so within milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same where somebody only wants to know.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);

/// The longest answer, in bytes.
const ANSWER: usize = 64 << 10;

/// What a worker is asked in place of a client's greeting (docs/reuse.md): what it has done so far.
const STATUS: [u8; 8] = *b"vgpustat";

/// What a worker says of itself and of its clients (docs/reuse.md). The counters are what the container's own processes
/// say: it may lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What computes.
    pub backend: String,
    /// Device memory, in bytes.
    pub memory: Memory,
    /// Processes that are or were served.
    pub processes: Processes,
    /// What they all count together.
    pub counters: Counters,
    /// What they called that is not supported.
    pub unserved: Unserved,
}

/// See [`Status::memory`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// All that there is for the container.
    pub limit: u64,
    /// How much of it is allocated.
    pub used: u64,
}

/// See [`Status::processes`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// Now.
    pub live: u64,
    /// Since the worker has started.
    pub ever: u64,
}

/// See [`Status::counters`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Calls of the API.
    pub calls: u64,
    /// Records, that is calls that were sent to the worker.
    pub records: u64,
    /// How often it was woken for them.
    pub wakeups: u64,
    /// Descriptors whose content was as predicted.
    pub predicted: u64,
    /// Those whose content was known.
    pub known: u64,
    /// Those of a new content.
    pub new: u64,
    /// Bytes that were copied to and from the device.
    pub bytes: u64,
}

/// See [`Status::unserved`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unserved {
    /// How often, by name.
    pub functions: BTreeMap<String, u64>,
    /// How often others than those that are named.
    pub others: u64,
}

/// A container's worker, while the hook is at work.
#[derive(Debug)]
pub struct Worker {
    directory: OwnedFd,
    name: String,
    /// None where an earlier call of the hook has started it.
    started: Option<Child>,
}

impl Worker {
    /// Starts the worker of a container, or finds the one that an earlier call of the hook has started for this run of
    /// it. It ends when `cgroup` is empty.
    ///
    /// # Errors
    /// [`Exit::Io`]; nothing is left then.
    pub fn start(
        state_dir: &StateDir,
        lease: &Lease,
        memory: Bytes,
        cgroup: &cgroup::Dir,
        program: &OwnedFd,
    ) -> Result<Self> {
        let cannot = || format!("cannot start the worker of container {}", lease.container);
        match mkdirat(state_dir.fd(), DIR, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e).or_exit(Exit::Io, cannot),
        }
        let directory = open_directory(state_dir).or_exit(Exit::Io, cannot)?;
        let mut worker = Self { directory, name: name(lease), started: None };
        if worker.ask().is_ok() {
            return Ok(worker);
        }
        // What a hook has left there that was killed.
        end(&worker.directory, &worker.name);
        let started = worker
            .listen()
            .and_then(|listener| worker.spawn(&listener, state_dir, lease, memory, cgroup, program));
        match started.or_exit(Exit::Io, cannot) {
            Ok(child) => {
                worker.started = Some(child);
                Ok(worker)
            }
            Err(e) => {
                end(&worker.directory, &worker.name);
                Err(e)
            }
        }
    }

    /// Its socket, opened as what is to be mounted.
    ///
    /// # Errors
    /// [`Exit::Io`]
    pub fn socket(&self) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.directory, &*self.name, flags, Mode::empty())
            .or_exit(Exit::Io, || "cannot open the worker's socket")
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// [`Exit::Io`] where it does not, as one that has ended.
    pub fn wait(&self) -> Result<()> {
        let remedy = "see the last lines of the log in state_dir";
        self.ask()
            .map(drop)
            .or_exit(Exit::Io, || "the container's worker does not answer")
            .map_err(|e| e.remedy(remedy))
    }

    /// Ends it, if this call has started it.
    pub fn end(self) {
        let Some(mut child) = self.started else { return };
        // One that has ended by itself is as well.
        let _ = child.kill();
        let _ = child.wait();
        end(&self.directory, &self.name);
    }

    fn ask(&self) -> io::Result<String> {
        ask(self.directory.as_fd(), &self.name, PATIENCE)
    }

    /// Every user of the container may connect.
    fn listen(&self) -> io::Result<UnixListener> {
        let listener = UnixListener::bind(path(self.directory.as_fd(), &self.name))?;
        chmodat(&self.directory, &*self.name, Mode::from_raw_mode(0o666), AtFlags::empty())?;
        Ok(listener)
    }

    /// Of the hook's descriptors it gets these alone: the others are close-on-exec.
    fn spawn(
        &self,
        listener: &UnixListener,
        state_dir: &StateDir,
        lease: &Lease,
        memory: Bytes,
        cgroup: &cgroup::Dir,
        program: &OwnedFd,
    ) -> io::Result<Child> {
        let passed = |fd: BorrowedFd<'_>| -> io::Result<OwnedFd> {
            let fd = fd.try_clone_to_owned()?;
            fcntl_setfd(&fd, FdFlags::empty())?;
            Ok(fd)
        };
        let init = Pid::from_raw(lease.pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
        let init = passed(pidfd_open(init, PidfdFlags::empty())?.as_fd())?;
        let (socket, cgroup) = (passed(listener.as_fd())?, passed(cgroup.as_fd())?);
        // The very file that was checked.
        let mut child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .arg0("vgpu-worker")
            .args(["--memory", &memory.0.to_string()])
            .args(["--socket-fd", &socket.as_raw_fd().to_string()])
            .args(["--watch-cgroup-fd", &cgroup.as_raw_fd().to_string()])
            .args(["--watch-fd", &init.as_raw_fd().to_string()])
            .args(["--name", lease.container.as_str()])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(journal::open(state_dir)?)
            .spawn()?;
        if let Err(e) = move_to_its_own(&self.name, child.id(), memory) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(e);
        }
        Ok(child)
    }
}

/// What the worker of a lease says.
///
/// # Errors
/// The kernel's, where there is none or it does not answer within a second.
pub fn status(state_dir: &StateDir, lease: &Lease) -> io::Result<Status> {
    Ok(serde_json::from_str(&ask(open_directory(state_dir)?.as_fd(), &name(lease), STATUS_PATIENCE)?)?)
}

/// Ends the workers of all other leases than these, and removes their sockets. To be called under the pool's lock: a
/// worker is started after its lease was written. What cannot be done now is done with the next lease that is written.
pub fn end_others(state_dir: &StateDir, leases: &[Lease]) {
    let Ok(directory) = open_directory(state_dir) else { return };
    let kept: Vec<String> = leases.iter().filter(|lease| lease.remote().is_some()).map(name).collect();
    let Ok(entries) = rustix::fs::Dir::read_from(&directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy();
        if !name.starts_with('.') && !kept.iter().any(|kept| *kept == name) {
            end(&directory, &name);
        }
    }
}

/// Kills what is in a worker's cgroups, and removes these and the socket: the last, so that this is done again where the
/// processes take their time to end, or something goes wrong.
fn end(directory: &OwnedFd, name: &str) {
    let mut gone = true;
    for cgroups in open_cgroups() {
        let _ = kill_all(&cgroups, name);
        gone &= matches!(unlinkat(&cgroups, name, AtFlags::REMOVEDIR), Ok(()) | Err(Errno::NOENT));
    }
    if gone {
        let _ = unlinkat(directory, name, AtFlags::empty());
    }
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

/// That of one run of one container.
fn name(lease: &Lease) -> String {
    format!("{}-{}", lease.pid, lease.start_time)
}

fn open_directory(state_dir: &StateDir) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(state_dir.fd(), DIR, flags, Mode::empty())?)
}

/// A socket's address has room for 107 bytes: no state directory is too deep for this.
fn path(directory: BorrowedFd<'_>, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())
}

/// Asks a worker how it is, and waits for all of its answer, for so long. One whose container keeps it busy with
/// connections is not waited for.
fn ask(directory: BorrowedFd<'_>, name: &str, patience: Duration) -> io::Result<String> {
    let end = Instant::now() + patience;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path(directory, name))?)?;
    let mut stream = UnixStream::from(socket);
    stream.write_all(&STATUS)?;
    stream.set_nonblocking(false)?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() > ANSWER {
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                format!("nothing within {} s", patience.as_secs()),
            ));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) if answer.is_empty() => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(0) => return String::from_utf8(answer).map_err(io::Error::other),
            Ok(n) => answer.extend(&part[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
}

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

/// Moves a worker into cgroups of its own, where the host has a controller held to twice its type's memory, since it has
/// as much for memory of programs that it shares, and to so many threads.
fn move_to_its_own(name: &str, pid: u32, memory: Bytes) -> io::Result<()> {
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
