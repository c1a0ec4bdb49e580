//! A container that runc has made as far as its createRuntime hooks, and that stays there: what the hook
//! meets in production, as often as it is wanted. What the hook does to it is taken back in between.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use crate::common::cgroup;
use crate::common::command::Running;
use crate::common::host::{Host, make_dir};
use crate::common::runtime::{Runtime, Step};
use crate::common::view::Cgroups;
use crate::common::wait;
use vgpu::sys::bpf;

/// A config.json as podman 4.3 wrote it, its request taken out.
const PODMAN: &str = include_str!("podman.config.json");

/// What the hook puts into the container's `/dev`: nvidiactl, nvidia-uvm, nvidia-uvm-tools and two GPUs.
const NODES: usize = 5;

/// The container.
pub struct Parked<'h> {
    host: &'h Host,
    /// The OCI state that runc gave its hook; the bundle asks for two vGPUs.
    pub state: String,
    /// The same, but of a bundle that asks for nothing.
    pub state_without_request: String,
    /// The state at poststop.
    pub state_stopped: String,
    root: PathBuf,
    pid: u32,
    rules: Rules,
    _create: Running,
}

/// The rules of its device cgroup, as runc made them.
enum Rules {
    V1 { cgroup: PathBuf, list: Vec<String> },
    V2 { cgroup: File, program: OwnedFd },
}

impl<'h> Parked<'h> {
    /// Starts `runc create` and returns once its createRuntime hook has been called.
    pub fn new(host: &'h Host) -> Self {
        let (gate, told) = (host.dir().join("gate"), host.dir().join("parked.json"));
        mkfifoat(CWD, &gate, Mode::RUSR | Mode::WUSR).expect("a FIFO");
        let wait = r#"cat >"$0"; read -r _ <"$1""#;
        let hook = ["/bin/sh", "-c", wait, text(&told), text(&gate)];
        let cgroup = format!("/{}/parked", host.name());
        let container = host
            .container(Runtime::Runc)
            .furnish(|root| {
                fs::copy("/etc/ld.so.cache", root.join("etc/ld.so.cache")).expect("a linker cache");
            })
            .tweak(|config| *config = podman(config, &cgroup, &hook, host.dir()))
            .build();
        let create = container.spawn_step(Step::Create);
        wait::for_file(&told, "runc to call its hook", |state| serde_json::from_str::<Value>(state).is_ok());

        let state = fs::read_to_string(&told).expect("a state");
        let told: Value = serde_json::from_str(&state).expect("a state");
        let pid = told["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("a pid");
        let with = |change: &dyn Fn(&mut Value)| {
            let mut state = told.clone();
            change(&mut state);
            state.to_string()
        };
        let plain = host.dir().join("plain");
        make_dir(&plain);
        fs::write(plain.join("config.json"), PODMAN).expect("config.json");
        Self {
            host,
            state_without_request: with(&|state| state["bundle"] = json!(plain)),
            state_stopped: with(&|state| {
                state["status"] = json!("stopped");
                state.as_object_mut().expect("a state").remove("pid");
            }),
            state,
            root: container.root().to_owned(),
            pid,
            rules: Rules::of(host, pid),
            _create: create,
        }
    }

    /// Takes the nodes out of its `/dev` again, and the driver's files away, and gives its device cgroup back the rules it had. Ends the
    /// run where the hook has not brought them all.
    pub fn undo(&self) {
        let container = Inside::enter(Path::new(&format!("/proc/{}/ns/mnt", self.pid)));
        let dev = self.root.join("dev");
        let names = fs::read_dir(&dev).expect("its /dev").map(|entry| entry.expect("an entry").file_name());
        let nodes: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("nvidia")).collect();
        assert_eq!(nodes.len(), NODES, "{nodes:?}");
        for node in nodes {
            unmount(dev.join(&node), UnmountFlags::empty()).expect("a mounted node");
            fs::remove_file(dev.join(&node)).expect("its mount point");
        }
        unmount(dev.join("vgpu"), UnmountFlags::empty()).expect("a mounted /dev/vgpu");
        fs::remove_dir(dev.join("vgpu")).expect("its mount point");
        for files in ["usr/local/nvidia", "etc/ld.so.cache"] {
            unmount(self.root.join(files), UnmountFlags::DETACH).expect("the driver's files");
        }
        drop(container);
        self.rules.restore(self.host, self.pid);
    }
}

/// The captured config.json, for this container: its root, a cgroup, one hook, and a request as the capture
/// had it. The files that podman mounts into each container are empty.
fn podman(config: &Value, cgroup: &str, hook: &[&str], dir: &Path) -> Value {
    let mut podman: Value = serde_json::from_str(PODMAN).expect("a config.json");
    podman["root"] = config["root"].clone();
    podman["linux"]["cgroupsPath"] = json!(cgroup);
    // Not every hierarchy of the simulated host has this controller.
    podman["linux"]["resources"].as_object_mut().expect("resources").remove("pids");
    podman["hooks"] = json!({ "createRuntime": [{ "path": hook[0], "args": hook }] });
    podman["annotations"]["vgpu.count"] = json!("2");
    podman["annotations"]["vgpu.type"] = json!("small");
    for mount in podman["mounts"].as_array_mut().expect("mounts") {
        if mount["type"] == "bind" {
            let target = Path::new(mount["destination"].as_str().expect("a path"));
            let source = dir.join("binds").join(target.file_name().expect("a name"));
            make_dir(source.parent().expect("a directory"));
            if target.ends_with("shm") {
                make_dir(&source)
            } else {
                fs::write(&source, "").expect("a file")
            }
            mount["source"] = json!(source);
        }
    }
    podman
}

impl Rules {
    fn of(host: &Host, pid: u32) -> Self {
        let cgroup = cgroup::of(host, pid);
        if host.view().cgroups() != Cgroups::V2 {
            return Self::V1 { cgroup, list: cgroup::device_rules(host, pid) };
        }
        let cgroup = File::open(&cgroup).expect("a cgroup");
        let program = bpf::open(attached(&cgroup)).expect("its program");
        Self::V2 { cgroup, program }
    }

    fn restore(&self, host: &Host, pid: u32) {
        match self {
            Self::V1 { cgroup, list } => {
                let now = cgroup::device_rules(host, pid);
                let added: Vec<_> = now.iter().filter(|rule| !list.contains(rule)).collect();
                assert_eq!(added.len(), NODES, "{added:?}");
                for rule in added {
                    fs::write(cgroup.join("devices.deny"), rule).expect("devices.deny");
                }
                assert_eq!(cgroup::device_rules(host, pid), *list);
            }
            Self::V2 { cgroup, program } => {
                let widened = bpf::open(attached(cgroup)).expect("its program");
                let name = bpf::read(widened.as_fd()).expect("its program").name;
                assert!(name.starts_with("vgpu"), "{name}");
                bpf::replace(cgroup.as_fd(), program.as_fd(), widened.as_fd()).expect("bpf(2)");
            }
        }
    }
}

/// The one device program of a cgroup of v2.
fn attached(cgroup: &File) -> u32 {
    let attached = bpf::attached(cgroup.as_fd()).expect("bpf(2)");
    let [program] = attached.ids[..] else { panic!("not one program: {attached:?}") };
    program
}

/// This process in another mount namespace, until this is dropped.
pub struct Inside {
    back: File,
}

impl Inside {
    /// Enters the namespace that `/proc/<pid>/ns/mnt` names.
    pub fn enter(namespace: &Path) -> Self {
        let back = File::open("/proc/self/ns/mnt").expect("a namespace");
        go_to(&File::open(namespace).expect("a namespace"));
        Self { back }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        go_to(&self.back);
    }
}

fn go_to(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount)).expect("setns");
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
