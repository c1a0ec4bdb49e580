//! The virtual configuration of a container replaced by the physical GPUs' real one (rows A5 and A6):
//! a lease becomes a plan, everything that goes into the container. Pure; [`crate::inject`] applies it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::config::Isolation;
use crate::driver::{DriverFile, Kind};
use crate::error::{Error, Exit, OrExit, Result};
use crate::gpu::{DrmNode, Gpu, Inventory, Majors, MigDevice};
use crate::pool::{Held, Lease};
use crate::types::{
    ContainerId, DeviceNumber, GpuUuid, MigInstance, MigProfile, MigUuid, PciAddress, Percent, VgpuId,
};

/// Where a container has the driver's files, or the client's. CUDA images have it in PATH and LD_LIBRARY_PATH.
pub const PLACE: &str = "/usr/local/nvidia";

/// Everything that goes into one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The nodes it gets in `/dev`, each under the name that it has below the driver root's `dev/`.
    pub nodes: Vec<Node>,
    /// The nodes of the host's other GPUs and MIG devices, which must stay closed to it.
    pub others: Vec<Node>,
    /// The GPUs that its `/proc/driver/nvidia` tells of.
    pub gpus: Vec<PciAddress>,
    /// The MIG devices on them that it tells of.
    pub mig: Vec<MigAccess>,
    /// The driver's files that it gets below `/usr/local/nvidia`.
    pub files: Vec<File>,
    /// The sockets of the driver's daemons that it gets.
    pub sockets: Vec<Socket>,
    /// Does it get the socket of a worker, and no GPU?
    pub remote: bool,
    /// What `/dev/vgpu/lease.json` says.
    pub lease_json: String,
}

/// A MIG device that a container may use, as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigAccess {
    /// Its GPU's device minor.
    pub gpu: u32,
    /// Where it is on that GPU.
    pub instance: MigInstance,
}

impl MigAccess {
    /// Its capabilities: of the GPU instance, `gpu0/gi1`, and of the compute instance, `gpu0/gi1/ci0`.
    fn capabilities(&self) -> [String; 2] {
        let Self { gpu, instance: MigInstance { gi, ci } } = self;
        [format!("gpu{gpu}/gi{gi}"), format!("gpu{gpu}/gi{gi}/ci{ci}")]
    }

    /// The files of these, below `/proc/driver/nvidia`: programs look there for which nodes to open.
    pub fn files(&self) -> [String; 2] {
        let Self { gpu, instance: MigInstance { gi, ci } } = self;
        let at = format!("capabilities/gpu{gpu}/mig/gi{gi}");
        [format!("{at}/access"), format!("{at}/ci{ci}/access")]
    }
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

    fn of_capability(major: u32, minor: u32) -> Self {
        Self::new(format!("nvidia-caps/nvidia-cap{minor}"), major, minor)
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
    /// Does the container ask for graphics?
    pub graphics: bool,
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
    /// Where it is looked for, relative to the container's root: a link there leads to it.
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
    compute: Option<u32>,
    uuid: &'a GpuUuid,
    /// None where a worker has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(skip_serializing_if = "Isolation::is_none")]
    isolation: Isolation,
    #[serde(skip_serializing_if = "Option::is_none")]
    mig: Option<MigJson<'a>>,
}

#[derive(Serialize)]
struct MigJson<'a> {
    uuid: &'a MigUuid,
    profile: &'a MigProfile,
}

/// What is behind one vGPU of a lease.
struct Real<'a> {
    gpu: &'a Gpu,
    mig: Option<&'a MigDevice>,
}

impl<'a> Real<'a> {
    fn behind(held: &Held, inventory: &'a Inventory) -> Result<Self> {
        let gone = |what: String| {
            Error::new(Exit::Gpu, format!("{what} is not on this host any more; see `vgpu status`"))
        };
        let uuid = &held.id.gpu;
        let gpu = inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid);
        let gpu = gpu.ok_or_else(|| gone(format!("GPU {uuid}")))?;
        let device = |mig| {
            let device = inventory.mig_device(uuid, mig);
            device.ok_or_else(|| gone(format!("MIG device {mig} of GPU {uuid}")))
        };
        Ok(Self { gpu, mig: held.mig.as_ref().map(device).transpose()? })
    }

    fn shown(&self, held: &'a Held) -> LeasedJson<'a> {
        LeasedJson {
            id: &held.id,
            r#type: held.id.kind.as_str(),
            memory: held.memory.0,
            compute: held.compute.map(Percent::get),
            uuid: &held.id.gpu,
            device: (!held.isolation.is_remote()).then(|| format!("/dev/nvidia{}", self.gpu.minor)),
            isolation: held.isolation,
            mig: self.mig.map(|device| MigJson { uuid: &device.uuid, profile: &device.profile }),
        }
    }

    fn access(&self) -> Option<MigAccess> {
        self.mig.map(|device| MigAccess { gpu: self.gpu.minor, instance: device.instance })
    }
}

/// Looks up what is real behind a lease, and gives each of the driver's files that were found its place. (What
/// is said about a file is looked at, not the file.) [`Exit::Gpu`] for a GPU or MIG device that is not in the
/// inventory, a driver whose unified memory module, which every CUDA program needs, is not loaded, or two files of
/// one name.
pub fn plan(lease: &Lease, inventory: &Inventory, driver: &Driver) -> Result<Plan> {
    let all = lease.vgpus.iter().map(|held| Real::behind(held, inventory)).collect::<Result<Vec<_>>>()?;
    // Whoever has a worker has nothing of the GPU itself.
    let remote = lease.remote().is_some();
    let real = if remote { &[] } else { all.as_slice() };
    if !remote && driver.majors.uvm.is_none() {
        let message = "the kernel module nvidia-uvm is not loaded; run `nvidia-modprobe -u -c=0` on the host";
        return Err(Error::new(Exit::Gpu, message));
    }
    let mig: Vec<MigAccess> = real.iter().filter_map(Real::access).collect();
    let mut gpus: Vec<&Gpu> = real.iter().map(|real| real.gpu).collect();
    gpus.sort_unstable_by_key(|gpu| gpu.minor);
    gpus.dedup();

    let is_leased = |pci: &PciAddress| gpus.iter().any(|gpu| gpu.pci == *pci);
    // The nodes for graphics are the whole GPU's: whoever has a MIG device of it has none of them.
    let is_shared = |gpu: &Gpu| real.iter().any(|real| real.gpu.pci == gpu.pci && real.mig.is_none());
    let (drm, other_drm): (Vec<&Gpu>, Vec<&Gpu>) =
        inventory.gpus.iter().partition(|gpu| driver.graphics && is_shared(gpu));
    let graphics = |gpus: Vec<&'_ Gpu>| -> Vec<Node> {
        gpus.into_iter().flat_map(|gpu| gpu.drm.iter().map(Node::of_graphics)).collect()
    };
    let (capabilities, other_capabilities) = capabilities(&mig, inventory, driver.majors)?;
    let (mut nodes, other_control) = match (control_nodes(driver), remote) {
        (control, false) => (control, Vec::new()),
        (control, true) => (Vec::new(), control),
    };
    nodes.extend(gpus.iter().map(|gpu| Node::of_gpu(driver.majors, gpu.minor)));
    nodes.extend(graphics(drm));
    nodes.extend(capabilities);
    let others = inventory.gpus.iter().filter(|gpu| !is_leased(&gpu.pci));
    let others = others.map(|gpu| Node::of_gpu(driver.majors, gpu.minor));
    let others = others.chain(graphics(other_drm)).chain(other_control);
    Ok(Plan {
        nodes,
        others: others.chain(other_capabilities).collect(),
        gpus: gpus.iter().map(|gpu| gpu.pci).collect(),
        mig,
        files: files(driver.files)?,
        sockets: sockets(driver.files),
        remote,
        lease_json: lease_json(lease, &all)?,
    })
}

/// The nodes of the capabilities that these MIG devices need, and those of all others that there are.
fn capabilities(mig: &[MigAccess], inventory: &Inventory, majors: &Majors) -> Result<(Vec<Node>, Vec<Node>)> {
    let minors = &inventory.capabilities.minors;
    let needed: BTreeSet<String> = mig.iter().flat_map(MigAccess::capabilities).collect();
    let unknown = needed.iter().find(|name| majors.caps.is_none() || !minors.contains_key(*name));
    if let Some(name) = unknown {
        let message = format!(
            "the driver has no node for capability {name}: its proc/devices or proc/driver/nvidia-caps/mig-minors does \
             not list it; see `vgpu discover`"
        );
        return Err(Error::new(Exit::Gpu, message));
    }
    let Some(major) = majors.caps else { return Ok((Vec::new(), Vec::new())) };
    let node = |(_, minor): (&String, &u32)| Node::of_capability(major, *minor);
    let mut minors: Vec<_> = minors.iter().collect();
    // Their names would put cap12 before cap2.
    minors.sort_unstable_by_key(|(_, minor)| **minor);
    let (leased, others): (Vec<_>, Vec<_>) = minors.into_iter().partition(|(name, _)| needed.contains(*name));
    Ok((leased.into_iter().map(node).collect(), others.into_iter().map(node).collect()))
}

fn lease_json(lease: &Lease, real: &[Real<'_>]) -> Result<String> {
    let vgpus = lease.vgpus.iter().zip(real).map(|(held, real)| real.shown(held)).collect();
    let json = LeaseJson { version: 1, container: &lease.container, since: lease.since.to_string(), vgpus };
    let text = serde_json::to_string_pretty(&json);
    Ok(text.or_exit(Exit::Io, || "cannot write lease.json")? + "\n")
}

/// The nodes that every container with GPUs has, whatever these are.
fn control_nodes(driver: &Driver) -> Vec<Node> {
    let optional = |node| Node { optional: true, ..node };
    let mut nodes = vec![Node::new("nvidiactl", driver.majors.nvidia, 255)];
    if let Some(uvm) = driver.majors.uvm {
        nodes.push(Node::new("nvidia-uvm", uvm, 0));
        nodes.push(optional(Node::new("nvidia-uvm-tools", uvm, 1)));
    }
    if driver.display {
        nodes.push(optional(Node::new("nvidia-modeset", driver.majors.nvidia, 254)));
    }
    nodes
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
    use crate::gpu::Capabilities;
    use crate::types::Bytes;

    const MAJORS: Majors = Majors { nvidia: 195, uvm: Some(510), caps: Some(235) };

    /// Two GPUs in MIG mode, each with two compute instances on one GPU instance and one on another, and what is
    /// planned for the vGPUs of these ids.
    fn planned(ids: &[(&str, &str)], majors: &Majors) -> Result<Plan> {
        let place =
            |text: &str| text.split_once('.').map(|(gi, ci)| (gi.parse().unwrap(), ci.parse().unwrap()));
        let gpu = |i: u32| format!("GPU-0000000{i}-0000-0000-0000-000000000000");
        let uuid = |i: u32, (gi, ci): (u32, u32)| format!("MIG-0000000{i}-{gi:04}-{ci:04}-0000-000000000000");
        let device = |i, (gi, ci)| MigDevice {
            uuid: uuid(i, (gi, ci)).parse().unwrap(),
            instance: MigInstance { gi, ci },
            profile: "1c.2g.10gb".parse().unwrap(),
            memory: Bytes(10 << 30),
        };
        let mig = |i| [(1, 0), (1, 1), (2, 0)].map(|place| device(i, place)).into();
        let drm = |minor| {
            vec![DrmNode { name: format!("card{minor}"), number: DeviceNumber { major: 226, minor } }]
        };
        let gpus =
            [0, 1].map(|i| Gpu { mig: Some(mig(i)), drm: drm(i), ..crate::config::tests::gpu(i, "x", None) });
        let instances = [("gi1", 0), ("gi1/ci0", 1), ("gi1/ci1", 2), ("gi2", 3), ("gi2/ci0", 4)];
        let of_gpu = |i: u32| instances.map(|(name, n)| (format!("gpu{i}/{name}"), 10 * (i + 1) + n));
        let minors = [0, 1].into_iter().flat_map(of_gpu).chain([("config".into(), 1), ("monitor".into(), 2)]);
        let capabilities = Capabilities { minors: minors.collect(), last: 99 };
        let inventory = Inventory { driver: String::new(), gpus: gpus.into(), capabilities };
        let held = ids.iter().map(|(i, at)| {
            let i = i.parse().unwrap();
            Held {
                id: format!("{}/m/{at}", gpu(i)).parse().unwrap(),
                memory: Bytes(10 << 30),
                compute: None,
                isolation: Isolation::None,
                mig: Some(uuid(i, place(at).unwrap()).parse().unwrap()),
            }
        });
        let lease = r#"{"container":"c","bundle":"/b","cgroup":{"hierarchy":"v2","path":"/c","inode":7},
            "pid":1,"start_time":2,"since":"2026-01-01T00:00:00Z","vgpus":[]}"#;
        let lease = Lease { vgpus: held.collect(), ..serde_json::from_str(lease).unwrap() };
        plan(&lease, &inventory, &Driver { majors, files: &[], graphics: true, display: false })
    }

    fn names(nodes: &[Node]) -> Vec<String> {
        let shown =
            |node: &Node| format!("{} {}", node.name.trim_start_matches("nvidia-caps/nvidia-"), node.number);
        nodes.iter().map(shown).collect()
    }

    #[test]
    fn mig_devices_have_the_nodes_of_their_capabilities_beside_their_gpus() {
        let plan = planned(&[("1", "1.0"), ("1", "1.1")], &MAJORS).unwrap();
        let nodes = ["nvidia1 195:1", "cap20 235:20", "cap21 235:21", "cap22 235:22"];
        assert_eq!(names(&plan.nodes)[3..], nodes);
        let others = ["nvidia0 195:0", "dri/card0 226:0", "dri/card1 226:1"].map(str::to_owned);
        let closed = [1, 2, 10, 11, 12, 13, 14, 23, 24].map(|minor| format!("cap{minor} 235:{minor}"));
        assert_eq!(names(&plan.others), [&others[..], &closed].concat());
        let at = |ci| MigAccess { gpu: 1, instance: MigInstance { gi: 1, ci } };
        assert_eq!(plan.mig, [at(0), at(1)]);
        assert_eq!(
            at(1).files(),
            ["capabilities/gpu1/mig/gi1/access", "capabilities/gpu1/mig/gi1/ci1/access"]
        );
    }

    #[test]
    fn a_mig_device_that_is_gone_or_has_no_nodes() {
        let error = planned(&[("1", "2.1")], &MAJORS).unwrap_err();
        assert_eq!(error.exit, Exit::Gpu);
        let gone = "MIG device MIG-00000001-0002-0001-0000-000000000000 of GPU GPU-00000001-0000-0000-0000-000000000000 is not on this host any more; see `vgpu status`";
        assert_eq!(error.to_string(), gone);
        let error = planned(&[("1", "2.0")], &Majors { caps: None, ..MAJORS }).unwrap_err();
        assert!(error.to_string().starts_with("the driver has no node for capability gpu1/gi2:"), "{error}");
    }

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
