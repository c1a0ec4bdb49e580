//! Programs find the driver by name, through the container's own linker cache, and all that they found before; nothing
//! of it is left for a container without a lease.
//!
//! The images are made of this machine's loader and C library, with a cache made by its `ldconfig`.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::attack::{Outcome, Outside, attacked};
use common::container::{Builder, Container};
use common::driver::install_all;
use common::halted::Halted;
use common::host::{DRIVER, Host, make_dir};
use common::image::furnish;
use common::library::{Machine, shared_object};
use common::runtime::Runtime;
use common::snapshot::Snapshot;
use common::view::{Cgroups, script};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::{Value, json};

/// Where distributions have their libraries.
const DEBIAN: &str = "usr/lib/x86_64-linux-gnu";
const FEDORA: &str = "usr/lib64";

const CACHE: &str = "etc/ld.so.cache";
const DROP_IN: &str = "etc/ld.so.conf.d/00-vgpu.conf";

/// What programs ask for: three names of the driver's, of which the image has a stub of the first, and two of the image.
const NAMES: [&str; 5] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libown.so.1", "libc.so.6"];

/// What is found in an image whose libraries are there, with the driver and without.
fn finds(libraries: &str, driver: bool) -> String {
    let line = |name: &&str| {
        let path = match *name {
            "libown.so.1" | "libc.so.6" => format!("/{libraries}/{name}"),
            _ if driver => format!("/usr/local/nvidia/lib64/{name}"),
            "libcuda.so.1" => format!("/{libraries}/{name}"),
            _ => "not found".to_owned(),
        };
        format!("{name} {path}\n")
    };
    NAMES.iter().map(line).collect()
}

/// A host whose driver has all its files.
fn host(cgroups: Cgroups) -> Host {
    let host = Host::new(cgroups);
    install_all(&host.driver_root(), DRIVER);
    host
}

/// Where musl looks for libraries, as far as an image says.
const MUSL_PATH: &str = "etc/ld-musl-x86_64.path";

/// Puts musl's loader and a program into a busybox tree, as Alpine has them.
fn furnish_musl(host: &Host, root: &Path) {
    let (loader, look) = (root.join("lib/ld-musl-x86_64.so.1"), root.join("bin/look"));
    make_dir(&root.join("lib"));
    let copy = |from: &str, to: &Path| host.view().run(&["cp", "-L", from, to.to_str().expect("UTF-8")]).ok();
    copy("/lib/ld-musl-x86_64.so.1", &loader);
    let source = script("look.c");
    host.view().run(&["musl-gcc", "-o", look.to_str().expect("UTF-8"), source.to_str().expect("UTF-8")]).ok();
    for name in ["libcuda.so.1", "libown.so.1"] {
        let object = shared_object(Machine::X86_64, name.as_bytes());
        fs::write(root.join("usr/lib").join(name), object).expect("a library");
    }
}

/// What programs ask for there: musl's C library is its loader, and it knows a file by the first name it had.
const OF_MUSL: [&str; 3] = ["libcuda.so.1", "libnvidia-ml.so.1", "libown.so.1"];

fn finds_on_musl(driver: bool) -> String {
    let of_musl = |line: &&str| OF_MUSL.iter().any(|name| line.starts_with(&format!("{name} ")));
    finds("usr/lib", driver).lines().filter(of_musl).map(|line| format!("{line}\n")).collect()
}

/// musl has no cache, but a file of directories. With and without one in the image.
#[test]
#[ignore = "needs root: starts containers"]
fn a_musl_image_finds_the_driver_by_name() {
    let host = host(Cgroups::V1);
    let look = [&["look"], &OF_MUSL[..]].concat();
    for (n, path) in [None, Some("/usr/lib\n"), Some("/lib:/usr/lib")].into_iter().enumerate() {
        for (runtime, overlay) in [(Runtime::Runc, n % 2 == 0), (Runtime::Crun, n % 2 == 1)] {
            let before = host.container(runtime).args(&look).mapped_if(overlay).furnish(|root| {
                furnish_musl(&host, root);
                if let Some(path) = path {
                    fs::write(root.join(MUSL_PATH), path).expect("a search path");
                }
            });
            let before = if overlay { before.overlay() } else { before }.build();
            assert_eq!(before.run().ok().stdout, finds_on_musl(false));
            let again = || host.container(runtime).on_root(before.root()).mapped_if(overlay).args(&look);
            assert_eq!(asking(again()).build().run().ok().stdout, finds_on_musl(true), "{path:?}");
            let left = read(&before, MUSL_PATH);
            assert_eq!(again().build().run().ok().stdout, finds_on_musl(false), "{path:?}");
            assert_eq!(asking(again()).build().run().ok().stdout, finds_on_musl(true), "{path:?}");
            assert_eq!(read(&before, MUSL_PATH), left, "{path:?}");
            if !overlay {
                assert_eq!(left, path.unwrap_or("/lib:/usr/local/lib:/usr/lib\n").as_bytes());
            }
        }
    }
}

/// What images can have in the place of musl's search path: nothing of the host is changed or opened.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_what_is_no_search_path_is_left_alone() {
    let host = host(Cgroups::V1);
    let outside = Outside::new(&host);
    let target = outside.path("file");
    type Make<'a> = Box<dyn Fn(&Path) + 'a>;
    let things: [(&str, Make); 4] = [
        (
            "a FIFO",
            Box::new(|at| mknodat(CWD, at, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("mknod")),
        ),
        ("a directory", Box::new(make_dir)),
        ("a link to the host", Box::new(move |at| symlink(&target, at).expect("a link"))),
        ("too long", Box::new(|at| fs::write(at, "/x\n".repeat(30_000)).expect("a file"))),
    ];
    for (n, (thing, make)) in things.iter().enumerate() {
        let builder = attacked(&host, [Runtime::Runc, Runtime::Crun][n % 2]);
        let builder = if n % 3 == 0 { builder.overlay() } else { builder };
        let furnish = |root: &Path| {
            furnish_musl(&host, root);
            make(&root.join(MUSL_PATH));
        };
        let container = builder.furnish(furnish).build();
        assert_eq!(outside.attack(&container, thing), Outcome::Started, "{thing}");
    }
}

fn image<'h>(host: &'h Host, runtime: Runtime, libraries: &'static str) -> Builder<'h> {
    host.container(runtime).furnish(move |root| furnish(host, root, libraries)).args(&look())
}

fn look() -> Vec<&'static str> {
    [&["look"], &NAMES[..]].concat()
}

fn asking(builder: Builder<'_>) -> Builder<'_> {
    builder.annotation("vgpu.count", "1").env("NVIDIA_DRIVER_CAPABILITIES", "all")
}

/// What tells an image's linker where libraries are.
fn linker_files(root: &Path) -> [Snapshot; 2] {
    [CACHE, "etc/ld.so.conf.d"].map(|path| Snapshot::of(&root.join(path)))
}

fn read(container: &Container, path: &str) -> Vec<u8> {
    fs::read(container.host().view().path(container.root()).join(path)).expect("a file of the root")
}

on_every_runtime! {
    /// On a plain directory: it is what it was, the next container without a lease finds what it found.
    fn the_driver_is_found_by_name(cgroups, runtime) {
        let host = host(cgroups);
        for (libraries, mapped) in [(DEBIAN, false), (FEDORA, true)] {
            let before = image(&host, runtime, libraries).mapped_if(mapped).build();
            assert_eq!(before.run().ok().stdout, finds(libraries, false));
            let again = || host.container(runtime).on_root(before.root()).mapped_if(mapped).args(&look());
            let (leased, after) = (asking(again()).build(), again().build());
            let etc = linker_files(before.root());
            assert_eq!(leased.run().ok().stdout, finds(libraries, true));
            assert_eq!(after.run().ok().stdout, finds(libraries, false));
            assert_eq!(linker_files(before.root()), etc);
        }
    }
}

/// On an overlay a driver of another version takes the old one's place; `ldconfig` works inside, and knows it.
#[test]
#[ignore = "needs root: starts containers"]
fn on_a_layer_of_its_own_ldconfig_goes_on_working() {
    for (n, runtime) in [Runtime::Runc, Runtime::Crun, Runtime::PodmanCrun].into_iter().enumerate() {
        let host = host(Cgroups::V1);
        let libraries = [DEBIAN, FEDORA][n % 2];
        let first = asking(image(&host, runtime, libraries)).mapped_if(n == 1).overlay().build();
        assert_eq!(first.run().ok().stdout, finds(libraries, true), "{runtime:?}");
        let root = host.view().path(first.root());
        assert_eq!(
            fs::read_to_string(root.join(DROP_IN)).expect("the drop-in"),
            "/usr/local/nvidia/lib64\n/usr/local/nvidia/lib32\n"
        );
        let left = Snapshot::of(&root.join("etc"));

        host.upgrade_driver("560.35.03");
        let again = || asking(host.container(runtime).on_root(first.root()).mapped_if(n == 1));
        assert_eq!(again().args(&look()).build().run().ok().stdout, finds(libraries, true), "{runtime:?}");
        assert_eq!(Snapshot::of(&root.join("etc")).new_since(&left), [""; 0].map(Path::new));
        let (cache, old) = (read(&first, CACHE), b".550.54.15");
        assert!(!cache.windows(old.len()).any(|bytes| bytes == old), "entries of the old driver are left");

        let ldconfig = format!("ldconfig && look {}", NAMES.join(" "));
        let container = again().args(&["sh", "-c", &ldconfig]).build();
        assert_eq!(container.run().ok().stdout, finds(libraries, true), "{runtime:?}");
    }
}

/// A root that is to be read-only stays as it is, whatever could be written to at the time.
#[test]
#[ignore = "needs root: starts containers"]
fn a_read_only_overlay_stays_as_it_is() {
    let host = host(Cgroups::V1);
    for runtime in [Runtime::Runc, Runtime::Crun] {
        let container = asking(image(&host, runtime, DEBIAN)).overlay().read_only().build();
        let etc = || linker_files(&host.view().path(container.root()));
        let before = etc();
        assert_eq!(container.run().ok().stdout, finds(DEBIAN, true), "{runtime:?}");
        assert_eq!(etc(), before);
    }
}

/// What is mounted over a plain root's cache cannot be written to, and is not what the next container has.
#[test]
#[ignore = "needs root: starts containers"]
fn the_cache_of_a_plain_root_cannot_be_changed_inside() {
    let host = host(Cgroups::V1);
    let change = "if echo x >/etc/ld.so.cache; then exit 1; fi; if rm /etc/ld.so.cache; then exit 2; fi";
    let container = asking(image(&host, Runtime::Runc, DEBIAN)).args(&["sh", "-c", change]).build();
    container.run().ok();
}

/// A cache that loaders do without is replaced by one of the driver alone; the libraries of the image are found
/// where loaders look without a cache.
#[test]
#[ignore = "needs root: starts containers"]
fn a_damaged_cache_is_as_good_as_none() {
    let host = host(Cgroups::V1);
    for (n, damage) in [&b"no cache at all"[..], b"", b"glibc-ld.so.cache1.1\0\0"].into_iter().enumerate() {
        let container = asking(image(&host, [Runtime::Runc, Runtime::Crun][n % 2], DEBIAN))
            .furnish(|root| fs::write(root.join(CACHE), damage).expect("a damaged cache"))
            .build();
        assert_eq!(container.run().ok().stdout, finds(DEBIAN, true), "{damage:?}");
        assert_eq!(read(&container, CACHE), damage);
    }
}

/// What images and bundles can have in the place of the cache: nothing of the host is changed or opened, and what is
/// no cache stays.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_what_is_no_cache_is_left_alone() {
    type Make<'a> = Box<dyn Fn(&Path) + 'a>;
    let host = host(Cgroups::V1);
    let outside = Outside::new(&host);
    let special = |kind, device| -> Make {
        Box::new(move |at| mknodat(CWD, at, kind, Mode::from_raw_mode(0o666), device).expect("mknod"))
    };
    let target = outside.path("file");
    // A watchdog (10:130) would go off if it were opened.
    let things: [(&str, Make); 6] = [
        ("a FIFO", special(FileType::Fifo, 0)),
        ("a watchdog", special(FileType::CharacterDevice, makedev(10, 130))),
        ("a directory", Box::new(make_dir)),
        ("a link to the host", Box::new(move |at| symlink(&target, at).expect("a link"))),
        ("a link to itself", Box::new(|at| symlink("ld.so.cache", at).expect("a link"))),
        ("nothing", Box::new(|_| {})),
    ];
    for (n, (thing, make)) in things.iter().enumerate() {
        let builder = attacked(&host, [Runtime::Runc, Runtime::Crun][n % 2]);
        let builder = if n % 3 == 0 { builder.overlay() } else { builder };
        let container = builder.furnish(|root| make(&root.join(CACHE))).build();
        assert_eq!(outside.attack(&container, thing), Outcome::Started, "{thing}");
        assert!(!host.view().path(container.root()).join(DROP_IN).exists(), "{thing}");
    }
    let container = attacked(&host, Runtime::Runc).overlay().furnish(|root| {
        furnish(&host, root, DEBIAN);
        make_dir(&root.join(DROP_IN));
    });
    let what = "a directory in the place of the drop-in";
    outside.attack(&container.build(), what).assert_refused("00-vgpu.conf: Is a directory", what);
    let odd = ["", "-1", "0", "1", "4294967295", "x"].map(|end| format!("etc/.ld.so.cache.vgpu.{end}"));
    let furnish = |root: &Path| {
        furnish(&host, root, DEBIAN);
        odd.iter().for_each(|name| fs::write(root.join(name), "").expect("a file"));
    };
    let container = attacked(&host, Runtime::Runc).overlay().furnish(furnish).build();
    assert_eq!(outside.attack(&container, "names that no dead process has"), Outcome::Started);
    assert!(odd.iter().all(|name| host.view().path(container.root()).join(name).exists()));
    let cache = |root: &Path| fs::write(root.join(CACHE), "").expect("a cache");
    for (source, at, says) in [
        ("vgpu", "/etc", "/etc is mounted from the host"),
        ("file", "/etc/ld.so.cache", "something is mounted at the container's /etc/ld.so.cache"),
    ] {
        fs::write(outside.path("vgpu/ld.so.cache"), "the host's").expect("a cache");
        let bind = |config: &mut Value| {
            let mount = json!({ "type": "bind", "source": outside.path(source), "destination": at, "options": ["rbind"] });
            config["mounts"].as_array_mut().expect("mounts").push(mount);
        };
        let container = attacked(&host, Runtime::Runc).furnish(cache).tweak(bind).build();
        outside.attack(&container, at).assert_refused(says, at);
    }
}

/// Somebody else on the same root can make whoever opens a file wait (fcntl(2), F_SETLEASE): the hook does not.
#[test]
#[ignore = "needs root: starts containers"]
fn a_file_that_somebody_writes_is_not_waited_for() {
    let host = host(Cgroups::V1);
    let outside = Outside::new(&host);
    let (lease, source) = (host.dir().join("lease"), script("lease.c"));
    let lease = lease.to_str().expect("UTF-8");
    host.view().run(&["gcc", "-o", lease, source.to_str().expect("UTF-8")]).ok();
    let halted = Halted::new(attacked(&host, Runtime::Runc).furnish(|root| {
        furnish(&host, root, DEBIAN);
        furnish_musl(&host, root);
        fs::write(root.join(MUSL_PATH), "/usr/lib\n").expect("a search path");
    }));
    for path in [CACHE, MUSL_PATH] {
        let file = halted.root().join(path);
        let holder = host.view().start(&[lease, file.to_str().expect("UTF-8")], b"");
        holder.says("held\n");
        let says = format!("the container's /{path} is being written by somebody else");
        halted.attack(&outside, path, holder).assert_refused(&says, path);
        halted.undo();
    }
    assert_eq!(halted.attack(&outside, "nobody", ()), Outcome::Started);
}

/// One hook stands where it has written a file and not brought it into its place yet, and meanwhile another one, of a
/// container on the same root, does all of its work: both containers have the driver.
#[test]
#[ignore = "needs root: starts containers"]
fn two_first_starts_on_one_root_at_once() {
    let host = host(Cgroups::V1);
    for overlay in [false, true] {
        let builder = attacked(&host, Runtime::Runc).furnish(|root| {
            // On a plain root the cache is not written there.
            if overlay {
                furnish(&host, root, DEBIAN);
            }
            furnish_musl(&host, root);
        });
        let first = Halted::new(if overlay { builder.overlay() } else { builder });
        let second = Halted::new(attacked(&host, Runtime::Runc).on_root(first.root()));
        let output = second.hook_stopped_after("write", 1, || drop(first.hook().ok()));
        output.ok();
        for halted in [&first, &second] {
            let path = halted.root().join(MUSL_PATH);
            let path = halted.enter(&["cat", path.to_str().expect("UTF-8")]).ok().stdout;
            assert_eq!(path, "/usr/local/nvidia/lib64\n/lib\n/usr/local/lib\n/usr/lib\n", "{overlay}");
        }
    }
}

/// Somebody else on the same root has a name somewhere else just while the hook looks at it: no container starts whose
/// loader was not told of the driver.
#[test]
#[ignore = "needs root: starts containers"]
fn a_name_that_is_away_while_the_hook_looks() {
    let host = host(Cgroups::V1);
    let loader = "lib/ld-musl-x86_64.so.1";
    for (n, name) in ["etc", CACHE, loader].into_iter().enumerate() {
        let builder = attacked(&host, Runtime::Runc).furnish(|root| {
            furnish(&host, root, DEBIAN);
            if name == loader {
                furnish_musl(&host, root);
            }
        });
        let halted = Halted::new(if n == 1 { builder.overlay() } else { builder });
        let root = host.view().path(halted.root());
        let (there, away) = (root.join(name), root.join("away"));
        fs::rename(&there, &away).expect("rename");
        let back = || {
            // What the hook has made for want of it.
            let _ = fs::remove_dir_all(&there);
            fs::rename(&away, &there).expect("rename");
        };
        let output = halted.hook_stopped_after("symlinkat", 1, back);
        halted.judge(&output).assert_refused("was not to be found a moment ago", name);
    }
}

#[test]
#[ignore = "needs root: starts containers"]
fn many_starts_on_one_layer_leave_what_the_first_left() {
    let host = host(Cgroups::V1);
    let first = asking(image(&host, Runtime::Runc, DEBIAN)).overlay().build();
    first.run().ok();
    let root = host.view().path(first.root());
    let left = Snapshot::of(&root);
    let names = [CACHE, DROP_IN, "usr/local/nvidia"].map(|name| root.join(name).exists());
    assert_eq!(names, [true; 3]);
    for _ in 0..50 {
        asking(host.container(Runtime::Runc).on_root(first.root()).args(&look())).build().run().ok();
    }
    assert_eq!(Snapshot::of(&root).new_since(&left), [""; 0].map(Path::new));
    let state = fs::read_dir(host.state_dir()).expect("the state directory");
    let mut names: Vec<String> =
        state.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the boot id");
    let boot = boot.trim_end();
    assert_eq!(names, [format!("inventory-{boot}.json"), "lock".to_owned(), format!("state-{boot}.json")]);
    assert_eq!(host.status()["leases"], serde_json::json!([]));
}
