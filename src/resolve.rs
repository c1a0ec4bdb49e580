//! The virtual configuration of a container replaced by the physical GPUs' real one (rows A5 and A6):
//! a lease becomes a plan, everything that goes into the container. Pure; [`crate::inject`] applies it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::driver::{DriverFile, Kind};
use crate::error::{Error, Exit, Result};
use crate::gpu::{DrmNode, Gpu, Inventory, Majors};
use crate::pool::Lease;
use crate::types::{ContainerId, DeviceNumber, GpuUuid, PciAddress, VgpuId};

/// Everything that goes into one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The nodes it gets in `/dev`, each under the name that it has below the driver root's `dev/`.
    pub nodes: Vec<Node>,
    /// Those of the host's other GPUs, which must stay closed to it.
    pub others: Vec<Node>,
    /// The GPUs that its `/proc/driver/nvidia` tells of.
    pub gpus: Vec<PciAddress>,
    /// The driver's files that it gets below `/usr/local/nvidia`.
    pub files: Vec<File>,
    /// The sockets of the driver's daemons that it gets.
    pub sockets: Vec<Socket>,
    /// What `/dev/vgpu/lease.json` says.
    pub lease_json: String,
}

/// A device node of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name in `/dev`: `nvidia0`, `dri/card1`.
    pub name: String,
    /// Its number; a node on the host that has another one is not the driver's.
    pub number: DeviceNumber,
    /// Left out where the host does not have it.
    pub optional: bool,
}

impl Node {
    fn new(name: impl Into<String>, major: u32, minor: u32) -> Self {
        Self { name: name.into(), number: DeviceNumber { major, minor }, optional: false }
    }

    fn of_gpu(majors: &Majors, minor: u32) -> Self {
        Self::new(format!("nvidia{minor}"), majors.nvidia, minor)
    }

    fn of_graphics(drm: &DrmNode) -> Self {
        Self { name: format!("dri/{}", drm.name), number: drm.number, optional: false }
    }
}

/// What the host's driver has for a container, as far as it asks for that.
#[derive(Clone, Copy, Debug)]
pub struct Driver<'a> {
    /// Its major numbers.
    pub majors: &'a Majors,
    /// Its files that were found.
    pub files: &'a [DriverFile],
    /// The graphics nodes of all GPUs; none where the container asks for no graphics.
    pub drm: &'a [DrmNode],
    /// Does the container ask for a display?
    pub display: bool,
}

/// A file of the driver below `/usr/local/nvidia`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it is on the host, relative to the driver's root: which of the found files it is.
    pub source: String,
    /// The directory it goes into.
    pub dir: Dir,
    /// Its name there.
    pub name: String,
    /// More names for it in the same directory.
    pub links: Vec<String>,
    /// Where programs look for it alone, relative to the container's root: a link there leads to it.
    pub link_at: Option<String>,
}

/// A socket of one of the driver's daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Where it is on the host, relative to the driver's root: which of the found files it is.
    pub source: String,
    /// Where programs look for it, relative to the container's root.
    pub path: String,
}

/// The directories of `/usr/local/nvidia`. `lib` is a link to `lib64` there: images have either in
/// LD_LIBRARY_PATH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dir {
    /// `bin`
    Bin,
    /// `lib64`
    Lib64,
    /// `lib32`
    Lib32,
    /// `share`
    Share,
}

impl Dir {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bin, Self::Lib64, Self::Lib32, Self::Share];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bin => "bin",
            Self::Lib64 => "lib64",
            Self::Lib32 => "lib32",
            Self::Share => "share",
        }
    }

    /// Where files of a kind go; sockets are not there.
    fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Library => Some(Self::Lib64),
            Kind::Library32 => Some(Self::Lib32),
            Kind::Binary => Some(Self::Bin),
            Kind::Config => Some(Self::Share),
            Kind::Socket => None,
        }
    }
}

/// What `/dev/vgpu/lease.json` holds: the virtual beside the real.
#[derive(Serialize)]
struct LeaseJson<'a> {
    version: u32,
    container: &'a ContainerId,
    since: String,
    vgpus: Vec<LeasedJson<'a>>,
}

#[derive(Serialize)]
struct LeasedJson<'a> {
    id: &'a VgpuId,
    r#type: &'a str,
    memory: u64,
    compute: u32,
    uuid: &'a GpuUuid,
    device: String,
}

/// Looks up what is real behind a lease, and gives each of the driver's files that were found its place. (What
/// is said about a file is looked at, not the file.) [`Exit::Gpu`] for a GPU that is not in the inventory, a
/// driver whose unified memory module, which every CUDA program needs, is not loaded, or two files of one name.
pub fn plan(lease: &Lease, inventory: &Inventory, driver: &Driver) -> Result<Plan> {
    let gpu_of = |uuid: &GpuUuid| {
        let gone =
            || Error::new(Exit::Gpu, format!("GPU {uuid} is not on this host any more; see `vgpu status`"));
        inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid).ok_or_else(gone)
    };
    let mut gpus: Vec<&Gpu> = Vec::new();
    let mut vgpus = Vec::new();
    for held in &lease.vgpus {
        let gpu = gpu_of(&held.id.gpu)?;
        gpus.push(gpu);
        vgpus.push(LeasedJson {
            id: &held.id,
            r#type: held.id.kind.as_str(),
            memory: held.memory.0,
            compute: held.compute.get(),
            uuid: &held.id.gpu,
            device: format!("/dev/nvidia{}", gpu.minor),
        });
    }
    gpus.sort_unstable_by_key(|gpu| gpu.minor);
    gpus.dedup();
    let json = LeaseJson { version: 1, container: &lease.container, since: lease.since.to_string(), vgpus };
    let mut lease_json = serde_json::to_string_pretty(&json)
        .map_err(|e| Error::new(Exit::Io, format!("cannot write lease.json: {e}")))?;
    lease_json.push('\n');

    let is_leased = |pci: &PciAddress| gpus.iter().any(|gpu| gpu.pci == *pci);
    let (drm, other_drm): (Vec<&DrmNode>, Vec<&DrmNode>) =
        driver.drm.iter().partition(|node| is_leased(&node.gpu));
    let mut nodes = control_nodes(driver)?;
    nodes.extend(gpus.iter().map(|gpu| Node::of_gpu(driver.majors, gpu.minor)));
    nodes.extend(drm.into_iter().map(Node::of_graphics));
    let others = inventory.gpus.iter().filter(|gpu| !is_leased(&gpu.pci));
    let others = others.map(|gpu| Node::of_gpu(driver.majors, gpu.minor));
    Ok(Plan {
        nodes,
        others: others.chain(other_drm.into_iter().map(Node::of_graphics)).collect(),
        gpus: gpus.iter().map(|gpu| gpu.pci).collect(),
        files: files(driver.files)?,
        sockets: sockets(driver.files),
        lease_json,
    })
}

/// The nodes that every container with a lease has, whatever its GPUs are.
fn control_nodes(driver: &Driver) -> Result<Vec<Node>> {
    let uvm = driver.majors.uvm.ok_or_else(|| {
        let message = "the kernel module nvidia-uvm is not loaded; run `nvidia-modprobe -u -c=0` on the host";
        Error::new(Exit::Gpu, message)
    })?;
    let optional = |node| Node { optional: true, ..node };
    let mut nodes = vec![
        Node::new("nvidiactl", driver.majors.nvidia, 255),
        Node::new("nvidia-uvm", uvm, 0),
        optional(Node::new("nvidia-uvm-tools", uvm, 1)),
    ];
    if driver.display {
        nodes.push(optional(Node::new("nvidia-modeset", driver.majors.nvidia, 254)));
    }
    Ok(nodes)
}

/// Gives each file its place, and lets no two have the same one.
fn files(found: &[DriverFile]) -> Result<Vec<File>> {
    let mut taken = BTreeSet::new();
    let mut files = Vec::new();
    for file in found {
        let (Some(dir), Some((name, links))) = (Dir::of(file.kind), file.names.split_first()) else {
            continue;
        };
        if let Some(twice) = file.names.iter().find(|name| !taken.insert((dir, name.as_str()))) {
            let message = format!(
                "two of the driver's files have the name {twice}, one of them {}; reinstall the driver",
                file.path
            );
            return Err(Error::new(Exit::Gpu, message));
        }
        let (source, name, links) = (file.path.clone(), name.clone(), links.to_vec());
        files.push(File { source, dir, name, links, link_at: file.link_at.clone() });
    }
    Ok(files)
}

fn sockets(found: &[DriverFile]) -> Vec<Socket> {
    let sockets = found.iter().filter(|file| file.kind == Kind::Socket);
    let paths = sockets.flat_map(|file| file.names.iter().map(move |path| (&file.path, path)));
    paths.map(|(source, path)| Socket { source: source.clone(), path: path.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: Kind, path: &str, names: &[&str]) -> DriverFile {
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        DriverFile { fd, kind, names, path: path.to_owned(), link_at: None }
    }

    #[test]
    fn each_kind_of_file_has_its_place() {
        let files = files(&[
            found(Kind::Library, "a/libx.so.1.2", &["libx.so.1.2", "libx.so.1", "libx.so"]),
            found(Kind::Library32, "b/libx.so.1.2", &["libx.so.1.2", "libx.so.1"]),
            found(Kind::Binary, "usr/bin/x", &["x"]),
            found(Kind::Socket, "run/x/socket", &["run/x/socket"]),
            found(Kind::Config, "etc/x/y.json", &["y.json"]),
        ]);
        let shown = |file: &File| {
            format!("{} {}/{} {}", file.source, file.dir.as_str(), file.name, file.links.join(" "))
        };
        let shown: Vec<_> = files.unwrap().iter().map(shown).collect();
        let expected = [
            "a/libx.so.1.2 lib64/libx.so.1.2 libx.so.1 libx.so",
            "b/libx.so.1.2 lib32/libx.so.1.2 libx.so.1",
            "usr/bin/x bin/x ",
            "etc/x/y.json share/y.json ",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn no_two_files_have_one_name() {
        let one = || found(Kind::Library, "a/libx.so.1.2", &["libx.so.1.2", "libz.so.1"]);
        let other = found(Kind::Library, "a/liby.so.1.2", &["liby.so.1.2", "libz.so.1"]);
        let error = files(&[one(), other]).unwrap_err();
        assert_eq!(error.exit, Exit::Gpu);
        let line = "two of the driver's files have the name libz.so.1, one of them a/liby.so.1.2; reinstall the driver";
        assert_eq!(error.to_string(), line);
        assert!(files(&[one(), found(Kind::Binary, "bin/z", &["libz.so.1"])]).is_ok());
    }
}
