//! A container sees the GPUs of its lease and no trace of their neighbours: in `/proc/driver/nvidia`, in `/dev/dri`.
//! And what programs find in one place alone is there: sockets of the driver's daemons, configuration of loaders.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use serde_json::{Value, json};
use vgpu::driver::{Grant, ITEMS, Kind};

use common::attack::{Outcome, Outside, attacked};
use common::bundle::{bind, without_dev};
use common::container::{Builder, Container};
use common::driver;
use common::halted::Halted;
use common::host::{DRIVER, DRM, Gpu, Host, make_dir, make_node};
use common::probe::Opened;
use common::runtime::Runtime;
use common::sees;
use common::view::Cgroups;

/// Three GPUs, the one in the middle a neighbour of either.
fn host(cgroups: Cgroups) -> Host {
    Host::builder(cgroups).gpus(Gpu::several(3)).build()
}

/// The GPU behind the one vGPU of a container.
fn leased<'h>(container: &'h Container) -> &'h Gpu {
    let gpus = sees::leased(container, &container.probe(&[]));
    assert_eq!(gpus.len(), 1);
    gpus[0]
}

/// The files below the container's `/proc/driver/nvidia`.
fn told(container: &Container) -> BTreeSet<String> {
    let output = container.exec(&["find", "/proc/driver/nvidia", "-type", "f"]).ok();
    let relative = |line: &str| line.strip_prefix("/proc/driver/nvidia/").expect("below it").to_owned();
    output.stdout.lines().map(relative).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

on_every_runtime! {
    fn proc_tells_of_leased_gpus_alone(cgroups, runtime) {
        let host = host(cgroups);
        for mapped in [false, true] {
            let builder = host.container(runtime).annotation("vgpu.count", "1").mapped_if(mapped);
            let narrow = ["/bin/sh", "-c", "umask 777; exec \"$@\"", "sh"];
            let container = builder.hooks_under(&narrow).with_driver_in_proc().build();
            container.up().ok();
            let gpu = leased(&container);
            let of_gpu = ["information", "registry"].map(|name| format!("gpus/{}/{name}", gpu.pci));
            let files = set(&["version", "params", "registry"]).into_iter().chain(of_gpu.clone());
            assert_eq!(told(&container), files.collect());
            let read = |name: &str| container.exec(&["cat", &format!("/proc/driver/nvidia/{name}")]).ok().stdout;
            assert!(read("version").contains(DRIVER));
            assert!(read(&of_gpu[0]).contains(&gpu.uuid));
            let params = read("params");
            assert!(params.contains("ModifyDeviceFiles: 0\n") && params.contains("DeviceFileMode: 438\n"));
            assert!(!params.contains("ModifyDeviceFiles: 1"), "{params}");
            container.exec(&["sh", "-c", ": >/proc/driver/nvidia/params"]).fails();
            let modes = container.exec(&["sh", "-c", "stat -c %a /proc/driver/nvidia/gpus /proc/driver/nvidia/version"]);
            assert_eq!(modes.ok().stdout, "755\n444\n");
            container.delete_force();
        }
    }
}

/// Another procfs of the container's, which shows the same.
#[test]
#[ignore = "needs root: starts containers"]
fn every_procfs_is_covered() {
    let host = host(Cgroups::V1);
    let second = json!({ "destination": "/second/proc", "type": "proc", "source": "proc" });
    let driver = host.driver_root().join("proc/driver");
    let container = host
        // crun mounts it at one place alone.
        .container(Runtime::Runc)
        .annotation("vgpu.count", "1")
        .tweak(|config| config["mounts"].as_array_mut().expect("mounts").push(second))
        .tweak(|config| bind(config, driver.to_str().expect("UTF-8"), "/second/proc/driver", &[]))
        .with_driver_in_proc()
        .args(&["sh", "-c", "ls /proc/driver/nvidia/gpus /second/proc/driver/nvidia/gpus"])
        .build();
    let output = container.run().ok();
    assert_eq!(output.stdout.matches("0000:").count(), 2, "{output}");
}

/// Somebody on the same root has taken `/proc` away while the hook looks, and puts it back: what is mounted there goes
/// along, and is covered.
#[test]
#[ignore = "needs root: starts containers"]
fn a_proc_that_is_elsewhere_meanwhile_is_covered() {
    let host = host(Cgroups::V1);
    let halted = Halted::new(attacked(&host, Runtime::Runc));
    let (proc, away) = (halted.root().join("proc"), halted.root().join("away"));
    let pid = halted.pid().to_string();
    let enter =
        |args: &[&str]| host.view().run(&[&["nsenter", "--target", &pid, "--mount"], args].concat()).ok();
    let driver = host.driver_root().join("proc/driver");
    let at = proc.join("driver");
    enter(&["mount", "--bind", driver.to_str().expect("UTF-8"), at.to_str().expect("UTF-8")]);
    let gpus = at.join("nvidia/gpus");
    let told = || enter(&["ls", gpus.to_str().expect("UTF-8")]).stdout.lines().count();
    assert_eq!(told(), 3);
    fs::rename(&proc, &away).expect("rename");
    halted.hook().ok();
    fs::rename(&away, &proc).expect("rename");
    assert_eq!(told(), 1);
}

/// The simulation shows what there would be to hide. A container without a request is left alone.
#[test]
#[ignore = "needs root: starts containers"]
fn without_a_lease_nothing_is_hidden() {
    let host = host(Cgroups::V1);
    for runtime in [Runtime::Runc, Runtime::Crun] {
        let container = host.container(runtime).with_driver_in_proc().build();
        container.up().ok();
        let gpus = told(&container).iter().filter(|name| name.ends_with("/information")).count();
        assert_eq!(gpus, 3);
        container.delete_force();
    }
}

/// A cover on a shared mount would appear on the host, too.
#[test]
#[ignore = "needs root: starts containers"]
fn a_shared_proc_is_refused() {
    let host = host(Cgroups::V1);
    let halted = Halted::new(attacked(&host, Runtime::Runc));
    let (pid, at) = (halted.pid().to_string(), halted.root().join("proc/driver"));
    let driver = host.driver_root().join("proc/driver");
    let (at, driver) = (at.to_str().expect("UTF-8"), driver.to_str().expect("UTF-8"));
    let enter = |args: &[&str]| {
        host.view().run(&[&["nsenter", "--target", &pid, "--mount"], args].concat()).ok();
    };
    enter(&["mount", "--bind", driver, at]);
    enter(&["mount", "--make-shared", at]);
    let output = halted.hook();
    assert_eq!(output.code, Some(65), "{output}");
    assert!(output.stderr.contains("/proc/driver/nvidia is on a mount with shared propagation"), "{output}");
}

/// `/dev/dri` as a container has it: path, and number.
fn graphics(container: &Container) -> BTreeMap<String, (u32, u32)> {
    let list = "for node in /dev/dri/*; do test -c $node && stat -c '%n %t %T' $node; done; true";
    let output = container.exec(&["sh", "-c", list]).ok();
    let number = |hex: &str| u32::from_str_radix(hex, 16).expect("a hexadecimal number");
    let node = |line: &str| {
        let [path, major, minor] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        (path.to_owned(), (number(major), number(minor)))
    };
    output.stdout.lines().map(node).collect()
}

on_every_runtime! {
    fn graphics_of_leased_gpus_alone(cgroups, runtime) {
        let host = host(cgroups);
        host.load_graphics();
        for (capabilities, modeset) in [("graphics", false), ("display", true), ("utility", false)] {
            let builder = host.container(runtime).annotation("vgpu.count", "1");
            let container = builder
                .env("NVIDIA_DRIVER_CAPABILITIES", capabilities)
                .furnish(|root| {
                    for gpu in &host.gpus {
                        let (_, (major, minor)) = &gpu.graphics()[1];
                        make_node(&root.join(format!("opt/render{}", gpu.minor)), *major, *minor);
                    }
                })
                .build();
            container.up().ok();
            let gpu = leased(&container);
            let has = if capabilities == "utility" { BTreeMap::new() } else { gpu.graphics().into() };
            assert_eq!(graphics(&container), has, "{capabilities}");
            let brought = host.gpus.iter().map(|gpu| format!("/opt/render{}", gpu.minor));
            let paths: Vec<String> = has.keys().cloned().chain(brought).chain(["/dev/nvidia-modeset".into()]).collect();
            let sees = container.probe(&paths.iter().map(String::as_str).collect::<Vec<_>>());
            for (path, opened) in &sees.opened {
                let granted = has.contains_key(path) || !has.is_empty() && *path == format!("/opt/render{}", gpu.minor);
                let expected = match path.as_str() {
                    "/dev/nvidia-modeset" if modeset => Opened::Allowed,
                    "/dev/nvidia-modeset" => Opened::Absent,
                    _ if granted => Opened::Allowed,
                    _ => Opened::Forbidden,
                };
                assert_eq!(*opened, expected, "{capabilities} {path}: {sees:?}");
            }
            container.delete_force();
        }
    }
}

/// The nodes' group is the host's, and a hook cannot put a process into it: it says so.
#[test]
#[ignore = "needs root: starts containers"]
fn a_user_out_of_the_nodes_group_is_told() {
    let host = host(Cgroups::V1);
    host.load_graphics();
    for (path, _) in host.gpus.iter().flat_map(Gpu::graphics) {
        let node = host.driver_root().join(&path[1..]);
        chown(&node, None, Some(44)).expect("chown");
        fs::set_permissions(&node, fs::Permissions::from_mode(0o660)).expect("chmod");
    }
    for (user, said) in [
        (json!({ "uid": 0, "gid": 0 }), 0),
        (json!({ "uid": 1000, "gid": 1000 }), 2),
        (json!({ "uid": 1000, "gid": 1000, "additionalGids": [7, 44] }), 0),
    ] {
        let open = "for node in /dev/dri/*; do (: <>$node) 2>&1; done; true";
        let container = host
            .container(Runtime::Runc)
            .annotation("vgpu.count", "1")
            .env("NVIDIA_DRIVER_CAPABILITIES", "graphics")
            .tweak(|config| config["process"]["user"] = user.clone())
            .args(&["sh", "-c", open])
            .build();
        let denied = container.run().ok().stdout.matches("Permission denied").count();
        assert_eq!(denied, said, "{user}");
        let log = fs::read_to_string(host.state_dir().join("log")).unwrap_or_default();
        let lines =
            log.lines().filter(|line| line.contains(container.id()) && line.ends_with("--group-add 44"));
        assert_eq!(lines.count(), said, "{user}: {log}");
    }
}

/// An image's own `/dev` may bring nodes: those of NVIDIA's GPUs are covered, there as in `/dev` itself.
#[test]
#[ignore = "needs root: starts containers"]
fn nodes_that_the_image_brings_are_covered() {
    let host = host(Cgroups::V1);
    host.load_graphics();
    for runtime in [Runtime::Runc, Runtime::Crun] {
        let container = host
            .container(runtime)
            .annotation("vgpu.count", "1")
            .env("NVIDIA_DRIVER_CAPABILITIES", "graphics")
            .furnish(|root| {
                make_dir(&root.join("dev/dri"));
                for (path, (major, minor)) in host.gpus.iter().flat_map(Gpu::graphics) {
                    make_node(&root.join(&path[1..]), major, minor);
                }
            })
            .tweak(without_dev)
            .build();
        container.up().ok();
        let gpu = leased(&container);
        assert_eq!(graphics(&container), gpu.graphics().into());
        container.delete_force();
    }
}

/// Nodes that the engine gives: those of another vendor's GPU are none of vgpu's business, those of NVIDIA's are
/// another way to a GPU.
#[test]
#[ignore = "needs root: starts containers"]
fn of_the_engines_graphics_only_nvidias_are_refused() {
    let host = host(Cgroups::V1);
    host.load_graphics();
    let outside = Outside::new(&host);
    let neighbour = &host.gpus[2].graphics()[1].1;
    for runtime in [Runtime::Runc, Runtime::Crun] {
        for (number, says) in [(&(DRM, 0), None), (neighbour, Some("would see GPUs beside its lease"))] {
            let (major, minor) = *number;
            let give = move |config: &mut Value| {
                let node = json!({ "path": "/dev/dri/card0", "type": "c", "major": major, "minor": minor, "fileMode": 0o666 });
                config["linux"]["devices"] = json!([node]);
                let rule =
                    json!({ "allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm" });
                config["linux"]["resources"]["devices"].as_array_mut().expect("rules").push(rule);
            };
            let look = format!("stat -c %n /dev/dri/card0 >/dev/null || exit 3; {}", common::attack::LOOK);
            let container = attacked(&host, runtime)
                .env("NVIDIA_DRIVER_CAPABILITIES", "graphics")
                .args(&["sh", "-c", &look])
                .tweak(give)
                .build();
            let outcome = outside.attack(&container, "a node of the engine's");
            match says {
                Some(says) => outcome.assert_refused(says, "a node of the engine's"),
                None => assert_eq!(outcome, Outcome::Started),
            }
        }
        let source = host.driver_root().join("dev/dri");
        let source = source.to_str().expect("UTF-8").to_owned();
        let container =
            attacked(&host, runtime).tweak(move |config| bind(config, &source, "/dev/dri", &[])).build();
        assert_eq!(outside.attack(&container, "a mount"), Outcome::Started, "it opens nothing");
    }
}

/// What is at a path, as device and inode.
fn id(path: &Path) -> String {
    let meta = fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    format!("{}:{}", meta.dev(), meta.ino())
}

/// Sockets, and files that loaders look for in one place.
fn fixed(capabilities: &str) -> impl Iterator<Item = &'static str> {
    let capabilities = Grant::default().asked(Some(capabilities)).expect("capabilities");
    let fixed = ITEMS.iter().filter(|item| matches!(item.kind, Kind::Socket | Kind::Config));
    fixed.filter(move |item| item.capabilities.intersects(capabilities)).map(|item| item.name)
}

fn looking_for_fixed(builder: Builder<'_>) -> Builder<'_> {
    let look = "for path in $(echo $FIXED); do stat -L -c '%n %d:%i' $path; done";
    let paths: Vec<String> = fixed("all").map(|path| format!("/{path}")).collect();
    builder.annotation("vgpu.count", "1").env("FIXED", &paths.join(" ")).args(&["sh", "-c", look])
}

on_every_runtime! {
    fn what_is_looked_for_in_one_place_is_there(cgroups, runtime) {
        let host = Host::new(cgroups);
        driver::install_all(&host.driver_root(), DRIVER);
        for capabilities in ["utility,compute", "all"] {
            let container =
                looking_for_fixed(host.container(runtime)).env("NVIDIA_DRIVER_CAPABILITIES", capabilities).build();
            let output = container.run();
            let found: BTreeSet<&str> = output.stdout.lines().collect();
            let expected: Vec<String> =
                fixed(capabilities).map(|path| format!("/{path} {}", id(&host.driver_root().join(path)))).collect();
            assert_eq!(found, expected.iter().map(String::as_str).collect(), "{output}");
        }
    }
}

/// On the way to them there may be anything.
#[test]
#[ignore = "needs root: starts containers"]
fn nothing_leads_out_of_the_root() {
    let host = Host::new(Cgroups::V1);
    driver::install_all(&host.driver_root(), DRIVER);
    let outside = Outside::new(&host);
    let aim = outside.path("vgpu");
    let cases: [(&str, &str, &str, Option<&str>); 8] = [
        ("elsewhere in the image", "run/nvidia-persistenced", "/opt", None),
        (
            "to the host",
            "run/nvidia-persistenced",
            &aim,
            Some("make an empty file /run/nvidia-persistenced/socket in the image"),
        ),
        (
            "into /proc",
            "run/nvidia-persistenced",
            "/proc/1/root/etc",
            Some("cannot open the container's /run/nvidia-persistenced"),
        ),
        ("a socket's name", "run/nvidia-persistenced/socket", "/opt/file", Some("is a symbolic link")),
        ("elsewhere in the image", "etc/OpenCL", "/opt", None),
        (
            "to the host",
            "etc/OpenCL/vendors",
            &aim,
            Some("make a link /etc/OpenCL/vendors/nvidia.icd in the image"),
        ),
        (
            "into /proc",
            "etc/OpenCL/vendors",
            "/proc/1/root/etc",
            Some("cannot open the container's /etc/OpenCL/vendors"),
        ),
        ("a file's name", "etc/OpenCL/vendors/nvidia.icd", &aim, Some("is a link to nowhere")),
    ];
    for (what, at, target, says) in cases {
        for runtime in [Runtime::Runc, Runtime::Crun] {
            let container = attacked(&host, runtime)
                .furnish(|root| {
                    make_dir(root.join(at).parent().expect("a parent"));
                    symlink(target, root.join(at)).expect("a link");
                })
                .build();
            let what = format!("{runtime:?}: {at} leads {what}");
            let outcome = outside.attack(&container, &what);
            match says {
                Some(says) => outcome.assert_refused(says, &what),
                None => assert_eq!(outcome, Outcome::Started, "{what}"),
            }
        }
    }
}

/// With the host's own directory mounted there, a container has the socket already.
#[test]
#[ignore = "needs root: starts containers"]
fn mounts_of_the_hosts_on_the_way() {
    let host = Host::new(Cgroups::V1);
    driver::install_all(&host.driver_root(), DRIVER);
    let outside = Outside::new(&host);
    let of_driver = |dir: &str| host.driver_root().join(dir).to_str().expect("UTF-8").to_owned();
    let cases = [
        (of_driver("run"), "/run", None),
        (of_driver("etc/OpenCL"), "/etc/OpenCL", None),
        (outside.path("vgpu"), "/run", Some("/run is mounted from the host")),
        (outside.path("vgpu"), "/etc/OpenCL", Some("/etc/OpenCL is mounted from the host")),
        (outside.path("tmpfs"), "/run", Some("/run is mounted from the host")),
    ];
    for (source, at, says) in cases {
        for runtime in [Runtime::Runc, Runtime::Crun] {
            let source = source.clone();
            let container =
                attacked(&host, runtime).tweak(move |config| bind(config, &source, at, &[])).build();
            let outcome = outside.attack(&container, at);
            match says {
                Some(says) => outcome.assert_refused(says, at),
                None => assert_eq!(outcome, Outcome::Started, "{at}"),
            }
        }
    }
}

/// What an image brings for OpenCL's loader is its own business.
#[test]
#[ignore = "needs root: starts containers"]
fn an_images_own_configuration_stays() {
    let host = Host::new(Cgroups::V1);
    driver::install_all(&host.driver_root(), DRIVER);
    let container = host
        .container(Runtime::Runc)
        .annotation("vgpu.count", "1")
        .furnish(|root| {
            make_dir(&root.join("etc/OpenCL/vendors"));
            fs::write(root.join("etc/OpenCL/vendors/nvidia.icd"), "the image's").expect("a file");
        })
        .args(&["cat", "/etc/OpenCL/vendors/nvidia.icd"])
        .build();
    assert_eq!(container.run().ok().stdout, "the image's");
}
