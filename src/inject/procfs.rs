//! `/proc/driver/nvidia` in a container: a tmpfs that tells of the driver and of the leased GPUs alone, over the
//! kernel's own, which tells of every GPU of the host.
//!
//! Part of [`live`](super::live), and by its rules. Every procfs in the container is covered, where the mount table says
//! that it is: a name that somebody takes away for a moment does not count as none. The files are copies: nothing in them changes while the driver is loaded, but for a GPU's `power`, which is
//! left out, as reading it can wake the GPU.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use super::detached::{self, move_onto};
use super::place::{Place, lost, mount_id};
use crate::container::RootIds;
use crate::error::{Error, Exit, OrExit, Result};
use crate::gpu::DriverRoot;
use crate::mounts::ProcPlace;
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

    /// Covers the directory wherever it appears.
    pub fn attach(&self, container: &Place) -> Result<()> {
        let mut covered: Vec<PathBuf> = Vec::new();
        for place in places(container) {
            // Of mounts on each other only the last one shows.
            if covered.contains(&place.path) {
                continue;
            }
            let Some(there) = open(&place, container)? else { continue };
            // Nothing is made here, so it is only propagation that could take ours to the host.
            if container.mounts.is_shared(mount_id(&there)?) {
                let message = format!(
                    "the container's {} is on a mount with shared propagation, so that covering it would reach the host; leave that out",
                    shown(&place.path)
                );
                return Err(Error::new(Exit::Request, message));
            }
            let cannot = || format!("cannot cover the container's {}", shown(&place.path));
            if covered.is_empty() {
                fill(&self.tmpfs, self.told)
                    .or_exit(Exit::Io, || format!("cannot fill the tmpfs for /{AT}"))?;
                detached::seal(&self.tmpfs, &format!("/{AT}"))?;
                move_onto(&self.tmpfs, &there).or_exit(Exit::Io, cannot)?;
            } else {
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_EMPTY_PATH;
                open_tree(&self.tmpfs, c"", flags)
                    .and_then(|clone| move_onto(&clone, &there))
                    .or_exit(Exit::Io, cannot)?;
            }
            covered.push(place.path);
        }
        Ok(())
    }
}

/// Looks again: nowhere does the kernel's own directory show.
pub(super) fn read_back(container: &Place) -> Result<()> {
    for place in places(container) {
        let Some(there) = open_covered(&place, container)? else { continue };
        let mount = mount_id(&there)?;
        // What covers it was mounted just now, or it is the tmpfs of an earlier call.
        let of_earlier =
            mount != container.root_mount && container.mounts.may_hold(mount, container.root_mount).is_ok();
        if container.mounts.knows(mount) && !of_earlier {
            return Err(lost(&text(&place.path)));
        }
    }
    Ok(())
}

/// Where the directory may be: on each procfs, and at its usual place, whatever is mounted there.
fn places(container: &Place) -> Vec<ProcPlace> {
    let mut places = container.mounts.of_proc(&format!("/{}", &AT["proc/".len()..]), container.root_mount);
    if !places.iter().any(|place| place.path == Path::new(AT)) {
        let mount = container.root_mount;
        places.push(ProcPlace { mount, at: PathBuf::new(), path: AT.into() });
    }
    places
}

/// The directory at a place; none where the kernel has no driver.
fn open(place: &ProcPlace, container: &Place) -> Result<Option<OwnedFd>> {
    let is_there = |fd: &OwnedFd| Ok(container.mounts.is_on(mount_id(fd)?, place.mount));
    let lost = || lost(&text(&place.path));
    match open_covered(place, container)? {
        Some(there) => {
            if is_there(&there)? {
                Ok(Some(there))
            } else {
                Err(lost())
            }
        }
        None => {
            let at = container.open(&text(&place.at), OFlags::PATH).map_err(|_| lost())?;
            if is_there(&at)? { Ok(None) } else { Err(lost()) }
        }
    }
}

fn open_covered(place: &ProcPlace, container: &Place) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    match container.open(&text(&place.path), flags) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e @ Errno::LOOP) => {
            Err(e).or_exit(Exit::Request, || format!("cannot open the container's {}", shown(&place.path)))
        }
        there => there
            .map(Some)
            .or_exit(Exit::Io, || format!("cannot open the container's {}", shown(&place.path))),
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

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn shown(path: &Path) -> String {
    super::place::shown(&text(path))
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
