//! The state between `nvmlInit` and `nvmlShutdown`, and the way from a C call to an answer.
#![allow(unsafe_code)]

use std::fs;
use std::os::raw::{c_char, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nvml_wrapper_sys::bindings::*;

use crate::{CONFIG, Gpu, HANGING, Host, Init, Mig, MigDevice};

/// A return code other than NVML_SUCCESS.
pub(crate) type Code = nvmlReturn_enum;
pub(crate) type Answer<T = ()> = Result<T, Code>;

pub(crate) const INVALID_ARGUMENT: Code = nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
pub(crate) const NOT_SUPPORTED: Code = nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
pub(crate) const NOT_FOUND: Code = nvmlReturn_enum_NVML_ERROR_NOT_FOUND;
pub(crate) const UNKNOWN: Code = nvmlReturn_enum_NVML_ERROR_UNKNOWN;

struct Initialised {
    host: Arc<Host>,
    /// NVML counts its initialisations.
    times: usize,
}

static STATE: Mutex<Option<Initialised>> = Mutex::new(None);

pub(crate) fn init() -> Answer {
    let directory = directory().ok_or(UNKNOWN)?;
    let host: Host = fs::read(directory.join(CONFIG))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or(UNKNOWN)?;
    match host.init {
        Init::Work => {}
        Init::Fail(code) => return Err(code),
        Init::Crash => std::process::abort(),
        Init::Hang => {
            fs::write(directory.join(HANGING), std::process::id().to_string()).map_err(|_| UNKNOWN)?;
            loop {
                std::thread::park();
            }
        }
        Init::Print => {
            println!("{{\"Err\":\"printed by NVML\"}}");
            eprintln!("printed by NVML");
        }
    }
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let times = state.as_ref().map_or(0, |s| s.times) + 1;
    *state = Some(Initialised { host: Arc::new(host), times });
    Ok(())
}

pub(crate) fn shutdown() -> Answer {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let left = state.as_ref().ok_or(nvmlReturn_enum_NVML_ERROR_UNINITIALIZED)?.times - 1;
    match state.as_mut() {
        Some(initialised) if left > 0 => initialised.times = left,
        _ => *state = None,
    }
    Ok(())
}

/// Answers a call that needs NVML to be initialised.
pub(crate) fn answer(call: impl FnOnce(&Host) -> Answer) -> nvmlReturn_t {
    plain(|| {
        let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        let host = state.as_ref().map(|s| Arc::clone(&s.host));
        drop(state);
        let host = host.ok_or(nvmlReturn_enum_NVML_ERROR_UNINITIALIZED)?;
        call(&host)
    })
}

/// Answers any call. A panic must not cross into C.
pub(crate) fn plain(call: impl FnOnce() -> Answer) -> nvmlReturn_t {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => nvmlReturn_enum_NVML_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => UNKNOWN,
    }
}

/// The directory this library was loaded from: that of the mapping that holds this function. The
/// loader's own idea of the name is useless where it was given /proc/self/fd/N.
pub(crate) fn directory() -> Option<PathBuf> {
    let here = directory as fn() -> Option<PathBuf> as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| {
        let bounds = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bound = |text| usize::from_str_radix(text, 16).unwrap_or_default();
        bounds.is_some_and(|(from, to)| (bound(from)..bound(to)).contains(&here))
    })?;
    Path::new(&line[line.find('/')?..]).parent().map(Path::to_owned)
}

/// What a handle stands for.
#[derive(Clone, Copy)]
pub(crate) enum Device<'h> {
    Gpu(&'h Gpu),
    Mig(&'h Gpu, &'h MigDevice),
}

impl<'h> Device<'h> {
    /// The GPU, for calls that do not take MIG handles.
    pub(crate) fn gpu(self) -> Answer<&'h Gpu> {
        match self {
            Device::Gpu(gpu) => Ok(gpu),
            Device::Mig(..) => Err(NOT_SUPPORTED),
        }
    }

    /// The GPU, or the one that the MIG device is cut from.
    pub(crate) fn physical(self) -> &'h Gpu {
        match self {
            Device::Gpu(gpu) | Device::Mig(gpu, _) => gpu,
        }
    }

    pub(crate) fn mig(self) -> Answer<&'h MigDevice> {
        match self {
            Device::Gpu(_) => Err(NOT_SUPPORTED),
            Device::Mig(_, mig) => Ok(mig),
        }
    }
}

/// A handle is a number, never a pointer that is followed: a base that no small mistake hits, the
/// GPU's place, and the MIG device's place + 1 or 0.
const BASE: usize = 0x4e56_0000;
const PLACES: usize = 32;

pub(crate) fn handle(gpu: usize, mig: Option<usize>) -> nvmlDevice_t {
    (BASE + gpu * PLACES + mig.map_or(0, |place| place + 1)) as nvmlDevice_t
}

pub(crate) fn device(host: &Host, handle: nvmlDevice_t) -> Answer<Device<'_>> {
    let number = (handle as usize).checked_sub(BASE).ok_or(INVALID_ARGUMENT)?;
    let gpu = present(host.gpus.get(number / PLACES).ok_or(INVALID_ARGUMENT)?)?;
    match (number % PLACES, &gpu.mig) {
        (0, _) => Ok(Device::Gpu(gpu)),
        (place, Mig::Enabled(devices)) => {
            let mig = devices.get(place - 1).and_then(Option::as_ref);
            mig.map(|mig| Device::Mig(gpu, mig)).ok_or(INVALID_ARGUMENT)
        }
        _ => Err(INVALID_ARGUMENT),
    }
}

/// The place of a GPU in the list, which its handle is made of.
pub(crate) fn place(host: &Host, gpu: &Gpu) -> Answer<usize> {
    host.gpus.iter().position(|other| std::ptr::eq(other, gpu)).ok_or(UNKNOWN)
}

pub(crate) fn present(gpu: &Gpu) -> Answer<&Gpu> {
    if gpu.lost { Err(nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST) } else { Ok(gpu) }
}

/// Writes a result to where the caller wants it.
///
/// # Safety
/// `out` is null or points to writable memory for a `T`, as NVML's callers promise.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and the caller promises the rest.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a C string, if it and its NUL fit.
///
/// # Safety
/// `out` is null or points to `length` writable bytes, as NVML's callers promise.
pub(crate) unsafe fn put_text(out: *mut c_char, length: c_uint, text: &str) -> Answer {
    if out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: `out` has room for `length` bytes, which is more than the text's; the regions are apart,
    // since the text is ours.
    unsafe {
        out.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}
