//! The driver's contexts, and the one that it shares with the runtime.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_uint, c_void};

use super::device::checked;
use super::{Result, current, functions, initialised};
use crate::device::context::{self as contexts, Context, LIMITS};
use crate::device::{Error, stream};
use crate::pointers::{In, Out};

fn create(context: Out<u64>, flags: c_uint, device: c_int) -> Result {
    checked(device)?;
    context.fill(|| contexts::create(flags))
}

/// What is set on the current one.
///
/// # Errors
/// Where there is none.
pub fn set() -> Result<Context> {
    contexts::get(contexts::current()?)
}

/// Changes what is set on the current one.
///
/// # Errors
/// As [`set`].
pub fn change(change: impl FnOnce(&mut Context)) -> Result {
    let context = contexts::current()?;
    let mut set = contexts::get(context)?;
    change(&mut set);
    contexts::set(context, set)
}

/// Is it a limit that there is?
///
/// # Errors
/// `UNSUPPORTED_LIMIT` where it is not.
pub fn limit(limit: c_int) -> Result<usize> {
    usize::try_from(limit).ok().filter(|limit| *limit < LIMITS).ok_or(Error::UNSUPPORTED_LIMIT)
}

functions! {
    initialised [cuCtxCreate cuCtxCreate_v2] (context: Out<u64>, flags: c_uint, device: c_int) = |_| {
        create(context, flags, device)
    };
    initialised [cuCtxCreate_v3] (
        context: Out<u64>, affinities: In<c_void>, count: c_int, flags: c_uint, device: c_int
    ) = |_| {
        // Only a part of the device, which there is not.
        if affinities.is_there() || count != 0 {
            return Err(Error::NOT_SUPPORTED);
        }
        create(context, flags, device)
    };
    initialised [cuCtxDestroy cuCtxDestroy_v2] (context: u64) = |session| contexts::destroy(session, context);
    initialised [cuCtxPushCurrent cuCtxPushCurrent_v2] (context: u64) = |_| contexts::push(context);
    initialised [cuCtxPopCurrent cuCtxPopCurrent_v2] (context: Out<u64>) = |_| {
        context.tell(contexts::pop()?);
        Ok(())
    };
    initialised [cuCtxSetCurrent] (context: u64) = |_| {
        contexts::set_current((context != 0).then_some(context))
    };
    initialised [cuCtxGetCurrent] (context: Out<u64>) = |_| context.give(contexts::top().unwrap_or_default());
    current [cuCtxGetDevice] (device: Out<c_int>) = |_| device.give(0);
    current [cuCtxGetFlags] (flags: Out<c_uint>) = |_| flags.give(set()?.flags);
    current [cuCtxSetFlags] (flags: c_uint) = |_| {
        let flags = contexts::checked(flags)?;
        change(|set| set.flags = flags)
    };
    initialised [cuCtxGetApiVersion] (context: u64, version: Out<c_uint>) = |_| {
        let context = if context == 0 { contexts::current()? } else { context };
        version.give(contexts::get(context)?.version)
    };
    initialised [cuCtxGetId] (context: u64, id: Out<u64>) = |_| {
        let context = if context == 0 { contexts::current()? } else { context };
        contexts::get(context)?;
        // No handle is another's ever after.
        id.give(context)
    };
    current [cuCtxSynchronize] () = |session| Ok(session.synchronise()?);
    current [cuCtxGetLimit] (value: Out<usize>, which: c_int) = |_| {
        let which = limit(which)?;
        value.give(set()?.limits[which])
    };
    current [cuCtxSetLimit] (which: c_int, value: usize) = |_| {
        let which = limit(which)?;
        change(|set| set.limits[which] = value)
    };
    current [cuCtxGetCacheConfig] (config: Out<c_int>) = |_| config.give(set()?.cache);
    current [cuCtxSetCacheConfig] (config: c_int) = |_| match config {
        0..=3 => change(|set| set.cache = config),
        _ => Err(Error::INVALID_VALUE),
    };
    current [cuCtxGetSharedMemConfig] (config: Out<c_int>) = |_| config.give(set()?.banks);
    current [cuCtxSetSharedMemConfig] (config: c_int) = |_| match config {
        0..=2 => change(|set| set.banks = config),
        _ => Err(Error::INVALID_VALUE),
    };
    current [cuCtxGetStreamPriorityRange] (least: Out<c_int>, greatest: Out<c_int>) = |_| {
        least.tell(stream::PRIORITY);
        greatest.tell(stream::PRIORITY);
        Ok(())
    };
    initialised [cuDevicePrimaryCtxRetain] (context: Out<u64>, device: c_int) = |_| {
        checked(device)?;
        context.fill(|| Ok(contexts::retain()))
    };
    initialised [cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2] (device: c_int) = |session| {
        checked(device)?;
        contexts::release(session)
    };
    initialised [cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2] (device: c_int) = |session| {
        checked(device)?;
        contexts::reset(session)
    };
    initialised [cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2] (
        device: c_int, flags: c_uint
    ) = |_| {
        checked(device)?;
        contexts::set_primary_flags(flags)
    };
    initialised [cuDevicePrimaryCtxGetState] (device: c_int, flags: Out<c_uint>, active: Out<c_int>) = |_| {
        checked(device)?;
        flags.give(contexts::primary_flags())?;
        active.give(contexts::is_active().into())
    };
    // Nothing is recorded of what a program does.
    current [cuProfilerStart cuProfilerStop] () = |_| Ok(());
}
