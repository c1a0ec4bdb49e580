//! All `unsafe` of this package, behind safe functions. Everything below it talks to the kernel.

pub mod access;
pub mod bpf;
pub mod clone;
pub mod fds;
pub mod mount;
pub mod nvml;
pub mod process;
pub mod start;
