//! An attack on the hook, and how it ended: nothing of the host may have changed, whatever the outcome.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::container::{Builder, Container};
use super::halted::Halted;
use super::host::{Host, MAJOR, make_dir, make_node};
use super::meddler::Meddler;
use super::runtime::Runtime;
use super::snapshot::Snapshot;

/// Those that run a bundle as it is written.
pub const RUNTIMES: [Runtime; 2] = [Runtime::Runc, Runtime::Crun];

/// How a start ended.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// With exactly its nodes.
    Started,
    /// By the hook, with this line.
    Refused(String),
    /// By the runtime, which called no hook.
    NotReached,
}

impl Outcome {
    /// Fails the test unless the hook has refused, saying `text`.
    #[track_caller]
    pub fn assert_refused(&self, text: &str, what: &str) {
        let Self::Refused(line) = self else { panic!("{what}: {self:?}") };
        assert!(line.contains(text), "{what}: {line}");
    }
}

/// What an attack aims at: files, directories, a node and a tmpfs of the host's, outside of every root.
pub struct Outside<'h> {
    host: &'h Host,
    dir: PathBuf,
}

/// All of the host that must be the same after an attack.
pub struct World {
    outside: Snapshot,
    dev: BTreeMap<PathBuf, u64>,
    mounts: String,
}

impl<'h> Outside<'h> {
    /// Makes them.
    pub fn new(host: &'h Host) -> Self {
        let dir = host.dir().join("outside");
        for name in ["dev/vgpu", "vgpu", "tmpfs"] {
            make_dir(&dir.join(name));
        }
        for name in ["file", "dev/nvidia0", "dev/nvidia1", "dev/vgpu/lease.json", "vgpu/lease.json"] {
            fs::write(dir.join(name), "the host's").expect("a file");
        }
        make_node(&dir.join("gpu"), MAJOR, 0);
        let outside = Self { host, dir };
        outside.mount(&["-t", "tmpfs", "-o", "mode=755", "none", &outside.path("tmpfs")]);
        outside
    }

    /// mount(8) on the host.
    pub fn mount(&self, args: &[&str]) {
        self.host.view().run(&[&["mount"], args].concat()).ok();
    }

    /// The path of one of them.
    pub fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// The host as it is now.
    pub fn world(&self) -> World {
        let view = self.host.view();
        let dev = fs::read_dir(view.path("/dev")).expect("/dev").map(|entry| {
            let entry = entry.expect("an entry");
            (entry.path(), entry.ino())
        });
        World { outside: Snapshot::of(&view.path(&self.dir)), dev: dev.collect(), mounts: view.mounts() }
    }

    /// Fails the test if anything of the host is not what it was.
    #[track_caller]
    pub fn assert_is(&self, before: &World, what: &str) {
        let now = self.world();
        now.outside.assert_is(&before.outside, what);
        assert_eq!(now.dev, before.dev, "{what}");
        assert_eq!(now.mounts, before.mounts, "{what}");
    }

    /// Runs the container to its end.
    #[track_caller]
    pub fn attack(&self, container: &Container, what: &str) -> Outcome {
        let before = self.world();
        let output = container.run();
        self.assert_is(&before, what);
        let looked = output.stdout.clone();
        let code = container.hook_codes("createRuntime").last().copied();
        if code == Some(0) {
            output.ok()
        } else {
            output.fails()
        };
        assert_eq!(self.host.status()["leases"], json!([]), "{what}");
        let Some(code) = code else { return Outcome::NotReached };
        judge(self.host, code, &container.hook_stderr("createRuntime"), || looked)
    }
}

/// What a container of [`attacked`] runs: which nodes are in its `/dev`, and its lease.
pub const LOOK: &str = "for node in /dev/* /dev/.[!.]*; do \
     if [ -c \"$node\" ]; then stat -c '%t %T %n' \"$node\"; fi; done; cat /dev/vgpu/lease.json";

/// A container with a request, whose hooks are recorded.
pub fn attacked(host: &Host, runtime: Runtime) -> Builder<'_> {
    host.container(runtime).annotation("vgpu.count", "1").recorded().args(&["sh", "-c", LOOK])
}

/// What a hook's exit code and line come to. `look` is what [`LOOK`] printed.
pub fn judge(host: &Host, code: i32, stderr: &str, look: impl FnOnce() -> String) -> Outcome {
    if code == 0 {
        assert_exactly_its_nodes(host, &look());
        return Outcome::Started;
    }
    let line = stderr.strip_suffix('\n').expect("a line");
    assert!(line.starts_with("vgpu: ") && !line.contains(char::is_control), "{line:?}");
    assert_eq!(code, 65, "{line}");
    Outcome::Refused(line.to_owned())
}

/// Of all device numbers of the driver, a container with one vGPU has these, each under its own name.
fn assert_exactly_its_nodes(host: &Host, looked: &str) {
    let (nodes, lease) = looked.split_at(looked.find('{').unwrap_or_else(|| panic!("no lease: {looked}")));
    let lease: Value = serde_json::from_str(lease).expect("JSON");
    let uuid = &lease["vgpus"][0]["uuid"];
    let gpu = host.gpus.iter().find(|gpu| *uuid == gpu.uuid).expect("a GPU of the host");
    let node = |major: u32, minor: u32, name: &str| format!("{major:x} {minor:x} {name}");
    let mut expected = [
        node(MAJOR, gpu.minor, &gpu.node()),
        node(MAJOR, 255, "/dev/nvidiactl"),
        node(host.uvm_major(), 0, "/dev/nvidia-uvm"),
        node(host.uvm_major(), 1, "/dev/nvidia-uvm-tools"),
    ];
    expected.sort();
    let majors = [MAJOR, host.uvm_major()].map(|major| format!("{major:x} "));
    let of_driver = |line: &&str| majors.iter().any(|major| line.starts_with(major));
    let mut seen: Vec<_> = nodes.lines().filter(of_driver).collect();
    seen.sort_unstable();
    assert_eq!(seen, expected);
}

/// Puts a link in the place of what is there.
pub fn link(at: &Path, target: &str) {
    if at.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        fs::remove_dir_all(at).expect("removing");
    } else {
        let _ = fs::remove_file(at);
    }
    symlink(target, at).expect("a link");
}

/// Where links lead an unwary root: out of the root file system in every way there is, nowhere, and round in
/// a circle. `name` is the link's own, `aim` what it is to reach on the host.
pub fn targets(name: &str, aim: &str) -> [String; 9] {
    let up = "../".repeat(40);
    [
        aim.to_owned(),
        format!("{up}{}", &aim[1..]),
        format!("/proc/self/root{aim}"),
        format!("/proc/1/root{aim}"),
        "/proc/self/fd/0".to_owned(),
        "/proc/1/cwd".to_owned(),
        "/dev/null".to_owned(),
        "nowhere".to_owned(),
        name.to_owned(),
    ]
}

/// How often the hook is called while something changes.
pub const TRIES: usize = 30;

/// Calls the hook that often, each time while a meddler is at work: how often the container would have
/// started. What every refusal says is in `says`.
pub fn meddle(outside: &Outside, halted: &Halted, meddler: impl Fn() -> Meddler, says: &[&str]) -> usize {
    let mut started = 0;
    for _ in 0..TRIES {
        match halted.attack(outside, "meddling", meddler()) {
            Outcome::Started => started += 1,
            Outcome::Refused(line) => assert!(says.iter().any(|says| line.contains(says)), "{line}"),
            Outcome::NotReached => unreachable!("the hook was called by hand"),
        }
        halted.undo();
    }
    started
}
