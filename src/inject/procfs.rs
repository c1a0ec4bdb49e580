//! `/proc/driver/nvidia` in a container: a tmpfs that tells of the driver and of the leased GPUs alone, over the
//! kernel's own, which tells of every GPU of the host.
//!
//! Part of [`live`](super::live), and by its rules. Where the container has no such directory there is nothing to
//! hide. The files are copies: nothing in them changes while the driver is loaded, but for a GPU's `power`, which is
//! left out, as reading it can wake the GPU.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::detached::{self, move_onto};
use super::place::{Place, lost, mount_id};
use crate::container::RootIds;
use crate::error::{Error, Exit, OrExit, Result};
use crate::gpu::DriverRoot;
use crate::resolve::MigAccess;
use crate::types::PciAddress;

/// The directory, below the driver's root and in the container.
const AT: &str = "proc/driver/nvidia";

/// What tells of the driver.
const OF_DRIVER: [&str; 3] = ["version", "registry", PARAMS];

/// The module's parameters, and the one that makes the driver's tools create missing nodes for every GPU.
const PARAMS: &str = "params";
const MAKES_NODES: &str = "ModifyDeviceFiles:";

/// What tells of a GPU, in `gpus/<address>`.
const OF_GPU: [&str; 2] = ["information", "registry"];

/// A file of the tmpfs: its path in there, and what it says.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    path: String,
    text: String,
}

/// Reads what a container with these GPUs, and these MIG devices on them, may know. A driver does not have every file.
pub(super) fn read(driver: &DriverRoot, gpus: &[PciAddress], mig: &[MigAccess]) -> Result<Vec<Told>> {
    let of_gpus = gpus.iter().flat_map(|pci| OF_GPU.map(|name| format!("gpus/{pci}/{name}")));
    // Two compute instances can be on one GPU instance.
    let of_mig: BTreeSet<String> = mig.iter().flat_map(MigAccess::files).collect();
    let paths = OF_DRIVER.iter().map(|name| (*name).to_owned()).chain(of_gpus).chain(of_mig);
    let read = |path: String| {
        let source = format!("{AT}/{path}");
        match driver.read(&source) {
            Err(Errno::NOENT) => Ok(None),
            text => {
                let text = text.or_exit(Exit::Io, || format!("cannot read {}", driver.shown(&source)))?;
                let text = if path == PARAMS { without_making_nodes(&text) } else { text };
                Ok(Some(Told { path, text }))
            }
        }
    };
    paths.filter_map(|path| read(path).transpose()).collect()
}

/// The driver's tools look there for whether they may create nodes.
fn without_making_nodes(params: &str) -> String {
    let others = params.lines().filter(|line| !line.starts_with(MAKES_NODES));
    others.chain([format!("{MAKES_NODES} 0").as_str()]).map(|line| format!("{line}\n")).collect()
}

/// What covers the container's directory, still mounted nowhere, and empty.
pub(super) struct Detached<'a> {
    told: &'a [Told],
    tmpfs: OwnedFd,
}

impl<'a> Detached<'a> {
    /// Makes the tmpfs.
    pub fn new(told: &'a [Told], ids: RootIds, label: Option<&str>) -> Result<Self> {
        Ok(Self { told, tmpfs: detached::tmpfs(&format!("/{AT}"), ids, label)? })
    }

    /// Covers the directory, and looks again that it is covered.
    pub fn attach(&self, container: &Place) -> Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let cannot = |what| move || format!("cannot {what} the container's /{AT}");
        let there = match container.open(AT, flags) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            there => there.or_exit(Exit::Request, cannot("open"))?,
        };
        // Nothing is made here, so it is only propagation that could take ours to the host.
        if container.mounts.is_shared(mount_id(&there)?) {
            let message = format!(
                "the container's /{AT} is on a mount with shared propagation, so that covering it would reach the host; leave that out"
            );
            return Err(Error::new(Exit::Request, message));
        }
        fill(&self.tmpfs, self.told).or_exit(Exit::Io, || format!("cannot fill the tmpfs for /{AT}"))?;
        detached::seal(&self.tmpfs, &format!("/{AT}"))?;
        move_onto(&self.tmpfs, &there).or_exit(Exit::Io, cannot("cover"))?;
        read_back(&self.tmpfs, container)
    }
}

fn fill(tmpfs: &OwnedFd, told: &[Told]) -> io::Result<()> {
    let mut made: Vec<&str> = Vec::new();
    for Told { path, text } in told {
        for dir in path.match_indices('/').map(|(end, _)| &path[..end]) {
            if !made.contains(&dir) {
                mkdirat(tmpfs, dir, Mode::from_raw_mode(0o755))?;
                made.push(dir);
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(tmpfs, path, flags, Mode::from_raw_mode(0o444))?;
        File::from(file).write_all(text.as_bytes())?;
    }
    Ok(())
}

fn read_back(tmpfs: &OwnedFd, container: &Place) -> Result<()> {
    let there = container.open(AT, OFlags::PATH | OFlags::DIRECTORY);
    if there.is_ok_and(|there| mount_id(&there).ok() == mount_id(tmpfs).ok()) {
        Ok(())
    } else {
        Err(lost(AT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_told_not_to_create_nodes() {
        let params = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n";
        let told = "ResmanDebugLevel: 4294967295\nDeviceFileUID: 0\nModifyDeviceFiles: 0\n";
        assert_eq!(without_making_nodes(params), told);
        assert_eq!(without_making_nodes(""), "ModifyDeviceFiles: 0\n");
    }
}
