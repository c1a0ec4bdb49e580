//! docs/nvidia-container-toolkit.md, which holds what NVIDIA's toolkit brings into a container against what vgpu
//! brings, is this table; and behind each *yes* in it there is a test.

use std::fs;

/// What vgpu does.
enum Answer {
    /// The same, or more; and the test that shows it, as `file::test`.
    Yes(&'static str, &'static str),
    /// Not, for this reason.
    No(&'static str),
}
use Answer::{No, Yes};

/// What NVIDIA's toolkit brings (nvidia-container-toolkit 1.17, libnvidia-container 1.17: legacy and CDI mode).
const ROWS: &[(&str, Answer)] = &[
    (
        "nodes `/dev/nvidiactl`, `/dev/nvidia-uvm`, `/dev/nvidia-uvm-tools`",
        Yes("", "injection::a_container_has_exactly_what_it_asked_for"),
    ),
    (
        "node `/dev/nvidia<minor>` of each GPU that was asked for",
        Yes("of the leased ones", "injection::a_container_has_exactly_what_it_asked_for"),
    ),
    ("node `/dev/nvidia-modeset`", Yes("`display`", "neighbours::graphics_of_leased_gpus_alone")),
    (
        "device cgroup, v1 and v2",
        Yes("read back before the start", "device_cgroup::v2_every_attached_program_is_widened"),
    ),
    ("libraries: `utility`", Yes("", "libraries::each_capability_has_exactly_its_list")),
    ("libraries: `compute`", Yes("", "libraries::each_capability_has_exactly_its_list")),
    ("libraries: `video`", Yes("", "libraries::each_capability_has_exactly_its_list")),
    ("libraries: `graphics`, `display`", Yes("", "libraries::each_capability_has_exactly_its_list")),
    ("libraries: `ngx`", Yes("", "libraries::each_capability_has_exactly_its_list")),
    ("libraries: `compat32`", Yes("", "libraries::each_capability_has_exactly_its_list")),
    (
        "`NVIDIA_DRIVER_CAPABILITIES` chooses (NVIDIA's CDI modes ignore it)",
        Yes(
            "the pool file can cap it and set the default",
            "libraries::the_pool_file_caps_and_sets_the_default",
        ),
    ),
    ("only libraries of the loaded driver's version", Yes("", "driver_files::libraries_of_another_version")),
    ("binaries", Yes("found by any usual PATH", "libraries::programs_find_them_by_name")),
    (
        "sockets of nvidia-persistenced and nvidia-fabricmanager",
        Yes("", "neighbours::what_is_looked_for_in_one_place_is_there"),
    ),
    (
        "MPS: the host's pipe directory",
        No("no MPS daemon of the host's knows of leases: what it gives a container is beside its lease"),
    ),
    (
        "GSP firmware",
        No("the kernel reads firmware in the mount namespace of PID 1 (its selftest `fw_namespace`)"),
    ),
    (
        "links: SONAMEs, `libcuda.so`, `libnvidia-ml.so`, …",
        Yes("", "driver_files::link_names_of_the_other_capabilities"),
    ),
    (
        "linker cache, by running `ldconfig` on the container's root",
        Yes("as data: nothing is run", "linker_cache::the_driver_is_found_by_name"),
    ),
    ("musl's search path (NVIDIA: not)", Yes("", "linker_cache::a_musl_image_finds_the_driver_by_name")),
    (
        "`/proc/driver/nvidia/params` says `ModifyDeviceFiles: 0`",
        Yes("", "neighbours::proc_tells_of_leased_gpus_alone"),
    ),
    (
        "`/proc/driver/nvidia` without other GPUs (NVIDIA: legacy mode alone)",
        Yes("", "neighbours::proc_tells_of_leased_gpus_alone"),
    ),
    ("CUDA forward compatibility from the image", Yes("", "compat::a_newer_libcuda_is_found_first")),
    (
        "MIG devices: nodes in `/dev/nvidia-caps`, `capabilities` in `/proc`",
        Yes("", "mig::a_container_has_exactly_its_mig_devices"),
    ),
    (
        "MIG: `config` and `monitor` (`NVIDIA_MIG_CONFIG_DEVICES`)",
        No("they change, and look at, what belongs to other containers"),
    ),
    ("graphics: `/dev/dri` nodes of the GPU", Yes("", "neighbours::graphics_of_leased_gpus_alone")),
    (
        "graphics: links in `/dev/dri/by-path`",
        No("names of udev's; the interfaces of graphics look for nodes by number, and there are no others"),
    ),
    (
        "graphics: configuration for EGL, GBM, Vulkan and OptiX",
        Yes("", "neighbours::what_is_looked_for_in_one_place_is_there"),
    ),
    ("graphics: modules for an X server", No("an X server that drives a display is the host's")),
    (
        "graphics: the nodes' group for the container's user",
        No("a hook cannot change a process's groups; it says which one is missing"),
    ),
    (
        "OpenCL: `/etc/OpenCL/vendors/nvidia.icd`",
        Yes("", "neighbours::what_is_looked_for_in_one_place_is_there"),
    ),
    (
        "IMEX channels",
        No(
            "a channel joins the memory of several hosts, and all containers that have it; no lease bounds that",
        ),
    ),
    ("NVSwitch nodes (`NVIDIA_NVSWITCH`)", No("they rule the links between all GPUs of the host")),
    ("GDS: `/dev/nvidia-fs*`", No("it reaches the host's storage, which is not in the pool")),
    ("GDRCopy: `/dev/gdrdrv`", No("one node for all GPUs, which cannot be bounded by a lease")),
    (
        "Mellanox: `/dev/infiniband/*`",
        No("network adapters are not in the pool; engines give them with `--device`"),
    ),
    ("`NVIDIA_REQUIRE_*`", No("CUDA itself refuses a driver that is too old, when it is used")),
];

fn table() -> String {
    let row = |(what, answer): &(&str, Answer)| match answer {
        Yes("", test) => format!("| {what} | yes | `{test}` |\n"),
        Yes(how, test) => format!("| {what} | yes, {how} | `{test}` |\n"),
        No(reason) => format!("| {what} | no | {reason} |\n"),
    };
    ROWS.iter().map(row).collect()
}

#[test]
fn the_docs_have_this_table() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/nvidia-container-toolkit.md");
    let docs = fs::read_to_string(docs).expect("the docs");
    let rows: String = docs
        .lines()
        .skip_while(|line| *line != "|---|---|---|")
        .skip(1)
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(rows == table(), "docs/nvidia-container-toolkit.md should end in these lines:\n{}", table());
}

#[test]
fn there_is_a_test_behind_each_yes() {
    for (what, answer) in ROWS {
        let Yes(_, test) = answer else { continue };
        let (file, name) = test.split_once("::").expect("file::test");
        let path = format!("{}/tests/{file}.rs", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{what}: {path}: {e}"));
        let (before, _) =
            text.split_once(&format!("fn {name}(")).unwrap_or_else(|| panic!("{what}: no {test}"));
        let above: Vec<&str> = before.lines().rev().take(4).collect();
        let is_test = |line: &&str| line.contains("#[test]") || line.contains("on_every_runtime!");
        assert!(above.iter().any(is_test), "{what}: {test} is no test");
    }
}
