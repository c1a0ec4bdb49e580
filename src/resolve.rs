//! The virtual configuration of a container replaced by the physical GPUs' real one (rows A5 and A6):
//! a lease becomes a plan, everything that goes into the container. Pure; [`crate::inject`] applies it.

use serde::Serialize;

use crate::error::{Error, Exit, Result};
use crate::gpu::{Inventory, Majors};
use crate::pool::Lease;
use crate::types::{ContainerId, DeviceNumber, GpuUuid, VgpuId};

/// Everything that goes into one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The nodes it gets in `/dev`, each under the name that it has below the driver root's `dev/`.
    pub nodes: Vec<Node>,
    /// The numbers of the host's other GPUs, which must stay closed to it.
    pub others: Vec<Node>,
    /// What `/dev/vgpu/lease.json` says.
    pub lease_json: String,
}

/// A device node of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name in `/dev`.
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

/// Looks up what is real behind a lease. [`Exit::Gpu`] for a GPU that is not in the inventory, or a
/// driver whose unified memory module, which every CUDA program needs, is not loaded.
pub fn plan(lease: &Lease, inventory: &Inventory, majors: &Majors) -> Result<Plan> {
    let minor_of = |uuid: &GpuUuid| {
        let gpu = inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid);
        let gone =
            || Error::new(Exit::Gpu, format!("GPU {uuid} is not on this host any more; see `vgpu status`"));
        gpu.map(|gpu| gpu.minor).ok_or_else(gone)
    };
    let mut minors = Vec::new();
    let mut vgpus = Vec::new();
    for held in &lease.vgpus {
        let minor = minor_of(&held.id.gpu)?;
        minors.push(minor);
        vgpus.push(LeasedJson {
            id: &held.id,
            r#type: held.id.kind.as_str(),
            memory: held.memory.0,
            compute: held.compute.get(),
            uuid: &held.id.gpu,
            device: format!("/dev/nvidia{minor}"),
        });
    }
    minors.sort_unstable();
    minors.dedup();

    let uvm = majors.uvm.ok_or_else(|| {
        let message = "the kernel module nvidia-uvm is not loaded; run `nvidia-modprobe -u -c=0` on the host";
        Error::new(Exit::Gpu, message)
    })?;
    let mut nodes = vec![
        Node::new("nvidiactl", majors.nvidia, 255),
        Node::new("nvidia-uvm", uvm, 0),
        Node { optional: true, ..Node::new("nvidia-uvm-tools", uvm, 1) },
    ];
    nodes.extend(minors.iter().map(|minor| Node::of_gpu(majors, *minor)));
    let all = inventory.gpus.iter().map(|gpu| gpu.minor);
    let others = all.filter(|minor| !minors.contains(minor));

    let json = LeaseJson { version: 1, container: &lease.container, since: lease.since.to_string(), vgpus };
    let mut lease_json = serde_json::to_string_pretty(&json)
        .map_err(|e| Error::new(Exit::Io, format!("cannot write lease.json: {e}")))?;
    lease_json.push('\n');
    Ok(Plan { nodes, others: others.map(|minor| Node::of_gpu(majors, minor)).collect(), lease_json })
}
