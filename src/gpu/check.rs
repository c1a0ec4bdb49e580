//! Is a GPU of the inventory still the one that it was? A read of procfs and an fstat per GPU, cheap
//! enough for every container. Reads below the driver's root.

use std::fmt;

use rustix::fs::{FileType, OFlags, fstat, major, minor};
use rustix::io::Errno;

use super::{DriverRoot, Gpu, Inventory, NVIDIA_MAJOR, procfs};
use crate::types::{DeviceNumber, GpuUuid};

/// Why a GPU cannot be given to a container now: text that reads on after "GPU-…: ".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What to do where the inventory is not what the driver says now.
const DISCOVER: &str = "`vgpu discover` reads the host's GPUs anew";

impl Inventory {
    /// Checks every GPU, in the inventory's order.
    pub fn check(&self, root: &DriverRoot) -> Vec<(GpuUuid, Result<(), Unusable>)> {
        self.gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.check(root))).collect()
    }
}

impl Gpu {
    /// Do UUID, minor and node still agree with what the driver says?
    pub fn check(&self, root: &DriverRoot) -> Result<(), Unusable> {
        let now = procfs::information(root, self.pci)
            .map_err(|e| Unusable(e.to_string()))?
            .map_err(|reason| Unusable(format!("at {}: {reason}", self.pci)))?;
        self.agrees(&now)?;
        self.has_node(root)
    }

    /// A UUID that the driver does not know yet agrees: address and minor still name this GPU.
    fn agrees(&self, now: &procfs::Information) -> Result<(), Unusable> {
        if let Some(other) = now.uuid.as_ref().filter(|uuid| **uuid != self.uuid) {
            return Err(Unusable(format!("at {} there is now {other}; {DISCOVER}", self.pci)));
        }
        if now.minor != self.minor {
            let (was, is) = (self.minor, now.minor);
            return Err(Unusable(format!("its minor was {was} and is now {is}; {DISCOVER}")));
        }
        Ok(())
    }

    fn has_node(&self, root: &DriverRoot) -> Result<(), Unusable> {
        let shown = root.shown(self.node());
        let unusable = |reason: String| Unusable(format!("its node {shown} {reason}"));
        let node = match root.open_below(self.node(), OFlags::PATH) {
            Err(Errno::NOENT) => {
                let remedy = format!("`nvidia-modprobe -c={}` on the host makes it", self.minor);
                return Err(unusable(format!("is gone; {remedy}")));
            }
            node => node.map_err(|e| unusable(format!("cannot be opened: {e}")))?,
        };
        let stat = fstat(&node).map_err(|e| unusable(format!("cannot be looked at: {e}")))?;
        let is = DeviceNumber { major: major(stat.st_rdev), minor: minor(stat.st_rdev) };
        let wanted = DeviceNumber { major: NVIDIA_MAJOR, minor: self.minor };
        if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice || is != wanted {
            return Err(unusable(format!("is not the character device {wanted}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::procfs::Information;

    const UUID: &str = "GPU-5a6b7c8d-0000-1111-2222-333344445555";

    #[test]
    fn what_agrees_and_what_does_not() {
        let gpu = Gpu {
            uuid: UUID.parse().unwrap(),
            pci: "0000:3b:00.0".parse().unwrap(),
            minor: 1,
            name: "x".into(),
            memory: None,
            mig: None,
            drm: Vec::new(),
        };
        let now = |uuid: Option<&str>, minor| Information {
            model: "x".into(),
            uuid: uuid.map(|u| u.parse().unwrap()),
            minor,
            excluded: false,
        };
        let reason = |now: Information| gpu.agrees(&now).map_err(|e| e.to_string());
        assert_eq!(reason(now(Some(UUID), 1)), Ok(()));
        assert_eq!(reason(now(None, 1)), Ok(()));
        assert_eq!(reason(now(None, 3)), Err(format!("its minor was 1 and is now 3; {DISCOVER}")));
        let other = "GPU-5a6b7c8d-0000-1111-2222-333344445556";
        assert_eq!(
            reason(now(Some(other), 1)),
            Err(format!("at 0000:3b:00.0 there is now {other}; {DISCOVER}"))
        );
    }
}
