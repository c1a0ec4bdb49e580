//! All `unsafe` of this package, behind safe functions. Everything below it talks to the kernel.

pub mod bpf;
pub mod clone;
pub mod fds;
pub mod mount;
pub mod process;
