//! The runtime's memory, of the device and of the host, which is the driver's too.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_uint};

use vgpu_remoting::session::Session;

use super::{Result, answer, functions};
use crate::device::{Error, attributes, host, memory, pool, stream};
use crate::pointers::Out;

/// The address of so many bytes of device memory; of none, it is NULL.
///
/// # Errors
/// As [`memory::allocate`].
pub fn allocate(session: &Session<'_>, bytes: usize) -> Result<u64> {
    if bytes == 0 { Ok(0) } else { memory::allocate(session, bytes as u64) }
}

/// The address of so many bytes of host-allocated memory; of none, it is NULL.
fn allocate_host(session: &Session<'_>, bytes: usize, flags: c_uint) -> Result<u64> {
    if bytes == 0 { Ok(0) } else { host::allocate(session, bytes as u64, flags) }
}

/// Frees what begins at an address, if that is not NULL.
fn free(session: &Session<'_>, address: u64) -> Result {
    if address == 0 { Ok(()) } else { memory::free(session, address) }
}

/// What rows begin at a multiple of: as textures do.
pub fn pitch_of(width: usize) -> Option<usize> {
    const TEXTURES: c_int = 14;
    width.checked_next_multiple_of(attributes::attribute(TEXTURES)?.try_into().ok()?)
}

/// `cudaPointerAttributes`
#[derive(Clone, Copy)]
#[repr(C)]
struct Attributes {
    /// `cudaMemoryType`
    r#type: c_int,
    device: c_int,
    on_device: u64,
    on_host: u64,
}

impl Attributes {
    /// Of an address.
    fn new(session: &Session<'_>, address: u64) -> Self {
        /// `cudaInvalidDeviceId`
        const NO_DEVICE: c_int = -2;
        // Neither can get at the other's.
        if memory::at(address).is_some() {
            Self { r#type: 2, device: 0, on_device: address, on_host: 0 }
        } else if session.host_allocation(address).is_some() {
            Self { r#type: 1, device: 0, on_device: 0, on_host: address }
        } else {
            Self { r#type: 0, device: NO_DEVICE, on_device: 0, on_host: address }
        }
    }
}

functions! {
    answer [cudaMemGetInfo] (free: Out<usize>, total: Out<usize>) = |session| {
        let (now_free, all) = session.memory_info()?;
        free.give(now_free as usize)?;
        total.give(all as usize)
    };
    answer [cudaMalloc] (address: Out<u64>, bytes: usize) = |session| address.fill(|| allocate(session, bytes));
    answer [cudaMallocPitch] (address: Out<u64>, pitch: Out<usize>, width: usize, height: usize) = |session| {
        let row = pitch_of(width).ok_or(Error::OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(Error::OUT_OF_MEMORY)?;
        pitch.give(row)?;
        address.fill(|| allocate(session, bytes))
    };
    answer [cudaFree] (address: u64) = |session| free(session, address);
    answer [cudaMallocAsync cudaMallocAsync_ptsz] (address: Out<u64>, bytes: usize, stream: u64) = |session| {
        stream::known(stream)?;
        address.fill(|| pool::allocate(session, bytes as u64, pool::chosen()))
    };
    answer [cudaMallocFromPoolAsync cudaMallocFromPoolAsync_ptsz] (
        address: Out<u64>, bytes: usize, from: u64, stream: u64
    ) = |session| {
        stream::known(stream)?;
        address.fill(|| pool::allocate(session, bytes as u64, from))
    };
    answer [cudaFreeAsync cudaFreeAsync_ptsz] (address: u64, stream: u64) = |session| {
        stream::known(stream)?;
        free(session, address)
    };
    answer [cudaMallocHost] (address: Out<u64>, bytes: usize) = |session| {
        address.fill(|| allocate_host(session, bytes, 0))
    };
    answer [cudaHostAlloc] (address: Out<u64>, bytes: usize, flags: c_uint) = |session| {
        address.fill(|| allocate_host(session, bytes, flags))
    };
    answer [cudaFreeHost] (address: u64) = |session| {
        if address == 0 { Ok(()) } else { host::free(session, address) }
    };
    answer [cudaHostGetFlags] (flags: Out<c_uint>, address: u64) = |session| {
        flags.give(session.host_allocation(address).ok_or(Error::INVALID_VALUE)?.flags)
    };
    // None of it is mapped, whatever was asked for.
    answer [cudaHostGetDevicePointer] (_address: Out<u64>, _of: u64, _flags: c_uint) = |_| Err(Error::INVALID_VALUE);
    answer [cudaPointerGetAttributes] (to: Out<Attributes>, address: u64) = |session| {
        to.give(Attributes::new(session, address))
    };
}
