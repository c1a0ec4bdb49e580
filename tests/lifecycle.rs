//! A vGPU is taken as long as a process of its container is there, and free from then on, however the
//! container ends.

mod common;

use common::container::Container;
use common::leases::{asking, assert_free, assert_taken_by, holders, host_with_one_vgpu};
use common::parked::Lot;
use common::runtime::{Step, WITH_BUNDLE};
use common::view::Cgroups;
use common::wait::{Process, for_file};
use serde_json::Value;

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
        let init = Process::of(hook_pid(&container));
        assert_taken_by(&host, runtime, container.id());
        create.kill();
        create.wait();
        // Some runtimes leave the half-made init waiting for them.
        init.kill();
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
        let init = Process::of(hook_pid(&container));
        init.kill();
        init.ended();
        assert_free(&host, runtime);
    }
}

/// A runtime may leave the cgroup of a start that failed behind, and use it for the next one: that it is not empty
/// says nothing of the earlier run. What two containers share at the same time is refused.
#[test]
#[ignore = "needs root: makes cgroups and mounts"]
fn a_cgroup_that_is_used_again_does_not_keep_a_lease() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let host = host_with_one_vgpu(cgroups);
        let lot = Lot::new(&host, 1);
        let [first, second] = ["first", "second"].map(|id| lot.park(id));
        assert_eq!(host.run_hook("createRuntime", &first.created()).code, Some(0), "{cgroups:?}");
        second.move_to(&first);
        let shared = host.run_hook("createRuntime", &second.created());
        assert_eq!(shared.code, Some(65), "{cgroups:?}: {shared}");
        assert!(shared.stderr.contains("shares cgroup"), "{shared}");
        assert!(shared.stderr.contains("with container first"), "{shared}");

        first.kill();
        // One that asks for nothing shares devices as well.
        let third = lot.park("third");
        third.move_to(&first);
        let shared = host.run_hook("createRuntime", &second.created());
        assert!(shared.stderr.contains("with container first, which would have its GPUs too"), "{shared}");
        third.kill();
        assert_eq!(host.run_hook("createRuntime", &second.created()).code, Some(0), "{cgroups:?}");
        assert_eq!(holders(&host), ["second"]);
        first.end();
        second.end();
        third.end();
    }
}

/// The same where none of those who share it has a lease.
#[test]
#[ignore = "needs root: makes cgroups and mounts"]
fn a_cgroup_with_anybody_else_in_it_is_refused() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let host = host_with_one_vgpu(cgroups);
        let lot = Lot::new(&host, 1);
        let [asking, other] = ["asking", "other"].map(|id| lot.park(id));
        other.move_to(&asking);
        let shared = host.run_hook("createRuntime", &asking.created()).exits(65);
        assert!(shared.stderr.contains("with other processes, which would have its GPUs too"), "{shared}");
        assert_eq!(holders(&host), [""; 0]);
        other.kill();
        host.run_hook("createRuntime", &asking.created()).ok();
    }
}
