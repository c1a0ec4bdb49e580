//! A file in the container's `/etc` that tells its loader where libraries are, and vgpu's version of it in its place.
//!
//! Part of [`live`](super::live), and by its rules. On a writable layer that is the container's own (an overlay that is
//! not to be read-only) the new version is renamed into place, so that programs inside go on replacing the file: nobody
//! can rename onto a mount point. On any other root it is mounted over the image's, which stays as it is for containers
//! without a lease.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, fstat, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use super::detached::move_onto;
use super::place::{self, Holder, Id, Place, by_cause, id, lost, meddled, mount_id};
use crate::container::RootIds;
use crate::error::{Error, Exit, OrExit, Result};
use crate::files;

/// The image's version: a regular file that may be replaced or mounted on.
pub(super) struct Old {
    /// The directory that it is in.
    pub etc: Holder,
    name: String,
    fd: OwnedFd,
    /// In bytes, when it was looked at.
    size: u64,
}

/// vgpu's version, and how it gets into the place of the image's.
pub(super) struct New {
    old: Old,
    bytes: Vec<u8>,
    /// Is the root file system the container's own, to be written to?
    pub own: bool,
}

impl Old {
    /// Finds `/etc/<name>`; none where there is no such file, or another thing has its name.
    pub fn find(container: &Place, name: &str) -> Result<Option<Self>> {
        let Some(etc) = container.find("etc", OFlags::PATH | OFlags::DIRECTORY)? else { return Ok(None) };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let shown = || shown(name);
        let fd = match openat(&etc, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            fd => fd.or_exit(Exit::Io, || format!("cannot open {}", shown()))?,
        };
        let stat = fstat(&fd).or_exit(Exit::Io, || format!("cannot look at {}", shown()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let etc = container.holder_at(etc, "etc")?;
        if mount_id(&fd)? != etc.mount {
            let message = format!("something is mounted at {} already; leave it out", shown());
            return Err(Error::new(Exit::Request, message));
        }
        Ok(Some(Self { etc, name: name.to_owned(), fd, size: stat.st_size.try_into().unwrap_or_default() }))
    }

    /// The same. Where there is none, one is made that says what goes without it: there must be something to mount on.
    pub fn find_or_make(container: &Place, name: &str, usual: &str) -> Result<Option<Self>> {
        if let Some(old) = Self::find(container, name)? {
            return Ok(Some(old));
        }
        let path = path_of(name);
        let (etc, _) = container.target(&path, FileType::RegularFile)?;
        if container.find(&path, OFlags::PATH | OFlags::NOFOLLOW)?.is_some() {
            return Ok(None);
        }
        add(&etc.fd, &path, usual.as_bytes(), container.ids)?;
        Self::find(container, name)
    }

    /// At most one byte more than `most`. The very file that was looked at is opened, through `proc`, the host's
    /// `/proc`: what has its name by now may be a device. Nobody is waited for who holds a lease on it (fcntl(2)).
    pub fn read(&self, proc: &OwnedFd, most: u64) -> Result<Vec<u8>> {
        let path = format!("self/fd/{}", self.fd.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let cannot = || format!("cannot read {}", shown(&self.name));
        let file = match openat(proc, path, flags, Mode::empty()) {
            Err(Errno::AGAIN) => {
                return Err(meddled(&path_of(&self.name), "is being written by somebody else"));
            }
            file => File::from(file.or_exit(Exit::Io, cannot)?),
        };
        let usual = usize::try_from(self.size.min(most)).unwrap_or_default() + 1;
        files::whole(file.take(most + 1), usual).or_exit(Exit::Io, cannot)
    }

    /// What is to cover it, for as long as the container lives.
    pub fn covered_by(self, bytes: Vec<u8>) -> New {
        New { old: self, bytes, own: false }
    }

    /// What is to take its place.
    pub fn replaced_by(self, bytes: Vec<u8>, container: &Place) -> New {
        let own = container.own_layer && self.etc.mount == container.root_mount;
        New { old: self, bytes, own }
    }
}

impl New {
    /// Where it is in the container, relative to the root.
    pub fn path(&self) -> String {
        path_of(&self.old.name)
    }

    /// Puts what is going to be mounted into the tmpfs, as long as that can be written to.
    pub fn stage(&self, tmpfs: &OwnedFd, ids: RootIds) -> Result<()> {
        if self.own {
            return Ok(());
        }
        let written = ids.create(|| write(tmpfs, &self.old.name, &self.bytes));
        written.map(drop).or_exit(Exit::Io, || format!("cannot write what covers {}", shown(&self.old.name)))
    }

    /// Brings it in, and looks again that it is there.
    pub fn attach(&self, container: &Place, tmpfs: &OwnedFd) -> Result<()> {
        let name = self.old.name.as_str();
        let new = if self.own {
            replace(&self.old.etc.fd, &path_of(name), &self.bytes, container.ids)?
        } else {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(tmpfs, name, flags);
            let tree = match tree.and_then(|tree| move_onto(&tree, &self.old.fd).map(|()| tree)) {
                Err(Errno::NOENT) => return Err(lost(&path_of(name))),
                mounted => mounted.or_exit(Exit::Io, || format!("cannot mount {}", shown(name)))?,
            };
            id(tree).or_exit(Exit::Io, || format!("cannot look at {}", shown(name)))?
        };
        let there = container.find(&path_of(name), OFlags::PATH | OFlags::NOFOLLOW)?;
        if there.is_some_and(|there| id(there) == Ok(new)) { Ok(()) } else { Err(lost(&path_of(name))) }
    }
}

/// Relative to the container's root.
fn path_of(name: &str) -> String {
    format!("etc/{name}")
}

/// It in messages.
fn shown(name: &str) -> String {
    format!("the container's /etc/{name}")
}

/// Puts a file of the container's into the place of what is at this path, in this directory.
pub(super) fn replace(dir: &OwnedFd, path: &str, content: &[u8], ids: RootIds) -> Result<Id> {
    let put = put(dir, path, content, ids, |new| renameat(dir, new, dir, name_in(path)));
    by_cause(
        put,
        || cannot_write(path),
        || "let it be a file that the container's root can replace".to_owned(),
    )
}

/// Makes a file of the container's. What somebody else has made at this path meanwhile stays: it may be mounted on.
fn add(dir: &OwnedFd, path: &str, content: &[u8], ids: RootIds) -> Result<()> {
    let into_place = |new: &str| {
        let linked = linkat(dir, new, dir, name_in(path), AtFlags::empty());
        unlinkat(dir, new, AtFlags::empty())?;
        if linked == Err(Errno::EXIST) { Ok(()) } else { linked }
    };
    let put = put(dir, path, content, ids, into_place).map(drop);
    by_cause(put, || cannot_write(path), || "make it in the image".to_owned())
}

fn cannot_write(path: &str) -> String {
    format!("cannot write the container's {}", place::shown(path))
}

/// Writes a file under a name that no other hook has, and has it brought `into_place`.
fn put(
    dir: &OwnedFd,
    path: &str,
    content: &[u8],
    ids: RootIds,
    into_place: impl FnOnce(&str) -> Result<(), Errno>,
) -> Result<Id, Errno> {
    let before = format!(".{}.vgpu.", name_in(path));
    let new = format!("{before}{}", getpid().as_raw_nonzero());
    ids.create(|| {
        remove_left(dir, before.as_bytes());
        let put = write(dir, &new, content).and_then(|id| into_place(&new).map(|()| id));
        if put.is_err() {
            let _ = unlinkat(dir, &new, AtFlags::empty());
        }
        put
    })
}

/// More names than any `/etc` has.
const MOST_NAMES: usize = 10_000;

/// Removes what hooks have left that were killed. Their process ids come after this in the names of such files; one that
/// is there is at work.
fn remove_left(dir: &OwnedFd, before: &[u8]) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(list) = openat(dir, ".", flags, Mode::empty()) else { return };
    let mut buffer = Vec::with_capacity(8192);
    let mut entries = RawDir::new(list, buffer.spare_capacity_mut());
    for _ in 0..MOST_NAMES {
        let Some(Ok(entry)) = entries.next() else { return };
        let pid = entry.file_name().to_bytes().strip_prefix(before).and_then(pid);
        let is_left = |pid: Pid| pid == getpid() || has_ended(pid);
        if pid.is_some_and(is_left) {
            let _ = unlinkat(dir, entry.file_name(), AtFlags::empty());
        }
    }
}

/// Also where nobody has waited for it yet: its pidfd can be read then (pidfd_open(2)).
fn has_ended(pid: Pid) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => matches!(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&NOW)), Ok(1)),
        Err(e) => e == Errno::SRCH,
    }
}

/// Whoever makes an image may write anything there.
fn pid(text: &[u8]) -> Option<Pid> {
    let number: u32 = str::from_utf8(text).ok()?.parse().ok()?;
    Pid::from_raw(number.try_into().ok()?)
}

/// Writes a file that is not there.
fn write(dir: &OwnedFd, name: &str, content: &[u8]) -> Result<Id, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(dir, name, flags, Mode::from_raw_mode(0o644))?);
    file.write_all(content).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    id(&file)
}

/// The last part of a path.
fn name_in(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
