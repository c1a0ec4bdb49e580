//! P1, P3 and P4 hold for any sequence of requests, deaths, releases and edits of the pool file.
//! Pure: a model decides who is alive; no process and no file is involved.

use proptest::prelude::*;
use vgpu::cgroup::{CgroupId, Hierarchy};
use vgpu::config::{CutGpu, Isolation, Placement, Policy, Table, Vgpu};
use vgpu::error::Exit;
use vgpu::gpu::{Gpu, MigDevice};
use vgpu::pool::{Given, Held, Lease, Offer, give, release, with_room};
use vgpu::request::Want;
use vgpu::types::{Bytes, GpuUuid, MigInstance, Part, Percent, TypeName, VgpuId};

const GIB: u64 = 1 << 30;
const GPU_MEMORY: u64 = 40 * GIB;
const KINDS: [&str; 3] = ["small", "large", "odd"];

fn uuid(n: usize) -> GpuUuid {
    format!("GPU-00000000-0000-0000-0000-00000000000{n}").parse().unwrap()
}

fn kind(n: usize) -> TypeName {
    KINDS[n].parse().unwrap()
}

/// How one GPU is cut: per type (how many, memory in GiB, compute), within the GPU.
type Cut = [(u32, u64, i64); 3];

fn cut() -> impl Strategy<Value = Cut> {
    let one = (0..5_u32, 1..20_u64, 1..50_i64);
    [one.clone(), one.clone(), one].prop_map(|mut cut| {
        let (mut memory, mut compute) = (40, 100);
        for (n, gib, percent) in &mut cut {
            *n = (*n).min((memory / *gib) as u32).min((compute / *percent) as u32);
            memory -= u64::from(*n) * *gib;
            compute -= i64::from(*n) * *percent;
        }
        cut
    })
}

fn table(cuts: &[Cut]) -> Table {
    let gpus = cuts
        .iter()
        .enumerate()
        .map(|(g, cut)| CutGpu { gpu: gpu(g), vgpus: (0..3).flat_map(|k| vgpus(g, k, cut[k])).collect() });
    Table { gpus: gpus.collect(), absent: Vec::new() }
}

fn gpu(g: usize) -> Gpu {
    Gpu {
        uuid: uuid(g),
        pci: format!("0000:0{g}:00.0").parse().unwrap(),
        minor: g as u32,
        name: "NVIDIA Test".into(),
        memory: Some(Bytes(GPU_MEMORY)),
        mig: None,
        drm: Vec::new(),
    }
}

fn vgpus(gpu: usize, k: usize, (count, gib, percent): (u32, u64, i64)) -> impl Iterator<Item = Vgpu> {
    (0..count).map(move |n| Vgpu {
        id: VgpuId { gpu: uuid(gpu), kind: kind(k), part: Part::Share(n) },
        memory: Bytes(gib * GIB),
        compute: Some(percent.try_into().unwrap()),
        isolation: Isolation::None,
        mig: None,
    })
}

#[derive(Clone, Debug)]
enum Step {
    Start { id: usize, count: u32, kind: Option<usize> },
    AskAgain { id: usize },
    Die { id: usize },
    Poststop { id: usize },
    Edit { cuts: Vec<Cut> },
    Break { gpu: Option<usize> },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8_usize, 1..5_u32, proptest::option::of(0..3_usize))
            .prop_map(|(id, count, kind)| Step::Start { id, count, kind }),
        1 => (0..8_usize).prop_map(|id| Step::AskAgain { id }),
        3 => (0..8_usize).prop_map(|id| Step::Die { id }),
        2 => (0..8_usize).prop_map(|id| Step::Poststop { id }),
        1 => proptest::collection::vec(cut(), 0..4).prop_map(|cuts| Step::Edit { cuts }),
        1 => proptest::option::of(0..3_usize).prop_map(|gpu| Step::Break { gpu }),
    ]
}

/// A host: what is recorded, and, beside it, the truth about who is alive.
struct Host {
    policy: Policy,
    table: Table,
    unusable: Vec<GpuUuid>,
    leases: Vec<Lease>,
    alive: Vec<Lease>,
    next_pid: u32,
}

impl Host {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Start { id, count, kind: k } => self.start(*id, *count, *k),
            Step::AskAgain { id } => self.ask_again(*id),
            Step::Die { id } => self.alive.retain(|lease| lease.container != container(*id)),
            Step::Poststop { id } => {
                let alive = &self.alive;
                let freed = release(&mut self.leases, &container(*id), |lease| Ok(alive.contains(lease)));
                assert!(freed.is_ok());
            }
            Step::Edit { cuts } => self.table = table(cuts),
            Step::Break { gpu } => self.unusable = gpu.iter().map(|gpu| uuid(*gpu)).collect(),
        }
    }

    fn give(&mut self, lease: Lease, want: &Want) -> vgpu::error::Result<Given> {
        let unusable = &self.unusable;
        let is_usable = |gpu: &Gpu| !unusable.contains(&gpu.uuid);
        let offer = Offer { table: &self.table, is_usable, policy: &self.policy };
        let alive = &self.alive;
        give(&mut self.leases, lease, want, &offer, |leases| {
            leases.retain(|lease| alive.contains(lease));
            Ok(())
        })
    }

    fn start(&mut self, id: usize, count: u32, k: Option<usize>) {
        self.next_pid += 1;
        let lease = fresh(id, self.next_pid);
        let before = k.map(|k| [&self.leases, &self.alive].map(|leases| self.could_give(&kind(k), leases)));
        let kinds = k.map_or_else(|| (0..3).map(kind).collect(), |k| vec![kind(k)]);
        let want = Want { count: count.to_string().parse().unwrap(), kinds };
        match self.give(lease, &want) {
            Ok(Given::New(lease)) => {
                self.check_given(&lease, &want);
                if let Some([beside_all, beside_the_living]) = before {
                    // The dead are looked for only when there is not enough beside them.
                    let enough = beside_all.iter().sum::<u64>() >= u64::from(count);
                    let could = if enough { beside_all } else { beside_the_living };
                    let gpus: std::collections::BTreeSet<_> =
                        lease.vgpus.iter().map(|held| &held.id.gpu).collect();
                    let most = could.iter().filter(|n| **n > 0).count().min(count as usize);
                    assert_eq!(gpus.len(), most, "on as many GPUs as possible");
                }
                self.alive.push(lease);
            }
            Ok(Given::Again(_)) => panic!("a new run was taken for an old one"),
            Err(e) => {
                assert_eq!(e.exit, Exit::NoneFree);
                if let [kind] = &want.kinds[..] {
                    let could: u64 = self.could_give(kind, &self.alive).iter().sum();
                    assert!(
                        could < u64::from(count),
                        "refused {count} of {kind} while {could} could be given"
                    );
                }
            }
        }
    }

    /// P2 and the choice itself: as many as asked for, of the type, as the table has them.
    fn check_given(&self, lease: &Lease, want: &Want) {
        let count = want.count.get() as usize;
        assert_eq!(lease.vgpus.len(), count);
        for held in &lease.vgpus {
            assert!(want.kinds.contains(&held.id.kind));
            assert!(!self.unusable.contains(&held.id.gpu));
            let cut = self.table.gpus.iter().flat_map(|cut| &cut.vgpus);
            assert!(
                cut.clone().any(|v| (&v.id, v.memory, v.compute) == (&held.id, held.memory, held.compute))
            );
        }
    }

    /// Per GPU, how many of a type an ideal pool could give beside these leases, counted by hand.
    fn could_give(&self, kind: &TypeName, leases: &[Lease]) -> Vec<u64> {
        let usable = self.table.gpus.iter().filter(|cut| !self.unusable.contains(&cut.gpu.uuid));
        let per_gpu = usable.map(|cut| {
            let held = || leases.iter().flat_map(|lease| &lease.vgpus);
            let here = || held().filter(|held| held.id.gpu == cut.gpu.uuid);
            let memory = GPU_MEMORY - here().map(|held| held.memory.0).sum::<u64>();
            let compute = 100 - here().map(|held| held.compute.map_or(0, Percent::get)).sum::<u32>();
            let idle = cut.vgpus.iter().filter(|v| v.id.kind == *kind && held().all(|held| held.id != v.id));
            let idle: Vec<_> = idle.collect();
            let Some(one) = idle.first() else { return 0 };
            let fit = (memory / one.memory.0).min(u64::from(compute / one.compute.unwrap().get()));
            fit.min(idle.len() as u64)
        });
        per_gpu.collect()
    }

    fn ask_again(&mut self, id: usize) {
        let Some(running) = self.alive.iter().find(|lease| lease.container == container(id)).cloned() else {
            return;
        };
        let mut question = running.clone();
        question.vgpus.clear();
        let want = Want { count: "1".parse().unwrap(), kinds: vec![kind(0)] };
        assert_eq!(self.give(question, &want), Ok(Given::Again(running)));
    }

    fn check(&self) {
        let held: Vec<&Held> = self.leases.iter().flat_map(|lease| &lease.vgpus).collect();
        for (n, one) in held.iter().enumerate() {
            assert!(held[n + 1..].iter().all(|other| other.id != one.id), "P1: {} leased twice", one.id);
        }
        for gpu in 0..4 {
            let here = || held.iter().filter(|held| held.id.gpu == uuid(gpu));
            assert!(here().map(|held| held.memory.0).sum::<u64>() <= GPU_MEMORY, "P4: memory of GPU {gpu}");
            assert!(
                here().map(|held| held.compute.map_or(0, Percent::get)).sum::<u32>() <= 100,
                "P4: compute of GPU {gpu}"
            );
        }
        for lease in &self.alive {
            assert!(self.leases.contains(lease), "a living container lost its lease");
        }
    }
}

fn container(id: usize) -> vgpu::types::ContainerId {
    format!("c{id}").parse().unwrap()
}

fn fresh(id: usize, pid: u32) -> Lease {
    Lease {
        container: container(id),
        bundle: "/b".into(),
        cgroup: CgroupId {
            hierarchy: Hierarchy::V2,
            path: format!("/c{id}").parse().unwrap(),
            inode: u64::from(pid),
        },
        pid,
        start_time: u64::from(pid),
        since: jiff::Timestamp::UNIX_EPOCH,
        vgpus: Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_keeps_the_promises(
        cuts in proptest::collection::vec(cut(), 1..4),
        steps in proptest::collection::vec(step(), 1..60),
        spread in any::<bool>(),
    ) {
        let policy = Policy {
            placement: if spread { Placement::Spread } else { Placement::Pack },
            lock_timeout: std::time::Duration::from_secs(10),
            overcommit: false,
            allow_other_access: false,
        };
        let mut host = Host {
            policy, table: table(&cuts), unusable: vec![], leases: vec![], alive: vec![], next_pid: 0,
        };
        for step in &steps {
            host.apply(step);
            host.check();
        }
    }
}

/// The MIG devices of a GPU: in which of its places there is one, and of which type; which UUID is in the first place,
/// the others follow. So a device that is made anew in a place has the same UUID as the one before, or another's, and a
/// device can have another type's name.
type Layout = (u32, Vec<Option<usize>>);

fn layout() -> impl Strategy<Value = Layout> {
    (0..6_u32, proptest::collection::vec(proptest::option::of(0..2_usize), 4))
}

fn in_mig_mode(layouts: &[Layout]) -> Table {
    let vgpu = |g: usize, gi: u32, first: u32, k: usize| Vgpu {
        id: VgpuId { gpu: uuid(g), kind: kind(k), part: Part::Mig(MigInstance { gi, ci: 0 }) },
        memory: Bytes(10 * GIB),
        compute: None,
        isolation: Isolation::None,
        mig: Some(MigDevice {
            uuid: format!("MIG-00000000-0000-0000-0000-0000000000{g}{}", (first + gi) % 6).parse().unwrap(),
            instance: MigInstance { gi, ci: 0 },
            profile: "1g.10gb".parse().unwrap(),
            memory: Bytes(10 * GIB),
        }),
    };
    let gpus = layouts.iter().enumerate().map(|(g, (first, kinds))| {
        let vgpus = (0..).zip(kinds).filter_map(|(gi, k)| Some(vgpu(g, gi, *first, (*k)?)));
        let vgpus: Vec<Vgpu> = vgpus.collect();
        let mig = Some(vgpus.iter().filter_map(|vgpu| vgpu.mig.clone()).collect());
        CutGpu { gpu: Gpu { mig, ..gpu(g) }, vgpus }
    });
    Table { gpus: gpus.collect(), absent: Vec::new() }
}

#[derive(Clone, Debug)]
enum MigStep {
    Start { count: u32, kind: usize },
    Die { nth: usize },
    Change(Vec<Layout>),
    LeaveMigMode,
}

fn mig_step() -> impl Strategy<Value = MigStep> {
    prop_oneof![
        6 => (1..4_u32, 0..2_usize).prop_map(|(count, kind)| MigStep::Start { count, kind }),
        3 => (0..8_usize).prop_map(|nth| MigStep::Die { nth }),
        2 => proptest::collection::vec(layout(), 1..3).prop_map(MigStep::Change),
        1 => Just(MigStep::LeaveMigMode),
    ]
}

/// Can one not be given while the other is held? A MIG device is one UUID and one place; and a share and a MIG device
/// of one GPU are from before and after it was put into MIG mode, or out of it.
fn excludes(one: &Held, other: &Held) -> bool {
    let device = one.mig.is_some() && one.mig == other.mig;
    let mode = one.mig.is_some() != other.mig.is_some();
    one.id.gpu == other.id.gpu && (device || mode || one.id.part == other.id.part)
}

/// A host on which MIG layouts change, and, beside what is recorded, the truth about who is alive.
#[derive(Default)]
struct MigHost {
    table: Table,
    leases: Vec<Lease>,
    alive: Vec<Lease>,
    next_pid: u32,
}

impl MigHost {
    fn apply(&mut self, step: &MigStep) {
        match step {
            MigStep::Change(layouts) => self.table = in_mig_mode(layouts),
            MigStep::LeaveMigMode => self.table = two_gpus(),
            MigStep::Die { nth } if *nth < self.alive.len() => drop(self.alive.remove(*nth)),
            MigStep::Die { .. } => {}
            MigStep::Start { count, kind } => self.start(*count, *kind),
        }
    }

    fn start(&mut self, count: u32, k: usize) {
        let policy = Policy {
            placement: Placement::Pack,
            lock_timeout: std::time::Duration::ZERO,
            overcommit: false,
            allow_other_access: false,
        };
        self.next_pid += 1;
        let lease = fresh(self.next_pid as usize, self.next_pid);
        let want = Want { count: count.to_string().parse().unwrap(), kinds: vec![kind(k)] };
        let offer = Offer { table: &self.table, is_usable: |_: &Gpu| true, policy: &policy };
        let alive = &self.alive;
        let given = give(&mut self.leases, lease, &want, &offer, |leases| {
            leases.retain(|lease| alive.contains(lease));
            Ok(())
        });
        let taken = |one: &Held| alive.iter().flat_map(|lease| &lease.vgpus).any(|held| excludes(one, held));
        let here = self.table.gpus.iter().flat_map(|cut| &cut.vgpus);
        match given {
            Ok(Given::New(lease)) => {
                assert_eq!(lease.vgpus.len(), count as usize);
                assert!(lease.vgpus.iter().all(|one| here.clone().any(|vgpu| one.is(vgpu))));
                assert!(!lease.vgpus.iter().any(taken), "{lease:?} beside {alive:?}");
                self.alive.push(lease);
            }
            Ok(Given::Again(_)) => panic!("a new run was taken for an old one"),
            Err(_) => {
                let mig = here.filter(|vgpu| vgpu.id.kind == kind(k) && vgpu.mig.is_some());
                let free = mig.map(Held::from).filter(|one| !taken(one)).count();
                assert!(free < count as usize, "refused {count} while {free} could be given");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever an admin makes of the layout: nobody is given a MIG device, or one in its place, that another container
    /// can reach; and what can be given is.
    #[test]
    fn a_mig_device_is_one_containers(
        layouts in proptest::collection::vec(layout(), 1..3),
        steps in proptest::collection::vec(mig_step(), 1..60),
    ) {
        let mut host = MigHost { table: in_mig_mode(&layouts), ..MigHost::default() };
        steps.iter().for_each(|step| host.apply(step));
    }
}

fn two_gpus() -> Table {
    table(&[[(4, 10, 25), (0, 1, 1), (0, 1, 1)]; 2])
}

fn choose(placement: Placement, leases: &[Lease], table: &Table, count: &str) -> Vec<String> {
    let policy = Policy {
        placement,
        lock_timeout: std::time::Duration::ZERO,
        overcommit: false,
        allow_other_access: false,
    };
    let offer = Offer { table, is_usable: |_: &Gpu| true, policy: &policy };
    let want = Want { count: count.parse().unwrap(), kinds: vec![kind(0)] };
    let chosen = offer.choose(leases, &want).unwrap();
    let short = |held: &Held| format!("{}:{}", held.id.gpu.as_str().chars().last().unwrap(), held.id.part);
    chosen.iter().map(short).collect()
}

fn holding(table: &Table, vgpus: &[(usize, usize)]) -> Lease {
    let held = vgpus.iter().map(|(gpu, n)| Held::from(&table.gpus[*gpu].vgpus[*n]));
    Lease { vgpus: held.collect(), ..fresh(7, 99) }
}

#[test]
fn the_vgpus_of_one_container_go_to_different_gpus() {
    for placement in [Placement::Pack, Placement::Spread] {
        assert_eq!(choose(placement, &[], &two_gpus(), "3"), ["0:0", "1:0", "0:1"]);
    }
}

#[test]
fn pack_fills_a_gpu_before_it_opens_the_next() {
    let table = two_gpus();
    let busy = [holding(&table, &[(1, 0)])];
    assert_eq!(choose(Placement::Pack, &busy, &table, "1"), ["1:1"]);
    assert_eq!(choose(Placement::Spread, &busy, &table, "1"), ["0:0"]);
}

#[test]
fn what_the_pool_file_no_longer_knows_still_counts() {
    let old = table(&[[(2, 15, 50), (0, 1, 1), (0, 1, 1)]]);
    let retired = [holding(&old, &[(0, 0), (0, 1)])];
    let new = table(&[[(0, 1, 1), (4, 10, 25), (0, 1, 1)]]);
    let policy = |overcommit| Policy {
        placement: Placement::Pack,
        lock_timeout: std::time::Duration::ZERO,
        overcommit,
        allow_other_access: false,
    };
    let want = Want { count: "1".parse().unwrap(), kinds: vec![kind(1)] };
    let refusal =
        Offer { table: &new, is_usable: |_: &Gpu| true, policy: &policy(false) }.choose(&retired, &want);
    let refusal = refusal.unwrap_err().to_string();
    assert!(
        refusal.contains("free: 0 large; idle, but without room beside what is leased on the same GPU: 4"),
        "{refusal}"
    );
    assert!(
        Offer { table: &new, is_usable: |_: &Gpu| true, policy: &policy(true) }
            .choose(&retired, &want)
            .is_ok()
    );
}

/// One of two fits beside what is held, and not both: one is free.
#[test]
fn what_fits_alone_and_not_together_is_not_free() {
    let old = table(&[[(1, 10, 25), (0, 1, 1), (0, 1, 1)]]);
    let holder = [holding(&old, &[(0, 0)])];
    let new = table(&[[(0, 1, 1), (2, 20, 50), (0, 1, 1)]]);
    let room = |overcommit| {
        let ids = with_room(&new.gpus[0], &holder, overcommit).into_iter().map(|vgpu| vgpu.id.to_string());
        ids.filter(|id| id.contains("/large/")).count()
    };
    assert_eq!((room(false), room(true)), (1, 2));
    let policy = Policy {
        placement: Placement::Pack,
        lock_timeout: std::time::Duration::ZERO,
        overcommit: false,
        allow_other_access: false,
    };
    let want = Want { count: "2".parse().unwrap(), kinds: vec![kind(1)] };
    let refusal =
        Offer { table: &new, is_usable: |_: &Gpu| true, policy: &policy }.choose(&holder, &want).unwrap_err();
    let said = "free: 1 large; idle, but without room beside what is leased on the same GPU: 1";
    assert!(refusal.to_string().contains(said), "{refusal}");
}

#[test]
fn a_refusal_says_what_is_free_and_who_holds_the_rest() {
    let table = two_gpus();
    let leases = [Lease { container: "web".parse().unwrap(), ..holding(&table, &[(0, 0), (0, 1), (1, 0)]) }];
    let policy = Policy {
        placement: Placement::Pack,
        lock_timeout: std::time::Duration::ZERO,
        overcommit: false,
        allow_other_access: false,
    };
    let unusable = [uuid(1)];
    let is_usable = |gpu: &Gpu| !unusable.contains(&gpu.uuid);
    let offer = Offer { table: &table, is_usable, policy: &policy };
    let want = Want { count: "3".parse().unwrap(), kinds: vec![kind(0)] };
    assert_eq!(
        offer.choose(&leases, &want).unwrap_err().to_string(),
        format!(
            "no free vGPU: asked for 3 of type small; free: 2 small; unusable: {}; held by web (3); \
             see `vgpu status`, or stop one of them",
            uuid(1)
        )
    );
}
