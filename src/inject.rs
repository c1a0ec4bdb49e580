//! What the kernel must be told so that a container has what its plan says.

pub mod cgroup_v1;
pub mod cgroup_v2;
mod child;
pub mod live;
pub mod mounts;

use crate::cgroup::{Dir, Hierarchy};
use crate::device_rule::DeviceRule;
use crate::error::Result;
use crate::types::DeviceNumber;

/// What takes opened devices away again.
#[derive(Debug)]
pub struct Undo;
impl Undo {
    /// x
    pub fn undo(self) -> Result<()> {
        todo!()
    }
}
/// x
pub fn allow_devices(cgroup: &Dir, numbers: &[DeviceNumber], rules: &[DeviceRule]) -> Result<Undo> {
    todo!()
}
/// x
pub fn deny_devices(cgroup: &Dir, numbers: &[DeviceNumber]) -> Result<()> {
    todo!()
}
