//! The runtime's events, which are the driver's too.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::c_uint;

use super::{answer, functions};
use crate::device::{Error, event as events};
use crate::pointers::Out;

functions! {
    answer [cudaEventCreate] (event: Out<u64>) = |_| event.fill(|| events::create(0));
    answer [cudaEventCreateWithFlags] (event: Out<u64>, flags: c_uint) = |_| event.fill(|| events::create(flags));
    answer [cudaEventDestroy] (event: u64) = |session| events::destroy(session, event);
    answer [cudaEventRecord cudaEventRecord_ptsz] (event: u64, stream: u64) = |session| {
        events::record(session, event, stream)
    };
    answer [cudaEventRecordWithFlags cudaEventRecordWithFlags_ptsz] (
        event: u64, stream: u64, flags: c_uint
    ) = |session| {
        // The one flag is for graphs.
        if flags > 1 { Err(Error::INVALID_VALUE) } else { events::record(session, event, stream) }
    };
    answer [cudaEventSynchronize] (event: u64) = |session| events::synchronise(session, event);
    answer [cudaEventQuery] (event: u64) = |session| events::query(session, event);
    answer [cudaEventElapsedTime] (milliseconds: Out<f32>, from: u64, to: u64) = |session| {
        milliseconds.fill(|| events::elapsed(session, from, to))
    };
}
