//! A vGPU is taken as long as a process of its container is there, and free from then on, however the
//! container ends.

mod common;

use std::fs;

use common::cgroup;
use common::container::{Builder, Container};
use common::host::{Gpu, Host};
use common::runtime::{Runtime, Step, WITH_BUNDLE};
use common::view::Cgroups;
use common::wait::{Process, for_file};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A host with one vGPU: whether it is free is seen by asking for it.
fn host_with_one_vgpu(cgroups: Cgroups) -> Host {
    let gpus = Gpu::several(1);
    let pool = format!(
        "[[type]]\nname = \"whole\"\nmemory = \"10GiB\"\ncompute = 100\n\n\
         [[gpu]]\nuuid = {:?}\nvgpus = {{ whole = 1 }}\n",
        gpus[0].uuid
    );
    Host::builder(cgroups).gpus(gpus).pool(pool).build()
}

/// A container that asks for it.
fn asking(host: &Host, runtime: Runtime) -> Builder<'_> {
    host.container(runtime).annotation("vgpu.count", "1").recorded()
}

/// The vGPU is there for the next request.
#[track_caller]
fn assert_free(host: &Host, runtime: Runtime) {
    let next = asking(host, runtime).build();
    next.up().ok();
    assert_eq!(holders(host), [next.oci_id()]);
    next.down().ok();
}

/// The next request is refused, and told who has the vGPU.
#[track_caller]
fn assert_taken_by(host: &Host, runtime: Runtime, holder: &str) {
    let next = asking(host, runtime).build();
    next.up().fails();
    let said = next.hook_stderr("createRuntime");
    assert_eq!(next.hook_codes("createRuntime"), [75], "{said}");
    // Engines show the first 12 digits of their long hexadecimal ids, and so does vgpu.
    let shown = if holder.len() == 64 { &holder[..12] } else { holder };
    assert!(said.contains(shown), "{said}");
    next.delete_force();
    assert_eq!(holders(host), [holder]);
}

/// The containers that hold something, dead or alive.
fn holders(host: &Host) -> Vec<String> {
    let status = host.status();
    let leases = status["leases"].as_array().expect("leases");
    leases.iter().map(|lease| lease["container"].as_str().expect("an id").to_owned()).collect()
}

fn kill(pid: u32) {
    send_kill(pid).expect("kill");
}

fn send_kill(pid: u32) -> rustix::io::Result<()> {
    let pid = pid.try_into().ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, Signal::KILL)
}

on_every_runtime! {
    fn stopping_frees(cgroups, runtime) {
        let host = host_with_one_vgpu(cgroups);
        let container = asking(&host, runtime).build();
        container.up().ok();
        assert_taken_by(&host, runtime, &container.oci_id());
        container.down().ok();
        assert_eq!(holders(&host), [""; 0]);
        assert_eq!(container.hook_codes("poststop"), [0]);
        assert_free(&host, runtime);
    }
}

on_every_runtime! {
    fn ending_by_itself_frees(cgroups, runtime) {
        let host = host_with_one_vgpu(cgroups);
        let container = asking(&host, runtime).args(&["true"]).build();
        container.run().ok();
        // podman's helper cleans up on its own time.
        for_file(&container.dir().join("poststop.codes"), "the end of poststop", |codes| !codes.is_empty());
        assert_eq!(holders(&host), [""; 0]);
        assert_free(&host, runtime);
    }
}

on_every_runtime! {
    fn delete_force_frees(cgroups, runtime) {
        let host = host_with_one_vgpu(cgroups);
        let container = asking(&host, runtime).build();
        container.up().ok();
        container.delete_force().ok();
        assert_eq!(holders(&host), [""; 0]);
        assert_free(&host, runtime);
    }
}

on_every_runtime! {
    /// Nobody deletes the container, and it has no poststop hook: its end alone frees.
    fn a_killed_init_frees(cgroups, runtime) {
        let host = host_with_one_vgpu(cgroups);
        let container = asking(&host, runtime).without_hooks_of("poststop").build();
        container.up().ok();
        let (id, pid) = (container.oci_id(), container.pid());
        assert_taken_by(&host, runtime, &id);
        let init = Process::of(pid);
        kill(pid);
        init.ended();
        assert_eq!(holders(&host), [id]);
        assert_eq!(host.status()["leases"][0]["alive"], json!(false));
        assert_free(&host, runtime);
    }
}

/// In the host's pid namespace the first process does not take the others with it. They still use the GPU.
#[test]
#[ignore = "needs root: starts containers"]
fn a_killed_init_leaves_the_others_their_vgpu() {
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
        kill(pid);
        init.ended();
        assert_eq!(container.state().expect("its state").status, "stopped");
        assert_taken_by(&host, runtime, container.id());
        cgroup::processes(&cgroup).into_iter().for_each(kill);
        cgroup::empty(&cgroup);
        assert_free(&host, runtime);
    }
}

/// The runtime is killed while a later hook runs: nobody will ever say that this container is over.
#[test]
#[ignore = "needs root: starts containers"]
fn a_killed_runtime_frees_what_it_was_creating() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = host_with_one_vgpu(cgroups);
        let builder = asking(&host, runtime);
        let reached = host.dir().join("reached");
        let wait = format!("echo reached >{}; exec sleep 1000000", reached.display());
        let container = builder.hook("createRuntime", &["/bin/sh", "-c", &wait]).build();
        let mut create = container.spawn_step(Step::Create);
        for_file(&reached, "the second hook", |content| content == "reached\n");
        let pid = hook_pid(&container);
        let init = Process::of(pid);
        assert_taken_by(&host, runtime, container.id());
        create.kill();
        create.wait();
        // Some runtimes leave the half-made init waiting for them.
        let _ = send_kill(pid);
        init.ended();
        assert_free(&host, runtime);
    }
}

/// The process that the last createRuntime hook was told of.
fn hook_pid(container: &Container) -> u32 {
    let state: Value = serde_json::from_str(&container.hook_state("createRuntime")).expect("a state");
    state["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("a pid")
}

/// The runtime is killed while the container runs: the container does not notice, and keeps its vGPU.
#[test]
#[ignore = "needs root: starts containers"]
fn a_killed_runtime_leaves_a_running_container_its_vgpu() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = host_with_one_vgpu(cgroups);
        let container = asking(&host, runtime).args(&["sh", "-c", "echo up; exec sleep 1000000"]).build();
        let mut run = container.spawn();
        run.says("up\n");
        run.kill();
        run.wait();
        assert_taken_by(&host, runtime, container.id());
        // Killed this early, the runtime may not know the container's state.
        let pid = hook_pid(&container);
        let init = Process::of(pid);
        kill(pid);
        init.ended();
        assert_free(&host, runtime);
    }
}

/// A second poststop is success and changes nothing, whoever has the vGPU by then.
#[test]
#[ignore = "needs root: starts containers"]
fn poststop_again_changes_nothing() {
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

/// The poststop of an earlier run comes when the container is up again under the same id.
#[test]
#[ignore = "needs root: starts containers"]
fn a_late_poststop_leaves_the_new_run_its_vgpu() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = host_with_one_vgpu(cgroups);
        let container = asking(&host, runtime).without_hooks_of("poststop").build();
        container.up().ok();
        let late = stopped(&container);
        container.down().ok();
        container.up().ok();
        host.run_hook("poststop", &late).ok();
        assert_taken_by(&host, runtime, container.id());
    }
}

/// The OCI state that a poststop hook of the container gets.
fn stopped(container: &Container) -> String {
    let mut state: Value = serde_json::from_str(&container.hook_state("createRuntime")).expect("a state");
    state["status"] = json!("stopped");
    state.as_object_mut().expect("an object").remove("pid");
    state.to_string()
}

/// After a reboot no container of before is there, whatever the state file says.
#[test]
#[ignore = "needs root: starts containers"]
fn leases_of_another_boot_are_void() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let host = host_with_one_vgpu(cgroups);
        let before = asking(&host, Runtime::Runc).build();
        before.up().ok();
        assert_taken_by(&host, Runtime::Runc, before.id());
        reboot(&host);
        assert_eq!(holders(&host), [""; 0]);
        assert_free(&host, Runtime::Runc);
    }
}

/// Gives the host another boot id.
fn reboot(host: &Host) {
    let boot_id = host.dir().join("boot_id");
    fs::write(&boot_id, "5a6b7c8d-0000-1111-2222-333344445555\n").expect("boot_id");
    let boot_id = boot_id.to_str().expect("UTF-8");
    host.view().run(&["mount", "--bind", boot_id, "/proc/sys/kernel/random/boot_id"]).ok();
}
