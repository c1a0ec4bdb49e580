//! The runtime's streams, which are the driver's too.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_uint};

use super::{answer, functions};
use crate::cuda::code;
use crate::cuda::stream::{Callback, Data, HostFunction};
use crate::device::function::launch;
use crate::device::{Error, event, stream as streams};
use crate::pointers::Out;

functions! {
    answer [cudaStreamCreate] (stream: Out<u64>) = |_| stream.fill(|| streams::create(0));
    answer [cudaStreamCreateWithFlags] (stream: Out<u64>, flags: c_uint) = |_| stream.fill(|| streams::create(flags));
    answer [cudaStreamCreateWithPriority] (stream: Out<u64>, flags: c_uint, _priority: c_int) = |_| {
        // It is brought within the range, which is one number.
        stream.fill(|| streams::create(flags))
    };
    answer [cudaStreamDestroy] (stream: u64) = |_| streams::destroy(stream);
    answer [cudaStreamSynchronize cudaStreamSynchronize_ptsz] (stream: u64) = |session| {
        streams::synchronise(session, stream)
    };
    answer [cudaStreamQuery cudaStreamQuery_ptsz] (stream: u64) = |session| streams::query(session, stream);
    answer [cudaStreamWaitEvent cudaStreamWaitEvent_ptsz] (stream: u64, event: u64, flags: c_uint) = |_| {
        // The one flag is for graphs.
        if flags > 1 {
            return Err(Error::INVALID_VALUE);
        }
        streams::known(stream)?;
        event::known(event)
    };
    answer [cudaStreamGetFlags cudaStreamGetFlags_ptsz] (stream: u64, flags: Out<c_uint>) = |_| {
        flags.give(streams::flags(stream)?)
    };
    answer [cudaStreamGetPriority cudaStreamGetPriority_ptsz] (stream: u64, priority: Out<c_int>) = |_| {
        streams::known(stream)?;
        priority.give(streams::PRIORITY)
    };
    answer [cudaStreamGetId cudaStreamGetId_ptsz] (stream: u64, id: Out<u64>) = |_| {
        streams::known(stream)?;
        // No handle is another's ever after.
        id.give(stream)
    };
    // There are no graphs.
    answer [
        cudaStreamIsCapturing cudaStreamIsCapturing_ptsz cudaStreamGetCaptureInfo cudaStreamGetCaptureInfo_ptsz
        cudaStreamGetCaptureInfo_v2 cudaStreamGetCaptureInfo_v2_ptsz cudaStreamGetCaptureInfo_v3
        cudaStreamGetCaptureInfo_v3_ptsz
    ] (stream: u64, status: Out<c_int>) = |_| {
        streams::known(stream)?;
        status.give(0)
    };
    answer [cudaLaunchHostFunc cudaLaunchHostFunc_ptsz] (
        stream: u64, function: Option<HostFunction>, data: Data
    ) = |session| {
        streams::known(stream)?;
        let function = function.ok_or(Error::INVALID_VALUE)?;
        // It is not called once something has failed.
        launch(session, move |result| if result.is_ok() { function(data) })
    };
    answer [cudaStreamAddCallback cudaStreamAddCallback_ptsz] (
        stream: u64, function: Option<Callback>, data: Data, flags: c_uint
    ) = |session| {
        streams::known(stream)?;
        let function = function.filter(|_| flags == 0).ok_or(Error::INVALID_VALUE)?;
        launch(session, move |result| function(stream, code(result), data))
    };
}
