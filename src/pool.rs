//! The pool: who holds which virtual GPUs, and which are given next (row A4). Pure; the file that
//! keeps it is [`store`]'s, the question whether a holder is still there [`liveness`]'s.

pub mod liveness;
pub mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cgroup::CgroupId;
use crate::config::{CutGpu, Isolation, Placement, Policy, Table, Vgpu};
use crate::error::{self, Error, Exit};
use crate::gpu::Gpu;
use crate::request::Want;
use crate::types::{Bytes, ContainerId, GpuUuid, MigUuid, Percent, TypeName, VgpuId};

/// A container's hold on vGPUs. Tied to one run of one container: the id alone is not enough (a restart
/// has the same one, and ids are unique per runtime only), the cgroup with its inode is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who holds it.
    pub container: ContainerId,
    /// The container's bundle on the host.
    pub bundle: PathBuf,
    /// The container's cgroup: as long as a process is in it, the lease is alive.
    pub cgroup: CgroupId,
    /// Host pid of the container's first process.
    pub pid: u32,
    /// When that process started, in clock ticks since boot (`proc_pid_stat(5)`, field 22).
    pub start_time: u64,
    /// When the lease was given.
    pub since: Timestamp,
    /// What is held.
    pub vgpus: Vec<Held>,
}

/// One vGPU as it was given: an edit of the pool file does not change what a container holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Which.
    pub id: VgpuId,
    /// Memory that was given with it.
    pub memory: Bytes,
    /// Share of the GPU's SMs that was given with it; none with a MIG device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<Percent>,
    /// How the holder was to be kept from the others of the GPU.
    #[serde(default, skip_serializing_if = "Isolation::is_none")]
    pub isolation: Isolation,
    /// The MIG device that was given: another one in its place is not it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigUuid>,
}

impl From<&Vgpu> for Held {
    fn from(vgpu: &Vgpu) -> Self {
        let Vgpu { id, memory, compute, isolation, mig } = vgpu;
        let mig = mig.as_ref().map(|device| device.uuid.clone());
        Self { id: id.clone(), memory: *memory, compute: *compute, isolation: *isolation, mig }
    }
}

impl Held {
    /// Is this what was given?
    pub fn is(&self, vgpu: &Vgpu) -> bool {
        self.id == vgpu.id && self.mig.as_ref() == vgpu.mig.as_ref().map(|device| &device.uuid)
    }

    /// Can nobody else have the vGPU as long as this is held? A MIG device is the same by any type. And where an admin
    /// has made another one in its place (a lease keeps nobody from that), the same capability nodes open it.
    pub fn bars(&self, vgpu: &Vgpu) -> bool {
        let Some(device) = &vgpu.mig else { return self.id == vgpu.id };
        self.id.gpu == vgpu.id.gpu
            && (self.mig.as_ref() == Some(&device.uuid) || self.id.part == vgpu.id.part)
    }
}

impl Lease {
    /// Are both of the very same run of the same container?
    pub fn is_same_run(&self, other: &Self) -> bool {
        let process = (self.pid, self.start_time) == (other.pid, other.start_time);
        process && self.container == other.container && self.cgroup == other.cgroup
    }

    /// The memory of its worker, where its container has one instead of GPUs: a request is for vGPUs of workers alone or
    /// for none ([`Request::want`](crate::request::Request::want)).
    pub fn remote(&self) -> Option<Bytes> {
        let remote = self.vgpus.iter().filter(|held| held.isolation.is_remote());
        remote.map(|held| held.memory).reduce(|a, b| Bytes(a.0.saturating_add(b.0)))
    }
}

/// What a GPU has left.
struct Budget<'a> {
    cut: &'a CutGpu,
    memory: u64,
    compute: u32,
    /// Is a MIG device of it held?
    has_mig: bool,
    /// Is a share of it held?
    has_share: bool,
    idle: Vec<&'a Vgpu>,
    /// How many this request already took here.
    taken: u32,
}

impl<'a> Budget<'a> {
    fn new(cut: &'a CutGpu, leases: &[Lease]) -> Self {
        let held = leases.iter().flat_map(|lease| &lease.vgpus);
        let held: Vec<&Held> = held.filter(|held| held.id.gpu == cut.gpu.uuid).collect();
        Self {
            cut,
            memory: held.iter().map(|held| held.memory.0).sum(),
            compute: held.iter().filter_map(|held| held.compute).map(Percent::get).sum(),
            has_mig: held.iter().any(|held| held.mig.is_some()),
            has_share: held.iter().any(|held| held.mig.is_none()),
            idle: cut.vgpus.iter().filter(|vgpu| !held.iter().any(|held| held.bars(vgpu))).collect(),
            taken: 0,
        }
    }

    /// Is there room for it beside all that is leased, vGPUs that the pool file no longer knows included? MIG devices
    /// have their room, the GPU itself keeps it. But they and shares are not given at a time: a lease from before the
    /// GPU was put into MIG mode, or out of it, may open more of it now than it was given.
    fn fits(&self, vgpu: &Vgpu, overcommit: bool) -> bool {
        if vgpu.mig.is_some() {
            return !self.has_share;
        }
        let memory = self.cut.gpu.memory.is_none_or(|all| self.memory.saturating_add(vgpu.memory.0) <= all.0);
        let compute = self.compute + vgpu.compute.map_or(0, Percent::get) <= 100;
        !self.has_mig && (overcommit || (memory && compute))
    }

    /// The first idle vGPU that will do: by type as `kinds` lists them, then by number.
    fn next(&self, kinds: &[TypeName], overcommit: bool) -> Option<&'a Vgpu> {
        let will_do = |vgpu: &Vgpu, kind: &TypeName| vgpu.id.kind == *kind && self.fits(vgpu, overcommit);
        kinds.iter().find_map(|kind| self.idle.iter().find(|vgpu| will_do(vgpu, kind)).copied())
    }

    fn take(&mut self, vgpu: &'a Vgpu) -> Held {
        self.memory = self.memory.saturating_add(vgpu.memory.0);
        self.compute += vgpu.compute.map_or(0, Percent::get);
        self.idle.retain(|idle| idle.id != vgpu.id);
        self.taken += 1;
        Held::from(vgpu)
    }
}

/// The idle vGPUs of a GPU that could be given now beside what is leased: of each type as many as fit together, if
/// none of another type is given.
pub fn with_room<'a>(cut: &'a CutGpu, leases: &[Lease], overcommit: bool) -> Vec<&'a Vgpu> {
    let kinds: BTreeSet<&TypeName> = cut.vgpus.iter().map(|vgpu| &vgpu.id.kind).collect();
    let of_kind = |kind: &TypeName| {
        let mut budget = Budget::new(cut, leases);
        let mut found = Vec::new();
        while let Some(vgpu) = budget.next(std::slice::from_ref(kind), overcommit) {
            budget.take(vgpu);
            found.push(vgpu);
        }
        found
    };
    kinds.into_iter().flat_map(of_kind).collect()
}

/// What there is to give: the table, less the GPUs that cannot be used now.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a, F> {
    /// Each physical GPU and what it is cut into.
    pub table: &'a Table,
    /// Placement skips a GPU that cannot be used now. Asked only of those that would be given.
    pub is_usable: F,
    /// How to choose.
    pub policy: &'a Policy,
}

impl<'a, F: Fn(&Gpu) -> bool> Offer<'a, F> {
    /// Chooses idle vGPUs for a request: all it asks for, or none. They go to different physical GPUs as
    /// far as possible; among GPUs that are equal in that, placement decides, then the table's order.
    pub fn choose(&self, leases: &[Lease], want: &Want) -> Result<Vec<Held>, Refusal> {
        let overcommit = self.policy.overcommit;
        let mut budgets: Vec<_> = self.table.gpus.iter().map(|cut| Budget::new(cut, leases)).collect();
        let mut chosen = Vec::new();
        while chosen.len() < want.count.get() as usize {
            let candidates = budgets.iter_mut().enumerate().filter_map(|(at, budget)| {
                budget.next(&want.kinds, overcommit).map(|vgpu| (at, budget, vgpu))
            });
            let best = candidates.min_by_key(|(at, budget, _)| (budget.taken, self.order(budget), *at));
            let Some((at, budget, vgpu)) = best else { return Err(Refusal::new(self, leases, want)) };
            if budget.taken == 0 && !(self.is_usable)(&budget.cut.gpu) {
                budgets.remove(at);
                continue;
            }
            chosen.push(budget.take(vgpu));
        }
        Ok(chosen)
    }

    /// What is smaller is taken first.
    fn order(&self, budget: &Budget) -> (i64, i128) {
        let (compute, memory) = (i64::from(budget.compute), i128::from(budget.memory));
        match self.policy.placement {
            Placement::Pack => (-compute, -memory),
            Placement::Spread => (compute, memory),
        }
    }
}

/// What a container was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// The lease that this run of it has already: nothing changed.
    Again(Lease),
    /// A new one, which is among the leases now.
    New(Lease),
}

/// Gives `lease.vgpus` (row A4). Whether holders are still there is looked at, through `remove_dead`, only
/// when the request would otherwise be refused (R03); it is refused with [`Exit::NoneFree`].
pub fn give(
    leases: &mut Vec<Lease>,
    mut lease: Lease,
    want: &Want,
    offer: &Offer<impl Fn(&Gpu) -> bool>,
    remove_dead: impl FnOnce(&mut Vec<Lease>) -> error::Result<()>,
) -> error::Result<Given> {
    if let Some(same) = leases.iter().find(|other| other.is_same_run(&lease)) {
        return Ok(Given::Again(same.clone()));
    }
    lease.vgpus = match offer.choose(leases, want) {
        Ok(vgpus) => vgpus,
        Err(_) => {
            remove_dead(leases)?;
            offer.choose(leases, want).map_err(|refusal| Error::new(Exit::NoneFree, refusal.to_string()))?
        }
    };
    leases.push(lease.clone());
    Ok(Given::New(lease))
}

/// Frees what a container held, unless it is there: a run of the same id may be up again (R01). Says whether
/// anything was freed.
pub fn release(
    leases: &mut Vec<Lease>,
    container: &ContainerId,
    is_alive: impl Fn(&Lease) -> error::Result<bool>,
) -> error::Result<bool> {
    let before = leases.len();
    for lease in std::mem::take(leases) {
        if lease.container != *container || is_alive(&lease)? {
            leases.push(lease);
        }
    }
    Ok(leases.len() < before)
}

/// Why a request got nothing: what was asked, what is free, who holds the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    want: Want,
    /// Per type, in the table's order: how many could be given now.
    free: Vec<(TypeName, usize)>,
    /// Idle, but what is leased leaves no room for it on its GPU.
    no_room: usize,
    unusable: Vec<GpuUuid>,
    /// Per container, the longest holds first: how many.
    holders: Vec<(ContainerId, usize)>,
}

/// How many holders a message names.
const NAMED: usize = 4;

impl Refusal {
    fn new(offer: &Offer<impl Fn(&Gpu) -> bool>, leases: &[Lease], want: &Want) -> Self {
        let mut free: Vec<(TypeName, usize)> = Vec::new();
        let mut no_room = 0;
        let mut unusable = Vec::new();
        for cut in &offer.table.gpus {
            let works = (offer.is_usable)(&cut.gpu);
            if !works {
                unusable.push(cut.gpu.uuid.clone());
            }
            let idle = Budget::new(cut, leases).idle;
            let room = if works { with_room(cut, leases, offer.policy.overcommit) } else { Vec::new() };
            no_room += if works { idle.len() - room.len() } else { 0 };
            for vgpu in &cut.vgpus {
                let n = usize::from(room.iter().any(|has_room| has_room.id == vgpu.id));
                match free.iter_mut().find(|(kind, _)| *kind == vgpu.id.kind) {
                    Some((_, free)) => *free += n,
                    None => free.push((vgpu.id.kind.clone(), n)),
                }
            }
        }
        let mut holds: BTreeMap<&ContainerId, usize> = BTreeMap::new();
        for lease in leases {
            *holds.entry(&lease.container).or_default() += lease.vgpus.len();
        }
        let mut holders: Vec<_> = holds.into_iter().map(|(id, n)| (id.clone(), n)).collect();
        holders.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        Self { want: want.clone(), free, no_room, unusable, holders }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.want.count.get();
        match &self.want.kinds[..] {
            [kind] => write!(f, "no free vGPU: asked for {count} of type {kind}")?,
            _ => write!(f, "no free vGPU: asked for {count} of any type")?,
        }
        let free: Vec<_> = self.free.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        write!(f, "; free: {}", if free.is_empty() { "none".to_owned() } else { free.join(", ") })?;
        if self.no_room > 0 {
            write!(f, "; idle, but without room beside what is leased on the same GPU: {}", self.no_room)?;
        }
        if !self.unusable.is_empty() {
            let uuids: Vec<_> = self.unusable.iter().map(GpuUuid::as_str).collect();
            write!(f, "; unusable: {}", uuids.join(", "))?;
        }
        let named: Vec<_> =
            self.holders.iter().take(NAMED).map(|(id, n)| format!("{} ({n})", short(id))).collect();
        if !named.is_empty() {
            write!(f, "; held by {}", named.join(", "))?;
        }
        if self.holders.len() > NAMED {
            write!(f, " and {} more", self.holders.len() - NAMED)?;
        }
        f.write_str(match (self.holders.is_empty(), count) {
            (false, _) => "; see `vgpu status`, or stop one of them",
            (true, 1) => "; see `vgpu status`",
            (true, _) => "; see `vgpu status`, or ask for less",
        })
    }
}

/// Engines' ids are 64 hexadecimal digits; people know them by the first twelve.
fn short(id: &ContainerId) -> &str {
    let id = id.as_str();
    let hash = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    if hash { &id[..12] } else { id }
}
