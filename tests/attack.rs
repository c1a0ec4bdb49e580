//! Root file systems, bundles and neighbours that are built to attack the hook. Whatever they do, nothing
//! outside the container's root is touched, the host's mount table stays as it is, and the container starts
//! with exactly its nodes or is refused with one line. The attacks that others have reported (R12, R13, R19,
//! R20) are in `reports.rs`.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use common::attack::{LOOK, Outcome, Outside, RUNTIMES, TRIES, attacked, judge, link, meddle, targets};
use common::bundle::{MAPPED, bind, copied_up, mounts, with_dev, without_dev};
use common::container::Builder;
use common::driver;
use common::halted::{Halted, mounted_by_vgpu};
use common::host::{DRIVER, DRM, Host, MAJOR, make_dir, make_node};
use common::meddler::Meddler;
use common::runtime::Runtime;
use common::view::Cgroups;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, makedev, mknodat, renameat_with};
use serde_json::{Value, json};

/// A change of config.json.
type Change<'a> = Box<dyn Fn(&mut Value) + 'a>;

/// `/dev` itself as a link, which means what it would mean inside. The runtime comes here before the hook,
/// and some links lead it astray; so the link is put there when it waits for the hook.
#[test]
#[ignore = "needs root: starts containers"]
fn the_images_dev_is_a_link() {
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
fn what_is_in_the_way() {
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
fn nodes_with_odd_names() {
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
fn more_nodes_than_any_host_has() {
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
fn binds_from_the_host() {
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
fn a_tmpfs_of_the_hosts_in_the_root_directory() {
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
fn a_tmpfs_of_another_container() {
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
fn a_container_in_the_hosts_place() {
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

/// A mount namespace that was there before the container, and is there after it: runc joins one.
#[test]
#[ignore = "needs root: starts containers"]
fn a_mount_namespace_that_is_joined() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let other = Halted::new(attacked(&host, Runtime::Runc));
    let container = attacked(&host, Runtime::Runc).tweak(|config| {
        let namespaces = config["linux"]["namespaces"].as_array_mut().expect("namespaces");
        let mount = namespaces.iter_mut().find(|namespace| namespace["type"] == "mount");
        mount.expect("a mount namespace")["path"] = json!(format!("/proc/{}/ns/mnt", other.pid()));
    });
    outside.attack(&container.build(), "joined").assert_refused("joins a mount namespace", "joined");
    assert_eq!(mounted_by_vgpu(other.pid()), [""; 0]);
}

/// Roots of other kinds, each with every kind of `/dev`.
#[test]
#[ignore = "needs root: starts containers"]
fn roots_of_other_kinds() {
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
fn an_images_dev_that_cannot_be_written() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    for mapped in [false, true] {
        let halted = Halted::new(attacked(&host, Runtime::Runc).mapped_if(mapped).tweak(without_dev));
        let refused = |what| {
            halted.attack(&outside, what, ()).assert_refused("mount a tmpfs at its /dev", what);
            halted.undo();
        };
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
fn immutable_mount_points() {
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

/// The same beneath the tmpfs that the runtime has copied the image's `/dev` into: nobody reaches that.
#[test]
#[ignore = "needs root: starts containers"]
fn names_that_are_swapped_where_nobody_looks() {
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
fn a_root_that_is_swapped_while_the_hook_runs() {
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
fn a_root_that_is_swapped_for_another_mount() {
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
fn a_root_that_is_another_one_on_the_host() {
    let host = Host::new(Cgroups::V1);
    let outside = Outside::new(&host);
    let halted = Halted::new(attacked(&host, Runtime::Runc));
    outside.mount(&["--bind", &outside.path("dev"), halted.root().to_str().expect("UTF-8")]);
    halted.attack(&outside, "covered", ()).assert_refused("is another directory", "covered");
}

/// Renames along the way make the kernel give up a look-up beneath a root: that means "again".
#[test]
#[ignore = "needs root: starts containers"]
fn directories_that_are_renamed_while_the_hook_runs() {
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
fn mount_points_that_are_removed_while_the_hook_runs() {
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

/// A host whose driver has sockets, configuration and nodes of graphics.
fn host_with_everything() -> Host {
    let host = Host::new(Cgroups::V1);
    driver::install_some(&host.driver_root(), DRIVER);
    host.load_graphics();
    host
}

/// A container that asks for all of these, and fails if it has other nodes of graphics than its GPU's: the host's
/// first, as long as nobody has anything.
fn attacked_with_everything(host: &Host, runtime: Runtime) -> Builder<'_> {
    let [card, render] = host.gpus[0].graphics().map(|(path, _)| path);
    let nodes = "$(for node in /dev/dri/*; do if [ -c $node ]; then echo $node; fi; done)";
    let look = format!("set -- {nodes}; [ \"$*\" = \"{card} {render}\" ] || exit 3; {LOOK}");
    attacked(host, runtime)
        .env("NVIDIA_DRIVER_CAPABILITIES", "utility,compute,graphics")
        .args(&["sh", "-c", &look])
}

/// What images and bundles can have at `/dev/dri`, where the nodes of graphics go.
#[test]
#[ignore = "needs root: starts containers"]
fn what_is_in_the_way_of_graphics() {
    type Make<'a> = Box<dyn Fn(&Path) + 'a>;
    let host = host_with_everything();
    let outside = Outside::new(&host);
    let (aim, neighbour) = (outside.path("dev"), host.gpus[1].graphics()[1].1.1);
    let card = host.gpus[0].graphics()[0].0.rsplit('/').next().expect("a name").to_owned();
    // Each node is one name more of the same file.
    let nodes = |count: u32| -> Make {
        Box::new(move |dri| {
            make_node(&dri.join("0"), DRM, neighbour);
            (1..count).for_each(|n| fs::hard_link(dri.join("0"), dri.join(n.to_string())).expect("link"));
        })
    };
    let in_place = |make: fn(&Path)| -> Make {
        Box::new(move |dri| {
            fs::remove_dir(dri).expect("a directory");
            make(dri);
        })
    };
    let at_card = |make: fn(&Path)| -> Make {
        let card = card.clone();
        Box::new(move |dri| make(&dri.join(&card)))
    };
    let cases: [(&str, Make, Option<&str>); 11] = [
        ("256 nodes", nodes(256), None),
        ("300 nodes", nodes(300), Some("more than 256 nodes")),
        (
            "a name of bytes",
            Box::new(|dri| make_node(&dri.join(OsStr::from_bytes(b"\xff\nvgpu: \x1b[31m")), DRM, neighbour)),
            Some("is not UTF-8"),
        ),
        ("a link to the host", Box::new(|dri| link(dri, &aim)), Some("/dev/dri is a symbolic link")),
        ("a link to /dev", Box::new(|dri| link(dri, ".")), Some("/dev/dri is a symbolic link")),
        ("a file", in_place(|dri| fs::write(dri, "").expect("a file")), Some("/dev/dri is in the way")),
        ("nothing", in_place(|_| ()), None),
        ("a watchdog as a card", at_card(|card| make_node(card, 10, 130)), None),
        ("a file as a card", at_card(|card| fs::write(card, "the image's").expect("a file")), None),
        ("a directory as a card", at_card(make_dir), Some("is in the way")),
        ("a link as a card", at_card(|card| link(card, "/dev/null")), Some("is a symbolic link")),
    ];
    for (n, (what, make, says)) in cases.iter().enumerate() {
        let runtime = RUNTIMES[n % 2];
        let furnish = |root: &Path| {
            make_dir(&root.join("dev/dri"));
            make(&root.join("dev/dri"));
        };
        let builder = attacked_with_everything(&host, runtime).furnish(furnish).tweak(without_dev);
        let outcome = outside.attack(&builder.build(), what);
        match says {
            Some(says) => outcome.assert_refused(says, what),
            None => assert_eq!(outcome, Outcome::Started, "{what}"),
        }
    }
    for source in ["dev", "tmpfs"] {
        for change in [with_dev, without_dev] {
            let volume = |config: &mut Value| bind(config, &outside.path(source), "/dev/dri", &[]);
            let container =
                attacked_with_everything(&host, Runtime::Runc).tweak(change).tweak(volume).build();
            outside.attack(&container, source).assert_refused("mounted at the container's /dev/dri", source);
        }
    }
}

/// Images that bring a `/proc` of their own, in a bundle that mounts none. What is at `/proc/driver/nvidia` then, if
/// it is a directory in the container, tells of the lease.
#[test]
#[ignore = "needs root: starts containers"]
fn the_images_own_proc() {
    let host = host_with_everything();
    let outside = Outside::new(&host);
    let (own, hosts) = (host.driver_root().join("proc"), outside.path("dev"));
    let (own, hosts_nvidia) = (own.to_str().expect("UTF-8"), format!("{hosts}/driver/nvidia"));
    make_dir(Path::new(&hosts_nvidia));
    // Where, and to what.
    type Link<'a> = Option<(&'a str, &'a str)>;
    // A directory of the image's, and a link.
    let cases: [(&str, Link, bool); 9] = [
        ("proc/driver/nvidia", None, true),
        ("opt/proc/driver/nvidia", Some(("proc", "/opt/proc")), true),
        ("opt/proc/driver/nvidia", Some(("proc", "../../../../../opt/proc")), true),
        ("opt/proc", Some(("proc", &hosts)), false),
        ("opt/proc", Some(("proc", own)), false),
        ("opt/proc", Some(("proc", "/bin/busybox")), false),
        ("proc", None, false),
        ("proc/driver", Some(("proc/driver/nvidia", &hosts_nvidia)), false),
        ("proc/driver", Some(("proc/driver/nvidia", "/opt")), false),
    ];
    for (dir, to, told) in cases {
        let furnish = |root: &Path| {
            make_dir(&root.join(dir));
            to.iter().for_each(|(at, target)| link(&root.join(at), target));
        };
        let without_proc =
            |config: &mut Value| mounts(config).retain(|mount| mount["destination"] != "/proc");
        let halted = Halted::new(attacked(&host, Runtime::Runc).furnish(furnish).tweak(without_proc));
        let what = format!("{dir} {to:?}");
        assert_eq!(halted.attack(&outside, &what, ()), Outcome::Started, "{what}");
        let root = halted.root().to_str().expect("UTF-8").to_owned();
        let list = halted.enter(&["chroot", &root, "/bin/find", "/proc/driver/nvidia/", "-type", "f"]).stdout;
        assert_eq!(list.contains("/params"), told, "{what}: {list}");
        assert_eq!(list.matches("/information").count(), usize::from(told), "{what}: {list}");
    }
}

/// A name of a root file system, and a link to the host that takes its place.
struct Swap {
    name: PathBuf,
    evil: PathBuf,
}

impl Swap {
    fn new(halted: &Halted, outside: &Outside, name: &str) -> Self {
        let evil = halted.bundle().join(name.replace('/', "-"));
        let name = halted.root().join(name);
        link(&evil, &outside.path(if name.is_dir() { "dev" } else { "file" }));
        Self { name, evil }
    }

    /// Done again, it is undone.
    fn exchange(&self) {
        renameat_with(CWD, &self.name, CWD, &self.evil, RenameFlags::EXCHANGE).expect("exchange");
    }
}

/// On the way to what has a place of its own, directories and names become links to the host, once, at every step of
/// the hook: nothing of the host is touched, and no container starts with something else than its own.
#[test]
#[ignore = "needs root: starts containers"]
fn ways_that_are_swapped_at_every_step() {
    const CALLS: [&str; 5] = ["openat2", "mkdirat", "mknodat", "symlinkat", "move_mount"];
    let host = host_with_everything();
    let outside = Outside::new(&host);
    let halted = Halted::new(attacked_with_everything(&host, Runtime::Runc).tweak(without_dev));
    let (proc, driver) = (halted.root().join("proc/driver"), host.driver_root().join("proc/driver"));
    let [proc, driver] = [&proc, &driver].map(|path| path.to_str().expect("UTF-8"));
    halted.enter(&["mount", "--bind", driver, proc]).ok();

    let (socket, icd) = ("run/nvidia-persistenced/socket", "etc/OpenCL/vendors/nvidia.icd");
    let card = host.gpus[0].graphics()[0].0[1..].to_owned();
    let socket_in = |root: &Path| {
        let path = root.join(socket);
        let stat = ["stat", "--dereference", "--format=%d:%i", path.to_str().expect("UTF-8")];
        halted.enter(&stat).ok().stdout
    };
    let own = socket_in(&host.driver_root());
    let sets = [
        ["run/nvidia-persistenced", "etc/OpenCL/vendors", "dev/dri"],
        ["run", "etc/OpenCL", "proc"],
        [socket, icd, &card],
    ];
    for set in sets {
        // Every name must be there to be exchanged, and the link is to be made each time.
        let undo = || {
            halted.undo();
            if !set.contains(&icd) {
                let _ = fs::remove_file(halted.root().join(icd));
            }
        };
        assert_eq!(halted.attack(&outside, "first", ()), Outcome::Started);
        undo();
        let swaps = set.map(|name| Swap::new(&halted, &outside, name));
        let exchange = || swaps.iter().for_each(Swap::exchange);
        let counts = halted.count(&CALLS);
        undo();
        for (call, count) in CALLS.into_iter().zip(&counts) {
            for nth in 1..=*count {
                let before = outside.world();
                let output = halted.hook_stopped_after(call, nth, exchange);
                let what = format!("{set:?} after {call} {nth}");
                outside.assert_is(&before, &what);
                exchange();
                match halted.judge(&output) {
                    // The hook had looked for the last time.
                    Outcome::Started => assert_eq!(socket_in(halted.root()), own, "{what}"),
                    Outcome::Refused(line) => assert!(line.contains("the container's "), "{what}: {line}"),
                    Outcome::NotReached => unreachable!("the hook was called by hand"),
                }
                undo();
            }
        }
    }
    let mounts = halted.count(&["move_mount"])[0];
    halted.undo();
    for name in ["run/nvidia-persistenced", socket, "dev/dri", &card] {
        let swap = Swap::new(&halted, &outside, name);
        let output = halted.hook_stopped_after("move_mount", mounts, || swap.exchange());
        let Outcome::Refused(line) = halted.judge(&output) else { panic!("{name}: {output}") };
        assert!(line.contains("nobody else may change its files while it starts"), "{name}: {line}");
        swap.exchange();
        halted.undo();
    }
}
