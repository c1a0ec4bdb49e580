//! Device access of real containers, on the real kernel: runc and crun, cgroup v1 and v2.
//!
//! The oracle: a node with NVIDIA's major and nothing behind it opens with ENXIO where the device cgroup
//! allows it, with EPERM where it does not. Each test runs itself again in a process and a mount namespace of
//! its own, where the cgroup version it is about is the one that is mounted.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::host::Host;
use common::parked::Lot;
use common::view::Cgroups;
use rustix::fs::{CWD, FlockOperation};
use rustix::process::{WaitId, WaitIdOptions};
use tempfile::TempDir;
use vgpu::cgroup::{self, CgroupPath, Dir, Hierarchy};
use vgpu::device_rule::{Access, DeviceRule};
use vgpu::error::{Exit, Result};
use vgpu::inject::{cgroup_v1, cgroup_v2};
use vgpu::sys::bpf::{self, Insn};
use vgpu::types::DeviceNumber;

/// What is mounted at /sys/fs/cgroup.
#[derive(Clone, Copy, PartialEq)]
enum Mounted {
    V1,
    V2,
    /// v1 with a v2 tree beside it.
    Hybrid,
}

impl Mounted {
    /// Shell commands, run in a private mount namespace.
    fn script(self) -> &'static str {
        match self {
            Self::V2 => "umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup",
            Self::V1 => {
                "umount -R /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup; cd /sys/fs/cgroup; \
                 mkdir devices; mount -t cgroup -o devices none devices"
            }
            Self::Hybrid => {
                "umount -R /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup; cd /sys/fs/cgroup; \
                 mkdir devices unified; mount -t cgroup -o devices none devices; \
                 mount -t cgroup2 none unified"
            }
        }
    }

    fn hierarchy(self) -> Hierarchy {
        if self == Self::V2 { Hierarchy::V2 } else { Hierarchy::V1Devices }
    }
}

/// Set in the process that a test runs itself in again.
const INSIDE: &str = "VGPU_TEST_INSIDE";

/// Runs `body` alone in a process that sees `mounted`. `test` is the calling test's name.
fn with(mounted: Mounted, test: &str, body: impl FnOnce()) {
    with_lock(mounted, test, FlockOperation::LockShared, body);
}

/// `lock`: nobody loads device programs while another test changes how the kernel shows them.
fn with_lock(mounted: Mounted, test: &str, lock: FlockOperation, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        assert_eq!(Hierarchy::of_host(), Ok(mounted.hierarchy()));
        return body();
    }
    assert!(rustix::process::geteuid().is_root(), "needs root");
    let lock_file = File::create(std::env::temp_dir().join("vgpu-test-device-programs.lock")).unwrap();
    rustix::fs::flock(&lock_file, lock).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--propagation=private", "sh", "-ec"])
        .arg(format!("{}; cd /; exec \"$0\" \"$@\"", mounted.script()))
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--include-ignored", "--test-threads=1", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    print!("{text}");
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {}", output.status);
}

fn gpu(minor: u32) -> DeviceNumber {
    DeviceNumber { major: 195, minor }
}

const NULL: DeviceNumber = DeviceNumber { major: 1, minor: 3 };

/// What a shell said when it opened a node.
fn verdict(said: &str) -> &'static str {
    let known = [("opened", "opened"), ("No such device", "ENXIO"), ("not permitted", "EPERM")];
    known.into_iter().find(|(text, _)| said.contains(text)).unwrap_or_else(|| panic!("{said}")).1
}

/// Removes a test's cgroup tree when the test is over.
struct Parent {
    mounted: Mounted,
    path: String,
}

impl Parent {
    fn new(mounted: Mounted) -> Self {
        let parent = Self { mounted, path: format!("/vgpu-test-{}", std::process::id()) };
        fs::create_dir(parent.on_host("")).unwrap();
        parent
    }

    fn on_host(&self, name: &str) -> PathBuf {
        Path::new(self.mounted.hierarchy().root()).join(format!("{}/{name}", &self.path[1..]))
    }

    fn path(&self, name: &str) -> CgroupPath {
        format!("{}/{name}", self.path).parse().unwrap()
    }

    /// A cgroup without a container.
    fn plain(&self, name: &str) -> Dir {
        fs::create_dir_all(self.on_host(name)).unwrap();
        Dir::open(self.mounted.hierarchy(), &self.path(name)).unwrap()
    }

    fn own(&self) -> Dir {
        Dir::open(self.mounted.hierarchy(), &self.path.parse().unwrap()).unwrap()
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        // On a hybrid host runtimes make the cgroup in the v2 tree, too.
        for root in ["/sys/fs/cgroup/devices", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
            remove_tree(Path::new(&format!("{root}{}", self.path)));
        }
    }
}

fn remove_tree(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(dir);
}

/// A running container whose init opens what it is told to.
struct Container {
    runtime: &'static str,
    bundle: TempDir,
    id: String,
    pid: u32,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

const INIT: &str = "while read node; do if said=$( (: <>/n/$node) 2>&1 ); then echo opened; \
                    else echo \"$said\"; fi; done";

impl Container {
    /// `devices`: `linux.resources.devices` of the spec, JSON.
    fn start(runtime: &'static str, parent: &Parent, devices: &str) -> Self {
        let bundle = TempDir::new().unwrap();
        let id = format!("{}-{}", &parent.path[1..], bundle.path().file_name().unwrap().to_str().unwrap());
        let id = id.replace('.', "");
        write_bundle(bundle.path(), &format!("{}/{id}", parent.path), devices);
        let mut run = Self::runtime(runtime, bundle.path());
        if runtime == "crun" {
            run.env("LD_PRELOAD", without_rlimits(bundle.path()));
        }
        let (pid_file, log) = (bundle.path().join("pid"), bundle.path().join("log"));
        run.args(["run", "--detach", "--bundle"])
            .arg(bundle.path())
            .arg("--pid-file")
            .arg(&pid_file)
            .arg(&id);
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = run.spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let status = child.wait().unwrap();
        assert!(status.success(), "{runtime}: {status}: {}", fs::read_to_string(&log).unwrap());
        let pid = fs::read_to_string(&pid_file).unwrap().parse().unwrap();
        Self { runtime, bundle, id, pid, orders, answers: BufReader::new(answers) }
    }

    fn runtime(runtime: &str, bundle: &Path) -> Command {
        let mut command = Command::new(runtime);
        command.arg("--root").arg(bundle.join("state"));
        command
    }

    fn cgroup(&self, hierarchy: Hierarchy) -> Dir {
        let proc_dir = File::open(format!("/proc/{}", self.pid)).unwrap();
        let path = cgroup::of_process(proc_dir.as_fd(), hierarchy).unwrap();
        assert!(path.as_str().ends_with(&self.id), "{path}");
        Dir::open(hierarchy, &path).unwrap()
    }

    /// What opening `/n/<node>` for reading and writing says inside.
    fn open(&mut self, node: &str) -> &'static str {
        writeln!(self.orders, "{node}").unwrap();
        let mut said = String::new();
        self.answers.read_line(&mut said).unwrap();
        verdict(&said)
    }

    /// GPUs 0 to 3, then /dev/null.
    fn opens(&mut self) -> [&'static str; 5] {
        ["0", "1", "2", "3", "null"].map(|node| self.open(node))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let mut delete = Self::runtime(self.runtime, self.bundle.path());
        let _ = delete.args(["delete", "--force", &self.id]).status();
    }
}

fn write_bundle(bundle: &Path, cgroup: &str, devices: &str) {
    let root = bundle.join("rootfs");
    for dir in ["bin", "proc", "dev", "n"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::copy("/bin/busybox", root.join("bin/sh")).expect("package busybox-static is installed");
    for (name, device) in [("null", NULL), ("0", gpu(0)), ("1", gpu(1)), ("2", gpu(2)), ("3", gpu(3))] {
        node(&root.join("n").join(name), device);
    }
    let devices: serde_json::Value = serde_json::from_str(devices).unwrap();
    let spec = serde_json::json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["/bin/sh", "-c", INIT]},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        ],
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": [{"type": "pid"}, {"type": "mount"}],
            "resources": {"devices": devices},
        },
    });
    fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
}

fn node(path: &Path, device: DeviceNumber) {
    let number = rustix::fs::makedev(device.major, device.minor);
    rustix::fs::mknodat(CWD, path, rustix::fs::FileType::CharacterDevice, 0o666.into(), number).unwrap();
    rustix::fs::chmod(path, 0o666.into()).unwrap();
}

/// crun insists on raising RLIMIT_MEMLOCK, which takes a capability that build machines may lack.
fn without_rlimits(dir: &Path) -> PathBuf {
    let (source, library) = (dir.join("rlimits.c"), dir.join("rlimits.so"));
    let code = "int setrlimit(int what, const void *limit) { return 0; }\n\
                int setrlimit64(int what, const void *limit) { return 0; }\n";
    fs::write(&source, code).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(built.success());
    library
}

/// GPU 3 for reading and writing, which the container has of itself.
const HAS_GPU3: &str = r#"[{"allow": false, "access": "rwm"},
                           {"allow": true, "type": "c", "major": 195, "minor": 3, "access": "rw"}]"#;

fn gpu3_rules() -> [DeviceRule; 1] {
    [DeviceRule::allow_char(gpu(3), Access::READ_WRITE)]
}

fn ids(dir: &Dir) -> Vec<u32> {
    bpf::attached(dir.as_fd()).unwrap().ids
}

fn list(parent: &Parent, dir: &Dir) -> String {
    let name = dir.path().as_str().rsplit('/').next().unwrap();
    fs::read_to_string(parent.on_host(name).join("devices.list")).unwrap()
}

fn v1_grants_and_takes_back(mounted: Mounted, runtime: &'static str) {
    let parent = Parent::new(mounted);
    let mut container = Container::start(runtime, &parent, HAS_GPU3);
    let dir = container.cgroup(Hierarchy::V1Devices);
    let before = list(&parent, &dir);
    assert_eq!(container.opens(), ["EPERM", "EPERM", "EPERM", "ENXIO", "opened"]);

    let undo = cgroup_v1::allow(&dir, &[gpu(0), gpu(2), gpu(3)]).unwrap();
    assert_eq!(container.opens(), ["ENXIO", "EPERM", "ENXIO", "ENXIO", "opened"]);

    // Asked again, there is nothing to do, and nothing to take back.
    let after = list(&parent, &dir);
    cgroup_v1::allow(&dir, &[gpu(0), gpu(2), gpu(3)]).unwrap().undo().unwrap();
    assert_eq!(list(&parent, &dir), after);

    undo.undo().unwrap();
    assert_eq!(list(&parent, &dir), before);
    assert_eq!(container.opens(), ["EPERM", "EPERM", "EPERM", "ENXIO", "opened"]);
}

#[test]
#[ignore = "needs root: runs containers"]
fn v1_runc() {
    with(Mounted::V1, "v1_runc", || v1_grants_and_takes_back(Mounted::V1, "runc"));
}

#[test]
#[ignore = "needs root: runs containers"]
fn v1_crun() {
    with(Mounted::V1, "v1_crun", || v1_grants_and_takes_back(Mounted::V1, "crun"));
}

#[test]
#[ignore = "needs root: runs containers"]
fn hybrid_runc() {
    with(Mounted::Hybrid, "hybrid_runc", || v1_grants_and_takes_back(Mounted::Hybrid, "runc"));
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v1_undo_leaves_half_an_entry_that_was_there() {
    with(Mounted::V1, "v1_undo_leaves_half_an_entry_that_was_there", || {
        let parent = Parent::new(Mounted::V1);
        let dir = parent.plain("half");
        fs::write(parent.on_host("half/devices.deny"), "a").unwrap();
        fs::write(parent.on_host("half/devices.allow"), "c 195:0 rm").unwrap();
        let undo = cgroup_v1::allow(&dir, &[gpu(0)]).unwrap();
        assert_eq!(list(&parent, &dir), "c 195:0 rwm\n");
        undo.undo().unwrap();
        assert_eq!(list(&parent, &dir), "c 195:0 rm\n");
    });
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v1_an_ancestor_that_denies_is_named() {
    with(Mounted::V1, "v1_an_ancestor_that_denies_is_named", || {
        let parent = Parent::new(Mounted::V1);
        parent.plain("outer");
        fs::write(parent.on_host("outer/devices.deny"), "c 195:1 rwm").unwrap();
        let dir = parent.plain("outer/inner");
        fs::write(parent.on_host("outer/inner/devices.deny"), "a").unwrap();
        let error = cgroup_v1::allow(&dir, &[gpu(0), gpu(1)]).unwrap_err();
        assert_eq!(error.exit, Exit::Io);
        // The outer cgroup shows `a *:* rwm`, whatever it denies.
        assert!(error.to_string().contains("one of its ancestors denies it"), "{error}");
        let left = fs::read_to_string(parent.on_host("outer/inner/devices.list")).unwrap();
        assert_eq!(left, "", "what was allowed before the error is taken back");

        parent.plain("strict");
        fs::write(parent.on_host("strict/devices.deny"), "a").unwrap();
        fs::write(parent.on_host("strict/devices.allow"), "c 195:0 rw").unwrap();
        let dir = parent.plain("strict/middle/inner");
        let error = cgroup_v1::allow(&dir, &[gpu(0), gpu(1)]).unwrap_err();
        let named = format!("its ancestor \"{}/strict\" denies it", parent.path);
        assert!(error.to_string().contains(&named), "{error}");
    });
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v1_deny_closes() {
    with(Mounted::V1, "v1_deny_closes", || {
        let parent = Parent::new(Mounted::V1);
        let dir = parent.plain("c");
        let node = TempDir::new().unwrap();
        for minor in 0..2 {
            self::node(&node.path().join(minor.to_string()), gpu(minor));
        }
        let rules = |list: &[&str]| {
            fs::write(parent.on_host("c/devices.deny"), "a").unwrap();
            list.iter().for_each(|rule| fs::write(parent.on_host("c/devices.allow"), rule).unwrap());
        };
        let opens = || ["0", "1"].map(|name| open_inside(&parent.on_host("c"), &node.path().join(name)));

        rules(&["c 195:0 rw", "c 195:1 rw"]);
        cgroup_v1::deny(&dir, &[gpu(0)]).unwrap();
        assert_eq!(opens(), ["EPERM", "ENXIO"]);

        rules(&["c 195:* rwm", "c 195:0 r"]);
        cgroup_v1::deny(&dir, &[gpu(0)]).unwrap();
        assert_eq!(opens()[0], "EPERM", "an entry for all of the driver's devices goes, too");

        rules(&["c *:* rw"]);
        let error = cgroup_v1::deny(&dir, &[gpu(0)]).unwrap_err();
        assert!(error.to_string().contains("\"c *:* rw\""), "{error}");

        rules(&["a"]);
        assert_eq!(opens(), ["ENXIO", "ENXIO"]);
        cgroup_v1::deny(&dir, &[gpu(0)]).unwrap();
        assert_eq!(opens(), ["EPERM", "ENXIO"], "among what is denied");
    });
}

fn v2_grants_and_takes_back(runtime: &'static str) {
    let parent = Parent::new(Mounted::V2);
    let mut container = Container::start(runtime, &parent, HAS_GPU3);
    let dir = container.cgroup(Hierarchy::V2);
    let before = ids(&dir);
    assert_eq!(before.len(), 1);
    assert_eq!(container.opens(), ["EPERM", "EPERM", "EPERM", "ENXIO", "opened"]);

    let undo = cgroup_v2::allow(&dir, &[gpu(0), gpu(2)], &[]).unwrap();
    assert!(undo.ruled);
    let after = ids(&dir);
    assert_ne!(after, before);
    assert_eq!(container.opens(), ["ENXIO", "EPERM", "ENXIO", "ENXIO", "opened"]);

    // Asked again, there is nothing to do, and nothing to take back.
    cgroup_v2::allow(&dir, &[gpu(0), gpu(2)], &[]).unwrap().undo().unwrap();
    assert_eq!(ids(&dir), after);

    undo.undo().unwrap();
    assert_eq!(ids(&dir), before);
    assert_eq!(container.opens(), ["EPERM", "EPERM", "EPERM", "ENXIO", "opened"]);
}

#[test]
#[ignore = "needs root: runs containers"]
fn v2_runc() {
    with(Mounted::V2, "v2_runc", || v2_grants_and_takes_back("runc"));
}

#[test]
#[ignore = "needs root: runs containers"]
fn v2_crun() {
    with(Mounted::V2, "v2_crun", || v2_grants_and_takes_back("crun"));
}

/// Allows /dev/null alone, in the way a program of systemd's would.
fn null_only() -> Vec<Insn> {
    let unless = |register, value, skip| Insn::new(0x55, register, 0, skip, value);
    vec![
        Insn::new(0x61, 2, 1, 4, 0),
        Insn::new(0x61, 3, 1, 8, 0),
        unless(2, 1, 3),
        unless(3, 3, 2),
        Insn::new(0xb7, 0, 0, 0, 1),
        Insn::new(0x95, 0, 0, 0, 0),
        Insn::new(0xb7, 0, 0, 0, 0),
        Insn::new(0x95, 0, 0, 0, 0),
    ]
}

fn attach(dir: &Dir, name: &str, program: &[Insn], flags: u32) -> OwnedFd {
    let program = bpf::load(name, program).unwrap();
    bpf::attach(dir.as_fd(), program.as_fd(), flags).unwrap();
    program
}

#[test]
#[ignore = "needs root: runs containers"]
fn v2_every_attached_program_is_widened() {
    with(Mounted::V2, "v2_every_attached_program_is_widened", || {
        let parent = Parent::new(Mounted::V2);
        let mut container = Container::start("runc", &parent, HAS_GPU3);
        let dir = container.cgroup(Hierarchy::V2);
        attach(&dir, "second", &null_only(), bpf::ALLOW_MULTI);
        let before = ids(&dir);
        assert_eq!(before.len(), 2);
        assert_eq!(container.opens(), ["EPERM", "EPERM", "EPERM", "EPERM", "opened"]);

        let undo = cgroup_v2::allow(&dir, &[gpu(0)], &[]).unwrap();
        assert_eq!(container.opens(), ["ENXIO", "EPERM", "EPERM", "EPERM", "opened"]);
        // The second comes back, as systemd's does at daemon-reload: only it is widened again.
        let ours = ids(&dir);
        let [first, second] = [0, 1].map(|i| bpf::open(ours[i]).unwrap());
        let again = bpf::load("second", &null_only()).unwrap();
        bpf::replace(dir.as_fd(), again.as_fd(), second.as_fd()).unwrap();
        assert_eq!(container.open("0"), "EPERM");
        let second_undo = cgroup_v2::allow(&dir, &[gpu(0)], &[]).unwrap();
        assert_eq!(container.open("0"), "ENXIO");
        assert_eq!(ids(&dir)[0], bpf::read(first.as_fd()).unwrap().id);
        second_undo.undo().unwrap();

        // Its own swap cannot be undone any more: that is left alone, the other is undone.
        undo.undo().unwrap();
        assert_eq!(ids(&dir), [before[0], bpf::read(again.as_fd()).unwrap().id]);
    });
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v2_an_ancestor_that_denies_is_named() {
    with(Mounted::V2, "v2_an_ancestor_that_denies_is_named", || {
        let parent = Parent::new(Mounted::V2);
        let node = TempDir::new().unwrap();
        let node = node.path().join("gpu");
        self::node(&node, gpu(0));
        let dir = parent.plain("inner");
        attach(&dir, "runtime", &null_only(), bpf::ALLOW_MULTI);
        assert_eq!(open_inside(&parent.on_host("inner"), &node), "EPERM");
        let undo = cgroup_v2::allow(&dir, &[gpu(0)], &[]).unwrap();
        assert_eq!(open_inside(&parent.on_host("inner"), &node), "ENXIO");
        assert_eq!(cgroup_v2::ancestors_with_programs(dir.path()), Ok(vec![]));

        attach(&parent.own(), "outer", &null_only(), bpf::ALLOW_MULTI);
        assert_eq!(open_inside(&parent.on_host("inner"), &node), "EPERM");
        let ruled = cgroup_v2::ancestors_with_programs(dir.path()).unwrap();
        assert_eq!(ruled, [parent.path.parse().unwrap()]);
        undo.undo().unwrap();
    });
}

/// The same, as the hook says it. What it has done to the container's own cgroup is undone.
#[test]
#[ignore = "needs root: makes cgroups"]
fn v2_a_hook_names_the_ancestors_that_may_deny() {
    with(Mounted::V2, "v2_a_hook_names_the_ancestors_that_may_deny", || {
        let host = Host::new(Cgroups::V2);
        let (lot, name) = (Lot::new(&host, 1), host.name());
        let refused = |above: &[&str], which: &str| {
            let parked = lot.park_beneath(above, &format!("c{}", above.len()));
            let rules = parked.rules();
            let output = host.run_hook("createRuntime", &parked.created());
            let line = format!(
                "vgpu: {which} above the container's denies device 195:255 (/dev/nvidiactl); \
                 allow it there (systemd: DeviceAllow= of the slice)\n"
            );
            assert_eq!((output.code, output.stderr), (Some(65), line));
            assert_eq!(parked.rules(), rules);
        };
        refused(&["outer"], &format!("cgroup \"/{name}/outer\""));
        refused(&["one", "two"], &format!("one of the cgroups \"/{name}/one/two\", \"/{name}/one\""));
        assert_eq!(host.status()["leases"], serde_json::json!([]));
    });
}

/// How the kernel shows device programs; put back when dropped. Holds the whole machine's settings.
struct Hardened([(&'static str, String); 2]);

const HARDEN: &str = "/proc/sys/net/core/bpf_jit_harden";
const RESTRICT: &str = "/proc/sys/kernel/kptr_restrict";

impl Hardened {
    fn new(kptr_restrict: &str) -> Self {
        let saved = Self([HARDEN, RESTRICT].map(|name| (name, fs::read_to_string(name).unwrap())));
        fs::write(HARDEN, "2").unwrap();
        fs::write(RESTRICT, kptr_restrict).unwrap();
        saved
    }
}

impl Drop for Hardened {
    fn drop(&mut self) {
        self.0.iter().for_each(|(name, value)| fs::write(name, value).unwrap());
    }
}

fn shown(dir: &Dir) -> Option<Vec<Insn>> {
    bpf::read(bpf::open(ids(dir)[0]).unwrap().as_fd()).unwrap().insns
}

fn v2_hardened(runtime: &'static str, kptr_restrict: &str, spec: &[DeviceRule]) {
    let parent = Parent::new(Mounted::V2);
    let _hardened = Hardened::new(kptr_restrict);
    let mut container = Container::start(runtime, &parent, HAS_GPU3);
    let dir = container.cgroup(Hierarchy::V2);
    let before = ids(&dir);
    assert_eq!(shown(&dir).is_none(), kptr_restrict == "2", "the kernel hides what it should");
    if let Some(insns) = shown(&dir) {
        assert!(insns.iter().any(|insn| insn.src() == 11), "the program is blinded");
    }
    let undo = cgroup_v2::allow(&dir, &[gpu(0)], spec).unwrap();
    assert_eq!(container.opens(), ["ENXIO", "EPERM", "EPERM", "ENXIO", "opened"]);
    let after = ids(&dir);
    cgroup_v2::allow(&dir, &[gpu(0)], spec).unwrap().undo().unwrap();
    assert_eq!(ids(&dir), after, "known again, though it cannot be read");
    undo.undo().unwrap();
    assert_eq!(ids(&dir), before);
}

#[test]
#[ignore = "needs root: runs containers, hardens the kernel's JIT for a moment"]
fn v2_blinded_programs_are_widened_exactly() {
    let lock = FlockOperation::LockExclusive;
    with_lock(Mounted::V2, "v2_blinded_programs_are_widened_exactly", lock, || {
        // An empty list: GPU 3 is known from the program alone.
        v2_hardened("runc", "1", &[]);
        v2_hardened("crun", "1", &[]);
    });
}

#[test]
#[ignore = "needs root: runs containers, hardens the kernel's JIT for a moment"]
fn v2_hidden_programs_are_built_anew() {
    let lock = FlockOperation::LockExclusive;
    with_lock(Mounted::V2, "v2_hidden_programs_are_built_anew", lock, || {
        v2_hardened("runc", "2", &gpu3_rules());
        v2_hardened("crun", "2", &gpu3_rules());
    });
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v2_long_device_lists_load() {
    let lock = FlockOperation::LockExclusive;
    with_lock(Mounted::V2, "v2_long_device_lists_load", lock, || {
        let parent = Parent::new(Mounted::V2);
        let _hardened = Hardened::new("2");
        let dir = parent.plain("c");
        attach(&dir, "runtime", &null_only(), bpf::ALLOW_MULTI);
        let accesses = ["r", "w", "rw", "rwm"];
        let rule = |i: usize| DeviceRule {
            allow: !i.is_multiple_of(5),
            access: accesses[i % 4].parse().unwrap(),
            ..format!("{} {}:{} r", ["a", "b", "c"][i % 3], i % 7, i).parse().unwrap()
        };
        let rules: Vec<_> = (0..2000).map(rule).collect();
        let devices: Vec<_> = (0..256).map(gpu).collect();
        cgroup_v2::allow(&dir, &devices, &rules).unwrap().undo().unwrap();
    });
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v2_without_a_program_there_is_nothing_to_widen() {
    with(Mounted::V2, "v2_without_a_program_there_is_nothing_to_widen", || {
        let parent = Parent::new(Mounted::V2);
        let dir = parent.plain("c");
        let undo = cgroup_v2::allow(&dir, &[gpu(0)], &[]).unwrap();
        assert!(!undo.ruled);
        assert_eq!(ids(&dir), [0; 0]);
        undo.undo().unwrap();
    });
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v2_a_program_that_must_be_alone_is_swapped() {
    with(Mounted::V2, "v2_a_program_that_must_be_alone_is_swapped", || {
        let parent = Parent::new(Mounted::V2);
        let node = TempDir::new().unwrap();
        let node = node.path().join("gpu");
        self::node(&node, gpu(0));
        for flags in [0, 1] {
            let name = format!("c{flags}");
            let dir = parent.plain(&name);
            attach(&dir, "alone", &null_only(), flags);
            let before = bpf::attached(dir.as_fd()).unwrap();
            let undo = cgroup_v2::allow(&dir, &[gpu(0)], &[]).unwrap();
            let after = bpf::attached(dir.as_fd()).unwrap();
            assert_eq!((after.ids.len(), after.flags), (1, flags));
            assert_eq!(open_inside(&parent.on_host(&name), &node), "ENXIO");
            cgroup_v2::deny(&dir, &[gpu(0)]).unwrap();
            assert_eq!(open_inside(&parent.on_host(&name), &node), "EPERM");
            undo.undo().unwrap();
            assert_eq!(bpf::attached(dir.as_fd()).unwrap(), before);
        }
    });
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v2_a_program_with_helpers_is_refused_and_left_alone() {
    with(Mounted::V2, "v2_a_program_with_helpers_is_refused_and_left_alone", || {
        let parent = Parent::new(Mounted::V2);
        let dir = parent.plain("c");
        let current_uid = Insn::new(0x85, 0, 0, 0, 15);
        let helper = [current_uid, Insn::new(0xb7, 0, 0, 0, 0), Insn::new(0x95, 0, 0, 0, 0)];
        attach(&dir, "first", &null_only(), bpf::ALLOW_MULTI);
        attach(&dir, "helper", &helper, bpf::ALLOW_MULTI);
        let before = ids(&dir);
        let error = cgroup_v2::allow(&dir, &[gpu(0)], &[]).unwrap_err();
        assert!(error.to_string().contains("uses maps or helpers"), "{error}");
        assert_eq!(ids(&dir), before, "the first one's swap is undone");
    });
}

#[test]
#[ignore = "needs root: runs containers"]
fn v2_deny_closes() {
    with(Mounted::V2, "v2_deny_closes", || {
        let parent = Parent::new(Mounted::V2);
        let mut container = Container::start("runc", &parent, HAS_GPU3);
        let dir = container.cgroup(Hierarchy::V2);
        let _undo = cgroup_v2::allow(&dir, &[gpu(0), gpu(1)], &[]).unwrap();
        cgroup_v2::deny(&dir, &[gpu(1), gpu(3)]).unwrap();
        assert_eq!(container.opens(), ["ENXIO", "EPERM", "EPERM", "EPERM", "opened"]);

        // As a privileged container's cgroup is: no program at all.
        let (node, open) = (TempDir::new().unwrap(), parent.plain("open"));
        let node = node.path().join("gpu");
        self::node(&node, gpu(0));
        assert_eq!(open_inside(&parent.on_host("open"), &node), "ENXIO");
        cgroup_v2::deny(&open, &[gpu(0)]).unwrap();
        assert_eq!(open_inside(&parent.on_host("open"), &node), "EPERM");
        assert_eq!(open_inside(&parent.on_host("open"), Path::new("/dev/null")), "opened");
    });
}

/// What opening `node` says to a process in the cgroup.
fn open_inside(cgroup: &Path, node: &Path) -> &'static str {
    let script = "echo 0 > \"$0/cgroup.procs\"; : <>\"$1\" && echo opened";
    let output = Command::new("sh").args(["-c", script]).args([cgroup, node]).output().unwrap();
    verdict(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
}

/// A process in a cgroup, waiting for the end of its input.
fn sleeper(procs: &Path) -> Child {
    let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    fs::write(procs, child.id().to_string()).unwrap();
    child
}

fn populated_while_a_process_is_left(mounted: Mounted) {
    let parent = Parent::new(mounted);
    let dir = parent.plain("c");
    parent.plain("c/inner/most");
    assert_eq!(dir.populated(), Ok(false));
    for place in ["c/cgroup.procs", "c/inner/most/cgroup.procs"] {
        let mut process = sleeper(&parent.on_host(place));
        assert_eq!(dir.populated(), Ok(true), "{place}");
        process.kill().unwrap();
        let pid = rustix::process::Pid::from_child(&process);
        let dead = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(pid), dead).unwrap();
        assert_eq!(dir.populated(), Ok(false), "a zombie");
        assert_eq!(process.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    let (id, inode) = (dir.id(), dir.inode());
    let reopen = || Dir::reopen(&id).map(|dir| dir.map(|dir| dir.inode()));
    assert_eq!(reopen(), Ok(Some(inode)));
    remove_tree(&parent.on_host("c"));
    assert_eq!(reopen(), Ok(None), "gone");
    assert_eq!(dir.populated(), Ok(false), "gone");
    let other = parent.plain("c");
    assert_ne!(other.inode(), inode);
    assert_eq!(reopen(), Ok(None), "another of that name");
    assert_eq!(dir.populated(), Ok(false), "gone");
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v1_populated() {
    with(Mounted::V1, "v1_populated", || populated_while_a_process_is_left(Mounted::V1));
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v1_a_single_thread_is_enough() {
    with(Mounted::V1, "v1_a_single_thread_is_enough", || {
        let parent = Parent::new(Mounted::V1);
        let dir = parent.plain("c");
        let enter = |tasks: &Path| {
            fs::write(tasks, rustix::thread::gettid().as_raw_nonzero().to_string()).unwrap();
        };
        enter(&parent.on_host("c/tasks"));
        assert_eq!(dir.populated(), Ok(true), "its process is elsewhere");
        enter(&Path::new(Hierarchy::V1Devices.root()).join("tasks"));
        assert_eq!(dir.populated(), Ok(false));
    });
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v1_endless_nesting_counts_as_held() {
    with(Mounted::V1, "v1_endless_nesting_counts_as_held", || {
        let parent = Parent::new(Mounted::V1);
        let dir = parent.plain("c");
        parent.plain(&format!("c{}", "/d".repeat(100)));
        assert_eq!(dir.populated(), Ok(false));
        parent.plain(&format!("c{}", "/d".repeat(101)));
        assert_eq!(dir.populated(), Ok(true));
    });
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn v2_populated() {
    with(Mounted::V2, "v2_populated", || populated_while_a_process_is_left(Mounted::V2));
}

#[test]
#[ignore = "needs root: makes cgroups"]
fn a_container_in_our_own_cgroup_is_refused() {
    with(Mounted::V2, "a_container_in_our_own_cgroup_is_refused", || {
        let parent = Parent::new(Mounted::V2);
        parent.plain("hook/inner");
        let of = |process: &Child| -> Result<CgroupPath> {
            let proc_dir = File::open(format!("/proc/{}", process.id())).unwrap();
            cgroup::of_process(proc_dir.as_fd(), Hierarchy::V2)
        };
        let mut process = sleeper(&parent.on_host("hook/cgroup.procs"));
        assert_eq!(of(&process), Ok(parent.path("hook")));
        // The same cgroup, then one that holds ours.
        for ours in ["hook", "hook/inner"] {
            fs::write(parent.on_host(ours).join("cgroup.procs"), "0").unwrap();
            let error = of(&process).unwrap_err();
            assert_eq!(error.exit, Exit::Request);
            assert!(error.to_string().contains("no cgroup of its own"), "{error}");
        }
        fs::write("/sys/fs/cgroup/cgroup.procs", "0").unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    });
}
