//! The runtime's streams, which are the driver's too, and functions of the program's that are called in their order.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_uint, c_void};

use super::{Result, alone, answer, functions};
use crate::device::{Error, context as contexts, event, stream as streams};
use crate::pointers::{Callback, HostFunction, Out};
use crate::process;

/// Waits until all that was sent is done, and holds nothing after that. The error is of the stream; what else went wrong is
/// the result.
fn waited(stream: u64) -> Result<Result> {
    let mut waited = Ok(());
    process::call(|session, _| {
        contexts::enter(session)?;
        streams::known(stream)?;
        waited = session.synchronise().map_err(Error::from);
        Ok::<_, Error>(())
    })?;
    Ok(waited)
}

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
    // What is done cannot be told from what is not without waiting.
    answer [cudaStreamQuery cudaStreamQuery_ptsz] (stream: u64) = |session| streams::synchronise(session, stream);
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
    // In the thread that asks, before anything more is sent. What has gone wrong is not done, and so is this.
    alone [cudaLaunchHostFunc cudaLaunchHostFunc_ptsz] (stream: u64, function: HostFunction, data: *mut c_void) = || {
        let function = function.get()?;
        waited(stream)??;
        function(data);
        Ok(())
    };
    // Likewise, but that it is told of what has gone wrong.
    alone [cudaStreamAddCallback cudaStreamAddCallback_ptsz] (
        stream: u64, callback: Callback, data: *mut c_void, flags: c_uint
    ) = || {
        let callback = callback.get()?;
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let status = waited(stream)?.map_or_else(|Error(error)| error, |()| 0);
        callback(stream, status, data);
        Ok(())
    };
}
