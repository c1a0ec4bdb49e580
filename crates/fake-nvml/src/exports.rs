//! The C functions. Each finds what the handle stands for, and writes the answer out.
//!
//! Every one of them trusts its caller as the real one does: a pointer is null (answered with
//! NVML_ERROR_INVALID_ARGUMENT) or good for what the documentation says is written there.
#![allow(unsafe_code, non_snake_case, non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // The one contract of all is above.

use std::ffi::CStr;
use std::os::raw::{c_char, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::*;

use crate::limits::{self, Limits};
use crate::state::{
    Answer, Device, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, answer, device, handle, init, place, plain,
    present, put, put_text, shutdown,
};
use crate::{Gpu, Host, Mig, Process};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    plain(init)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    plain(init)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    plain(shutdown)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    // SAFETY: the contract above.
    answer(|host| unsafe { put_text(version, length, &host.driver) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the contract above.
    answer(|host| unsafe { put(count, host.gpus.len() as c_uint) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    out: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer(|host| {
        present(host.gpus.get(index as usize).ok_or(INVALID_ARGUMENT)?)?;
        // SAFETY: the contract above.
        unsafe { put(out, handle(index as usize, None)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(
    uuid: *const c_char,
    out: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    // SAFETY: the contract above, for both pointers.
    answer(|host| unsafe {
        let found = by_uuid(host, text(uuid)?)?;
        put(out, found)
    })
}

fn by_uuid(host: &Host, uuid: &str) -> Answer<nvmlDevice_t> {
    for (place, gpu) in host.gpus.iter().enumerate() {
        let mig = mig_devices(gpu).iter().position(|d| d.as_ref().is_some_and(|d| d.uuid == uuid));
        if gpu.uuid == uuid || mig.is_some() {
            return present(gpu).map(|_| handle(place, mig));
        }
    }
    Err(NOT_FOUND)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(
    handle: nvmlDevice_t,
    uuid: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    answer(|host| {
        let text = match device(host, handle)? {
            Device::Gpu(gpu) => &gpu.uuid,
            Device::Mig(_, mig) => &mig.uuid,
        };
        // SAFETY: the contract above.
        unsafe { put_text(uuid, length, text) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(
    handle: nvmlDevice_t,
    name: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    answer(|host| {
        let text = match device(host, handle)? {
            Device::Gpu(gpu) => &gpu.name,
            Device::Mig(_, mig) => &mig.name,
        };
        // SAFETY: the contract above.
        unsafe { put_text(name, length, text) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMinorNumber(handle: nvmlDevice_t, minor: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the contract above. That MIG handles have no minor is assumed.
    answer(|host| unsafe { put(minor, device(host, handle)?.gpu()?.minor) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(
    handle: nvmlDevice_t,
    out: *mut nvmlPciInfo_t,
) -> nvmlReturn_t {
    // SAFETY: the contract above.
    answer(|host| unsafe { put(out, pci_info(&device(host, handle)?.physical().pci)?) })
}

/// NVML writes the address twice: with a domain of four digits (legacy) and of eight.
fn pci_info(address: &str) -> Answer<nvmlPciInfo_t> {
    let mut parts = address.split([':', '.']).map(|part| c_uint::from_str_radix(part, 16));
    let mut next = || parts.next().and_then(Result::ok).ok_or(INVALID_ARGUMENT);
    let (domain, bus, slot, function) = (next()?, next()?, next()?, next()?);
    Ok(nvmlPciInfo_t {
        busIdLegacy: c_text(&format!("{domain:04X}:{bus:02X}:{slot:02X}.{function:X}")),
        domain,
        bus,
        device: slot,
        pciDeviceId: 0x20b0_10de,
        pciSubSystemId: 0x134f_10de,
        busId: c_text(&format!("{domain:08X}:{bus:02X}:{slot:02X}.{function:X}")),
    })
}

/// NUL-terminated: the last byte is never written.
fn c_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    out
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    handle: nvmlDevice_t,
    out: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    answer(|host| {
        let (total, used) = memory(device(host, handle)?)?;
        let version = (size_of::<nvmlMemory_v2_t>() | 2 << 24) as c_uint;
        // SAFETY: the contract above; the caller has set `version`.
        match unsafe { out.as_ref() } {
            None => return Err(INVALID_ARGUMENT),
            Some(asked) if asked.version != version => {
                return Err(nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
            }
            Some(_) => {}
        }
        let free = total.saturating_sub(used);
        // SAFETY: as before.
        unsafe { put(out, nvmlMemory_v2_t { version, total, reserved: 0, free, used }) }
    })
}

/// Total and used bytes.
fn memory(device: Device<'_>) -> Answer<(u64, u64)> {
    let total = match device {
        Device::Gpu(gpu) => gpu.memory,
        Device::Mig(_, mig) => mig.memory,
    };
    Ok((total.ok_or(NOT_SUPPORTED)?, processes(device).iter().map(|process| process.usedGpuMemory).sum()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeMode(
    handle: nvmlDevice_t,
    mode: *mut nvmlComputeMode_t,
) -> nvmlReturn_t {
    // SAFETY: the contract above.
    answer(|host| unsafe { put(mode, device(host, handle)?.physical().compute_mode) })
}

/// In: the room in `infos`; out: how many there are, also where they do not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    answer(|host| {
        let running = processes(device(host, handle)?);
        // SAFETY: the contract above.
        let room = *unsafe { count.as_ref() }.ok_or(INVALID_ARGUMENT)? as usize;
        // SAFETY: the contract above.
        unsafe { put(count, running.len() as c_uint)? };
        if running.len() > room {
            return Err(nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
        }
        if running.is_empty() {
            return Ok(());
        }
        if infos.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: `infos` has room for `room` of them, which is at least as many; `running` is ours.
        unsafe { infos.copy_from_nonoverlapping(running.as_ptr(), running.len()) };
        Ok(())
    })
}

/// Of a GPU in MIG mode: those of all its MIG devices.
fn processes(device: Device<'_>) -> Vec<nvmlProcessInfo_t> {
    const NONE: c_uint = c_uint::MAX;
    let info = |process: &Process, gpu_instance, compute_instance| nvmlProcessInfo_t {
        pid: process.pid,
        usedGpuMemory: process.memory,
        gpuInstanceId: gpu_instance,
        computeInstanceId: compute_instance,
    };
    let on_mig = |mig: &crate::MigDevice| -> Vec<nvmlProcessInfo_t> {
        mig.processes.iter().map(|p| info(p, mig.gpu_instance, mig.compute_instance)).collect()
    };
    match device {
        Device::Mig(_, mig) => on_mig(mig),
        Device::Gpu(gpu) => {
            let own = gpu.processes.iter().map(|p| info(p, NONE, NONE));
            own.chain(mig_devices(gpu).iter().flatten().flat_map(on_mig)).collect()
        }
    }
}

fn mig_devices(gpu: &Gpu) -> &[Option<crate::MigDevice>] {
    match &gpu.mig {
        Mig::Enabled(devices) => devices,
        Mig::Unsupported | Mig::Disabled => &[],
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(
    handle: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    answer(|host| {
        let mode = match device(host, handle)?.gpu()?.mig {
            Mig::Unsupported => return Err(NOT_SUPPORTED),
            Mig::Disabled => NVML_DEVICE_MIG_DISABLE,
            Mig::Enabled(_) => NVML_DEVICE_MIG_ENABLE,
        };
        // SAFETY: the contract above.
        unsafe { put(current, mode).and_then(|()| put(pending, mode)) }
    })
}

/// Zero where MIG is not supported or not enabled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(
    handle: nvmlDevice_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    // SAFETY: the contract above.
    answer(|host| unsafe { put(count, mig_devices(device(host, handle)?.gpu()?).len() as c_uint) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    parent: nvmlDevice_t,
    index: c_uint,
    out: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer(|host| {
        let gpu = device(host, parent)?.gpu()?;
        let Mig::Enabled(devices) = &gpu.mig else { return Err(NOT_SUPPORTED) };
        let there = devices.get(index as usize).ok_or(INVALID_ARGUMENT)?.is_some();
        if !there {
            return Err(NOT_FOUND);
        }
        // SAFETY: the contract above.
        unsafe { put(out, handle(place(host, gpu)?, Some(index as usize))) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceIsMigDeviceHandle(handle: nvmlDevice_t, out: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the contract above.
    answer(|host| unsafe { put(out, device(host, handle)?.mig().is_ok().into()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    mig: nvmlDevice_t,
    out: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer(|host| {
        let device = device(host, mig)?;
        device.mig().map_err(|_| INVALID_ARGUMENT)?;
        // SAFETY: the contract above.
        unsafe { put(out, handle(place(host, device.physical())?, None)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(handle: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the contract above.
    answer(|host| unsafe { put(id, device(host, handle)?.mig()?.gpu_instance) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeInstanceId(
    handle: nvmlDevice_t,
    id: *mut c_uint,
) -> nvmlReturn_t {
    // SAFETY: the contract above.
    answer(|host| unsafe { put(id, device(host, handle)?.mig()?.compute_instance) })
}

/// `nvmlSetMemoryLimits_v1_t`; newer than the bindings.
#[repr(C)]
pub struct nvmlSetMemoryLimits_v1_t {
    /// Full path of the cgroup's directory.
    pub nameSpace: *const c_char,
    /// Bytes.
    pub softLimit: c_ulonglong,
    /// Bytes; all bits set is none.
    pub hardLimit: c_ulonglong,
}

/// `nvmlGetMemoryLimits_v1_t`; newer than the bindings.
#[repr(C)]
pub struct nvmlGetMemoryLimits_v1_t {
    /// In: full path of the cgroup's directory.
    pub nameSpace: *const c_char,
    /// Out: bytes.
    pub softLimit: c_ulonglong,
    /// Out: bytes; all bits set is none.
    pub hardLimit: c_ulonglong,
    /// Out: bytes. Always 0 here: nothing runs on this GPU.
    pub currentUsed: c_ulonglong,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceSetMemoryLimits_v1(
    handle: nvmlDevice_t,
    limits: *const nvmlSetMemoryLimits_v1_t,
) -> nvmlReturn_t {
    answer(|host| {
        let gpu = device(host, handle)?.gpu()?;
        // SAFETY: the contract above.
        let asked = unsafe { limits.as_ref() }.ok_or(INVALID_ARGUMENT)?;
        // SAFETY: geteuid has no conditions.
        if unsafe { libc::geteuid() } != 0 {
            return Err(nvmlReturn_enum_NVML_ERROR_NO_PERMISSION);
        }
        // SAFETY: the contract above, for the string in it.
        let cgroup = unsafe { text(asked.nameSpace)? };
        limits::set(&gpu.uuid, cgroup, Limits { soft: asked.softLimit, hard: asked.hardLimit })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryLimits_v1(
    handle: nvmlDevice_t,
    limits: *mut nvmlGetMemoryLimits_v1_t,
) -> nvmlReturn_t {
    answer(|host| {
        let gpu = device(host, handle)?.gpu()?;
        // SAFETY: the contract above.
        let out = unsafe { limits.as_mut() }.ok_or(INVALID_ARGUMENT)?;
        // SAFETY: the contract above, for the string in it.
        let now = limits::get(&gpu.uuid, unsafe { text(out.nameSpace)? })?;
        (out.softLimit, out.hardLimit, out.currentUsed) = (now.soft, now.hard, 0);
        Ok(())
    })
}

/// A string of the caller's.
///
/// # Safety
/// Null, or NUL-terminated and unchanged for as long as the result is used: within one call.
unsafe fn text<'a>(text: *const c_char) -> Answer<&'a str> {
    if text.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and the caller promises the rest.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| INVALID_ARGUMENT)
}
