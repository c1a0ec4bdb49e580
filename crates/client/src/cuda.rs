//! The driver's C functions. Here what all of them have: that the driver works, and that a context is current; and those
//! that want neither.
//!
//! A function has several names where what they differ in is nothing here: the default stream that is meant by NULL
//! (`_ptsz`, `_ptds`), or the version, where only what it does has changed.
#![allow(unsafe_code, reason = "C functions' names")]

mod context;
mod copy;
mod device;
mod entry;
mod event;
mod memory;
mod names;
mod pointer;
mod pool;
mod stream;

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

fn code(result: Result) -> c_int {
    result.map_or_else(|Error(error)| error, |()| 0)
}

/// What C is told of a call that wants no worker, and is the same in a child.
fn alone(call: impl FnOnce() -> Result) -> c_int {
    code(catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Error::UNKNOWN)))
}

/// What C is told of a call that may be made before `cuInit`.
fn answer(call: impl FnOnce(&Session<'static>) -> Result) -> c_int {
    alone(|| process::call(|session, _| call(session)))
}

/// What C is told of a call that wants the driver to work.
fn initialised(call: impl FnOnce(&Session<'static>) -> Result) -> c_int {
    answer(|session| {
        crate::device::initialised()?;
        call(session)
    })
}

/// What C is told of a call that wants a current context.
fn current(call: impl FnOnce(&Session<'static>) -> Result) -> c_int {
    initialised(|session| {
        contexts::current()?;
        call(session)
    })
}

/// C functions, by all of their names.
macro_rules! functions {
    ($($enter:ident [$($name:ident)+] $arguments:tt = $call:expr;)*) => {
        $($(functions! { @ $enter $name $arguments $call })+)*
    };
    (@ $enter:ident $name:ident ($($argument:ident: $type:ty),* $(,)?) $call:expr) => {
        const _: () = {
            // SAFETY: the name is this function's alone.
            #[unsafe(export_name = concat!("vgpu_cuda_1_", stringify!($name)))]
            extern "C" fn function($($argument: $type),*) -> std::ffi::c_int {
                $enter($call)
            }
        };
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
