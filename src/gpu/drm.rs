//! The nodes of a GPU in `/dev/dri`, as sysfs tells them: `card<N>` for displays, `renderD<N>` for rendering. Reads
//! below the driver's root.

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::DriverRoot;
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::types::{DeviceNumber, PciAddress};

/// The major of all nodes of graphics: fixed, Linux `devices.txt`.
pub const DRM_MAJOR: u32 = 226;

/// The module that makes them; `driver_root/sys/module/` has it while it is loaded.
const MODULE: &str = "sys/module/nvidia_drm";

/// A node in `/dev/dri`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrmNode {
    /// `card0`, `renderD128`. Neither the device minor nor any index.
    pub name: String,
    /// Its number.
    pub number: DeviceNumber,
}

/// Is the module loaded that gives GPUs graphics?
///
/// # Errors
/// [`Exit::Io`] where that cannot be seen.
pub(super) fn is_loaded(root: &DriverRoot) -> Result<bool> {
    match root.open_below(MODULE, OFlags::PATH) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        opened => opened.map(|_| true).or_exit(Exit::Io, || format!("cannot open {}", root.shown(MODULE))),
    }
}

/// The nodes of a GPU; none while it has no graphics.
///
/// # Errors
/// [`Exit::Io`] where sysfs cannot be read, [`Exit::Gpu`] where it cannot be understood.
pub(super) fn nodes(root: &DriverRoot, gpu: PciAddress) -> Result<Vec<DrmNode>> {
    let mut nodes = Vec::new();
    let dir = format!("sys/bus/pci/devices/{gpu}/drm");
    let names = root.names(&dir).or_exit(Exit::Io, || format!("cannot list {}", root.shown(&dir)))?;
    for name in names.into_iter().filter(|name| is_node(name)) {
        let path = format!("{dir}/{name}/dev");
        let number = match root.read(&path) {
            // The module has been unloaded meanwhile.
            Err(Errno::NOENT | Errno::NODEV) => continue,
            text => text.or_exit(Exit::Io, || format!("cannot read {}", root.shown(&path)))?,
        };
        let odd = || Error::new(Exit::Gpu, format!("{} says {}", root.shown(&path), quoted(&number)));
        let number = parse(&number).ok_or_else(odd)?;
        nodes.push(DrmNode { name, number });
    }
    Ok(nodes)
}

/// Beside them are `controlD<N>` on old kernels, which nobody uses.
fn is_node(name: &str) -> bool {
    let number = name.strip_prefix("card").or_else(|| name.strip_prefix("renderD"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `226:128`
fn parse(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.trim_end().split_once(':')?;
    let number = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
    (number.major == DRM_MAJOR).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn found(files: &[(&str, &str)]) -> Result<Vec<DrmNode>> {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join("sys/bus/pci/devices").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = DriverRoot::open(Path::new(dir.path())).unwrap();
        nodes(&root, "0000:3b:00.0".parse().unwrap())
    }

    #[test]
    fn nodes_of_the_address() {
        let found = found(&[
            ("0000:3b:00.0/drm/card1/dev", "226:1\n"),
            ("0000:3b:00.0/drm/card1/card1-DP-1/status", "connected\n"),
            ("0000:3b:00.0/drm/renderD129/dev", "226:129\n"),
            ("0000:3b:00.0/drm/controlD65/dev", "226:65\n"),
            ("0000:00:02.0/drm/card0/dev", "226:0\n"),
        ]);
        let shown = found.unwrap().iter().map(|n| format!("{} {}", n.name, n.number)).collect::<Vec<_>>();
        assert_eq!(shown, ["card1 226:1", "renderD129 226:129"]);
    }

    #[test]
    fn without_nvidia_drm_there_are_none() {
        assert_eq!(found(&[]), Ok(vec![]));
    }

    #[test]
    fn what_cannot_be_understood_is_an_error() {
        for text in ["", "226", "1:3\n", "226:x\n"] {
            assert_eq!(found(&[("0000:3b:00.0/drm/card1/dev", text)]).unwrap_err().exit, Exit::Gpu, "{text}");
        }
    }
}
