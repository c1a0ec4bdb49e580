//! What went wrong elsewhere and was reported in public, and what vgpu does instead: one test or more for each
//! report, named after its row (`r01`), on real runtimes.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::cgroup;
use common::container::{Builder, Container};
use common::host::{Gpu, Host, MAJOR, make_node};
use common::leases::{asking, assert_free, assert_taken_by, holders, host_with_one_vgpu, one_vgpu};
use common::probe::{self, Opened};
use common::runtime::{Runtime, Step, WITH_BUNDLE};
use common::sees::{PATHS, assert_sees_its_lease, nodes, smuggled};
use common::view::Cgroups;
use common::wait::{Process, for_file};
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
                assert_eq!(holders(&host), [id.clone()]);
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
