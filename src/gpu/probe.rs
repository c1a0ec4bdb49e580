//! NVML read in a process of its own, with a time limit: whatever the driver's library does, hang in
//! the kernel, crash, print, the caller goes on. Both ends are here: [`Probe::run`] starts the process
//! and waits for its answer, [`answer_probe`] is what runs in it.
//!
//! The process is this program again. It inherits the open library as standard input and a pipe as
//! standard output, and nothing else: no environment, no descriptor, no path.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};

use super::Listed;
use super::nvml::{self, Library};
use crate::error::{Error, Exit, OrExit, Result};
use crate::sys::fds::close_on_exec_from;

/// The command line that must lead to [`answer_probe`].
pub const PROBE_ARGS: [&str; 2] = ["discover", "--probe"];

/// How long NVML may take. Without persistence mode it initialises every GPU, one to three seconds
/// each; beyond this it hangs.
pub const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// How long a killed process is given to go, so that it is reaped. One that is stuck in the kernel is
/// left behind; init reaps it.
const GRACE: Duration = Duration::from_millis(100);

/// How NVML is read.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// The program that answers to [`PROBE_ARGS`].
    pub program: &'a Path,
    /// How long it may take.
    pub limit: Duration,
}

impl Default for Probe<'_> {
    /// This program, whatever happened to its file since it was started.
    fn default() -> Self {
        Self { program: Path::new("/proc/self/exe"), limit: PROBE_LIMIT }
    }
}

impl Probe<'_> {
    /// Asks NVML in a process of its own. `driver` is the loaded driver's version, for messages.
    pub(super) fn run(&self, library: Library, driver: &str) -> Result<Listed> {
        let Library { file, shown } = library;
        let deadline = Instant::now() + self.limit;
        let mut process = self.start(file)?;
        let outcome = process.outcome(deadline).or_exit(Exit::Io, || "cannot wait for NVML's answer")?;
        let reason = match outcome {
            Outcome::Answered(Ok(listed)) => return Ok(listed),
            Outcome::Answered(Err(line)) => format!("failed: {line}"),
            Outcome::Ended(status) => format!(
                "{}; reinstall the driver's libraries for the loaded driver, {driver}, and see `dmesg`",
                how_it_ended(status)
            ),
            Outcome::TimeOver => format!(
                "did not answer within {:?}: see `dmesg` for the driver's messages (Xid), then reset the GPU, \
                 reload the driver or reboot",
                self.limit
            ),
        };
        Err(Error::new(Exit::Gpu, format!("NVML ({shown}) {reason}")))
    }

    fn start(&self, library: OwnedFd) -> Result<Process> {
        let start = || {
            // What a runtime left open in this process is not for the driver's library.
            close_on_exec_from(3)?;
            let (answer, pipe) = io::pipe()?;
            let mut command = Command::new(self.program);
            command.args(PROBE_ARGS).env_clear().current_dir("/");
            let child = command.stdin(library).stdout(pipe).stderr(Stdio::null()).spawn()?;
            Ok::<_, io::Error>(Process { child, answer })
        };
        start().or_exit(Exit::Io, || format!("cannot start {} to read NVML", self.program.display()))
    }
}

fn how_it_ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("crashed (signal {signal})"),
        None => format!("ended without an answer ({status})"),
    }
}

/// What became of the question.
enum Outcome {
    Answered(Result<Listed, String>),
    Ended(ExitStatus),
    TimeOver,
}

/// The running process; killed when dropped. Its answer is all that is wanted of it, not what its
/// library does at exit.
struct Process {
    child: Child,
    answer: PipeReader,
}

impl Process {
    fn outcome(&mut self, deadline: Instant) -> io::Result<Outcome> {
        let Some(line) = self.line_by(deadline)? else { return Ok(Outcome::TimeOver) };
        if let Ok(answer) = serde_json::from_slice(&line) {
            return Ok(Outcome::Answered(answer));
        }
        Ok(self.end_by(deadline)?.map_or(Outcome::TimeOver, Outcome::Ended))
    }

    /// All up to a newline or the end; `None` when the time is over. A line is whole even where a
    /// child of the library (it runs nvidia-modprobe) holds the pipe open.
    fn line_by(&mut self, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        while ready(self.answer.as_fd(), deadline)? {
            let mut piece = [0; 4096];
            let n = self.answer.read(&mut piece)?;
            line.extend_from_slice(&piece[..n]);
            if n == 0 || line.ends_with(b"\n") {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }

    /// Its exit status, if it ends by then. Never waits longer: a process in uninterruptible sleep
    /// does not even take SIGKILL.
    fn end_by(&mut self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        if ready(pidfd.as_fd(), deadline)? { self.child.try_wait() } else { Ok(None) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Beyond the reach of signals it stays behind: nothing more can be done about it here.
            let _ = self.child.kill();
            let _ = self.end_by(Instant::now() + GRACE);
        }
    }
}

/// Waits until `fd` can be read (a pipe) or has ended (a pidfd), at most until `deadline`.
fn ready(fd: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            polled => return Ok(polled? > 0),
        }
    }
}

/// The other end: reads NVML from the library on standard input and writes one line of JSON to
/// standard output. Whoever dispatches commands calls it for [`PROBE_ARGS`], before anything else.
pub fn answer_probe() -> u8 {
    let answered = take_stdio().and_then(|(library, mut pipe)| {
        let mut line = serde_json::to_vec(&nvml::read(library.as_fd()))?;
        line.push(b'\n');
        pipe.write_all(&line)
    });
    match answered {
        Ok(()) => 0,
        // Standard error leads nowhere; the exit code is all there is to say.
        Err(_) => Exit::Io as u8,
    }
}

/// Moves library and pipe out of the way and leaves /dev/null in their place: a library that prints
/// does not print into the answer. A caller that is killed takes this process with it.
fn take_stdio() -> io::Result<(OwnedFd, File)> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let library = io::stdin().as_fd().try_clone_to_owned()?;
    let pipe = io::stdout().as_fd().try_clone_to_owned()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok((library, pipe.into()))
}
