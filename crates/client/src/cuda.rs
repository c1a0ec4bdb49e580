//! The driver's C functions. Here what all of them have: that the driver works, and that a context is current; and those
//! that want neither.
#![allow(unsafe_code, reason = "C functions' names")]

pub mod context;
mod copy;
pub mod device;
pub mod entry;
mod event;
mod memory;
mod names;
mod pointer;
pub mod pool;
pub mod stream;

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use vgpu_remoting::session::Session;

use crate::device::{Error, context as contexts};
use crate::pointers::Out;
use crate::{name_of, process};

/// The version of CUDA that is stood in for, 12.4.
pub const VERSION: c_int = 12_040;

type Result<T = ()> = std::result::Result<T, Error>;

/// What C is told of a result.
pub fn code(result: Result) -> c_int {
    result.map_or_else(|Error(error)| error, |()| 0)
}

/// What C is told of a call that wants no worker, and is the same in a child.
fn alone(call: impl FnOnce() -> Result) -> c_int {
    code(catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Error::UNKNOWN)))
}

/// What C is told of a call that may be made before `cuInit`.
fn answer(call: impl FnOnce(&'static Session<'static>) -> Result) -> c_int {
    alone(|| process::call(call))
}

/// What C is told of a call that wants the driver to work.
fn initialised(call: impl FnOnce(&'static Session<'static>) -> Result) -> c_int {
    answer(|session| {
        crate::device::initialised()?;
        call(session)
    })
}

/// What C is told of a call that wants a current context.
fn current(call: impl FnOnce(&'static Session<'static>) -> Result) -> c_int {
    initialised(|session| {
        contexts::current()?;
        call(session)
    })
}

/// C functions of the driver.
macro_rules! functions {
    ($($functions:tt)*) => {
        $crate::functions::functions! { "vgpu_cuda_1_" $($functions)* }
    };
}
use functions;

functions! {
    answer [cuInit] (flags: c_uint) = |session| {
        if flags == 0 { crate::device::initialise(session) } else { Err(Error::INVALID_VALUE) }
    };
    alone [cuDriverGetVersion] (version: Out<c_int>) = || version.give(VERSION);
    // A description of an error is its name: the driver's own are not ours.
    alone [cuGetErrorName cuGetErrorString] (error: c_int, text: Out<*const c_char>) = || {
        let name = name_of(names::NAMES, error);
        text.give(name.map_or(ptr::null(), CStr::as_ptr))?;
        name.map(|_| ()).ok_or(Error::INVALID_VALUE)
    };
}
