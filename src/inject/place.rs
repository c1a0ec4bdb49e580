//! The root file system of a created container, as the child in its mount namespace works with it: which
//! directories may hold mounts, and how mount points come into being there.
//!
//! Part of [`live`](super::live), and by its rules: paths resolve beneath the root, a name is used once to get a
//! descriptor, and nothing is made or mounted where it would reach the host.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags, mkdirat, mknodat, openat, symlinkat,
};
use rustix::io::Errno;

use super::detached::move_onto;
use crate::container::RootIds;
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::mounts::MountTable;

/// The container's root and what is mounted in there.
pub(super) struct Place<'a> {
    pub root: OwnedFd,
    pub root_mount: u64,
    pub mounts: &'a MountTable,
    pub ids: RootIds,
    /// Is the root file system a writable layer of the container's own?
    pub own_layer: bool,
}

/// A directory of the container's in which files may be made and mounted on.
pub(super) struct Holder {
    pub fd: OwnedFd,
    pub mount: u64,
    /// Relative to the root.
    path: String,
    ids: RootIds,
}

impl Place<'_> {
    /// Opens what is at a path beneath the root, wherever links lead there.
    pub fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        beneath(&self.root, path, flags)
    }

    /// The same; none where there is no such thing, and none that can be reached. What else went wrong is no sign that
    /// there is none: [`Exit::Io`].
    pub fn find(&self, path: &str, flags: OFlags) -> Result<Option<OwnedFd>> {
        const NONE: [Errno; 5] =
            [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NAMETOOLONG, Errno::ACCESS];
        match self.open(path, flags) {
            Err(e) if NONE.contains(&e) => Ok(None),
            Err(Errno::AGAIN) => Err(meddled(path, "is being renamed by somebody else")),
            opened => {
                opened.map(Some).or_exit(Exit::Io, || format!("cannot open the container's {}", shown(path)))
            }
        }
    }

    /// The directory of what is going to be at this path, made where there is none, and the name in it.
    pub fn target<'p>(&self, path: &'p str, kind: FileType) -> Result<(Holder, &'p str)> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.holder(above, &Goal { path, kind })?, name))
    }

    fn holder(&self, path: &str, goal: &Goal) -> Result<Holder> {
        let open = || self.open(path, OFlags::PATH | OFlags::DIRECTORY);
        let opened = match open() {
            Err(Errno::NOENT) if !path.is_empty() => {
                let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
                self.holder(above, goal)?.make_for(name, FileType::Directory, goal)?;
                open()
            }
            opened => opened,
        };
        self.holder_at(done(opened, path, "open", goal)?, path)
    }

    /// The opened directory, if it may hold anything.
    pub fn holder_at(&self, fd: OwnedFd, path: &str) -> Result<Holder> {
        let holder = Holder { mount: mount_id(&fd)?, fd, path: path.to_owned(), ids: self.ids };
        self.mounts.may_hold(holder.mount, self.root_mount).map_err(|reason| {
            let remedy = "mounting there would reach the host. Leave that bind mount or propagation out";
            Error::new(Exit::Request, format!("the container's {} {reason}; {remedy}", shown(path)))
        })?;
        Ok(holder)
    }
}

impl Holder {
    /// Makes an empty directory or file, which belongs to the container's root; what has the name already is left
    /// as it is.
    pub fn make(&self, name: &str, kind: FileType) -> Result<()> {
        self.make_for(name, kind, &Goal { path: &self.path_of(name), kind })
    }

    fn make_for(&self, name: &str, kind: FileType, goal: &Goal) -> Result<()> {
        let made = self.ids.create(|| match kind {
            FileType::Directory => mkdirat(&self.fd, name, Mode::from_raw_mode(0o755)),
            kind => mknodat(&self.fd, name, kind, Mode::from_raw_mode(0o444), 0),
        });
        if made == Err(Errno::EXIST) { Ok(()) } else { done(made, &self.path_of(name), "make", goal) }
    }

    /// Makes a symbolic link. Does it lead there now? Not where something else has the name already.
    pub fn make_link(&self, name: &str, to: &str) -> Result<bool> {
        match self.ids.create(|| symlinkat(to, &self.fd, name)) {
            Err(Errno::EXIST) => {
                let there = rustix::fs::readlinkat(&self.fd, name, Vec::new());
                Ok(there.is_ok_and(|there| there.as_bytes() == to.as_bytes()))
            }
            made => {
                let path = self.path_of(name);
                done(made, &path, "make", &Goal { path: &path, kind: FileType::Symlink }).map(|()| true)
            }
        }
    }

    /// What has this name, if it is a directory where one is wanted and a file or character device where a file
    /// is wanted, and not itself something mounted.
    pub fn existing(&self, name: &str, wanted: FileType) -> Result<OwnedFd> {
        let path = self.path_of(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(&self.fd, name, flags, Mode::empty()) {
            // It was made a moment ago.
            Err(Errno::NOENT) => return Err(lost(&path)),
            opened => done(opened, &path, "open", &Goal { path: &path, kind: wanted })?,
        };
        let (kind, mount) = kind_and_mount(&fd)?;
        let device = wanted == FileType::RegularFile && kind == FileType::CharacterDevice;
        if kind != wanted && !device {
            let what = if kind == FileType::Symlink { "a symbolic link" } else { "in the way" };
            let message = format!("the container's {} is {what}; remove it from the image", shown(&path));
            return Err(Error::new(Exit::Request, message));
        }
        if mount != self.mount {
            let message =
                format!("something is mounted at the container's {} already; leave it out", shown(&path));
            return Err(Error::new(Exit::Request, message));
        }
        Ok(fd)
    }

    /// The directory of this name in it, made where there is none.
    pub fn directory(&self, name: &str) -> Result<Self> {
        self.make(name, FileType::Directory)?;
        let fd = self.existing(name, FileType::Directory)?;
        Ok(Self { fd, mount: self.mount, path: self.path_of(name), ids: self.ids })
    }

    /// Mounts something on what has this name.
    pub fn mount(&self, name: &str, wanted: FileType, mount: &OwnedFd) -> Result<()> {
        let target = self.existing(name, wanted)?;
        let path = self.path_of(name);
        match move_onto(mount, &target) {
            Err(Errno::NOENT) => Err(lost(&path)),
            mounted => done(mounted, &path, "mount", &Goal { path: &path, kind: wanted }),
        }
    }

    /// Relative to the root.
    pub fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }
}

/// A path relative to the root, for messages: some are the image's.
pub(super) fn shown(path: &str) -> String {
    let path = format!("/{path}");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    if path.len() <= 64 && path.bytes().all(plain) { path } else { quoted(&path) }
}

/// What was made or mounted a moment ago is not there.
pub(super) fn lost(path: &str) -> Error {
    meddled(path, "is gone again, or an earlier hook was killed half-way")
}

/// Somebody else is at work in the container's root file system, and this is how it shows.
pub(super) fn meddled(path: &str, how: &str) -> Error {
    let message =
        format!("the container's {} {how}; nobody else may change its files while it starts", shown(path));
    Error::new(Exit::Request, message)
}

/// What is to come about in the container, and what an image must have where it cannot.
struct Goal<'p> {
    path: &'p str,
    kind: FileType,
}

impl Goal<'_> {
    fn remedy(&self) -> String {
        let kind = match self.kind {
            _ if self.path.starts_with("dev/") => return "mount a tmpfs at its /dev, as engines do".into(),
            FileType::Directory => "an empty directory",
            FileType::Symlink => "a link",
            _ => "an empty file",
        };
        format!("make {kind} {} in the image", shown(self.path))
    }
}

fn done<T>(result: Result<T, Errno>, path: &str, what: &str, goal: &Goal) -> Result<T> {
    by_cause(result, || format!("cannot {what} the container's {}", shown(path)), || goal.remedy())
}

/// [`Exit::Request`], with a remedy, for what files and mounts of the container's can cause; [`Exit::Io`] for the rest.
pub(super) fn by_cause<T>(
    result: Result<T, Errno>,
    cannot: impl FnOnce() -> String,
    remedy: impl FnOnce() -> String,
) -> Result<T> {
    match result {
        Err(e) if is_of_container(e) => {
            result.or_exit(Exit::Request, cannot).map_err(|e| e.remedy(&remedy()))
        }
        result => result.or_exit(Exit::Io, cannot),
    }
}

/// Can files and mounts of the container's cause it?
pub(super) fn is_of_container(e: Errno) -> bool {
    const CAUSED: [Errno; 9] = [
        Errno::NOENT,
        Errno::ACCESS,
        Errno::PERM,
        Errno::ROFS,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::EXIST,
        Errno::LOOP,
        Errno::NAMETOOLONG,
    ];
    CAUSED.contains(&e)
}

/// How often a path is looked up again while somebody renames along the way.
const LOOKUPS: usize = 1000;

/// Opens a path that resolves beneath a directory as if that were the root, through no magic link.
pub(super) fn beneath(dir: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { "." } else { path };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let open = || rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
    // The kernel gives up with EAGAIN when a rename may have moved ".." out of the root meanwhile.
    (1..LOOKUPS).map(|_| open()).find(|opened| !matches!(opened, Err(Errno::AGAIN))).unwrap_or_else(open)
}

/// Which file it is, wherever it is mounted: device and inode.
pub(super) type Id = (u64, u64);

pub(super) fn id(fd: impl AsFd) -> Result<Id, Errno> {
    rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

pub(super) fn mount_id(fd: &OwnedFd) -> Result<u64> {
    Ok(kind_and_mount(fd)?.1)
}

/// What kind of file it is, and the id of the mount it was opened on.
fn kind_and_mount(fd: &OwnedFd) -> Result<(FileType, u64)> {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE | StatxFlags::MNT_ID);
    let stat = stat.or_exit(Exit::Io, || "cannot ask for a mount's id (Linux 5.12 or later is needed)")?;
    Ok((FileType::from_raw_mode(stat.stx_mode.into()), stat.stx_mnt_id))
}
