//! The two calls of NVML that its wrapper does not have.
#![allow(unsafe_code)]

use std::os::raw::c_uint;

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_try};

use crate::types::MigInstance;

/// Where a MIG device is on its GPU.
///
/// # Errors
/// NVML's; [`NvmlError::FunctionNotFound`] where the library is older than MIG.
pub fn mig_instance(device: &Device<'_>) -> Result<MigInstance, NvmlError> {
    let lib = device.nvml().lib();
    let (Ok(gpu_instance), Ok(compute_instance)) =
        (&lib.nvmlDeviceGetGpuInstanceId, &lib.nvmlDeviceGetComputeInstanceId)
    else {
        return Err(NvmlError::FunctionNotFound);
    };
    let (mut gi, mut ci): (c_uint, c_uint) = (0, 0);
    // SAFETY: the handle is of the library that the functions are of, which `device` keeps loaded; each call
    // writes one number, which is there and ours.
    unsafe {
        nvml_try(gpu_instance(device.handle(), &raw mut gi))?;
        nvml_try(compute_instance(device.handle(), &raw mut ci))?;
    }
    Ok(MigInstance { gi, ci })
}
