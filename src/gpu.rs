//! What the host has: physical GPUs by UUID, read once per boot and checked in microseconds after
//! that. Reads below `driver_root` and never writes there; writes one file into `state_dir`.
//!
//! ```text
//!  load_or_discover ── cache ──► the inventory of this boot, driver and set of MIG devices
//!         │ stale
//!         ▼
//!      refresh ─► discover ─► NVML, read by a process of its own (probe)
//!                        └──► procfs alone, where the driver brings no NVML
//! ```

mod cache;
mod check;
mod drm;
mod linker;
mod mig;
mod nvml;
mod probe;
mod procfs;
mod root;

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Exit, Result};
use crate::types::{Bytes, DeviceNumber, GpuUuid, MigUuid, PciAddress};

pub use check::Unusable;
pub use drm::{DRM_MAJOR, DrmNode};
pub use linker::LinkerCache;
pub use mig::{Capabilities, MigDevice};
pub use probe::{PROBE_ARGS, PROBE_LIMIT, Probe, answer_probe};
pub use procfs::Majors;
pub use root::{DriverRoot, library_dirs};

/// The major of `/dev/nvidia<minor>` and `/dev/nvidiactl`: fixed, Linux `devices.txt`.
pub const NVIDIA_MAJOR: u32 = 195;

/// The host's physical GPUs, in order of PCI address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// Version of the loaded driver, `550.54.15`.
    pub driver: String,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// Capability nodes of MIG; none where no GPU is in MIG mode.
    #[serde(default, skip_serializing_if = "Capabilities::is_empty")]
    pub capabilities: Capabilities,
}

impl Inventory {
    /// The numbers of all nodes that can make a GPU reachable, those of GPUs and MIG devices included that are not
    /// in the inventory: NVML left them out, or they came later.
    pub fn numbers(&self, majors: &Majors) -> impl Iterator<Item = DeviceNumber> {
        let gpus = (0..=255).map(|minor| DeviceNumber { major: majors.nvidia, minor });
        let caps = majors
            .caps
            .into_iter()
            .flat_map(|major| (1..=self.capabilities.last).map(move |minor| DeviceNumber { major, minor }));
        gpus.chain(caps).chain(self.gpus.iter().flat_map(|gpu| &gpu.drm).map(|node| node.number))
    }

    /// A MIG device of a GPU, if it is there.
    pub fn mig_device(&self, gpu: &GpuUuid, uuid: &MigUuid) -> Option<&MigDevice> {
        let gpu = self.gpus.iter().find(|one| one.uuid == *gpu)?;
        gpu.mig.iter().flatten().find(|device| device.uuid == *uuid)
    }
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
    /// Its MIG devices; `None` where it is not in MIG mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Vec<MigDevice>>,
    /// Its nodes for graphics; none while the module nvidia-drm is not loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drm: Vec<DrmNode>,
}

impl Gpu {
    /// Its node, relative to the driver's root: `dev/nvidia1`.
    pub fn node(&self) -> String {
        format!("dev/nvidia{}", self.minor)
    }
}

/// What a discovery found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The GPUs that can be used.
    pub inventory: Inventory,
    /// GPUs that were left out, each with the reason, one line each.
    pub warnings: Vec<String>,
}

/// GPUs, and lines about those that could not be read: what NVML or procfs answer.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Listed {
    gpus: Vec<Gpu>,
    left_out: Vec<String>,
}

/// The inventory: the cached one where it is still true, a new one otherwise. `state_dir` is
/// trusted by the caller; `shown` is its path, for messages.
///
/// # Errors
/// Those of [`refresh`], and [`Exit::Gpu`] where no driver is loaded.
pub fn load_or_discover(
    state_dir: BorrowedFd<'_>,
    shown: &Path,
    root: &DriverRoot,
    probe: &Probe<'_>,
) -> Result<Found> {
    let key = cache::Key::read(root)?;
    match cache::load(state_dir, &key) {
        Some(found) => Ok(found),
        None => discover_and_store(state_dir, shown, root, probe, key),
    }
}

/// The same, and nothing is cached.
///
/// # Errors
/// Those of [`discover`].
pub fn load_or_look(
    state_dir: Option<BorrowedFd<'_>>,
    root: &DriverRoot,
    probe: &Probe<'_>,
) -> Result<Found> {
    let cached = match state_dir {
        Some(dir) => cache::load(dir, &cache::Key::read(root)?),
        None => None,
    };
    cached.map_or_else(|| discover(root, probe), Ok)
}

/// Discovers anew, whatever is cached, and caches what was found.
///
/// # Errors
/// Those of [`discover`], and [`Exit::Io`] where the cache cannot be written.
pub fn refresh(
    state_dir: BorrowedFd<'_>,
    shown: &Path,
    root: &DriverRoot,
    probe: &Probe<'_>,
) -> Result<Found> {
    let key = cache::Key::read(root)?;
    discover_and_store(state_dir, shown, root, probe, key)
}

/// `key` was read before the discovery: what changes in between makes the cache stale, not wrong.
fn discover_and_store(
    state_dir: BorrowedFd<'_>,
    shown: &Path,
    root: &DriverRoot,
    probe: &Probe<'_>,
    key: cache::Key,
) -> Result<Found> {
    let found = discover(root, probe)?;
    cache::store(state_dir, shown, key, &found)?;
    Ok(found)
}

/// Reads what the host has, from NVML, or from procfs where there is no NVML library.
///
/// # Errors
/// [`Exit::Gpu`] where there is no driver, NVML fails, crashes or takes too long, or procfs alone
/// does not know a GPU's UUID; [`Exit::Untrusted`] where others than root could have written the
/// NVML library; [`Exit::Io`].
pub fn discover(root: &DriverRoot, probe: &Probe<'_>) -> Result<Found> {
    let driver = procfs::driver_version(root)?;
    let listed = match nvml::Library::find(root)? {
        Some(library) => with_unlisted(probe.run(library, &driver)?, procfs::addresses(root)?),
        None => from_procfs(root)?,
    };
    let Listed { mut gpus, left_out } = listed;
    gpus.sort_by_key(|gpu| gpu.pci);
    for gpu in &mut gpus {
        gpu.drm = drm::nodes(root, gpu.pci)?;
    }
    let in_mig_mode = |gpu: &Gpu| gpu.mig.is_some().then_some(gpu.minor);
    let capabilities = mig::capabilities(root, &gpus.iter().filter_map(in_mig_mode).collect::<Vec<_>>())?;
    Ok(Found { inventory: Inventory { driver, gpus, capabilities }, warnings: left_out })
}

/// Names the GPUs that the driver has and NVML does not give: lost, excluded or broken ones. NVML
/// itself often cannot say which it is that it cannot open.
fn with_unlisted(mut listed: Listed, addresses: Vec<PciAddress>) -> Listed {
    let given: BTreeSet<PciAddress> = listed.gpus.iter().map(|gpu| gpu.pci).collect();
    let missing = addresses.into_iter().filter(|pci| !given.contains(pci));
    listed.left_out.extend(missing.map(|pci| {
        format!("GPU {pci} is left out: the driver has it, NVML does not give it; once it is back, run `vgpu discover`")
    }));
    listed
}

/// The inventory without NVML: all but memory.
fn from_procfs(root: &DriverRoot) -> Result<Listed> {
    let mut listed = Listed::default();
    let instances = mig::instances(root)?;
    for pci in procfs::addresses(root)? {
        match procfs::information(root, pci)? {
            Err(reason) => listed.left_out.push(format!("GPU {pci} is left out: {reason}")),
            Ok(known) if known.excluded => {
                listed.left_out.push(format!("GPU {pci} is left out: the driver was told to exclude it"));
            }
            Ok(known) => {
                let mut gpu = known.into_gpu(pci)?;
                let its = format!("gpu{}/", gpu.minor);
                if instances.iter().any(|name| name.starts_with(&its)) {
                    gpu.mig = Some(Vec::new());
                    listed.left_out.push(format!(
                        "the MIG devices of GPU {pci} are left out: their UUIDs and profiles are NVML's to say, and \
                         there is no NVML library"
                    ));
                }
                listed.gpus.push(gpu);
            }
        }
    }
    Ok(listed)
}

impl procfs::Information {
    fn into_gpu(self, pci: PciAddress) -> Result<Gpu> {
        let unknown = || {
            Error::new(
                Exit::Gpu,
                format!(
                    "the driver does not know the UUID of GPU {pci} yet, and there is no NVML library to ask: \
                     start nvidia-persistenced or run `nvidia-smi -pm 1`, which initialise the GPU"
                ),
            )
        };
        let uuid = self.uuid.ok_or_else(unknown)?;
        Ok(Gpu { uuid, pci, minor: self.minor, name: self.model, memory: None, mig: None, drm: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_nvml_does_not_give_is_named() {
        let pci: Vec<PciAddress> = ["0000:3b:00.0", "0000:af:00.0"].map(|t| t.parse().unwrap()).into();
        let gpu = Gpu {
            uuid: "GPU-5a6b7c8d-0000-1111-2222-333344445555".parse().unwrap(),
            pci: pci[1],
            minor: 0,
            name: "x".into(),
            memory: None,
            mig: None,
            drm: Vec::new(),
        };
        let listed = with_unlisted(Listed { gpus: vec![gpu], left_out: vec![] }, pci);
        assert_eq!(listed.left_out.len(), 1);
        assert!(listed.left_out[0].contains("0000:3b:00.0"), "{:?}", listed.left_out);
    }
}
