//! What a container with a lease must see of the host's GPUs, and nothing else.

use std::collections::BTreeMap;

use super::container::{Builder, Container};
use super::host::{Gpu, Host, MAJOR, make_node};
use super::probe::{Opened, Probe};

/// Everything that could be a GPU of a host with three, under `/opt` as [`smuggled`] puts it there.
pub const PATHS: [&str; 9] = [
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia0",
    "/dev/nvidia1",
    "/dev/nvidia2",
    "/opt/gpu0",
    "/opt/gpu1",
    "/opt/gpu2",
];

/// Nodes that an image brings, where nobody looks for them: one for each GPU of the host.
pub fn smuggled(builder: Builder<'_>) -> Builder<'_> {
    let gpus = &builder.host().gpus;
    builder.furnish(|root| {
        gpus.iter().for_each(|gpu| make_node(&root.join(&elsewhere(gpu)[1..]), MAJOR, gpu.minor))
    })
}

fn elsewhere(gpu: &Gpu) -> String {
    format!("/opt/gpu{}", gpu.minor)
}

/// What every container with a lease has in `/dev`, and its GPUs' nodes.
pub fn nodes(host: &Host, gpus: &[&Gpu]) -> BTreeMap<String, (u32, u32)> {
    let control = [
        ("/dev/nvidiactl".to_owned(), (MAJOR, 255)),
        ("/dev/nvidia-uvm".to_owned(), (host.uvm_major(), 0)),
        ("/dev/nvidia-uvm-tools".to_owned(), (host.uvm_major(), 1)),
    ];
    control.into_iter().chain(gpus.iter().map(|gpu| (gpu.node(), (MAJOR, gpu.minor)))).collect()
}

/// What is behind each vGPU of the container's lease.json, checked to be what the host has.
pub fn leased<'h>(container: &'h Container, sees: &Probe) -> Vec<&'h Gpu> {
    let lease = sees.lease.as_ref().expect("a lease.json");
    assert_eq!(lease["version"], 1);
    assert_eq!(lease["container"], container.oci_id());
    let gpu = |vgpu: &serde_json::Value| {
        let gpus = &container.host().gpus;
        let gpu = gpus.iter().find(|gpu| vgpu["uuid"] == gpu.uuid).expect("a GPU of the host");
        let kind = vgpu["type"].as_str().expect("a type");
        assert!(vgpu["id"].as_str().expect("an id").starts_with(&format!("{}/{kind}/", gpu.uuid)), "{vgpu}");
        assert_eq!(vgpu["device"], gpu.node());
        gpu
    };
    lease["vgpus"].as_array().expect("vgpus").iter().map(gpu).collect()
}

/// Exactly its nodes, with their numbers; these open, another GPU's does not, wherever it is.
pub fn assert_sees_its_lease<'h>(container: &'h Container, sees: &Probe, count: usize) -> Vec<&'h Gpu> {
    let gpus = leased(container, sees);
    assert_eq!(gpus.len(), count);
    assert_eq!(sees.nodes, nodes(container.host(), &gpus));
    let of = |path: &str, gpu: &Gpu| path == gpu.node() || path == elsewhere(gpu);
    for (path, opened) in &sees.opened {
        let granted = sees.nodes.contains_key(path) || gpus.iter().any(|gpu| of(path, gpu));
        let brought = container.host().gpus.iter().any(|gpu| *path == elsewhere(gpu));
        let expected = match (granted, brought) {
            (true, _) => Opened::Allowed,
            (false, true) => Opened::Forbidden,
            (false, false) => Opened::Absent,
        };
        assert_eq!(*opened, expected, "{path}: {sees:?}");
    }
    gpus
}
