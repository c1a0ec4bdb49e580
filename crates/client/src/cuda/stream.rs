//! The driver's streams, which are the runtime's too.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_uint};

use super::{code, current, functions};
use crate::device::function::launch;
use crate::device::{Error, event, stream as streams};
use crate::pointers::Out;

/// What a program gives with its function.
#[repr(transparent)]
pub struct Data(u64);

/// `CUhostFn`
pub type HostFunction = extern "C" fn(Data);

/// `CUstreamCallback`
pub type Callback = extern "C" fn(u64, c_int, Data);

functions! {
    current [cuStreamCreate] (stream: Out<u64>, flags: c_uint) = |_| {
        stream.fill(|| streams::create(flags))
    };
    current [cuStreamCreateWithPriority] (stream: Out<u64>, flags: c_uint, _priority: c_int) = |_| {
        // It is brought within the range, which is one number.
        stream.fill(|| streams::create(flags))
    };
    current [cuStreamDestroy cuStreamDestroy_v2] (stream: u64) = |_| streams::destroy(stream);
    current [cuStreamSynchronize cuStreamSynchronize_ptsz] (stream: u64) = |session| {
        streams::synchronise(session, stream)
    };
    current [cuStreamQuery cuStreamQuery_ptsz] (stream: u64) = |session| streams::query(session, stream);
    current [cuStreamWaitEvent cuStreamWaitEvent_ptsz] (stream: u64, event: u64, flags: c_uint) = |_| {
        // The one flag is for graphs.
        if flags > 1 {
            return Err(Error::INVALID_VALUE);
        }
        streams::known(stream)?;
        event::known(event)
    };
    current [cuStreamGetFlags cuStreamGetFlags_ptsz] (stream: u64, flags: Out<c_uint>) = |_| {
        flags.give(streams::flags(stream)?)
    };
    current [cuStreamGetPriority cuStreamGetPriority_ptsz] (stream: u64, priority: Out<c_int>) = |_| {
        streams::known(stream)?;
        priority.give(streams::PRIORITY)
    };
    current [cuStreamGetCtx cuStreamGetCtx_ptsz] (stream: u64, context: Out<u64>) = |_| {
        context.give(streams::context(stream)?)
    };
    current [cuStreamGetId cuStreamGetId_ptsz] (stream: u64, id: Out<u64>) = |_| {
        streams::known(stream)?;
        // No handle is another's ever after.
        id.give(stream)
    };
    current [cuLaunchHostFunc cuLaunchHostFunc_ptsz] (
        stream: u64, function: Option<HostFunction>, data: Data
    ) = |session| {
        streams::known(stream)?;
        let function = function.ok_or(Error::INVALID_VALUE)?;
        // It is not called once something has failed.
        launch(session, move |result| if result.is_ok() { function(data) })
    };
    current [cuStreamAddCallback cuStreamAddCallback_ptsz] (
        stream: u64, function: Option<Callback>, data: Data, flags: c_uint
    ) = |session| {
        streams::known(stream)?;
        let function = function.filter(|_| flags == 0).ok_or(Error::INVALID_VALUE)?;
        launch(session, move |result| function(stream, code(result), data))
    };
    // There are no graphs.
    current [cuStreamIsCapturing cuStreamIsCapturing_ptsz] (stream: u64, status: Out<c_int>) = |_| {
        streams::known(stream)?;
        status.give(0)
    };
}
