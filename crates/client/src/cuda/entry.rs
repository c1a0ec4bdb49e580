//! `cuGetProcAddress`: the address of a function, by its name and the version of CUDA that is wanted of it. What is not
//! served has an address too, which is the facade's.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use super::{Result, VERSION, alone, functions};
use crate::device::Error;
use crate::pointers::{In, Out};
use crate::sys;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
pub const PER_THREAD: u64 = 2;

/// `CUdriverProcAddressQueryResult`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Success = 0,
    NoSuch = 1,
    NotThen = 2,
}

/// Since which version of CUDA there is a function, where that is of interest. Else a second version came with 3.2, which
/// has addresses of 64 bits, and the first was there before. What came after our own version is not there.
const SINCE: &[(c_int, &str)] = &[
    (4000, "cuCtxDestroy_v2 cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuEventDestroy_v2 cuStreamDestroy_v2"),
    (4010, "cuTexRefSetAddress2D_v3"),
    (
        6050,
        "cuGLGetDevices_v2 cuGraphicsResourceSetMapFlags_v2 cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkCreate_v2 \
         cuMemHostRegister_v2",
    ),
    (10_010, "cuStreamBeginCapture_v2"),
    (
        11_000,
        "cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 \
         cuGraphInstantiate_v2 cuIpcOpenMemHandle_v2",
    ),
    (
        11_020,
        "cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool cuMemAllocAsync cuMemAllocFromPoolAsync \
         cuMemFreeAsync cuMemPoolCreate cuMemPoolDestroy cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolTrimTo",
    ),
    (11_030, "cuGetProcAddress cuStreamGetCaptureInfo_v2 cuStreamUpdateCaptureDependencies"),
    (11_040, "cuCtxCreate_v3 cuDeviceGetUuid_v2"),
    (
        11_070,
        "cuModuleGetLoadingMode cuStreamBatchMemOp_v2 cuStreamWaitValue32_v2 cuStreamWaitValue64_v2 \
         cuStreamWriteValue32_v2 cuStreamWriteValue64_v2",
    ),
    (11_080, "cuLaunchKernelEx"),
    (
        12_000,
        "cuCtxGetId cuGetProcAddress_v2 cuGraphAddKernelNode_v2 cuGraphExecKernelNodeSetParams_v2 \
         cuGraphExecUpdate_v2 cuGraphInstantiateWithParams cuGraphKernelNodeGetParams_v2 \
         cuGraphKernelNodeSetParams_v2 cuKernelGetFunction cuLibraryGetKernel cuLibraryLoadData cuLibraryUnload \
         cuStreamGetId",
    ),
    (12_010, "cuCtxSetFlags"),
    (12_020, "cuGraphAddNode cuMemAdvise_v2 cuMemPrefetchAsync_v2"),
    (
        12_030,
        "cuGraphAddDependencies_v2 cuGraphAddNode_v2 cuGraphGetEdges_v2 cuGraphNodeGetDependencies_v2 \
         cuGraphNodeGetDependentNodes_v2 cuGraphRemoveDependencies_v2 cuStreamGetCaptureInfo_v3 \
         cuStreamUpdateCaptureDependencies_v2",
    ),
    (
        VERSION + 1,
        "cuCoredumpDeregisterCompleteCallback cuCoredumpDeregisterStartCallback cuCoredumpRegisterCompleteCallback \
         cuCoredumpRegisterStartCallback cuCtxCreate_v4 cuCtxGetDevice_v2 cuCtxRecordEvent cuCtxSynchronize_v2 \
         cuCtxWaitEvent cuDevSmResourceSplit cuDevSmResourceSplitByCount cuDeviceGetCliqueCount \
         cuDeviceGetCliqueInfo cuDeviceGetFabricClusterUuid cuDeviceGetHostAtomicCapabilities \
         cuDeviceGetP2PAtomicCapabilities cuEventElapsedTime_v2 cuFuncGetParamCount cuGraphAddNode_v3 \
         cuGraphExecGetId cuGraphGetId cuGraphNodeGetContainingGraph cuGraphNodeGetLocalId cuGraphNodeGetParams \
         cuGraphNodeGetToolsId cuGraphNodeSetParams_v2 cuGreenCtxGetId cuGreenCtxStreamCreate cuKernelGetLibrary \
         cuKernelGetParamCount cuLaunchHostFunc_v2 cuLogicalEndpointAddDevice cuLogicalEndpointBindAddr \
         cuLogicalEndpointBindMem cuLogicalEndpointCreate cuLogicalEndpointDestroy cuLogicalEndpointExport \
         cuLogicalEndpointGetLimits cuLogicalEndpointIdRelease cuLogicalEndpointIdReserve cuLogicalEndpointImport \
         cuLogicalEndpointQuery cuLogicalEndpointUnbind cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory \
         cuLogsRegisterCallback cuLogsUnregisterCallback cuMemBatchDecompressAsync \
         cuMemDiscardAndPrefetchBatchAsync cuMemDiscardBatchAsync cuMemGetDefaultMemPool cuMemGetLocationInfo \
         cuMemGetMemPool cuMemHostAlloc_v2 cuMemPrefetchBatchAsync cuMemSetMemPool cuMemcpy3DBatchAsync \
         cuMemcpy3DBatchAsync_v2 cuMemcpy3DWithAttributesAsync cuMemcpyBatchAsync cuMemcpyBatchAsync_v2 \
         cuMemcpyWithAttributesAsync cuMemcpy_v2 cuMulticastBindAddr_v2 cuMulticastBindMem_v2 \
         cuStreamBeginCaptureToCig cuStreamBeginRecaptureToGraph cuStreamEndCaptureToCig cuStreamGetCtx_v2 \
         cuStreamGetDevResource cuStreamGetDevice cuTensorMapEncodeIm2colWide",
    ),
];

/// The version of CUDA that a function came with, as far as that is of interest.
fn since(function: &str) -> c_int {
    let named = SINCE.iter().find(|(_, names)| names.split(' ').any(|name| name == function));
    named.map_or(if function.contains('_') { 3020 } else { 0 }, |(version, _)| *version)
}

/// A function by the name that all of its versions have, with its address as `address` finds it.
fn find<T>(
    name: &str,
    version: c_int,
    flags: u64,
    address: impl Fn(&str) -> Option<T>,
) -> (Found, Option<T>) {
    // A version is asked for by number.
    if name.contains('_') {
        return (Found::NoSuch, None);
    }
    let suffixes: &[&str] = if flags & PER_THREAD == 0 { &[""] } else { &["_ptsz", "_ptds", ""] };
    let mut found = Found::NoSuch;
    for of_version in ["_v3", "_v2", ""] {
        let function = format!("{name}{of_version}");
        let there = suffixes.iter().find_map(|suffix| address(&format!("{function}{suffix}")));
        match there {
            Some(there) if since(&function) <= version.min(VERSION) => return (Found::Success, Some(there)),
            Some(_) if since(&function) <= VERSION => found = Found::NotThen,
            _ => {}
        }
    }
    (found, None)
}

/// Writes an address, and the status of the search.
///
/// # Errors
/// `INVALID_VALUE` where there is no name or no place for it, or flags are none.
pub fn entry(name: In<c_char>, to: Out<*mut c_void>, version: c_int, flags: u64) -> Result<Found> {
    let name = name.text()?.to_string_lossy();
    if flags > PER_THREAD {
        return Err(Error::INVALID_VALUE);
    }
    let address = |function: &str| sys::function(c"libcuda.so.1", &CString::new(function).ok()?);
    let (found, address) = find(&name, version, flags, address);
    to.give(address.unwrap_or(ptr::null_mut()))?;
    Ok(found)
}

fn success(found: Found) -> Result {
    if found == Found::Success { Ok(()) } else { Err(Error::NOT_FOUND) }
}

functions! {
    alone [cuGetProcAddress] (name: In<c_char>, to: Out<*mut c_void>, version: c_int, flags: u64) = || {
        success(entry(name, to, version, flags)?)
    };
    alone [cuGetProcAddress_v2] (
        name: In<c_char>, to: Out<*mut c_void>, version: c_int, flags: u64, status: Out<c_int>
    ) = || {
        let found = entry(name, to, version, flags)?;
        status.tell(found as c_int);
        success(found)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, version: c_int, flags: u64) -> std::result::Result<String, Found> {
        const THERE: [&str; 9] = [
            "cuCtxCreate",
            "cuCtxCreate_v2",
            "cuCtxCreate_v3",
            "cuMemFreeAsync",
            "cuMemFreeAsync_ptsz",
            "cuMemsetD8_v2",
            "cuMemsetD8_v2_ptds",
            "cuLogsCurrent",
            "cuEventElapsedTime_v2",
        ];
        let there = |name: &str| THERE.contains(&name).then(|| name.to_owned());
        match find(name, version, flags, there) {
            (Found::Success, Some(name)) => Ok(name),
            (found, None) => Err(found),
            wrong => panic!("{wrong:?}"),
        }
    }

    #[test]
    fn the_newest_that_the_program_knows_and_no_newer_than_the_driver() {
        let is = |name: &str| Ok(name.to_owned());
        assert_eq!(found("cuCtxCreate", 2000, 0), is("cuCtxCreate"));
        assert_eq!(found("cuCtxCreate", 3020, 0), is("cuCtxCreate_v2"));
        assert_eq!(found("cuCtxCreate", 11_030, 0), is("cuCtxCreate_v2"));
        assert_eq!(found("cuCtxCreate", 13_000, 0), is("cuCtxCreate_v3"));
        assert_eq!(found("cuMemFreeAsync", 11_010, 0), Err(Found::NotThen));
        assert_eq!(found("cuMemFreeAsync", 11_020, 1), is("cuMemFreeAsync"));
        assert_eq!(found("cuMemFreeAsync", 11_020, PER_THREAD), is("cuMemFreeAsync_ptsz"));
        assert_eq!(found("cuMemsetD8", 12_000, PER_THREAD), is("cuMemsetD8_v2_ptds"));
        assert_eq!(found("cuLogsCurrent", 13_000, 0), Err(Found::NoSuch));
        assert_eq!(found("cuEventElapsedTime", 13_000, 0), Err(Found::NoSuch));
        assert_eq!(found("cuCtxCreate_v2", 12_000, 0), Err(Found::NoSuch));
        assert_eq!(found("cuNothing", 12_000, 0), Err(Found::NoSuch));
    }
}
