//! The hook process alone, beside `/bin/true`, and the memory it takes.

use std::fs;
use std::time::Duration;

use vgpu::cgroup::CgroupId;
use vgpu::config;
use vgpu::pool::Lease;
use vgpu::pool::store::StateDir;
use vgpu::types::Part;

use crate::VGPU;
use crate::common::driver;
use crate::common::host::{DRIVER, Gpu, Host};
use crate::common::view::Cgroups;
use crate::parked::{Inside, Parked, text};
use crate::spawn::timed;
use crate::turns::{Candidate, compare};

/// How often each is measured.
const ROUNDS: usize = 400;

/// GPUs of the host, each cut into four.
const GPUS: u32 = 8;

/// Other containers that hold one vGPU each.
const OTHERS: u32 = 16;

/// Prints how long the hook takes and how much memory.
pub fn print(cgroups: Cgroups, version: &str) {
    let host = Host::builder(cgroups).gpus(Gpu::several(GPUS)).pool(pool_file()).build();
    // As /run is.
    host.view().run(&["mount", "-t", "tmpfs", "-o", "mode=755", "none", text(&host.state_dir())]).ok();
    driver::install_all(&host.driver_root(), DRIVER);
    host.vgpu(&["discover"]).ok();
    let bench = Bench::new(&host);
    let _view = Inside::enter(&host.view().namespace());
    let candidates = vec![
        Candidate::new("/bin/true", || bench.nothing()),
        Candidate::new("/bin/true again", || bench.nothing()),
        Candidate::new("createRuntime, no request", || bench.create_without_request()).aim(0.6),
        Candidate::new("createRuntime, two vGPUs", || bench.create()).aim(3.0),
        Candidate::new("poststop, no request", || bench.poststop_without_request()).aim(1.0),
        Candidate::new("poststop, two vGPUs", || bench.poststop()).aim(1.0),
    ];
    compare(&format!("The hook alone, container parked by runc, cgroup {version}"), ROUNDS, candidates);
    bench.print_memory();
}

/// The pool file that comes with vgpu, but for the directories, which the host has its own of.
fn pool_file() -> String {
    let own = |line: &&str| !line.starts_with("state_dir") && !line.starts_with("driver_root");
    config::SAMPLE.lines().filter(own).map(|line| format!("{line}\n")).collect()
}

/// Each of its calls finds the same: the container as runc left it, and the pool.
struct Bench<'h> {
    host: &'h Host,
    parked: Parked<'h>,
    pool: String,
    /// Leases of other containers.
    others: Vec<Lease>,
    /// Those, and that of the parked container as if that were gone.
    ended: Vec<Lease>,
}

impl<'h> Bench<'h> {
    fn new(host: &'h Host) -> Self {
        let parked = Parked::new(host);
        host.run_hook("createRuntime", &parked.state).ok();
        parked.undo();
        let own = leases(host).remove(0);
        let others = others(&own);
        let path = format!("/{}/gone", host.name()).parse().expect("a path");
        let cgroup = CgroupId { path, ..own.cgroup.clone() };
        let ended = others.iter().cloned().chain([Lease { cgroup, ..own }]).collect();
        Self { host, parked, pool: host.pool_file(), others, ended }
    }

    fn nothing(&self) -> Duration {
        timed(&["/bin/true"], &self.parked.state)
    }

    fn create_without_request(&self) -> Duration {
        self.hook("createRuntime", &self.parked.state_without_request)
    }

    fn create(&self) -> Duration {
        self.set_leases(&self.others);
        let took = self.hook("createRuntime", &self.parked.state);
        assert_eq!(leases(self.host).len(), self.others.len() + 1);
        self.parked.undo();
        took
    }

    fn poststop_without_request(&self) -> Duration {
        self.hook("poststop", &self.parked.state_without_request)
    }

    fn poststop(&self) -> Duration {
        self.set_leases(&self.ended);
        let took = self.hook("poststop", &self.parked.state_stopped);
        assert_eq!(leases(self.host), self.others);
        took
    }

    fn hook(&self, stage: &str, state: &str) -> Duration {
        timed(&[VGPU, "--config", &self.pool, "hook", stage], state)
    }

    fn set_leases(&self, leases: &[Lease]) {
        let dir = state_dir(self.host);
        let mut locked = dir.lock(Duration::ZERO).expect("the lock");
        locked.leases = leases.to_vec();
        locked.save().expect("saved");
    }

    /// The largest resident set of the hook or of its child, as the kernel accounts it.
    fn print_memory(&self) {
        let peak = self.host.dir().join("peak");
        let of = |state: &str| {
            let time = ["/usr/bin/time", "-f", "%M", "-o", text(&peak)];
            timed(&[&time[..], &[VGPU, "--config", &self.pool, "hook", "createRuntime"]].concat(), state);
            fs::read_to_string(&peak).expect("a peak").trim().parse::<f64>().expect("KiB") / 1024.0
        };
        let without = of(&self.parked.state_without_request);
        self.set_leases(&self.others);
        let with = of(&self.parked.state);
        self.parked.undo();
        println!("Peak memory: {without:.1} MiB without a request, {with:.1} MiB with one (aim: 5.0)");
    }
}

fn state_dir(host: &Host) -> StateDir {
    StateDir::open(&host.view().path(host.state_dir())).expect("state_dir").expect("it is there")
}

fn leases(host: &Host) -> Vec<Lease> {
    state_dir(host).peek().expect("leases")
}

/// Leases like this one, of other containers, spread over the GPUs: each has one vGPU.
fn others(own: &Lease) -> Vec<Lease> {
    let gpus = Gpu::several(GPUS);
    let other = |n: u32| {
        let mut lease = own.clone();
        lease.container = format!("{n:064x}").parse().expect("an id");
        lease.cgroup.inode += u64::from(n) + 1;
        lease.vgpus.truncate(1);
        let id = &mut lease.vgpus[0].id;
        id.gpu = gpus[(n % GPUS) as usize].uuid.parse().expect("a UUID");
        id.part = Part::Share(n / GPUS);
        lease
    };
    (0..OTHERS).map(other).collect()
}
