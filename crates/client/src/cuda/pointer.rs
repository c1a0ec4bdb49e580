//! What the driver knows of an address.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_uint, c_void};

use vgpu_remoting::pinned::Known;
use vgpu_remoting::session::Session;

use super::{Result, functions, initialised};
use crate::device::memory::{self, Allocation};
use crate::device::{Error, host};
use crate::pointers::{In, Out};

/// A `CUpointer_attribute`, as wide as it is in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    Wide(u64),
    Narrow(u32),
}

use Attribute::{Narrow, Wide};

impl Attribute {
    /// # Safety
    /// It is NULL where it goes, or there is room for it.
    unsafe fn give(self, to: Out<c_void>) -> Result {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Wide(value) => to.of().give(value),
                Narrow(value) => to.of().give(value),
            }
        }
    }
}

/// What an address is in.
#[derive(Clone, Copy)]
enum Memory {
    Device(Allocation),
    Host(Known),
}

impl Memory {
    fn at(session: &Session<'_>, address: u64) -> Option<Self> {
        let host = || session.host_allocation(address).map(Self::Host);
        memory::at(address).map(Self::Device).or_else(host)
    }
}

/// `CUmemorytype`
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// That it may be read and written.
const ACCESS: u32 = 3;

/// An attribute of an address.
///
/// # Errors
/// `INVALID_VALUE` where there is no such, `NOT_SUPPORTED` for what others on the bus would know it by.
fn attribute(number: c_int, address: u64, of: Memory) -> Result<Attribute> {
    let device = matches!(of, Memory::Device(_));
    let (start, bytes) = match of {
        Memory::Device(of) => (of.address, of.bytes),
        Memory::Host(of) => (of.address, of.bytes),
    };
    Ok(match (number, of) {
        (1, Memory::Device(of)) => Wide(of.context),
        (1, Memory::Host(_)) => Wide(host::context_of(start).unwrap_or_default()),
        (2, _) => Narrow(if device { DEVICE } else { HOST }),
        // The device has no address of the host's memory, nor the host one of the device's.
        (3, Memory::Device(_)) | (4, Memory::Host(_)) => Wide(address),
        (3 | 4, _) => return Err(Error::INVALID_VALUE),
        (5, _) => return Err(Error::NOT_SUPPORTED),
        (7, Memory::Device(of)) => Wide(of.id),
        (7, Memory::Host(of)) => Wide(of.address),
        // Copies that wait; managed; the device's number; whether other processes can open it; and whether others on
        // the bus can.
        (6 | 8 | 9 | 10 | 15, _) => Narrow(0),
        (11, _) => Wide(start),
        (12, _) => Wide(bytes),
        // Whether it is there.
        (13, _) => Narrow(1),
        // What handles it can be exported by.
        (14, _) => Wide(0),
        (16, _) => Narrow(ACCESS),
        (17, Memory::Device(of)) => Wide(of.pool),
        (17, Memory::Host(_)) => Wide(0),
        _ => return Err(Error::INVALID_VALUE),
    })
}

/// What an attribute of an address is that is in nothing.
///
/// # Errors
/// `INVALID_VALUE` where there is no such.
fn nothing(number: c_int) -> Result<Attribute> {
    /// `CU_DEVICE_INVALID`
    const NO_DEVICE: u32 = -2_i32 as u32;
    match number {
        9 => Ok(Narrow(NO_DEVICE)),
        1 | 3 | 4 | 5 | 7 | 11 | 12 | 14 | 17 => Ok(Wide(0)),
        2 | 6 | 8 | 10 | 13 | 15 | 16 => Ok(Narrow(0)),
        _ => Err(Error::INVALID_VALUE),
    }
}

functions! {
    initialised [cuPointerGetAttribute] (value: Out<c_void>, number: c_int, address: u64) = |session| {
        let found = Memory::at(session, address).ok_or(Error::INVALID_VALUE)?;
        let attribute = attribute(number, address, found)?;
        // SAFETY: it is NULL, or has room for the attribute with this number.
        unsafe { attribute.give(value) }
    };
    // What there is none of is 0, and so is all of an address that is in nothing.
    initialised [cuPointerGetAttributes] (
        count: c_uint, numbers: In<c_int>, values: In<Out<c_void>>, address: u64
    ) = |session| {
        if count == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let found = Memory::at(session, address);
        for i in 0..count as usize {
            // SAFETY: there are as many numbers as the program says, and places.
            let (number, value) = unsafe { (numbers.at(i)?, values.at(i)?) };
            let known = found.and_then(|found| attribute(number, address, found).ok());
            let attribute = known.map_or_else(|| nothing(number), Ok)?;
            // SAFETY: as above, of this number.
            unsafe { attribute.give(value) }?;
        }
        Ok(())
    };
}
