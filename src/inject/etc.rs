//! A file in the container's `/etc` that tells its loader where libraries are, and vgpu's version of it in its place.
//!
//! Part of [`live`](super::live), and by its rules. On a writable layer that is the container's own (an overlay that is
//! not to be read-only) the new version is renamed into place, so that programs inside go on replacing the file: nobody
//! can rename onto a mount point. On any other root it is mounted over the image's, which stays as it is for containers
//! without a lease.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use super::detached::move_onto;
use super::place::{Holder, Id, Place, id, mount_id};
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
        let etc = match container.open("etc", OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            etc => etc.or_exit(Exit::Io, || "cannot open the container's /etc")?,
        };
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

    /// At most one byte more than `most`. The very file that was looked at is opened, through `proc`, the host's
    /// `/proc`: what has its name by now may be a device.
    pub fn read(&self, proc: &OwnedFd, most: u64) -> Result<Vec<u8>> {
        let path = format!("self/fd/{}", self.fd.as_raw_fd());
        let read = || -> io::Result<Vec<u8>> {
            let file = openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            let usual = usize::try_from(self.size.min(most)).unwrap_or_default() + 1;
            files::whole(File::from(file).take(most + 1), usual)
        };
        read().or_exit(Exit::Io, || format!("cannot read {}", shown(&self.name)))
    }

    /// What is to take its place.
    pub fn replaced_by(self, bytes: Vec<u8>, container: &Place) -> New {
        let own = container.own_layer && self.etc.mount == container.root_mount;
        New { old: self, bytes, own }
    }
}

impl New {
    /// Puts what is going to be mounted into the tmpfs, as long as that can be written to.
    pub fn stage(&self, tmpfs: &OwnedFd, ids: RootIds) -> Result<()> {
        if self.own { Ok(()) } else { replace(tmpfs, &self.old.name, &self.bytes, ids).map(drop) }
    }

    /// Brings it in, and looks again that it is there.
    pub fn attach(&self, container: &Place, tmpfs: &OwnedFd) -> Result<()> {
        let name = self.old.name.as_str();
        let new = if self.own {
            replace(&self.old.etc.fd, name, &self.bytes, container.ids)?
        } else {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(tmpfs, name, flags);
            let tree = match tree.and_then(|tree| move_onto(&tree, &self.old.fd).map(|()| tree)) {
                Err(Errno::NOENT) => return Err(gone(name)),
                mounted => mounted.or_exit(Exit::Io, || format!("cannot mount {}", shown(name)))?,
            };
            id(tree).or_exit(Exit::Io, || format!("cannot look at {}", shown(name)))?
        };
        let there = container.open(&format!("etc/{name}"), OFlags::PATH | OFlags::NOFOLLOW);
        if there.and_then(id) == Ok(new) { Ok(()) } else { Err(gone(name)) }
    }
}

/// It in messages.
fn shown(name: &str) -> String {
    format!("the container's /etc/{name}")
}

fn gone(name: &str) -> Error {
    let message = format!("{} is gone again; nobody else may change its /etc while it starts", shown(name));
    Error::new(Exit::Request, message)
}

/// Writes a file of the container's beside the one of this name, and renames it into its place. [`Exit::Request`] for
/// what the container's file system can cause.
pub(super) fn replace(dir: &OwnedFd, name: &str, content: &[u8], ids: RootIds) -> Result<Id> {
    let new = format!(".{name}.vgpu");
    let write = || -> io::Result<Id> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(openat(dir, &new, flags, Mode::from_raw_mode(0o644))?);
        file.write_all(content)?;
        renameat(dir, &new, dir, name)?;
        Ok(id(&file)?)
    };
    let written = ids.create(|| {
        // What a hook that was killed has left.
        let _ = unlinkat(dir, &new, AtFlags::empty());
        let written = write();
        if written.is_err() {
            let _ = unlinkat(dir, &new, AtFlags::empty());
        }
        written
    });
    let image = [Errno::EXIST, Errno::NOENT, Errno::ROFS, Errno::ACCESS, Errno::PERM];
    let of_image = |e: &io::Error| image.iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error()));
    let exit = if written.as_ref().is_err_and(of_image) { Exit::Request } else { Exit::Io };
    written.or_exit(exit, || format!("cannot write {new} beside the container's {name}"))
}
