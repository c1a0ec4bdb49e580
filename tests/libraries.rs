//! The driver's files in a container: those of its capabilities, the host's very files, where CUDA images look for
//! them; and nothing else of the host, whatever the image has in their place.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use common::attack::{Outcome, Outside, attacked};
use common::container::{Builder, Container};
use common::driver;
use common::halted::{Halted, mounted_by_vgpu};
use common::host::{DRIVER, Host, make_dir};
use common::leases::{assert_refused, one_vgpu};
use common::parked::Lot;
use common::runtime::{Runtime, WITH_BUNDLE};
use common::snapshot::Snapshot;
use common::view::Cgroups;
use serde_json::{Value, json};
use vgpu::driver::{Grant, Kind, find};
use vgpu::gpu::DriverRoot;

const PLACE: &str = "/usr/local/nvidia";

/// Lists what is in the container: each file with what it is, each link with its target; then the mount table.
const LOOK: &str = "cd /usr/local/nvidia && find * -type f -exec stat -c 'file %n %d:%i' {} + && \
     find * -type l -exec stat -c 'link %N' {} + && find * -type d -exec stat -c 'dir %n %a %u' {} + && \
     sed 's/^/mount /' /proc/self/mountinfo";

/// A host whose driver has all its files.
fn host(cgroups: Cgroups) -> Host {
    let host = Host::new(cgroups);
    driver::install_all(&host.driver_root(), DRIVER);
    host
}

fn asking(host: &Host, runtime: Runtime) -> Builder<'_> {
    host.container(runtime).annotation("vgpu.count", "1").args(&["sh", "-c", LOOK])
}

/// What is where below `/usr/local/nvidia`: a file's device and inode, or a link's target.
type Files = BTreeMap<String, String>;

/// What a container with these capabilities must have, and nothing else.
fn expected(host: &Host, version: &str, capabilities: &str) -> Files {
    let root = DriverRoot::open(&host.driver_root()).expect("the driver's root");
    let found = find(&root, version, Grant::default().asked(Some(capabilities)).expect("capabilities"));
    let mut files = Files::from([("lib".to_owned(), "lib64".to_owned())]);
    for file in found.expect("the driver's files").files {
        let dir = match file.kind {
            Kind::Library => "lib64",
            Kind::Library32 => "lib32",
            Kind::Binary => "bin",
            Kind::Config => "share",
            Kind::Socket => continue,
        };
        let meta = fs::metadata(host.driver_root().join(&file.path)).expect("metadata");
        files.insert(format!("{dir}/{}", file.names[0]), format!("{}:{}", meta.dev(), meta.ino()));
        for link in &file.names[1..] {
            files.insert(format!("{dir}/{link}"), file.names[0].clone());
        }
    }
    files
}

/// Reads what [`LOOK`] printed. Every mount is read-only and private, and there is one for each file.
fn parse(looked: &str) -> Files {
    let mut files = Files::new();
    let mut mounts = Vec::new();
    for line in looked.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        match kind {
            "file" => files.extend(rest.split_once(' ').map(|(name, id)| (name.to_owned(), id.to_owned()))),
            "link" => {
                let (name, target) = rest.split_once(" -> ").expect("a link");
                files.insert(name.trim_matches('\'').to_owned(), target.trim_matches('\'').to_owned());
            }
            "dir" => assert!(rest.ends_with(" 755 0"), "{rest}"),
            _ => mounts.extend(mount(rest)),
        }
    }
    mounts.sort();
    let bound = files.iter().filter(|(_, id)| id.contains(':')).map(|(name, _)| format!("{PLACE}/{name}"));
    let mut all: Vec<String> = bound.chain([PLACE.to_owned()]).collect();
    all.sort();
    assert_eq!(mounts, all);
    files
}

/// The place of a mount at or below `/usr/local/nvidia`.
fn mount(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let (at, options) = (words[4], words[5]);
    let ours = at.starts_with(PLACE);
    if ours {
        for option in ["ro", "nosuid", "nodev"] {
            assert!(options.split(',').any(|word| word == option), "{line}");
        }
        assert_eq!(options.contains("noexec"), at == PLACE, "{line}");
        assert_eq!(words[6], "-", "it is not private: {line}");
    }
    ours.then(|| at.to_owned())
}

#[track_caller]
fn assert_has(container: &Container, version: &str, capabilities: &str) {
    let output = container.run().ok();
    let expected = expected(container.host(), version, capabilities);
    assert_eq!(parse(&output.stdout), expected, "{}: {capabilities}", container.id());
}

on_every_runtime! {
    fn a_container_has_the_default_set(cgroups, runtime) {
        let host = host(cgroups);
        let mounts = host.view().mounts();
        for mapped in [false, true] {
            let container = asking(&host, runtime).mapped_if(mapped).build();
            assert_has(&container, DRIVER, "utility,compute");
            container.delete_force();
        }
        assert_eq!(host.view().mounts(), mounts);
    }
}

/// On an overlay and on a plain directory, exactly what each capability stands for.
#[test]
#[ignore = "needs root: starts containers"]
fn each_capability_has_exactly_its_list() {
    let host = host(Cgroups::V1);
    let capabilities =
        ["", "utility", "compute", "video", "graphics", "display", "ngx", "utility,compat32", "all"];
    for (n, capabilities) in capabilities.iter().enumerate() {
        for (runtime, overlay) in [(Runtime::Runc, n % 2 == 0), (Runtime::Crun, n % 2 == 1)] {
            let builder = asking(&host, runtime).env("NVIDIA_DRIVER_CAPABILITIES", capabilities);
            let builder = if overlay { builder.overlay().read_only() } else { builder };
            assert_has(&builder.build(), DRIVER, capabilities);
        }
    }
}

/// The driver of the default host has no file for this: there is no empty place for it, either.
#[test]
#[ignore = "needs root: starts containers"]
fn without_files_there_is_no_place_for_them() {
    let host = Host::new(Cgroups::V1);
    for runtime in [Runtime::Runc, Runtime::Crun] {
        let container = asking(&host, runtime)
            .env("NVIDIA_DRIVER_CAPABILITIES", "ngx")
            .args(&["test", "!", "-e", "/usr/local"])
            .build();
        container.run().ok();
    }
}

/// By any usual PATH, by the names that programs open, and as any user.
#[test]
#[ignore = "needs root: starts containers"]
fn programs_find_them_by_name() {
    for (cgroups, runtime) in WITH_BUNDLE {
        let host = host(cgroups);
        let look = "umask 777; nvidia-smi && for dir in lib lib64; do for name in libcuda.so.1 libcuda.so; do \
             cat /usr/local/nvidia/$dir/$name | head -c 4 | sed 's/^.//'; echo; done; done";
        let container = asking(&host, runtime)
            .args(&["sh", "-c", look])
            .tweak(|config| config["process"]["user"] = json!({ "uid": 1000, "gid": 1000 }))
            .build();
        let expected = format!("nvidia-smi {DRIVER}\nELF\nELF\nELF\nELF\n");
        assert_eq!(container.run().ok().stdout, expected, "{runtime:?}");
    }
}

/// A hook that is called with a narrow umask makes directories that everybody may enter.
#[test]
#[ignore = "needs root: starts containers"]
fn the_callers_umask_means_nothing() {
    let host = host(Cgroups::V1);
    let narrow = ["/bin/sh", "-c", "umask 777; exec \"$@\"", "sh"];
    let container = asking(&host, Runtime::Runc).hooks_under(&narrow).build();
    assert_has(&container, DRIVER, "");
    for dir in ["usr/local", "usr/local/nvidia", "run/nvidia-persistenced", "etc/OpenCL"] {
        let mode = fs::metadata(container.root().join(dir)).expect("metadata").mode();
        assert_eq!(mode & 0o7777, 0o755, "{dir}");
    }
}

#[test]
#[ignore = "needs root: starts containers"]
fn what_cannot_be_given_is_refused_before_a_lease() {
    let host = host(Cgroups::V1);
    let refuse = |capabilities: &str, code: i32, says: &str| {
        for runtime in [Runtime::Runc, Runtime::Crun] {
            let container =
                asking(&host, runtime).recorded().env("NVIDIA_DRIVER_CAPABILITIES", capabilities).build();
            container.run().fails();
            assert_eq!(container.hook_codes("createRuntime"), [code]);
            let stderr = container.hook_stderr("createRuntime");
            assert!(stderr.contains(says) && stderr.lines().count() == 1, "{stderr}");
            assert_eq!(host.status()["leases"], json!([]));
            assert!(!container.root().join("usr/local").exists());
        }
    };
    refuse(
        "compute,cuda",
        65,
        "NVIDIA_DRIVER_CAPABILITIES has the word \"cuda\"; it takes utility, compute,",
    );
    let library = format!("libcuda.so.{DRIVER}");
    fs::remove_file(host.driver_root().join(driver::LIBRARIES).join(&library)).expect("removing");
    refuse("compute", 69, &format!("capability compute needs {library}: it is not in "));
    assert_has(
        &asking(&host, Runtime::Runc).env("NVIDIA_DRIVER_CAPABILITIES", "utility").build(),
        DRIVER,
        "utility",
    );
}

/// Each word that the pool file allows, and `all` as far as it allows that.
#[test]
#[ignore = "needs root: starts containers"]
fn the_pool_file_caps_and_sets_the_default() {
    let host = host(Cgroups::V1);
    let pool = "[driver]\ncapabilities = \"utility\"\nallow = \"utility,video\"\n";
    host.write_pool(&format!("{pool}{}", one_vgpu(&host.gpus[0])));
    let with = |value: Option<&str>| {
        let builder = asking(&host, Runtime::Crun).recorded();
        value
            .into_iter()
            .fold(builder, |builder, value| builder.env("NVIDIA_DRIVER_CAPABILITIES", value))
            .build()
    };
    for (value, has) in
        [(None, "utility"), (Some("compute"), "compute"), (Some("all"), "utility,compute,video")]
    {
        assert_has(&with(value), DRIVER, has);
    }
    let line = "vgpu: the container needs the driver for graphics (NVIDIA_DRIVER_CAPABILITIES), and this host allows \
                utility,compute,video (allow in [driver] of pool.toml); ask for less, or for all, which is all that is \
                allowed\n";
    assert_eq!(assert_refused(&with(Some("utility,graphics")), 65), line);
}

/// What is missing and not needed is a line each in the log, where the pool file wants it; and nowhere else.
#[test]
#[ignore = "needs root: starts containers"]
fn optional_files_that_are_missing_are_noted() {
    let host = host(Cgroups::V1);
    let missing = ["libnvidia-cfg.so", "libnvidia-nscq.so"].map(|name| format!("{name}.{DRIVER}"));
    for name in &missing {
        fs::remove_file(host.driver_root().join(driver::LIBRARIES).join(name)).expect("removing");
    }
    let start = || {
        let container =
            asking(&host, Runtime::Runc).recorded().env("NVIDIA_DRIVER_CAPABILITIES", "utility").build();
        container.run().ok();
        assert_eq!(container.hook_stderr("createRuntime"), "");
        container.id().to_owned()
    };
    start();
    assert!(!host.state_dir().join("log").exists());
    host.write_pool(&format!("debug = true\n{}", one_vgpu(&host.gpus[0])));
    let id = start();
    let noted = host.vgpu(&["why", &id]).ok().stdout;
    let expected = missing.map(|name| format!("{id} 0 {name} is not there"));
    let said = noted.lines().map(|line| line.split_once(' ').expect("a time").1);
    assert_eq!(said.collect::<Vec<_>>(), expected);
}

/// Between two starts on one root file system the driver is replaced: nothing of the old one is left (R10).
#[test]
#[ignore = "needs root: starts containers"]
fn r10_a_driver_upgrade_leaves_nothing_of_the_old_version() {
    for (runtime, overlay) in [(Runtime::Runc, false), (Runtime::Crun, true)] {
        let host = host(Cgroups::V1);
        let first = asking(&host, runtime);
        let first = if overlay { first.overlay() } else { first }.build();
        assert_has(&first, DRIVER, "");
        let root = host.view().path(first.root());
        let left = Snapshot::of(&root.join("usr"));
        host.upgrade_driver("560.35.03");
        assert_has(&asking(&host, runtime).on_root(first.root()).build(), "560.35.03", "");
        assert_eq!(Snapshot::of(&root.join("usr")).new_since(&left), [""; 0].map(Path::new));
        assert_eq!(fs::read_dir(root.join("usr/local/nvidia")).expect("a directory").count(), 0);
    }
}

/// A hook may be listed twice.
#[test]
#[ignore = "needs root: makes cgroups and mounts"]
fn a_second_call_changes_nothing() {
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        let host = host(cgroups);
        let parked = Lot::new(&host, 1).park("twice");
        let call = || {
            host.run_hook("createRuntime", &parked.created()).ok();
            mounted_by_vgpu(parked.pid())
        };
        let mounts = call();
        assert!(mounts.iter().any(|line| line.contains("/usr/local/nvidia/lib64/libcuda.so.")), "{mounts:?}");
        assert_eq!(call(), mounts);
    }
}

fn bind(config: &mut Value, source: &str, destination: &str) {
    let mount = json!({ "type": "bind", "source": source, "destination": destination, "options": ["rbind"] });
    config["mounts"].as_array_mut().expect("mounts").push(mount);
}

/// What images and bundles can have at `/usr/local/nvidia`, or on the way there.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_nothing_leads_out_of_the_root() {
    type Change<'a> = Box<dyn Fn(&mut Value) + 'a>;
    type Furnish<'a> = Box<dyn Fn(&Path) + 'a>;
    let host = host(Cgroups::V1);
    let outside = Outside::new(&host);
    let link = |at: &'static str, target: &str| -> Furnish {
        let target = target.to_owned();
        Box::new(move |root| {
            make_dir(root.join(at).parent().expect("a parent"));
            make_dir(&root.join("opt/place"));
            symlink(&target, root.join(at)).expect("a link");
        })
    };
    let plain = || -> Furnish { Box::new(|_| {}) };
    let same = || -> Change { Box::new(|_| {}) };
    let volume = |source: &'static str, at: &'static str| -> Change {
        let source = outside.path(source);
        Box::new(move |config| bind(config, &source, at))
    };
    let own = |at: &'static str| -> Change {
        let mount = json!({ "type": "tmpfs", "source": "tmpfs", "destination": at, "options": ["mode=755"] });
        Box::new(move |config| config["mounts"].as_array_mut().expect("mounts").push(mount.clone()))
    };
    let (up, there) = (format!("{}{}", "../".repeat(40), outside.path("vgpu")), outside.path("vgpu"));
    let file: Furnish = Box::new(|root| {
        make_dir(&root.join("usr/local"));
        fs::write(root.join("usr/local/nvidia"), "the image's").expect("a file");
    });
    let cases: [(&str, Furnish, Change, Option<&str>); 15] = [
        ("/usr/local leads elsewhere in the image", link("usr/local", "/opt/place"), same(), None),
        ("/usr/local leads to the host", link("usr/local", &there), same(), Some("cannot open")),
        ("/usr/local leads up to the host", link("usr/local", &up), same(), Some("cannot open")),
        ("/usr/local leads into /proc", link("usr/local", "/proc/1/root/etc"), same(), Some("cannot open")),
        ("/usr/local leads to itself", link("usr/local", "local"), same(), Some("cannot open")),
        (
            "the place leads elsewhere",
            link("usr/local/nvidia", "/opt/place"),
            same(),
            Some("a symbolic link"),
        ),
        ("the place leads to the host", link("usr/local/nvidia", &there), same(), Some("a symbolic link")),
        ("the place is a file", file, same(), Some("is in the way")),
        ("the host at /usr", plain(), volume("vgpu", "/usr"), Some("/usr is mounted from the host")),
        ("the host at /usr/local", plain(), volume("vgpu", "/usr/local"), Some("/usr/local is mounted from")),
        ("a tmpfs of the host's", plain(), volume("tmpfs", "/usr/local"), Some("/usr/local is mounted from")),
        ("the host at the place", plain(), volume("vgpu", PLACE), Some("is mounted at")),
        ("the runtime's tmpfs at the place", plain(), own(PLACE), Some("is mounted at")),
        ("the runtime's tmpfs at /usr/local", plain(), own("/usr/local"), None),
        ("the runtime's tmpfs at /usr", plain(), own("/usr"), None),
    ];
    for (what, furnish, change, says) in cases {
        for runtime in [Runtime::Runc, Runtime::Crun] {
            let what = format!("{runtime:?}: {what}");
            let container = attacked(&host, runtime).furnish(&furnish).tweak(&change).build();
            let outcome = outside.attack(&container, &what);
            match says {
                Some(says) => outcome.assert_refused(says, &what),
                None => assert_eq!(outcome, Outcome::Started, "{what}"),
            }
        }
    }
}

/// A root file system that takes no directory, with and without the place in it.
#[test]
#[ignore = "needs root: starts containers"]
fn a_read_only_file_system_needs_the_place_in_it() {
    let host = host(Cgroups::V1);
    let outside = Outside::new(&host);
    for there in [false, true] {
        let container = attacked(&host, Runtime::Runc)
            .furnish(|root| {
                if there {
                    make_dir(&root.join(&PLACE[1..]));
                    driver::make_places(root);
                }
                let root = root.to_str().expect("UTF-8");
                outside.mount(&["--bind", root, root]);
                outside.mount(&["-o", "remount,bind,ro", root]);
            })
            .build();
        let outcome = outside.attack(&container, "a read-only file system");
        if there {
            assert_eq!(outcome, Outcome::Started);
        } else {
            outcome.assert_refused("make an empty directory /usr/local/nvidia in the image", "read-only");
        }
    }
}

/// What another container on the same root file system takes away meanwhile is missed.
#[test]
#[ignore = "needs root: starts containers"]
fn a_place_that_is_moved_away_is_missed() {
    let host = host(Cgroups::V1);
    let halted = Halted::new(attacked(&host, Runtime::Runc));
    halted.hook().ok();
    let local = halted.root().join("usr/local");
    fs::rename(&local, halted.root().join("usr/moved")).expect("rename");
    let output = halted.hook();
    assert_eq!(output.code, Some(65), "{output}");
    assert!(output.stderr.contains("is gone again"), "{output}");
}
