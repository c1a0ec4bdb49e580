//! A simulated GPU host: a driver root, a pool file, a state directory, and a view to run things in.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::command::{Output, Running};
use super::container::Builder;
use super::driver;
use super::mig;
use super::runtime::Runtime;
use super::view::{Cgroups, View, script};

/// The version of the simulated driver.
pub const DRIVER: &str = "550.54.15";

/// The driver's major number of `/dev/nvidiactl` and `/dev/nvidia<minor>`.
pub const MAJOR: u32 = 195;

/// The major number of `/dev/dri/*`.
pub const DRM: u32 = 226;

/// The memory of every GPU: that of the product they are named after.
pub const MEMORY: u64 = 40 << 30;

/// Hosts live here: vgpu wants every directory above its files owned by root and not writable by
/// others, which `/tmp` is not; `/run` often is mounted `nodev`.
const BASE: &str = "/var/lib/vgpu-test";

/// A physical GPU of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// `0000:3b:00.0`
    pub pci: String,
    /// `/dev/nvidia<minor>`
    pub minor: u32,
    /// `GPU-…`
    pub uuid: String,
    /// The product name.
    pub name: String,
}

impl Gpu {
    /// `count` GPUs in order of PCI address, that is by index. The minors run the other way.
    pub fn several(count: u32) -> Vec<Self> {
        let pci = |index| match index {
            0 => "0000:3b:00.0".to_owned(),
            1 => "0000:86:00.0".to_owned(),
            n => format!("0000:{:02x}:00.0", 0x86 + n),
        };
        let gpu = |index| Self {
            pci: pci(index),
            minor: count - 1 - index,
            uuid: format!("GPU-5a6b7c8d-0000-1111-2222-{:012x}", 0x3333_4444_0000_u64 + u64::from(index)),
            name: "NVIDIA A100-SXM4-40GB".to_owned(),
        };
        (0..count).map(gpu).collect()
    }

    /// `/dev/nvidia<minor>`
    pub fn node(&self) -> String {
        format!("/dev/nvidia{}", self.minor)
    }

    /// Its nodes for graphics, as [`Host::load_graphics`] makes them: path, and number.
    pub fn graphics(&self) -> [(String, (u32, u32)); 2] {
        let (card, render) = (10 + self.minor, 150 + self.minor);
        [(format!("/dev/dri/card{card}"), (DRM, card)), (format!("/dev/dri/renderD{render}"), (DRM, render))]
    }
}

/// A simulated host. Dropping it ends everything that was started on it and removes all of its files.
pub struct Host {
    /// Its GPUs, in order of PCI address.
    pub gpus: Vec<Gpu>,
    name: String,
    dir: PathBuf,
    uvm_major: u32,
    caps_major: u32,
    view: View,
    containerd: OnceLock<Running>,
    setrlimit: OnceLock<String>,
    containers: AtomicU32,
}

/// What a host is to be like.
pub struct HostBuilder {
    cgroups: Cgroups,
    gpus: Vec<Gpu>,
    pool: Option<String>,
    nvml: bool,
}

impl HostBuilder {
    /// Other GPUs than the two.
    pub fn gpus(mut self, gpus: Vec<Gpu>) -> Self {
        self.gpus = gpus;
        self
    }

    /// With the driver's management library (its test double), in which every GPU has [`MEMORY`].
    /// Without it, procfs alone tells what GPUs there are.
    pub fn nvml(mut self) -> Self {
        self.nvml = true;
        self
    }

    /// Another pool file: everything but `state_dir` and `driver_root`, which stand in front of it.
    pub fn pool(mut self, text: impl Into<String>) -> Self {
        self.pool = Some(text.into());
        self
    }

    /// Makes the host.
    pub fn build(self) -> Host {
        assert!(rustix::process::geteuid().is_root(), "needs root: makes device nodes, mounts and cgroups");
        let (name, dir) = new_directory();
        let [uvm_major, caps_major] = free_majors();
        driver_root(&dir.join("driver_root"), &self.gpus, uvm_major, caps_major);
        driver::install_required(&dir.join("driver_root"), DRIVER);
        if self.nvml {
            let library = nvml(&self.gpus).install(&dir.join("driver_root").join(driver::LIBRARIES));
            library.unwrap_or_else(|e| panic!("the test double of NVML: {e}"));
        }
        make_dir(&dir.join("state"));
        make_dir(&dir.join("containers"));
        let view = View::new(self.cgroups, &name, &dir);
        let host = Host {
            name,
            dir,
            uvm_major,
            caps_major,
            view,
            gpus: self.gpus,
            containerd: OnceLock::new(),
            setrlimit: OnceLock::new(),
            containers: AtomicU32::new(0),
        };
        host.write_pool(&self.pool.unwrap_or_else(|| quarters(&host.gpus)));
        host
    }
}

impl Host {
    /// Two GPUs whose index and minor are permuted, each cut into four of type `small`
    /// (10 GiB, 25 %), which is also the type of a request that names none.
    pub fn new(cgroups: Cgroups) -> Self {
        Self::builder(cgroups).build()
    }

    /// A host like that, to be changed.
    pub fn builder(cgroups: Cgroups) -> HostBuilder {
        HostBuilder { cgroups, gpus: Gpu::several(2), pool: None, nvml: false }
    }

    /// A new container, to be described and created.
    pub fn container(&self, runtime: Runtime) -> Builder<'_> {
        let n = self.containers.fetch_add(1, Ordering::Relaxed);
        Builder::new(self, runtime, format!("{}-c{n}", self.name))
    }

    /// Runs `vgpu --config <pool file> ARGS` in the host's view.
    pub fn vgpu(&self, args: &[&str]) -> Output {
        self.vgpu_with_input(args, b"")
    }

    /// The same with standard input.
    pub fn vgpu_with_input(&self, args: &[&str], stdin: &[u8]) -> Output {
        let pool = self.pool_file();
        let command = [VGPU, "--config", &pool];
        self.view.start(&[&command, args].concat(), stdin).wait()
    }

    /// `vgpu status --json`
    pub fn status(&self) -> serde_json::Value {
        let output = self.vgpu(&["status", "--json"]).ok();
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output}"))
    }

    /// The command line of a hook: `hook createRuntime`, `hook poststop`.
    pub fn hook(&self, stage: &str) -> Vec<String> {
        [VGPU, "--config", &self.pool_file(), "hook", stage].map(str::to_owned).to_vec()
    }

    /// Runs a hook by hand, with this OCI state.
    pub fn run_hook(&self, stage: &str, state: &str) -> Output {
        self.vgpu_with_input(&["hook", stage], state.as_bytes())
    }

    /// Replaces the pool file: all of it but `state_dir` and `driver_root`.
    pub fn write_pool(&self, text: &str) {
        let (state, root) = (self.state_dir(), self.driver_root());
        let header = format!("state_dir = {state:?}\ndriver_root = {root:?}\n");
        fs::write(self.dir.join("pool.toml"), header + text).expect("pool.toml");
    }

    /// The pool file.
    pub fn pool_file(&self) -> String {
        self.dir.join("pool.toml").to_str().expect("UTF-8").to_owned()
    }

    /// Where vgpu keeps its state.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Replaces the driver by one of another version, with all its files.
    pub fn upgrade_driver(&self, to: &str) {
        driver::uninstall(&self.driver_root());
        driver::install_all(&self.driver_root(), to);
        fs::write(self.driver_root().join("proc/driver/nvidia/version"), version(to)).expect("version");
    }

    /// Loads the modules nvidia-drm and nvidia-modeset: GPUs have nodes for graphics. So has another one, which is
    /// not NVIDIA's: `card0`.
    pub fn load_graphics(&self) {
        let root = self.driver_root();
        make_dir(&root.join("dev/dri"));
        make_dir(&root.join("sys/module/nvidia_drm"));
        make_node(&root.join("dev/nvidia-modeset"), MAJOR, 254);
        let node = |pci: &str, path: &str, (major, minor): (u32, u32)| {
            make_node(&root.join(&path[1..]), major, minor);
            let name = path.rsplit('/').next().expect("a name");
            let dir = root.join("sys/bus/pci/devices").join(pci).join("drm").join(name);
            make_dir(&dir);
            fs::write(dir.join("dev"), format!("{major}:{minor}\n")).expect("sysfs");
        };
        node("0000:00:02.0", "/dev/dri/card0", (DRM, 0));
        for gpu in &self.gpus {
            gpu.graphics().iter().for_each(|(path, number)| node(&gpu.pci, path, *number));
        }
    }

    /// Where the driver's files are.
    pub fn driver_root(&self) -> PathBuf {
        self.dir.join("driver_root")
    }

    /// The host's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The host's name: also that of its top cgroup.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where programs of the host run.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The major number of `/dev/nvidia-uvm`.
    pub fn uvm_major(&self) -> u32 {
        self.uvm_major
    }

    /// The major number of `/dev/nvidia-caps/nvidia-cap<N>`.
    pub fn caps_major(&self) -> u32 {
        self.caps_major
    }

    /// Gives the driver an NVML library, which lists these GPUs in this order, each of 40 GiB.
    pub fn install_nvml(&self, gpus: &[&Gpu]) {
        let gpu = |gpu: &&Gpu| fake_nvml::Gpu {
            uuid: gpu.uuid.clone(),
            pci: gpu.pci.clone(),
            minor: gpu.minor,
            name: gpu.name.clone(),
            memory: Some(40 << 30),
            ..fake_nvml::Gpu::default()
        };
        let gpus = gpus.iter().map(gpu).collect();
        let nvml = fake_nvml::Host { driver: DRIVER.to_owned(), gpus, ..fake_nvml::Host::default() };
        nvml.install(&self.driver_root().join("usr/lib64")).expect("the test double of NVML");
    }

    /// The socket of the host's own containerd, which is started on first use.
    pub fn containerd(&self) -> String {
        let dir = self.dir.join("containerd");
        let socket = dir.join("sock").to_str().expect("UTF-8").to_owned();
        self.containerd.get_or_init(|| {
            make_dir(&dir);
            let config = dir.join("config.toml");
            fs::write(&config, containerd_config(&dir)).expect("containerd's configuration");
            let daemon = self.view.start(&["containerd", "--config", config.to_str().expect("UTF-8")], b"");
            super::wait::for_file(daemon.stderr_file(), "containerd to be ready", |log| {
                log.contains("containerd successfully booted")
            });
            daemon
        });
        socket
    }

    /// The library that makes `setrlimit` succeed for crun (see `setrlimit.c`), built on first use.
    pub fn setrlimit_library(&self) -> &str {
        self.setrlimit.get_or_init(|| {
            let library = self.dir.join("setrlimit.so").to_str().expect("UTF-8").to_owned();
            let source = script("setrlimit.c");
            let source = source.to_str().expect("UTF-8");
            self.view.run(&["gcc", "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", &library, source]).ok();
            library
        })
    }
}

/// The binary under test.
const VGPU: &str = env!("CARGO_BIN_EXE_vgpu");

/// A new directory for a host, and the name of it.
fn new_directory() -> (String, PathBuf) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("vgpu-test-{}-{n}", std::process::id());
    let dir = Path::new(BASE).join(&name);
    make_dir(&dir);
    (name, dir)
}

/// A directory that root alone may write and everybody may enter, whatever the umask is.
pub fn make_dir(path: &Path) {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
}

/// Makes a character device node that everybody may read and write, as the driver does.
pub fn make_node(path: &Path, major: u32, minor: u32) {
    mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), makedev(major, minor))
        .unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).expect("chmod");
}

/// Two major numbers that nothing on this machine answers to, so that an open that is allowed ends in ENXIO.
/// The kernel hands out numbers from 511 and 254 downwards, as it does for the real nvidia-uvm.
fn free_majors() -> [u32; 2] {
    let devices = fs::read_to_string("/proc/devices").expect("/proc/devices");
    let characters = devices.split("Block devices:").next().expect("a first part");
    let taken: Vec<u32> =
        characters.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    let mut free = (384..512).rev().filter(|major| !taken.contains(major));
    [(); 2].map(|()| free.next().expect("a free major number"))
}

/// What the driver shows of itself, in the driver's own format.
fn driver_root(root: &Path, gpus: &[Gpu], uvm_major: u32, caps_major: u32) {
    let (dev, proc) = (root.join("dev"), root.join("proc/driver/nvidia"));
    make_dir(&dev);
    make_node(&dev.join("nvidiactl"), MAJOR, 255);
    make_node(&dev.join("nvidia-uvm"), uvm_major, 0);
    make_node(&dev.join("nvidia-uvm-tools"), uvm_major, 1);
    make_dir(&proc);
    fs::write(proc.join("version"), version(DRIVER)).expect("version");
    fs::write(proc.join("params"), PARAMS).expect("params");
    fs::write(proc.join("registry"), "Binary: \"\"\n").expect("registry");
    fs::write(root.join("proc/devices"), proc_devices(uvm_major, caps_major)).expect("devices");
    make_dir(&root.join("proc/driver/nvidia-caps"));
    fs::write(root.join("proc/driver/nvidia-caps/mig-minors"), mig::minors_file()).expect("minors");
    for gpu in gpus {
        make_node(&dev.join(format!("nvidia{}", gpu.minor)), MAJOR, gpu.minor);
        let dir = proc.join("gpus").join(&gpu.pci);
        make_dir(&dir);
        fs::write(dir.join("information"), information(gpu)).expect("information");
        fs::write(dir.join("registry"), "Binary: \"\"\n").expect("registry");
        fs::write(dir.join("power"), "Runtime D3 status:          Disabled by default\n").expect("power");
    }
}

/// The same GPUs as NVML sees them: its index is the order of PCI addresses.
fn nvml(gpus: &[Gpu]) -> fake_nvml::Host {
    let gpu = |gpu: &Gpu| fake_nvml::Gpu {
        uuid: gpu.uuid.clone(),
        pci: gpu.pci.clone(),
        minor: gpu.minor,
        name: gpu.name.clone(),
        memory: Some(MEMORY),
        ..fake_nvml::Gpu::default()
    };
    fake_nvml::Host { driver: DRIVER.to_owned(), gpus: gpus.iter().map(gpu).collect(), ..Default::default() }
}

/// Some of the module's parameters.
const PARAMS: &str = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\n\
    DeviceFileMode: 438\nPreserveVideoMemoryAllocations: 0\n";

fn version(driver: &str) -> String {
    format!(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Mar  5 22:23:56 UTC 2024\n\
         GCC version:  gcc version 12.2.0 (Debian 12.2.0-14) \n"
    )
}

fn proc_devices(uvm_major: u32, caps_major: u32) -> String {
    format!(
        "Character devices:\n  1 mem\n  5 /dev/tty\n136 pts\n{MAJOR} nvidia-frontend\n\
         {uvm_major} nvidia-uvm\n{caps_major} nvidia-caps\n\nBlock devices:\n259 blkext\n  8 sd\n"
    )
}

fn information(gpu: &Gpu) -> String {
    let Gpu { pci, minor, uuid, name } = gpu;
    format!(
        "Model: \t\t {name}\n\
         IRQ:   \t\t 194\n\
         GPU UUID: \t {uuid}\n\
         Video BIOS: \t 92.00.45.00.03\n\
         Bus Type: \t PCIe\n\
         DMA Size: \t 47 bits\n\
         DMA Mask: \t 0x7fffffffffff\n\
         Bus Location: \t {pci}\n\
         Device Minor: \t {minor}\n\
         GPU Firmware: \t {DRIVER}\n\
         GPU Excluded:\t No\n"
    )
}

/// Every GPU cut into four of `small`.
fn quarters(gpus: &[Gpu]) -> String {
    let head = "[request]\ndefault_type = \"small\"\n\n\
                [[type]]\nname = \"small\"\nmemory = \"10GiB\"\ncompute = 25\n";
    let gpu = |gpu: &Gpu| format!("\n[[gpu]]\nuuid = {:?}\nvgpus = {{ small = 4 }}\n", gpu.uuid);
    head.to_owned() + &gpus.iter().map(gpu).collect::<String>()
}

/// Everything of the daemon in `dir`, and nothing loaded that the tests do not use.
fn containerd_config(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "version = 2\nroot = \"{dir}/root\"\nstate = \"{dir}/state\"\n\
         disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.internal.v1.opt\",\n\
         \x20 \"io.containerd.snapshotter.v1.aufs\", \"io.containerd.snapshotter.v1.btrfs\",\n\
         \x20 \"io.containerd.snapshotter.v1.devmapper\", \"io.containerd.snapshotter.v1.zfs\"]\n\
         [grpc]\naddress = \"{dir}/sock\"\n[ttrpc]\naddress = \"{dir}/ttrpc\"\n"
    )
}
