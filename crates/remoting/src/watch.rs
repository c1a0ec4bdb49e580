//! Until when a worker serves: as long as its container's cgroup holds a process, or, where that was not told, a process
//! lives. Touches what it was handed, and reads what is in that folder and below.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Dir, FileType, Mode, OFlags, openat};
use rustix::io::{Errno, pread};

/// How long until it is looked at again what does not say that it changes.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Deeper nesting is somebody's attack on the stack or on the table of descriptors. It counts as a process.
const DEEPEST: u32 = 50;

/// What is watched.
#[derive(Debug, Default)]
pub struct Watch {
    /// A pidfd, until that process has ended. Of a cgroup's that is a hint that there may be no other.
    process: Option<OwnedFd>,
    cgroup: Option<Cgroup>,
}

#[derive(Debug)]
enum Cgroup {
    /// Of version 2: its `cgroup.events`, which says when it changes, for all that is below too.
    Events(OwnedFd),
    /// Of version 1: its folder, which says nothing.
    Folder(OwnedFd),
}

impl Watch {
    /// Watches a process by its pidfd, and a cgroup by its folder.
    ///
    /// # Errors
    /// As openat(2).
    pub fn new(process: Option<OwnedFd>, cgroup: Option<OwnedFd>) -> io::Result<Self> {
        Ok(Self { process, cgroup: cgroup.map(Cgroup::new).transpose()? })
    }

    /// What to poll(2).
    pub fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let process = self.process.iter().map(|process| PollFd::new(process, PollFlags::IN));
        let events = self.cgroup.iter().filter_map(|cgroup| match cgroup {
            Cgroup::Events(events) => Some(PollFd::new(events, PollFlags::PRI)),
            Cgroup::Folder(_) => None,
        });
        process.chain(events)
    }

    /// How long to.
    #[must_use]
    pub fn timeout(&self) -> Option<&'static Timespec> {
        matches!(self.cgroup, Some(Cgroup::Folder(_))).then_some(&LOOK)
    }

    /// Is it over?
    pub fn is_over(&mut self) -> bool {
        let ended = self.process.as_ref().is_some_and(has_ended);
        if ended {
            self.process = None;
        }
        match &self.cgroup {
            Some(cgroup) => !cgroup.is_populated(),
            None => ended,
        }
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&NOW)), Ok(1))
}

impl Cgroup {
    fn new(folder: OwnedFd) -> io::Result<Self> {
        match open(folder.as_fd(), c"cgroup.events", OFlags::RDONLY) {
            Ok(events) => Ok(Self::Events(events)),
            // Or it is gone, which will be seen.
            Err(Errno::NOENT) => Ok(Self::Folder(folder)),
            Err(error) => Err(error.into()),
        }
    }

    /// Where that cannot be told it is, since nobody is to lose a worker for it.
    fn is_populated(&self) -> bool {
        let populated = match self {
            Self::Events(events) => says_populated(events),
            Self::Folder(folder) => holds_a_process(folder.as_fd(), 0),
        };
        populated.unwrap_or_else(|error| !is_gone(error))
    }
}

/// A cgroup that was removed: its name is gone, or the files that were opened are.
fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NODEV)
}

fn says_populated(events: &OwnedFd) -> Result<bool, Errno> {
    let mut text = [0; 256];
    let len = pread(events, &mut text, 0)?;
    Ok(!text[..len].split(|byte| *byte == b'\n').any(|line| line == b"populated 0"))
}

/// `cgroup.procs` names the processes of all threads, also of those whose leader has ended.
fn holds_a_process(folder: BorrowedFd<'_>, depth: u32) -> Result<bool, Errno> {
    if depth > DEEPEST {
        return Ok(true);
    }
    let mut processes = std::fs::File::from(open(folder, c"cgroup.procs", OFlags::RDONLY)?);
    match processes.read(&mut [0; 16]) {
        Ok(0) => {}
        Ok(_) => return Ok(true),
        Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
    for entry in Dir::new(open(folder, c".", OFlags::RDONLY | OFlags::DIRECTORY)?)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() != FileType::Directory || name == c"." || name == c".." {
            continue;
        }
        let below = open(folder, name, OFlags::RDONLY | OFlags::DIRECTORY);
        match below.and_then(|below| holds_a_process(below.as_fd(), depth + 1)) {
            Ok(false) => {}
            Err(error) if is_gone(error) => {}
            other => return other,
        }
    }
    Ok(false)
}

fn open(folder: BorrowedFd<'_>, name: &std::ffi::CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(folder, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}
