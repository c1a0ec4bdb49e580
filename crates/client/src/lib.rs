//! The library behind the facades in a container: one C function for each API function that is served, and all state
//! of the process. How calls are answered is in [`vgpu_remoting`]; here are C's types, and what a process is: its
//! threads, its children, its log.
//!
//! A facade's function jumps to the one here that has its name after `vgpu_`, the library's name and its version. No
//! panic gets out of one.

mod arguments;
mod counters;
mod cublas;
mod cuda;
mod cudart;
mod cudnn;
mod device;
mod functions;
mod handles;
mod pointers;
mod process;
mod sys;
mod unserved;

use std::ffi::CStr;

/// Tells whoever wonders why a program does without its GPU: on stderr, since a container has no other place of ours.
fn log(line: &str) {
    // A program may have closed it.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("vgpu: {line}\n").as_bytes());
}

/// The name of a status, of a library's.
fn name_of(names: &[(i32, &'static CStr)], status: i32) -> Option<&'static CStr> {
    names.iter().find(|(number, _)| *number == status).map(|(_, name)| *name)
}
