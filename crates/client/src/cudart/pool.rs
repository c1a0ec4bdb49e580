//! The runtime's pools of device memory, which are the driver's too.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::{c_int, c_void};

use super::{answer, functions};
use crate::cuda::device::checked;
use crate::cuda::pool::{Properties, attribute, create, set_attribute};
use crate::device::pool;
use crate::pointers::{In, Out};

functions! {
    answer [cudaDeviceGetDefaultMemPool] (pool: Out<u64>, device: c_int) = |_| {
        checked(device)?;
        pool.give(pool::default())
    };
    answer [cudaDeviceGetMemPool] (pool: Out<u64>, device: c_int) = |_| {
        checked(device)?;
        pool.give(pool::chosen())
    };
    answer [cudaDeviceSetMemPool] (device: c_int, pool: u64) = |_| {
        checked(device)?;
        pool::choose(pool)
    };
    answer [cudaMemPoolCreate] (pool: Out<u64>, properties: In<Properties>) = |_| create(pool, properties);
    answer [cudaMemPoolDestroy] (pool: u64) = |_| pool::destroy(pool);
    // Nothing is kept back.
    answer [cudaMemPoolTrimTo] (pool: u64, _bytes: usize) = |_| pool::known(pool);
    answer [cudaMemPoolGetAttribute] (pool: u64, which: c_int, value: Out<c_void>) = |_| attribute(pool, which, value);
    answer [cudaMemPoolSetAttribute] (pool: u64, which: c_int, value: In<c_void>) = |_| {
        set_attribute(pool, which, value)
    };
}
