//! The inventory: what the host has is read right, whatever state driver, library and cache are in.
//!
//! Each test has a driver's root of its own in a temporary directory. The NVML library in it is the
//! test double, a real shared object; vgpu trusts it only when root owns it.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fake_nvml::Init;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vgpu::error::{Error, Exit};
use vgpu::gpu::{self, DriverRoot, Found, Inventory, Majors, Probe};
use vgpu::types::Bytes;

const GIB: u64 = 1 << 30;
const LIB: &str = "usr/lib64";

/// A GPU of the simulated host, in the order of NVML's list.
#[derive(Clone, Copy)]
struct Card {
    uuid: &'static str,
    pci: &'static str,
    minor: u32,
}

/// Index, minor and PCI order all disagree.
const CARDS: [Card; 3] = [
    Card { uuid: "GPU-aaaaaaaa-0000-1111-2222-333344445555", pci: "0000:af:00.0", minor: 1 },
    Card { uuid: "GPU-bbbbbbbb-0000-1111-2222-333344445555", pci: "0000:3b:00.0", minor: 2 },
    Card { uuid: "GPU-cccccccc-0000-1111-2222-333344445555", pci: "0000:d8:00.0", minor: 0 },
];
const UNKNOWN_UUID: &str = "GPU-????????-????-????-????-????????????";

struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    /// A loaded driver with [`CARDS`], without NVML and nodes.
    fn new() -> Self {
        let host = Self { dir: tempfile::tempdir().unwrap() };
        host.write("proc/devices", "Character devices:\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n");
        host.driver("550.54.15");
        for card in CARDS {
            host.information(card);
        }
        fs::create_dir(host.dir.path().join("state")).unwrap();
        host
    }

    fn with_nvml(init: Init) -> Self {
        let host = Self::new();
        host.nvml(|fake| fake.init = init);
        host
    }

    fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join("root").join(below)
    }

    fn write(&self, below: impl AsRef<Path>, text: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn driver(&self, version: &str) {
        let line = format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Mar  5 2024\n");
        self.write("proc/driver/nvidia/version", &line);
    }

    fn information(&self, card: Card) {
        let Card { uuid, pci, minor } = card;
        let text = format!(
            "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 16\nGPU UUID: \t {uuid}\n\
             Bus Location: \t {pci}\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
        );
        self.write(format!("proc/driver/nvidia/gpus/{pci}/information"), &text);
    }

    /// Installs the test double with [`CARDS`], changed by `change`.
    fn nvml(&self, change: impl FnOnce(&mut fake_nvml::Host)) {
        let gpu = |card: Card| fake_nvml::Gpu {
            uuid: card.uuid.into(),
            pci: card.pci.into(),
            minor: card.minor,
            name: "NVIDIA A100-SXM4-40GB".into(),
            memory: Some(40 * GIB),
            ..Default::default()
        };
        let gpus = CARDS.into_iter().map(gpu).collect();
        let mut fake = fake_nvml::Host { driver: "550.54.15".into(), gpus, init: Init::Work };
        change(&mut fake);
        fake.install(&self.path(LIB)).unwrap();
    }

    fn nodes(&self) {
        fs::create_dir_all(self.path("dev")).unwrap();
        for card in CARDS {
            self.node(card.minor, 195, card.minor);
        }
    }

    fn node(&self, name: u32, major: u32, minor: u32) {
        let (path, mode) = (self.path(format!("dev/nvidia{name}")), Mode::from_raw_mode(0o666));
        mknodat(CWD, &path, FileType::CharacterDevice, mode, makedev(major, minor)).unwrap();
    }

    fn root(&self) -> DriverRoot {
        DriverRoot::open(&self.path("")).unwrap()
    }

    fn discover(&self) -> Result<Found, Error> {
        gpu::discover(&self.root(), &probe())
    }

    fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn load(&self) -> Result<Found, Error> {
        let dir = File::open(self.state_dir()).unwrap();
        gpu::load_or_discover(dir.as_fd(), &self.state_dir(), &self.root(), &probe())
    }

    fn state_files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.state_dir()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// The reason why the GPU with this minor is unusable, empty when it is not.
    fn reason(&self, inventory: &Inventory, minor: u32) -> String {
        let gpu = inventory.gpus.iter().find(|gpu| gpu.minor == minor).unwrap();
        gpu.check(&self.root()).err().map(|e| e.to_string()).unwrap_or_default()
    }
}

/// The program under test reads NVML, with the limit that it has for everybody.
fn probe() -> Probe<'static> {
    Probe { program: Path::new(env!("CARGO_BIN_EXE_vgpu")), ..Probe::default() }
}

fn minors(found: &Found) -> Vec<u32> {
    found.inventory.gpus.iter().map(|gpu| gpu.minor).collect()
}

#[track_caller]
fn assert_fails(result: Result<Found, Error>, exit: Exit, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.exit, exit, "{error}");
    let line = error.to_string();
    assert!(!line.contains('\n') && parts.iter().all(|part| line.contains(part)), "{line}");
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn nvml_gives_every_gpu_with_its_own_minor_in_pci_order() {
    let found = Host::with_nvml(Init::Work).discover().unwrap();
    assert_eq!(found.warnings, Vec::<String>::new());
    assert_eq!(found.inventory.driver, "550.54.15");
    for (gpu, card) in found.inventory.gpus.iter().zip([CARDS[1], CARDS[0], CARDS[2]]) {
        assert_eq!((gpu.uuid.as_str(), gpu.minor), (card.uuid, card.minor));
        assert_eq!(gpu.pci.to_string(), card.pci);
        assert_eq!((gpu.name.as_str(), gpu.memory), ("NVIDIA A100-SXM4-40GB", Some(Bytes(40 * GIB))));
    }
    assert_eq!(minors(&found), [2, 1, 0]);
}

/// The library is in a directory that only the linker of the driver's root knows.
#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn nvml_where_the_linker_cache_says() {
    let host = Host::with_nvml(Init::Work);
    fs::create_dir(host.path("opt")).unwrap();
    fs::rename(host.path(LIB), host.path("opt/nvidia")).unwrap();
    host.write("etc/ld.so.conf", "/opt/nvidia\n");
    assert_eq!(host.discover().unwrap().inventory.gpus[0].memory, None);
    assert!(Command::new("/sbin/ldconfig").arg("-r").arg(host.path("")).status().unwrap().success());
    assert_eq!(host.discover().unwrap().inventory.gpus[0].memory, Some(Bytes(40 * GIB)));
}

#[test]
fn without_nvml_procfs_gives_all_but_memory() {
    let found = Host::new().discover().unwrap();
    assert_eq!(minors(&found), [2, 1, 0]);
    assert!(found.inventory.gpus.iter().all(|gpu| gpu.memory.is_none()));
    assert_eq!(found.inventory.gpus[0].name, "NVIDIA A100-SXM4-40GB");
}

#[test]
fn procfs_alone_leaves_out_what_the_driver_excludes() {
    let host = Host::new();
    let path = host.path(format!("proc/driver/nvidia/gpus/{}/information", CARDS[0].pci));
    let text = fs::read_to_string(&path).unwrap().replace("\t No", "\t Yes");
    fs::write(&path, text).unwrap();
    host.write(format!("proc/driver/nvidia/gpus/{}/information", CARDS[1].pci), "Model: x\n");
    let found = host.discover().unwrap();
    assert_eq!(minors(&found), [0]);
    assert!(found.warnings[0].contains("0000:3b:00.0") && found.warnings[0].contains("Device Minor"));
    assert!(found.warnings[1].contains("0000:af:00.0") && found.warnings[1].contains("exclude"));
}

#[test]
fn a_uuid_that_the_driver_does_not_know_yet_needs_nvml() {
    let host = Host::new();
    host.information(Card { uuid: UNKNOWN_UUID, ..CARDS[0] });
    assert_fails(host.discover(), Exit::Gpu, &["0000:af:00.0", "nvidia-persistenced", "nvidia-smi -pm 1"]);
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn nvml_knows_a_uuid_that_procfs_does_not() {
    let host = Host::with_nvml(Init::Work);
    host.information(Card { uuid: UNKNOWN_UUID, ..CARDS[0] });
    let found = host.discover().unwrap();
    assert_eq!(found.inventory.gpus[1].uuid.as_str(), CARDS[0].uuid);
}

#[test]
fn no_driver_says_what_to_do() {
    let host = Host::new();
    fs::remove_dir_all(host.path("proc/driver")).unwrap();
    assert_fails(host.discover(), Exit::Gpu, &["no NVIDIA driver is loaded", "modprobe nvidia"]);
    assert_fails(host.load(), Exit::Gpu, &["no NVIDIA driver is loaded"]);
    let missing = DriverRoot::open(&host.path("missing")).unwrap_err();
    assert_eq!(missing.exit, Exit::Gpu);
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn a_lost_gpu_is_named_and_the_others_are_found() {
    let host = Host::new();
    host.nvml(|fake| fake.gpus[1].lost = true);
    let found = host.discover().unwrap();
    assert_eq!(minors(&found), [1, 0]);
    let warnings = found.warnings.join("\n");
    assert!(warnings.contains("number 1: device fell off the bus"), "{warnings}");
    assert!(warnings.contains("GPU 0000:3b:00.0 is left out"), "{warnings}");
}

/// MIG devices on the GPU with this minor, as procfs lists them, and the minors of all that could be there.
fn capabilities(host: &Host, gpu: u32, instances: &[&str]) {
    for instance in instances {
        host.write(format!("proc/driver/nvidia/capabilities/gpu{gpu}/mig/{instance}/access"), "");
    }
    let minors = "config 1\nmonitor 2\ngpu1/gi7/access 66\ngpu1/gi7/ci0/access 67\ngpu1/gi7/ci1/access 68\n\
        gpu1/gi8/access 75\ngpu2/gi7/access 201\n";
    host.write("proc/driver/nvidia-caps/mig-minors", minors);
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn nvml_gives_the_mig_devices_that_there_are() {
    let device = |uuid: &str, profile: &str, ci| fake_nvml::MigDevice {
        uuid: uuid.into(),
        name: format!("NVIDIA A100-SXM4-40GB{profile}"),
        gpu_instance: 7,
        compute_instance: ci,
        memory: (ci == 0).then_some(5 * GIB),
        ..Default::default()
    };
    let new = "MIG-6f6b7c8d-0000-1111-2222-333344445555";
    let old = format!("MIG-{}/7/0", CARDS[0].uuid);
    let host = Host::new();
    host.nvml(|fake| {
        let devices = [
            (new, " MIG 1c.2g.10gb", 1),
            (&old, " MIG 1c.2g.10gb", 0),
            ("MIG-x", " MIG 1g.5gb", 2),
            (new, "", 3),
        ];
        let devices = devices.map(|(uuid, profile, ci)| Some(device(uuid, profile, ci)));
        fake.gpus[0].mig = fake_nvml::Mig::Enabled([&[None], &devices[..]].concat());
        fake.gpus[1].mig = fake_nvml::Mig::Disabled;
        fake.gpus[2].mig = fake_nvml::Mig::Enabled(vec![]);
    });
    capabilities(&host, 1, &["gi7", "gi7/ci0", "gi7/ci1"]);
    let found = host.discover().unwrap();
    let [disabled, enabled, empty] = &found.inventory.gpus[..] else { panic!("{found:?}") };
    assert_eq!((&disabled.mig, &empty.mig), (&None, &Some(vec![])));
    let devices = enabled.mig.as_ref().unwrap().iter().map(|device| {
        assert_eq!(device.profile.as_str(), "1c.2g.10gb");
        (device.uuid.as_str(), device.instance.to_string(), device.memory)
    });
    // Where NVML does not know a device's memory, its profile's name does.
    let expected = [(&*old, "7.0".to_owned(), Bytes(5 * GIB)), (new, "7.1".to_owned(), Bytes(10 * GIB))];
    assert_eq!(devices.collect::<Vec<_>>(), expected);
    let warnings = found.warnings.join("\n");
    assert!(
        warnings.contains("MIG device 3 of GPU 0000:af:00.0 is left out: its UUID is \"MIG-x\""),
        "{warnings}"
    );
    assert!(warnings.contains("MIG device 4 of GPU 0000:af:00.0 is left out: its name is"), "{warnings}");

    let minors = &found.inventory.capabilities.minors;
    let minors: Vec<_> = minors.iter().map(|(name, minor)| format!("{name} {minor}")).collect();
    assert_eq!(minors, ["config 1", "gpu1/gi7 66", "gpu1/gi7/ci0 67", "gpu1/gi7/ci1 68", "monitor 2"]);
    let majors = Majors { nvidia: 195, uvm: None, caps: Some(235) };
    assert_eq!(found.inventory.numbers(&majors).last().unwrap().to_string(), "235:75");
    // What is kept is what was found.
    assert_eq!(host.load().unwrap(), found);
    assert_eq!(host.load().unwrap(), found);
}

#[test]
fn without_nvml_a_gpu_with_instances_is_in_mig_mode() {
    let host = Host::new();
    capabilities(&host, 1, &["gi7/ci0"]);
    let found = host.discover().unwrap();
    let mig: Vec<_> = found.inventory.gpus.iter().map(|gpu| gpu.mig.clone()).collect();
    assert_eq!(mig, [None, Some(vec![]), None]);
    assert!(
        found.warnings[0].starts_with("the MIG devices of GPU 0000:af:00.0 are left out"),
        "{:?}",
        found.warnings
    );
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn memory_that_nvml_does_not_know_is_unknown() {
    let host = Host::new();
    host.nvml(|fake| fake.gpus[1].memory = None);
    assert_eq!(host.discover().unwrap().inventory.gpus[0].memory, None);
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn a_library_that_hangs_is_an_error_after_the_limit() {
    let host = Host::with_nvml(Init::Hang);
    let probe = Probe { limit: Duration::from_millis(500), ..probe() };
    let found = gpu::discover(&host.root(), &probe);
    assert_fails(found, Exit::Gpu, &["libnvidia-ml.so.1", "did not answer within 500ms", "dmesg"]);
    let pid = fs::read_to_string(host.path(LIB).join(fake_nvml::HANGING)).unwrap();
    assert_ends(pid.parse().unwrap());
}

/// The process ends without anybody's doing; a zombie has ended.
#[track_caller]
fn assert_ends(pid: i32) {
    match pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) {
        Ok(process) => assert!(readable(process.as_fd()), "process {pid} is still there"),
        Err(gone) => assert_eq!(gone, Errno::SRCH),
    }
}

/// Within a time that is only ever used up by a failure.
fn readable(fd: BorrowedFd<'_>) -> bool {
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit)).unwrap() > 0
}

#[test]
fn a_hanging_library_goes_with_a_caller_that_is_killed() {
    let host = Host::with_nvml(Init::Hang);
    let library = host.path(LIB).join("libnvidia-ml.so.1");
    let mut caller = Command::new("sh")
        .args(["-c", r#""$0" discover --probe; exit"#, env!("CARGO_BIN_EXE_vgpu")])
        .stdin(File::open(library).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hanging = host.path(LIB).join(fake_nvml::HANGING);
    let pid = loop {
        // Empty for a moment: made first, written then.
        if let Ok(Ok(pid)) = fs::read_to_string(&hanging).map(|pid| pid.parse()) {
            break pid;
        }
        assert!(caller.try_wait().unwrap().is_none(), "it ended without hanging");
    };
    caller.kill().unwrap();
    caller.wait().unwrap();
    assert_ends(pid);
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn a_library_that_crashes_or_fails_is_an_error() {
    let crash = Host::with_nvml(Init::Crash).discover();
    assert_fails(crash, Exit::Gpu, &["libnvidia-ml.so.1", "crashed (signal 6)", "reinstall"]);
    let mismatch = Host::with_nvml(Init::Fail(18)).discover();
    assert_fails(mismatch, Exit::Gpu, &["version mismatch", "reboot"]);
    let host = Host::new();
    host.write(format!("{LIB}/libnvidia-ml.so.1"), "");
    assert_fails(host.discover(), Exit::Gpu, &["file too short", "reinstall the driver's libraries"]);
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn a_library_that_prints_does_not_print_into_the_answer() {
    assert_eq!(minors(&Host::with_nvml(Init::Print).discover().unwrap()), [2, 1, 0]);
}

#[test]
#[ignore = "needs root: gives the library to another user"]
fn a_library_that_others_could_have_written_is_not_loaded() {
    let host = Host::with_nvml(Init::Crash);
    let library = host.path(LIB).join("libnvidia-ml.so.1");
    let chmod = |mode| fs::set_permissions(&library, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o775, 0o757] {
        chmod(mode);
        assert_fails(
            host.discover(),
            Exit::Untrusted,
            &["libnvidia-ml.so.1", "others than root may write it"],
        );
    }
    chmod(0o755);
    chown(&library, Some(1), None).unwrap();
    assert_fails(host.discover(), Exit::Untrusted, &["belongs to uid 1"]);
    fs::remove_file(&library).unwrap();
    fs::create_dir(&library).unwrap();
    assert_fails(host.discover(), Exit::Untrusted, &["regular file"]);
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn absolute_symlinks_in_the_drivers_root_stay_in_it() {
    let host = Host::with_nvml(Init::Work);
    fs::create_dir_all(host.path("opt")).unwrap();
    fs::rename(host.path(LIB), host.path("opt/driver")).unwrap();
    symlink("/opt/driver", host.path(LIB)).unwrap();
    assert!(host.discover().unwrap().inventory.gpus[0].memory.is_some(), "NVML was found");
}

/// What reads NVML is a script here: how the process is started shows in what it answers.
fn scripted(host: &Host, script: &str, limit: Duration) -> Result<Found, Error> {
    host.write(format!("{LIB}/libnvidia-ml.so.1"), "");
    let (text, program) = (host.dir.path().join("text"), host.dir.path().join("script"));
    fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
    // Copied by another process: a child that another test starts now would hold a descriptor of ours
    // open for writing for a moment, and running the script would fail with ETXTBSY.
    assert!(Command::new("cp").arg("-p").args([&text, &program]).status().unwrap().success());
    gpu::discover(&host.root(), &Probe { program: &program, limit })
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn the_process_inherits_nothing() {
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some(), "cargo sets it");
    let host = Host::new();
    let inherited = rustix::io::dup(File::open("/dev/null").unwrap()).unwrap();
    let script = format!(
        r#"test -e /proc/$$/fd/{} && open=yes
        printf '{{"Err":"open=%s env=%s cwd=%s args=%s"}}\n' "$open" "$CARGO_PKG_NAME" "$PWD" "$*""#,
        inherited.as_raw_fd()
    );
    let found = scripted(&host, &script, gpu::PROBE_LIMIT);
    assert_fails(found, Exit::Gpu, &["failed: open= env= cwd=/ args=discover --probe"]);
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn only_a_whole_answer_counts_and_no_end_is_waited_for() {
    let short = Duration::from_millis(500);
    let half = scripted(&Host::new(), r#"printf '{"Ok":'; exec sleep 60"#, short);
    assert_fails(half, Exit::Gpu, &["did not answer within"]);
    let wrong = scripted(&Host::new(), "echo '{}'; exit 3", gpu::PROBE_LIMIT);
    assert_fails(wrong, Exit::Gpu, &["ended without an answer (exit status: 3)"]);
    // A child that holds the pipe, and a process that does not end: the answer is there.
    let script = r#"sleep 60 & echo '{"Ok":{"gpus":[],"left_out":["x"]}}'; exec sleep 60"#;
    let answered = scripted(&Host::new(), script, gpu::PROBE_LIMIT).unwrap();
    assert_eq!(answered.warnings[0], "x");
}

#[test]
#[ignore = "needs root: an NVML library is trusted only when root owns it"]
fn nvml_is_asked_once_as_long_as_the_key_is_the_same() {
    let host = Host::with_nvml(Init::Work);
    let found = host.load().unwrap();
    host.nvml(|fake| fake.init = Init::Fail(999));
    assert_eq!(host.load().unwrap(), found);

    let gi = host.path("proc/driver/nvidia/capabilities/gpu1/mig/gi3");
    fs::create_dir_all(gi.join("ci0")).unwrap();
    fs::create_dir_all(host.path("proc/driver/nvidia/capabilities/mig/config")).unwrap();
    assert_fails(host.load(), Exit::Gpu, &["NVML"]);
    host.nvml(|_| {});
    host.load().unwrap();
    host.nvml(|fake| fake.init = Init::Fail(999));
    host.load().expect("cached with its MIG devices");
    fs::rename(gi.join("ci0"), gi.join("ci1")).unwrap();
    assert_fails(host.load(), Exit::Gpu, &["NVML"]);

    host.nvml(|_| {});
    host.load().unwrap();
    host.nvml(|fake| fake.init = Init::Fail(999));
    fs::create_dir_all(host.path("sys/module/nvidia_drm")).unwrap();
    assert_fails(host.load(), Exit::Gpu, &["NVML"]);

    host.nvml(|_| {});
    host.driver("560.35.03");
    assert_eq!(host.load().unwrap().inventory.driver, "560.35.03");
}

#[test]
fn another_driver_root_is_another_inventory() {
    let (host, other) = (Host::new(), Host::new());
    host.load().unwrap();
    fs::remove_dir_all(other.path(format!("proc/driver/nvidia/gpus/{}", CARDS[0].pci))).unwrap();
    let dir = File::open(host.state_dir()).unwrap();
    let found = gpu::load_or_discover(dir.as_fd(), &host.state_dir(), &other.root(), &probe());
    assert_eq!(minors(&found.unwrap()), [2, 0]);
}

#[test]
fn a_damaged_cache_is_made_anew() {
    let host = Host::new();
    let found = host.load().unwrap();
    let [file] = &host.state_files()[..] else { panic!("{:?}", host.state_files()) };
    let whole = fs::read(file).unwrap();
    for damaged in [&b""[..], b"{}", b"\xff", &whole[..whole.len() / 2]] {
        fs::write(file, damaged).unwrap();
        assert_eq!(host.load().unwrap(), found);
        assert_eq!(fs::read(file).unwrap(), whole);
    }
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o7777, 0o644);
}

#[test]
fn inventories_of_other_boots_go_and_nothing_else() {
    let host = Host::new();
    let old = "inventory-11111111-2222-3333-4444-555555555555.json";
    for name in [old, &format!("{old}.77.0"), "leases.json"] {
        fs::write(host.state_dir().join(name), "{}").unwrap();
    }
    host.load().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let mut names: Vec<String> =
        host.state_files().iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, [format!("inventory-{}.json", boot.trim()), "leases.json".into()]);
}

#[test]
fn hooks_that_discover_at_once_do_not_disturb_each_other() {
    let host = Host::new();
    // What a hook left behind that was killed at the worst moment, under this process's id.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let left = format!("inventory-{}.json.{}.0", boot.trim(), std::process::id());
    fs::write(host.state_dir().join(left), "").unwrap();
    let refresh = || {
        let dir = File::open(host.state_dir()).unwrap();
        gpu::refresh(dir.as_fd(), &host.state_dir(), &host.root(), &probe()).unwrap()
    };
    std::thread::scope(|scope| {
        let hooks: Vec<_> = (0..16).map(|_| scope.spawn(refresh)).collect();
        let found = host.load().unwrap();
        for hook in hooks {
            assert_eq!(hook.join().unwrap(), found);
        }
    });
    assert_eq!(host.state_files().len(), 2, "the inventory and what was left: {:?}", host.state_files());
}

#[test]
fn a_cache_that_cannot_be_written_is_an_error() {
    let host = Host::new();
    let dir = File::open(host.state_dir()).unwrap();
    fs::remove_dir(host.state_dir()).unwrap();
    let found = gpu::refresh(dir.as_fd(), Path::new("/run/vgpu"), &host.root(), &probe());
    assert_fails(found, Exit::Io, &["cannot write /run/vgpu/inventory-"]);
}

#[test]
#[ignore = "needs root: makes device nodes"]
fn a_gpu_is_unusable_when_uuid_minor_or_node_no_longer_agree() {
    let host = Host::new();
    host.nodes();
    let inventory = host.discover().unwrap().inventory;
    assert!(inventory.check(&host.root()).iter().all(|(_, ok)| ok.is_ok()));
    let [card, other, third] = CARDS;
    let reason = |what: &str| {
        let reason = host.reason(&inventory, card.minor);
        assert!(reason.contains(what), "{reason:?} does not say {what:?}");
        // The others are not affected.
        assert_eq!(host.reason(&inventory, third.minor), "");
        fs::remove_dir_all(host.path("dev")).unwrap();
        host.nodes();
        host.information(card);
    };
    host.information(Card { uuid: UNKNOWN_UUID, ..card });
    reason("");
    assert_eq!(host.reason(&inventory, card.minor), "");

    host.information(Card { uuid: other.uuid, ..card });
    reason(&format!("at {} there is now {}", card.pci, other.uuid));
    host.information(Card { minor: 7, ..card });
    reason("its minor was 1 and is now 7");
    fs::remove_dir_all(host.path(format!("proc/driver/nvidia/gpus/{}", card.pci))).unwrap();
    reason("the driver no longer has it");

    let node = host.path("dev/nvidia1");
    fs::remove_file(&node).unwrap();
    reason("/dev/nvidia1 is gone");
    for (major, minor) in [(195, 2), (10, 1)] {
        fs::remove_file(&node).unwrap();
        host.node(1, major, minor);
        reason("is not the character device 195:1");
    }
    fs::remove_file(&node).unwrap();
    fs::write(&node, "").unwrap();
    reason("is not the character device 195:1");
}

#[test]
fn majors_are_read_fresh() {
    let host = Host::new();
    let majors = Majors::read(&host.root()).unwrap();
    assert_eq!(majors, Majors { nvidia: 195, uvm: Some(510), caps: None });
    host.write("proc/devices", "Character devices:\n  1 mem\n\nBlock devices:\n");
    assert_eq!(Majors::read(&host.root()).unwrap_err().exit, Exit::Gpu);
}
