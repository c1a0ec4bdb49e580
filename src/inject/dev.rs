//! The leased devices in a container's `/dev`: their nodes, `vgpu/lease.json`, and covers over nodes of other GPUs
//! that the image brings.
//!
//! Part of [`live`](super::live), and by its rules: what was opened and checked on the host is cloned there, and
//! the child in the container's mount namespace attaches it.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, DirEntry, FileType, Mode, OFlags, Stat, fchmod, fchown, mknodat, openat, statat};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use super::detached::{self, Use};
use super::place::{Holder, Id, Place, beneath, id, lost, mount_id, shown};
use crate::access;
use crate::container::RootIds;
use crate::error::{Error, Exit, OrExit, Result};
use crate::gpu::{DRM_MAJOR, DriverRoot, Majors};
use crate::oci::User;
use crate::resolve::Node;
use crate::sys;
use crate::types::DeviceNumber;

/// Where the lease is told, in `/dev`.
const VGPU: &str = "vgpu";

/// Where the worker listens, in `/dev/vgpu`.
const WORKER: &str = "worker";

/// What covers other GPUs' nodes, in `/dev/vgpu`.
const HIDDEN: &CStr = c"hidden";

/// More nodes than that are no host's, but an attempt to have mounts made without end.
const MOST_HIDDEN: usize = 256;

/// The directories of `/dev` in which the driver has nodes.
const DIRECTORIES: [&str; 3] = ["", "nvidia-caps", "dri"];

/// A node of the driver's, opened on the host and found to be what its name says.
#[derive(Debug)]
pub(super) struct OpenNode {
    /// Relative to `/dev`.
    name: String,
    pub number: DeviceNumber,
    fd: OwnedFd,
}

impl OpenNode {
    /// Why this user cannot open the node, whatever the device cgroup allows; none where it can. A container's mapped
    /// ids count as they are: with mappings, no group of the host's is any of them.
    pub fn out_of_reach(&self, user: &User) -> Option<String> {
        let stat = rustix::fs::fstat(&self.fd).ok()?;
        let may = |shift: u32| stat.st_mode >> shift & 0o6 == 0o6;
        if user.uid == 0 || may(0) || may(3) && user.is_in(stat.st_gid) {
            return None;
        }
        let (name, mode, group, uid) = (&self.name, stat.st_mode & 0o777, stat.st_gid, user.uid);
        Some(format!(
            "/dev/{name} is of group {group} with mode {mode:o}: user {uid} of the container cannot open it; start it with --group-add {group}"
        ))
    }
}

/// Opens a node that the container gets; none where it is optional and not there (R08).
pub(super) fn open_node(node: &Node, driver: &DriverRoot) -> Result<Option<OpenNode>> {
    match find(node, driver) {
        Ok(Some(found)) => Ok(Some(found)),
        Ok(None) => {
            let path = driver.shown(path_of(node));
            let message = format!("{path} is not the driver's character device {}", node.number);
            Err(Error::new(Exit::Gpu, message))
        }
        Err(Errno::NOENT) if node.optional => Ok(None),
        Err(e) => Err(cannot_open(node, driver, e).remedy(match node.name.starts_with("nvidia-caps/") {
            false => "`nvidia-modprobe -u -c=0` on the host makes the driver's nodes",
            true => {
                "`nvidia-modprobe -f FILE` on the host makes it, FILE being its `access` below /proc/driver/nvidia/capabilities"
            }
        })),
    }
}

/// Opens one that must stay closed. What is not there, or not the driver's, has nothing to be read back.
pub(super) fn open_other(node: &Node, driver: &DriverRoot) -> Result<Option<OpenNode>> {
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

/// Which nodes in the container's `/dev` are there against its lease.
#[derive(Debug)]
pub(super) struct Foreign {
    /// pool.toml's `allow_other_access`: none is.
    pub allowed: bool,
    /// Those of the driver are, unless they are leased.
    pub majors: Majors,
    /// Those of graphics are, unless the engine gave them: the host may have other GPUs than NVIDIA's.
    pub given: Vec<DeviceNumber>,
}

/// The container's nodes and its lease, still mounted nowhere.
pub(super) struct Detached<'a> {
    nodes: &'a [OpenNode],
    /// One for each node.
    clones: Vec<OwnedFd>,
    /// The worker's socket, and which it is.
    worker: Option<(OwnedFd, Id)>,
    /// What becomes `/dev/vgpu`.
    lease: OwnedFd,
    lease_json: &'a str,
}

impl<'a> Detached<'a> {
    /// Clones the nodes' mounts, and makes a tmpfs with `lease.json` in it.
    pub fn new(
        nodes: &'a [OpenNode],
        worker: Option<&OwnedFd>,
        lease_json: &'a str,
        ids: RootIds,
        label: Option<&str>,
    ) -> Result<Self> {
        let clone = |node: &OpenNode| detached::clone(&node.fd, Use::Device, &format!("/dev/{}", node.name));
        let lease = detached::tmpfs("/dev/vgpu", ids, label)?;
        write_lease(&lease, lease_json, ids).or_exit(Exit::Io, || "cannot write /dev/vgpu/lease.json")?;
        let worker = worker.map(|socket| clone_worker(socket, &lease)).transpose()?;
        Ok(Self { nodes, clones: nodes.iter().map(clone).collect::<Result<_>>()?, worker, lease, lease_json })
    }

    /// Mounts everything. The lease's mount.
    pub fn attach(&self, dev: &Holder, foreign: &Foreign) -> Result<u64> {
        let foreign = self.foreign_nodes(dev, foreign)?;
        if !foreign.is_empty() {
            mknodat(&self.lease, HIDDEN, FileType::RegularFile, Mode::empty(), 0)
                .or_exit(Exit::Io, || "cannot make /dev/vgpu/hidden")?;
        }
        detached::seal(&self.lease, "/dev/vgpu")?;
        for (node, clone) in self.nodes.iter().zip(&self.clones) {
            let (directory, name) = node.name.rsplit_once('/').unwrap_or(("", &node.name));
            let below = (!directory.is_empty()).then(|| dev.directory(directory)).transpose()?;
            let holder = below.as_ref().unwrap_or(dev);
            holder.make(name, FileType::RegularFile)?;
            holder.mount(name, FileType::RegularFile, clone)?;
        }
        dev.make(VGPU, FileType::Directory)?;
        dev.mount(VGPU, FileType::Directory, &self.lease)?;
        if let Some((socket, _)) = &self.worker {
            detached::move_into(socket, &self.lease, WORKER)
                .or_exit(Exit::Io, || "cannot mount /dev/vgpu/worker")?;
        }
        // The kernel clones nothing of a mount that is mounted nowhere.
        foreign.iter().try_for_each(|(directory, name)| self.cover(dev, directory, name))?;
        mount_id(&self.lease)
    }

    /// Has an earlier call for this container done this, to its end? Then a tmpfs that is nowhere but beneath the root
    /// is mounted at `/dev/vgpu`, with this lease.json in it, word for word, and every node of another GPU is covered.
    /// Its mount.
    pub fn attached(&self, dev: &Holder, container: &Place, foreign: &Foreign) -> Result<Option<u64>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(vgpu) = openat(&dev.fd, VGPU, flags, Mode::empty()) else { return Ok(None) };
        let mount = mount_id(&vgpu)?;
        if mount == dev.mount || container.mounts.may_hold(mount, container.root_mount).is_err() {
            return Ok(None);
        }
        // Whatever was copied up from the image into such a tmpfs, nobody swaps it now.
        let stat = statat(&vgpu, "lease.json", AtFlags::SYMLINK_NOFOLLOW);
        if !stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let cannot = || "cannot read /dev/vgpu/lease.json";
        let file = openat(&vgpu, "lease.json", flags, Mode::empty()).or_exit(Exit::Io, cannot)?;
        let mut text = Vec::new();
        let limit = self.lease_json.len() as u64 + 1;
        File::from(file).take(limit).read_to_end(&mut text).or_exit(Exit::Io, cannot)?;
        let done = text == self.lease_json.as_bytes() && self.foreign_nodes(dev, foreign)?.is_empty();
        Ok(done.then_some(mount))
    }

    /// Covers a node with an empty file that nobody may open, out of the lease's tmpfs: private and
    /// read-only as that is.
    fn cover(&self, dev: &Holder, directory: &str, name: &str) -> Result<()> {
        let below = (!directory.is_empty()).then(|| dev.directory(directory)).transpose()?;
        let holder = below.as_ref().unwrap_or(dev);
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let cover = open_tree(&self.lease, HIDDEN, flags)
            .or_exit(Exit::Io, || format!("cannot cover the container's {}", shown(&holder.path_of(name))))?;
        holder.mount(name, FileType::RegularFile, &cover)
    }

    /// Nodes of the driver that the image brings in `/dev` and the lease does not grant, each with its directory.
    /// They could not be opened anyway (device cgroup), but a program that looks around should not find them.
    fn foreign_nodes(&self, dev: &Holder, foreign: &Foreign) -> Result<Vec<(&'static str, String)>> {
        let mut found = Vec::new();
        for directory in DIRECTORIES.into_iter().filter(|_| !foreign.allowed) {
            let opened = if directory.is_empty() { None } else { images_own(dev, directory)? };
            let Some(fd) = opened.as_ref().or(directory.is_empty().then_some(&dev.fd)) else { continue };
            let list = beneath(fd, "", OFlags::RDONLY | OFlags::DIRECTORY).or_exit(Exit::Io, cannot_list)?;
            for entry in rustix::fs::Dir::new(list).or_exit(Exit::Io, cannot_list)? {
                let name = self.foreign_node(fd, &entry.or_exit(Exit::Io, cannot_list)?, foreign)?;
                found.extend(name.map(|name| (directory, name)));
                if found.len() > MOST_HIDDEN {
                    let message =
                        format!("the image has more than {MOST_HIDDEN} nodes of GPUs in /dev; remove them");
                    return Err(Error::new(Exit::Request, message));
                }
            }
        }
        Ok(found)
    }

    /// Its name, if it is one.
    fn foreign_node(&self, dir: &OwnedFd, entry: &DirEntry, foreign: &Foreign) -> Result<Option<String>> {
        // The directory tells what is there beneath whatever is mounted on it: a file may be a node.
        if matches!(entry.file_type(), FileType::Directory | FileType::Symlink) {
            return Ok(None);
        }
        let stat = match statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            stat => stat.or_exit(Exit::Io, cannot_list)?,
        };
        let is_foreign = |number: &DeviceNumber| {
            let of_driver = foreign.majors.owns(number.major);
            let of_graphics = number.major == DRM_MAJOR && !foreign.given.contains(number);
            (of_driver || of_graphics) && !self.nodes.iter().any(|node| node.number == *number)
        };
        if device_number(&stat).filter(is_foreign).is_none() {
            return Ok(None);
        }
        let name = entry.file_name().to_str().map_err(|_| {
            let message = "the image has a GPU node in /dev whose name is not UTF-8; remove it";
            Error::new(Exit::Request, message)
        })?;
        Ok(Some(name.to_owned()))
    }

    /// Looks again, through the root: the lease is there and every node is.
    pub fn read_back(&self, container: &Place, lease: u64) -> Result<()> {
        let there = |name: &str| container.open(&format!("dev/{name}"), OFlags::PATH | OFlags::NOFOLLOW);
        if !there(VGPU).is_ok_and(|fd| mount_id(&fd) == Ok(lease)) {
            return Err(lost("dev/vgpu"));
        }
        if let Some((_, socket)) = self.worker
            && there("vgpu/worker").and_then(id) != Ok(socket)
        {
            return Err(lost("dev/vgpu/worker"));
        }
        for node in self.nodes {
            let stat = there(&node.name).and_then(rustix::fs::fstat);
            if stat.ok().as_ref().and_then(device_number) != Some(node.number) {
                return Err(lost(&format!("dev/{}", node.name)));
            }
        }
        Ok(())
    }

    /// From within the container's cgroup: one of the nodes that may not be opened, if any, for a message.
    pub fn denied(&self) -> Result<Option<String>> {
        for node in self.nodes {
            if !may_open(node)? {
                return Ok(Some(format!("device {} (/dev/{})", node.number, node.name)));
            }
        }
        Ok(None)
    }
}

/// From within the container's cgroup: none of these may be opened.
pub(super) fn read_back_closed(others: &[OpenNode]) -> Result<()> {
    for node in others {
        if may_open(node)? {
            return Err(access::refusal(&format!("its device cgroup allows /dev/{}", node.name)));
        }
    }
    Ok(())
}

/// A mount of the socket, and in the lease's tmpfs what it is going to be mounted on.
fn clone_worker(socket: &OwnedFd, lease: &OwnedFd) -> Result<(OwnedFd, Id)> {
    let cannot = || "cannot make /dev/vgpu/worker";
    mknodat(lease, WORKER, FileType::RegularFile, Mode::empty(), 0).or_exit(Exit::Io, cannot)?;
    let id = id(socket).or_exit(Exit::Io, cannot)?;
    Ok((detached::clone(socket, Use::File, "the worker's socket")?, id))
}

fn write_lease(tmpfs: &OwnedFd, json: &str, ids: RootIds) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(tmpfs, "lease.json", flags, Mode::empty())?;
    fchmod(&file, Mode::RUSR | Mode::RGRP | Mode::ROTH)?;
    let (uid, gid) = (rustix::fs::Uid::from_raw(ids.uid), rustix::fs::Gid::from_raw(ids.gid));
    fchown(&file, Some(uid), Some(gid))?;
    File::from(file).write_all(json.as_bytes())
}

/// A directory in `/dev`; none where it is not there, or is not the image's: what the engine has mounted there it
/// gives by device rules, too, and those were looked at.
fn images_own(dev: &Holder, directory: &str) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&dev.fd, directory, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => {
            let opened = opened.or_exit(Exit::Io, cannot_list)?;
            Ok((mount_id(&opened)? == dev.mount).then_some(opened))
        }
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

fn cannot_list() -> &'static str {
    "cannot list the container's /dev"
}
