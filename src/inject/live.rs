//! A plan brought into a created container, from an OCI hook: after the runtime has mounted the root file
//! system and set the device cgroup, before pivot_root (row A7).
//!
//! Everything enters fd to fd. What goes in is opened, checked and cloned on the host; a forked child
//! enters the container's mount namespace, attaches it and never comes back. Inside, targets resolve
//! beneath the container's root, and nothing is mounted where it would reach the host. The one path that
//! is opened again inside is the root itself, checked by device and inode and by what is mounted there.
//!
//! Who may interfere meanwhile: nobody in the container's mount namespace, where the runtime's init alone
//! lives and waits for this hook. But whoever can write to the root file system from elsewhere, such as
//! another container on the same one, renames and removes what was just looked at. So a name is used once,
//! to get a descriptor; what is done is done to that; and in the end everything is looked at again.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, DirEntry, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};
use rustix::thread::LinkNameSpaceType;

use crate::container::{Container, RootIds};
use crate::driver::DriverFile;
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::gpu::{DriverRoot, Majors};
use crate::inject::child::{self, Birth};
use crate::inject::files::{self, OpenFile};
use crate::inject::mounts::MountTable;
use crate::inject::tmpfs;
use crate::resolve::{Node, Plan};
use crate::sys;
use crate::types::DeviceNumber;

/// A plan whose every part is open: nothing is looked up by path again.
#[derive(Debug)]
pub struct Open {
    nodes: Vec<OpenNode>,
    /// Those of the host's other GPUs that have their node here.
    others: Vec<OpenNode>,
    files: Vec<OpenFile>,
    lease_json: String,
    majors: Majors,
}

#[derive(Debug)]
struct OpenNode {
    name: String,
    number: DeviceNumber,
    fd: OwnedFd,
}

/// Opens what a plan names below the driver root. Optional nodes that are not there are left out (R08); a
/// missing one of the others, or one with a number that is not the driver's, is [`Exit::Gpu`], and so is any
/// that cannot be looked at. The driver's files were opened when they were `found`.
pub fn open(plan: Plan, driver: &DriverRoot, majors: Majors, found: Vec<DriverFile>) -> Result<Open> {
    let nodes = plan.nodes.iter().filter_map(|node| open_node(node, driver).transpose());
    let others = plan.others.iter().filter_map(|node| open_other(node, driver).transpose());
    Ok(Open {
        nodes: nodes.collect::<Result<_>>()?,
        others: others.collect::<Result<_>>()?,
        files: files::open(plan.files, found)?,
        lease_json: plan.lease_json,
        majors,
    })
}

fn open_node(node: &Node, driver: &DriverRoot) -> Result<Option<OpenNode>> {
    match find(node, driver) {
        Ok(Some(found)) => Ok(Some(found)),
        Ok(None) => {
            let path = driver.shown(path_of(node));
            let message = format!("{path} is not the driver's character device {}", node.number);
            Err(Error::new(Exit::Gpu, message))
        }
        Err(Errno::NOENT) if node.optional => Ok(None),
        Err(e) => Err(cannot_open(node, driver, e)
            .remedy("`nvidia-modprobe -u -c=0` on the host makes the driver's nodes")),
    }
}

/// A node that is not there, or not the driver's, has nothing to be read back.
fn open_other(node: &Node, driver: &DriverRoot) -> Result<Option<OpenNode>> {
    match find(node, driver) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map_err(|e| cannot_open(node, driver, e)),
    }
}

/// None where the name is another thing's.
fn find(node: &Node, driver: &DriverRoot) -> Result<Option<OpenNode>, Errno> {
    let fd = driver.open_below(path_of(node), OFlags::PATH | OFlags::NOFOLLOW)?;
    let is_it = device_number(&rustix::fs::fstat(&fd)?) == Some(node.number);
    Ok(is_it.then(|| OpenNode { name: node.name.clone(), number: node.number, fd }))
}

fn path_of(node: &Node) -> String {
    format!("dev/{}", node.name)
}

fn cannot_open(node: &Node, driver: &DriverRoot, e: Errno) -> Error {
    Error::new(Exit::Gpu, format!("cannot open {}: {e}", driver.shown(path_of(node))))
}

fn device_number(stat: &Stat) -> Option<DeviceNumber> {
    let character = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    character.then(|| DeviceNumber {
        major: rustix::fs::major(stat.st_rdev),
        minor: rustix::fs::minor(stat.st_rdev),
    })
}

impl Open {
    /// The device numbers that the container's cgroup must allow.
    pub fn numbers(&self) -> Vec<DeviceNumber> {
        self.nodes.iter().map(|node| node.number).collect()
    }
}

/// How a container is entered.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The container.
    pub container: &'a Container,
    /// Its root file system's path on the host.
    pub root: &'a Path,
    /// Is that to be read-only for it?
    pub read_only: bool,
    /// Its SELinux label.
    pub mount_label: Option<&'a str>,
    /// How the child gets into its cgroup.
    pub birth: Birth<'a>,
    /// pool.toml's `allow_other_access`: the host's other GPUs need not be closed.
    pub allow_other_access: bool,
}

/// Mounts all that was opened into the container, and reads back that it is there. Done already for this
/// container (a hook may be listed twice), it changes nothing.
pub fn inject(open: &Open, entry: &Entry) -> Result<()> {
    let clones = open.nodes.iter().map(clone_node).collect::<Result<Vec<_>>>()?;
    let ids = entry.container.root_ids()?;
    let namespace = entry.container.mount_namespace()?;
    let inside = Inside {
        open,
        clones,
        files: files::Detached::new(&open.files, ids, entry.mount_label)?,
        lease: lease_tmpfs(&open.lease_json, ids, entry.mount_label)?,
        mounts: entry.container.mounts()?,
        root: Root::open(entry.root)?,
        ids,
        read_only: entry.read_only,
        allow_other_access: entry.allow_other_access,
        // Only a child that is in the container's cgroup can read back what that allows.
        read_back_access: !matches!(entry.birth, Birth::Beside),
    };
    child::run(entry.birth, || {
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
            .or_exit(Exit::Io, || "cannot enter the container's mount namespace")?;
        // What is made here has the mode that is written here.
        rustix::process::umask(Mode::empty());
        inside.attach()
    })
}

/// A detached, private mount of one node: not the path that was checked, but the very file.
fn clone_node(node: &OpenNode) -> Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let at = || format!("cannot clone the mount of /dev/{} (Linux 5.12 or later is needed)", node.name);
    let tree = rustix::mount::open_tree(&node.fd, c"", flags).or_exit(Exit::Io, at)?;
    let set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    sys::mount::set_private_with(&tree, set, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV)
        .or_exit(Exit::Io, at)?;
    Ok(tree)
}

/// The detached tmpfs that becomes `/dev/vgpu`, with `lease.json` in it.
fn lease_tmpfs(json: &str, ids: RootIds, label: Option<&str>) -> Result<OwnedFd> {
    let make = || -> std::io::Result<OwnedFd> {
        let mount = tmpfs::detached(ids, label)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&mount, "lease.json", flags, Mode::empty())?;
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::RGRP | Mode::ROTH)?;
        let (uid, gid) = (rustix::fs::Uid::from_raw(ids.uid), rustix::fs::Gid::from_raw(ids.gid));
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
        File::from(file).write_all(json.as_bytes())?;
        Ok(mount)
    };
    make().or_exit(Exit::Io, || "cannot make the tmpfs for /dev/vgpu (Linux 5.12 or later is needed)")
}

/// The container's root directory: by which path, and which directory that is.
struct Root {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Root {
    /// Follows the path once, on the host; from here on it is the canonical one.
    fn open(path: &Path) -> Result<Self> {
        let path = path.canonicalize();
        let path =
            path.or_exit(Exit::Request, || "cannot find the container's root file system (root.path)")?;
        if path == Path::new("/") {
            let message = "the container's root is the host's; give it one of its own (root.path)";
            return Err(Error::new(Exit::Request, message));
        }
        let (_, stat) = open_root(&path)?;
        Ok(Self { path, device: stat.st_dev, inode: stat.st_ino })
    }

    /// The same directory in the mount namespace that the process is in now.
    fn open_here(&self) -> Result<OwnedFd> {
        let (fd, stat) = open_root(&self.path)?;
        if (stat.st_dev, stat.st_ino) == (self.device, self.inode) {
            return Ok(fd);
        }
        let path = quoted(&self.path.to_string_lossy());
        let message =
            format!("{path} is another directory in the container's mount namespace than on the host");
        Err(Error::new(Exit::Request, message))
    }
}

fn open_root(path: &Path) -> Result<(OwnedFd, Stat)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty())
        .and_then(|fd| rustix::fs::fstat(&fd).map(|stat| (fd, stat)));
    let cannot = || format!("cannot open the container's root {}", quoted(&path.to_string_lossy()));
    opened.or_exit(Exit::Request, cannot)
}

/// What covers other GPUs' nodes, in `/dev/vgpu`.
const HIDDEN: &CStr = c"hidden";

/// More nodes than that are no host's, but an attempt to have mounts made without end.
const MOST_HIDDEN: usize = 256;

/// What the child works with inside the container's mount namespace.
struct Inside<'a> {
    open: &'a Open,
    clones: Vec<OwnedFd>,
    files: files::Detached<'a>,
    lease: OwnedFd,
    mounts: MountTable,
    root: Root,
    ids: RootIds,
    read_only: bool,
    allow_other_access: bool,
    read_back_access: bool,
}

/// The container's `/dev`: its directory and the mount that holds it.
struct Dev {
    fd: OwnedFd,
    mount: u64,
}

impl Inside<'_> {
    fn attach(&self) -> Result<()> {
        let root = self.root.open_here()?;
        let root_mount = self.root_mount(&root)?;
        let dev = self.dev(&root, root_mount)?;
        let container = files::Place {
            root: &root,
            root_mount,
            mounts: &self.mounts,
            ids: self.ids,
            own_layer: !self.read_only && self.mounts.is_writable_overlay(root_mount),
        };
        let compat = self.files.compat(&container);
        let lease = match self.attached(&dev, root_mount)? {
            Some(lease) => lease,
            None => {
                let target = self.files.target(&container, &compat)?;
                let lease = self.attach_all(&dev)?;
                self.files.attach(target, &container, &compat)?;
                lease
            }
        };
        self.read_back(&root, lease)?;
        self.files.read_back(&root, &compat)
    }

    /// The mount of the container's root, which the runtime has bound onto itself at the root's path.
    /// Another directory there is not what the runtime will pivot to: somebody who may rename the root or
    /// a directory above it has led us here, and it could be anything of the host's.
    fn root_mount(&self, root: &OwnedFd) -> Result<u64> {
        let mount = mount_id(root)?;
        if self.mounts.is_bound_onto_itself(mount, &self.root.path) {
            return Ok(mount);
        }
        let path = quoted(&self.root.path.to_string_lossy());
        let message =
            format!("{path} is not where the runtime has mounted the container's root; leave it where it is");
        Err(Error::new(Exit::Request, message))
    }

    /// `/dev` beneath the root, wherever symbolic links in the image take it there, if it may hold mounts.
    fn dev(&self, root: &OwnedFd, root_mount: u64) -> Result<Dev> {
        let fd = beneath(root, "dev", OFlags::PATH | OFlags::DIRECTORY)
            .or_exit(Exit::Request, || "the container has no usable /dev")
            .map_err(|e| e.remedy("add the tmpfs that engines mount there"))?;
        let dev = Dev { mount: mount_id(&fd)?, fd };
        self.mounts.may_hold(dev.mount, root_mount).map_err(|reason| {
            let remedy = "mounting there would reach the host. Leave that bind mount or propagation out";
            Error::new(Exit::Request, format!("the container's /dev {reason}; {remedy}"))
        })?;
        Ok(dev)
    }

    /// Mounts everything. The lease's mount.
    fn attach_all(&self, dev: &Dev) -> Result<u64> {
        let foreign = self.foreign_nodes(dev)?;
        if !foreign.is_empty() {
            rustix::fs::mknodat(&self.lease, HIDDEN, FileType::RegularFile, Mode::empty(), 0)
                .or_exit(Exit::Io, || "cannot make /dev/vgpu/hidden")?;
        }
        sys::mount::set_private_with(&self.lease, libc::MOUNT_ATTR_RDONLY, 0)
            .or_exit(Exit::Io, || "cannot make /dev/vgpu read-only")?;
        self.make_mount_points(dev)?;
        move_onto(&self.lease, &self.existing(dev, "vgpu", FileType::Directory)?, "vgpu")?;
        for (node, clone) in self.open.nodes.iter().zip(&self.clones) {
            move_onto(clone, &self.existing(dev, &node.name, FileType::RegularFile)?, &node.name)?;
        }
        foreign.iter().try_for_each(|name| self.cover(dev, name))?;
        mount_id(&self.lease)
    }

    /// Has an earlier call for this container done this, or begun it? (What is missing then, the read-back finds.)
    /// Then a tmpfs that is nowhere but beneath the
    /// root is mounted at `/dev/vgpu`, with this lease.json in it, word for word. Its mount.
    fn attached(&self, dev: &Dev, root_mount: u64) -> Result<Option<u64>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(vgpu) = rustix::fs::openat(&dev.fd, "vgpu", flags, Mode::empty()) else { return Ok(None) };
        let mount = mount_id(&vgpu)?;
        if mount == dev.mount || self.mounts.may_hold(mount, root_mount).is_err() {
            return Ok(None);
        }
        // Whatever was copied up from the image into such a tmpfs, nobody swaps it now.
        let stat = rustix::fs::statat(&vgpu, "lease.json", AtFlags::SYMLINK_NOFOLLOW);
        if !stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let cannot = || "cannot read /dev/vgpu/lease.json";
        let file = rustix::fs::openat(&vgpu, "lease.json", flags, Mode::empty()).or_exit(Exit::Io, cannot)?;
        let mut text = Vec::new();
        let limit = self.open.lease_json.len() as u64 + 1;
        File::from(file).take(limit).read_to_end(&mut text).or_exit(Exit::Io, cannot)?;
        Ok((text == self.open.lease_json.as_bytes()).then_some(mount))
    }

    /// A directory to mount the lease on and a file for each node, as the container's root; what the image
    /// has there is left as it is.
    fn make_mount_points(&self, dev: &Dev) -> Result<()> {
        let unless_there =
            |made, name| if made == Err(Errno::EXIST) { Ok(()) } else { done(made, name, "make") };
        let directory = || rustix::fs::mkdirat(&dev.fd, "vgpu", Mode::from_raw_mode(0o755));
        let mode = Mode::from_raw_mode(0o444);
        let file = |name| rustix::fs::mknodat(&dev.fd, name, FileType::RegularFile, mode, 0);
        sys::process::create_files_as(self.ids.uid, self.ids.gid);
        let made = unless_there(directory(), "vgpu").and_then(|()| {
            self.open.nodes.iter().try_for_each(|node| unless_there(file(&node.name), &node.name))
        });
        sys::process::create_files_as(0, 0);
        made
    }

    /// What is at `/dev/<name>`, if it is a directory where one is wanted and a file or character device
    /// where a file is wanted, and not itself something mounted.
    fn existing(&self, dev: &Dev, name: &str, wanted: FileType) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = done(rustix::fs::openat(&dev.fd, name, flags, Mode::empty()), name, "open")?;
        let (kind, mount) = kind_and_mount(&fd)?;
        let device = wanted == FileType::RegularFile && kind == FileType::CharacterDevice;
        if kind != wanted && !device {
            let what = if kind == FileType::Symlink { "a symbolic link" } else { "in the way" };
            let message = format!("the container's {} is {what}; remove it from the image", shown(name));
            return Err(Error::new(Exit::Request, message));
        }
        if mount != dev.mount {
            let message =
                format!("something is mounted at the container's {} already; leave it out", shown(name));
            return Err(Error::new(Exit::Request, message));
        }
        Ok(fd)
    }

    /// Covers a node with an empty file that nobody may open, out of the lease's tmpfs: private and
    /// read-only as that is.
    fn cover(&self, dev: &Dev, name: &str) -> Result<()> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let cover = rustix::mount::open_tree(&self.lease, HIDDEN, flags)
            .or_exit(Exit::Io, || format!("cannot cover the container's {}", shown(name)))?;
        move_onto(&cover, &self.existing(dev, name, FileType::RegularFile)?, name)
    }

    /// Nodes of the driver that the image brings in `/dev` and the lease does not grant. They could not be
    /// opened anyway (device cgroup), but a program that looks around should not find them.
    fn foreign_nodes(&self, dev: &Dev) -> Result<Vec<String>> {
        if self.allow_other_access {
            return Ok(Vec::new());
        }
        let list =
            beneath(&dev.fd, ".", OFlags::RDONLY | OFlags::DIRECTORY).or_exit(Exit::Io, cannot_list)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(list).or_exit(Exit::Io, cannot_list)? {
            names.extend(self.foreign_node(dev, &entry.or_exit(Exit::Io, cannot_list)?)?);
            if names.len() > MOST_HIDDEN {
                let message =
                    format!("the image has more than {MOST_HIDDEN} nodes of GPUs in /dev; remove them");
                return Err(Error::new(Exit::Request, message));
            }
        }
        Ok(names)
    }

    /// Its name, if it is one.
    fn foreign_node(&self, dev: &Dev, entry: &DirEntry) -> Result<Option<String>> {
        // The directory tells what is there beneath whatever is mounted on it: a file may be a node.
        if matches!(entry.file_type(), FileType::Directory | FileType::Symlink) {
            return Ok(None);
        }
        let stat = match rustix::fs::statat(&dev.fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            stat => stat.or_exit(Exit::Io, cannot_list)?,
        };
        let foreign = |number: &DeviceNumber| {
            self.open.majors.owns(number.major) && !self.open.nodes.iter().any(|node| node.number == *number)
        };
        if device_number(&stat).filter(foreign).is_none() {
            return Ok(None);
        }
        let name = entry.file_name().to_str().map_err(|_| {
            let message = "the image has a GPU node in /dev whose name is not UTF-8; remove it";
            Error::new(Exit::Request, message)
        })?;
        Ok(Some(name.to_owned()))
    }

    /// Looks again, through the root: the lease is there, every node is and may be opened, those of other
    /// GPUs may not.
    fn read_back(&self, root: &OwnedFd, lease: u64) -> Result<()> {
        let there = |name: &str| beneath(root, &format!("dev/{name}"), OFlags::PATH | OFlags::NOFOLLOW);
        if !there("vgpu").is_ok_and(|fd| mount_id(&fd) == Ok(lease)) {
            return Err(lost("vgpu"));
        }
        for node in &self.open.nodes {
            let stat = there(&node.name).and_then(rustix::fs::fstat);
            if stat.ok().as_ref().and_then(device_number) != Some(node.number) {
                return Err(lost(&node.name));
            }
            if self.read_back_access && !may_open(node)? {
                let message = format!(
                    "a cgroup above the container's denies device {} (/dev/{}); allow it there (systemd: DeviceAllow= of the slice)",
                    node.number, node.name
                );
                return Err(Error::new(Exit::Request, message));
            }
        }
        if self.read_back_access && !self.allow_other_access {
            for node in &self.open.others {
                if may_open(node)? {
                    return Err(crate::access::refusal(&format!(
                        "its device cgroup allows /dev/{}",
                        node.name
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Does the device cgroup of this process let the node be opened?
fn may_open(node: &OpenNode) -> Result<bool> {
    match sys::access::may_read_and_write(&node.fd) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => Ok(false),
        Err(e) => Err(Error::new(Exit::Io, format!("cannot check access to /dev/{}: {e}", node.name))),
    }
}

fn lost(name: &str) -> Error {
    let message = format!(
        "the container's {} is gone again, or an earlier hook was killed half-way; nobody else may change its /dev while it starts",
        shown(name)
    );
    Error::new(Exit::Request, message)
}

fn cannot_list() -> &'static str {
    "cannot list the container's /dev"
}

/// A name in the container's `/dev` for messages: some are the image's.
fn shown(name: &str) -> String {
    quoted(&format!("/dev/{name}"))
}

/// What was done in the container's `/dev`. [`Exit::Request`] for what files and mounts of the container's
/// can cause, [`Exit::Io`] for the rest.
fn done<T>(result: Result<T, Errno>, name: &str, what: &str) -> Result<T> {
    let cannot = || format!("cannot {what} the container's {}", shown(name));
    match result {
        Err(Errno::NOENT) => Err(lost(name)),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => result
            .or_exit(Exit::Request, cannot)
            .map_err(|e| e.remedy("mount a tmpfs at its /dev, as engines do")),
        result => result.or_exit(Exit::Io, cannot),
    }
}

/// How often a path is looked up again while somebody renames along the way.
const LOOKUPS: usize = 1000;

/// Opens a path that resolves beneath a directory as if that were the root, through no magic link.
pub(super) fn beneath(dir: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let open = || rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
    // The kernel gives up with EAGAIN when a rename may have moved ".." out of the root meanwhile.
    (1..LOOKUPS).map(|_| open()).find(|opened| !matches!(opened, Err(Errno::AGAIN))).unwrap_or_else(open)
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

fn move_onto(mount: &OwnedFd, target: &OwnedFd, name: &str) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    done(rustix::mount::move_mount(mount, c"", target, c"", flags), name, "mount")
}
