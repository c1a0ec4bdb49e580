//! What the runtime has of contexts: the primary one, which it makes current by itself.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_uint};

use super::{Result, answer, ask, functions};
use crate::cuda::context::{change, limit, set};
use crate::device::{Error, context as contexts, is_there, stream};
use crate::pointers::Out;

functions! {
    answer [cudaDeviceSynchronize cudaThreadSynchronize] () = |session| Ok(session.synchronise()?);
    ask [cudaDeviceReset cudaThreadExit] () = |session| {
        if is_there(session) { contexts::reset(session) } else { Err(Error::NO_DEVICE) }
    };
    ask [cudaGetDeviceFlags] (flags: Out<c_uint>) = |session| {
        if is_there(session) { flags.give(contexts::primary_flags()) } else { Err(Error::NO_DEVICE) }
    };
    ask [cudaSetDeviceFlags] (flags: c_uint) = |session| {
        if is_there(session) { contexts::set_primary_flags(flags) } else { Err(Error::NO_DEVICE) }
    };
    answer [cudaDeviceGetLimit cudaThreadGetLimit] (value: Out<usize>, which: c_int) = |_| {
        let which = limit(which)?;
        value.give(set()?.limits[which])
    };
    answer [cudaDeviceSetLimit cudaThreadSetLimit] (which: c_int, value: usize) = |_| {
        let which = limit(which)?;
        change(|set| set.limits[which] = value)
    };
    answer [cudaDeviceGetCacheConfig cudaThreadGetCacheConfig] (config: Out<c_int>) = |_| config.give(set()?.cache);
    answer [cudaDeviceSetCacheConfig cudaThreadSetCacheConfig] (config: c_int) = |_| match config {
        0..=3 => change(|set| set.cache = config),
        _ => Err(Error::INVALID_VALUE),
    };
    answer [cudaDeviceGetSharedMemConfig] (config: Out<c_int>) = |_| config.give(set()?.banks);
    answer [cudaDeviceSetSharedMemConfig] (config: c_int) = |_| match config {
        0..=2 => change(|set| set.banks = config),
        _ => Err(Error::INVALID_VALUE),
    };
    answer [cudaDeviceGetStreamPriorityRange] (least: Out<c_int>, greatest: Out<c_int>) = |_| {
        least.tell(stream::PRIORITY);
        greatest.tell(stream::PRIORITY);
        Ok(())
    };
    // Nothing is recorded of what a program does.
    ask [cudaProfilerStart cudaProfilerStop] () = |_| -> Result { Ok(()) };
}
