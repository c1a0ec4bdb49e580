//! Waiting for events, never for time: each wait has a deadline, and reaching it fails the test.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Far more than anything here takes, even with every test of the machine at once.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Returns once `fd` is readable.
pub fn readable(fd: impl AsFd, what: &str) {
    assert!(readable_within(fd, DEADLINE), "waited {DEADLINE:?} for {what}");
}

/// Whether `fd` became readable in `limit`.
pub fn readable_within(fd: impl AsFd, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).expect("a short time");
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => continue,
            polled => return polled.expect("poll") > 0,
        }
    }
}

/// A process, held by descriptor: its number may be used again, this cannot be.
pub struct Process(Option<rustix::fd::OwnedFd>);

impl Process {
    /// The process `pid`; one that is gone already counts as ended.
    pub fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Self(Some(fd)),
            Err(Errno::SRCH) => Self(None),
            Err(e) => panic!("pidfd_open({pid:?}): {e}"),
        }
    }

    /// Sends SIGKILL, if it is still there.
    pub fn kill(&self) {
        match self.0.as_ref().map(|fd| pidfd_send_signal(fd, Signal::KILL)) {
            None | Some(Ok(()) | Err(Errno::SRCH)) => {}
            Some(Err(e)) => panic!("pidfd_send_signal: {e}"),
        }
    }

    /// Returns once the process has ended.
    pub fn ended(&self) {
        if let Some(fd) = &self.0 {
            readable(fd, "a process to end");
        }
    }
}

/// Returns once `done` says so of the file's content. The directory of the file must exist.
pub fn for_file(path: &Path, what: &str, done: impl Fn(&str) -> bool) {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
    let events = inotify::WatchFlags::CREATE | inotify::WatchFlags::MODIFY | inotify::WatchFlags::MOVED_TO;
    inotify::add_watch(&watch, path.parent().expect("a file in a directory"), events)
        .unwrap_or_else(|e| panic!("watching the directory of {}: {e}", path.display()));
    let end = Instant::now() + DEADLINE;
    loop {
        let content = std::fs::read(path).unwrap_or_default();
        let content = String::from_utf8_lossy(&content);
        if done(&content) {
            return;
        }
        let left = end.saturating_duration_since(Instant::now());
        assert!(
            readable_within(&watch, left),
            "waited {DEADLINE:?} for {what} in {}, which holds:\n{content}",
            path.display()
        );
        rustix::io::read(&watch, &mut [0; 4096]).expect("inotify events");
    }
}
