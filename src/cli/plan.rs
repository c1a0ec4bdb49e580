//! `vgpu plan [--type …] [--bundle DIR] [--json]`: what a container would get if it were started now, the virtual
//! beside the real, or why it would not start. Follows the hook's steps as far as no created container is needed,
//! and touches nothing: no lock, no lease, no state directory, no inventory is made.

use std::io::{self, Write};
use std::path::{Path, PathBuf, absolute};

use jiff::Timestamp;
use serde::Serialize;

use crate::access;
use crate::cgroup::{CgroupId, Hierarchy};
use crate::cli::printed;
use crate::config::{self, PoolFile};
use crate::driver::{Capabilities, DriverFile};
use crate::error::{Exit, OrExit, Result};
use crate::gpu::{self, DriverRoot, Gpu, Probe};
use crate::host::{Host, Servable, parse_config_json, read_config_json};
use crate::inject::live;
use crate::oci::Bundle;
use crate::pool::store::StateDir;
use crate::pool::{self, Given, Held, Lease, liveness};
use crate::request::{self, Request, Source};
use crate::resolve::{File, Node, Plan, Socket};
use crate::types::{Bytes, Count, DeviceNumber, GpuUuid, PciAddress, TypeName, VgpuId};

/// Where the driver's files are in a container.
const PLACE: &str = "/usr/local/nvidia";

/// Arguments of `vgpu plan`.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArgs {
    /// A container that asks for so many (without it, 1)
    #[arg(long, value_name = "N")]
    count: Option<Count>,
    /// A container that asks for this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<TypeName>,
    /// A container that asks for at least so much memory, like 8GiB
    #[arg(long, value_name = "MEMORY")]
    memory: Option<Bytes>,
    /// A container with these NVIDIA_DRIVER_CAPABILITIES
    #[arg(long, value_name = "WORDS")]
    capabilities: Option<String>,
    /// The container of this bundle, whatever it asks for
    #[arg(long, value_name = "DIR", conflicts_with_all = ["count", "kind", "memory", "capabilities"])]
    bundle: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Who asks, and in what bundle.
struct Asker<'a> {
    source: &'static str,
    request: Request,
    capabilities: Capabilities,
    bundle: &'a Bundle<'a>,
    /// Absolute; none where there is no bundle.
    dir: Option<&'a Path>,
}

/// What `--json` prints; the field names are stable. Amounts are in bytes and percent, paths are those in the
/// container, and `source` those on the host.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    request: RequestReport,
    driver: String,
    capabilities: Vec<&'static str>,
    vgpus: Vec<VgpuReport>,
    nodes: Vec<NodeReport>,
    /// Nodes of the host's other GPUs, unless pool.toml lets it have these by other ways.
    closed: Vec<NodeReport>,
    files: Vec<FileReport>,
    sockets: Vec<SocketReport>,
    /// What is left of `/proc/driver/nvidia/gpus`.
    proc: Vec<String>,
    /// What is not there and not needed, a line each.
    missing: Vec<String>,
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
    compute: u32,
    uuid: GpuUuid,
    name: String,
    pci: PciAddress,
    device: String,
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
struct Nothing {
    version: u32,
    /// Always null.
    request: Option<RequestReport>,
    reason: &'static str,
}

/// Prints what a container would get. Where a hook would refuse it, the error is the hook's.
pub fn run(pool_file: &Path, args: &PlanArgs) -> Result<()> {
    let mut out = io::stdout().lock();
    let Some(dir) = &args.bundle else {
        let pool = config::read(pool_file)?;
        let asker = Asker {
            source: "command line",
            request: Request {
                count: args.count.unwrap_or(Count::ONE),
                kind: args.kind.clone(),
                memory: args.memory,
            },
            capabilities: pool.driver.asked(args.capabilities.as_deref())?,
            bundle: &Bundle::default(),
            dir: None,
        };
        return print(&Report::new(pool_file, &pool, &asker)?, args.json, &mut out);
    };
    // Runtimes give a hook the absolute path.
    let dir = absolute(dir).or_exit(Exit::Usage, || format!("cannot use --bundle {}", dir.display()))?;
    let config_json = read_config_json(&dir)?;
    let bundle = parse_config_json(&config_json, &dir)?;
    let Some((bundle, found)) = bundle.as_ref().and_then(|bundle| Some((bundle, request::find(bundle)?)))
    else {
        return print_nothing("the container asks for no vGPU", args.json, &mut out);
    };
    let pool = config::read(pool_file)?;
    if !found.may_ask(&pool.request) {
        let reason = "the container asks by environment alone, and pool.toml says allow_env = false";
        return print_nothing(reason, args.json, &mut out);
    }
    let asker = Asker {
        source: match found.source {
            Source::Annotations => "annotations",
            Source::Environment => "environment",
        },
        request: found.check()?,
        capabilities: pool.driver.asked(bundle.env(Capabilities::VARIABLE))?,
        bundle,
        dir: Some(&dir),
    };
    print(&Report::new(pool_file, &pool, &asker)?, args.json, &mut out)
}

impl Report {
    /// The hook's steps, in the hook's order.
    fn new(pool_file: &Path, pool: &PoolFile, asker: &Asker) -> Result<Self> {
        let Asker { source, request, capabilities, bundle, dir } = asker;
        let state_dir = StateDir::open(&pool.state_dir)?;
        let driver = DriverRoot::open(&pool.driver_root)?;
        let known = gpu::load_or_look(state_dir.as_ref().map(StateDir::fd), &driver, &Probe::default())?;
        let mut host = Host::new(driver, known.inventory, pool, pool_file)?;
        let servable = host.check(request, *capabilities, bundle, pool)?;
        let mut leases = state_dir.map_or(Ok(Vec::new()), |dir| dir.peek())?;
        let remove_dead = |leases: &mut Vec<Lease>| liveness::remove_dead(leases).map(|_| ());
        let (Given::New(lease) | Given::Again(lease)) =
            pool::give(&mut leases, stand_in(*dir)?, &servable.want, &host.offer(pool), remove_dead)?;
        let plan = host.plan(&lease, &servable)?;
        let Servable { rules, found, .. } = servable;
        let file = |file: &File| file_report(file, &found.files, &host.driver, *capabilities);
        let files = plan.files.iter().map(file).collect();
        let Plan { nodes, others, sockets, gpus, .. } = plan.clone();
        let open = live::open(plan, &host.driver, host.majors, found.files)?;
        if let Some(dir) = dir {
            bundle.root(dir)?;
        }

        let (nodes, absent): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|node| open.numbers().contains(&node.number));
        let not_there =
            |node: &Node| format!("{} is not there", host.driver.shown(format!("dev/{}", node.name)));
        let vgpu = |held| vgpu_report(held, &host.inventory.gpus);
        Ok(Self {
            version: 1,
            request: RequestReport {
                source,
                count: request.count.get(),
                r#type: request.kind.clone(),
                memory: request.memory.map(|memory| memory.0),
            },
            driver: host.inventory.driver.clone(),
            capabilities: words(*capabilities),
            vgpus: lease.vgpus.iter().filter_map(vgpu).collect(),
            nodes: nodes.iter().map(node_report).collect(),
            closed: others.iter().filter(|_| !pool.policy.allow_other_access).map(node_report).collect(),
            files,
            sockets: sockets.iter().map(|socket| socket_report(socket, &host.driver)).collect(),
            proc: gpus.iter().map(|pci| format!("/proc/driver/nvidia/gpus/{pci}")).collect(),
            missing: absent.iter().map(not_there).chain(found.missing).collect(),
            other_access: access::other_way(bundle, &rules, &host.majors, &host.numbers()),
        })
    }
}

/// The lease of a container that is not there.
fn stand_in(bundle: Option<&Path>) -> Result<Lease> {
    let unique = || "a stand-in for a container";
    Ok(Lease {
        container: "plan".parse().or_exit(Exit::Io, unique)?,
        bundle: bundle.unwrap_or(Path::new("/")).to_owned(),
        cgroup: CgroupId { hierarchy: Hierarchy::V2, path: "/".parse().or_exit(Exit::Io, unique)?, inode: 0 },
        pid: 0,
        start_time: 0,
        since: Timestamp::now(),
        vgpus: Vec::new(),
    })
}

/// The plan would not have been made without the GPU.
fn vgpu_report(held: &Held, gpus: &[Gpu]) -> Option<VgpuReport> {
    let gpu = gpus.iter().find(|gpu| gpu.uuid == held.id.gpu)?;
    Some(VgpuReport {
        id: held.id.clone(),
        r#type: held.id.kind.to_string(),
        memory: held.memory.0,
        compute: held.compute.get(),
        uuid: gpu.uuid.clone(),
        name: gpu.name.clone(),
        pci: gpu.pci,
        device: format!("/{}", gpu.node()),
    })
}

fn node_report(node: &Node) -> NodeReport {
    NodeReport { path: format!("/dev/{}", node.name), number: node.number }
}

fn file_report(
    file: &File,
    found: &[DriverFile],
    driver: &DriverRoot,
    capabilities: Capabilities,
) -> FileReport {
    let needs = found.iter().find(|found| found.path == file.source).map(DriverFile::capabilities);
    let in_dir = |name: &String| format!("{PLACE}/{}/{name}", file.dir.as_str());
    let elsewhere = file.link_at.iter().map(|path| format!("/{path}"));
    FileReport {
        path: in_dir(&file.name),
        links: file.links.iter().map(in_dir).chain(elsewhere).collect(),
        source: driver.shown(&file.source).to_string(),
        capabilities: words(needs.unwrap_or(capabilities).and(capabilities)),
    }
}

fn socket_report(socket: &Socket, driver: &DriverRoot) -> SocketReport {
    SocketReport { path: format!("/{}", socket.path), source: driver.shown(&socket.source).to_string() }
}

fn words(capabilities: Capabilities) -> Vec<&'static str> {
    capabilities.iter().map(|capability| capability.as_str()).collect()
}

fn print(report: &Report, json: bool, out: &mut impl Write) -> Result<()> {
    printed(if json { print_json(report, out) } else { report.print(out) })
}

fn print_nothing(reason: &'static str, json: bool, out: &mut impl Write) -> Result<()> {
    printed(if json {
        print_json(&Nothing { version: 1, request: None, reason }, out)
    } else {
        writeln!(out, "{reason}: a hook leaves it as it is")
    })
}

fn print_json(report: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

impl Report {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.request)?;
        let vgpu = |vgpu: &VgpuReport| {
            let VgpuReport { id, memory, compute, uuid, name, pci, device, .. } = vgpu;
            let [memory, compute] = [Bytes(*memory).to_string(), format!("{compute}%")];
            let virtual_gpu = format!("{}/{}", id.kind, id.n);
            let real = [uuid.to_string(), name.clone(), pci.to_string(), device.clone()];
            [virtual_gpu, memory, compute, "on".to_owned()].into_iter().chain(real).collect()
        };
        columns(out, self.vgpus.iter().map(vgpu).collect())?;
        let node = |node: &NodeReport| vec![node.path.clone(), node.number.to_string()];
        writeln!(out, "device nodes")?;
        columns(out, self.nodes.iter().map(node).collect())?;
        writeln!(out, "files of driver {} for {}", self.driver, self.capabilities.join(","))?;
        let file = |file: &FileReport| {
            let FileReport { path, links, source, capabilities } = file;
            // Links beside the file by their names alone.
            let beside = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            let short = |link: &String| {
                let name = link.strip_prefix(beside).and_then(|rest| rest.strip_prefix('/'));
                name.unwrap_or(link).to_owned()
            };
            let links: Vec<String> = links.iter().map(short).collect();
            vec![path.clone(), format!("from {source}"), capabilities.join(","), links.join(" ")]
        };
        columns(out, self.files.iter().map(file).collect())?;
        if !self.sockets.is_empty() {
            let socket = |socket: &SocketReport| vec![socket.path.clone(), format!("from {}", socket.source)];
            writeln!(out, "sockets of its daemons")?;
            columns(out, self.sockets.iter().map(socket).collect())?;
        }
        if !self.closed.is_empty() {
            writeln!(out, "closed to it, and not in its /proc/driver/nvidia: other GPUs")?;
            columns(out, self.closed.iter().map(node).collect())?;
        }
        if !self.missing.is_empty() {
            writeln!(out, "not there, and not needed")?;
            columns(out, self.missing.iter().map(|line| vec![line.clone()]).collect())?;
        }
        match &self.other_access {
            Some(what) => writeln!(out, "other GPUs, too, since allow_other_access = true: {what}"),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for RequestReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = if self.count == 1 { "" } else { "s" };
        write!(f, "asked by {} for {} vGPU{s}", self.source, self.count)?;
        if let Some(kind) = &self.r#type {
            write!(f, " of type {kind}")?;
        }
        self.memory.map_or(Ok(()), |memory| write!(f, " with at least {}", Bytes(memory)))
    }
}

/// Rows of equally many cells, each column as wide as its widest cell.
fn columns(out: &mut impl Write, rows: Vec<Vec<String>>) -> io::Result<()> {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("  {cell:width$}"));
        writeln!(out, "{}", cells.collect::<String>().trim_end())?;
    }
    Ok(())
}
