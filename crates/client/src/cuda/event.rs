//! The driver's events, which are the runtime's too.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::c_uint;

use super::{current, functions};
use crate::device::{Error, event as events};
use crate::pointers::Out;

functions! {
    current [cuEventCreate] (event: Out<u64>, flags: c_uint) = |_| {
        event.fill(|| events::create(flags))
    };
    current [cuEventDestroy cuEventDestroy_v2] (event: u64) = |session| events::destroy(session, event);
    current [cuEventRecord cuEventRecord_ptsz] (event: u64, stream: u64) = |session| {
        events::record(session, event, stream)
    };
    current [cuEventRecordWithFlags cuEventRecordWithFlags_ptsz] (
        event: u64, stream: u64, flags: c_uint
    ) = |session| {
        // The one flag is for graphs.
        if flags > 1 { Err(Error::INVALID_VALUE) } else { events::record(session, event, stream) }
    };
    current [cuEventSynchronize] (event: u64) = |session| events::synchronise(session, event);
    current [cuEventQuery] (event: u64) = |session| events::query(session, event);
    current [cuEventElapsedTime] (milliseconds: Out<f32>, from: u64, to: u64) = |session| {
        milliseconds.fill(|| events::elapsed(session, from, to))
    };
}
