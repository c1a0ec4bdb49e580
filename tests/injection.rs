//! A container with a request has exactly its GPUs; one without is left alone. Under every runtime,
//! with uid and gid mappings and without.

mod common;

use std::collections::BTreeMap;

use common::container::{Builder, Container};
use common::host::{Gpu, Host, MAJOR, MEMORY, make_node};
use common::probe::{self, Opened, Probe};
use common::runtime::WITH_BUNDLE;

/// What every container with a lease has in `/dev`, and its GPUs' nodes.
fn nodes(host: &Host, gpus: &[&Gpu]) -> BTreeMap<String, (u32, u32)> {
    let control = [
        ("/dev/nvidiactl".to_owned(), (MAJOR, 255)),
        ("/dev/nvidia-uvm".to_owned(), (host.uvm_major(), 0)),
        ("/dev/nvidia-uvm-tools".to_owned(), (host.uvm_major(), 1)),
    ];
    control.into_iter().chain(gpus.iter().map(|gpu| (gpu.node(), (MAJOR, gpu.minor)))).collect()
}

/// Nodes that an image brings, where nobody looks for them: one for each GPU.
fn smuggled(builder: Builder<'_>) -> Builder<'_> {
    let gpus = builder.host().gpus.clone();
    builder.furnish(move |root| {
        for gpu in &gpus {
            make_node(&root.join(format!("opt/gpu{}", gpu.minor)), MAJOR, gpu.minor);
        }
    })
}

/// What is behind each vGPU of the container's lease.json, checked to be what the lease says of it.
fn leased<'h>(container: &'h Container, probe: &Probe) -> Vec<&'h Gpu> {
    let lease = probe.lease.as_ref().expect("a lease.json");
    assert_eq!(lease["container"], container.oci_id());
    let vgpus = lease["vgpus"].as_array().expect("vgpus");
    let gpu = |vgpu: &serde_json::Value| {
        let gpu =
            container.host().gpus.iter().find(|gpu| vgpu["uuid"] == gpu.uuid).expect("a GPU of the host");
        assert_eq!(vgpu["id"], format!("{}/small/0", gpu.uuid));
        assert_eq!(vgpu["type"], "small");
        assert_eq!(vgpu["memory"], 10_u64 << 30);
        assert_eq!(vgpu["compute"], 25);
        gpu
    };
    vgpus.iter().map(gpu).collect()
}

/// Exactly its nodes, with their numbers; these open, the other GPU's does not, wherever it is.
fn assert_sees_its_lease(container: &Container, sees: &Probe, count: usize) {
    let host = container.host();
    let gpus = leased(container, sees);
    assert_eq!(gpus.len(), count);
    assert_eq!(sees.nodes, nodes(host, &gpus));
    for (path, opened) in &sees.opened {
        let allowed = sees.nodes.contains_key(path) || gpus.iter().any(|gpu| *path == elsewhere(gpu));
        let there = allowed || path.starts_with("/opt");
        let expected = match (allowed, there) {
            (true, _) => Opened::Allowed,
            (false, true) => Opened::Forbidden,
            (false, false) => Opened::Absent,
        };
        assert_eq!(*opened, expected, "{path}: {sees:?}");
    }
}

fn elsewhere(gpu: &Gpu) -> String {
    format!("/opt/gpu{}", gpu.minor)
}

/// Everything that could be a GPU of a host with two.
const PATHS: [&str; 7] = [
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia0",
    "/dev/nvidia1",
    "/opt/gpu0",
    "/opt/gpu1",
];

on_every_runtime! {
    /// Also where the engine confines nothing: see `Runtime::confines_mapped`.
    fn a_container_has_exactly_what_it_asked_for(cgroups, runtime) {
        let host = Host::new(cgroups);
        for mapped in [false, true].into_iter() {
            for count in [1, 2] {
                let container = smuggled(host.container(runtime))
                    .mapped_if(mapped)
                    .annotation("vgpu.count", &count.to_string())
                    .args(&probe::argv(&PATHS))
                    .build();
                let output = container.run().ok();
                assert_sees_its_lease(&container, &probe::parse(&output.stdout), count);
                container.delete_force();
            }
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

/// `/dev` and all that is below it are not mounted.
fn without_dev(config: &mut serde_json::Value) {
    let mounts = config["mounts"].as_array_mut().expect("mounts");
    mounts.retain(|mount| !mount["destination"].as_str().expect("a destination").starts_with("/dev"));
}
