//! Containers that stay where a runtime has made them as far as its createRuntime hooks, without a runtime:
//! a process in a cgroup and a mount namespace of its own (`park.sh`). A tenth of the time of a real one, and
//! a hook can be run on it in any way, and killed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vgpu::sys::bpf::{self, Insn};

use super::cgroup;
use super::command::Running;
use super::host::{Host, make_dir};
use super::rootfs;
use super::view::{Cgroups, script};
use super::wait::Process;

/// Where containers are parked: one bundle and one root serve them all, since the same is left in both by all.
pub struct Lot<'h> {
    host: &'h Host,
    bundle: PathBuf,
    root: PathBuf,
}

impl<'h> Lot<'h> {
    /// A bundle that asks for `count` vGPUs.
    pub fn new(host: &'h Host, count: u32) -> Self {
        let bundle = host.dir().join(format!("lot-{count}"));
        let root = bundle.join("rootfs");
        for dir in ["dev", "etc/ld.so.conf.d", "proc/driver"] {
            make_dir(&root.join(dir));
        }
        fs::copy("/etc/ld.so.cache", root.join("etc/ld.so.cache")).expect("a linker cache");
        let config = json!({
            "ociVersion": "1.0.2",
            "root": { "path": root },
            "annotations": { "vgpu.count": count.to_string() },
            "linux": { "resources": { "devices": [{ "allow": false, "access": "rwm" }] } },
        });
        fs::write(bundle.join("config.json"), config.to_string()).expect("config.json");
        Self { host, bundle, root }
    }

    /// The same of this type.
    pub fn of_type(self, kind: &str) -> Self {
        self.change(|config| config["annotations"]["vgpu.type"] = json!(kind));
        self
    }

    /// The same with a variable in the environment.
    pub fn with_env(self, variable: &str, value: &str) -> Self {
        self.change(|config| config["process"]["env"] = json!([format!("{variable}={value}")]));
        self
    }

    /// The same on an overlay, with a writable layer.
    pub fn on_overlay(mut self) -> Self {
        self.root = rootfs::overlay(self.host, &self.root, &self.bundle);
        self.change(|config| config["root"]["path"] = json!(self.root));
        self
    }

    fn change(&self, change: impl FnOnce(&mut Value)) {
        let file = self.bundle.join("config.json");
        let mut config = serde_json::from_slice(&fs::read(&file).expect("config.json")).expect("JSON");
        change(&mut config);
        fs::write(file, config.to_string()).expect("config.json");
    }

    /// Makes a container of this id, which no other has or had on this host.
    pub fn park(&self, id: &str) -> Parked<'h> {
        self.park_in(id, &[id])
    }

    /// The same, but without rules, so that its cgroup allows every device: podman has it so with uid and gid
    /// mappings.
    pub fn park_unruled(&self, id: &str) -> Parked<'h> {
        self.change(|config| config["linux"]["resources"] = json!({}));
        let cgroup = format!("{}/{}/{id}", devices(self.host), self.host.name());
        fs::create_dir(self.host.view().path(&cgroup)).expect("a cgroup");
        self.start(id, &cgroup)
    }

    /// The same as crun does it under systemd: in a cgroup beneath the scope that systemd made for it. Both
    /// have rules, as newer versions write them.
    pub fn park_in_scope(&self, id: &str) -> Parked<'h> {
        let path = format!("{}:parked:{id}", self.host.name());
        self.change(|config| config["linux"]["cgroupsPath"] = json!(path));
        self.park_in(id, &[&format!("parked-{id}.scope"), "container"])
    }

    /// The same, but beneath these cgroups, which are not the container's own and have rules, too.
    pub fn park_beneath(&self, above: &[&str], id: &str) -> Parked<'h> {
        self.park_in(id, &[above, &[id]].concat())
    }

    fn park_in(&self, id: &str, cgroups: &[&str]) -> Parked<'h> {
        let mut cgroup = format!("{}/{}", devices(self.host), self.host.name());
        let mut seen = self.host.view().path(&cgroup);
        for name in cgroups {
            cgroup = format!("{cgroup}/{name}");
            seen.push(name);
            fs::create_dir(&seen).expect("a cgroup");
            deny_all(self.host, &seen);
        }
        self.start(id, &cgroup)
    }

    fn start(&self, id: &str, cgroup: &str) -> Parked<'h> {
        let (park, driver) = (script("park.sh"), self.host.driver_root());
        let [park, root, driver] = [&park, &self.root, &driver].map(|path| path.to_str().expect("UTF-8"));
        let unshare = ["unshare", "--mount", "--propagation", "private", "sh"];
        let park = [park, cgroup, root, driver];
        let process = self.host.view().start(&[&unshare[..], &park].concat(), b"");
        process.says("parked\n");
        let (bundle, root, cgroup) = (self.bundle.clone(), self.root.clone(), self.host.view().path(cgroup));
        Parked { host: self.host, id: id.to_owned(), bundle, root, cgroup, process }
    }
}

/// Where the view has the hierarchy that rules devices.
fn devices(host: &Host) -> &'static str {
    match host.view().cgroups() {
        Cgroups::V2 => "/sys/fs/cgroup",
        Cgroups::V1 | Cgroups::Hybrid => "/sys/fs/cgroup/devices",
    }
}

/// As every engine begins its list; the one device is there so that there is a list to keep.
fn deny_all(host: &Host, cgroup: &Path) {
    if host.view().cgroups() == Cgroups::V2 {
        attach(cgroup, &load("deny_all", 0));
    } else {
        fs::write(cgroup.join("devices.deny"), "a").expect("devices.deny");
        fs::write(cgroup.join("devices.allow"), "c 1:3 rwm").expect("devices.allow");
    }
}

/// A device program that gives this answer to everything.
fn load(name: &str, answer: i32) -> OwnedFd {
    let (mov_r0_answer, exit) = (Insn::new(0xb7, 0, 0, 0, answer), Insn::new(0x95, 0, 0, 0, 0));
    bpf::load(name, &[mov_r0_answer, exit]).expect("a device program")
}

fn attach(cgroup: &Path, program: &OwnedFd) {
    let cgroup = File::open(cgroup).expect("a cgroup");
    bpf::attach(cgroup.as_fd(), program.as_fd(), bpf::ALLOW_MULTI).expect("attaching it");
}

/// One of them. What still runs of it ends with the host.
pub struct Parked<'h> {
    host: &'h Host,
    /// Its id.
    pub id: String,
    bundle: PathBuf,
    root: PathBuf,
    cgroup: PathBuf,
    process: Running,
}

impl Parked<'_> {
    /// The host pid of its first process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Starts a hook for it.
    pub fn hook(&self, stage: &str) -> Running {
        let state = if stage == "poststop" { self.stopped() } else { self.created() };
        self.host.view().start(&self.host.hook(stage), state.as_bytes())
    }

    /// The OCI state that a createRuntime hook gets.
    pub fn created(&self) -> String {
        json!({ "ociVersion": "1.0.2", "id": self.id, "status": "created", "pid": self.pid(), "bundle": self.bundle })
            .to_string()
    }

    /// The OCI state that a poststop hook gets.
    pub fn stopped(&self) -> String {
        json!({ "ociVersion": "1.0.2", "id": self.id, "status": "stopped", "bundle": self.bundle })
            .to_string()
    }

    /// Ends its first process, and leaves its cgroup where it is.
    pub fn kill(&self) {
        let process = Process::of(self.pid());
        process.kill();
        process.ended();
    }

    /// Opens what the rule of `devices.allow` says, on v1, as another hook may have done.
    pub fn allow(&self, rule: &str) {
        fs::write(self.cgroup.join("devices.allow"), rule).expect("devices.allow");
    }

    /// Opens everything, on v2, as another hook may have done: its device program is replaced.
    pub fn allow_all(&self) {
        let (allow, cgroup) = (load("allow_all", 1), File::open(&self.cgroup).expect("a cgroup"));
        for id in bpf::attached(cgroup.as_fd()).expect("its programs").ids {
            let deny = bpf::open(id).expect("a program");
            bpf::replace(cgroup.as_fd(), allow.as_fd(), deny.as_fd()).expect("replacing it");
        }
    }

    /// Attaches a program that allows everything, on v2, beside the one that is there.
    pub fn allow_all_beside(&self) {
        attach(&self.cgroup, &load("allow_all", 1));
    }

    /// Moves its first process into another's cgroup.
    pub fn move_to(&self, other: &Self) {
        fs::write(other.cgroup.join("cgroup.procs"), self.pid().to_string()).expect("cgroup.procs");
    }

    /// Moves its first process to the cgroup above.
    pub fn move_up(&self) {
        let above = self.cgroup.parent().expect("a cgroup above").join("cgroup.procs");
        fs::write(above, self.pid().to_string()).expect("cgroup.procs");
    }

    /// Its root, as this process can open it.
    pub fn root(&self) -> PathBuf {
        let root = self.root.strip_prefix("/").expect("absolute");
        PathBuf::from(format!("/proc/{}/root", self.pid())).join(root)
    }

    /// What its device cgroup allows: on v1 the list, on v2 ids and names of its programs.
    pub fn rules(&self) -> Vec<String> {
        if self.host.view().cgroups() != Cgroups::V2 {
            let list = fs::read_to_string(self.cgroup.join("devices.list")).expect("devices.list");
            return list.lines().map(str::to_owned).collect();
        }
        let attached = bpf::attached(File::open(&self.cgroup).expect("a cgroup").as_fd()).expect("bpf(2)");
        let shown = |id: &u32| {
            let program = bpf::open(*id).and_then(|program| bpf::read(program.as_fd())).expect("a program");
            format!("{id} {}", program.name)
        };
        attached.ids.iter().map(shown).collect()
    }

    /// What opening a node says in its cgroup.
    pub fn open(&self, node: &Path) -> String {
        let open = r#"echo 0 >"$0/cgroup.procs"; : <>"$1""#;
        let [cgroup, node] = [&self.cgroup, node].map(|path| path.to_str().expect("UTF-8"));
        self.host.view().run(&["sh", "-c", open, cgroup, node]).stderr
    }

    /// Ends it as a runtime does: kills all that is in its cgroup, and removes that. Done again, it is nothing.
    pub fn end(&self) {
        cgroup::processes(&self.cgroup).into_iter().for_each(|pid| Process::of(pid).kill());
        cgroup::empty(&self.cgroup);
        match fs::remove_dir(&self.cgroup) {
            Err(e) if e.kind() != ErrorKind::NotFound => panic!("{}: {e}", self.cgroup.display()),
            _ => {}
        }
    }
}
