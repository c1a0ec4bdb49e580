//! Every system call of a hook fails in turn, and every one is the last before SIGKILL in turn: what is
//! promised of leases and starts (P1 to P3) holds after each, and the next request works.
//!
//! `make test` runs a sample, with each name of a call in it; `make crash` runs all.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use common::attack::attacked;
use common::container::Container;
use common::driver;
use common::halted::Halted;
use common::host::{DRIVER, Gpu, Host, MAJOR, make_dir, make_node};
use common::image::furnish;
use common::library::{Machine, shared_object};
use common::parked::{Lot, Parked};
use common::runtime::Runtime;
use common::seed::{Seed, say};
use common::strace::{self, Call, Fault, Hit, Who};
use common::view::Cgroups;
use common::wait::Process;
use serde_json::Value;
use vgpu::error::Exit;
use vgpu::ldcache;
use vgpu::pool::Lease;
use vgpu::pool::store::StateDir;

/// In what situation a hook is called.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Situation {
    /// createRuntime, the first since the host was booted.
    First,
    /// createRuntime; all is held by a container that is gone.
    Takeover,
    /// createRuntime for a container that has its lease already.
    Again,
    /// createRuntime; all is held by a container that runs.
    Refused,
    /// poststop of a container that is gone.
    Poststop,
    /// poststop of a container that runs, or runs again.
    EarlyPoststop,
}

impl Situation {
    fn stage(self) -> &'static str {
        match self {
            Self::First | Self::Takeover | Self::Again | Self::Refused => "createRuntime",
            Self::Poststop | Self::EarlyPoststop => "poststop",
        }
    }

    /// Is it a createRuntime that ends in a lease when nothing is wrong?
    fn gives(self) -> bool {
        matches!(self, Self::First | Self::Takeover | Self::Again)
    }

    /// How the hook ends when nothing is wrong.
    fn code(self) -> i32 {
        if self == Self::Refused { Exit::NoneFree as i32 } else { 0 }
    }

    /// How many points `make test` takes beside one for each name: more where none takes a new container.
    fn extra(self) -> usize {
        if matches!(self, Self::Refused | Self::EarlyPoststop) { 60 } else { 5 }
    }
}

/// How many vGPUs there are. Every request is for all of them: one that was lost would be missed.
const ALL: u32 = 2;

/// A host with as many, on a GPU each, and a GPU beside that is not in the pool. On v1 there is NVML, on v2
/// there is not, for both ways of discovery. Its driver has something of each kind that containers get.
fn host(cgroups: Cgroups) -> Host {
    let gpus = Gpu::several(ALL + 1);
    let entry = |gpu: &Gpu| format!("[[gpu]]\nuuid = {:?}\nvgpus = {{ whole = 1 }}\n", gpu.uuid);
    let pool: String = gpus[1..].iter().map(entry).collect();
    let kind = "[[type]]\nname = \"whole\"\nmemory = \"10GiB\"\ncompute = 100\n";
    let host = Host::builder(cgroups).gpus(gpus).pool(kind.to_owned() + &pool);
    let host = if cgroups == Cgroups::V1 { host.nvml().build() } else { host.build() };
    driver::install_some(&host.driver_root(), DRIVER);
    host.load_graphics();
    host
}

/// What every container asks for beside vGPUs: nodes of each kind, and files.
const CAPABILITIES: (&str, &str) = ("NVIDIA_DRIVER_CAPABILITIES", "utility,compute,display");

/// On v1 the merged linker cache is mounted, on v2 it is renamed into place.
fn is_on_overlay(host: &Host) -> bool {
    host.view().cgroups() == Cgroups::V2
}

/// A host, and the container on it that holds everything.
struct Scene<'h> {
    host: &'h Host,
    lot: Lot<'h>,
    holder: Parked<'h>,
    /// One that has nothing.
    guest: Parked<'h>,
    guest_rules: Vec<String>,
    parked: u32,
    mounts: String,
}

impl<'h> Scene<'h> {
    fn new(host: &'h Host) -> Self {
        let lot = Lot::new(host, ALL).with_env(CAPABILITIES.0, CAPABILITIES.1);
        let lot = if is_on_overlay(host) { lot.on_overlay() } else { lot };
        let (holder, guest) = (lot.park("c0"), lot.park("guest"));
        host.run_hook("createRuntime", &holder.created()).ok();
        let (guest_rules, mounts) = (guest.rules(), host.view().mounts());
        Self { host, lot, holder, guest, guest_rules, parked: 0, mounts }
    }

    /// The holder ends, and there is another one that has not asked yet.
    fn replace_holder(&mut self) {
        self.parked += 1;
        let next = self.lot.park(&format!("c{}", self.parked));
        // To be covered.
        make_node(&next.root().join(format!("dev/nvidia{UNKNOWN}")), MAJOR, UNKNOWN);
        std::mem::replace(&mut self.holder, next).end();
    }

    fn has_lease(&self, container: &Parked) -> bool {
        leases(self.host).iter().any(|lease| lease.container.as_str() == container.id)
    }

    /// The container has all it asked for.
    fn assert_complete(&self, container: &Parked) {
        assert_given(self.host, &container.id, container.pid(), &container.root());
        self.assert_opened(container, nodes(self.host).values());
        if is_on_overlay(self.host) {
            let told = fs::read_to_string(container.root().join("etc/ld.so.conf.d/00-vgpu.conf"));
            assert_eq!(told.expect("the drop-in"), "/usr/local/nvidia/lib64\n");
        }
    }

    fn assert_opened<'a>(&self, container: &Parked, numbers: impl Iterator<Item = &'a (u32, u32)>) {
        let rules = container.rules();
        if self.host.view().cgroups() == Cgroups::V2 {
            assert!(rules.len() == 1 && rules[0].contains(" vgpu"), "{rules:?}");
            return;
        }
        let opened = numbers.map(|(major, minor)| format!("c {major}:{minor} rw"));
        let expected: BTreeSet<_> = opened.chain(["c 1:3 rwm".to_owned()]).collect();
        assert_eq!(rules.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    /// The holder ends, and the next request gets everything that it had.
    fn next(&mut self) {
        self.replace_holder();
        self.host.run_hook("createRuntime", &self.holder.created()).ok();
        self.assert_complete(&self.holder);
        let known = ["state-", "inventory-", "lock", "log"];
        for entry in fs::read_dir(self.host.state_dir()).expect("the state directory") {
            let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
            let left = name.ends_with(".new") || !known.iter().any(|known| name.starts_with(known));
            assert!(!left, "{name} is left in the state directory");
        }
    }
}

/// The leases, which must make sense: no vGPU is in two of them.
fn leases(host: &Host) -> Vec<Lease> {
    let dir = StateDir::open(&host.state_dir()).expect("the state directory").expect("there");
    let leases = dir.peek().expect("a state file that can be read");
    let mut held = BTreeSet::new();
    for vgpu in leases.iter().flat_map(|lease| &lease.vgpus) {
        assert!(held.insert(&vgpu.id), "leased twice: {leases:?}");
    }
    leases
}

/// The container holds everything, and all that is in its root says so.
fn assert_given(host: &Host, id: &str, pid: u32, root: &Path) {
    let leases = leases(host);
    let [lease] = &leases[..] else { panic!("not one lease: {leases:?}") };
    assert_eq!((lease.container.as_str(), lease.pid), (id, pid));
    let ids: Vec<String> = lease.vgpus.iter().map(|vgpu| vgpu.id.to_string()).collect();
    let all: BTreeSet<String> = host.gpus[1..].iter().map(|gpu| format!("{}/whole/0", gpu.uuid)).collect();
    assert_eq!(ids.iter().cloned().collect::<BTreeSet<_>>(), all);

    let json = fs::read_to_string(root.join("dev/vgpu/lease.json")).expect("lease.json");
    let json: Value = serde_json::from_str(&json).expect("lease.json");
    let told: Vec<_> = json["vgpus"].as_array().expect("vgpus").iter().map(|vgpu| &vgpu["id"]).collect();
    assert_eq!(told, ids.iter().collect::<Vec<_>>());
    assert_eq!(nodes_in(root), nodes(host));
    assert_files_given(host, root);
    assert_told(host, &root.join("proc/driver/nvidia"));
}

/// A file of each kind is the driver's, and found where programs look for it.
fn assert_files_given(host: &Host, root: &Path) {
    const ICD: &str = "etc/OpenCL/vendors/nvidia.icd";
    let [persistenced, fabricmanager] =
        ["persistenced", "fabricmanager"].map(|name| format!("run/nvidia-{name}/socket"));
    let files = [
        ("usr/local/nvidia/lib64/libcuda.so.1", &*format!("{}/libcuda.so.{DRIVER}", driver::LIBRARIES)),
        ("usr/local/nvidia/bin/nvidia-smi", "usr/bin/nvidia-smi"),
        ("usr/local/nvidia/share/nvidia.icd", ICD),
        (&*persistenced, &*persistenced),
        (&*fabricmanager, &*fabricmanager),
    ];
    // On a host without daemons there are no sockets.
    for (given, of_driver) in files.iter().filter(|(_, file)| host.driver_root().join(file).exists()) {
        let paths = [root.join(given), host.driver_root().join(of_driver)];
        let [given, of_driver] = paths.map(|path| {
            let meta = fs::metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (meta.dev(), meta.ino())
        });
        assert_eq!(given, of_driver, "{files:?}");
    }
    let link = fs::read_link(root.join(ICD)).expect("a link");
    assert_eq!(link, Path::new("/usr/local/nvidia/share/nvidia.icd"));
    assert_found_by_name(&root.join("etc"));
}

/// The linker cache has the driver, and nothing half-made is beside it.
fn assert_found_by_name(etc: &Path) {
    let bytes = fs::read(etc.join("ld.so.cache")).expect("a linker cache");
    let cache = ldcache::parse(&bytes).expect("a linker cache");
    let found = cache.find(c"libcuda.so.1", ldcache::flags::X86_64);
    assert_eq!(found, Some(c"/usr/local/nvidia/lib64/libcuda.so.1"));
    for dir in [etc, &etc.join("ld.so.conf.d")] {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let name = entry.expect("an entry").file_name();
            assert!(!is_half_made(&name), "{name:?} is left in /etc");
        }
    }
}

/// By its name: a file that a hook writes before it has its place.
fn is_half_made(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with('.') && name.contains(".vgpu")
}

/// `/proc/driver/nvidia` tells of the leased GPUs alone, and of no reason to make nodes.
fn assert_told(host: &Host, proc: &Path) {
    let gpus = fs::read_dir(proc.join("gpus")).expect("GPUs").map(|gpu| gpu.expect("an entry").file_name());
    let leased = host.gpus[1..].iter().map(|gpu| gpu.pci.clone().into());
    assert_eq!(gpus.collect::<BTreeSet<_>>(), leased.collect::<BTreeSet<_>>());
    let params = fs::read_to_string(proc.join("params")).expect("params");
    assert!(params.contains("ModifyDeviceFiles: 0\n"), "{params}");
}

/// What a container with everything has in `/dev`: path and number.
fn nodes(host: &Host) -> BTreeMap<String, (u32, u32)> {
    let uvm = host.uvm_major();
    let control = [
        ("/dev/nvidiactl", (MAJOR, 255)),
        ("/dev/nvidia-uvm", (uvm, 0)),
        ("/dev/nvidia-uvm-tools", (uvm, 1)),
        ("/dev/nvidia-modeset", (MAJOR, 254)),
    ];
    let control = control.into_iter().map(|(name, number)| (name.to_owned(), number));
    let of_gpu = |gpu: &Gpu| [(gpu.node(), (MAJOR, gpu.minor))].into_iter().chain(gpu.graphics());
    control.chain(host.gpus[1..].iter().flat_map(of_gpu)).collect()
}

/// The driver's nodes in a root's `/dev`.
fn nodes_in(root: &Path) -> BTreeMap<String, (u32, u32)> {
    let mut nodes = BTreeMap::new();
    for (dir, begin) in [("/dev", "nvidia"), ("/dev/dri", "")] {
        for entry in fs::read_dir(root.join(&dir[1..])).into_iter().flatten() {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("UTF-8");
            let meta = fs::metadata(entry.path()).expect("metadata");
            if name.starts_with(begin) && meta.file_type().is_char_device() {
                let number = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
                nodes.insert(format!("{dir}/{name}"), number);
            }
        }
    }
    nodes
}

/// Calls whose failure can last: a full disk, a table that is full, a right that is missing.
const LASTING: [&str; 5] = ["write", "open", "openat", "openat2", "bpf"];

/// The errors that a call of this name meets on a host that is short of something or broken.
fn errors(name: &str) -> &'static [&'static str] {
    match name {
        "write" => &["ENOSPC", "EIO", "EINTR"],
        "read" => &["EIO", "EINTR"],
        "open" | "openat" => &["EMFILE", "EIO"],
        "openat2" => &["EMFILE", "EAGAIN"],
        "mkdir" | "mkdirat" | "mknodat" | "symlinkat" | "renameat" => &["ENOSPC", "EPERM"],
        "flock" => &["ENOLCK", "EINTR"],
        "clone3" => &["EAGAIN", "ENOMEM"],
        "bpf" | "fsopen" | "fsconfig" | "fsmount" | "open_tree" | "mount_setattr" | "move_mount"
        | "setns" => &["EPERM", "ENOMEM"],
        "brk" | "mmap" | "mprotect" | "munmap" | "poll" | "unshare" => &["ENOMEM"],
        "pipe2" => &["EMFILE"],
        // It has no result.
        "exit_group" => &[],
        _ => &["EIO"],
    }
}

/// One thing that goes wrong.
#[derive(Clone, Debug)]
struct Point {
    call: Call,
    fault: Fault,
}

/// Everything that can go wrong in a run with these calls.
fn points(calls: &[Call]) -> Vec<Point> {
    let mut points = Vec::new();
    for call in calls.iter().filter(|call| call.who != Who::Probe && call.can_be_hit(calls)) {
        let errors = errors(&call.name);
        let lasts = call.who == Who::Hook && LASTING.contains(&&*call.name);
        let lasting = errors.first().filter(|_| lasts).map(|errno| Fault::FailsFromThere(errno));
        let faults = errors.iter().map(|errno| Fault::Fails(errno)).chain(lasting).chain([Fault::Killed]);
        points.extend(faults.map(|fault| Point { call: call.clone(), fault }));
    }
    points
}

/// One point for each process and name, and some others.
fn sample(mut points: Vec<Point>, extra: usize, seed: &mut Seed) -> Vec<Point> {
    for n in (1..points.len()).rev() {
        points.swap(n, seed.below(n + 1));
    }
    let mut seen = BTreeSet::new();
    let (firsts, others): (Vec<_>, Vec<_>) =
        points.into_iter().partition(|point| seen.insert((point.call.who, point.call.name.clone())));
    firsts.into_iter().chain(others.into_iter().take(extra)).collect()
}

/// Says what a check that fails was about.
struct About<T: Debug>(T);

impl<T: Debug> Drop for About<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}", self.0);
        }
    }
}

/// How a hook ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// With its work done.
    Done,
    /// With an error, and everything as before.
    Undone,
    /// Killed, or so troubled that it could not undo everything. The runtime ends the container then.
    Left,
}

impl Point {
    /// Checks that the hook ended in a way that is documented.
    fn end(&self, hit: &Hit) -> End {
        let Point { call, fault } = self;
        match hit.code {
            Some(0) => {
                assert_eq!(hit.stderr, "");
                End::Done
            }
            // The loader and Rust's runtime end as they like; nothing has been done yet.
            _ if !call.in_main => End::Undone,
            None => {
                // The hook itself; or its child first, and then the hook, which makes more calls of that name
                // when it takes back what the child could not finish.
                assert_eq!(*fault, Fault::Killed);
                End::Left
            }
            Some(code) => {
                assert!(Exit::ALL.iter().any(|exit| *exit as i32 == code));
                let lines: Vec<_> = hit.stderr.split_inclusive('\n').collect();
                let whole = lines.iter().all(|line| line.starts_with("vgpu: ") && line.ends_with('\n'));
                let unsaid = call.name == "write" && lines.is_empty();
                if matches!(fault, Fault::FailsFromThere(_)) {
                    assert!(whole);
                    return End::Left;
                }
                assert!(whole && (lines.len() == 1 || unsaid));
                End::Undone
            }
        }
    }
}

impl<'h> Scene<'h> {
    /// Makes the situation, and returns the state that the hook gets.
    fn prepare(&mut self, situation: Situation) -> String {
        match situation {
            Situation::First | Situation::Takeover => {
                self.replace_holder();
                if situation == Situation::First {
                    self.forget_everything();
                }
                self.holder.created()
            }
            Situation::Again => self.holder.created(),
            Situation::Refused => self.guest.created(),
            Situation::Poststop => {
                self.holder.end();
                self.holder.stopped()
            }
            Situation::EarlyPoststop => self.holder.stopped(),
        }
    }

    fn forget_everything(&self) {
        for entry in fs::read_dir(self.host.state_dir()).expect("the state directory") {
            fs::remove_file(entry.expect("an entry").path()).expect("removing a file");
        }
    }

    /// One run of a hook that is hit, and all that must hold then.
    fn hit(&mut self, situation: Situation, calls: &[Call], point: &Point) {
        let state = self.prepare(situation);
        let rules = if situation == Situation::Poststop { Vec::new() } else { self.holder.rules() };
        let hit = strace::hit(self.host, situation.stage(), &state, calls, &point.call, point.fault);
        let _about = About((point, &hit));
        // Whether the probe still runs when its answer has come is chance, and so is what the hook does then.
        assert!(hit.reached || calls.iter().any(|call| call.who == Who::Probe));
        let end = point.end(&hit);
        match (situation, end) {
            (Situation::Refused, End::Done) => panic!("one container was given what another one holds"),
            (Situation::Refused | Situation::EarlyPoststop, _)
            | (Situation::Again, End::Undone)
            | (Situation::First | Situation::Takeover | Situation::Again, End::Done) => {
                self.assert_complete(&self.holder);
            }
            (Situation::First | Situation::Takeover, End::Undone) => {
                assert!(!self.has_lease(&self.holder), "{:?}", leases(self.host));
                assert_eq!(self.holder.rules(), rules);
            }
            (Situation::Poststop, End::Done) => assert_eq!(leases(self.host), []),
            (Situation::Poststop, _) | (_, End::Left) => drop(leases(self.host)),
        }
        if situation == Situation::Refused {
            assert_eq!(self.guest.rules(), self.guest_rules);
            assert_eq!(nodes_in(&self.guest.root()), BTreeMap::new());
        }
        if situation.gives() && end != End::Done {
            self.ask_again();
        }
        assert_eq!(self.host.view().mounts(), self.mounts);
        self.go_on(situation, end);
    }

    /// A hook may be listed twice, and whoever calls it again may not know that the first was killed: then it brings
    /// everything in, or refuses what it finds half done.
    fn ask_again(&self) {
        let again = self.host.run_hook("createRuntime", &self.holder.created());
        let _about = About(&again);
        match again.code {
            Some(0) => self.assert_complete(&self.holder),
            code => assert_eq!(code, Some(Exit::Request as i32)),
        }
    }

    /// Whatever happened, the next request is served.
    fn go_on(&mut self, situation: Situation, end: End) {
        match situation {
            Situation::Again if end == End::Done => {}
            Situation::First | Situation::Takeover | Situation::Again | Situation::Poststop => self.next(),
            Situation::Refused => {
                self.host.run_hook("createRuntime", &self.guest.created()).exits(situation.code());
            }
            Situation::EarlyPoststop => {
                self.host.run_hook("poststop", &self.holder.stopped()).ok();
            }
        }
    }
}

/// Everything that can go wrong in one situation, or a sample of it.
fn everything_fails_in_turn(cgroups: Cgroups, situation: Situation) {
    let host = host(cgroups);
    let mut scene = Scene::new(&host);
    let state = scene.prepare(situation);
    let calls = strace::calls(&host, situation.stage(), &state, situation.code());
    scene.go_on(situation, End::Done);
    // What comes before the hook's own work is the same in every situation.
    let begin = situation == Situation::Takeover || situation == Situation::Poststop;
    let points: Vec<_> = points(&calls).into_iter().filter(|point| begin || point.call.in_main).collect();
    let all = points.len();
    let name = format!("crash {cgroups:?} {situation:?}");
    let extra = situation.extra();
    let points = if all_wanted() { points } else { sample(points, extra, &mut Seed::new(&name)) };
    let own = calls.iter().filter(|call| call.who != Who::Probe).count();
    timed(&format!("{name}, {own} calls, {all} points"), &points, |point| {
        scene.hit(situation, &calls, point);
    });
}

/// `make crash` sets it.
fn all_wanted() -> bool {
    std::env::var_os("VGPU_CRASH").is_some_and(|which| which == "all")
}

fn timed(name: &str, points: &[Point], hit: impl FnMut(&Point)) {
    let start = Instant::now();
    points.iter().for_each(hit);
    say(&format!("{name}: {} hit in {:.1?}", points.len(), start.elapsed()));
}

/// What a runtime makes of it: a container has everything, or does not start and nothing is left of it.
struct Real<'h> {
    host: &'h Host,
    root: PathBuf,
    mounts: String,
}

impl<'h> Real<'h> {
    fn new(host: &'h Host) -> Self {
        let root = host.container(Runtime::Runc).no_hooks().furnish(|root| {
            make_dir(&root.join("etc"));
            fs::copy("/etc/ld.so.cache", root.join("etc/ld.so.cache")).expect("a linker cache");
        });
        let root = root.build().root().to_owned();
        let real = Self { host, root, mounts: host.view().mounts() };
        // The first finds out what the host has, and the others know.
        real.serve_next();
        real
    }

    /// A container that asks for everything, and whose createRuntime hook runs under `prefix`.
    fn asking(&self, prefix: &[String]) -> Container<'h> {
        let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
        let poststop = self.host.hook("poststop");
        let poststop: Vec<&str> = poststop.iter().map(String::as_str).collect();
        let asking = self.host.container(Runtime::Runc).annotation("vgpu.count", &ALL.to_string());
        let asking = asking.env(CAPABILITIES.0, CAPABILITIES.1).on_root(&self.root);
        let asking = asking.without_hooks_of("poststop").hooks_under(&prefix).with_driver_in_proc();
        asking.hook("poststop", &poststop).recorded().build()
    }

    /// The calls of an undisturbed createRuntime hook.
    fn calls(&self) -> Vec<Call> {
        let log = strace::new_log(self.host);
        let traced = self.asking(&strace::prefix(&log, None));
        traced.create().ok();
        self.run_to_the_end(&traced);
        strace::read(&log)
    }

    fn hit(&self, point: &Point) {
        let log = strace::new_log(self.host);
        let container = self.asking(&strace::prefix(&log, Some((&point.call, point.fault))));
        let created = container.create();
        let _about = About((point, container.hook_stderr("createRuntime"), &created));
        assert!(strace::was_hit(&log));
        if created.code == Some(0) {
            self.run_to_the_end(&container);
        } else {
            assert_eq!(container.state(), None);
        }
        self.serve_next();
        assert_eq!(self.host.view().mounts(), self.mounts);
    }

    fn serve_next(&self) {
        let next = self.asking(&[]);
        next.create().ok();
        self.run_to_the_end(&next);
    }

    fn run_to_the_end(&self, container: &Container) {
        container.start().ok();
        let pid = container.pid();
        assert_given(self.host, container.id(), pid, Path::new(&format!("/proc/{pid}/root")));
        container.delete_force().ok();
    }
}

/// How many points `make test` takes under a runtime, where each takes long.
const REAL: usize = 8;

fn a_real_container_has_all_or_does_not_start(cgroups: Cgroups) {
    let host = host(cgroups);
    let real = Real::new(&host);
    let calls = real.calls();
    let mut points = points(&calls);
    points.retain(|point| point.call.in_main && point.call.is_alone(&calls));
    let name = format!("crash {cgroups:?} runc");
    let mut points = sample(points, 0, &mut Seed::new(&name));
    if !all_wanted() {
        points.truncate(REAL);
    }
    timed(&name, &points, |point| real.hit(point));
}

/// The minor of a GPU that the inventory does not have, as it came later.
const UNKNOWN: u32 = 7;

/// A GPU that just cannot be looked at, or that nobody knows of, stays closed to a container that nothing but vgpu
/// confines.
fn other_gpus_stay_closed(cgroups: Cgroups) {
    let host = host(cgroups);
    let lot = Lot::new(&host, ALL);
    let other = host.gpus[0].minor;
    // As an image might bring them.
    let render = host.gpus[0].graphics()[1].1;
    let numbers = [(MAJOR, other), (MAJOR, UNKNOWN), render];
    let nodes = numbers.map(|(major, minor)| {
        let node = host.dir().join(format!("smuggled-{major}-{minor}"));
        make_node(&node, major, minor);
        node
    });
    let is_closed = |container: &Parked| {
        nodes.iter().all(|node| container.open(node).contains("Operation not permitted"))
    };

    let container = lot.park_unruled("undisturbed");
    let calls = strace::calls(&host, "createRuntime", &container.created(), 0);
    assert!(is_closed(&container));
    container.end();
    let looks = calls.iter().filter(|call| call.who == Who::Hook && call.name == "openat2");
    for (n, call) in looks.enumerate() {
        let container = lot.park_unruled(&format!("disturbed-{n}"));
        let state = container.created();
        let hit = strace::hit(&host, "createRuntime", &state, &calls, call, Fault::Fails("EMFILE"));
        assert!(hit.code != Some(0) || is_closed(&container), "{call:?}: {hit:?}");
        container.end();
    }
    fs::remove_file(host.driver_root().join(format!("dev/nvidia{other}"))).expect("its node");
    let container = lot.park_unruled("without-a-node");
    host.run_hook("createRuntime", &container.created()).ok();
    assert!(is_closed(&container));
}

/// The hook and its child are killed together, after each thing that the child has brought in: then the lease stays,
/// and the hook that is called again knows itself by what is there.
fn both_are_killed(cgroups: Cgroups) {
    let host = host(cgroups);
    // They would be looked at again in any case.
    fs::remove_dir_all(host.driver_root().join("run")).expect("sockets");
    let mut scene = Scene::new(&host);
    scene.replace_holder();
    let calls = strace::calls(&host, "createRuntime", &scene.holder.created(), 0);
    for name in ["move_mount", "symlinkat"] {
        let made = calls.iter().filter(|call| call.who == Who::Child && call.name == name).count();
        assert!(made > 1, "{made} {name}");
        for nth in 1..=made {
            scene.replace_holder();
            let state = scene.holder.created();
            let (mut hook, child) = strace::stopped_at(&host, "createRuntime", &state, name, nth);
            let _about = About((name, nth));
            let child = Process::of(child);
            hook.kill();
            hook.wait();
            child.kill();
            child.ended();
            assert!(scene.has_lease(&scene.holder));
            scene.ask_again();
        }
    }
    assert_eq!(host.view().mounts(), scene.mounts);
    scene.next();
}

/// A child that is killed when it has written a file of `/etc`, and not brought it into its place, leaves it; the next
/// hook does not.
#[test]
#[ignore = "needs root: makes containers"]
fn files_that_were_half_made_go_with_the_next_start() {
    let host = host(Cgroups::V2);
    let mut scene = Scene::new(&host);
    scene.replace_holder();
    let calls = strace::calls(&host, "createRuntime", &scene.holder.created(), 0);
    let renames: Vec<_> =
        calls.iter().filter(|call| call.who == Who::Child && call.name == "renameat").collect();
    assert_eq!(renames.len(), 2, "the cache, and a file for ldconfig");
    for call in renames {
        scene.replace_holder();
        let state = scene.holder.created();
        let hit = strace::hit(&host, "createRuntime", &state, &calls, call, Fault::Killed);
        assert_eq!(hit.code, Some(Exit::Io as i32), "{hit:?}");
        let etc = scene.holder.root().join("etc");
        let left = [etc.join("ld.so.conf.d"), etc].map(|dir| {
            let names =
                fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").file_name());
            names.filter(|name| is_half_made(name)).count()
        });
        assert_eq!(left.iter().sum::<usize>(), 1, "{call:?}");
        scene.next();
    }
}

/// What is short on the host, as descriptors are, says nothing of the image: no container starts without a part.
#[test]
#[ignore = "needs root: makes containers"]
fn an_error_of_the_hooks_own_is_no_sign_that_there_is_nothing() {
    let host = host(Cgroups::V1);
    let image = |root: &Path| {
        furnish(&host, root, "usr/lib/x86_64-linux-gnu");
        let libraries = root.join("usr/local/cuda/compat");
        make_dir(&libraries);
        let newer = shared_object(Machine::X86_64, b"libcuda.so.1");
        fs::write(libraries.join("libcuda.so.575.57.08"), newer).expect("a library");
        symlink("libcuda.so.575.57.08", libraries.join("libcuda.so.1")).expect("a link");
        make_dir(&root.join("lib"));
        fs::write(root.join("lib/ld-musl-x86_64.so.1"), "").expect("a loader");
    };
    let halted = Halted::new(attacked(&host, Runtime::Runc).furnish(image).overlay());
    // What the first one makes is found by the others.
    halted.hook().ok();
    halted.undo();
    let calls = strace::calls(&host, "createRuntime", halted.state(), 0);
    halted.undo();
    let looks = calls.iter().filter(|call| call.who == Who::Child && call.name == "openat2");
    for call in looks {
        let hit = strace::hit(&host, "createRuntime", halted.state(), &calls, call, Fault::Fails("EMFILE"));
        // What was mounted at these a moment ago is missed, whatever the reason.
        let is_missed = ["/dev/", "/proc/driver/"].iter().any(|path| hit.stderr.contains(path));
        let expected = if is_missed { Exit::Request } else { Exit::Io };
        assert!(
            hit.reached && [Some(expected as i32), Some(Exit::Io as i32)].contains(&hit.code),
            "{call:?} {hit:?}"
        );
        halted.undo();
    }
}

/// The hook alone is killed while its child waits, before and after files are made as the container's root: the child
/// does not stay behind.
#[test]
#[ignore = "needs root: makes containers"]
fn a_child_ends_with_its_hook() {
    let host = host(Cgroups::V1);
    for (mapped, call) in [(false, "setns"), (true, "symlinkat")] {
        let halted = Halted::new(attacked(&host, Runtime::Runc).mapped_if(mapped));
        let (mut hook, child) = strace::stopped_at(&host, "createRuntime", halted.state(), call, 1);
        let child = Process::of(child);
        hook.kill();
        hook.wait();
        child.ended();
    }
}

on_v1_and_v2! {
    fn other_gpus = other_gpus_stay_closed;
    fn create_runtime_first = |cgroups| everything_fails_in_turn(cgroups, Situation::First);
    fn create_runtime_takes_over = |cgroups| everything_fails_in_turn(cgroups, Situation::Takeover);
    fn create_runtime_again = |cgroups| everything_fails_in_turn(cgroups, Situation::Again);
    fn create_runtime_refused = |cgroups| everything_fails_in_turn(cgroups, Situation::Refused);
    fn poststop = |cgroups| everything_fails_in_turn(cgroups, Situation::Poststop);
    fn poststop_of_a_living_one = |cgroups| everything_fails_in_turn(cgroups, Situation::EarlyPoststop);
    fn killed_together = both_are_killed;
    fn under_runc = a_real_container_has_all_or_does_not_start;
}
