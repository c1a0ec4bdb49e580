//! A test double of `libnvidia-ml.so.1`: a real shared object with NVML's C functions, for hosts
//! without a GPU. What it answers is in a file, [`CONFIG`], in the directory that the library was
//! loaded from; no environment is read, so that it works where the environment is cleared.
//!
//! Return codes and buffer rules are those of NVML's documentation. Where that is silent, the function
//! says "assumed".
//!
//! For tests in Rust this is also a library: [`Host`] is the file's content and [`Host::install`] puts
//! shared object and file into a directory.

mod exports;
mod limits;
mod state;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The name of the file, beside the library.
pub const CONFIG: &str = "fake-nvml.json";

/// Beside the library once [`Init::Hang`] hangs: the pid of the process that it hangs in.
pub const HANGING: &str = "fake-nvml.hanging";

/// The library's name, as a driver installs it.
pub const SONAME: &str = "libnvidia-ml.so.1";

/// What NVML sees.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The driver's version.
    pub driver: String,
    /// The GPUs; the place in the list is the NVML index.
    pub gpus: Vec<Gpu>,
    /// What `nvmlInit_v2` does.
    #[serde(default)]
    pub init: Init,
}

/// What `nvmlInit_v2` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// It works.
    #[default]
    Work,
    /// It never returns.
    Hang,
    /// It aborts the process.
    Crash,
    /// It prints to standard output and standard error, then works.
    Print,
    /// It returns this `nvmlReturn_t`.
    Fail(u32),
}

/// A physical GPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// `GPU-…`
    pub uuid: String,
    /// `0000:3b:00.0`; NVML itself writes it with an eight-digit domain and in capitals.
    pub pci: String,
    /// The device minor.
    pub minor: u32,
    /// Product name.
    pub name: String,
    /// Total memory in bytes; without it, the memory calls are not supported (integrated GPUs).
    pub memory: Option<u64>,
    /// `nvmlComputeMode_t`: 0 default, 2 prohibited, 3 exclusive process.
    #[serde(default)]
    pub compute_mode: u32,
    /// It fell off the bus: there is no handle of it any more.
    #[serde(default)]
    pub lost: bool,
    /// Can it be cut by MIG, is it, and into what?
    #[serde(default)]
    pub mig: Mig,
    /// Compute processes outside of MIG devices.
    #[serde(default)]
    pub processes: Vec<Process>,
}

/// Multi-instance GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mig {
    /// The GPU does not have it.
    #[default]
    Unsupported,
    /// The GPU has it; it is off.
    Disabled,
    /// It is on. The place in the list is the MIG index; `null` is a place with no device.
    Enabled(Vec<Option<MigDevice>>),
}

/// A compute instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigDevice {
    /// `MIG-…`
    pub uuid: String,
    /// `NVIDIA A100-SXM4-40GB MIG 1g.5gb`
    pub name: String,
    /// The GPU instance's id.
    pub gpu_instance: u32,
    /// The compute instance's id in it.
    pub compute_instance: u32,
    /// Total memory in bytes; without it, the memory calls are not supported.
    pub memory: Option<u64>,
    /// Compute processes on it.
    #[serde(default)]
    pub processes: Vec<Process>,
}

/// A process with a compute context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its pid on the host.
    pub pid: u32,
    /// GPU memory in bytes.
    pub memory: u64,
}

impl Host {
    /// Puts the library, as [`SONAME`], and this as its file into `dir`. Returns the library's path.
    ///
    /// # Errors
    /// Those of the file system, and "not found" where cargo has not built the shared object.
    pub fn install(&self, dir: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(dir)?;
        let library = dir.join(SONAME);
        fs::copy(built_library()?, &library)?;
        fs::set_permissions(&library, fs::Permissions::from_mode(0o755))?;
        self.write(dir)?;
        Ok(library)
    }

    /// Writes the file alone, for a host that changes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        fs::write(dir.join(CONFIG), serde_json::to_vec_pretty(self)?)
    }
}

/// The shared object that cargo built together with the running test or example.
fn built_library() -> io::Result<PathBuf> {
    const NAME: &str = "libfake_nvml.so";
    let program = std::env::current_exe()?;
    let dirs = program.ancestors().skip(1).take(2);
    let places: Vec<PathBuf> = dirs.flat_map(|dir| [dir.join("deps").join(NAME), dir.join(NAME)]).collect();
    places.iter().find(|place| place.exists()).cloned().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("none of {places:?} is there: `cargo build -p fake-nvml`"),
        )
    })
}
