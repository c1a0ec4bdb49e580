//! The runtime's devices: the worker's one, which is number 0, if there is a worker.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use vgpu_remoting::session::Session;

use super::properties::{Oldest, Properties};
use super::{Result, alone, ask, functions};
use crate::cuda::VERSION;
use crate::cuda::device::{checked, is_ours};
use crate::cuda::entry::{Found, PER_THREAD, entry};
use crate::device::{Error, attributes, context as contexts, is_there};
use crate::pointers::{In, Out};

/// Is this the device?
///
/// # Errors
/// `NO_DEVICE` where there is none, `INVALID_DEVICE` where it is another.
fn device(session: &Session<'_>, device: c_int) -> Result {
    if is_there(session) { checked(device) } else { Err(Error::NO_DEVICE) }
}

fn properties(session: &Session<'_>, number: c_int) -> Result<Properties> {
    device(session, number)?;
    let (_, memory) = session.memory_info()?;
    Ok(Properties::new(memory as usize))
}

/// Writes the address of a function of the driver's. Whoever does not ask whether it was found is told by the status.
fn found(name: In<c_char>, to: Out<*mut c_void>, flags: u64, status: Out<c_int>) -> Result {
    let found = entry(name, to, VERSION, flags)?;
    match status.give(found as c_int) {
        Err(_) if found != Found::Success => Err(Error::NOT_FOUND),
        _ => Ok(()),
    }
}

functions! {
    ask [cudaGetDeviceCount] (count: Out<c_int>) = |session| {
        count.give(is_there(session).into())?;
        if is_there(session) { Ok(()) } else { Err(Error::NO_DEVICE) }
    };
    ask [cudaGetDevice] (to: Out<c_int>) = |session| {
        device(session, 0)?;
        to.give(0)
    };
    ask [cudaSetDevice] (number: c_int) = |session| {
        device(session, number)?;
        contexts::select(session)
    };
    ask [cudaInitDevice] (number: c_int, device_flags: c_uint, flags: c_uint) = |session| {
        device(session, number)?;
        // Whether those of the device are to be set.
        match flags {
            0 => {}
            1 => contexts::set_primary_flags(device_flags)?,
            _ => return Err(Error::INVALID_VALUE),
        }
        contexts::start(session)
    };
    // The one that is there is chosen, whatever comes first in the list, or is wanted of it.
    ask [cudaSetValidDevices] (devices: In<c_int>, count: c_int) = |session| {
        let count = usize::try_from(count).map_err(|_| Error::INVALID_VALUE)?;
        // SAFETY: there are as many as the program says.
        (0..count).try_for_each(|i| device(session, unsafe { devices.at(i) }?))
    };
    ask [cudaChooseDevice] (to: Out<c_int>, wanted: In<c_void>) = |session| {
        device(session, 0)?;
        if wanted.is_there() { to.give(0) } else { Err(Error::INVALID_VALUE) }
    };
    ask [cudaGetDeviceProperties_v2] (to: Out<Properties>, number: c_int) = |session| {
        to.fill(|| properties(session, number))
    };
    // By this name programs call it that know what there was of it before CUDA 12.
    ask [cudaGetDeviceProperties] (to: Out<Oldest>, number: c_int) = |session| {
        to.fill(|| Ok(properties(session, number)?.oldest()))
    };
    ask [cudaDeviceGetAttribute] (value: Out<c_int>, attribute: c_int, number: c_int) = |session| {
        device(session, number)?;
        value.fill(|| attributes::attribute(attribute).ok_or(Error::INVALID_VALUE))
    };
    ask [cudaDeviceGetPCIBusId] (address: Out<c_char>, room: c_int, number: c_int) = |session| {
        device(session, number)?;
        address.give_text(room, attributes::BUS_ID)
    };
    ask [cudaDeviceGetByPCIBusId] (to: Out<c_int>, address: In<c_char>) = |session| {
        device(session, 0)?;
        if is_ours(address.text()?)? { to.give(0) } else { Err(Error::INVALID_DEVICE) }
    };
    ask [cudaDeviceCanAccessPeer] (can: Out<c_int>, number: c_int, peer: c_int) = |session| {
        device(session, number)?;
        device(session, peer)?;
        // A device is no peer of its own.
        can.give(0)
    };
    alone [cudaGetDriverEntryPoint] (name: In<c_char>, to: Out<*mut c_void>, flags: u64, status: Out<c_int>) = || {
        found(name, to, flags, status)
    };
    alone [cudaGetDriverEntryPoint_ptsz] (
        name: In<c_char>, to: Out<*mut c_void>, flags: u64, status: Out<c_int>
    ) = || found(name, to, if flags == 0 { PER_THREAD } else { flags }, status);
}
