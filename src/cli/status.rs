//! `vgpu status [--json]`: GPUs, virtual GPUs, who holds what since when.

use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::cli::{View, printed};
use crate::config::{Table, Vgpu};
use crate::error::Result;
use crate::gpu::Unusable;
use crate::pool::{Held, Lease, liveness};
use crate::types::{GpuUuid, VgpuId};

/// What `--json` prints; the field names are stable. `reason` and `absent` are there only where there is
/// something to say.
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
    compute: u32,
    lease: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct LeaseStatus<'a> {
    container: &'a str,
    pid: u32,
    alive: bool,
    since: String,
    vgpus: Vec<&'a VgpuId>,
}

/// Prints the pool as it is now, without waiting for anybody.
pub fn run(pool_file: &Path, json: bool) -> Result<()> {
    let view = View::open(pool_file)?;
    let alive = view.leases.iter().map(liveness::is_alive).collect::<Result<Vec<_>>>()?;
    let status = Status::new(&view.table, &view.inventory.check(&view.driver), &view.leases, &alive);
    printed(if json { status.print_json() } else { status.print(&mut anstream::stdout().lock()) })
}

impl<'a> Status<'a> {
    fn new(
        table: &'a Table,
        checks: &[(GpuUuid, Result<(), Unusable>)],
        leases: &'a [Lease],
        alive: &[bool],
    ) -> Self {
        let held = || leases.iter().flat_map(|lease| lease.vgpus.iter().map(move |held| (held, lease)));
        let of_table = |vgpu: &'a Vgpu| {
            let lease = held().find(|(held, _)| held.id == vgpu.id).map(|(_, lease)| lease);
            VgpuStatus {
                id: &vgpu.id,
                r#type: vgpu.id.kind.as_str(),
                memory: vgpu.memory.0,
                compute: vgpu.compute.get(),
                lease: lease.map(|lease| lease.container.as_str()),
            }
        };
        let gpus = table.gpus.iter().map(|cut| {
            let check = checks.iter().find(|(uuid, _)| *uuid == cut.gpu.uuid);
            let reason = check.and_then(|(_, check)| check.as_ref().err()).map(ToString::to_string);
            GpuStatus {
                uuid: &cut.gpu.uuid,
                name: &cut.gpu.name,
                minor: cut.gpu.minor,
                memory: cut.gpu.memory.map(|memory| memory.0),
                state: if reason.is_some() { "unusable" } else { "ready" },
                reason,
                vgpus: cut.vgpus.iter().map(of_table).collect(),
            }
        });
        let in_table = |held: &Held| table.gpus.iter().flat_map(|cut| &cut.vgpus).any(|v| v.id == held.id);
        let retired = held().filter(|(held, _)| !in_table(held)).map(|(held, lease)| VgpuStatus {
            id: &held.id,
            r#type: held.id.kind.as_str(),
            memory: held.memory.0,
            compute: held.compute.get(),
            lease: Some(lease.container.as_str()),
        });
        let leases = leases.iter().zip(alive).map(|(lease, alive)| LeaseStatus {
            container: lease.container.as_str(),
            pid: lease.pid,
            alive: *alive,
            since: format!("{:.0}", lease.since),
            vgpus: lease.vgpus.iter().map(|held| &held.id).collect(),
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
            let memory = gpu.memory.map_or("memory unknown".to_owned(), show_memory);
            let state = match &gpu.reason {
                None => paint(AnsiColor::Green, "ready"),
                Some(reason) => paint(AnsiColor::Red, &format!("unusable: {reason}")),
            };
            writeln!(out, "{}  {}  /dev/nvidia{}  {memory}  {state}", gpu.uuid, gpu.name, gpu.minor)?;
            self.print_vgpus(out, &gpu.vgpus, |id| format!("{}/{}", id.kind, id.n))?;
        }
        if !self.retired.is_empty() {
            writeln!(out, "retired (held, but no longer in the pool file)")?;
            self.print_vgpus(out, &self.retired, ToString::to_string)?;
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
    ) -> io::Result<()> {
        let names: Vec<_> = vgpus.iter().map(|vgpu| name(vgpu.id)).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        for (vgpu, name) in vgpus.iter().zip(names) {
            let memory = show_memory(vgpu.memory);
            writeln!(out, "  {name:width$}  {memory:>7}  {:>3}%  {}", vgpu.compute, self.holder(vgpu))?;
        }
        Ok(())
    }

    fn holder(&self, vgpu: &VgpuStatus) -> String {
        let Some(lease) = self.leases.iter().find(|lease| lease.vgpus.contains(&vgpu.id)) else {
            return paint(AnsiColor::Green, "free");
        };
        let LeaseStatus { container, pid, since, .. } = lease;
        if lease.alive {
            return format!("{container}  pid {pid}  since {since}");
        }
        format!("{container}  {}", paint(AnsiColor::Yellow, "gone; the next request takes it"))
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
