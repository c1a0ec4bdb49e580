//! The driver's libraries in the container's linker cache (`/etc/ld.so.cache`), so that programs find them by name:
//! the image's cache read as data, the driver's entries merged in. Nothing of the container is run, and no
//! `ldconfig`.
//!
//! Part of [`live`](super::live), and by its rules. On a writable layer that is the container's own (an overlay that is
//! not to be read-only) the result is renamed into place, with a drop-in for `ldconfig`, so that `ldconfig` and
//! `apt-get install` inside go on working: nobody can rename onto a mount point. On any other root it is mounted over
//! the image's, which stays as it is for containers without a lease.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use super::files::{Id, Place, id, move_onto};
use super::live::{beneath, mount_id};
use crate::container::RootIds;
use crate::error::{Error, Exit, OrExit, Result};
use crate::ldcache::{self, Cache, Damaged, Entry, flags};
use crate::resolve::Dir;
use crate::sys;

/// The cache, in `/etc` and in the driver's tmpfs.
const CACHE: &str = "ld.so.cache";

/// Tells `ldconfig` of the driver's libraries. It is read first, as the driver's entries are found first.
const DROP_IN: &str = "00-vgpu.conf";
const CONF_DIR: &str = "etc/ld.so.conf.d";

/// The cache in messages.
const SHOWN: &str = "the container's /etc/ld.so.cache";

/// Where the driver's files are.
const DRIVER: &str = "/usr/local/nvidia";

/// The container's cache, merged, and where it goes.
pub(super) struct Merged {
    etc: OwnedFd,
    /// The image's.
    old: OwnedFd,
    bytes: Vec<u8>,
    drop_in: String,
    /// Is the root file system the container's own, to be written to?
    own: bool,
}

impl Merged {
    /// Reads the container's cache and merges in the libraries that have these names; none where the image has none
    /// (musl), or one that a loader might take and that cannot be read here: it stays. `proc` is the host's `/proc`.
    pub fn new(container: &Place, names: &[(Dir, &str)], proc: &OwnedFd) -> Result<Option<Self>> {
        let Some((etc, old)) = find(container)? else { return Ok(None) };
        let image = read(proc, &old).or_exit(Exit::Io, || format!("cannot read {SHOWN}"))?;
        let cache = match ldcache::parse(&image) {
            Ok(cache) => cache.without(DRIVER),
            // A loader does without such a file.
            Err(Damaged::NotACache | Damaged::Truncated | Damaged::ByteOrder) => Cache::default(),
            Err(Damaged::TooLarge | Damaged::Overlapping) => return Ok(None),
        };
        let bytes = merge(&cache, names);
        let own = container.own_layer && mount_id(&etc)? == container.root_mount;
        Ok(Some(Self { bytes, etc, old, drop_in: drop_in(names), own }))
    }

    /// Puts what is going to be mounted into the tmpfs, as long as that can be written to.
    pub fn stage(&self, tmpfs: &OwnedFd, ids: RootIds) -> Result<()> {
        if self.own { Ok(()) } else { replace(tmpfs, CACHE, &self.bytes, ids).map(drop) }
    }

    /// Brings it in, and looks again that it is there.
    pub fn attach(&self, container: &Place, tmpfs: &OwnedFd) -> Result<()> {
        let new = if self.own {
            self.write_drop_in(container)?;
            replace(&self.etc, CACHE, &self.bytes, container.ids)?
        } else {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(tmpfs, CACHE, flags);
            let tree = match tree.and_then(|tree| move_onto(&tree, &self.old).map(|()| tree)) {
                Err(Errno::NOENT) => return Err(gone()),
                mounted => mounted.or_exit(Exit::Io, || format!("cannot mount {SHOWN}"))?,
            };
            id(tree).or_exit(Exit::Io, || format!("cannot look at {SHOWN}"))?
        };
        let there = beneath(container.root, "etc/ld.so.cache", OFlags::PATH | OFlags::NOFOLLOW);
        if there.and_then(id) == Ok(new) { Ok(()) } else { Err(gone()) }
    }

    /// Nothing, where the image's `ldconfig` reads no such directory.
    fn write_drop_in(&self, container: &Place) -> Result<()> {
        let Ok(dir) = beneath(container.root, CONF_DIR, OFlags::PATH | OFlags::DIRECTORY) else {
            return Ok(());
        };
        if mount_id(&dir)? != container.root_mount {
            return Ok(());
        }
        replace(&dir, DROP_IN, self.drop_in.as_bytes(), container.ids).map(drop)
    }
}

/// The container's `/etc` and the cache in it, which is a regular file and may be mounted on or replaced.
fn find(container: &Place) -> Result<Option<(OwnedFd, OwnedFd)>> {
    let etc = match beneath(container.root, "etc", OFlags::PATH | OFlags::DIRECTORY) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        etc => etc.or_exit(Exit::Io, || "cannot open the container's /etc")?,
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let old = match openat(&etc, CACHE, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        old => old.or_exit(Exit::Io, || format!("cannot open {SHOWN}"))?,
    };
    let stat = fstat(&old).or_exit(Exit::Io, || format!("cannot look at {SHOWN}"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    container.may_hold(&etc, "etc")?;
    if mount_id(&old)? != mount_id(&etc)? {
        let message = format!("something is mounted at {SHOWN} already; leave it out");
        return Err(Error::new(Exit::Request, message));
    }
    Ok(Some((etc, old)))
}

/// The directories of these libraries, as `ld.so.conf` has them.
fn drop_in(names: &[(Dir, &str)]) -> String {
    let used = |dir: &Dir| names.iter().any(|(of_name, _)| of_name == dir);
    let dirs = [Dir::Lib64, Dir::Lib32].into_iter().filter(used);
    dirs.map(|dir| format!("{DRIVER}/{}\n", dir.as_str())).collect()
}

fn gone() -> Error {
    let message = format!("{SHOWN} is gone again; nobody else may change its /etc while it starts");
    Error::new(Exit::Request, message)
}

/// Writes a file of the container's beside the one of this name, and renames it into its place. [`Exit::Request`] for
/// what the container's file system can cause.
fn replace(dir: &OwnedFd, name: &str, content: &[u8], ids: RootIds) -> Result<Id> {
    let new = format!(".{name}.vgpu");
    let write = || -> io::Result<Id> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(openat(dir, &new, flags, Mode::from_raw_mode(0o644))?);
        file.write_all(content)?;
        renameat(dir, &new, dir, name)?;
        Ok(id(&file)?)
    };
    sys::process::create_files_as(ids.uid, ids.gid);
    // What a hook that was killed has left.
    let _ = unlinkat(dir, &new, AtFlags::empty());
    let written = write();
    if written.is_err() {
        let _ = unlinkat(dir, &new, AtFlags::empty());
    }
    sys::process::create_files_as(0, 0);
    let image = [Errno::EXIST, Errno::NOENT, Errno::ROFS, Errno::ACCESS, Errno::PERM];
    let of_image = |e: &io::Error| image.iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error()));
    let exit = if written.as_ref().is_err_and(of_image) { Exit::Request } else { Exit::Io };
    written.or_exit(exit, || format!("cannot write {new} beside the container's {name}"))
}

/// At most one byte more than a cache may have. The very file that was looked at is opened, through `/proc`: what has
/// its name by now may be a device.
fn read(proc: &OwnedFd, file: &OwnedFd) -> io::Result<Vec<u8>> {
    let path = format!("self/fd/{}", file.as_raw_fd());
    let file = openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    File::from(file).take(ldcache::LARGEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The cache with an entry for each name of a library.
fn merge(cache: &Cache, names: &[(Dir, &str)]) -> Vec<u8> {
    let mut paths = Vec::new();
    for (dir, name) in names {
        let Some(flags) = flags_of(*dir) else { continue };
        let path = CString::new(format!("{DRIVER}/{}/{name}", dir.as_str()));
        // Names of files have no NUL.
        if let (Ok(soname), Ok(path)) = (CString::new(*name), path) {
            paths.push((soname, path, flags));
        }
    }
    let entries = paths.iter().map(|(soname, path, flags)| Entry { soname, path, flags: *flags });
    cache.merge(&entries.collect::<Vec<_>>())
}

/// How a loader for the libraries in a directory marks its entries.
fn flags_of(dir: Dir) -> Option<i32> {
    match dir {
        Dir::Bin => None,
        Dir::Lib32 => Some(flags::I386),
        Dir::Lib64 if cfg!(target_arch = "aarch64") => Some(flags::AARCH64),
        Dir::Lib64 => Some(flags::X86_64),
    }
}
