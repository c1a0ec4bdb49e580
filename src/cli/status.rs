//! `vgpu status [--json]`: GPUs, virtual GPUs, who holds what since when.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::cli::{View, printed};
use crate::config::Vgpu;
use crate::error::{Result, quoted};
use crate::gpu::{Inventory, Unusable};
use crate::pool::{Held, Lease, liveness, with_room};
use crate::remote::status::{self, Status as WorkerSays};
use crate::types::{GpuUuid, MigProfile, MigUuid, Percent, VgpuId};

/// What `--json` prints; the field names are stable. `reason`, `absent`, `mig_mode` and `mig` are there only where
/// there is something to say.
#[derive(Debug, Serialize)]
struct Status<'a> {
    version: u32,
    gpus: Vec<GpuStatus<'a>>,
    /// vGPUs that are leased but no longer in the pool file. They still count against their GPU.
    retired: Vec<VgpuStatus<'a>>,
    leases: Vec<LeaseStatus<'a>>,
    /// Entries of the pool file that match no GPU.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    absent: &'a [String],
}

#[derive(Debug, Serialize)]
struct GpuStatus<'a> {
    uuid: &'a GpuUuid,
    name: &'a str,
    minor: u32,
    memory: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    mig_mode: bool,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    vgpus: Vec<VgpuStatus<'a>>,
}

#[derive(Debug, Serialize)]
struct VgpuStatus<'a> {
    id: &'a VgpuId,
    r#type: &'a str,
    memory: u64,
    /// In percent; none for a MIG device.
    compute: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mig: Option<MigStatus<'a>>,
    lease: Option<&'a str>,
    /// Nobody holds it, and what is leased leaves no room for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_room: bool,
    /// Why the lease is of no use any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Which of the leases it is.
    #[serde(skip)]
    held: Option<usize>,
}

#[derive(Debug, Serialize)]
struct MigStatus<'a> {
    uuid: &'a MigUuid,
    /// Not known of a device that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a MigProfile>,
}

#[derive(Debug, Serialize)]
struct LeaseStatus<'a> {
    container: &'a str,
    pid: u32,
    alive: bool,
    since: String,
    vgpus: Vec<&'a VgpuId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerStatus>,
}

/// What a container has in place of a GPU.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum WorkerStatus {
    Says(WorkerSays),
    IsSilent { error: String },
}

impl WorkerStatus {
    fn of(view: &View, lease: &Lease) -> Option<Self> {
        let state_dir = view.state_dir.as_ref().filter(|_| lease.remote().is_some())?;
        Some(match status::of(state_dir, lease) {
            Ok(status) => Self::Says(status),
            Err(e) => Self::IsSilent { error: why(&e) },
        })
    }
}

/// Nobody listens where the worker did.
fn why(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => {
            "its worker has died, and is not replaced; stop the container".to_owned()
        }
        io::ErrorKind::PermissionDenied => "its worker answers root; run this as root".to_owned(),
        io::ErrorKind::WouldBlock => "its worker has more connections than it takes".to_owned(),
        _ => format!("its worker does not answer: {e}"),
    }
}

/// A line of it.
impl fmt::Display for WorkerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkerSays { backend, memory, processes, counters, unserved } = match self {
            Self::Says(status) => status,
            Self::IsSilent { error } => return f.write_str(error),
        };
        let (used, limit) = (show_memory(memory.used), show_memory(memory.limit));
        let status::Counters { calls, records, wakeups, predicted, known, new, bytes } = counters;
        let s = if processes.live == 1 { "" } else { "es" };
        write!(f, "worker {}: {used} of {limit} used, {} process{s}; ", quoted(backend), processes.live)?;
        write!(f, "{calls} calls, {records} records, {wakeups} wake-ups, {} copied; ", show_memory(*bytes))?;
        write!(f, "{predicted} predicted, {known} known, {new} new")?;
        let functions = unserved.functions.iter().map(|(name, count)| format!("{} {count}", quoted(name)));
        let others = (unserved.others > 0).then(|| format!("others {}", unserved.others));
        let functions: Vec<String> = functions.chain(others).collect();
        if !functions.is_empty() {
            write!(f, "; not supported: {}", functions.join(", "))?;
        }
        Ok(())
    }
}

/// Prints the pool as it is now, without waiting for anybody but a worker that is slow to answer, for a second.
pub fn run(pool_file: &Path, json: bool) -> Result<()> {
    let view = View::open(pool_file)?;
    let alive = view.leases.iter().map(liveness::is_alive).collect::<Result<Vec<_>>>()?;
    let checks = view.inventory.check(&view.driver);
    let status = Status::new(&view, &checks, &alive);
    printed(if json { status.print_json() } else { status.print(&mut anstream::stdout().lock()) })
}

impl<'a> Status<'a> {
    fn new(view: &'a View, checks: &[(GpuUuid, Result<(), Unusable>)], alive: &[bool]) -> Self {
        let View { table, inventory, leases, .. } = view;
        let of_table = |vgpu: &'a Vgpu, room: &[&Vgpu]| {
            let held = leases.iter().position(|lease| lease.vgpus.iter().any(|held| held.bars(vgpu)));
            VgpuStatus {
                id: &vgpu.id,
                r#type: vgpu.id.kind.as_str(),
                memory: vgpu.memory.0,
                compute: vgpu.compute.map(Percent::get),
                mig: vgpu.mig.as_ref().map(|mig| MigStatus { uuid: &mig.uuid, profile: Some(&mig.profile) }),
                lease: held.map(|at| leases[at].container.as_str()),
                no_room: held.is_none() && !room.iter().any(|has_room| has_room.id == vgpu.id),
                reason: None,
                held,
            }
        };
        // What the dead hold is free for the next request.
        let living = leases.iter().zip(alive).filter(|(_, alive)| **alive);
        let living: Vec<Lease> = living.map(|(lease, _)| lease.clone()).collect();
        let gpus = table.gpus.iter().map(|cut| {
            let check = checks.iter().find(|(uuid, _)| *uuid == cut.gpu.uuid);
            let reason = check.and_then(|(_, check)| check.as_ref().err()).map(ToString::to_string);
            let room = with_room(cut, &living, view.overcommit);
            GpuStatus {
                uuid: &cut.gpu.uuid,
                name: &cut.gpu.name,
                minor: cut.gpu.minor,
                memory: cut.gpu.memory.map(|memory| memory.0),
                mig_mode: cut.gpu.mig.is_some(),
                state: if reason.is_some() { "unusable" } else { "ready" },
                reason,
                vgpus: cut.vgpus.iter().map(|vgpu| of_table(vgpu, &room)).collect(),
            }
        });
        let retired = leases.iter().enumerate().flat_map(|(at, lease)| {
            let in_table =
                |held: &Held| table.gpus.iter().flat_map(|cut| &cut.vgpus).any(|vgpu| held.is(vgpu));
            let retired = lease.vgpus.iter().filter(move |held| !in_table(held));
            retired.map(move |held| VgpuStatus::retired(held, lease, at, inventory))
        });
        let leases = leases.iter().zip(alive).map(|(lease, alive)| LeaseStatus {
            container: lease.container.as_str(),
            pid: lease.pid,
            alive: *alive,
            since: format!("{:.0}", lease.since),
            vgpus: lease.vgpus.iter().map(|held| &held.id).collect(),
            worker: alive.then(|| WorkerStatus::of(view, lease)).flatten(),
        });
        Self {
            version: 1,
            gpus: gpus.collect(),
            retired: retired.collect(),
            leases: leases.collect(),
            absent: &table.absent,
        }
    }

    fn print_json(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, self)?;
        writeln!(out)
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        for gpu in &self.gpus {
            let mut memory = gpu.memory.map_or("memory unknown".to_owned(), show_memory);
            if gpu.mig_mode {
                memory += "  MIG mode";
            }
            let state = match &gpu.reason {
                None => paint(AnsiColor::Green, "ready"),
                Some(reason) => paint(AnsiColor::Red, &format!("unusable: {reason}")),
            };
            writeln!(out, "{}  {}  /dev/nvidia{}  {memory}  {state}", gpu.uuid, gpu.name, gpu.minor)?;
            self.print_vgpus(out, &gpu.vgpus, VgpuId::on_its_gpu, "the next request takes it")?;
        }
        if !self.retired.is_empty() {
            writeln!(out, "retired (held, but no longer in the pool file or on the host)")?;
            self.print_vgpus(out, &self.retired, ToString::to_string, "`vgpu reclaim` frees it")?;
        }
        for entry in self.absent {
            writeln!(out, "{}: no GPU of this host is {entry}", paint(AnsiColor::Yellow, "absent"))?;
        }
        if self.gpus.is_empty() {
            writeln!(out, "no GPU is cut into vGPUs; see `vgpu config check`")?;
        }
        Ok(())
    }

    fn print_vgpus(
        &self,
        out: &mut impl Write,
        vgpus: &[VgpuStatus],
        name: impl Fn(&VgpuId) -> String,
        when_gone: &str,
    ) -> io::Result<()> {
        let rows = vgpus.iter().map(|vgpu| [name(vgpu.id), show_memory(vgpu.memory), vgpu.part()]);
        let rows: Vec<_> = rows.collect();
        let width = |column: usize, least| rows.iter().map(|row| row[column].len()).fold(least, usize::max);
        let [a, b, c] = [width(0, 0), width(1, 7), width(2, 4)];
        for (vgpu, [name, memory, part]) in vgpus.iter().zip(&rows) {
            writeln!(out, "  {name:a$}  {memory:>b$}  {part:>c$}  {}", self.holder(vgpu, when_gone))?;
            if let Some(worker) = vgpu.held.and_then(|at| self.leases[at].worker.as_ref()) {
                writeln!(out, "    {worker}")?;
            }
        }
        Ok(())
    }

    fn holder(&self, vgpu: &VgpuStatus, when_gone: &str) -> String {
        let Some(lease) = vgpu.held.map(|at| &self.leases[at]) else {
            return if vgpu.no_room {
                paint(AnsiColor::Yellow, "idle; no room beside what is leased on its GPU")
            } else {
                paint(AnsiColor::Green, "free")
            };
        };
        let LeaseStatus { container, pid, since, .. } = lease;
        if !lease.alive {
            return format!("{container}  {}", paint(AnsiColor::Yellow, &format!("gone; {when_gone}")));
        }
        let unusable = |reason| format!("  {}", paint(AnsiColor::Red, &format!("unusable: {reason}")));
        let unusable = vgpu.reason.as_ref().map(unusable).unwrap_or_default();
        format!("{container}  pid {pid}  since {since}{unusable}")
    }
}

impl<'a> VgpuStatus<'a> {
    /// One that is held and not in the table.
    fn retired(held: &'a Held, lease: &'a Lease, at: usize, inventory: &'a Inventory) -> Self {
        let device = held.mig.as_ref().map(|uuid| (uuid, inventory.mig_device(&held.id.gpu, uuid)));
        let gone = device.filter(|(_, there)| there.is_none());
        Self {
            id: &held.id,
            r#type: held.id.kind.as_str(),
            memory: held.memory.0,
            compute: held.compute.map(Percent::get),
            mig: device.map(|(uuid, there)| MigStatus { uuid, profile: there.map(|there| &there.profile) }),
            lease: Some(lease.container.as_str()),
            no_room: false,
            reason: gone.map(|(uuid, _)| format!("MIG device {uuid} is gone")),
            held: Some(at),
        }
    }

    /// What it has of its GPU: `25%`, or `1g.10gb`.
    fn part(&self) -> String {
        match (&self.mig, self.compute) {
            (Some(MigStatus { profile: Some(profile), .. }), _) => profile.to_string(),
            (_, Some(percent)) => format!("{percent}%"),
            (_, None) => "MIG".to_owned(),
        }
    }
}

fn show_memory(bytes: u64) -> String {
    crate::types::Bytes(bytes).to_string()
}

/// For a terminal; `anstream` takes the colour out everywhere else, and where NO_COLOR is set.
fn paint(color: AnsiColor, text: &str) -> String {
    let style = Style::new().fg_color(Some(color.into()));
    format!("{style}{text}{style:#}")
}
