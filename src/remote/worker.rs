//! The worker of one container: started by the hook, found again by its socket, told to end with its lease. Touches
//! `workers` in the state directory, the cgroups named `vgpu`, and that process.
//!
//! It outlives the hook: it goes on until no process is left in its container's cgroup, or it is told to end. So it has
//! nothing of the hook's standard streams and none of its cgroups, since an engine that is stopped takes those with it,
//! and it makes a session of its own.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, mkdirat, openat, unlinkat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::error::{Exit, OrExit, Result};
use crate::journal;
use crate::pool::Lease;
use crate::pool::store::StateDir;
use crate::types::Bytes;

/// Where the sockets are, in the state directory. Nobody but root looks in there.
const DIR: &str = "workers";

/// Its cgroup, in each hierarchy that matters.
const CGROUP: &str = "vgpu";

/// Where hierarchies are mounted in which groups are ended as a whole, or held to one amount of memory: v2, or of v1
/// systemd's own and two controllers.
const HIERARCHIES: [&str; 5] = [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/unified",
    "/sys/fs/cgroup/systemd",
    "/sys/fs/cgroup/memory",
    "/sys/fs/cgroup/pids",
];

/// How long a worker may take to answer. It does so within a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer, in bytes.
const ANSWER: u64 = 64 << 10;

/// What a worker is asked in place of a client's greeting (docs/reuse.md): what it has done so far, to end.
const STATUS: [u8; 8] = *b"vgpustat";
const END: [u8; 8] = *b"vgpu-end";

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
        if worker.ask(STATUS).is_ok() {
            return Ok(worker);
        }
        // What a hook has left there that was killed.
        worker.remove_socket();
        let started = worker
            .listen()
            .and_then(|listener| worker.spawn(&listener, state_dir, lease, memory, cgroup, program));
        match started.or_exit(Exit::Io, cannot) {
            Ok(child) => {
                worker.started = Some(child);
                Ok(worker)
            }
            Err(e) => {
                worker.remove_socket();
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
        self.ask(STATUS)
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
        remove_socket(&self.directory, &self.name);
    }

    fn ask(&self, what: [u8; 8]) -> io::Result<String> {
        ask(self.directory.as_fd(), &self.name, what)
    }

    fn remove_socket(&self) {
        remove_socket(&self.directory, &self.name);
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
        let (socket, cgroup) = (passed(listener.as_fd())?, passed(cgroup.as_fd())?);
        // The very file that was checked.
        let mut child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .arg0("vgpu-worker")
            .args(["--memory", &memory.0.to_string()])
            .args(["--socket-fd", &socket.as_raw_fd().to_string()])
            .args(["--watch-cgroup-fd", &cgroup.as_raw_fd().to_string()])
            .args(["--name", lease.container.as_str()])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(journal::open(state_dir)?)
            .spawn()?;
        if let Err(e) = leave_cgroups(child.id()) {
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
/// The kernel's, where there is none or it does not answer.
pub fn status(state_dir: &StateDir, lease: &Lease) -> io::Result<Status> {
    Ok(serde_json::from_str(&ask(open_directory(state_dir)?.as_fd(), &name(lease), STATUS)?)?)
}

/// Ends the workers of all other leases than these, and removes their sockets. To be called under the pool's lock: a
/// worker is started after its lease was written. One that cannot be ended now ends with its container.
pub fn end_others(state_dir: &StateDir, leases: &[Lease]) {
    let Ok(directory) = open_directory(state_dir) else { return };
    let kept: Vec<String> = leases.iter().filter(|lease| lease.remote().is_some()).map(name).collect();
    let Ok(entries) = rustix::fs::Dir::read_from(&directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy();
        if !name.starts_with('.') && !kept.iter().any(|kept| *kept == name) {
            let _ = tell(directory.as_fd(), &name, END);
            remove_socket(&directory, &name);
        }
    }
}

/// That of one run of one container.
fn name(lease: &Lease) -> String {
    format!("{}-{}", lease.pid, lease.start_time)
}

fn open_directory(state_dir: &StateDir) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(state_dir.fd(), DIR, flags, Mode::empty())?)
}

fn remove_socket(directory: &OwnedFd, name: &str) {
    let _ = unlinkat(directory, name, AtFlags::empty());
}

/// A socket's address has room for 107 bytes: no state directory is too deep for this.
fn path(directory: BorrowedFd<'_>, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())
}

/// Asks a worker, and waits for all of its answer.
fn ask(directory: BorrowedFd<'_>, name: &str, what: [u8; 8]) -> io::Result<String> {
    let mut answer = String::new();
    tell(directory, name, what)?.take(ANSWER).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Tells a worker. One whose container keeps it busy with connections is not waited for.
fn tell(directory: BorrowedFd<'_>, name: &str, what: [u8; 8]) -> io::Result<UnixStream> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    connect(&socket, &SocketAddrUnix::new(path(directory, name))?)?;
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&what)?;
    Ok(stream)
}

/// Moves a process into cgroups of vgpu's own.
fn leave_cgroups(pid: u32) -> io::Result<()> {
    for root in HIERARCHIES {
        let kind = rustix::fs::statfs(root).map(|fs| fs.f_type);
        if !matches!(kind, Ok(libc::CGROUP_SUPER_MAGIC | libc::CGROUP2_SUPER_MAGIC)) {
            continue;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, root, flags, Mode::empty())?;
        match mkdirat(&root, CGROUP, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let procs = openat(&root, format!("{CGROUP}/cgroup.procs"), flags, Mode::empty())?;
        std::fs::File::from(procs).write_all(pid.to_string().as_bytes())?;
    }
    Ok(())
}
