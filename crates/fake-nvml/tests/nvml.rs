//! The shared object, loaded and called as NVML is: through nvml-wrapper, and raw where buffers and
//! functions newer than its bindings are concerned.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_uint, c_ulonglong, c_void};
use std::fs;
use std::path::PathBuf;
use std::ptr::null_mut;

use fake_nvml::{Gpu, Host, Init, Mig, MigDevice, Process};
use libloading::{Library, Symbol};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

const GIB: u64 = 1 << 30;
const UUID: &str = "GPU-5a6b7c8d-0000-1111-2222-333344445555";
const MIG_UUID: &str = "MIG-6f6b7c8d-0000-1111-2222-333344445555";

fn host() -> Host {
    let mig = MigDevice {
        uuid: MIG_UUID.into(),
        name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".into(),
        gpu_instance: 7,
        compute_instance: 2,
        memory: Some(5 * GIB),
        processes: vec![Process { pid: 43, memory: GIB }],
    };
    let a100 = Gpu {
        uuid: UUID.into(),
        pci: "0000:af:00.0".into(),
        minor: 3,
        name: "NVIDIA A100-SXM4-40GB".into(),
        memory: Some(40 * GIB),
        mig: Mig::Enabled(vec![None, Some(mig)]),
        processes: vec![Process { pid: 42, memory: 2 * GIB }],
        ..Gpu::default()
    };
    let lost = Gpu { lost: true, ..Gpu::default() };
    let integrated = Gpu { uuid: "GPU-x".into(), pci: "0000:01:00.0".into(), ..Gpu::default() };
    Host { driver: "550.54.15".into(), gpus: vec![a100, lost, integrated], init: Init::Work }
}

fn installed(host: &Host) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let library = host.install(dir.path()).unwrap();
    (dir, library)
}

#[test]
fn gpus_processes_and_mig_devices() {
    let (_dir, library) = installed(&host());
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().unwrap();
    assert_eq!(nvml.sys_driver_version().unwrap(), "550.54.15");
    assert_eq!(nvml.device_count().unwrap(), 3);

    let gpu = nvml.device_by_index(0).unwrap();
    assert_eq!(gpu.uuid().unwrap(), UUID);
    assert_eq!(gpu.pci_info().unwrap().bus_id, "00000000:AF:00.0");
    assert_eq!(gpu.minor_number().unwrap(), 3);
    assert_eq!(gpu.memory_info().unwrap().total, 40 * GIB);
    assert_eq!(gpu.memory_info().unwrap().used, 3 * GIB);
    let pids: Vec<u32> = gpu.running_compute_processes().unwrap().iter().map(|p| p.pid).collect();
    assert_eq!(pids, [42, 43]);

    assert_eq!(gpu.mig_device_count().unwrap(), 2);
    assert!(matches!(gpu.mig_device_by_index(0), Err(NvmlError::NotFound)));
    assert!(matches!(gpu.mig_device_by_index(2), Err(NvmlError::InvalidArg)));
    let mig = gpu.mig_device_by_index(1).unwrap();
    assert_eq!(mig.uuid().unwrap(), MIG_UUID);
    assert!(mig.mig_is_mig_device_handle().unwrap());
    assert_eq!(mig.mig_parent_device().unwrap().uuid().unwrap(), UUID);
    assert_eq!(nvml.device_by_uuid(MIG_UUID).unwrap().uuid().unwrap(), MIG_UUID);

    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::GpuLost)));
    let integrated = nvml.device_by_index(2).unwrap();
    assert!(matches!(integrated.memory_info(), Err(NvmlError::NotSupported)));
    assert!(matches!(integrated.mig_mode(), Err(NvmlError::NotSupported)));
}

#[test]
fn a_failing_init_and_a_missing_file() {
    let (dir, library) = installed(&Host { init: Init::Fail(18), ..host() });
    let init = || Nvml::builder().lib_path(library.as_os_str()).init();
    assert!(matches!(init(), Err(NvmlError::LibRmVersionMismatch)));
    fs::remove_file(dir.path().join(fake_nvml::CONFIG)).unwrap();
    assert!(matches!(init(), Err(NvmlError::Unknown)));
}

type Handle = *mut c_void;

/// A raw call, by name and type.
macro_rules! call {
    ($library:ident . $name:ident ( $($value:expr => $type:ty),* )) => {{
        // SAFETY: the types are those of NVML's header, and each pointer is good for its call.
        unsafe {
            let function: Symbol<'_, unsafe extern "C" fn($($type),*) -> c_uint> =
                $library.get(stringify!($name).as_bytes()).unwrap();
            function($($value),*)
        }
    }};
}

/// Loaded and initialised, with the handle of the first GPU.
fn raw(library: &PathBuf) -> (Library, Handle) {
    // SAFETY: loading our own library runs nothing.
    let library = unsafe { Library::new(library) }.unwrap();
    assert_eq!(call!(library.nvmlInit_v2()), 0);
    let mut gpu = null_mut();
    assert_eq!(call!(library.nvmlDeviceGetHandleByIndex_v2(0 => c_uint, &raw mut gpu => *mut Handle)), 0);
    (library, gpu)
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Info {
    pid: c_uint,
    memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[test]
fn buffers_handles_and_initialisation() {
    let (_dir, path) = installed(&host());
    let (library, gpu) = raw(&path);
    let mut text = [0; 96];
    let out = text.as_mut_ptr();
    let length = UUID.len() as c_uint;
    let uuid = |length, out, handle| call!(library.nvmlDeviceGetUUID(handle => Handle, out => *mut c_char, length => c_uint));
    assert_eq!(uuid(length, out, gpu), 7, "no room for the NUL");
    assert_eq!(uuid(length + 1, out, gpu), 0);
    assert_eq!(uuid(length + 1, null_mut(), gpu), 2);
    assert_eq!(uuid(length + 1, out, null_mut()), 2);
    assert_eq!(uuid(length + 1, out, 1 as Handle), 2);

    let mut count: c_uint = 1;
    let mut infos = [Info::default(); 2];
    let mut processes = |infos: *mut Info| {
        let code = call!(library.nvmlDeviceGetComputeRunningProcesses_v3(
            gpu => Handle, &raw mut count => *mut c_uint, infos => *mut Info));
        (code, count)
    };
    assert_eq!(processes(infos.as_mut_ptr()), (7, 2), "two do not fit into one");
    assert_eq!(processes(infos.as_mut_ptr()), (0, 2));
    assert_eq!(infos[1], Info { pid: 43, memory: GIB, gpu_instance: 7, compute_instance: 2 });

    let mut mig = null_mut();
    let by_index = call!(library.nvmlDeviceGetMigDeviceHandleByIndex(
        gpu => Handle, 1 => c_uint, &raw mut mig => *mut Handle));
    assert_eq!(by_index, 0);
    let mut id: c_uint = 0;
    let instance =
        |handle, id| call!(library.nvmlDeviceGetGpuInstanceId(handle => Handle, id => *mut c_uint));
    assert_eq!((instance(mig, &raw mut id), id), (0, 7));
    assert_eq!(instance(gpu, &raw mut id), 3, "a whole GPU is in no instance");

    assert_eq!(call!(library.nvmlInit_v2()), 0);
    for (code, after) in [(0, 0), (0, 1), (1, 1)] {
        assert_eq!(call!(library.nvmlShutdown()), code);
        assert_eq!(uuid(length + 1, out, gpu), after, "initialisations are counted");
    }
}

#[repr(C)]
struct Limits {
    cgroup: *const c_char,
    soft: c_ulonglong,
    hard: c_ulonglong,
    used: c_ulonglong,
}

#[test]
#[ignore = "needs root: the driver lets nobody else set memory limits"]
fn memory_limits_are_kept_until_cleared_or_their_cgroup_is_gone() {
    let (dir, path) = installed(&host());
    let (library, gpu) = raw(&path);
    let cgroup = dir.path().join("leaf");
    fs::create_dir(&cgroup).unwrap();
    let name = CString::new(cgroup.to_str().unwrap()).unwrap();
    let set = |soft, hard| {
        let limits = Limits { cgroup: name.as_ptr(), soft, hard, used: 0 };
        call!(library.nvmlDeviceSetMemoryLimits_v1(gpu => Handle, &raw const limits => *const Limits))
    };
    let get = || {
        let mut limits = Limits { cgroup: name.as_ptr(), soft: 1, hard: 1, used: 1 };
        let code = call!(library.nvmlDeviceGetMemoryLimits_v1(gpu => Handle, &raw mut limits => *mut Limits));
        (code, limits.soft, limits.hard)
    };
    const NONE: u64 = u64::MAX;
    assert_eq!(get(), (0, 0, NONE));
    assert_eq!(set(0, 10 * GIB), 0);
    assert_eq!(get(), (0, 0, 10 * GIB));
    assert_eq!(set(2, 1), 2);
    assert_eq!(set(0, NONE), 0);
    assert_eq!(get(), (0, 0, NONE));

    assert_eq!(set(0, GIB), 0);
    fs::remove_dir(&cgroup).unwrap();
    assert_eq!(get().0, 2);
    fs::create_dir(&cgroup).unwrap();
    let kept = fs::read_to_string(dir.path().join("fake-nvml.limits.json")).unwrap();
    assert!(kept.contains(cgroup.to_str().unwrap()), "kept in a file: {kept}");
}
