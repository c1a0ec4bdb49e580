//! A child of the hook that does one thing elsewhere and never comes back: it enters namespaces, and in
//! this process nothing may go on from there. It answers through a pipe.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{WaitId, WaitIdOptions};

use crate::cgroup;
use crate::error::{Error, Exit, OrExit, Result};
use crate::sys::clone::{Fork, exit_now, fork_into};

/// Where the child stands while it works. In the container's cgroup, what it may open is what the container
/// may, whoever else has put rules there or above.
#[derive(Clone, Copy, Debug)]
pub enum Birth<'a> {
    /// In the hook's cgroup.
    Beside,
    /// In this cgroup of v2 from its first instruction on.
    Within(BorrowedFd<'a>),
    /// In this cgroup of v1, once it has moved there; that can take milliseconds.
    MovesTo(BorrowedFd<'a>),
}

/// The longest answer, in bytes: what pipe(7) takes in one piece, so that nobody ever waits for the other end.
const ANSWER: usize = 4096;

/// Runs `work` in a child and passes on how it ended.
pub fn run(birth: Birth<'_>, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let (answer, pipe) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .or_exit(Exit::Io, || "cannot make a pipe")?;
    let within = if let Birth::Within(cgroup) = birth { Some(cgroup) } else { None };
    match fork_into(within) {
        Ok(Fork::Child) => {
            let outcome = catch_unwind(AssertUnwindSafe(|| move_to(birth).and_then(|()| work())))
                .unwrap_or_else(|_| {
                    Err(Error::new(Exit::Io, "internal error in the container; please report it"))
                });
            // Nobody is left to tell if the pipe is broken; the parent takes silence for failure.
            let _ = rustix::io::write(&pipe, &encode(&outcome));
            exit_now(0)
        }
        Ok(Fork::Parent { pidfd, .. }) => {
            rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)
                .or_exit(Exit::Io, || "cannot wait for the child that enters the container")?;
            let mut bytes = [0; ANSWER];
            let read = match rustix::io::read(&answer, &mut bytes) {
                Err(Errno::AGAIN) => 0,
                read => read.or_exit(Exit::Io, || "cannot hear from the child that enters the container")?,
            };
            decode(&bytes[..read])
        }
        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && within.is_some() => {
            let message = "the container's pids limit leaves no room for the process that brings its GPUs in; raise it by one";
            Err(Error::new(Exit::Request, message))
        }
        Err(e) => Err(e).or_exit(Exit::Io, || "cannot fork"),
    }
}

/// Writing 0 moves the writer (cgroup-v1/cgroups.rst).
fn move_to(birth: Birth<'_>) -> Result<()> {
    let Birth::MovesTo(cgroup) = birth else { return Ok(()) };
    cgroup::open(cgroup, "tasks", OFlags::WRONLY)
        .and_then(|mut tasks| tasks.write_all(b"0"))
        .or_exit(Exit::Io, || "cannot enter the container's cgroup")
}

/// The exit code in one byte, then the message; a single 0 for success.
fn encode(outcome: &Result<()>) -> Vec<u8> {
    match outcome {
        Ok(()) => vec![0],
        Err(e) => {
            let mut answer = [&[e.exit as u8], e.to_string().as_bytes()].concat();
            answer.truncate(ANSWER);
            answer
        }
    }
}

fn decode(bytes: &[u8]) -> Result<()> {
    let died = || Error::new(Exit::Io, "the child that enters the container died");
    let (code, message) = bytes.split_first().ok_or_else(died)?;
    if *code == 0 {
        return Ok(());
    }
    let exit = Exit::ALL.into_iter().find(|exit| *exit as u8 == *code).ok_or_else(died)?;
    Err(Error::new(exit, String::from_utf8_lossy(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_child_says_arrives() {
        assert_eq!(decode(&encode(&Ok(()))), Ok(()));
        for exit in Exit::ALL {
            let outcome = Err(Error::new(exit, "line"));
            assert_eq!(decode(&encode(&outcome)), outcome);
        }
    }

    #[test]
    fn silence_is_failure() {
        assert_eq!(decode(&[]).unwrap_err().to_string(), "the child that enters the container died");
        assert!(decode(&[3]).is_err());
    }
}
