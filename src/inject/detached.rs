//! Mounts that are still mounted nowhere: a tmpfs of vgpu's own, and clones of single files. What goes into a
//! container is made ready as such on the host, and attached by descriptor. Touches nothing else.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use crate::container::RootIds;
use crate::error::{Exit, OrExit, Result};
use crate::sys;

/// What each message about these says is needed: mount_setattr(2) is the newest call.
const NEEDED: &str = "(Linux 5.12 or later is needed)";

/// Makes an empty tmpfs that belongs to the container's root and carries the container's SELinux label (where
/// the host has SELinux). It holds at most 32 MiB: a merged linker cache is in one. `what` it becomes is for
/// the message.
pub(super) fn tmpfs(what: &str, ids: RootIds, label: Option<&str>) -> Result<OwnedFd> {
    make_tmpfs(ids, label).or_exit(Exit::Io, || format!("cannot make the tmpfs for {what} {NEEDED}"))
}

fn make_tmpfs(ids: RootIds, label: Option<&str>) -> io::Result<OwnedFd> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(fs.as_fd(), "source", "vgpu")?;
    fsconfig_set_string(fs.as_fd(), "mode", "0755")?;
    fsconfig_set_string(fs.as_fd(), "size", "32m")?;
    fsconfig_set_string(fs.as_fd(), "uid", ids.uid.to_string())?;
    fsconfig_set_string(fs.as_fd(), "gid", ids.gid.to_string())?;
    if let Some(label) = label.filter(|_| Path::new("/sys/fs/selinux/enforce").exists()) {
        fsconfig_set_string(fs.as_fd(), "context", label)?;
    }
    fsconfig_create(fs.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// How a clone of a file may be used.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// A device node: opened for reading and writing.
    Device,
    /// A file that is read, mapped and executed, wherever it is on the host (`/run` is mounted noexec on some),
    /// or a socket that is connected to.
    File,
}

/// A private mount of one file: not of the path that was found, but of the very file. `shown` is for the message.
pub(super) fn clone(file: &OwnedFd, how: Use, shown: &str) -> Result<OwnedFd> {
    let (set, clear) = match how {
        Use::Device => (libc::MOUNT_ATTR_NOEXEC, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV),
        Use::File => (libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV, libc::MOUNT_ATTR_NOEXEC),
    };
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let cannot = || format!("cannot clone the mount of {shown} {NEEDED}");
    let tree = open_tree(file, c"", flags).or_exit(Exit::Io, cannot)?;
    sys::mount::set_private_with(&tree, set | libc::MOUNT_ATTR_NOSUID, clear).or_exit(Exit::Io, cannot)?;
    Ok(tree)
}

/// Makes a mount that was filled read-only.
pub(super) fn seal(mount: &OwnedFd, what: &str) -> Result<()> {
    sys::mount::set_private_with(mount, libc::MOUNT_ATTR_RDONLY, 0)
        .or_exit(Exit::Io, || format!("cannot make {what} read-only"))
}

/// Mounts it on what is open as `target`.
pub(super) fn move_onto(mount: &OwnedFd, target: &OwnedFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", target, c"", flags)
}

/// Mounts it on the file at `path` in a mount of vgpu's own, in which there are no links on the way.
pub(super) fn move_into(mount: &OwnedFd, own: &OwnedFd, path: &str) -> Result<(), Errno> {
    move_mount(mount, c"", own, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}
