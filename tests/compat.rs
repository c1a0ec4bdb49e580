//! CUDA forward compatibility: an image's newer `libcuda`, and what belongs to it, is what programs find by name where
//! its note permits the host's driver; else the host's; and whatever an image has in its place, nothing of the host is
//! touched and the container starts.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::attack::{Outside, attacked, meddle};
use common::container::Builder;
use common::driver::install_all;
use common::halted::{Halted, mounted_by_vgpu};
use common::host::{DRIVER, Host, make_dir, make_node};
use common::image::furnish;
use common::library::{Machine, shared_object};
use common::meddler::Meddler;
use common::runtime::Runtime;
use common::snapshot::Snapshot;
use common::view::Cgroups;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use serde_json::{Value, json};

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const COMPAT: &str = "usr/local/cuda/compat";
/// Of the image's libraries: newer than [`DRIVER`], 550.54.15.
const NEWER: &str = "575.57.08";
const SECTION: &str = ".note.cuda.fwd_compatibility";
const PERMITS: &str =
    r#"{"Format": 1, "CUDA Version": "12.9", "Driver": [535, 550, 575], "Device": [1, 2, 7]}"#;
const DENIES: &str =
    r#"{"Format": 1, "CUDA Version": "12.9", "Driver": [535, 560, 575], "Device": [1, 2, 7]}"#;

/// What programs ask for: two names of libcuda; one that only the image's driver has, which its libcuda would load; two
/// that only the host has in the right version. Each with the file that is found by the linker cache, then by
/// LD_LIBRARY_PATH as CUDA images have it.
const LOOK: &str = r#"
    tell() {
        for name in libcuda.so.1 libcuda.so libnvidia-newer.so.4 libnvidia-ml.so.1 libnvidia-opencl.so.1; do
            set -- $(look $name)
            [ "$2" = not ] && echo "$1 -" || echo "$1 $(readlink -f "$2")"
        done
    }
    tell
    LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64 tell
"#;

/// What [`LOOK`] prints where the image's libraries, in this directory, are used.
fn newer(dir: &str) -> String {
    let found = format!(
        "libcuda.so.1 {dir}/libcuda.so.{NEWER}\nlibcuda.so {dir}/libcuda.so.{NEWER}\n\
         libnvidia-newer.so.4 {dir}/libnvidia-newer.so.{NEWER}\n{}",
        of_host(&["libnvidia-ml.so.1", "libnvidia-opencl.so.1"])
    );
    found.repeat(2)
}

/// What it prints where the host's are.
fn hosts() -> String {
    let found = of_host(&["libcuda.so.1", "libcuda.so"])
        + "libnvidia-newer.so.4 -\n"
        + &of_host(&["libnvidia-ml.so.1", "libnvidia-opencl.so.1"]);
    found.repeat(2)
}

fn of_host(names: &[&str]) -> String {
    let line = |name: &&str| {
        let (stem, _) = name.split_once(".so").expect("a library");
        format!("{name} /usr/local/nvidia/lib64/{stem}.so.{DRIVER}\n")
    };
    names.iter().map(line).collect()
}

/// A host whose driver has all its files.
fn host(cgroups: Cgroups) -> Host {
    let host = Host::new(cgroups);
    install_all(&host.driver_root(), DRIVER);
    host
}

/// What NVIDIA's packages put into such a directory: libraries of this version, `libcuda` with this note, and links; and
/// what they do not, an NVML and a file that the host has, too.
fn install(dir: &Path, version: &str, note: Option<&str>) {
    make_dir(dir);
    for (stem, number) in [("libcuda", 1), ("libnvidia-newer", 4), ("libnvidia-ml", 1)] {
        let soname = format!("{stem}.so.{number}");
        let object = shared_object(Machine::X86_64, soname.as_bytes());
        let object = match note {
            Some(note) if stem == "libcuda" => with_note(object, SECTION, note.as_bytes()),
            _ => object,
        };
        fs::write(dir.join(format!("{stem}.so.{version}")), object).expect("a library");
        symlink(format!("{stem}.so.{version}"), dir.join(&soname)).expect("a link");
    }
    symlink("libcuda.so.1", dir.join("libcuda.so")).expect("a link");
    // By the name of the host's own file.
    fs::write(dir.join(format!("libnvidia-opencl.so.{DRIVER}")), "").expect("a file");
}

/// The file with a section of this name behind, which has one note.
fn with_note(mut object: Vec<u8>, section: &str, description: &[u8]) -> Vec<u8> {
    const OWNER: &[u8] = b"NVIDIA Corporation\0";
    let words = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let mut note = words(&[OWNER.len() as u32, description.len() as u32, 1]);
    note.extend(OWNER);
    note.resize(note.len().next_multiple_of(4), 0);
    note.extend(description);
    let names = ["\0.shstrtab\0", section, "\0"].concat();
    object.resize(object.len().next_multiple_of(8), 0);
    let (note_at, names_at) = (object.len(), object.len() + note.len());
    object.extend(note.iter().chain(names.as_bytes()));
    object.resize(object.len().next_multiple_of(8), 0);
    let table = object.len() as u64;
    let mut header = |name: u32, kind: u32, at: usize, size: usize, align: u64| {
        object.extend(words(&[name, kind]));
        for number in [0, 0, at as u64, size as u64, 0, align, 0] {
            object.extend(number.to_le_bytes());
        }
    };
    header(0, 0, 0, 0, 0);
    header(1, 3, names_at, names.len(), 1);
    header(11, 7, note_at, note.len(), 4);
    object[40..48].copy_from_slice(&table.to_le_bytes());
    object[58..64].copy_from_slice(&[64, 0, 3, 0, 1, 0]);
    object
}

fn fifo(at: &Path) {
    mknodat(CWD, at, FileType::Fifo, Mode::RWXU, 0).expect("mknod");
}

/// An image with nothing in the place of these libraries yet, that asks for all of the driver.
fn image(host: &Host, runtime: Runtime) -> Builder<'_> {
    asking(host, runtime).furnish(move |root| furnish(host, root, LIBRARIES))
}

fn asking(host: &Host, runtime: Runtime) -> Builder<'_> {
    let builder = host.container(runtime).annotation("vgpu.count", "1");
    builder.env("NVIDIA_DRIVER_CAPABILITIES", "all").args(&["sh", "-c", LOOK])
}

/// The ways in which images have the directory, and where the files then are.
fn layouts() -> [(&'static str, Option<&'static str>); 4] {
    [
        ("usr/local/cuda/compat", None),
        ("usr/local/cuda-12.9/compat", Some("cuda-12.9")),
        ("usr/local/cuda-12.9/compat", Some("/usr/local/cuda-12.9")),
        ("opt/cuda/compat", Some("../../../../../opt/cuda")),
    ]
}

/// Makes one of them.
fn lay_out(root: &Path, (dir, link): (&str, Option<&str>), note: Option<&str>) {
    install(&root.join(dir), NEWER, note);
    make_dir(&root.join("usr/local"));
    if let Some(link) = link {
        symlink(link, root.join("usr/local/cuda")).expect("a link");
    }
}

/// On a plain directory the image's files are what they were, and a container without a lease finds what it found.
#[test]
#[ignore = "needs root: starts containers"]
fn a_newer_libcuda_is_found_first() {
    let host = host(Cgroups::V1);
    for (n, layout) in layouts().into_iter().enumerate() {
        let runtime = [Runtime::Runc, Runtime::Crun][n % 2];
        let builder = image(&host, runtime).mapped_if(n == 1);
        let leased = builder.furnish(move |root| lay_out(root, layout, Some(PERMITS))).build();
        let brought = host.view().path(leased.root()).join(layout.0);
        let before = Snapshot::of(&brought);
        assert_eq!(leased.run().ok().stdout, newer(&format!("/{}", layout.0)), "{layout:?}");
        Snapshot::of(&brought).assert_is(&before, layout.0);

        let without =
            host.container(runtime).on_root(leased.root()).mapped_if(n == 1).args(&["sh", "-c", LOOK]);
        let found = without.build().run().ok().stdout;
        assert!(
            found.starts_with(&format!("libcuda.so.1 /{LIBRARIES}/libcuda.so.1\nlibcuda.so -\n")),
            "{found}"
        );
    }
}

/// On an overlay `ldconfig` inside finds the same, without complaining; and the next start, on a host whose driver is
/// newer by then, the host's.
#[test]
#[ignore = "needs root: starts containers"]
fn on_a_layer_of_its_own_ldconfig_finds_the_same() {
    for runtime in [Runtime::Runc, Runtime::Crun, Runtime::PodmanCrun] {
        let host = host(Cgroups::V1);
        let layout = layouts()[1];
        let ldconfig = format!("{LOOK}\nldconfig 2>&1\n{LOOK}");
        let first = image(&host, runtime).furnish(move |root| lay_out(root, layout, Some(PERMITS))).overlay();
        let first = first.args(&["sh", "-c", &ldconfig]).build();
        assert_eq!(first.run().ok().stdout, newer("/usr/local/cuda-12.9/compat").repeat(2), "{runtime:?}");

        host.upgrade_driver("580.82.07");
        let again = asking(&host, runtime).on_root(first.root()).build();
        assert_eq!(again.run().ok().stdout, hosts().replace(DRIVER, "580.82.07"), "{runtime:?}");
    }
}

/// The note decides; without one, the branch.
#[test]
#[ignore = "needs root: starts containers"]
fn what_the_note_does_not_permit_is_not_used() {
    let host = host(Cgroups::V1);
    let cases = [
        (NEWER, Some(PERMITS), true),
        (NEWER, Some(DENIES), false),
        (NEWER, None, true),
        (NEWER, Some("{\"Format\": 1, \"Driver\": [550]"), false),
        (NEWER, Some(""), false),
        (DRIVER, Some(PERMITS), false),
        ("550.99.01", Some(PERMITS), true),
        ("550.99.01", None, false),
        ("535.54.03", Some(PERMITS), false),
        ("535.54.03", None, false),
    ];
    for (n, (version, note, used)) in cases.into_iter().enumerate() {
        let builder = image(&host, [Runtime::Runc, Runtime::Crun][n % 2]);
        let builder = if n % 3 == 0 { builder.overlay() } else { builder };
        let container = builder.furnish(move |root| install(&root.join(COMPAT), version, note)).build();
        let expected = if used { newer(&format!("/{COMPAT}")).replace(NEWER, version) } else { hosts() };
        assert_eq!(container.run().ok().stdout, expected, "{version} {note:?}");
    }
}

/// A container without `compute` has no libcuda but its own.
#[test]
#[ignore = "needs root: starts containers"]
fn only_with_compute() {
    let host = host(Cgroups::V1);
    let builder = image(&host, Runtime::Runc).env("NVIDIA_DRIVER_CAPABILITIES", "utility");
    let container = builder.furnish(|root| install(&root.join(COMPAT), NEWER, Some(PERMITS))).build();
    let found = container.run().ok().stdout;
    assert!(found.starts_with(&format!("libcuda.so.1 /{LIBRARIES}/libcuda.so.1\nlibcuda.so -\n")), "{found}");
}

/// Images without a linker cache have it where they have the host's: by LD_LIBRARY_PATH, or as musl's path says.
#[test]
#[ignore = "needs root: starts containers"]
fn without_a_linker_cache() {
    let host = host(Cgroups::V1);
    let list = "readlink -f /usr/local/nvidia/lib64/libcuda.so.1; ls /usr/local/nvidia/lib | grep libcuda.so";
    let builder = asking(&host, Runtime::Crun).args(&["sh", "-c", list]);
    let container = builder.furnish(|root| {
        install(&root.join(COMPAT), NEWER, Some(PERMITS));
        // No library, whatever its name.
        fifo(&root.join(COMPAT).join("libcuda.so.2"));
        symlink("nowhere", root.join(COMPAT).join("libcuda.so.3")).expect("a link");
    });
    let container = container.build();
    let expected = format!("/{COMPAT}/libcuda.so.{NEWER}\nlibcuda.so\nlibcuda.so.1\nlibcuda.so.{NEWER}\n");
    assert_eq!(container.run().ok().stdout, expected);
}

/// A hook may be listed twice.
#[test]
#[ignore = "needs root: makes containers"]
fn a_second_call_changes_nothing() {
    let host = host(Cgroups::V1);
    let builder =
        attacked(&host, Runtime::Runc).furnish(|root| install(&root.join(COMPAT), NEWER, Some(PERMITS)));
    let halted = Halted::new(builder);
    let call = || {
        halted.hook().ok();
        mounted_by_vgpu(halted.pid())
    };
    let mounts = call();
    let libraries =
        |stem: &str| mounts.iter().filter(|line| line.contains(&format!("/lib64/{stem}.so"))).count();
    assert_eq!([libraries("libcuda"), libraries("libnvidia-ml")], [0, 1], "{mounts:?}");
    assert_eq!(call(), mounts);
}

/// What images can have in the place of the directory, and of what is in it: the host's driver is used, and nothing of
/// the host is changed, waited for, or read to no end.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_whatever_is_there_the_container_starts() {
    type Change<'a> = Box<dyn Fn(&Path) + 'a>;
    let host = host(Cgroups::V1);
    let outside = Outside::new(&host);
    install(Path::new(&outside.path("vgpu")), NEWER, Some(PERMITS));
    let file = |name: &'static str, make: fn(&Path)| -> Change {
        Box::new(move |dir| {
            let _ = fs::remove_file(dir.join(name));
            make(&dir.join(name));
        })
    };
    let versioned = "libcuda.so.575.57.08";
    let leads_to = |name: &'static str, target: String| -> Change {
        Box::new(move |dir| {
            let _ = fs::remove_file(dir.join(name));
            symlink(&target, dir.join(name)).expect("a link");
        })
    };
    let is = |target: String| -> Change {
        Box::new(move |dir| {
            fs::remove_dir_all(dir).expect("removing");
            symlink(&target, dir).expect("a link");
        })
    };
    let edited = |edit: fn(Vec<u8>) -> Vec<u8>| -> Change {
        Box::new(move |dir| {
            let object = fs::read(dir.join(versioned)).expect("a library");
            fs::write(dir.join(versioned), edit(object)).expect("a library");
        })
    };
    let things: Vec<(&str, Change)> = vec![
        ("a FIFO", file(versioned, fifo)),
        ("a FIFO by name", file("libcuda.so.1", fifo)),
        ("a directory", file(versioned, make_dir)),
        // A watchdog would go off if it were opened.
        ("a watchdog", file(versioned, |at| make_node(at, 10, 130))),
        (
            "a huge file",
            file(versioned, |at| fs::File::create(at).and_then(|f| f.set_len(1 << 40)).expect("a file")),
        ),
        ("an empty file", edited(|_| Vec::new())),
        ("half a file", edited(|object| object[..object.len() / 2].to_vec())),
        ("the end is cut off", edited(|object| object[..object.len() - 1].to_vec())),
        (
            "another processor",
            edited(|mut object| {
                object[18] = 183;
                object
            }),
        ),
        (
            "32 bits",
            edited(|_| with_note(shared_object(Machine::I386, b"libcuda.so.1"), SECTION, PERMITS.as_bytes())),
        ),
        (
            "sections without end",
            edited(|mut object| {
                object[60..62].copy_from_slice(&[255, 255]);
                object
            }),
        ),
        ("another by name", leads_to("libcuda.so.1", "libnvidia-ml.so.1".to_owned())),
        ("nothing by name", leads_to("libcuda.so.1", "nowhere".to_owned())),
        ("two versions", leads_to("libcuda.so.575.99.01", versioned.to_owned())),
        (
            "a crowd",
            Box::new(|dir| {
                for n in 0..200 {
                    fs::write(dir.join(format!("libx{n}.so.1")), "x").expect("a file");
                }
            }),
        ),
        ("the kernel's log", leads_to(versioned, "/proc/kmsg".to_owned())),
        ("a process", leads_to(versioned, "/proc/self/exe".to_owned())),
        ("the host's file", leads_to(versioned, outside.path(&format!("vgpu/{versioned}")))),
        ("the host's directory", is(outside.path("vgpu"))),
        ("a way up", is(format!("{}{}", "../".repeat(40), &outside.path("vgpu")[1..]))),
        ("a magic link", is(format!("/proc/1/root{}", outside.path("vgpu")))),
        ("itself", is("compat".to_owned())),
        (
            "a file",
            Box::new(|dir| {
                fs::remove_dir_all(dir).expect("removing");
                fs::write(dir, "x").expect("a file");
            }),
        ),
    ];
    for (n, (thing, change)) in things.iter().enumerate() {
        let builder = image(&host, [Runtime::Runc, Runtime::Crun][n % 2]);
        let builder = if n % 3 == 0 { builder.overlay() } else { builder };
        let container = builder.furnish(|root| {
            install(&root.join(COMPAT), NEWER, Some(PERMITS));
            change(&root.join(COMPAT));
        });
        let container = container.build();
        let before = outside.world();
        assert_eq!(container.run().ok().stdout, hosts(), "{thing}");
        outside.assert_is(&before, thing);
    }

    // What is mounted there from the host is not the image's: it is not read.
    for at in [COMPAT.to_owned(), format!("{COMPAT}/{versioned}")] {
        let source = outside.path(if at == COMPAT { "vgpu" } else { "vgpu/libcuda.so.575.57.08" });
        let mount = json!({ "type": "bind", "source": source, "destination": format!("/{at}"), "options": ["rbind"] });
        let bind = |config: &mut Value| config["mounts"].as_array_mut().expect("mounts").push(mount);
        let container = image(&host, Runtime::Runc).tweak(bind);
        let container = container.furnish(|root| install(&root.join(COMPAT), NEWER, Some(PERMITS))).build();
        let before = outside.world();
        assert_eq!(container.run().ok().stdout, hosts(), "{at}");
        outside.assert_is(&before, &at);
    }
}

/// Somebody else on the same root swaps the directory while the hook runs: the container has what was looked at, or does
/// not start.
#[test]
#[ignore = "needs root: starts containers"]
fn r19_names_that_are_swapped_while_the_hook_runs() {
    let host = host(Cgroups::V1);
    let outside = Outside::new(&host);
    let builder = attacked(&host, Runtime::Runc).furnish(|root| {
        install(&root.join(COMPAT), NEWER, Some(PERMITS));
        install(&root.join("usr/local/cuda/other"), NEWER, None);
    });
    let halted = Halted::new(builder);
    let (compat, other) = (halted.root().join(COMPAT), halted.root().join("usr/local/cuda/other"));
    let says = ["nobody else may change its files"];
    meddle(&outside, &halted, || Meddler::exchanging(&compat, &other), &says);

    let swap = || renameat_with(CWD, &compat, CWD, &other, RenameFlags::EXCHANGE).expect("exchange");
    let output = halted.hook_stopped_after("move_mount", 1, swap);
    halted.judge(&output).assert_refused("is not its /usr/local/cuda/compat/libcuda.so", "swapped");
}
