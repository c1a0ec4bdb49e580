//! What the kernel must be told so that a container has what its plan says.

mod cache;
pub mod cgroup_v1;
pub mod cgroup_v2;
pub mod child;
mod compat;
mod detached;
mod dev;
mod etc;
mod files;
pub mod live;
mod musl;
mod place;
mod preload;
mod procfs;
mod sockets;

use crate::access;
use crate::cgroup::{Dir, Hierarchy, OwnCgroups};
use crate::device_rule::DeviceRule;
use crate::error::Result;
use crate::inject::child::Birth;
use crate::types::DeviceNumber;

/// Takes back what [`allow_devices`] did.
#[derive(Debug)]
#[must_use = "dropping it leaves the devices allowed"]
pub struct Undo<'d>(Vec<UndoOne<'d>>);

#[derive(Debug)]
enum UndoOne<'d> {
    V1(cgroup_v1::Undo<'d>),
    V2(cgroup_v2::Undo<'d>),
}

impl Undo<'_> {
    /// Takes back all of it, the last first. Goes on after an error, and gives the first.
    pub fn undo(self) -> Result<()> {
        let undone = self.0.into_iter().rev().map(|undo| match undo {
            UndoOne::V1(undo) => undo.undo(),
            UndoOne::V2(undo) => undo.undo(),
        });
        undone.fold(Ok(()), Result::and)
    }

    /// Does any rule at all confine the container?
    fn ruled(&self) -> bool {
        self.0.iter().any(|undo| match undo {
            UndoOne::V1(undo) => undo.ruled,
            UndoOne::V2(undo) => undo.ruled,
        })
    }
}

/// Lets the container's cgroups open these devices, beside what the spec's `rules` let them open already. On
/// an error nothing has changed.
pub fn allow_devices<'d>(
    cgroups: &'d OwnCgroups,
    devices: &[DeviceNumber],
    rules: &[DeviceRule],
) -> Result<Undo<'d>> {
    let mut undo = Undo(Vec::new());
    // The outermost first: on v1 nothing is allowed that is not allowed above.
    for cgroup in cgroups.all() {
        let allowed = match cgroup.hierarchy() {
            Hierarchy::V1Devices => cgroup_v1::allow(cgroup, devices).map(UndoOne::V1),
            Hierarchy::V2 => cgroup_v2::allow(cgroup, devices, rules).map(UndoOne::V2),
        };
        match allowed {
            Ok(one) => undo.0.push(one),
            Err(e) => return Err(e.also(undo.undo())),
        }
    }
    Ok(undo)
}

/// Sees to it that the host's other GPUs are closed. A container whose engine gave it no device rules at all
/// (podman does so with uid and gid mappings) could open any of them by a node of its image's, so they are
/// denied; with rules, one that another hook has opened is refused, on v1 here, on v2 by the child that reads
/// back what the container may open. Says where that child must stand.
pub fn confine<'d>(cgroups: &'d OwnCgroups, undo: &Undo, others: &[DeviceNumber]) -> Result<Birth<'d>> {
    let ruled = undo.ruled();
    if !ruled && !others.is_empty() {
        deny_devices(cgroups.outermost(), others)?;
    }
    let innermost = cgroups.innermost();
    match innermost.hierarchy() {
        Hierarchy::V2 => Ok(Birth::Within(cgroups)),
        Hierarchy::V1Devices if !ruled => Ok(Birth::MovesTo(cgroups)),
        // A list of what is allowed can be read as it is, and no cgroup above can allow less.
        Hierarchy::V1Devices => match cgroup_v1::open_one(innermost, others)? {
            None => Ok(Birth::Beside),
            Some(number) => Err(access::refusal(&format!("its device cgroup allows {number}"))),
        },
    }
}

/// Closes these devices to the cgroup; what is open already stays open.
pub fn deny_devices(cgroup: &Dir, devices: &[DeviceNumber]) -> Result<()> {
    match cgroup.hierarchy() {
        Hierarchy::V1Devices => cgroup_v1::deny(cgroup, devices),
        Hierarchy::V2 => cgroup_v2::deny(cgroup, devices),
    }
}
