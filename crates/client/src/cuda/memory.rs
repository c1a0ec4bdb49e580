//! The driver's memory, of the device and of the host, which is the runtime's too.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_uint, c_void};
use std::num::NonZero;

use vgpu_remoting::session::Session;

use super::{Result, current, functions};
use crate::device::{Error, host, memory, pool, stream};
use crate::pointers::{In, Out};

/// What rows of `cuMemAllocPitch` begin at a multiple of, in bytes.
const PITCH: usize = 512;

/// Frees what begins at an address, if that is not NULL.
fn free(session: &Session<'_>, address: u64) -> Result {
    if address == 0 { Ok(()) } else { memory::free(session, address) }
}

functions! {
    current [cuMemGetInfo_v2] (free: Out<usize>, total: Out<usize>) = |session| {
        let (now_free, all) = session.memory_info()?;
        free.give(now_free as usize)?;
        total.give(all as usize)
    };
    current [cuMemAlloc_v2] (address: Out<u64>, bytes: usize) = |session| {
        let size = NonZero::new(bytes as u64).ok_or(Error::INVALID_VALUE)?;
        address.fill(|| memory::allocate(session, size.get()))
    };
    current [cuMemAllocPitch_v2] (
        address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: c_uint
    ) = |session| {
        if width == 0 || height == 0 || ![4, 8, 16].contains(&element) {
            return Err(Error::INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).ok_or(Error::OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(Error::OUT_OF_MEMORY)?;
        pitch.give(row)?;
        address.fill(|| memory::allocate(session, bytes as u64))
    };
    current [cuMemFree_v2] (address: u64) = |session| free(session, address);
    current [cuMemAllocAsync cuMemAllocAsync_ptsz] (
        address: Out<u64>, bytes: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        address.fill(|| pool::allocate(session, bytes as u64, pool::chosen()))
    };
    current [cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz] (
        address: Out<u64>, bytes: usize, from: u64, stream: u64
    ) = |session| {
        stream::known(stream)?;
        address.fill(|| pool::allocate(session, bytes as u64, from))
    };
    current [cuMemFreeAsync cuMemFreeAsync_ptsz] (address: u64, stream: u64) = |session| {
        stream::known(stream)?;
        free(session, address)
    };
    current [cuMemGetAddressRange_v2] (base: Out<u64>, size: Out<usize>, address: u64) = |_| {
        let found = memory::at(address).ok_or(Error::NOT_FOUND)?;
        base.tell(found.address);
        size.tell(found.bytes as usize);
        Ok(())
    };
    current [cuMemHostAlloc] (address: Out<u64>, bytes: usize, flags: c_uint) = |session| {
        address.fill(|| host::allocate(session, bytes as u64, flags))
    };
    current [cuMemAllocHost_v2] (address: Out<u64>, bytes: usize) = |session| {
        address.fill(|| host::allocate(session, bytes as u64, 0))
    };
    current [cuMemFreeHost] (address: u64) = |session| {
        if address == 0 { Ok(()) } else { host::free(session, address) }
    };
    current [cuMemHostGetFlags] (flags: Out<c_uint>, address: u64) = |session| {
        flags.give(session.host_allocation(address).ok_or(Error::INVALID_VALUE)?.flags)
    };
    // No memory of the program's is the device's too.
    current [cuMemHostGetDevicePointer_v2] (_address: Out<u64>, _of: In<c_void>, _flags: c_uint) = |_| {
        Err(Error::INVALID_VALUE)
    };
}
