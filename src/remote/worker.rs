//! The worker of one container: started by the hook, found again by its socket, ended with its lease. Touches `workers`
//! in the state directory, and that process.
//!
//! It outlives the hook: it goes on until no process is left in its container's cgroup, or it is killed. So it has
//! nothing of the hook's standard streams, it makes a session of its own, and it leaves those cgroups with which an
//! engine that is stopped, or a session that is closed, would end it. It gets one of its own, by which it is found and
//! killed whatever its clients do to it, and in which it has as much memory as its type, with some for itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, chmodat, mkdirat, openat, unlinkat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{cgroups, status};
use crate::cgroup;
use crate::error::{Exit, OrExit, Result};
use crate::journal;
use crate::pool::Lease;
use crate::pool::store::StateDir;
use crate::types::Bytes;

/// Where the sockets are, in the state directory. Nobody but root looks in there.
const DIR: &str = "workers";

/// How long a worker may take to answer the hook that has started it. It does so within milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

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
        status::ask(self.directory.as_fd(), &self.name, PATIENCE)
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
        if let Err(e) = cgroups::enter(&self.name, child.id(), memory) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(e);
        }
        Ok(child)
    }
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

/// Ends a worker, and then removes its socket: while that is there, this is tried again.
fn end(directory: &OwnedFd, name: &str) {
    if cgroups::end(name) {
        let _ = unlinkat(directory, name, AtFlags::empty());
    }
}

/// That of one run of one container.
pub(super) fn name(lease: &Lease) -> String {
    format!("{}-{}", lease.pid, lease.start_time)
}

pub(super) fn open_directory(state_dir: &StateDir) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(state_dir.fd(), DIR, flags, Mode::empty())?)
}

/// A socket's address has room for 107 bytes: no state directory is too deep for this.
pub(super) fn path(directory: BorrowedFd<'_>, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())
}
