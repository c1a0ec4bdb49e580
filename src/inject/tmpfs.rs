//! A tmpfs of vgpu's own, still mounted nowhere: what is put into a container goes into one first, so that
//! nothing of it is left when the container goes. Makes it, and touches nothing else.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};

use crate::container::RootIds;

/// Makes an empty one of at most 32 MiB (a merged linker cache is in one) that belongs to the container's root and carries the container's
/// SELinux label (where the host has SELinux).
///
/// # Errors
/// The kernel's; it must be Linux 5.2 or later.
pub(super) fn detached(ids: RootIds, label: Option<&str>) -> io::Result<OwnedFd> {
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
