//! The driver's streams, which are the runtime's too.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_uint};

use super::{current, functions};
use crate::device::{Error, event, stream as streams};
use crate::pointers::Out;

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
    // What is done cannot be told from what is not without waiting.
    current [cuStreamQuery cuStreamQuery_ptsz] (stream: u64) = |session| streams::synchronise(session, stream);
    current [cuStreamWaitEvent cuStreamWaitEvent_ptsz] (stream: u64, event: u64, flags: c_uint) = |_| {
        // The one flag is for graphs.
        if flags > 1 {
            return Err(Error::INVALID_VALUE);
        }
        streams::known(stream)?;
        event::known(event)
    };
    current [cuStreamGetFlags cuStreamGetFlags_ptsz] (stream: u64, flags: Out<c_uint>) = |_| flags.give(streams::flags(stream)?);
    current [cuStreamGetPriority cuStreamGetPriority_ptsz] (stream: u64, priority: Out<c_int>) = |_| {
        streams::known(stream)?;
        priority.give(streams::PRIORITY)
    };
    current [cuStreamGetCtx cuStreamGetCtx_ptsz] (stream: u64, context: Out<u64>) = |_| context.give(streams::context(stream)?);
    current [cuStreamGetId cuStreamGetId_ptsz] (stream: u64, id: Out<u64>) = |_| {
        streams::known(stream)?;
        // No handle is another's ever after.
        id.give(stream)
    };
    // There are no graphs.
    current [cuStreamIsCapturing cuStreamIsCapturing_ptsz] (stream: u64, status: Out<c_int>) = |_| {
        streams::known(stream)?;
        status.give(0)
    };
}
