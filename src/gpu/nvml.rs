//! NVML: its library, found below the driver's root and trusted on the descriptor, and what it says of
//! the GPUs. [`read`] runs foreign code and may hang or crash: only [`super::probe`] calls it, in a
//! process of its own.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{DriverRoot, Gpu, LinkerCache, Listed, MigDevice, library_dirs};
use crate::error::{Exit, OrExit, Result, quoted};
use crate::ldcache::flags;
use crate::sys;
use crate::trust::check_file;
use crate::types::{Bytes, MigProfile, PciAddress};

/// The name that every driver since NVML's first gives its library.
const NAME: &str = "libnvidia-ml.so.1";

/// The driver's NVML library: an open file that only root can have written.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) file: OwnedFd,
    /// Its path, for messages; it is not opened again.
    pub(super) shown: String,
}

impl Library {
    /// Looks in the usual directories, then where the linker cache says; `None` where the driver brings no NVML.
    pub(super) fn find(root: &DriverRoot) -> Result<Option<Self>> {
        for dir in library_dirs() {
            if let Some(library) = Self::at(root, &format!("{dir}/{NAME}"))? {
                return Ok(Some(library));
            }
        }
        let cached = LinkerCache::of(root).paths(NAME, flags::NATIVE);
        cached.iter().find_map(|path| Self::at(root, path).transpose()).transpose()
    }

    fn at(root: &DriverRoot, path: &str) -> Result<Option<Self>> {
        let shown = root.shown(path).to_string();
        let file = match root.open_below(path, OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            file => file.or_exit(Exit::Io, || format!("cannot open {shown}"))?,
        };
        // What root is about to run, nobody else may have written. Looked at on the descriptor: the path may mean
        // another file by now.
        check_file(&file, Path::new(&shown))?;
        Ok(Some(Self { file, shown }))
    }
}

/// Loads the library and asks it for every GPU. One that answers with an error (it fell off the bus)
/// is left out and named; the others are not lost by it. The error is one line with its remedy.
pub(super) fn read(library: BorrowedFd<'_>) -> Result<Listed, String> {
    let path = format!("/proc/self/fd/{}", library.as_raw_fd());
    let nvml = Nvml::builder().lib_path(path.as_ref()).init().map_err(explained)?;
    // Never dropped: this process ends with its answer, nvmlShutdown may hang as well as any other
    // call, and the wrapper's drop panics where the library lacks it.
    let nvml = ManuallyDrop::new(nvml);
    let count = nvml.device_count().map_err(explained)?;
    let mut listed = Listed::default();
    for index in 0..count {
        match describe(&nvml, index, &mut listed.left_out) {
            Ok(gpu) => listed.gpus.push(gpu),
            Err(line) => listed.left_out.push(line),
        }
    }
    Ok(listed)
}

/// A MIG device that cannot be read is left out, too; the others, and the GPU, are not lost by it.
fn describe(nvml: &Nvml, index: u32, left_out: &mut Vec<String>) -> Result<Gpu, String> {
    let unnamed = |e: NvmlError| format!("NVML cannot read its GPU number {index}: {e}");
    let device = nvml.device_by_index(index).map_err(unnamed)?;
    let bus_id = device.pci_info().map_err(unnamed)?.bus_id;
    let pci: PciAddress = bus_id
        .parse()
        .map_err(|e| format!("NVML's GPU number {index} has the PCI address {}: {e}", quoted(&bus_id)))?;
    let named = |e: NvmlError| format!("NVML cannot read GPU {pci}: {e}");
    let uuid = device.uuid().map_err(named)?;
    Ok(Gpu {
        uuid: uuid.parse().map_err(|e| format!("GPU {pci} has the UUID {}: {e}", quoted(&uuid)))?,
        pci,
        minor: device.minor_number().map_err(named)?,
        name: device.name().map_err(named)?,
        memory: memory(&device).map_err(named)?,
        mig: mig_devices(&device, pci, left_out).map_err(named)?,
        // The kernel's to say.
        drm: Vec::new(),
    })
}

/// None where the GPU does not have MIG or is not in that mode, or where the library is older than MIG (r450).
fn mig_devices(
    gpu: &Device<'_>,
    pci: PciAddress,
    left_out: &mut Vec<String>,
) -> Result<Option<Vec<MigDevice>>, NvmlError> {
    match gpu.mig_mode() {
        Ok(mode) if mode.current == MIG_ENABLED => {}
        Ok(_)
        | Err(NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_)) => {
            return Ok(None);
        }
        Err(e) => return Err(e),
    }
    let mut devices = Vec::new();
    for index in 0..gpu.mig_device_count()? {
        match gpu.mig_device_by_index(index) {
            Err(NvmlError::NotFound) => {}
            device => match device.map_err(|e| e.to_string()).and_then(|device| describe_mig(&device)) {
                Ok(device) => devices.push(device),
                Err(reason) => {
                    left_out.push(format!("MIG device {index} of GPU {pci} is left out: {reason}"))
                }
            },
        }
    }
    devices.sort_by_key(|device| device.instance);
    Ok(Some(devices))
}

/// `NVML_DEVICE_MIG_ENABLE`
const MIG_ENABLED: u32 = 1;

fn describe_mig(device: &Device<'_>) -> Result<MigDevice, String> {
    let failed = |e: NvmlError| e.to_string();
    let (uuid, name) = (device.uuid().map_err(failed)?, device.name().map_err(failed)?);
    // The product's name, then the profile's: `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
    let profile = name.rsplit_once(" MIG ").map_or(name.as_str(), |(_, profile)| profile);
    let profile: MigProfile = profile.parse().map_err(|e| format!("its name is {}: {e}", quoted(&name)))?;
    Ok(MigDevice {
        uuid: uuid.parse().map_err(|e| format!("its UUID is {}: {e}", quoted(&uuid)))?,
        instance: sys::nvml::mig_instance(device).map_err(failed)?,
        memory: memory(device).map_err(failed)?.unwrap_or_else(|| profile.memory()),
        profile,
    })
}

/// Unknown where the GPU has none of its own (integrated ones share the host's) or where the library
/// is older than the call (before r510).
fn memory(device: &Device<'_>) -> Result<Option<Bytes>, NvmlError> {
    match device.memory_info() {
        Ok(memory) => Ok(Some(Bytes(memory.total))),
        Err(NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_)) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// The error with what to do about it.
fn explained(error: NvmlError) -> String {
    let remedy = match error {
        NvmlError::LibRmVersionMismatch => {
            "the library is not of the loaded driver's version: reload the driver's modules or reboot"
        }
        NvmlError::DriverNotLoaded => "load the driver with `modprobe nvidia`",
        NvmlError::NoPermission => "vgpu must run as root, outside of containers",
        NvmlError::LibloadingError(_) => "reinstall the driver's libraries",
        _ => "see whether `nvidia-smi` works, and `dmesg` for the driver's messages",
    };
    format!("{error}; {remedy}")
}
