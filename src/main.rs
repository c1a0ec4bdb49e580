//! The program, begun as C's are: see [`vgpu::sys::start`]. Calls the library, returns its exit code.
#![no_main]
#![allow(unsafe_code, reason = "the name that the C library calls the program by")]

use std::ffi::{c_char, c_int};

/// Arguments are in `std::env::args_os` all the same: the standard library takes them in `.init_array`.
// SAFETY: nothing else of this name is linked in, and it has the type by which the C library calls it.
#[unsafe(no_mangle)]
extern "C" fn main(_argc: c_int, _argv: *const *const c_char) -> c_int {
    vgpu::sys::start::run(vgpu::cli::main)
}
