//! What went wrong elsewhere and was reported in public, and what vgpu does instead: one test or more for each
//! report, named after its row (`r01`), on real runtimes.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::attack::{Outcome, Outside, RUNTIMES, attacked, link, meddle, targets};
use common::bundle::{bind, copied_up, mounts, with_dev, without_dev};
use common::cgroup;
use common::container::{Builder, Container};
use common::halted::{Halted, mounted_by_vgpu};
use common::host::{Gpu, Host, MAJOR, make_dir, make_node};
use common::leases::{
    asking, assert_free, assert_refused, assert_taken_by, holders, host_with_one_vgpu, one_vgpu,
};
use common::meddler::Meddler;
use common::probe::{self, Opened};
use common::runtime::{Runtime, Step, WITH_BUNDLE};
use common::sees::{PATHS, assert_sees_its_lease, nodes, smuggled};
use common::snapshot::Snapshot;
use common::view::Cgroups;
use common::wait::{Process, for_file};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

/// podman 17935: with `--restart`, the poststop of the old run comes when the container is running again. It
/// frees nothing of the new run, which has the same id.
#[test]
#[ignore = "needs root: starts containers"]
fn r01_a_late_poststop_leaves_the_new_run_its_vgpu() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = host_with_one_vgpu(cgroups);
        let container = asking(&host, runtime).without_hooks_of("poststop").build();
        container.up().ok();
        let late = state_of_the_stopped(&container);
        container.down().ok();
        container.up().ok();
        host.run_hook("poststop", &late).ok();
        assert_taken_by(&host, runtime, container.id());
    }
}

/// The OCI state that a poststop hook of the container gets.
fn state_of_the_stopped(container: &Container) -> String {
    let mut state: Value = serde_json::from_str(&container.hook_state("createRuntime")).expect("a state");
    state["status"] = json!("stopped");
    state.as_object_mut().expect("an object").remove("pid");
    state.to_string()
}

/// The same as it was reported.
#[test]
#[ignore = "needs root: starts containers"]
fn r01_podman_restart_keeps_the_vgpu() {
    for (cgroups, runtime) in [(Cgroups::V1, Runtime::PodmanRunc), (Cgroups::V2, Runtime::PodmanCrun)] {
        let host = host_with_one_vgpu(cgroups);
        let container = asking(&host, runtime).podman_arg("--restart=always").build();
        container.up().ok();
        let init = Process::of(container.pid());
        init.kill();
        let codes = container.dir().join("createRuntime.codes");
        for_file(&codes, "the hook of the second run", |codes| codes == "0\n0\n");
        assert_taken_by(&host, runtime, &container.oci_id());
        assert_eq!(host.status()["leases"][0]["alive"], json!(true));
        container.delete_force().ok();
        assert_free(&host, runtime);
    }
}

/// podman 9983: poststop runs twice. The second is success and changes nothing, whoever has the vGPU by then.
#[test]
#[ignore = "needs root: starts containers"]
fn r02_poststop_again_changes_nothing() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = host_with_one_vgpu(cgroups);
        let first = asking(&host, runtime).build();
        first.up().ok();
        first.down().ok();
        let state = first.hook_state("poststop");
        host.run_hook("poststop", &state).ok();
        assert_eq!(holders(&host), [""; 0]);
        let second = asking(&host, runtime).build();
        second.up().ok();
        host.run_hook("poststop", &state).ok();
        assert_taken_by(&host, runtime, second.id());
    }
}

on_every_runtime! {
    /// cri-o 9732: poststop comes when a container is deleted, so the dead keep what they had. Here its end
    /// frees: nobody deletes the container, and it has no poststop hook at all.
    fn r03_a_dead_container_holds_nothing(cgroups, runtime) {
        let host = host_with_one_vgpu(cgroups);
        let container = asking(&host, runtime).without_hooks_of("poststop").build();
        container.up().ok();
        let id = container.oci_id();
        assert_taken_by(&host, runtime, &id);
        let init = Process::of(container.pid());
        init.kill();
        init.ended();
        assert_eq!(holders(&host), [id]);
        assert_eq!(host.status()["leases"][0]["alive"], json!(false));
        assert_free(&host, runtime);
    }
}

/// In the host's pid namespace the first process does not take the others with it. They still use the GPU,
/// whatever the runtime says of the container.
#[test]
#[ignore = "needs root: starts containers"]
fn r03_a_container_outlives_its_init() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = host_with_one_vgpu(cgroups);
        let both = "sleep 1000000 & echo up; exec sleep 1000000";
        let container = asking(&host, runtime).host_pids().args(&["sh", "-c", both]).build();
        let output = container.create().ok();
        container.start().ok();
        for_file(output.stdout_file(), "the second process", |text| text == "up\n");
        let pid = container.pid();
        let cgroup = cgroup::of(&host, pid);
        let init = Process::of(pid);
        init.kill();
        init.ended();
        assert_eq!(container.state().expect("its state").status, "stopped");
        assert_taken_by(&host, runtime, container.id());
        cgroup::processes(&cgroup).into_iter().for_each(|pid| Process::of(pid).kill());
        cgroup::empty(&cgroup);
        assert_free(&host, runtime);
    }
}

on_every_runtime! {
    /// runc 5182: after a poststart hook has failed, poststop never comes. Whether it does depends on the runtime
    /// and its version (crun even lets the container go on), so here it is left out: the end alone frees.
    fn r04_a_failed_poststart_frees(cgroups, runtime) {
        let host = host_with_one_vgpu(cgroups);
        let asking = asking(&host, runtime).without_hooks_of("poststop");
        let container = asking.hook("poststart", &["/bin/false"]).build();
        container.up();
        assert_eq!(container.hook_codes("createRuntime"), [0]);
        let running = container.state().is_some_and(|state| state.status == "running");
        if running {
            assert_taken_by(&host, runtime, &container.oci_id());
            let init = Process::of(container.pid());
            init.kill();
            init.ended();
        }
        assert_free(&host, runtime);
    }
}

/// runtime-spec 958: after a reboot no poststop ever comes for what was running before. Leases of an earlier
/// boot are void, whatever their file says.
#[test]
#[ignore = "needs root: starts containers"]
fn r05_leases_of_another_boot_are_void() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let host = host_with_one_vgpu(cgroups);
        let before = asking(&host, Runtime::Runc).build();
        before.up().ok();
        assert_taken_by(&host, Runtime::Runc, before.id());
        reboot(&host);
        assert_eq!(holders(&host), [""; 0]);
        assert_free(&host, Runtime::Runc);
        let files = fs::read_dir(host.state_dir()).expect("the state directory");
        let names = files.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8"));
        let states: Vec<_> = names.filter(|name| name.starts_with("state-")).collect();
        assert_eq!(states, [format!("state-{OTHER_BOOT}.json")]);
    }
}

const OTHER_BOOT: &str = "5a6b7c8d-0000-1111-2222-333344445555";

/// Gives the host another boot id.
fn reboot(host: &Host) {
    let boot_id = host.dir().join("boot_id");
    fs::write(&boot_id, format!("{OTHER_BOOT}\n")).expect("boot_id");
    let boot_id = boot_id.to_str().expect("UTF-8");
    host.view().run(&["mount", "--bind", boot_id, "/proc/sys/kernel/random/boot_id"]).ok();
}

/// runc 4363: a poststop hook that fails is not called again. What it leaves is a dead lease, which the next
/// request takes and `vgpu reclaim` frees.
#[test]
#[ignore = "needs root: starts containers"]
fn r06_a_failed_release_heals() {
    let runtimes =
        [(Cgroups::V1, Runtime::Runc), (Cgroups::V2, Runtime::Crun), (Cgroups::V1, Runtime::PodmanRunc)];
    for (cgroups, runtime) in runtimes {
        let host = host_with_one_vgpu(cgroups);
        for trouble in [Trouble::PoolFile, Trouble::Lock, Trouble::Disk] {
            for reclaims in [true, false] {
                let container = asking(&host, runtime).build();
                container.up().ok();
                let id = container.oci_id();
                let held = trouble.begin(&host);
                container.down();
                assert_eq!(container.hook_codes("poststop"), [trouble.exit()], "{trouble:?}");
                trouble.end(&host, held);
                assert_eq!(holders(&host), [id.as_str()]);
                if reclaims {
                    let vgpu = format!("{}/whole/0", host.gpus[0].uuid);
                    assert_eq!(host.vgpu(&["reclaim"]).ok().stdout, format!("freed {vgpu} of {id}\n"));
                    assert_eq!(holders(&host), [""; 0]);
                }
                assert_free(&host, runtime);
            }
        }
    }
}

/// What keeps a hook from its work.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    PoolFile,
    Lock,
    Disk,
}

impl Trouble {
    fn exit(self) -> i32 {
        match self {
            Self::PoolFile => 78,
            Self::Lock => 75,
            Self::Disk => 74,
        }
    }

    fn begin(self, host: &Host) -> Option<File> {
        match self {
            Self::PoolFile => host.write_pool("nonsense = 1\n"),
            Self::Lock => {
                host.write_pool(&format!("[policy]\nlock_timeout = \"1ms\"\n{}", one_vgpu(&host.gpus[0])));
                return Some(lock(host).expect("a lock that nobody holds"));
            }
            Self::Disk => fs::create_dir(in_the_way(host)).expect("a directory"),
        }
        None
    }

    fn end(self, host: &Host, held: Option<File>) {
        drop(held);
        host.write_pool(&one_vgpu(&host.gpus[0]));
        if let Self::Disk = self {
            fs::remove_dir(in_the_way(host)).expect("a directory");
        }
    }
}

/// A directory of this name keeps the state file from being written.
fn in_the_way(host: &Host) -> PathBuf {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot_id");
    host.state_dir().join(format!("state-{}.json.new", boot.trim_end()))
}

/// The pool's lock, unless somebody holds it.
fn lock(host: &Host) -> rustix::io::Result<File> {
    let file = File::options().append(true).create(true).open(host.state_dir().join("lock")).expect("lock");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map(|()| file)
}

/// gvisor 9389, gpushare-device-plugin: a GPU's index taken for its minor, so that the wrong GPU is exposed. Here
/// NVML's index, the order of PCI addresses and the minor of each GPU are three different numbers.
#[test]
#[ignore = "needs root: starts containers"]
fn r07_a_gpu_is_its_uuid_and_never_an_index() {
    for (cgroups, runtime) in [(Cgroups::V1, Runtime::Runc), (Cgroups::V2, Runtime::Crun)] {
        for nvml in [false, true] {
            let host = host_with_a_type_for_each_gpu(cgroups);
            if nvml {
                host.install_nvml(&[2, 0, 1].map(|at| &host.gpus[at]));
            }
            for (n, gpu) in host.gpus.iter().enumerate() {
                let asking = smuggled(host.container(runtime)).annotation("vgpu.type", &format!("of-{n}"));
                let container = asking.args(&probe::argv(&PATHS)).build();
                let sees = probe::parse(&container.run().ok().stdout);
                assert_eq!(assert_sees_its_lease(&container, &sees, 1), [gpu], "NVML: {nvml}");
            }
        }
    }
}

/// Three GPUs, none of whose minors is its place; asking for type `of-<place>` asks for one of them.
fn host_with_a_type_for_each_gpu(cgroups: Cgroups) -> Host {
    let mut gpus = Gpu::several(3);
    for (gpu, minor) in gpus.iter_mut().zip([1, 2, 0]) {
        gpu.minor = minor;
    }
    let entry = |(n, gpu): (usize, &Gpu)| {
        format!(
            "[[type]]\nname = \"of-{n}\"\nmemory = \"10GiB\"\ncompute = 25\n\
             [[gpu]]\nuuid = {:?}\nvgpus = {{ of-{n} = 1 }}\n",
            gpu.uuid
        )
    };
    let pool: String = gpus.iter().enumerate().map(entry).collect();
    Host::builder(cgroups).gpus(gpus).pool(pool).build()
}

/// libnvidia-container PR 388: no start because `/dev/nvidia-modeset` is not there (as on this host). An optional
/// node that is absent is left out; a required one is an error that names it and says how to make it.
#[test]
#[ignore = "needs root: starts containers"]
fn r08_an_absent_node_is_left_out_or_named() {
    for (cgroups, runtime) in [(Cgroups::V1, Runtime::Runc), (Cgroups::V2, Runtime::Crun)] {
        let host = Host::new(cgroups);
        let dev = host.driver_root().join("dev");
        fs::remove_file(dev.join("nvidia-uvm-tools")).expect("a node");
        let container = asking(&host, runtime).build();
        container.up().ok();
        let sees = container.probe(&[]);
        let mut expected = nodes(&host, &[&host.gpus[0]]);
        expected.remove("/dev/nvidia-uvm-tools");
        assert_eq!(sees.nodes, expected);
        container.down().ok();

        for required in ["nvidiactl", "nvidia-uvm"] {
            let (node, aside) = (dev.join(required), dev.join("aside"));
            fs::rename(&node, &aside).expect("a node");
            let said = assert_refused(&asking(&host, runtime).build(), 69);
            assert_eq!(
                said,
                format!(
                    "vgpu: cannot open {}: No such file or directory (os error 2); \
                     `nvidia-modprobe -u -c=0` on the host makes the driver's nodes\n",
                    node.display()
                )
            );
            fs::rename(&aside, &node).expect("a node");
            assert_eq!(holders(&host), [""; 0]);
        }
    }
}

/// The same of a GPU's own node: the request goes to another GPU, and where there is none is told why.
#[test]
#[ignore = "needs root: starts containers"]
fn r08_a_gpu_without_its_node_is_passed_over() {
    let host = Host::new(Cgroups::V1);
    let node = |gpu: &Gpu| host.driver_root().join(&gpu.node()[1..]);
    fs::remove_file(node(&host.gpus[0])).expect("a node");
    let container = asking(&host, Runtime::Runc).args(&probe::argv(&[])).build();
    let sees = probe::parse(&container.run().ok().stdout);
    assert_eq!(assert_sees_its_lease(&container, &sees, 1), [&host.gpus[1]]);

    fs::remove_file(node(&host.gpus[1])).expect("a node");
    let said = assert_refused(&asking(&host, Runtime::Runc).build(), 75);
    let [first, second] = [0, 1].map(|at| &host.gpus[at].uuid);
    assert_eq!(
        said,
        format!(
            "vgpu: no free vGPU: asked for 1 of type small; free: 0 small; unusable: {first}, {second}; \
             see `vgpu status`\n"
        )
    );
}

/// libnvidia-container 150: the parser choked on the lines of a hybrid host's `/proc/<pid>/cgroup`. Each layout has
/// lines that must not be taken: v1's of other controllers, `name=` ones, v2's on a hybrid host, v1's on a v2 one.
#[test]
#[ignore = "needs root: starts containers"]
fn r09_the_cgroup_is_found_in_every_layout() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = Host::new(cgroups);
        let container = smuggled(asking(&host, runtime)).build();
        container.up().ok();
        let own = format!("/{}/{}", host.name(), container.id());
        let lines = fs::read_to_string(format!("/proc/{}/cgroup", container.pid())).expect("its cgroups");
        let path_of = |controller: &str| {
            let controller = format!("{controller}:");
            let path = |line: &'_ str| line.split_once(':')?.1.strip_prefix(&controller).map(str::to_owned);
            lines.lines().find_map(path).unwrap_or_else(|| panic!("no {controller:?} in:\n{lines}"))
        };
        assert_ne!(path_of("name=systemd"), "");
        let (kind, decoy) = match cgroups {
            Cgroups::V1 | Cgroups::Hybrid => ("v1_devices", path_of("")),
            Cgroups::V2 => ("v2", path_of("devices")),
        };
        if cgroups != Cgroups::Hybrid {
            assert_ne!(decoy, own, "{lines}");
        }
        let lease = &state_file(&host)["leases"][0];
        assert_eq!(lease["cgroup"]["hierarchy"], kind);
        assert_eq!(lease["cgroup"]["path"], own);
        assert_sees_its_lease(&container, &container.probe(&PATHS), 1);
    }
}

/// What the pool keeps.
fn state_file(host: &Host) -> Value {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot_id");
    let path = host.state_dir().join(format!("state-{}.json", boot.trim_end()));
    serde_json::from_str(&fs::read_to_string(path).expect("a state file")).expect("JSON")
}

/// nvidia-container-toolkit 697: the host's mounts multiplied under shared propagation. Here the root is on a mount
/// that is shared, with all that config.json may say about it, and the host's mount table stays as it was.
#[test]
#[ignore = "needs root: starts containers"]
fn r12_shared_propagation() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    for (n, propagation) in
        ["", "private", "slave", "shared", "rprivate", "rslave", "rshared"].iter().enumerate()
    {
        let runtime = RUNTIMES[n % 2];
        let container = attacked(&host, runtime)
            .furnish(|root| {
                let root = root.to_str().expect("UTF-8");
                outside.mount(&["--bind", root, root]);
                outside.mount(&["--make-shared", root]);
            })
            .tweak(|config| {
                if !propagation.is_empty() {
                    config["linux"]["rootfsPropagation"] = json!(propagation);
                }
            })
            .build();
        let what = format!("{runtime:?}: {propagation:?}");
        assert_eq!(outside.attack(&container, &what), Outcome::Started, "{what}");
    }
}

/// The same when the driver's nodes are on a mount that is shared: what goes into a container has no part in that.
#[test]
#[ignore = "needs root: starts containers"]
fn r12_every_mount_is_private() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let driver = host.driver_root().to_str().expect("UTF-8").to_owned();
    outside.mount(&["--bind", &driver, &driver]);
    outside.mount(&["--make-shared", &driver]);
    let before = outside.world();
    for runtime in RUNTIMES {
        let container = host
            .container(runtime)
            .annotation("vgpu.count", "1")
            .furnish(|root| make_node(&root.join("dev/gpu"), MAJOR, 9))
            .tweak(without_dev)
            .build();
        container.up().ok();
        let mut mounts = mounted_by_vgpu(container.pid());
        mounts.extend(mount_at(container.pid(), "/dev/gpu"));
        // The lease, three control nodes, the GPU, what covers the other one, and two libraries in their tmpfs.
        assert_eq!(mounts.len(), 9, "{mounts:#?}");
        for line in &mounts {
            let mut fields = line.split(' ').skip(4);
            let (at, options) = (fields.next().expect("a path"), fields.next().expect("options"));
            let node = at.starts_with("/dev/nvidia");
            let library = at.starts_with("/usr/local/nvidia/lib64/");
            let expected = if node { "rw,nosuid,noexec" } else { "ro,nosuid,nodev" };
            assert!(options.starts_with(expected), "{line}");
            assert_ne!(options.contains("noexec"), library, "{line}");
            assert_eq!(fields.next(), Some("-"), "shared or a slave: {line}");
        }
        outside.assert_is(&before, "while it runs");
        container.down().ok();
        outside.assert_is(&before, "after it has run");
    }
}

/// The line of a process's mount table for this place.
fn mount_at(pid: u32, place: &str) -> Option<String> {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("mountinfo");
    mounts.lines().find(|line| line.split(' ').nth(4) == Some(place)).map(str::to_owned)
}

/// Seen in nvidia-container-runtime: each start leaves files in the root file system. Here all starts on one leave
/// what the first one left: empty mount points where the image's own `/dev` is used (docs/files.md lists them);
/// nothing where the runtime mounts a tmpfs there.
fn r13_fifty_starts_on_one_root(runtime: Runtime) {
    let host = Host::new(Cgroups::V1);
    // Placement is deterministic: the GPU with the first UUID.
    let gpu = format!("dev/{}", &host.gpus[0].node()[5..]);
    let files = ["usr/local", "usr/local/nvidia"].map(Path::new);
    let nodes = ["dev/nvidia-uvm", "dev/nvidia-uvm-tools", &gpu, "dev/nvidiactl", "dev/vgpu"].map(Path::new);
    let mut both = [&nodes[..], &files].concat();
    both.sort();
    for (change, leaves) in [(without_dev as fn(&mut Value), &both[..]), (with_dev, &files)] {
        // What the runtime itself leaves does not count.
        let first = host.container(runtime).no_hooks().args(&["true"]).tweak(change).build();
        first.run().ok();
        let start =
            || attacked(&host, runtime).on_root(first.root()).read_only().tweak(change).build().run().ok();
        let before = Snapshot::of(first.root());
        start();
        let after_one = Snapshot::of(first.root());
        assert_eq!(after_one.new_since(&before), leaves);
        for left in leaves.iter().map(|left| first.root().join(left)).filter(|left| left.is_file()) {
            assert_eq!(fs::metadata(&left).expect("metadata").len(), 0, "{left:?}");
        }
        for _ in 1..50 {
            start();
        }
        assert_eq!(Snapshot::of(first.root()).new_since(&after_one), [""; 0].map(Path::new));
    }
}

#[test]
#[ignore = "needs root: starts containers"]
fn r13_fifty_starts_on_one_root_of_runc() {
    r13_fifty_starts_on_one_root(Runtime::Runc);
}

#[test]
#[ignore = "needs root: starts containers"]
fn r13_fifty_starts_on_one_root_of_crun() {
    r13_fifty_starts_on_one_root(Runtime::Crun);
}

/// What an image's environment says when it wants every GPU.
const WANTS_ALL: [(&str, &str); 4] = [
    ("NVIDIA_VISIBLE_DEVICES", "all"),
    ("NVIDIA_DRIVER_CAPABILITIES", "all"),
    ("CUDA_VISIBLE_DEVICES", "0,1"),
    ("VGPU_COUNT", "2"),
];

fn wanting_all(builder: Builder<'_>) -> Builder<'_> {
    WANTS_ALL.into_iter().fold(builder, |builder, (key, value)| builder.env(key, value))
}

/// nvidia-container-toolkit 1599, k8s-device-plugin 87: an image with `NVIDIA_VISIBLE_DEVICES=all` sees every GPU.
/// Whatever an image's environment says, it sees its lease.
#[test]
#[ignore = "needs root: starts containers"]
fn r15_the_images_environment_widens_nothing() {
    let runtimes = [(Cgroups::V1, Runtime::PodmanRunc), (Cgroups::V2, Runtime::PodmanCrun)];
    for (cgroups, runtime) in WITH_BUNDLE.into_iter().chain(runtimes) {
        let host = Host::new(cgroups);
        let asking = wanting_all(smuggled(asking(&host, runtime)));
        let container = asking.args(&probe::argv(&PATHS)).build();
        let sees = probe::parse(&container.run().ok().stdout);
        assert_sees_its_lease(&container, &sees, 1);
    }
}

/// Where NVIDIA's own hook is in the spec too, it would serve that environment. Such a container is refused, unless
/// the environment says that it wants nothing of that hook.
#[test]
#[ignore = "needs root: starts containers"]
fn r15_another_gpu_hook_is_refused_its_request() {
    for (cgroups, runtime) in [(Cgroups::V1, Runtime::Runc), (Cgroups::V1, Runtime::PodmanRunc)] {
        let host = Host::new(cgroups);
        let hook = nvidia_hook(&host);
        let hook = hook.to_str().expect("UTF-8");

        // Not recorded: the hook must stand in the spec under its own name.
        let asking =
            || smuggled(host.container(runtime)).annotation("vgpu.count", "1").hook("prestart", &[hook]);
        let container = wanting_all(asking()).build();
        container.up().fails();
        let why = host.vgpu(&["why", &container.oci_id()]).ok().stdout;
        let says = format!(
            " 65 the container would see GPUs beside its lease: hook {hook:?} serves its \
             NVIDIA_VISIBLE_DEVICES=\"all\" (set that to void); {REMEDY}\n"
        );
        assert!(why.ends_with(&says), "{why}");
        assert_eq!(holders(&host), [""; 0]);
        container.delete_force();

        let void = asking().env("NVIDIA_VISIBLE_DEVICES", "void");
        let container = void.args(&probe::argv(&PATHS)).build();
        assert_sees_its_lease(&container, &probe::parse(&container.run().ok().stdout), 1);

        // Who asks vgpu for nothing is that hook's matter alone.
        let plain = host.container(runtime).env("NVIDIA_VISIBLE_DEVICES", "all");
        plain.hook("prestart", &[hook]).args(&["true"]).build().run().ok();
    }
}

/// What a container with another way to a GPU is told to do.
const REMEDY: &str = "start it without --privileged, --device and other GPU hooks, \
                      or set allow_other_access = true in pool.toml";

/// A program of the name that NVIDIA's hook has.
fn nvidia_hook(host: &Host) -> PathBuf {
    let hook = host.dir().join("nvidia-container-runtime-hook");
    symlink("/bin/true", &hook).expect("a link");
    hook
}

/// HAMi 2923 and 2214: an allocation stays booked, a lock stays taken, where something fails on the way. Whatever
/// step fails, neither is left.
#[test]
#[ignore = "needs root: starts containers"]
fn r16_a_failure_leaves_neither_lease_nor_lock() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = host_with_one_vgpu(cgroups);
        for failure in Failure::ALL {
            if failure == Failure::Cgroup && cgroups == Cgroups::V2 {
                continue;
            }
            let container = failure.begin(&host, asking(&host, runtime));
            let said = assert_refused(&container, failure.exit());
            assert!(said.contains(failure.says()), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            failure.end(&host);
            assert_eq!(holders(&host), [""; 0], "{failure:?}");
            lock(&host).expect("a lock that nobody holds");
            assert_free(&host, runtime);
        }
    }
}

/// A step of the hook that fails, in their order: with the lock held, then with the lease given, then with the
/// devices allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    StateFile,
    Node,
    Cgroup,
    MountPoint,
    Dev,
}

impl Failure {
    const ALL: [Self; 5] = [Self::StateFile, Self::Node, Self::Cgroup, Self::MountPoint, Self::Dev];

    fn exit(self) -> i32 {
        match self {
            Self::StateFile | Self::Cgroup => 74,
            Self::Node => 69,
            Self::MountPoint | Self::Dev => 65,
        }
    }

    fn says(self) -> &'static str {
        match self {
            Self::StateFile => "cannot write",
            Self::Node => "nvidia-uvm: No such file",
            Self::Cgroup => "one of its ancestors denies it",
            Self::MountPoint => "nvidiactl is a symbolic link",
            Self::Dev => "is mounted from the host",
        }
    }

    fn begin<'h>(self, host: &'h Host, builder: Builder<'h>) -> Container<'h> {
        match self {
            Self::StateFile => fs::create_dir(in_the_way(host)).expect("a directory"),
            Self::Node => fs::rename(uvm(host), aside(host)).expect("a node"),
            Self::Cgroup => top_cgroup_rule(host, "devices.deny"),
            Self::MountPoint => {
                return builder
                    .furnish(|root| link(&root.join("dev/nvidiactl"), "/etc/passwd"))
                    .tweak(without_dev)
                    .build();
            }
            Self::Dev => {
                let dev = host.dir().join("dev-of-the-host");
                if !dev.exists() {
                    make_dir(&dev);
                }
                return builder
                    .tweak(without_dev)
                    .tweak(move |config| bind(config, dev.to_str().expect("UTF-8"), "/dev", &[]))
                    .build();
            }
        }
        builder.build()
    }

    fn end(self, host: &Host) {
        match self {
            Self::StateFile => fs::remove_dir(in_the_way(host)).expect("a directory"),
            Self::Node => fs::rename(aside(host), uvm(host)).expect("a node"),
            Self::Cgroup => top_cgroup_rule(host, "devices.allow"),
            Self::MountPoint | Self::Dev => {}
        }
    }
}

fn uvm(host: &Host) -> PathBuf {
    host.driver_root().join("dev/nvidia-uvm")
}

fn aside(host: &Host) -> PathBuf {
    host.driver_root().join("dev/aside")
}

/// On v1 a cgroup has nothing that those above it do not have.
fn top_cgroup_rule(host: &Host, file: &str) {
    let file = format!("/sys/fs/cgroup/devices/{}/{file}", host.name());
    fs::write(host.view().path(file), "c 195:255 rw").expect("a rule");
}

/// The same when what fails is a hook after vgpu's, so that no vgpu runs any more: under crun no poststop comes.
#[test]
#[ignore = "needs root: starts containers"]
fn r16_a_later_hook_that_fails_takes_the_lease_along() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = host_with_one_vgpu(cgroups);
        let container = asking(&host, runtime).hook("createRuntime", &["/bin/false"]).build();
        container.create().fails();
        assert_eq!(container.hook_codes("createRuntime"), [0, 1]);
        assert_free(&host, runtime);
    }
}

/// HAMi 404, gpu-manager 109: two containers with equal requests get each other's configuration. Both are created
/// at the same time; each has what its own lease says, and gives that back.
#[test]
#[ignore = "needs root: starts containers"]
fn r17_equal_requests_are_not_mixed_up() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = Host::new(cgroups);
        for _ in 0..3 {
            let [one, other] = [(); 2].map(|()| smuggled(asking(&host, runtime)).build());
            let creating = [&one, &other].map(|container| container.spawn_step(Step::Create));
            creating.into_iter().for_each(|creating| drop(creating.wait().ok()));
            let vgpus = [&one, &other].map(|container| {
                container.start().ok();
                let sees = container.probe(&PATHS);
                assert_sees_its_lease(container, &sees, 1);
                sees.lease.expect("a lease.json")["vgpus"][0]["id"].clone()
            });
            assert_ne!(vgpus[0], vgpus[1]);
            for (container, vgpu) in [&one, &other].into_iter().zip(&vgpus) {
                assert_eq!(lease_of(&host, container)["vgpus"], json!([vgpu]));
                assert_eq!(lease_of(&host, container)["pid"], container.pid());
            }
            one.down().ok();
            assert_eq!(holders(&host), [other.id()]);
            assert_eq!(lease_of(&host, &other)["vgpus"], json!([vgpus[1]]));
            assert_sees_its_lease(&other, &other.probe(&PATHS), 1);
            other.down().ok();
        }
    }
}

/// What `vgpu status` says of the container's lease.
fn lease_of(host: &Host, container: &Container) -> Value {
    let status = host.status();
    let leases = status["leases"].as_array().expect("leases");
    leases.iter().find(|lease| lease["container"] == container.id()).expect("a lease").clone()
}

/// HAMi-core 86, HAMi 2500: a process killed while it holds the lock blocks everybody after it. Here the wait is
/// bounded and names the holder, and the lock goes with its holder.
#[test]
#[ignore = "needs root: starts containers"]
fn r18_the_lock_goes_with_its_holder() {
    for (cgroups, runtime) in [(Cgroups::V1, Runtime::Runc), (Cgroups::V2, Runtime::Crun)] {
        let host = host_with_one_vgpu(cgroups);
        host.write_pool(&format!("[policy]\nlock_timeout = \"20ms\"\n{}", one_vgpu(&host.gpus[0])));
        let lock = host.state_dir().join("lock");
        let lock = lock.to_str().expect("UTF-8");
        let hold = ["flock", "--no-fork", lock, "sh", "-c", "echo locked; exec sleep 1000000"];
        let mut holder = host.view().start(&hold, b"");
        holder.says("locked\n");
        let said = assert_refused(&asking(&host, runtime).build(), 75);
        assert_eq!(
            said,
            format!(
                "vgpu: the pool's lock {lock} is held by process {} for longer than 20ms; \
                 try again, or see what that process waits for\n",
                holder.pid()
            )
        );
        holder.kill();
        holder.wait();
        assert_free(&host, runtime);
    }
}

/// CVE-2024-0132 and its successors: a symbolic link in the image leads a mount to the host. Here links are at the
/// very names that the hook uses: on the root file system, and in a tmpfs that they were copied into. More
/// of this is in `attack.rs`.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_links_in_the_images_dev() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    for (n, names) in [&["vgpu"][..], &["nvidiactl"], &["nvidia0", "nvidia1"]].into_iter().enumerate() {
        for (m, target) in targets(names[0], &outside.path("dev/nvidia0")).iter().enumerate() {
            let runtime = RUNTIMES[m % 2];
            let change = if (n + m) % 3 == 0 { copied_up } else { without_dev };
            let container = attacked(&host, runtime)
                .furnish(|root| names.iter().for_each(|name| link(&root.join("dev").join(name), target)))
                .tweak(change)
                .build();
            let what = format!("{runtime:?}: {names:?} are links to {target}");
            outside.attack(&container, &what).assert_refused("is a symbolic link", &what);
        }
    }
}

/// The same while the hook runs: who writes to the root file system from elsewhere exchanges what the hook looks at
/// for a link to the host.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_names_that_are_swapped_while_the_hook_runs() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let halted = Halted::new(attacked(&host, Runtime::Runc).tweak(without_dev));
    let (dev, evil) = (halted.root().join("dev"), halted.root().join("evil"));
    // Every name must be there to be exchanged.
    assert_eq!(halted.attack(&outside, "first", ()), Outcome::Started);
    halted.undo();
    let names = ["nvidia0", "nvidia1", "nvidiactl", "vgpu"];
    for name in names.map(|name| dev.join(name)).iter().filter(|name| name.exists()) {
        let aim = if name.is_dir() { "dev/vgpu" } else { "dev/nvidia0" };
        link(&evil, &outside.path(aim));
        let exchange = || Meddler::exchanging(name, &evil);
        meddle(&outside, &halted, exchange, &["is a symbolic link", "is gone again"]);
    }
    link(&evil, &outside.path("dev"));
    let says = ["no usable /dev", "is gone again"];
    meddle(&outside, &halted, || Meddler::exchanging(&dev, &evil), &says);
}

/// The same, once, at every step of the hook: whatever it has looked at by then, it does not start a
/// container in which the name is a link in the end.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_names_that_are_swapped_at_every_step() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let halted = Halted::new(attacked(&host, Runtime::Runc).tweak(without_dev));
    let (dev, evil) = (halted.root().join("dev"), halted.root().join("evil"));
    let calls = ["mkdirat", "mknodat", "statx", "move_mount"];
    // The first call makes the mount points; from the second one on each does the same.
    assert_eq!(halted.attack(&outside, "first", ()), Outcome::Started);
    halted.undo();
    let counts = halted.count(&calls);
    halted.undo();
    assert!(counts[2] > 7 && (counts[0], counts[1], counts[3]) == (4, 6, 8), "{counts:?} of {calls:?}");
    let names = ["nvidiactl", "nvidia-uvm-tools", "vgpu"].map(|name| dev.join(name));
    let places = ["usr/local", "usr/local/nvidia"].map(|name| halted.root().join(name));
    for name in [&dev].into_iter().chain(&names).chain(&places) {
        link(&evil, &outside.path(if name.is_dir() { "dev" } else { "file" }));
        let exchange = || renameat_with(CWD, name, CWD, &evil, RenameFlags::EXCHANGE).expect("exchange");
        // The last statx are for the place of the driver's files, which is one of three, and for the lease, when
        // everything is there: after that it is too late.
        let too_late = if places.contains(name) { 3 } else { 1 };
        for (call, count) in calls.into_iter().zip(&counts) {
            let count = if call == "statx" { count - too_late } else { *count };
            for n in 1..=count {
                let before = outside.world();
                let output = halted.hook_stopped_after(call, n, exchange);
                let what = format!("{name:?} after {call} {n}");
                outside.assert_is(&before, &what);
                let outcome = halted.judge(&output);
                exchange();
                halted.undo();
                let Outcome::Refused(line) = outcome else { panic!("{what}: {outcome:?}") };
                let of_dev = ["is a symbolic link", "no usable /dev", "is gone again"];
                let of_files = ["is a symbolic link", "is gone again", "is not the host's", "/usr/local"];
                let says = if places.contains(name) { &of_files[..] } else { &of_dev };
                assert!(says.iter().any(|says| line.contains(says)), "{what}: {line}");
            }
        }
    }
}

/// CVE-2025-23266: a hook of root's honoured LD_PRELOAD from the image. Of a container vgpu's hook, called
/// twice and at the end, reads the list of names in `/dev` and, when it is called again, its own
/// lease.json. It runs nothing.
#[test]
#[ignore = "needs root: starts containers"]
fn r20_nothing_of_the_containers_is_opened_or_run() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    // What the host has is found out by another process, once.
    host.vgpu(&["discover"]).ok();
    let create = host.hook("createRuntime");
    let create: Vec<_> = create.iter().map(String::as_str).collect();
    for runtime in RUNTIMES {
        let builder = attacked(&host, runtime)
            .hook("createRuntime", &create)
            .furnish(|root| make_node(&root.join("dev/gpu"), MAJOR, 9))
            .tweak(without_dev);
        let (outcome, read, run) = traced(&outside, builder);
        assert_eq!(outcome, Outcome::Started, "{runtime:?}");
        let expected = ["/dev", "/dev/vgpu/lease.json", "/dev"].map(str::to_owned);
        assert_eq!((&read[..], run), (&expected[..], 3));
    }
}

/// A lease.json that is not the hook's own is not even opened: that could take forever.
#[test]
#[ignore = "needs root: starts containers"]
fn r20_a_lease_that_is_not_the_hooks_is_not_opened() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    host.vgpu(&["discover"]).ok();
    // In a directory of the host's, where somebody may exchange it at any moment.
    let builder =
        attacked(&host, Runtime::Runc).tweak(|config| bind(config, &outside.path("vgpu"), "/dev/vgpu", &[]));
    let (outcome, read, _) = traced(&outside, builder);
    outcome.assert_refused("mounted at", "a directory");
    assert_eq!(read, ["/dev"]);
    // In the runtime's own tmpfs, where nobody can.
    let halted = Halted::new(attacked(&host, Runtime::Runc).tweak(|config| {
        mounts(config).push(json!({ "type": "tmpfs", "source": "tmpfs", "destination": "/dev/vgpu" }));
    }));
    let lease = halted.root().join("dev/vgpu/lease.json");
    halted.enter(&["mkfifo", lease.to_str().expect("UTF-8")]).ok();
    halted.attack(&outside, "a FIFO", ()).assert_refused("mounted at", "a FIFO");
}

/// In an environment of the image's making, under strace: how the start ended, which paths in the container
/// the hooks have opened for reading, and how many programs were run, themselves included.
fn traced(outside: &Outside, builder: Builder) -> (Outcome, Vec<String>, usize) {
    let trace = outside.path("../trace");
    let _ = fs::remove_file(&trace);
    let mut strace = vec!["/usr/bin/strace", "-f", "-y", "-A", "-o", &trace];
    strace.extend(["-e", "trace=open,openat,openat2,creat,execve,execveat"]);
    for variable in ["PATH=/opt", "TMPDIR=/opt", "HOME=/opt", "VGPU_COUNT=2", "VGPU_CONFIG=/opt/pool.toml"] {
        strace.extend(["-E", variable]);
    }
    let container = builder.hooks_under(&strace).build();
    let outcome = outside.attack(&container, "traced");
    let trace = fs::read_to_string(&trace).expect("the trace");
    let root = container.root().to_str().expect("UTF-8");
    let read = trace.lines().filter_map(|line| opened_for_reading(line)?.strip_prefix(root));
    let run = trace.lines().filter(|line| line.contains(" exec")).count();
    (outcome, read.map(str::to_owned).collect(), run)
}

/// The path of what a line of strace's says was opened, unless that gave no right to read it.
fn opened_for_reading(line: &str) -> Option<&str> {
    let path = line.rsplit_once(" = ")?.1.split_once('<')?.1.strip_suffix('>')?;
    let reading = !line.contains("O_PATH") && !line.contains("O_WRONLY");
    (line.contains(" open") && reading).then_some(path)
}

/// Where a hook would run in the container's environment, LD_PRELOAD included, vgpu does nothing.
#[test]
#[ignore = "needs root: starts containers"]
fn r20_no_hook_in_the_containers_environment() {
    let host = Host::new(Cgroups::V1);
    let halted = Halted::new(attacked(&host, Runtime::Runc));
    for stage in ["createContainer", "startContainer", "poststart"] {
        let output = host.run_hook(stage, halted.state()).exits(64);
        assert!(output.stderr.starts_with("vgpu: there is nothing to do at hook stage"), "{output}");
    }
    assert_eq!(host.status()["leases"], json!([]));
}

/// cri-o and containerd give a pod's annotations to its sandbox, too, which then takes a GPU. A container that is
/// marked so asks for nothing, and is left alone.
#[test]
#[ignore = "needs root: starts containers"]
fn r21_a_sandbox_asks_for_nothing() {
    for (cgroups, runtime) in WITH_BUNDLE.into_iter().chain([(Cgroups::V1, Runtime::Containerd)]) {
        let host = host_with_one_vgpu(cgroups);
        for key in ["io.kubernetes.cri-o.ContainerType", "io.kubernetes.cri.container-type"] {
            let of_pod = |kind| smuggled(asking(&host, runtime)).env("VGPU_COUNT", "1").annotation(key, kind);
            let [sandbox, plain] = [of_pod("sandbox"), of_pod("sandbox").no_hooks()].map(Builder::build);
            let [sees, expected] = [&sandbox, &plain].map(|container| {
                container.up().ok();
                (container.probe(&PATHS), container.device_rules())
            });
            assert_eq!(sees, expected);
            assert_eq!((sees.0.nodes, sees.0.lease), (BTreeMap::new(), None));
            assert_eq!(holders(&host), [""; 0]);
            assert_eq!(sandbox.hook_codes("createRuntime"), [0]);
            [sandbox, plain].iter().for_each(|container| drop(container.delete_force()));

            let container = of_pod("container").build();
            container.up().ok();
            assert_eq!(holders(&host), [container.id()]);
            container.down().ok();
        }
    }
}

/// nvidia-docker 764 and others: a container that is privileged, or was given nodes by hand, sees every GPU. With a
/// request for vGPUs it is refused, with the remedy; where the pool file allows it, it gets its lease as well.
#[test]
#[ignore = "needs root: starts containers"]
fn r22_other_ways_to_a_gpu_are_refused() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = host_with_one_vgpu(cgroups);
        for (way, says) in [
            (privileged as fn(&mut Value), "its device rules allow 195:0"),
            (given_a_node_and_its_rule, "its device rules allow 195:0"),
            (given_a_node, "it is given the node \"/dev/nvidia0\""),
        ] {
            assert_refused_unless_allowed(&host, says, || asking(&host, runtime).tweak(way));
        }
    }
}

/// The same in podman's words.
#[test]
#[ignore = "needs root: starts containers"]
fn r22_podman_device_and_privileged_are_refused() {
    for (cgroups, runtime) in [(Cgroups::V1, Runtime::PodmanRunc), (Cgroups::V2, Runtime::PodmanCrun)] {
        let host = host_with_one_vgpu(cgroups);
        let node = host.driver_root().join("dev/nvidia0");
        let device = format!("--device={}:/dev/nvidia0", node.display());
        for arg in ["--privileged", &device] {
            let says = "its device rules allow 195:0";
            assert_refused_unless_allowed(&host, says, || asking(&host, runtime).podman_arg(arg));
        }
    }
}

fn assert_refused_unless_allowed<'h>(host: &'h Host, says: &str, asking: impl Fn() -> Builder<'h>) {
    let said = assert_refused(&asking().build(), 65);
    let line = format!("vgpu: the container would see GPUs beside its lease: {says}; {REMEDY}\n");
    assert_eq!(said, line);
    assert_eq!(holders(host), [""; 0]);

    host.write_pool(&format!("[policy]\nallow_other_access = true\n{}", one_vgpu(&host.gpus[0])));
    let container = asking().build();
    container.up().ok();
    let sees = container.probe(&["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]);
    assert_eq!(sees.opened.into_values().collect::<Vec<_>>(), [(); 3].map(|()| Opened::Allowed));
    assert_eq!(sees.lease.expect("a lease.json")["container"], container.oci_id());
    container.down().ok();
    host.write_pool(&one_vgpu(&host.gpus[0]));
}

/// As `--privileged` writes it.
fn privileged(config: &mut Value) {
    config["linux"]["resources"]["devices"] = json!([{"allow": true, "access": "rwm"}]);
}

fn given_a_node(config: &mut Value) {
    let node = json!({"path": "/dev/nvidia0", "type": "c", "major": MAJOR, "minor": 0, "fileMode": 0o666});
    config["linux"]["devices"] = json!([node]);
}

fn given_a_node_and_its_rule(config: &mut Value) {
    given_a_node(config);
    let rule = json!({"allow": true, "type": "c", "major": MAJOR, "minor": 0, "access": "rw"});
    config["linux"]["resources"]["devices"].as_array_mut().expect("rules").push(rule);
}

on_every_runtime! {
    /// nvidia-container-toolkit 648: no start with user namespaces. A container with uid and gid mappings has exactly
    /// its lease, also where the engine confines nothing (see [`Runtime::confines_mapped`]), and its root owns what
    /// was made for it.
    fn r23_uid_and_gid_mappings_work(cgroups, runtime) {
        let host = Host::new(cgroups);
        let asking = |count| smuggled(host.container(runtime)).mapped().annotation("vgpu.count", count);
        for (text, count) in [("1", 1), ("2", 2)] {
            let container = asking(text).args(&probe::argv(&PATHS)).build();
            assert_sees_its_lease(&container, &probe::parse(&container.run().ok().stdout), count);
        }
        let owners = ["stat", "-c", "%u:%g", "/dev/vgpu", "/dev/vgpu/lease.json"];
        assert_eq!(asking("1").args(&owners).build().run().ok().stdout, "0:0\n0:0\n");
    }
}
