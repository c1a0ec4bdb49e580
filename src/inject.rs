//! What the kernel must be told so that a container has what its plan says.

pub mod cgroup_v1;
pub mod cgroup_v2;
pub mod child;
pub mod live;
pub mod mounts;

use std::os::fd::AsFd;

use crate::cgroup::{Dir, Hierarchy};
use crate::device_rule::DeviceRule;
use crate::error::Result;
use crate::inject::child::Birth;
use crate::types::DeviceNumber;

/// Takes back what [`allow_devices`] did.
#[derive(Debug)]
#[must_use = "dropping it leaves the devices allowed"]
pub enum Undo<'d> {
    /// On cgroup v1.
    V1(cgroup_v1::Undo<'d>),
    /// On cgroup v2.
    V2(cgroup_v2::Undo<'d>),
}

impl Undo<'_> {
    /// As [`cgroup_v1::Undo::undo`] and [`cgroup_v2::Undo::undo`].
    pub fn undo(self) -> Result<()> {
        match self {
            Self::V1(undo) => undo.undo(),
            Self::V2(undo) => undo.undo(),
        }
    }
}

/// Lets the container's cgroup open these devices, beside what the spec's `rules` let it open already. On
/// an error nothing has changed.
pub fn allow_devices<'d>(
    cgroup: &'d Dir,
    devices: &[DeviceNumber],
    rules: &[DeviceRule],
) -> Result<Undo<'d>> {
    match cgroup.hierarchy() {
        Hierarchy::V1Devices => cgroup_v1::allow(cgroup, devices).map(Undo::V1),
        Hierarchy::V2 => cgroup_v2::allow(cgroup, devices, rules).map(Undo::V2),
    }
}

/// Closes the host's other GPUs to a container whose engine gave it no device rules at all (podman does so
/// with uid and gid mappings): an image may bring a node of any of them. Says where the child must stand that
/// reads back what the container may open.
pub fn confine<'d>(cgroup: &'d Dir, undo: &Undo, others: &[DeviceNumber]) -> Result<Birth<'d>> {
    let (ruled, birth) = match undo {
        Undo::V1(undo) => (undo.ruled, Birth::MovesTo(cgroup.as_fd())),
        Undo::V2(undo) => (undo.ruled, Birth::Within(cgroup.as_fd())),
    };
    if !ruled && !others.is_empty() {
        deny_devices(cgroup, others)?;
    }
    // A list of rules on v1 has been read back as it is, and no cgroup above can allow less.
    Ok(if ruled && cgroup.hierarchy() == Hierarchy::V1Devices { Birth::Beside } else { birth })
}

/// Closes these devices to the cgroup; what is open already stays open.
pub fn deny_devices(cgroup: &Dir, devices: &[DeviceNumber]) -> Result<()> {
    match cgroup.hierarchy() {
        Hierarchy::V1Devices => cgroup_v1::deny(cgroup, devices),
        Hierarchy::V2 => cgroup_v2::deny(cgroup, devices),
    }
}
