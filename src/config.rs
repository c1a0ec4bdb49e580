//! pool.toml: read strictly, every error at once, with line, column and remedy. Pure, except for
//! [`read`] and [`load`], which open the file and check on the descriptor that it may be trusted.

use std::fs::File;
use std::io::Read;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::driver::Grant;
use crate::error::{Error, Exit, OrExit, Result};
use crate::files;
use crate::gpu::{Gpu, MigDevice};
use crate::trust::open_trusted;
use crate::types::{Bytes, GpuUuid, MigProfile, PciAddress, Percent, TypeName, VgpuId};

mod cut;
mod document;
mod parse;
mod problem;
mod propose;

pub use parse::{parse, parse_recoverable};
pub use problem::{Place, Problem, command, refusal};
pub use propose::propose;

/// Where the pool file is unless `--config` says otherwise. No environment variable moves it.
pub const DEFAULT_PATH: &str = "/etc/vgpu/pool.toml";

/// Where leases, inventory and log are kept unless the pool file says otherwise.
pub const DEFAULT_STATE_DIR: &str = "/run/vgpu";

/// The commented sample: every key with its default.
pub const SAMPLE: &str = include_str!("../config/pool.toml");

/// The largest pool file that is read, in bytes. A thousand GPUs need a tenth of it.
const MAX_SIZE: u64 = 1 << 20;

/// What most pool files fit in, in bytes.
const USUAL: usize = 8 << 10;

/// pool.toml as written: checked in itself, not yet held against the host's GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFile {
    /// Where leases, inventory and log are kept.
    pub state_dir: PathBuf,
    /// Below it `dev/`, `proc/driver/nvidia` and the driver's libraries are found.
    pub driver_root: PathBuf,
    /// Are the driver's optional files that are missing kept in the log, too?
    pub debug: bool,
    /// `[request]`
    pub request: RequestPolicy,
    /// `[driver]`: what containers may need the driver for.
    pub driver: Grant,
    /// `[policy]`
    pub policy: Policy,
    /// `[[type]]`, in the file's order.
    pub types: Vec<VgpuType>,
    /// `[[gpu]]`, in the file's order.
    pub gpus: Vec<GpuEntry>,
}

/// `[request]`: what containers may ask for, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestPolicy {
    /// The type of a request that names only a count.
    pub default_type: Option<TypeName>,
    /// May the container's environment ask, or only annotations?
    pub allow_env: bool,
    /// The most vGPUs one container may have.
    pub max_per_container: Option<NonZeroU32>,
}

/// `[policy]`
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Which GPU is taken first.
    pub placement: Placement,
    /// How long a command waits for the pool's lock.
    pub lock_timeout: Duration,
    /// May the vGPUs of a GPU add up to more than the GPU?
    pub overcommit: bool,
    /// May a container with a lease also have GPUs by other ways (privileged, own device list)?
    pub allow_other_access: bool,
}

/// Which GPU is taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Fill a GPU before opening the next.
    Pack,
    /// The least used GPU first.
    Spread,
}

/// `[[type]]`
#[derive(Clone, Debug, PartialEq)]
pub struct VgpuType {
    /// Its name.
    pub name: TypeName,
    /// What its vGPUs are.
    pub is: Kind,
}

impl VgpuType {
    /// Are its vGPUs those of workers?
    pub fn is_remote(&self) -> bool {
        matches!(&self.is, Kind::Share(share) if share.isolation.is_remote())
    }
}

/// What the vGPUs of a type are.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Shares of GPUs, as many as `vgpus` says.
    Share(Share),
    /// All MIG devices of this profile. Nobody cuts them here: they are there, and the profile says what they have.
    Mig(MigProfile),
}

/// A share of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Memory of one vGPU.
    pub memory: Bytes,
    /// Share of one GPU's SMs.
    pub compute: Percent,
    /// How its holder is kept from the others of that GPU.
    pub isolation: Isolation,
}

/// How a container uses its share of a GPU (row A8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// It has the GPU's nodes and the driver's files, and nothing keeps it to its share.
    #[default]
    None,
    /// It has neither: a worker process on the host computes for it alone, and keeps it to its memory.
    Remote,
}

impl Isolation {
    /// Does a worker stand between container and GPU?
    pub fn is_remote(&self) -> bool {
        *self == Self::Remote
    }

    /// Is there nothing to be told of it?
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// `[[gpu]]`: which physical GPUs, and what each of them is cut into. A GPU in MIG mode is cut already: its vGPUs are its
/// MIG devices, whatever `vgpus` says.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuEntry {
    /// Which GPUs the entry is about.
    pub select: Select,
    /// What each is cut into, in the file's order; nothing where only MIG devices are wanted.
    pub vgpus: Vec<(TypeName, u32)>,
    /// Where `select` is written, for messages.
    pub at: Place,
    /// Where `vgpus` is written, or else `select`, for messages.
    pub vgpus_at: Place,
}

/// How an entry names its GPUs.
#[derive(Clone, Debug, PartialEq)]
pub enum Select {
    /// The GPU with this UUID.
    Uuid(GpuUuid),
    /// The GPU at this address.
    Pci(PciAddress),
    /// Every GPU whose product name matches; `*` stands for any text.
    Product(String),
}

/// The correspondence table (row A5): each physical GPU and the virtual GPUs cut from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// In the order of the file's entries; GPUs of one entry in the inventory's order.
    pub gpus: Vec<CutGpu>,
    /// Entries that match no GPU of this host, as written (`uuid = "GPU-…"`).
    pub absent: Vec<String>,
}

/// One physical GPU and what it is cut into.
#[derive(Clone, Debug, PartialEq)]
pub struct CutGpu {
    /// The physical GPU.
    pub gpu: Gpu,
    /// Its virtual GPUs, by type in the file's order, then by number or place.
    pub vgpus: Vec<Vgpu>,
}

/// One virtual GPU of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Vgpu {
    /// Its id.
    pub id: VgpuId,
    /// Its memory.
    pub memory: Bytes,
    /// Its share of the GPU's SMs; none for a MIG device, whose profile says what it has.
    pub compute: Option<Percent>,
    /// How its holder is kept from the others of that GPU.
    pub isolation: Isolation,
    /// The MIG device that it is.
    pub mig: Option<MigDevice>,
}

/// A type that some GPU of the host gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Offered<'a> {
    /// Its name.
    pub name: &'a TypeName,
    /// What each of its vGPUs has at least: MIG devices of one profile differ from product to product.
    pub memory: Bytes,
    /// The share of a GPU's SMs; none for MIG devices.
    pub compute: Option<Percent>,
    /// How its holders are kept from the others of a GPU.
    pub isolation: Isolation,
}

impl Default for PoolFile {
    /// What an empty file says.
    fn default() -> Self {
        Self {
            state_dir: DEFAULT_STATE_DIR.into(),
            driver_root: "/".into(),
            debug: false,
            request: RequestPolicy::default(),
            driver: Grant::default(),
            policy: Policy::default(),
            types: Vec::new(),
            gpus: Vec::new(),
        }
    }
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self { default_type: None, allow_env: true, max_per_container: None }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            placement: Placement::Pack,
            lock_timeout: Duration::from_secs(10),
            overcommit: false,
            allow_other_access: false,
        }
    }
}

/// Reads the pool file.
///
/// # Errors
/// As [`load`]; and [`Exit::PoolFile`] with the first problem when the text is wrong.
pub fn read(path: &Path) -> Result<PoolFile> {
    parse(&load(path)?).map_err(|problems| refusal(path, &problems))
}

/// The text of the pool file, from a file that may be trusted.
///
/// # Errors
/// [`Exit::PoolFile`] when there is none, [`Exit::Untrusted`] when anybody but root could have
/// written it, and those of [`text_of`].
pub fn load(path: &Path) -> Result<String> {
    let missing = || {
        let init = problem::command(path, "config init");
        Error::new(Exit::PoolFile, format!("there is no {}; write one with `{init}`", path.display()))
    };
    text_of(open_trusted(path)?.ok_or_else(missing)?, path)
}

/// All of an opened pool file, whoever wrote it.
///
/// # Errors
/// [`Exit::PoolFile`] when it is larger than 1 MiB or no UTF-8, [`Exit::Io`] when it cannot be read.
pub fn text_of(file: File, path: &Path) -> Result<String> {
    let shown = path.display();
    let bytes =
        files::whole(file.take(MAX_SIZE + 1), USUAL).or_exit(Exit::Io, || format!("cannot read {shown}"))?;
    if bytes.len() as u64 > MAX_SIZE {
        let line = format!("{shown} is larger than 1 MiB, so it is not a pool file; see `--config`");
        return Err(Error::new(Exit::PoolFile, line));
    }
    String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].split(|b| *b == b'\n').count();
        Error::new(Exit::PoolFile, format!("{shown}:{line}: this is not UTF-8; save the file as UTF-8"))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::types::MigInstance;

    /// The host's i-th GPU.
    pub(crate) fn gpu(i: u32, name: &str, memory: Option<u64>) -> Gpu {
        Gpu {
            uuid: format!("GPU-0000000{i}-0000-0000-0000-000000000000").parse().unwrap(),
            pci: format!("0000:0{i}:00.0").parse().unwrap(),
            minor: i,
            name: name.into(),
            memory: memory.map(Bytes),
            mig: None,
            drm: Vec::new(),
        }
    }

    /// The same in MIG mode, with a device for each of these profiles on a GPU instance of its own, from 1.
    pub(crate) fn in_mig_mode(i: u32, name: &str, profiles: &[(&str, u64)]) -> Gpu {
        let device = |(gi, (profile, memory)): (u32, &(&str, u64))| MigDevice {
            uuid: format!("MIG-0000000{i}-0000-0000-0000-00000000000{gi}").parse().unwrap(),
            instance: MigInstance { gi, ci: 0 },
            profile: profile.parse().unwrap(),
            memory: Bytes(*memory),
        };
        let mig = (1..).zip(profiles).map(device).collect();
        Gpu { mig: Some(mig), ..gpu(i, name, Some(40 << 30)) }
    }

    fn trusted(text: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.toml");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    fn refused(text: &[u8]) -> String {
        let (_directory, path) = trusted(text);
        let error = read(&path).unwrap_err();
        assert_eq!(error.exit, Exit::PoolFile, "{error}");
        error.to_string().replace(path.to_str().unwrap(), "pool.toml")
    }

    #[test]
    #[ignore = "needs root: a pool file is trusted only when it is root's"]
    fn a_file_is_read_or_refused_in_one_line() {
        let (_directory, path) = trusted(SAMPLE.as_bytes());
        assert_eq!(read(&path), Ok(parse(SAMPLE).unwrap()));
        let line = "pool.toml:2:1: unknown key \"a\"; the keys here are state_dir, driver_root, debug, request, driver, policy, type, gpu";
        assert_eq!(refused(b"\na = 1\n"), line);
        let more = " (and 1 more: `vgpu --config pool.toml config check`)";
        assert_eq!(refused(b"\na = 1\nb = 1\n"), format!("{line}{more}"));
        assert_eq!(refused(b"a\n\xff\n"), "pool.toml:2: this is not UTF-8; save the file as UTF-8");
        assert!(refused(&[b'#'; (1 << 20) + 1]).contains("larger than 1 MiB"));
        let (_directory, path) = trusted(&[b'#'; 1 << 20]);
        assert!(read(&path).is_ok());
    }

    #[test]
    fn no_file_is_an_error_that_says_how_to_make_one() {
        let error = read(Path::new("/etc/vgpu-is-not-here/pool.toml")).unwrap_err();
        assert_eq!(error.exit, Exit::PoolFile);
        assert_eq!(
            error.to_string(),
            "there is no /etc/vgpu-is-not-here/pool.toml; write one with `vgpu --config /etc/vgpu-is-not-here/pool.toml config init`"
        );
    }
}
