//! Existing MIG devices are vGPUs: a container gets the nodes of exactly those that it leases, beside its GPU's, and a
//! lease means that very device whatever an admin makes of the layout meanwhile.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use common::container::{Builder, Container};
use common::host::{Gpu, Host, make_node};
use common::leases::{asking, assert_refused, holders};
use common::mig::{CONTROL, Device, node, possible_minors, whole};
use common::parked::{Lot, Parked};
use common::probe::{Opened, Probe};
use common::runtime::Runtime;
use common::sees;
use common::view::Cgroups;

/// Two GPU instances of one compute instance each, and one of two.
const LAYOUT: [Device; 4] = [
    whole("1g.5gb", 7),
    whole("1g.5gb", 9),
    Device { profile: "1c.2g.10gb", gi: 3, ci: 0 },
    Device { profile: "1c.2g.10gb", gi: 3, ci: 1 },
];

/// All GPUs are in one entry; a type for each profile that occurs here, and one for shares.
const POOL: &str = "[request]\ndefault_type = \"mig\"\n\
    [[type]]\nname = \"mig\"\nmig = \"1g.5gb\"\n\
    [[type]]\nname = \"part\"\nmig = \"1c.2g.10gb\"\n\
    [[type]]\nname = \"half\"\nmig = \"3g.20gb\"\n\
    [[type]]\nname = \"small\"\nmemory = \"10GiB\"\ncompute = 25\n\
    [[gpu]]\nproduct = \"NVIDIA A100*\"\nvgpus = { small = 4 }\n";

const BUNDLES: [(Cgroups, Runtime); 4] = [
    (Cgroups::V1, Runtime::Runc),
    (Cgroups::V2, Runtime::Runc),
    (Cgroups::V1, Runtime::Crun),
    (Cgroups::V2, Runtime::Crun),
];

/// Two GPUs, the first in MIG mode.
fn host(cgroups: Cgroups) -> Host {
    let host = Host::builder(cgroups).nvml().pool(POOL).build();
    host.set_mig(&host.gpus[0], Some(&LAYOUT));
    host
}

/// A container that asks for so many of a type, and whose image brings a node of every GPU and of every capability, where
/// nobody looks for them.
fn wants<'h>(host: &'h Host, runtime: Runtime, kind: &str, count: u32) -> Builder<'h> {
    let minors: Vec<u32> = all_minors(host);
    sees::smuggled(host.container(runtime))
        .furnish(move |root| {
            minors
                .iter()
                .for_each(|minor| make_node(&root.join(&brought(*minor)[1..]), host.caps_major(), *minor));
        })
        .annotation("vgpu.type", kind)
        .annotation("vgpu.count", &count.to_string())
        .recorded()
}

/// Those of the two by which MIG is controlled, of all instances of the layout, and the last that could be on that GPU.
fn all_minors(host: &Host) -> Vec<u32> {
    let gpu = &host.gpus[0];
    let control = CONTROL.iter().map(|(_, minor)| *minor);
    let of_layout = LAYOUT.iter().flat_map(|device| device.nodes(host, gpu)).map(|(_, (_, minor))| minor);
    let all: BTreeSet<u32> = control.chain(of_layout).chain(possible_minors(gpu).last()).collect();
    all.into_iter().collect()
}

/// Where an image brings the node.
fn brought(minor: u32) -> String {
    format!("/opt/cap{minor}")
}

/// Every path that could be a GPU or a capability of MIG.
fn paths(host: &Host) -> Vec<String> {
    let caps = all_minors(host).into_iter().flat_map(|minor| [node(minor), brought(minor)]);
    sees::PATHS.map(str::to_owned).into_iter().chain(caps).collect()
}

fn look(container: &Container) -> Probe {
    let paths = paths(container.host());
    container.probe(&paths.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The container has these MIG devices of the first GPU, and nothing else of any: their nodes are there and open, all
/// others are neither; its lease.json says so.
#[track_caller]
fn assert_has(container: &Container, kind: &str, devices: &[Device]) {
    let (host, sees) = (container.host(), look(container));
    let gpu = &host.gpus[0];
    let said: Vec<Value> =
        sees.lease.as_ref().expect("a lease.json")["vgpus"].as_array().expect("vgpus").clone();
    let expected: Vec<Value> = devices
        .iter()
        .map(|device| {
            json!({
                "id": format!("{}/{kind}/{}.{}", gpu.uuid, device.gi, device.ci), "type": kind,
                "memory": device.memory(), "compute": null, "uuid": gpu.uuid, "device": gpu.node(),
                "mig": { "uuid": device.uuid(gpu), "profile": device.profile },
            })
        })
        .collect();
    assert_eq!(said, expected);

    let caps: BTreeMap<String, (u32, u32)> =
        devices.iter().flat_map(|device| device.nodes(host, gpu)).collect();
    let mut nodes = sees::nodes(host, &[gpu]);
    nodes.extend(caps.clone());
    assert_eq!(sees.nodes, nodes);
    let leased: BTreeSet<u32> = caps.values().map(|(_, minor)| *minor).collect();
    for (path, opened) in &sees.opened {
        let mine = nodes.contains_key(path)
            || *path == format!("/opt/gpu{}", gpu.minor)
            || leased.iter().any(|minor| *path == brought(*minor));
        let expected = match (mine, path.starts_with("/opt/")) {
            (true, _) => Opened::Allowed,
            (false, true) if path.ends_with("gpu2") => Opened::Absent,
            (false, true) => Opened::Forbidden,
            (false, false) => Opened::Absent,
        };
        assert_eq!(*opened, expected, "{path}: {sees:?}");
    }
}

on_every_runtime! {
    /// With mappings podman gives its containers no device rules at all.
    fn a_container_has_exactly_its_mig_devices(cgroups, runtime) {
        let host = host(cgroups);
        for (mapped, kind, devices) in [
            (false, "mig", &LAYOUT[..1]),
            (true, "mig", &LAYOUT[..2]),
            (false, "part", &LAYOUT[2..]),
        ] {
            let container = wants(&host, runtime, kind, devices.len() as u32).mapped_if(mapped).build();
            container.up().ok();
            assert_has(&container, kind, devices);
            container.delete_force().ok();
        }
    }
}

/// Neighbours on one GPU share its node and nothing else, and a device that is given back is given again.
#[test]
#[ignore = "needs root: starts containers"]
fn neighbours_on_one_gpu_and_the_next_after_them() {
    for (cgroups, runtime) in BUNDLES {
        let host = host(cgroups);
        let [first, second, third] = [1, 1, 1].map(|count| wants(&host, runtime, "mig", count).build());
        first.up().ok();
        second.up().ok();
        assert_has(&first, "mig", &LAYOUT[..1]);
        assert_has(&second, "mig", &LAYOUT[1..2]);
        let said = assert_refused(&third, 75);
        let free = "asked for 1 of type mig; free: 0 mig, 2 part, 4 small; held by ";
        assert!(said.contains(free), "{said}");
        second.down().ok();
        let next = wants(&host, runtime, "mig", 1).build();
        next.up().ok();
        assert_has(&next, "mig", &LAYOUT[1..2]);
        next.down().ok();
        first.down().ok();
        assert_eq!(holders(&host), [""; 0]);
    }
}

/// Nodes for graphics are of a whole GPU.
#[test]
#[ignore = "needs root: starts containers"]
fn no_mig_device_has_graphics() {
    for (cgroups, runtime) in BUNDLES {
        let host = host(cgroups);
        host.load_graphics();
        let node = &host.gpus[0].graphics()[1].1;
        let container = wants(&host, runtime, "mig", 1)
            .env("NVIDIA_DRIVER_CAPABILITIES", "graphics,compute,utility")
            .furnish(|root| make_node(&root.join("opt/render"), node.0, node.1))
            .build();
        container.up().ok();
        assert_has(&container, "mig", &LAYOUT[..1]);
        let sees = container.probe(&["/dev/dri", "/opt/render"]);
        assert_eq!(sees.opened["/dev/dri"], Opened::Absent);
        assert_eq!(sees.opened["/opt/render"], Opened::Forbidden);
        container.delete_force();
    }
}

/// The files below the container's `/proc/driver/nvidia/capabilities`.
fn told(container: &Container) -> BTreeSet<String> {
    let output = container.exec(&["find", "/proc/driver/nvidia/capabilities", "-type", "f"]).ok();
    let relative =
        |line: &str| line.strip_prefix("/proc/driver/nvidia/capabilities/").expect("below it").to_owned();
    output.stdout.lines().map(relative).collect()
}

#[test]
#[ignore = "needs root: starts containers"]
fn procfs_tells_of_the_leased_mig_devices_alone() {
    for runtime in [Runtime::Runc, Runtime::Crun] {
        let host = host(Cgroups::V2);
        let container = wants(&host, runtime, "part", 2).with_driver_in_proc().build();
        container.up().ok();
        let gi = format!("gpu{}/mig/gi3", host.gpus[0].minor);
        let files = [format!("{gi}/access"), format!("{gi}/ci0/access"), format!("{gi}/ci1/access")];
        assert_eq!(told(&container), files.into());
        container.delete_force();
    }
}

/// Without a type a container has any: shares and MIG devices, on different GPUs as far as possible.
#[test]
#[ignore = "needs root: starts containers"]
fn shares_and_mig_devices_go_together() {
    let host = host(Cgroups::V2);
    host.write_pool(&POOL.replace("default_type = \"mig\"\n", ""));
    let container = host.container(Runtime::Runc).annotation("vgpu.count", "2").build();
    container.up().ok();
    let sees = container.probe(&[]);
    let mut nodes = sees::nodes(&host, &[&host.gpus[0], &host.gpus[1]]);
    nodes.extend(LAYOUT[0].nodes(&host, &host.gpus[0]));
    assert_eq!(sees.nodes, nodes);
    let lease = sees.lease.expect("a lease.json");
    assert_eq!(lease["vgpus"][1]["id"], format!("{}/small/0", host.gpus[1].uuid));
    assert_eq!(lease["vgpus"][1].get("mig"), None);
}

/// What status says of the leases of containers that are alive.
fn shown(host: &Host) -> String {
    let text = host.vgpu(&["status"]).ok().stdout;
    let since =
        text.split("since ").nth(1).map_or("", |rest| rest.split_whitespace().next().unwrap_or_default());
    if since.is_empty() { text } else { text.replace(since, "T") }
}

/// The admin makes another layout while a container is idle: its lease is of no use any more, and counts; whatever is in
/// the place of its device stays unused until it is gone.
#[test]
#[ignore = "needs root: starts containers"]
fn a_lease_on_a_device_that_is_gone() {
    for (cgroups, runtime) in BUNDLES {
        let host = host(cgroups);
        let gpu = &host.gpus[0];
        let holder = wants(&host, runtime, "mig", 1).id("holder").build();
        holder.up().ok();
        let gone = LAYOUT[0].uuid(gpu);
        // In place 7 there is another device now, in place 9 the same as before.
        host.set_mig(gpu, Some(&[whole("3g.20gb", 7), whole("1g.5gb", 9)]));
        let (pid, reason) = (holder.pid(), format!("MIG device {gone} is gone"));
        assert_eq!(
            shown(&host),
            format!(
                "{}  {}  {}  40GiB  MIG mode  ready\n\
                 \x20 mig/9.0    4864MiB   1g.5gb  free\n\
                 \x20 half/7.0  20224MiB  3g.20gb  holder  pid {pid}  since T\n\
                 {}  {}  {}  40GiB  ready\n\
                 \x20 small/0    10GiB   25%  free\n\
                 \x20 small/1    10GiB   25%  free\n\
                 \x20 small/2    10GiB   25%  free\n\
                 \x20 small/3    10GiB   25%  free\n\
                 retired (held, but no longer in the pool file or on the host)\n\
                 \x20 {}/mig/7.0  4864MiB   MIG  holder  pid {pid}  since T  unusable: {reason}\n",
                gpu.uuid,
                gpu.name,
                gpu.node(),
                host.gpus[1].uuid,
                host.gpus[1].name,
                host.gpus[1].node(),
                gpu.uuid,
            )
        );
        let status = host.status();
        assert_eq!(status["gpus"][0]["mig_mode"], true);
        assert_eq!(
            status["retired"],
            json!([{
                "id": format!("{}/mig/7.0", gpu.uuid), "type": "mig", "memory": LAYOUT[0].memory(), "compute": null,
                "mig": { "uuid": gone }, "lease": "holder", "reason": reason,
            }])
        );
        assert_eq!(
            status["gpus"][0]["vgpus"][1]["mig"],
            json!({ "uuid": whole("3g.20gb", 7).uuid(gpu), "profile": "3g.20gb" })
        );

        let again = host.run_hook("createRuntime", &holder.hook_state("createRuntime"));
        let line = format!(
            "vgpu: MIG device {gone} of GPU {} is not on this host any more; see `vgpu status`\n",
            gpu.uuid
        );
        assert_eq!((again.code, again.stderr), (Some(69), line));
        let said = assert_refused(&wants(&host, runtime, "half", 1).build(), 75);
        assert!(
            said.contains("asked for 1 of type half; free: 1 mig, 0 half, 4 small; held by holder (1)"),
            "{said}"
        );
        let beside = wants(&host, runtime, "mig", 1).build();
        beside.up().ok();
        assert_eq!(beside.probe(&[]).lease.expect("a lease")["vgpus"][0]["mig"]["uuid"], LAYOUT[1].uuid(gpu));
        holder.down().ok();
        let next = wants(&host, runtime, "half", 1).build();
        next.up().ok();
        assert_eq!(holders(&host).len(), 2);
    }
}

/// Made again in its place it is the same device; under another type's name, too.
#[test]
#[ignore = "needs root: starts containers"]
fn a_device_that_is_there_again_is_still_leased() {
    let host = host(Cgroups::V1);
    let gpu = &host.gpus[0];
    let holder = wants(&host, Runtime::Runc, "mig", 1).id("holder").build();
    holder.up().ok();
    host.set_mig(gpu, Some(&[]));
    assert_eq!(host.status()["retired"][0]["reason"], format!("MIG device {} is gone", LAYOUT[0].uuid(gpu)));
    host.set_mig(gpu, Some(&LAYOUT[..1]));
    assert_eq!(host.status()["retired"], json!([]));
    assert_has(&holder, "mig", &LAYOUT[..1]);
    host.write_pool(&POOL.replace("\"mig\"", "\"other\""));
    let said = assert_refused(&wants(&host, Runtime::Runc, "other", 1).build(), 75);
    assert!(said.contains("free: 0 other, 4 small; held by holder (1)"), "{said}");
    let status = host.status();
    assert_eq!(status["gpus"][0]["vgpus"][0]["lease"], "holder");
    assert_eq!(status["retired"][0]["id"], format!("{}/mig/7.0", gpu.uuid));
    assert_eq!(status["retired"][0].get("reason"), None);
}

/// Out of MIG mode a container with a MIG device can reach all of the GPU, so that no share of it is given.
#[test]
#[ignore = "needs root: starts containers"]
fn a_gpu_that_leaves_mig_mode_is_not_cut_before_its_leases_end() {
    let host = host(Cgroups::V2);
    let holder = wants(&host, Runtime::Runc, "mig", 1).id("holder").build();
    holder.up().ok();
    host.set_mig(&host.gpus[0], None);
    let said = assert_refused(&wants(&host, Runtime::Runc, "small", 5).build(), 75);
    let no_room =
        "free: 4 small; idle, but without room beside what is leased on the same GPU: 4; held by holder";
    assert!(said.contains(no_room), "{said}");
    holder.down().ok();
    wants(&host, Runtime::Runc, "small", 5).build().up().ok();
}

/// With CAP_SYS_ADMIN, a process has every MIG device of a GPU that it may open: the driver asks for no node.
#[test]
#[ignore = "needs root: starts containers"]
fn sys_admin_is_another_way_to_mig_devices() {
    let named = |name: &'static str| {
        move |config: &mut Value| {
            let bounding = config["process"]["capabilities"]["bounding"].as_array_mut().expect("a set");
            bounding.push(json!(name));
        }
    };
    let sys_admin = named("CAP_SYS_ADMIN");
    for runtime in [Runtime::Runc, Runtime::Crun] {
        let host = host(Cgroups::V1);
        let said = assert_refused(&wants(&host, runtime, "mig", 1).tweak(sys_admin).build(), 65);
        assert_eq!(
            said,
            "vgpu: the container would have all MIG devices of its GPU, not only those of its lease: it has \
             CAP_SYS_ADMIN; start it without (--cap-drop SYS_ADMIN), or set allow_other_access = true in pool.toml\n"
        );
        assert_eq!(holders(&host), [""; 0]);
        let share = wants(&host, runtime, "small", 1).tweak(sys_admin).build();
        share.up().ok();
        host.write_pool(&format!("policy.allow_other_access = true\n{POOL}"));
        wants(&host, runtime, "mig", 1).tweak(sys_admin).build().up().ok();
    }

    // crun takes it by other names, too. That these are names of it, a container without a lease tells.
    let host = host(Cgroups::V1);
    for name in ["cap_sys_admin", "21", "0x15", "025"] {
        let bounding = ["sed", "-n", "s/^CapBnd:\t//p", "/proc/self/status"];
        let without = host.container(Runtime::Crun).args(&bounding).tweak(named(name)).build();
        let set = u64::from_str_radix(without.run().ok().stdout.trim_end(), 16).expect("a set");
        assert_ne!(set & 1 << 21, 0, "{name}");
        assert_refused(&wants(&host, Runtime::Crun, "mig", 1).tweak(named(name)).build(), 65);
    }
}

/// A capability's node, or a rule for it, from the engine is another way to a GPU.
#[test]
#[ignore = "needs root: starts containers"]
fn nodes_and_rules_of_the_engine_are_refused() {
    let host = host(Cgroups::V2);
    let [(_, (major, minor)), _] = LAYOUT[1].nodes(&host, &host.gpus[0]);
    for runtime in [Runtime::Runc, Runtime::Crun] {
        for (rule, says) in [
            (json!({ "allow": true, "type": "c", "major": major, "access": "rw" }), format!("{major}:1")),
            (
                json!({ "allow": true, "type": "c", "major": major, "minor": minor, "access": "r" }),
                format!("{major}:{minor}"),
            ),
        ] {
            let give = move |config: &mut Value| {
                config["linux"]["resources"]["devices"].as_array_mut().expect("rules").push(rule);
            };
            let said = assert_refused(&wants(&host, runtime, "mig", 1).tweak(give).build(), 65);
            assert!(said.contains(&format!("its device rules allow {says};")), "{said}");
        }
        let give = move |config: &mut Value| {
            config["linux"]["devices"] =
                json!([{ "path": "/dev/x", "type": "c", "major": major, "minor": minor, "fileMode": 0o666 }]);
        };
        let said = assert_refused(&wants(&host, runtime, "mig", 1).tweak(give).build(), 65);
        assert!(said.contains("it is given the node \"/dev/x\""), "{said}");
    }
}

/// Whatever the configuration says, another hook may have opened a capability by now: on v1 one that is not there yet, too.
#[test]
#[ignore = "needs root: makes cgroups and mounts"]
fn a_capability_that_another_hook_has_opened_is_found() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let host = Host::builder(cgroups).gpus(Gpu::several(1)).nvml().pool(POOL).build();
        let gpu = &host.gpus[0];
        host.set_mig(gpu, Some(&LAYOUT));
        let (lot, caps) = (Lot::new(&host, 1), host.caps_major());
        let last = possible_minors(gpu).last().expect("some");
        let cases = [
            (format!("c {caps}:* rwm"), format!("its device cgroup allows {caps}:1;")),
            (format!("c {caps}:{last} r"), format!("its device cgroup allows {caps}:{last};")),
        ];
        let hook = |parked: &Parked<'_>, says: &str| {
            let output = host.run_hook("createRuntime", &parked.created());
            assert_eq!(output.code, Some(65), "{cgroups:?} {says}: {output}");
            assert!(output.stderr.contains(says), "{cgroups:?}: {output}");
            parked.end();
        };
        if cgroups == Cgroups::V2 {
            let parked = lot.park("everything");
            parked.allow_all();
            hook(&parked, "its device cgroup allows /dev/nvidia-caps/nvidia-cap1;");
            continue;
        }
        for (n, (rule, says)) in cases.iter().enumerate() {
            let parked = lot.park(&format!("parked-{n}"));
            parked.allow(rule);
            hook(&parked, says);
        }
    }
}

#[test]
#[ignore = "needs root: starts containers"]
fn what_the_host_lacks_is_named() {
    let host = host(Cgroups::V1);
    let [(_, _), (path, _)] = LAYOUT[0].nodes(&host, &host.gpus[0]);
    let of_host = host.driver_root().join(&path[1..]);
    fs::remove_file(&of_host).expect("a node");
    let said = assert_refused(&wants(&host, Runtime::Runc, "mig", 1).build(), 69);
    assert!(
        said.contains(&format!("cannot open {}: ", of_host.display())) && said.contains("nvidia-modprobe -f"),
        "{said}"
    );
    let minors = host.driver_root().join("proc/driver/nvidia-caps/mig-minors");
    fs::remove_file(&minors).expect("minors");
    host.vgpu(&["discover"]).ok();
    let said = assert_refused(&wants(&host, Runtime::Runc, "mig", 1).build(), 69);
    assert!(said.contains(&format!("no node for capability gpu{}/gi7:", host.gpus[0].minor)), "{said}");
    assert_eq!(holders(&host), [""; 0]);
}

/// From the first command on a host with MIG to the first container, as the README tells it.
#[test]
#[ignore = "needs root: starts containers"]
fn discovered_proposed_checked_and_given() {
    let host = host(Cgroups::V2);
    let gpu = &host.gpus[0];
    let said = host.vgpu(&["discover"]).ok().stdout;
    let line = format!("  {}  GI 7 CI 0            MIG 1g.5gb             4864MiB\n", LAYOUT[0].uuid(gpu));
    assert!(said.contains(&line), "{said}");
    let root = host.driver_root();
    let proposed =
        host.vgpu(&["config", "init", "-", "--driver-root", root.to_str().expect("UTF-8")]).ok().stdout;
    let settings = |line: &&str| !line.starts_with("state_dir") && !line.starts_with("driver_root");
    host.write_pool(&proposed.lines().filter(settings).collect::<Vec<_>>().join("\n"));
    let checked = host.vgpu(&["config", "check"]).ok().stdout;
    let mut lines = checked.lines();
    assert_eq!(lines.next(), Some(&*format!("{} is right; GPUs: 2, vGPUs: 8", host.pool_file())));
    assert_eq!(
        lines.collect::<Vec<_>>(),
        [
            "  small: 4 of 10GiB and 25%",
            "  1c.2g.10gb: 2 of MIG profile 1c.2g.10gb",
            "  1g.5gb: 2 of MIG profile 1g.5gb"
        ]
    );
    let container = wants(&host, Runtime::Runc, "1g.5gb", 2).build();
    container.up().ok();
    assert_has(&container, "1g.5gb", &LAYOUT[..2]);
    // By memory a MIG device is as good as a share.
    let by_memory = asking(&host, Runtime::Runc).annotation("vgpu.memory", "9GiB").build();
    by_memory.up().ok();
    assert_eq!(by_memory.probe(&[]).lease.expect("a lease")["vgpus"][0]["type"], "1c.2g.10gb");
}
