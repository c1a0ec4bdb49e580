//! A child of the hook that does one thing elsewhere and never comes back: it enters namespaces, and in
//! this process nothing may go on from there. It answers through a pipe.

use std::io::Write;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{WaitId, WaitIdOptions};

use crate::cgroup::{self, OwnCgroups};
use crate::error::{Error, Exit, OrExit, Result};
use crate::sys::clone::{Fork, exit_now, fork_into};

/// Where the child stands while it works. In the container's cgroup, what it may open is what the container
/// may, whoever else has put rules there or above.
#[derive(Clone, Copy, Debug)]
pub enum Birth<'a> {
    /// In the hook's cgroup.
    Beside,
    /// In the innermost of these, on v2, from its first instruction on.
    Within(&'a OwnCgroups),
    /// In the innermost of these, on v1, once it has moved there; that can take milliseconds.
    MovesTo(&'a OwnCgroups),
}

/// The longest answer, in bytes: what pipe(7) takes in one piece, so that nobody ever waits for the other end.
const ANSWER: usize = 4096;

/// Runs `work` in a child and passes on how it ended: what it found, or its error.
pub fn run(birth: Birth<'_>, work: impl FnOnce() -> Result<Option<String>>) -> Result<Option<String>> {
    let (answer, pipe) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .or_exit(Exit::Io, || "cannot make a pipe")?;
    let within = if let Birth::Within(cgroups) = birth { Some(cgroups.innermost().as_fd()) } else { None };
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
    let Birth::MovesTo(cgroups) = birth else { return Ok(()) };
    cgroup::open(cgroups.innermost().as_fd(), "tasks", OFlags::WRONLY)
        .and_then(|mut tasks| tasks.write_all(b"0"))
        .or_exit(Exit::Io, || "cannot enter the container's cgroup")
}

/// The exit code in one byte, then the message; for success 0, then what was found.
fn encode(outcome: &Result<Option<String>>) -> Vec<u8> {
    let (code, text) = match outcome {
        Ok(found) => (0, found.clone().unwrap_or_default()),
        Err(e) => (e.exit as u8, e.to_string()),
    };
    let mut answer = [&[code], text.as_bytes()].concat();
    answer.truncate(ANSWER);
    answer
}

fn decode(bytes: &[u8]) -> Result<Option<String>> {
    let died = || Error::new(Exit::Io, "the child that enters the container died");
    let (code, text) = bytes.split_first().ok_or_else(died)?;
    let text = String::from_utf8_lossy(text);
    if *code == 0 {
        return Ok(Some(text.into_owned()).filter(|found| !found.is_empty()));
    }
    let exit = Exit::ALL.into_iter().find(|exit| *exit as u8 == *code).ok_or_else(died)?;
    Err(Error::new(exit, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_child_says_arrives() {
        for found in [None, Some("something".to_owned())] {
            assert_eq!(decode(&encode(&Ok(found.clone()))), Ok(found));
        }
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
