//! Root file systems, bundles and neighbours that are built to attack the hook. Whatever they do, nothing
//! outside the container's root is touched, the host's mount table stays as it is, and the container starts
//! with exactly its nodes or is refused with one line.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use common::attack::{Outcome, Outside, attacked, judge};
use common::bundle::MAPPED;
use common::container::Builder;
use common::halted::{Halted, mounted_by_vgpu};
use common::host::{Host, MAJOR, make_dir, make_node};
use common::meddler::Meddler;
use common::runtime::Runtime;
use common::snapshot::Snapshot;
use common::view::Cgroups;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, makedev, mknodat, renameat_with};
use serde_json::{Value, json};

/// Those that run a bundle as it is written.
const RUNTIMES: [Runtime; 2] = [Runtime::Runc, Runtime::Crun];

/// A change of config.json.
type Change<'a> = Box<dyn Fn(&mut Value) + 'a>;

/// As the harness writes it: the runtime mounts a tmpfs at `/dev`.
fn with_dev(_: &mut Value) {}

/// `/dev` and what is below it are not mounted: the image's own is used.
fn without_dev(config: &mut Value) {
    mounts(config).retain(|mount| !mount["destination"].as_str().expect("a destination").starts_with("/dev"));
}

/// The image's `/dev` is copied into the tmpfs that the runtime mounts there.
fn copied_up(config: &mut Value) {
    for mount in mounts(config).iter_mut().filter(|mount| mount["destination"] == "/dev") {
        mount["options"].as_array_mut().expect("options").push(json!("tmpcopyup"));
    }
}

fn bind(config: &mut Value, source: &str, destination: &str, options: &[&str]) {
    let options = [&["rbind"], options].concat();
    let mount = json!({ "type": "bind", "source": source, "destination": destination, "options": options });
    mounts(config).push(mount);
}

fn mounts(config: &mut Value) -> &mut Vec<Value> {
    config["mounts"].as_array_mut().expect("mounts")
}

/// Puts a link in the place of what is there.
fn link(at: &Path, target: &str) {
    if at.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        fs::remove_dir_all(at).expect("removing");
    } else {
        let _ = fs::remove_file(at);
    }
    symlink(target, at).expect("a link");
}

/// Where links lead an unwary root: out of the root file system in every way there is, nowhere, and round in
/// a circle. `name` is the link's own, `aim` what it is to reach on the host.
fn targets(name: &str, aim: &str) -> [String; 9] {
    let up = "../".repeat(40);
    [
        aim.to_owned(),
        format!("{up}{}", &aim[1..]),
        format!("/proc/self/root{aim}"),
        format!("/proc/1/root{aim}"),
        "/proc/self/fd/0".to_owned(),
        "/proc/1/cwd".to_owned(),
        "/dev/null".to_owned(),
        "nowhere".to_owned(),
        name.to_owned(),
    ]
}

/// Links in the image at the very names that the hook uses: on the root file system, and in a tmpfs that
/// they were copied into.
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

/// `/dev` itself as a link, which means what it would mean inside. The runtime comes here before the hook,
/// and some links lead it astray; so the link is put there when it waits for the hook.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_the_images_dev_is_a_link() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let volume = |config: &mut Value| bind(config, &outside.path("dev"), "/opt/volume", &[]);
    // In the host's pid namespace, /proc/1 and /proc/self are there to be followed.
    let builder = attacked(&host, Runtime::Runc).host_pids().tweak(without_dev).tweak(volume);
    let halted = Halted::new(builder);
    let dev = halted.root().join("dev");
    fs::rename(&dev, halted.root().join("real")).expect("rename");
    let attack = |target: &str| {
        link(&dev, target);
        halted.attack(&outside, target, ())
    };
    for target in targets("dev", &outside.path("dev")) {
        attack(&target).assert_refused("no usable /dev", &target);
    }
    attack("/opt/volume").assert_refused("is mounted from the host", "a volume");
    for target in ["/real", "../../../../etc", "/"] {
        assert_eq!(attack(target), Outcome::Started, "{target}");
        halted.undo();
    }
}

/// What an image can have at a name where a node or a directory belongs.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_what_is_in_the_way() {
    type Make = Box<dyn Fn(&Path)>;
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let special = |kind, device| -> Make {
        Box::new(move |at| mknodat(CWD, at, kind, Mode::from_raw_mode(0o666), device).expect("mknod"))
    };
    let file = outside.path("file");
    let (vgpu, nodes) = (&["vgpu"][..], &["nvidiactl", "nvidia0", "nvidia1"][..]);
    // A watchdog (10:130) would go off if it were opened.
    let things: [(&str, Make, Option<&[&str]>); 6] = [
        ("FIFOs", special(FileType::Fifo, 0), None),
        ("sockets", special(FileType::Socket, 0), None),
        ("block devices", special(FileType::BlockDevice, makedev(MAJOR, 0)), None),
        ("character devices", special(FileType::CharacterDevice, makedev(10, 130)), Some(nodes)),
        ("directories", Box::new(|at| fs::create_dir(at).expect("mkdir")), Some(vgpu)),
        ("hard links", Box::new(move |at| fs::hard_link(&file, at).expect("link")), Some(nodes)),
    ];
    for (n, (thing, make, fine)) in things.iter().enumerate() {
        for (m, names) in [vgpu, nodes].into_iter().enumerate() {
            let runtime = RUNTIMES[(n + m) % 2];
            let container = attacked(&host, runtime)
                .furnish(|root| names.iter().for_each(|name| make(&root.join("dev").join(name))))
                .tweak(without_dev)
                .build();
            let what = format!("{runtime:?}: {names:?} are {thing}");
            let outcome = outside.attack(&container, &what);
            if *fine == Some(names) {
                assert_eq!(outcome, Outcome::Started, "{what}");
            } else {
                outcome.assert_refused("is in the way", &what);
            }
        }
    }
}

/// Nodes of GPUs that no lease grants, under names that are hard to say. The long one is covered.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_nodes_with_odd_names() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    for runtime in RUNTIMES {
        let attack = |name: &[u8]| {
            let container = attacked(&host, runtime)
                .furnish(|root| make_node(&root.join("dev").join(OsStr::from_bytes(name)), MAJOR, 9))
                .tweak(without_dev)
                .build();
            outside.attack(&container, "an odd name")
        };
        assert_eq!(attack(&[b'n'; 255]), Outcome::Started);
        attack(b"\xff\nvgpu: \x1b[31m").assert_refused("is not UTF-8", "bytes");
    }
}

/// An image that would have the hook mount without end: each node is one name more of the same file.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_more_nodes_than_any_host_has() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let nodes = |root: &Path, count: u32| {
        let dev = root.join("dev");
        make_node(&dev.join("0"), MAJOR, 9);
        (1..count).for_each(|n| fs::hard_link(dev.join("0"), dev.join(n.to_string())).expect("link"));
    };
    for (count, says) in [(256, None), (257, Some("more than 256 nodes"))] {
        let image = attacked(&host, Runtime::Runc).furnish(|root| nodes(root, count));
        let outcome = outside.attack(&image.tweak(without_dev).build(), "nodes");
        match says {
            Some(says) => outcome.assert_refused(says, "nodes"),
            None => assert_eq!(outcome, Outcome::Started),
        }
    }
}

/// What the host has, bound to places where the hook works.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_binds_from_the_host() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let at = |source: &str, destinations: &'static [&'static str]| -> Change<'_> {
        let source = outside.path(source);
        Box::new(move |config| destinations.iter().for_each(|place| bind(config, &source, place, &[])))
    };
    let over_dev = |source: String, options: &'static [&'static str]| -> Change<'_> {
        Box::new(move |config| {
            without_dev(config);
            bind(config, &source, "/dev", options);
        })
    };
    let tmpfs: Change = Box::new(|config| {
        mounts(config).push(json!({ "type": "tmpfs", "source": "tmpfs", "destination": "/dev/vgpu" }));
    });
    let forged = r#"mounted at the container's "/dev/a\nvgpu: \u{1b}[31m" already"#;
    let gpus = &["/dev/nvidia0", "/dev/nvidia1"];
    let cases: [(&str, Change, Option<&str>); 11] = [
        ("a directory at /dev", over_dev(outside.path("dev"), &[]), Some("is mounted from the host")),
        ("a tmpfs at /dev", over_dev(outside.path("tmpfs"), &[]), Some("is mounted from the host")),
        ("a shared one", over_dev(outside.path("tmpfs"), &["rshared"]), Some("with shared propagation")),
        ("/dev at /dev", over_dev("/dev".to_owned(), &[]), Some("is mounted from the host")),
        ("a directory at /dev/vgpu", at("vgpu", &["/dev/vgpu"]), Some("mounted at")),
        ("a tmpfs at /dev/vgpu", at("tmpfs", &["/dev/vgpu"]), Some("mounted at")),
        ("the runtime's own tmpfs at /dev/vgpu", tmpfs, Some("mounted at")),
        ("a file at the nodes", at("file", gpus), Some("mounted at")),
        ("a GPU at the nodes", at("gpu", gpus), Some("mounted at")),
        ("a GPU at a name that forges a line", at("gpu", &["/dev/a\nvgpu: \u{1b}[31m"]), Some(forged)),
        ("a tmpfs at /dev/shm", at("tmpfs", &["/dev/shm"]), None),
    ];
    for (what, change, says) in cases {
        for runtime in RUNTIMES {
            let what = format!("{runtime:?}: {what}");
            let container = attacked(&host, runtime).tweak(&change).build();
            let outcome = outside.attack(&container, &what);
            match says {
                Some(says) => outcome.assert_refused(says, &what),
                None => assert_eq!(outcome, Outcome::Started, "{what}"),
            }
        }
    }
}

/// A tmpfs of the host's that by its path alone could be the runtime's.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_a_tmpfs_of_the_hosts_in_the_root_directory() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    for runtime in RUNTIMES {
        let container = attacked(&host, runtime)
            .furnish(|root| {
                let dev = root.join("dev");
                outside.mount(&["-t", "tmpfs", "-o", "mode=755", "none", dev.to_str().expect("UTF-8")]);
            })
            .tweak(without_dev)
            .build();
        let outcome = outside.attack(&container, "a tmpfs");
        outcome.assert_refused("is mounted from the host", &format!("{runtime:?}"));
        let dev = host.view().path(container.root()).join("dev");
        assert!(dev.join("null").exists() && !dev.join("vgpu").exists());
    }
}

/// The rule that lets one mount table tell a runtime's tmpfs from others: the kernel binds nothing from
/// another mount namespace.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_a_tmpfs_of_another_container() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let other = host.container(Runtime::Runc).no_hooks().build();
    other.up().ok();
    let dev = format!("/proc/{}/root/dev", other.pid());
    for runtime in RUNTIMES {
        let container = attacked(&host, runtime)
            .tweak(|config| {
                without_dev(config);
                bind(config, &dev, "/dev", &[]);
            })
            .build();
        assert_eq!(outside.attack(&container, &dev), Outcome::NotReached, "{runtime:?}");
    }
}

/// Containers whose root or mount namespace is the host's: crun starts them.
#[test]
#[ignore = "needs root: starts containers"]
fn r12_a_container_in_the_hosts_place() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let root: fn(&mut Value) = |config| config["root"]["path"] = json!("/");
    let namespace: fn(&mut Value) = |config| {
        let namespaces = config["linux"]["namespaces"].as_array_mut().expect("namespaces");
        namespaces.retain(|namespace| namespace["type"] != "mount");
    };
    for (change, says) in [(root, "root is the host's"), (namespace, "no mount namespace of its own")] {
        let halted = Halted::new(attacked(&host, Runtime::Crun).tweak(change));
        halted.attack(&outside, says, ()).assert_refused(says, says);
    }
}

/// A root on a mount of the host's that is shared, and all that config.json may say about it.
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

/// The driver's nodes are on a mount that is shared: what goes into a container has no part in that.
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

/// Roots of other kinds, each with every kind of `/dev`.
#[test]
#[ignore = "needs root: starts containers"]
fn r12_roots_of_other_kinds() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    type Kind = fn(Builder) -> Builder;
    let kinds: [(&str, Kind); 4] = [
        ("an overlay", |builder| builder.overlay()),
        ("a read-only root", |builder| builder.read_only()),
        ("mappings", |builder| builder.mapped()),
        ("a read-only overlay with mappings", |builder| builder.overlay().read_only().mapped()),
    ];
    for runtime in RUNTIMES {
        for (what, kind) in kinds {
            for change in [without_dev, with_dev, copied_up] {
                let container = kind(attacked(&host, runtime)).tweak(change).build();
                let what = format!("{runtime:?}: {what}");
                assert_eq!(outside.attack(&container, &what), Outcome::Started, "{what}");
            }
        }
    }
}

/// A `/dev` of the image's in which nothing can be made.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_an_images_dev_that_cannot_be_written() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    for mapped in [false, true] {
        let halted = Halted::new(attacked(&host, Runtime::Runc).mapped_if(mapped).tweak(without_dev));
        let refused =
            |what| halted.attack(&outside, what, ()).assert_refused("mount a tmpfs at its /dev", what);
        let dev = halted.root().join("dev");
        if mapped {
            // The container's root may write there only by the rights that it has over the owner.
            chown(&dev, Some(0), Some(0)).expect("chown");
            refused("a directory of the host's root");
            chown(&dev, Some(MAPPED), Some(MAPPED)).expect("chown");
        } else {
            let _immutable = Immutable::new(&dev);
            refused("an immutable directory");
        }
        halted.enter(&["mount", "-o", "remount,bind,ro", halted.root().to_str().expect("UTF-8")]).ok();
        refused("a read-only mount");
    }
}

/// What is immutable can be mounted on all the same.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_immutable_mount_points() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let halted = Halted::new(attacked(&host, Runtime::Runc).tweak(without_dev));
    assert_eq!(halted.attack(&outside, "first", ()), Outcome::Started);
    halted.undo();
    let dev = halted.root().join("dev");
    let _immutable = ["vgpu", "nvidiactl", "nvidia-uvm"].map(|name| Immutable::new(&dev.join(name)));
    assert_eq!(halted.attack(&outside, "immutable", ()), Outcome::Started);
}

/// A file or directory that cannot be changed until this is dropped.
struct Immutable(PathBuf);

impl Immutable {
    fn new(path: &Path) -> Self {
        chattr("+i", path);
        Self(path.to_owned())
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        chattr("-i", &self.0);
    }
}

fn chattr(flag: &str, path: &Path) {
    let status = std::process::Command::new(common::command::program("chattr")).arg(flag).arg(path).status();
    assert!(status.is_ok_and(|status| status.success()), "chattr {flag} {}", path.display());
}

/// How often the hook is called while something changes.
const TRIES: usize = 30;

/// Calls the hook that often, each time while a meddler is at work: how often the container would have
/// started. What every refusal says is in `says`.
fn meddle(outside: &Outside, halted: &Halted, meddler: impl Fn() -> Meddler, says: &[&str]) -> usize {
    let mut started = 0;
    for _ in 0..TRIES {
        match halted.attack(outside, "meddling", meddler()) {
            Outcome::Started => started += 1,
            Outcome::Refused(line) => assert!(says.iter().any(|says| line.contains(says)), "{line}"),
            Outcome::NotReached => unreachable!("the hook was called by hand"),
        }
        halted.undo();
    }
    started
}

/// Who writes to a root file system from elsewhere exchanges what the hook looks at for a link to the host.
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
    let mut counts = halted.count(&calls);
    halted.undo();
    // After the last statx, which is for the lease when everything is there, it is too late.
    counts[2] -= 1;
    assert!(counts[2] > 5 && (counts[0], counts[1], counts[3]) == (4, 6, 8), "{counts:?} of {calls:?}");
    let names = ["nvidiactl", "nvidia-uvm-tools", "vgpu"].map(|name| dev.join(name));
    let places = ["usr/local", "usr/local/nvidia"].map(|name| halted.root().join(name));
    for name in [&dev].into_iter().chain(&names).chain(&places) {
        link(&evil, &outside.path(if name.is_dir() { "dev" } else { "file" }));
        let exchange = || renameat_with(CWD, name, CWD, &evil, RenameFlags::EXCHANGE).expect("exchange");
        for (call, count) in calls.into_iter().zip(&counts) {
            for n in 1..=*count {
                let before = outside.world();
                let output = halted.hook_stopped_after(call, n, exchange);
                let what = format!("{name:?} after {call} {n}");
                outside.assert_is(&before, &what);
                let outcome = halted.judge(&output);
                exchange();
                halted.undo();
                let Outcome::Refused(line) = outcome else { panic!("{what}: {outcome:?}") };
                let of_dev = ["is a symbolic link", "no usable /dev", "is gone again"];
                let of_files = ["where the driver's files go", "is not the host's"];
                let says = if places.contains(name) { &of_files[..] } else { &of_dev };
                assert!(says.iter().any(|says| line.contains(says)), "{what}: {line}");
            }
        }
    }
}

/// The same beneath the tmpfs that the runtime has copied the image's `/dev` into: nobody reaches that.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_names_that_are_swapped_where_nobody_looks() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let builder = attacked(&host, Runtime::Runc).tweak(copied_up);
    let halted = Halted::new(builder.furnish(|root| make_dir(&root.join("dev/vgpu"))));
    let (vgpu, evil) = (halted.root().join("dev/vgpu"), halted.root().join("evil"));
    link(&evil, &outside.path("dev/vgpu"));
    let started = meddle(&outside, &halted, || Meddler::exchanging(&vgpu, &evil), &[]);
    assert_eq!(started, TRIES);
}

/// The same with the directory that is the container's root: it becomes a link to one of the host's.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_a_root_that_is_swapped_while_the_hook_runs() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let halted = Halted::new(attacked(&host, Runtime::Runc));
    let evil = halted.bundle().join("evil");
    link(&evil, &outside.path(""));
    let says = ["is not where the runtime has mounted", "is another directory"];
    meddle(&outside, &halted, || Meddler::exchanging(halted.root(), &evil), &says);
}

/// It becomes a link to something that is mounted itself, as another container's root is.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_a_root_that_is_swapped_for_another_mount() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    make_dir(&host.view().path(outside.path("tmpfs/dev")));
    let halted = Halted::new(attacked(&host, Runtime::Runc));
    let away = halted.bundle().join("away");
    fs::rename(halted.root(), &away).expect("rename");
    link(halted.root(), &outside.path("tmpfs"));
    let outcome = halted.attack(&outside, "another mount", ());
    outcome.assert_refused("is not where the runtime has mounted", "another mount");
}

/// What is there on the host has meanwhile been covered by something else.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_a_root_that_is_another_one_on_the_host() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let halted = Halted::new(attacked(&host, Runtime::Runc));
    outside.mount(&["--bind", &outside.path("dev"), halted.root().to_str().expect("UTF-8")]);
    halted.attack(&outside, "covered", ()).assert_refused("is another directory", "covered");
}

/// Renames along the way make the kernel give up a look-up beneath a root: that means "again".
#[test]
#[ignore = "needs root: starts containers"]
fn r19_directories_that_are_renamed_while_the_hook_runs() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let halted = Halted::new(attacked(&host, Runtime::Runc).tweak(without_dev));
    let (dev, way) = (halted.root().join("dev"), halted.root().join("way"));
    fs::rename(&dev, halted.root().join("real")).expect("rename");
    link(&dev, &format!("way/here/{}../../real", "../here/".repeat(8)));
    for name in ["here", "there"] {
        make_dir(&way.join(name));
    }
    let exchange = || Meddler::exchanging(&way.join("here"), &way.join("there"));
    assert_eq!(meddle(&outside, &halted, exchange, &[]), TRIES);
}

/// Mount points that are removed as soon as they are there, and what is mounted on them with them.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_mount_points_that_are_removed_while_the_hook_runs() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let halted = Halted::new(attacked(&host, Runtime::Runc).tweak(without_dev));
    let before = outside.world();
    for _ in 0..TRIES {
        let dev = halted.root().join("dev");
        let remove = Meddler::doing(move || {
            for name in ["nvidiactl", "nvidia0", "nvidia1"] {
                let _ = fs::remove_file(dev.join(name));
            }
            let _ = fs::remove_dir(dev.join("vgpu"));
        });
        let output = halted.hook();
        drop(remove);
        // What is removed after the hook has looked for the last time is not the hook's to keep.
        if output.code != Some(0) {
            let outcome = judge(&host, output.code.expect("a code"), &output.stderr, String::new);
            outcome.assert_refused("is gone again", "removed");
        }
        halted.undo();
    }
    outside.assert_is(&before, "removing");
}

/// Starts on one root file system leave what the first one left: an empty directory for the driver's files, and
/// empty mount points where the image's own `/dev` is used.
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

/// Called twice, and at the end: of the container the hook reads the list of names in `/dev` and, when it
/// is called again, its own lease.json. It runs nothing.
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
        assert_eq!((&read[..], run), (&["/dev", "/dev/vgpu/lease.json"].map(str::to_owned)[..], 3));
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
