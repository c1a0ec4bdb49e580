//! The driver's devices: the worker's one, which is number 0.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{CStr, c_char, c_int};

use super::{Result, functions, initialised};
use crate::device::{Error, attributes};
use crate::pointers::{In, Out};

/// Is this the device?
///
/// # Errors
/// `INVALID_DEVICE` where it is not.
pub fn checked(device: c_int) -> Result {
    if device == 0 { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

/// A number in a bus's address.
fn hexadecimal(text: &str) -> Result<u32> {
    u32::from_str_radix(text, 16).map_err(|_| Error::INVALID_VALUE)
}

/// Is an address on the bus, with its domain or without, with the function or without, all zeros, as the device's is?
///
/// # Errors
/// `INVALID_VALUE` where it is none.
pub fn is_ours(address: &CStr) -> Result<bool> {
    let address = address.to_str().map_err(|_| Error::INVALID_VALUE)?;
    let (buses, device) = address.rsplit_once(':').ok_or(Error::INVALID_VALUE)?;
    let mut all = 0;
    for part in buses.splitn(2, ':').chain(device.splitn(2, '.')) {
        all |= hexadecimal(part)?;
    }
    Ok(all == 0)
}

/// `CUdevprop`
#[derive(Clone, Copy)]
#[repr(C)]
struct Properties([c_int; 14]);

impl Properties {
    /// By the numbers of their attributes.
    fn new() -> Self {
        const ATTRIBUTES: [c_int; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        Self(ATTRIBUTES.map(|number| attributes::attribute(number).unwrap_or_default()))
    }
}
functions! {
    initialised [cuDeviceGet] (device: Out<c_int>, ordinal: c_int) = |_| {
        checked(ordinal)?;
        device.give(0)
    };
    initialised [cuDeviceGetCount] (count: Out<c_int>) = |_| count.give(1);
    initialised [cuDeviceGetName] (name: Out<c_char>, room: c_int, device: c_int) = |_| {
        checked(device)?;
        name.give_text(room, attributes::NAME)
    };
    initialised [cuDeviceGetUuid cuDeviceGetUuid_v2] (uuid: Out<[u8; 16]>, device: c_int) = |_| {
        checked(device)?;
        uuid.give(attributes::UUID)
    };
    initialised [cuDeviceTotalMem_v2] (bytes: Out<usize>, device: c_int) = |session| {
        checked(device)?;
        let (_, total) = session.memory_info()?;
        bytes.give(total as usize)
    };
    initialised [cuDeviceGetAttribute] (value: Out<c_int>, attribute: c_int, device: c_int) = |_| {
        checked(device)?;
        let is = attributes::attribute(attribute).ok_or(Error::INVALID_VALUE)?;
        value.give(is)
    };
    initialised [cuDeviceComputeCapability] (major: Out<c_int>, minor: Out<c_int>, device: c_int) = |_| {
        checked(device)?;
        major.give(attributes::CAPABILITY[0])?;
        minor.give(attributes::CAPABILITY[1])
    };
    initialised [cuDeviceGetProperties] (properties: Out<Properties>, device: c_int) = |_| {
        checked(device)?;
        properties.give(Properties::new())
    };
    initialised [cuDeviceGetPCIBusId] (address: Out<c_char>, room: c_int, device: c_int) = |_| {
        checked(device)?;
        address.give_text(room, attributes::BUS_ID)
    };
    initialised [cuDeviceGetByPCIBusId] (device: Out<c_int>, address: In<c_char>) = |_| {
        if is_ours(address.text()?)? { device.give(0) } else { Err(Error::INVALID_DEVICE) }
    };
    initialised [cuDeviceCanAccessPeer] (can: Out<c_int>, device: c_int, peer: c_int) = |_| {
        checked(device)?;
        checked(peer)?;
        // A device is no peer of its own.
        can.give(0)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_on_the_bus_has_four_forms() {
        for ours in [c"0000:00:00.0", c"0:0:0", c"00:00.0", c"00:00"] {
            assert_eq!(is_ours(ours), Ok(true), "{ours:?}");
        }
        for other in [c"0000:01:00.0", c"1:0:0", c"00:1f.0", c"00:00.1"] {
            assert_eq!(is_ours(other), Ok(false), "{other:?}");
        }
        for none in [c"", c"0", c"0000:00:00:00.0", c"00:0g.0", c":", c"00:00.0.0"] {
            assert_eq!(is_ours(none), Err(Error::INVALID_VALUE), "{none:?}");
        }
    }
}
