//! A container with a request has exactly its GPUs; one without is left alone. Under every runtime; with uid
//! and gid mappings, see `reports.rs` (R23).

mod common;

use std::collections::BTreeMap;

use common::bundle::without_dev;
use common::container::Container;
use common::host::{Host, MAJOR, MEMORY, make_node};
use common::parked::Lot;
use common::probe::{self, Probe};
use common::runtime::WITH_BUNDLE;
use common::sees::{self, PATHS, smuggled};
use common::view::Cgroups;

/// Exactly its lease, and all that the lease says.
fn assert_sees_its_lease(container: &Container, sees: &Probe, count: usize) {
    sees::assert_sees_its_lease(container, sees, count);
    for vgpu in sees.lease.as_ref().expect("a lease.json")["vgpus"].as_array().expect("vgpus") {
        assert_eq!(vgpu["id"], format!("{}/small/0", vgpu["uuid"].as_str().expect("a UUID")));
        assert_eq!(vgpu["memory"], 10_u64 << 30);
        assert_eq!(vgpu["compute"], 25);
    }
}

on_every_runtime! {
    fn a_container_has_exactly_what_it_asked_for(cgroups, runtime) {
        let host = Host::new(cgroups);
        for count in [1, 2] {
            let container = smuggled(host.container(runtime))
                .annotation("vgpu.count", &count.to_string())
                .args(&probe::argv(&PATHS))
                .build();
            let output = container.run().ok();
            assert_sees_its_lease(&container, &probe::parse(&output.stdout), count);
            container.delete_force();
        }
    }
}

on_every_runtime! {
    fn a_container_that_asks_for_nothing_is_left_alone(cgroups, runtime) {
        let host = Host::new(cgroups);
        for mapped in [false, true] {
            let plain = smuggled(host.container(runtime)).mapped_if(mapped).no_hooks().build();
            let hooked = smuggled(host.container(runtime))
                .mapped_if(mapped)
                .env("NVIDIA_VISIBLE_DEVICES", "all")
                .build();
            let [expected, sees] = [&plain, &hooked].map(|container| {
                container.up().ok();
                (container.probe(&PATHS), container.device_rules())
            });
            assert_eq!(sees, expected, "mapped: {mapped}");
            assert_eq!(sees.0.nodes, BTreeMap::new());
            assert_eq!(sees.0.lease, None);
            hooked.down().ok();
            let state: Vec<_> = std::fs::read_dir(host.state_dir()).expect("the state directory").collect();
            assert!(state.is_empty(), "{state:?}");
        }
    }
}

/// With the driver's library on the host the index is NVML's, and the memory of a GPU is known.
#[test]
#[ignore = "needs root: starts containers"]
fn the_drivers_library_does_not_confuse_index_and_minor() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = Host::builder(cgroups).nvml().build();
        let container = smuggled(host.container(runtime))
            .annotation("vgpu.count", "1")
            .args(&probe::argv(&PATHS))
            .build();
        assert_sees_its_lease(&container, &probe::parse(&container.run().ok().stdout), 1);
        assert_eq!(host.status()["gpus"][0]["memory"], MEMORY);
    }
}

/// Under systemd crun puts a container into a cgroup beneath its scope, and either may have device rules. The scope
/// is the container's as a whole: while anything is left in it, the lease lives.
#[test]
#[ignore = "needs root: makes cgroups and mounts"]
fn a_scope_around_the_cgroup_is_the_containers_too() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let host = Host::new(cgroups);
        let parked = Lot::new(&host, 1).park_in_scope("scoped");
        let output = host.run_hook("createRuntime", &parked.created());
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{cgroups:?}");
        parked.move_up();
        assert_eq!(host.status()["leases"][0]["alive"], true, "{cgroups:?}");
        parked.end();
    }
}

/// Whatever the configuration says: another hook may have opened a GPU by now.
#[test]
#[ignore = "needs root: makes cgroups and mounts"]
fn a_gpu_that_another_hook_has_opened_is_found() {
    let host = Host::new(Cgroups::V1);
    host.load_graphics();
    let lot = Lot::new(&host, 1);
    let (_, (major, minor)) = host.gpus[1].graphics()[1];
    let graphics = format!("c {major}:{minor} rw");
    for rule in ["c 195:* rwm", "c 195:0 r", "c 195:7 w", &graphics] {
        let parked = lot.park(&rule.replace([' ', ':', '*'], "-"));
        parked.allow(rule);
        let output = host.run_hook("createRuntime", &parked.created());
        assert_eq!(output.code, Some(65), "{rule}: {output}");
        let said = format!("its device cgroup allows {}:", &rule[2..5]);
        assert!(output.stderr.contains(&said), "{rule}: {output}");
        parked.end();
    }
    assert_eq!(host.status()["leases"], serde_json::json!([]));
}

/// The same on v2, where all programs must allow a device: beside the runtime's, such a one opens nothing.
#[test]
#[ignore = "needs root: makes cgroups and mounts"]
fn a_program_of_another_hooks_that_allows_all_is_found() {
    let host = Host::new(Cgroups::V2);
    let lot = Lot::new(&host, 1);
    let beside = lot.park("beside");
    beside.allow_all_beside();
    host.run_hook("createRuntime", &beside.created()).ok();
    let other = host.driver_root().join("dev/nvidia0");
    assert!(beside.open(&other).contains("Operation not permitted"));
    beside.end();

    let alone = lot.park("alone");
    alone.allow_all();
    let rules = alone.rules();
    let output = host.run_hook("createRuntime", &alone.created()).exits(65);
    assert!(output.stderr.contains("its device cgroup allows /dev/nvidia0"), "{output}");
    assert_eq!(alone.rules(), rules);
    assert_eq!(host.status()["leases"].as_array().map(Vec::len), Some(1), "that of the first, which is gone");
}

/// A process started later in the container, which has no more than the container's cgroup and mounts.
#[test]
#[ignore = "needs root: starts containers"]
fn an_executed_process_has_the_same() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = Host::new(cgroups);
        let container = smuggled(host.container(runtime)).annotation("vgpu.count", "1").build();
        container.up().ok();
        assert_sees_its_lease(&container, &container.probe(&PATHS), 1);
    }
}

/// The environment can ask, too; where an annotation speaks, it is silent.
#[test]
#[ignore = "needs root: starts containers"]
fn the_environment_asks_unless_an_annotation_does() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = Host::new(cgroups);
        let asks = smuggled(host.container(runtime)).env("VGPU_COUNT", "2");
        let container = asks.args(&probe::argv(&PATHS)).build();
        assert_sees_its_lease(&container, &probe::parse(&container.run().ok().stdout), 2);

        let asks = smuggled(host.container(runtime)).env("VGPU_COUNT", "2").annotation("vgpu.type", "small");
        let container = asks.args(&probe::argv(&PATHS)).build();
        assert_sees_its_lease(&container, &probe::parse(&container.run().ok().stdout), 1);
    }
}

/// Where the runtime mounts no `/dev` of its own, the image's is used. A GPU's node in it is covered.
#[test]
#[ignore = "needs root: starts containers"]
fn a_node_in_the_images_dev_is_covered() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = Host::new(cgroups);
        let gpus = host.gpus.clone();
        let container = host
            .container(runtime)
            .annotation("vgpu.count", "1")
            .furnish(move |root| {
                for gpu in &gpus {
                    make_node(&root.join(&gpu.node()[1..]), MAJOR, gpu.minor);
                }
            })
            .tweak(without_dev)
            .args(&probe::argv(&[]))
            .build();
        let sees = probe::parse(&container.run().ok().stdout);
        assert_sees_its_lease(&container, &sees, 1);
    }
}
