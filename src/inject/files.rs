//! The driver's files brought into a container: one tmpfs at `/usr/local/nvidia`, in it a bind mount for each
//! file, and links for its other names. CUDA images have that place in PATH and LD_LIBRARY_PATH.
//!
//! Part of [`live`](super::live), and by its rules: what was opened and checked on the host is cloned there; the
//! child in the container's mount namespace attaches it beneath the root. All that is left in the root file
//! system is an empty directory.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, mkdirat, mknodat, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::cache::Merged;
use super::compat::{self, Library};
use super::live::{beneath, mount_id};
use super::mounts::MountTable;
use super::tmpfs;
use crate::container::RootIds;
use crate::driver::DriverFile;
use crate::error::{Error, Exit, OrExit, Result};
use crate::resolve::{Dir, File};
use crate::sys;

/// Where they are, relative to the container's root.
const PLACE: &str = "usr/local/nvidia";

/// A file of a plan, opened.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: File,
    fd: OwnedFd,
    id: Id,
}

/// Which file it is, wherever it is mounted: device and inode.
pub(super) type Id = (u64, u64);

/// Joins each file of a plan with the descriptor that was opened when it was found.
pub(super) fn open(planned: Vec<File>, found: Vec<DriverFile>) -> Result<Vec<OpenFile>> {
    let mut found = found.into_iter();
    let join = |file: File| {
        // The plan has them in the order in which they were found, and may leave out some.
        let fd = found.find(|found| found.path == file.source).map(|found| found.fd);
        let gone = || Error::new(Exit::Io, format!("{} was planned and not found", file.source));
        let fd = fd.ok_or_else(gone)?;
        let id = id(&fd).or_exit(Exit::Io, || format!("cannot look at {}", file.source))?;
        Ok(OpenFile { file, fd, id })
    };
    planned.into_iter().map(join).collect()
}

/// What becomes `/usr/local/nvidia`, still mounted nowhere. Without any file there is no such thing.
pub(super) struct Detached<'a> {
    files: &'a [OpenFile],
    /// One for each file.
    clones: Vec<OwnedFd>,
    tmpfs: Option<OwnedFd>,
    /// The host's `/proc`.
    proc: OwnedFd,
}

/// What was found in the container, and may be used: the directory for the files, and the linker cache, if any.
pub(super) struct Target {
    dir: OwnedFd,
    cache: Option<Merged>,
}

/// Where it goes: the container's root and what is mounted in there.
pub(super) struct Place<'a> {
    pub root: &'a OwnedFd,
    pub root_mount: u64,
    pub mounts: &'a MountTable,
    pub ids: RootIds,
    /// Is the root file system a writable layer of the container's own?
    pub own_layer: bool,
}

impl<'a> Detached<'a> {
    /// Clones the mounts of the files, and makes the tmpfs, empty.
    pub fn new(files: &'a [OpenFile], ids: RootIds, label: Option<&str>) -> Result<Self> {
        let cannot = || "cannot make the tmpfs for /usr/local/nvidia (Linux 5.12 or later is needed)";
        let make = || tmpfs::detached(ids, label).or_exit(Exit::Io, cannot);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty());
        Ok(Self {
            proc: proc.or_exit(Exit::Io, || "cannot open /proc")?,
            files,
            clones: files.iter().map(clone).collect::<Result<_>>()?,
            tmpfs: (!files.is_empty()).then(make).transpose()?,
        })
    }

    /// The image's own libraries that come before the host's; none where the container gets no CUDA of the host's.
    pub fn compat(&self, container: &Place) -> Vec<Library> {
        // Its name has the loaded driver's version.
        let host = self.files.iter().find_map(|file| crate::compat::version(&file.file.name));
        let mut libraries = host.map_or_else(Vec::new, |host| compat::find(container, &self.proc, host));
        let of_host = self.kept(&libraries).filter(|file| file.file.dir == Dir::Lib64);
        let names: Vec<&str> = of_host.map(|file| file.file.name.as_str()).collect();
        libraries.retain(|library| !names.contains(&library.name.as_str()));
        libraries
    }

    /// Looks for a place for all of it, and makes the directory; none where nothing is to be brought in.
    pub fn target(&self, container: &Place, compat: &[Library]) -> Result<Option<Target>> {
        if self.files.is_empty() {
            return Ok(None);
        }
        let own = |file: &'a OpenFile| file.names().map(|name| (file.file.dir, name));
        let compat_names = compat.iter().map(|library| (Dir::Lib64, library.name.as_str()));
        let names: Vec<_> = self.kept(compat).flat_map(own).chain(compat_names).collect();
        let cache = Merged::new(container, &names, &self.proc)?;
        Ok(Some(Target { cache, dir: mount_point(container)? }))
    }

    /// The host's files that the image has none for.
    fn kept(&self, compat: &[Library]) -> impl Iterator<Item = &'a OpenFile> {
        self.files.iter().filter(|file| !file.is_replaced(compat))
    }

    /// Mounts all of it.
    pub fn attach(&self, target: Option<Target>, container: &Place, compat: &[Library]) -> Result<()> {
        let (Some(tmpfs), Some(target)) = (&self.tmpfs, target) else { return Ok(()) };
        self.furnish(tmpfs, container.ids, compat)
            .or_exit(Exit::Io, || "cannot fill the tmpfs for /usr/local/nvidia")?;
        if let Some(cache) = &target.cache {
            cache.stage(tmpfs, container.ids)?;
        }
        sys::mount::set_private_with(tmpfs, libc::MOUNT_ATTR_RDONLY, 0)
            .or_exit(Exit::Io, || "cannot make /usr/local/nvidia read-only")?;
        done(move_onto(tmpfs, &target.dir), PLACE, "mount")?;
        self.attach_files(tmpfs, compat)?;
        target.cache.map_or(Ok(()), |cache| cache.attach(container, tmpfs))
    }

    fn attach_files(&self, tmpfs: &OwnedFd, compat: &[Library]) -> Result<()> {
        let clones = self.files.iter().zip(&self.clones);
        for (file, clone) in clones.filter(|(file, _)| !file.is_replaced(compat)) {
            let path = file.path(&file.file.name);
            let target =
                openat(tmpfs, &path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
            target
                .and_then(|target| move_onto(clone, &target))
                .or_exit(Exit::Io, || format!("cannot mount the container's /usr/local/nvidia/{path}"))?;
        }
        Ok(())
    }

    /// Puts in directories, files to mount on, and links.
    fn furnish(&self, tmpfs: &OwnedFd, ids: RootIds, compat: &[Library]) -> Result<(), Errno> {
        sys::process::create_files_as(ids.uid, ids.gid);
        let furnished = self.furnish_as_owner(tmpfs, compat);
        sys::process::create_files_as(0, 0);
        furnished
    }

    fn furnish_as_owner(&self, tmpfs: &OwnedFd, compat: &[Library]) -> Result<(), Errno> {
        for dir in Dir::ALL {
            if dir != Dir::Lib32 || self.files.iter().any(|file| file.file.dir == dir) {
                mkdirat(tmpfs, dir.as_str(), Mode::from_raw_mode(0o755))?;
            }
        }
        symlinkat(Dir::Lib64.as_str(), tmpfs, "lib")?;
        for library in compat {
            let path = format!("{}/{}", Dir::Lib64.as_str(), library.name);
            symlinkat(format!("/{}/{}", compat::DIR, library.name), tmpfs, path)?;
        }
        for file in self.kept(compat) {
            let mode = Mode::from_raw_mode(0o444);
            mknodat(tmpfs, file.path(&file.file.name), FileType::RegularFile, mode, 0)?;
            for link in &file.file.links {
                symlinkat(&file.file.name, tmpfs, file.path(link))?;
            }
        }
        Ok(())
    }

    /// Looks again, through the root: each name leads to the very file that was opened on the host, or looked at in
    /// the image.
    pub fn read_back(&self, root: &OwnedFd, compat: &[Library]) -> Result<()> {
        for file in self.kept(compat) {
            let source = format!("the host's {}", file.file.source);
            file.names().try_for_each(|name| leads_to(root, &file.path(name), file.id, &source))?;
        }
        compat.iter().try_for_each(|Library { name, id }| {
            leads_to(
                root,
                &format!("{}/{name}", Dir::Lib64.as_str()),
                *id,
                &format!("its /{}/{name}", compat::DIR),
            )
        })
    }
}

/// Does this path in `/usr/local/nvidia` lead to this file?
fn leads_to(root: &OwnedFd, path: &str, file: Id, source: &str) -> Result<()> {
    let there = beneath(root, &format!("{PLACE}/{path}"), OFlags::PATH).and_then(|fd| id(&fd));
    if there == Ok(file) {
        return Ok(());
    }
    let message = format!(
        "the container's /{PLACE}/{path} is not {source}; nobody else may change its /usr/local while it starts"
    );
    Err(Error::new(Exit::Request, message))
}

impl OpenFile {
    /// Relative to `/usr/local/nvidia`.
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.file.dir.as_str())
    }

    /// All names that it has there.
    fn names(&self) -> impl Iterator<Item = &str> {
        [&self.file.name].into_iter().chain(&self.file.links).map(String::as_str)
    }

    /// Is it left out, since the image's own library has one of its names? With a file of the same SONAME beside a link
    /// of that name, `ldconfig` inside would take the file.
    fn is_replaced(&self, compat: &[Library]) -> bool {
        self.file.dir == Dir::Lib64
            && self.file.links.iter().any(|link| compat.iter().any(|library| library.name == *link))
    }
}

/// `/usr/local/nvidia` beneath the root, made where there is none. Links in the image lead there as they do
/// inside, but the directory itself must be one.
fn mount_point(container: &Place) -> Result<OwnedFd> {
    let usr = container.directory(container.root, "", "usr")?;
    let local = container.directory(&usr, "usr", "usr/local")?;
    container.may_hold(&local, "usr/local")?;
    container.make(&local, PLACE)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = done(openat(&local, name(PLACE), flags, Mode::empty()), PLACE, "open")?;
    if mount_id(&place)? != mount_id(&local)? {
        let message = "something is mounted at the container's /usr/local/nvidia already; leave it out";
        return Err(Error::new(Exit::Request, message));
    }
    Ok(place)
}

impl Place<'_> {
    /// The directory at `path` beneath the root, wherever links lead there. Where there is none it is made, in
    /// `parent`, which is at `above`.
    fn directory(&self, parent: &OwnedFd, above: &str, path: &str) -> Result<OwnedFd> {
        let open = || beneath(self.root, path, OFlags::PATH | OFlags::DIRECTORY);
        match open() {
            Err(Errno::NOENT) => {
                self.may_hold(parent, above)?;
                self.make(parent, path)?;
                done(open(), path, "open")
            }
            opened => done(opened, path, "open"),
        }
    }

    fn make(&self, parent: &OwnedFd, path: &str) -> Result<()> {
        sys::process::create_files_as(self.ids.uid, self.ids.gid);
        let made = mkdirat(parent, name(path), Mode::from_raw_mode(0o755));
        sys::process::create_files_as(0, 0);
        if made == Err(Errno::EXIST) { Ok(()) } else { done(made, path, "make") }
    }

    /// May a directory be made, or something mounted, in this one?
    pub fn may_hold(&self, dir: &OwnedFd, path: &str) -> Result<()> {
        self.mounts.may_hold(mount_id(dir)?, self.root_mount).map_err(|reason| {
            let message = format!(
                "the driver's files go below the container's /{path}, which {reason}; leave that bind mount or propagation out"
            );
            Error::new(Exit::Request, message)
        })
    }
}

/// A detached, private, read-only mount of one file: not of the path that was found, but of the very file. It may
/// be executed and mapped, wherever the driver's root is (`/run` is mounted noexec on some hosts).
fn clone(file: &OpenFile) -> Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let cannot = || format!("cannot clone the mount of {} (Linux 5.12 or later is needed)", file.file.source);
    let tree = open_tree(&file.fd, c"", flags).or_exit(Exit::Io, cannot)?;
    let set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    sys::mount::set_private_with(&tree, set, libc::MOUNT_ATTR_NOEXEC).or_exit(Exit::Io, cannot)?;
    Ok(tree)
}

fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

pub(super) fn move_onto(mount: &OwnedFd, target: &OwnedFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", target, c"", flags)
}

pub(super) fn id(fd: impl AsFd) -> Result<Id, Errno> {
    rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

/// What was done on the way to `/usr/local/nvidia`. [`Exit::Request`] for what the container's file system can
/// cause, [`Exit::Io`] for the rest.
fn done<T>(result: Result<T, Errno>, path: &str, what: &str) -> Result<T> {
    let cannot = || format!("cannot {what} the container's /{path}, where the driver's files go");
    match result {
        Err(e @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM | Errno::ROFS)) => {
            let remedy = "make an empty directory /usr/local/nvidia in the image";
            Err(Error::new(Exit::Request, format!("{}: {e}; {remedy}", cannot())))
        }
        result => result.or_exit(Exit::Io, cannot),
    }
}
