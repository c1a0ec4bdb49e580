//! A vGPU has one holder, however many ask at once and whoever is killed meanwhile, and none is lost (P1).
//! The lock around the pool goes with its holder, and nobody waits for one that is stuck (R18).

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use common::command::program;
use common::container::Container;
use common::host::{Gpu, Host};
use common::parked::{Lot, Parked};
use common::runtime::{Runtime, Step};
use common::seed::{Seed, say};
use common::strace;
use common::view::Cgroups;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::Value;

/// How many vGPUs there are, and how many containers ask for one at once.
const POOL: usize = 16;
const ASKING: usize = 64;

/// How often.
const ROUNDS: usize = 4;

/// Four GPUs, each cut into four. So long does a hook wait for the lock.
fn host(cgroups: Cgroups, lock_timeout: &str) -> Host {
    let host = Host::builder(cgroups).gpus(Gpu::several(4)).build();
    let entry = |gpu: &Gpu| format!("[[gpu]]\nuuid = {:?}\nvgpus = {{ quarter = 4 }}\n", gpu.uuid);
    let gpus: String = host.gpus.iter().map(entry).collect();
    host.write_pool(&format!(
        "[policy]\nlock_timeout = \"{lock_timeout}\"\n\
         [[type]]\nname = \"quarter\"\nmemory = \"10GiB\"\ncompute = 25\n{gpus}"
    ));
    host
}

/// For a machine that has much else to do.
const PATIENT: &str = "60s";
const IMPATIENT: &str = "20ms";

/// The vGPUs of a `lease.json`, which is that of this container.
fn told(lease: &Path, id: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(lease).unwrap_or_else(|e| panic!("{}: {e}", lease.display()));
    let lease: Value = serde_json::from_str(&text).expect("lease.json");
    assert_eq!(lease["container"], id);
    texts(lease["vgpus"].as_array().expect("vgpus").iter().map(|vgpu| &vgpu["id"]))
}

fn texts<'v>(values: impl Iterator<Item = &'v Value>) -> BTreeSet<String> {
    values.map(|value| value.as_str().expect("text").to_owned()).collect()
}

/// What each container holds, as `vgpu status` says it. No vGPU is held twice.
fn held(host: &Host) -> BTreeMap<String, BTreeSet<String>> {
    let status = host.status();
    let mut held = BTreeMap::new();
    let mut all = BTreeSet::new();
    for lease in status["leases"].as_array().expect("leases") {
        let vgpus = texts(lease["vgpus"].as_array().expect("vgpus").iter());
        for vgpu in &vgpus {
            assert!(all.insert(vgpu.clone()), "{vgpu} is leased twice: {status}");
        }
        let id = lease["container"].as_str().expect("an id").to_owned();
        assert_eq!(held.insert(id, vgpus), None, "two leases of one container: {status}");
    }
    let listed = status["gpus"].as_array().expect("gpus").iter();
    let listed = listed.flat_map(|gpu| gpu["vgpus"].as_array().expect("vgpus"));
    assert_eq!(texts(listed.filter(|vgpu| !vgpu["lease"].is_null()).map(|vgpu| &vgpu["id"])), all);
    held
}

/// Those that started, and no others, hold one vGPU each, and what they were told is what the pool says.
fn assert_one_holder_each(host: &Host, started: impl Iterator<Item = (String, BTreeSet<String>)>) {
    let started: BTreeMap<_, _> = started.collect();
    assert!(started.values().all(|vgpus| vgpus.len() == 1), "{started:?}");
    assert_eq!(held(host), started);
}

/// Sixty-four real containers, created at once.
fn real_containers_at_once(cgroups: Cgroups, runtime: Runtime, rounds: usize) {
    let host = host(cgroups, PATIENT);
    let containers = containers(&host, runtime, |_| Vec::new());
    for _ in 0..rounds {
        let (started, refused) = create_at_once(&containers);
        assert_eq!(started.len(), POOL);
        for container in refused {
            let said = container.hook_stderr("createRuntime");
            assert_eq!(container.hook_codes("createRuntime").last(), Some(&75), "{said}");
        }
        started.iter().for_each(|container| drop(container.start().ok()));
        assert_one_holder_each(&host, started.iter().map(|container| of_running(container)));
        started.iter().for_each(|container| drop(container.delete_force().ok()));
        assert_eq!(held(&host), BTreeMap::new());
    }
}

/// Containers that ask for one vGPU each, on one root file system. Their hooks are run under `prefix`.
fn containers<'h>(
    host: &'h Host,
    runtime: Runtime,
    mut prefix: impl FnMut(usize) -> Vec<String>,
) -> Vec<Container<'h>> {
    let root = host.container(runtime).no_hooks().build().root().to_owned();
    let container = |n| {
        let prefix = prefix(n);
        let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
        let container = host.container(runtime).annotation("vgpu.count", "1").on_root(&root);
        container.hooks_under(&prefix).recorded().build()
    };
    (0..ASKING).map(container).collect()
}

/// Those that were created, and the others.
fn create_at_once<'c, 'h>(
    containers: &'c [Container<'h>],
) -> (Vec<&'c Container<'h>>, Vec<&'c Container<'h>>) {
    let creating: Vec<_> = containers.iter().map(|container| container.spawn_step(Step::Create)).collect();
    let codes: Vec<_> = creating.into_iter().map(|create| create.wait().code).collect();
    let mut codes = codes.into_iter();
    containers.iter().partition(|_| codes.next() == Some(Some(0)))
}

fn of_running(container: &Container) -> (String, BTreeSet<String>) {
    let lease = format!("/proc/{}/root/dev/vgpu/lease.json", container.pid());
    (container.id().to_owned(), told(Path::new(&lease), container.id()))
}

/// The same with hooks that are killed while they work, each at a moment of its own.
fn real_containers_whose_hooks_are_killed(cgroups: Cgroups, runtime: Runtime) {
    let host = host(cgroups, PATIENT);
    let mut seed = Seed::new(&format!("exclusive, {runtime:?} {cgroups:?}"));
    let timeout = program("timeout").to_str().expect("UTF-8").to_owned();
    let containers = containers(&host, runtime, |n| {
        let limit = moment(&mut seed).as_secs_f64().to_string();
        if n % 2 == 0 { Vec::new() } else { [&*timeout, "--signal=KILL", &limit].map(str::to_owned).into() }
    });
    let (started, failed) = create_at_once(&containers);
    let code = |container: &&Container| container.hook_codes("createRuntime").last().copied();
    let (killed, refused): (Vec<_>, Vec<_>) = failed.into_iter().partition(|c| code(c) == Some(137));
    for container in refused {
        assert_eq!(code(&container), Some(75), "{}", container.hook_stderr("createRuntime"));
    }
    say(&format!("exclusive, {runtime:?} {cgroups:?}: {} hooks of {ASKING} killed", killed.len()));
    started.iter().for_each(|container| drop(container.start().ok()));

    // The others' vGPUs are there for whoever comes next.
    let root = containers[0].root();
    let next = || host.container(runtime).annotation("vgpu.count", "1").on_root(root).build();
    let next: Vec<_> = (0..POOL).map(|_| next()).collect();
    let (served, _) = create_at_once(&next);
    assert_eq!(started.len() + served.len(), POOL);
    served.iter().for_each(|container| drop(container.start().ok()));
    assert_one_holder_each(&host, started.iter().chain(&served).map(|container| of_running(container)));
}

/// Containers without a runtime, whose hooks are run by the test: more rounds in less time.
struct Crowd<'h> {
    host: &'h Host,
    lot: Lot<'h>,
    seed: Seed,
    made: usize,
}

/// How the hooks of some containers ended.
#[derive(Default)]
struct Ended<'h> {
    started: Vec<Parked<'h>>,
    refused: Vec<Parked<'h>>,
    killed: Vec<Parked<'h>>,
}

impl<'h> Crowd<'h> {
    fn new(host: &'h Host, test: &str) -> Self {
        let seed = Seed::new(&format!("exclusive, {test} {:?}", host.view().cgroups()));
        Self { host, lot: Lot::new(host, 1), seed, made: 0 }
    }

    fn gather(&mut self, count: usize) -> Vec<Parked<'h>> {
        let made = self.made;
        self.made += count;
        (made..made + count).map(|n| self.lot.park(&format!("p{n}"))).collect()
    }

    /// All of them ask at once, and nobody is killed.
    fn ask(&self, crowd: Vec<Parked<'h>>) -> Ended<'h> {
        self.ask_and_kill(crowd, &[])
    }

    /// Nobody gets the lock before all have been started. Then some are killed, each at its moment.
    fn ask_and_kill(&self, crowd: Vec<Parked<'h>>, doomed: &[(Duration, usize)]) -> Ended<'h> {
        let lock = File::create(self.host.state_dir().join("lock")).expect("the lock");
        flock(&lock, FlockOperation::LockExclusive).expect("flock");
        let hooks: Vec<_> = crowd.iter().map(|container| container.hook("createRuntime")).collect();
        drop(lock);
        let begin = Instant::now();
        for (moment, n) in doomed {
            // Chance, not an order of events: one that has ended already is as good.
            std::thread::sleep(moment.saturating_sub(begin.elapsed()));
            hooks[*n].signal(Signal::KILL);
        }
        let mut ended = Ended::default();
        for (container, hook) in crowd.into_iter().zip(hooks) {
            let output = hook.wait();
            match output.code {
                Some(0) => ended.started.push(container),
                Some(75) => ended.refused.push(container),
                None => ended.killed.push(container),
                _ => panic!("{output}"),
            }
        }
        ended
    }

    fn assert_one_holder_each<'c>(&self, started: impl Iterator<Item = &'c Parked<'h>>)
    where
        'h: 'c,
    {
        let told = |c: &Parked| (c.id.clone(), told(&c.root().join("dev/vgpu/lease.json"), &c.id));
        assert_one_holder_each(self.host, started.map(told));
    }

    /// Ends containers. Whether poststop is called then is left to chance.
    fn end(&mut self, containers: impl IntoIterator<Item = Parked<'h>>) {
        for container in containers {
            container.end();
            if self.seed.below(2) == 0 {
                container.hook("poststop").wait().ok();
            }
        }
    }
}

fn parked_containers_at_once(cgroups: Cgroups) {
    let host = host(cgroups, PATIENT);
    let mut crowd = Crowd::new(&host, "at once");
    let mut asking = crowd.gather(ASKING);
    for _ in 0..ROUNDS {
        let Ended { started, refused, .. } = crowd.ask(asking);
        assert_eq!(started.len(), POOL);
        crowd.assert_one_holder_each(started.iter());
        crowd.end(started);
        asking = refused;
        asking.extend(crowd.gather(POOL));
    }
}

fn hooks_killed_at_random_moments(cgroups: Cgroups) {
    let host = host(cgroups, PATIENT);
    let mut crowd = Crowd::new(&host, "killed");
    let mut asking = Vec::new();
    let mut hit = 0;
    for _ in 0..ROUNDS {
        asking.extend(crowd.gather(ASKING - asking.len()));
        let doomed = doomed(&mut crowd.seed);
        let Ended { started, refused, killed } = crowd.ask_and_kill(asking, &doomed);
        hit += killed.len();
        // What a runtime does with a container whose hook was killed.
        killed.iter().for_each(Parked::end);

        let next = crowd.gather(POOL);
        let next = crowd.ask(next);
        assert_eq!(started.len() + next.started.len(), POOL);
        crowd.assert_one_holder_each(started.iter().chain(&next.started));
        crowd.end(started.into_iter().chain(next.started));
        asking = refused;
        asking.extend(next.refused);
    }
    say(&format!("exclusive, killed {cgroups:?}: {hit} hooks of {}", ROUNDS * ASKING));
    assert_ne!(hit, 0);
}

/// About half of them, and when, in order of time.
fn doomed(seed: &mut Seed) -> Vec<(Duration, usize)> {
    let chosen: Vec<_> = (0..ASKING).filter(|_| seed.below(2) == 0).collect();
    let mut doomed: Vec<_> = chosen.into_iter().map(|n| (moment(seed), n)).collect();
    doomed.sort_unstable();
    doomed
}

/// From a fifth of a millisecond to 400, and short ones as often as long ones: how long a hook takes is not known.
fn moment(seed: &mut Seed) -> Duration {
    let scale = 200 << seed.below(11);
    Duration::from_micros((scale + seed.below(scale)) as u64)
}

fn a_stuck_holder_of_the_lock(cgroups: Cgroups) {
    let host = host(cgroups, IMPATIENT);
    let lot = Lot::new(&host, 1);
    let [before, stuck, other] = ["before", "stuck", "other"].map(|id| lot.park(id));
    before.hook("createRuntime").wait().ok();
    let (hook, pid) = strace::stopped_at(&host, "createRuntime", &stuck.created(), "flock", 1);
    assert_eq!(pid, hook.pid());

    let named = format!("is held by process {pid} for longer than 20ms");
    let refused = other.hook("createRuntime").wait().exits(75);
    assert!(refused.stderr.contains(&named), "{refused}");
    // Who only reads does not wait.
    assert_eq!(held(&host).len(), 1);
    before.end();
    let refused = before.hook("poststop").wait().exits(75);
    assert!(refused.stderr.contains(&named), "{refused}");

    strace::send(pid, Signal::KILL);
    hook.wait();
    other.hook("createRuntime").wait().ok();
    before.hook("poststop").wait().ok();
    assert_eq!(held(&host).into_keys().collect::<Vec<_>>(), ["other"]);
}

fn a_holder_of_the_lock_that_goes_on(cgroups: Cgroups) {
    let host = host(cgroups, IMPATIENT);
    let lot = Lot::new(&host, 1);
    let [stuck, other] = ["stuck", "other"].map(|id| lot.park(id));
    let (hook, pid) = strace::stopped_at(&host, "createRuntime", &stuck.created(), "flock", 1);
    other.hook("createRuntime").wait().exits(75);
    strace::send(pid, Signal::CONT);
    hook.wait().ok();
    other.hook("createRuntime").wait().ok();
    assert_eq!(held(&host).into_keys().collect::<Vec<_>>(), ["other", "stuck"]);
}

/// What is done inside a container is done without the lock, and no process that does it has it.
fn a_hook_that_is_stuck_in_its_container(cgroups: Cgroups) {
    let host = host(cgroups, IMPATIENT);
    let lot = Lot::new(&host, 1);
    let [stuck, other] = ["stuck", "other"].map(|id| lot.park(id));
    let (hook, child) = strace::stopped_at(&host, "createRuntime", &stuck.created(), "setns", 1);
    assert_ne!(child, hook.pid());
    other.hook("createRuntime").wait().ok();
    strace::send(hook.pid(), Signal::KILL);
    hook.wait();
    lot.park("third").hook("createRuntime").wait().ok();
    assert_eq!(held(&host).into_keys().collect::<Vec<_>>(), ["other", "stuck", "third"]);
}

on_v1_and_v2! {
    fn runc_at_once = |cgroups| real_containers_at_once(cgroups, Runtime::Runc, 2);
    fn crun_at_once = |cgroups| real_containers_at_once(cgroups, Runtime::Crun, 2);
    fn crun_with_killed_hooks = |cgroups| real_containers_whose_hooks_are_killed(cgroups, Runtime::Crun);
    fn parked_at_once = parked_containers_at_once;
    fn parked_with_killed_hooks = hooks_killed_at_random_moments;
    fn lock_of_a_stuck_hook = a_stuck_holder_of_the_lock;
    fn lock_of_a_hook_that_goes_on = a_holder_of_the_lock_that_goes_on;
    fn lock_and_a_stuck_child = a_hook_that_is_stuck_in_its_container;
}
