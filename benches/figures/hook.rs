//! The hook process alone, beside `/bin/true`, and what memory it takes.

use std::fs;

use vgpu::cgroup::CgroupId;
use vgpu::config;
use vgpu::pool::Lease;
use vgpu::pool::store::StateDir;

use crate::VGPU;
use crate::common::driver;
use crate::common::host::{DRIVER, Gpu, Host};
use crate::common::view::Cgroups;
use crate::parked::{Inside, Parked, text};
use crate::series::{self, Series};
use crate::spawn::timed;

/// How often each is measured.
const ROUNDS: usize = 400;

/// GPUs of the host, each cut into four.
const GPUS: u32 = 8;

/// Other containers that hold one vGPU each.
const OTHERS: u32 = 16;

/// Prints how long the hook takes and how much memory.
pub fn print(cgroups: Cgroups) {
    let host = Host::builder(cgroups).gpus(Gpu::several(GPUS)).pool(pool_file()).build();
    // As /run is.
    host.view().run(&["mount", "-t", "tmpfs", "-o", "mode=755", "none", text(&host.state_dir())]).ok();
    driver::install_all(&host.driver_root(), DRIVER);
    host.vgpu(&["discover"]).ok();
    let bench = Bench::new(&host);
    let _view = Inside::enter(&host.view().namespace());

    let mut all = series();
    for round in 0..ROUNDS {
        for at in series::order(all.len(), round) {
            let took = bench.run(at);
            all[at].push(took);
        }
    }
    let title = format!("The hook alone, container parked by runc, cgroup {cgroups:?}");
    series::print(&title, &all);
    bench.print_memory();
}

/// The pool file that comes with vgpu; where its directories are is the host's to say.
fn pool_file() -> String {
    let lines = config::SAMPLE.lines().filter(|line| !line.starts_with("state_dir"));
    let lines = lines.filter(|line| !line.starts_with("driver_root"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// What is measured, in the order of [`Bench::run`].
fn series() -> [Series; 6] {
    [
        Series::new("/bin/true"),
        Series::new("/bin/true again"),
        Series::aimed("createRuntime, no request", 0.6),
        Series::aimed("createRuntime, two vGPUs", 3.0),
        Series::aimed("poststop, no request", 1.0),
        Series::aimed("poststop, two vGPUs", 1.0),
    ]
}

struct Bench<'h> {
    host: &'h Host,
    parked: Parked<'h>,
    pool: String,
    /// Leases of other containers.
    others: Vec<Lease>,
    /// Those, and that of the parked container as it is once that is gone.
    ended: Vec<Lease>,
}

impl<'h> Bench<'h> {
    /// Has the hook called once, so that all that is made only once is there.
    fn new(host: &'h Host) -> Self {
        let parked = Parked::new(host);
        host.run_hook("createRuntime", &parked.state).ok();
        parked.undo();
        let own = leases(host).remove(0);
        let others = others(&own);
        let cgroup = CgroupId {
            path: format!("/{}/gone", host.name()).parse().expect("a path"),
            ..own.cgroup.clone()
        };
        let ended = others.iter().cloned().chain([Lease { cgroup, ..own }]).collect();
        Self { host, parked, pool: host.pool_file(), others, ended }
    }

    /// Measures one of [`series`], and does before and after it what it needs.
    fn run(&self, which: usize) -> std::time::Duration {
        let hook = |stage, state: &str| timed(&[VGPU, "--config", &self.pool, "hook", stage], state);
        match which {
            0 | 1 => timed(&["/bin/true"], &self.parked.state),
            2 => hook("createRuntime", &self.parked.state_without_request),
            3 => {
                self.set_leases(&self.others);
                let took = hook("createRuntime", &self.parked.state);
                assert_eq!(leases(self.host).len(), self.others.len() + 1);
                self.parked.undo();
                took
            }
            4 => hook("poststop", &self.parked.state_without_request),
            _ => {
                self.set_leases(&self.ended);
                let took = hook("poststop", &self.parked.state_stopped);
                assert_eq!(leases(self.host), self.others);
                took
            }
        }
    }

    fn set_leases(&self, leases: &[Lease]) {
        let dir = state_dir(self.host);
        let mut locked = dir.lock(std::time::Duration::ZERO).expect("the lock");
        locked.leases = leases.to_vec();
        locked.save().expect("saved");
    }

    /// As the kernel accounts it: the largest resident set of the hook or of its child.
    fn print_memory(&self) {
        let peak = self.host.dir().join("peak");
        let time = |stage: &str, state: &str| {
            let hook = [VGPU, "--config", &self.pool, "hook", stage];
            timed(&[&["/usr/bin/time", "-f", "%M", "-o", text(&peak)][..], &hook].concat(), state);
            fs::read_to_string(&peak).expect("a peak").trim().parse::<f64>().expect("KiB") / 1024.0
        };
        let without = time("createRuntime", &self.parked.state_without_request);
        self.set_leases(&self.others);
        let with = time("createRuntime", &self.parked.state);
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
        lease.vgpus.truncate(1);
        let id = &mut lease.vgpus[0].id;
        id.gpu = gpus[(n % GPUS) as usize].uuid.parse().expect("a UUID");
        id.n = n / GPUS;
        lease
    };
    (0..OTHERS).map(other).collect()
}
