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

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::thread::LinkNameSpaceType;

use super::cgroup_v2;
use super::child::{self, Birth};
use super::dev::{self, Foreign, OpenNode};
use super::files::{self, OpenFile};
use super::place::{Holder, Place, by_cause, mount_id};
use super::procfs::{self, Told};
use super::sockets::{self, OpenSocket};
use crate::cgroup::CgroupPath;
use crate::container::{Container, RootIds};
use crate::driver::DriverFile;
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::gpu::{DriverRoot, Majors};
use crate::mounts::MountTable;
use crate::oci::User;
use crate::resolve::Plan;
use crate::types::DeviceNumber;

/// A plan whose every part is open: nothing is looked up by path again.
#[derive(Debug)]
pub struct Open {
    nodes: Vec<OpenNode>,
    /// Those of the host's other GPUs that have their node here.
    others: Vec<OpenNode>,
    files: Vec<OpenFile>,
    sockets: Vec<OpenSocket>,
    /// The socket of its worker, where it has one instead of GPUs.
    worker: Option<OwnedFd>,
    told: Vec<Told>,
    lease_json: String,
    majors: Majors,
}

/// Opens what a plan names below the driver root. Optional nodes that are not there are left out (R08); a
/// missing one of the others, or one with a number that is not the driver's, is [`Exit::Gpu`], and so is any
/// that cannot be looked at. The driver's files were opened when they were `found`.
pub fn open(
    plan: Plan,
    driver: &DriverRoot,
    majors: Majors,
    mut found: Vec<DriverFile>,
    worker: Option<OwnedFd>,
) -> Result<Open> {
    let nodes = plan.nodes.iter().filter_map(|node| dev::open_node(node, driver).transpose());
    let others = plan.others.iter().filter_map(|node| dev::open_other(node, driver).transpose());
    Ok(Open {
        nodes: nodes.collect::<Result<_>>()?,
        others: others.collect::<Result<_>>()?,
        files: files::open(plan.files, &mut found)?,
        sockets: sockets::open(plan.sockets, &mut found)?,
        worker,
        told: procfs::read(driver, &plan.gpus, &plan.mig)?,
        lease_json: plan.lease_json,
        majors,
    })
}

impl Open {
    /// What the container gets and its user cannot open, a line each: a hook cannot put a process into a group.
    pub fn out_of_reach(&self, user: &User) -> Vec<String> {
        self.nodes.iter().filter_map(|node| node.out_of_reach(user)).collect()
    }

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
    /// The devices that the engine itself gives it.
    pub given: &'a [DeviceNumber],
}

/// Mounts all that was opened into the container, and reads back that it is there. Done already for this
/// container (a hook may be listed twice), it changes nothing.
pub fn inject(open: &Open, entry: &Entry) -> Result<()> {
    let ids = entry.container.root_ids()?;
    let namespace = entry.container.mount_namespace()?;
    let label = entry.mount_label;
    let inside = Inside {
        dev: dev::Detached::new(&open.nodes, open.worker.as_ref(), &open.lease_json, ids, label)?,
        others: &open.others,
        foreign: Foreign {
            allowed: entry.allow_other_access,
            majors: open.majors,
            given: entry.given.to_vec(),
        },
        files: files::Detached::new(&open.files, ids, label)?,
        sockets: sockets::Detached::new(&open.sockets)?,
        procfs: procfs::Detached::new(&open.told, ids, label)?,
        mounts: entry.container.mounts()?,
        root: Root::open(entry.root)?,
        ids,
        read_only: entry.read_only,
        // Only a child that is in the container's cgroup can read back what that allows.
        in_its_cgroup: !matches!(entry.birth, Birth::Beside),
    };
    let denied = child::run(entry.birth, || {
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
            .or_exit(Exit::Io, || "cannot enter the container's mount namespace")?;
        // What is made here has the mode that is written here.
        rustix::process::umask(Mode::empty());
        inside.attach()?;
        inside.denied()
    })?;
    denied.map_or(Ok(()), |device| Err(denied_above(entry.birth, &device)))
}

/// The container's own cgroups were told to allow the device, so that one above them denies it. Which that is the
/// kernel does not say; of v2, it says which have device programs at all.
fn denied_above(birth: Birth, device: &str) -> Error {
    let ruled = match birth {
        Birth::Within(cgroups) => cgroup_v2::ancestors_with_programs(cgroups.outermost().path()),
        Birth::MovesTo(_) | Birth::Beside => Ok(Vec::new()),
    };
    let ruled: Vec<String> = ruled.unwrap_or_default().iter().map(CgroupPath::to_string).collect();
    let which = match &ruled[..] {
        [] => "a cgroup".to_owned(),
        [one] => format!("cgroup {one}"),
        several => format!("one of the cgroups {}", several.join(", ")),
    };
    let message = format!("{which} above the container's denies {device}");
    Error::new(Exit::Request, message).remedy("allow it there (systemd: DeviceAllow= of the slice)")
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
    by_cause(opened, cannot, || "leave it where it is".to_owned())
}

/// What the child works with inside the container's mount namespace.
struct Inside<'a> {
    dev: dev::Detached<'a>,
    others: &'a [OpenNode],
    foreign: Foreign,
    files: files::Detached<'a>,
    sockets: sockets::Detached<'a>,
    procfs: procfs::Detached<'a>,
    mounts: MountTable,
    root: Root,
    ids: RootIds,
    read_only: bool,
    in_its_cgroup: bool,
}

impl Inside<'_> {
    fn attach(&self) -> Result<()> {
        let root = self.root.open_here()?;
        let root_mount = self.root_mount(&root)?;
        let own_layer = !self.read_only && self.mounts.is_writable_overlay(root_mount);
        let container = Place { root, root_mount, mounts: &self.mounts, ids: self.ids, own_layer };
        let dev = dev(&container)?;
        let compat = self.files.compat(&container)?;
        let lease = match self.dev.attached(&dev, &container, &self.foreign)? {
            Some(lease) => lease,
            None => {
                self.procfs.attach(&container)?;
                self.files.attach(&container, &compat)?;
                self.sockets.attach(&container)?;
                // The last, for it tells a later call that all is there.
                self.dev.attach(&dev, &self.foreign)?
            }
        };
        procfs::read_back(&container)?;
        self.files.read_back(&container, &compat)?;
        self.sockets.read_back(&container)?;
        self.dev.read_back(&container, lease)
    }

    /// What the container's cgroup lets it open is what the lease says: the others' nodes are closed. One of its own
    /// that is closed, too, if any.
    fn denied(&self) -> Result<Option<String>> {
        if !self.in_its_cgroup {
            return Ok(None);
        }
        if !self.foreign.allowed {
            dev::read_back_closed(self.others)?;
        }
        self.dev.denied()
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
}

/// `/dev` beneath the root, wherever symbolic links in the image take it there, if it may hold mounts.
fn dev(container: &Place) -> Result<Holder> {
    let none = || "the container has no usable /dev".to_owned();
    let fd = container.open("dev", OFlags::PATH | OFlags::DIRECTORY);
    let fd = by_cause(fd, none, || "add the tmpfs that engines mount there".to_owned())?;
    container.holder_at(fd, "dev")
}
