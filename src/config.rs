//! pool.toml: read strictly, every error at once, with line, column and remedy. Pure, except for
//! [`read`], which opens the file and checks on the descriptor that it may be trusted.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::gpu::{Gpu, Inventory};
use crate::types::{Bytes, GpuUuid, PciAddress, Percent, TypeName, VgpuId};

/// Where the pool file is unless `--config` says otherwise. No environment variable moves it.
pub const DEFAULT_PATH: &str = "/etc/vgpu/pool.toml";

/// pool.toml as written: checked in itself, not yet held against the host's GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFile {
    /// Where leases, inventory and log are kept.
    pub state_dir: PathBuf,
    /// Below it `dev/`, `proc/driver/nvidia` and the driver's libraries are found.
    pub driver_root: PathBuf,
    /// `[request]`
    pub request: RequestPolicy,
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
    /// Memory of one vGPU.
    pub memory: Bytes,
    /// Share of one GPU's SMs.
    pub compute: Percent,
}

/// `[[gpu]]`: which physical GPUs, and what each of them is cut into.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuEntry {
    /// Which GPUs the entry is about.
    pub select: Select,
    /// What each is cut into, in the file's order.
    pub vgpus: Vec<(TypeName, u32)>,
    /// Where the entry begins in the file, in bytes, for messages.
    pub at: usize,
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
    /// Its virtual GPUs, in the file's order, n ascending.
    pub vgpus: Vec<Vgpu>,
}

/// One virtual GPU of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Vgpu {
    /// Its id.
    pub id: VgpuId,
    /// Its memory.
    pub memory: Bytes,
    /// Its share of the GPU's SMs.
    pub compute: Percent,
}

impl PoolFile {
    /// Cuts the host's GPUs as the file says.
    pub fn cut(&self, _inventory: &Inventory) -> Table {
        todo!()
    }
}
