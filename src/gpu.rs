//! What the host has: physical GPUs by UUID. Reads `driver_root`; never writes there.

use serde::{Deserialize, Serialize};

use crate::types::{Bytes, GpuUuid, PciAddress};

/// The host's physical GPUs, in order of PCI address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// Version of the loaded driver, `550.54.15`.
    pub driver: String,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
}

/// One physical GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// What identifies it.
    pub uuid: GpuUuid,
    /// Where it sits.
    pub pci: PciAddress,
    /// The driver's device minor: `/dev/nvidia<minor>`. Neither the NVML nor the CUDA index.
    pub minor: u32,
    /// Product name, `NVIDIA A100-SXM4-40GB`.
    pub name: String,
    /// Total memory; unknown without NVML.
    pub memory: Option<Bytes>,
}
