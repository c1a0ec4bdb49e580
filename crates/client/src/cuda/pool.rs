//! The driver's pools of device memory.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_void};

use super::device::checked;
use super::{Result, functions, initialised};
use crate::device::Error;
use crate::device::pool::{self, Value};
use crate::pointers::{In, Out};

/// `CUmemPoolProps`, as much of it as is looked at: the type of memory, how handles of it are exported, and where it is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    r#type: c_int,
    handles: c_int,
    place: c_int,
    device: c_int,
}

impl Properties {
    /// Page-locked memory of a device that nobody else gets: the one sort that there is.
    const OURS: [c_int; 3] = [1, 0, 1];
}

/// Makes a pool of this sort.
///
/// # Errors
/// `NOT_SUPPORTED` where there is no such sort, `INVALID_DEVICE` or `INVALID_VALUE` where something is wrong.
pub fn create(pool: Out<u64>, properties: In<Properties>) -> Result {
    let Properties { r#type, handles, place, device } = properties.get()?;
    checked(device)?;
    if [r#type, handles, place] != Properties::OURS {
        return Err(Error::NOT_SUPPORTED);
    }
    pool.fill(|| Ok(pool::create()))
}

/// Writes an attribute.
///
/// # Errors
/// `INVALID_VALUE` where there is no such pool or attribute, or no place for it.
pub fn attribute(pool: u64, attribute: c_int, value: Out<c_void>) -> Result {
    let known = pool::attribute(pool, attribute)?;
    // SAFETY: it is NULL, or has room for the attribute, which is as wide in C.
    unsafe {
        match known {
            Value::Int(number) => value.of().give(number),
            Value::Wide(number) => value.of().give(number),
        }
    }
}

/// Sets an attribute.
///
/// # Errors
/// As [`attribute`]; `INVALID_VALUE` for one that cannot be set, or not so.
pub fn set_attribute(pool: u64, attribute: c_int, value: In<c_void>) -> Result {
    let is_int = pool::is_int(attribute);
    // SAFETY: it is NULL, or the attribute is there, which is as wide in C.
    let number = unsafe { if is_int { value.of::<c_int>().get()? as u64 } else { value.of::<u64>().get()? } };
    pool::set_attribute(pool, attribute, number)
}

functions! {
    initialised [cuDeviceGetDefaultMemPool] (pool: Out<u64>, device: c_int) = |_| {
        checked(device)?;
        pool.give(pool::default())
    };
    initialised [cuDeviceGetMemPool] (pool: Out<u64>, device: c_int) = |_| {
        checked(device)?;
        pool.give(pool::chosen())
    };
    initialised [cuDeviceSetMemPool] (device: c_int, pool: u64) = |_| {
        checked(device)?;
        pool::choose(pool)
    };
    initialised [cuMemPoolCreate] (pool: Out<u64>, properties: In<Properties>) = |_| create(pool, properties);
    initialised [cuMemPoolDestroy] (pool: u64) = |_| pool::destroy(pool);
    // Nothing is kept back.
    initialised [cuMemPoolTrimTo] (pool: u64, _bytes: usize) = |_| pool::known(pool);
    initialised [cuMemPoolGetAttribute] (pool: u64, which: c_int, value: Out<c_void>) = |_| {
        attribute(pool, which, value)
    };
    initialised [cuMemPoolSetAttribute] (pool: u64, which: c_int, value: In<c_void>) = |_| {
        set_attribute(pool, which, value)
    };
}
