//! What `vgpu plan` prints: a plan in the words of its reader, as JSON and as tables.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

use super::{Asker, Decided};
use crate::access;
use crate::config::{Isolation, PoolFile};
use crate::driver::Capabilities;
use crate::gpu::{DriverRoot, Inventory, MigDevice};
use crate::pool::Held;
use crate::resolve::{File, MigAccess, Node, PLACE, Socket};
use crate::types::{
    Bytes, DeviceNumber, GpuUuid, MigProfile, MigUuid, PciAddress, Percent, TypeName, VgpuId,
};

/// What `--json` prints; the field names are stable. Amounts are in bytes and percent, paths are those in the
/// container, and `source` those on the host.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: u32,
    /// Why a container that starts as its bundle says would get none of it, a line each.
    warnings: Vec<String>,
    request: RequestReport,
    driver: String,
    capabilities: Vec<&'static str>,
    vgpus: Vec<VgpuReport>,
    nodes: Vec<NodeReport>,
    /// Nodes of the host's other GPUs and MIG devices, unless pool.toml lets it have these by other ways.
    closed: Vec<NodeReport>,
    files: Vec<FileReport>,
    sockets: Vec<SocketReport>,
    /// What `/proc/driver/nvidia` tells of: GPUs and MIG devices.
    proc: BTreeSet<String>,
    /// What is optional and not there, or passed over, a line each.
    missing: Vec<String>,
    /// What the container's user cannot open, a line each.
    out_of_reach: Vec<String>,
    /// Another way to a GPU, which pool.toml lets the container have.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_access: Option<String>,
}

#[derive(Debug, Serialize)]
struct RequestReport {
    /// `annotations`, `environment` or `command line`.
    source: &'static str,
    count: u32,
    r#type: Option<TypeName>,
    memory: Option<u64>,
}

/// A virtual GPU, and the physical one behind it.
#[derive(Debug, Serialize)]
struct VgpuReport {
    id: VgpuId,
    r#type: String,
    memory: u64,
    /// None for a MIG device.
    compute: Option<u32>,
    uuid: GpuUuid,
    name: String,
    pci: PciAddress,
    /// None where a worker has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(skip_serializing_if = "Isolation::is_none")]
    isolation: Isolation,
    #[serde(skip_serializing_if = "Option::is_none")]
    mig: Option<MigReport>,
}

#[derive(Debug, Serialize)]
struct MigReport {
    uuid: MigUuid,
    profile: MigProfile,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    path: String,
    #[serde(flatten)]
    number: DeviceNumber,
}

#[derive(Debug, Serialize)]
struct FileReport {
    path: String,
    /// Paths of links to it.
    links: Vec<String>,
    source: String,
    /// Each of those that the container has and that need it.
    capabilities: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct SocketReport {
    path: String,
    source: String,
}

/// What `--json` prints for a container that a hook leaves as it is.
#[derive(Debug, Serialize)]
pub(super) struct Nothing {
    version: u32,
    /// Always null.
    request: Option<RequestReport>,
    reason: &'static str,
}

impl Nothing {
    pub(super) fn new(reason: &'static str) -> Self {
        Self { version: 1, request: None, reason }
    }
}

impl Report {
    /// A plan in words.
    pub(super) fn new(asker: &Asker, decided: Decided, pool: &PoolFile) -> Self {
        let Asker { source, request, bundle, .. } = asker;
        let Decided { host, lease, plan, present, needs, mut missing, out_of_reach, rules } = decided;
        // Of the driver it needs nothing then.
        let capabilities = if plan.remote { Capabilities::of(&[]) } else { asker.capabilities };
        let (nodes, absent): (Vec<_>, Vec<_>) =
            plan.nodes.iter().partition(|node| present.contains(&node.number));
        let shown = |node: &&Node| host.driver.shown(format!("dev/{}", node.name));
        missing.splice(0..0, absent.iter().map(|node| format!("{} is not there", shown(node))));
        let needs =
            |file: &File| needs.get(&file.source).map_or(capabilities, |needs| needs.and(capabilities));
        let gpus = plan.gpus.iter().map(|pci| format!("gpus/{pci}"));
        let mig = plan.mig.iter().flat_map(MigAccess::files);
        let other_way = access::other_way(bundle, &rules, &host.majors, &host.numbers());
        let has_all_mig = !plan.mig.is_empty() && bundle.has_sys_admin();
        let sys_admin =
            || has_all_mig.then(|| "it has CAP_SYS_ADMIN, and so all MIG devices of its GPU".to_owned());
        let worker = plan.remote.then(|| SocketReport {
            path: "/dev/vgpu/worker".to_owned(),
            source: pool.state_dir.join("workers").display().to_string(),
        });
        let closed = if pool.policy.allow_other_access { &[] } else { plan.others.as_slice() };
        Self {
            version: 1,
            warnings: asker.doubts.clone(),
            request: RequestReport {
                source,
                count: request.count.get(),
                r#type: request.kind.clone(),
                memory: request.memory.map(|memory| memory.0),
            },
            driver: host.inventory.driver.clone(),
            capabilities: words(capabilities),
            vgpus: lease.vgpus.iter().filter_map(|held| vgpu(held, &host.inventory)).collect(),
            nodes: nodes.into_iter().map(node).collect(),
            closed: closed.iter().map(node).collect(),
            files: plan.files.iter().map(|one| file(one, &host.driver, needs(one))).collect(),
            sockets: plan.sockets.iter().map(|one| socket(one, &host.driver)).chain(worker).collect(),
            proc: gpus.chain(mig).map(|path| format!("/proc/driver/nvidia/{path}")).collect(),
            missing,
            out_of_reach,
            other_access: other_way.or_else(sys_admin),
        }
    }
}

/// The plan would not have been made without the GPU.
fn vgpu(held: &Held, inventory: &Inventory) -> Option<VgpuReport> {
    let gpu = inventory.gpus.iter().find(|gpu| gpu.uuid == held.id.gpu)?;
    let device = held.mig.as_ref().and_then(|uuid| inventory.mig_device(&gpu.uuid, uuid));
    let mig = |device: &MigDevice| MigReport { uuid: device.uuid.clone(), profile: device.profile.clone() };
    Some(VgpuReport {
        id: held.id.clone(),
        r#type: held.id.kind.to_string(),
        memory: held.memory.0,
        compute: held.compute.map(Percent::get),
        uuid: gpu.uuid.clone(),
        name: gpu.name.clone(),
        pci: gpu.pci,
        device: (!held.isolation.is_remote()).then(|| format!("/{}", gpu.node())),
        isolation: held.isolation,
        mig: device.map(mig),
    })
}

fn node(node: &Node) -> NodeReport {
    NodeReport { path: format!("/dev/{}", node.name), number: node.number }
}

fn file(file: &File, driver: &DriverRoot, capabilities: Capabilities) -> FileReport {
    let in_dir = |name: &String| format!("{PLACE}/{}/{name}", file.dir.as_str());
    let elsewhere = file.link_at.iter().map(|path| format!("/{path}"));
    FileReport {
        path: in_dir(&file.name),
        links: file.links.iter().map(in_dir).chain(elsewhere).collect(),
        source: driver.shown(&file.source).to_string(),
        capabilities: words(capabilities),
    }
}

fn socket(socket: &Socket, driver: &DriverRoot) -> SocketReport {
    SocketReport { path: format!("/{}", socket.path), source: driver.shown(&socket.source).to_string() }
}

fn words(capabilities: Capabilities) -> Vec<&'static str> {
    capabilities.iter().map(|capability| capability.as_str()).collect()
}

/// Prints one JSON document.
pub(super) fn print_json(report: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

impl Report {
    /// Prints a line and tables.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let remote = self.vgpus.iter().any(|vgpu| vgpu.isolation.is_remote());
        let files = match remote {
            true => "libraries of the client, in place of NVIDIA's".to_owned(),
            false => format!("files of driver {} for {}", self.driver, self.capabilities.join(",")),
        };
        let sockets = if remote { "its worker's socket" } else { "sockets of its daemons" };
        let closed = "closed to it, and not in its /proc/driver/nvidia: other GPUs and MIG devices";
        self.warnings.iter().try_for_each(|line| writeln!(out, "warning: {line}"))?;
        section(out, &self.request.to_string(), self.vgpus.iter().map(VgpuReport::row))?;
        section(out, "device nodes", self.nodes.iter().map(NodeReport::row))?;
        section(out, &files, self.files.iter().map(FileReport::row))?;
        section(out, sockets, self.sockets.iter().map(SocketReport::row))?;
        section(out, closed, self.closed.iter().map(NodeReport::row))?;
        section(out, "optional, missing", self.missing.iter().map(|line| [without_not_there(line)]))?;
        section(out, "out of its user's reach", self.out_of_reach.iter().map(|line| [line.clone()]))?;
        match &self.other_access {
            Some(what) => writeln!(out, "other GPUs, too, since allow_other_access = true: {what}"),
            None => Ok(()),
        }
    }
}

/// Most lines say what the title says already; others, why a file that is there is of no use.
fn without_not_there(line: &str) -> String {
    line.strip_suffix(" is not there").unwrap_or(line).to_owned()
}

impl VgpuReport {
    fn row(&self) -> [String; 9] {
        let Self { id, memory, compute, uuid, name, pci, device, mig, .. } = self;
        let (part, mig) = match (mig, compute) {
            (Some(mig), _) => (mig.profile.to_string(), mig.uuid.to_string()),
            (None, Some(percent)) => (format!("{percent}%"), String::new()),
            (None, None) => (String::new(), String::new()),
        };
        let (memory, on, uuid, pci) =
            (Bytes(*memory).to_string(), "on".to_owned(), uuid.to_string(), pci.to_string());
        let device = device.clone().unwrap_or_else(|| "by a worker, on the CPU".to_owned());
        [id.on_its_gpu(), memory, part, on, uuid, name.clone(), pci, device, mig]
    }
}

impl NodeReport {
    fn row(&self) -> [String; 2] {
        [self.path.clone(), self.number.to_string()]
    }
}

impl FileReport {
    /// Links beside the file by their names alone.
    fn row(&self) -> [String; 4] {
        let Self { path, links, source, capabilities } = self;
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let short = |link: &'_ String| {
            let name = link.strip_prefix(dir).and_then(|rest| rest.strip_prefix('/'));
            name.unwrap_or(link).to_owned()
        };
        let links: Vec<String> = links.iter().map(short).collect();
        [path.clone(), format!("from {source}"), capabilities.join(","), links.join(" ")]
    }
}

impl SocketReport {
    fn row(&self) -> [String; 2] {
        [self.path.clone(), format!("from {}", self.source)]
    }
}

impl fmt::Display for RequestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.count == 1 { "" } else { "s" };
        write!(f, "asked by {} for {} vGPU{s}", self.source, self.count)?;
        if let Some(kind) = &self.r#type {
            write!(f, " of type {kind}")?;
        }
        self.memory.map_or(Ok(()), |memory| write!(f, " with at least {}", Bytes(memory)))
    }
}

/// A title and rows, each column as wide as its widest cell; nothing where there is no row.
fn section<const N: usize>(
    out: &mut impl Write,
    title: &str,
    rows: impl Iterator<Item = [String; N]>,
) -> io::Result<()> {
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    writeln!(out, "{title}")?;
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("  {cell:width$}"));
        writeln!(out, "{}", cells.collect::<String>().trim_end())?;
    }
    Ok(())
}
