//! What the driver knows of an address.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_uint, c_void};

use super::{Result, functions, initialised};
use crate::device::Error;
use crate::device::memory::{self, Allocation};
use crate::pointers::{In, Out};

/// A `CUpointer_attribute`, as wide as it is in C.
#[derive(Debug, PartialEq, Eq)]
enum Attribute {
    Wide(u64),
    Narrow(u32),
}

impl Attribute {
    fn give(self, to: Out<c_void>) -> Result {
        match self {
            Self::Wide(value) => to.of().give(value),
            Self::Narrow(value) => to.of().give(value),
        }
    }
}

const HOST_POINTER: c_int = 4;
const TOKENS: c_int = 5;

/// An attribute of an address that is in an allocation.
fn attribute(number: c_int, address: u64, of: Allocation) -> Result<Attribute> {
    /// `CU_MEMORYTYPE_DEVICE`
    const DEVICE: u32 = 2;
    /// Read and write.
    const ACCESS: u32 = 3;
    Ok(match number {
        1 => Attribute::Wide(of.context),
        2 => Attribute::Narrow(DEVICE),
        3 => Attribute::Wide(address),
        HOST_POINTER => return Err(Error::INVALID_VALUE),
        TOKENS => return Err(Error::NOT_SUPPORTED),
        7 => Attribute::Wide(of.id),
        // Copies that wait; managed; the device's number; whether other processes can open it; and whether others on
        // the bus can.
        6 | 8 | 9 | 10 | 15 => Attribute::Narrow(0),
        11 => Attribute::Wide(of.address),
        12 => Attribute::Wide(of.bytes),
        // It is there.
        13 => Attribute::Narrow(1),
        // What handles it can be exported by.
        14 => Attribute::Wide(0),
        16 => Attribute::Narrow(ACCESS),
        17 => Attribute::Wide(of.pool),
        _ => return Err(Error::INVALID_VALUE),
    })
}

/// What an attribute of an address is that is in nothing.
fn nothing(number: c_int) -> Result<Attribute> {
    const DEVICE_ORDINAL: c_int = 9;
    /// `CU_DEVICE_INVALID`
    const NO_DEVICE: u32 = -2_i32 as u32;
    match number {
        DEVICE_ORDINAL => Ok(Attribute::Narrow(NO_DEVICE)),
        1 | 3 | HOST_POINTER | TOKENS | 7 | 11 | 12 | 14 | 17 => Ok(Attribute::Wide(0)),
        2 | 6 | 8 | 10 | 13 | 15 | 16 => Ok(Attribute::Narrow(0)),
        _ => Err(Error::INVALID_VALUE),
    }
}

functions! {
    initialised [cuPointerGetAttribute] (value: Out<c_void>, number: c_int, address: u64) = |_| {
        let found = memory::at(address).ok_or(Error::INVALID_VALUE)?;
        attribute(number, address, found)?.give(value)
    };
    // What there is none of is 0, and so is all of an address that is in nothing.
    initialised [cuPointerGetAttributes] (
        count: c_uint, numbers: In<c_int>, values: In<Out<c_void>>, address: u64
    ) = |_| {
        if count == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let found = memory::at(address);
        for i in 0..count as usize {
            let number = numbers.at(i)?;
            let known = found.and_then(|found| attribute(number, address, found).ok());
            known.map_or_else(|| nothing(number), Ok)?.give(values.at(i)?)?;
        }
        Ok(())
    };
}
