//! What vgpu costs in time, memory and bytes, measured on the machine at hand (`make bench`). Prints tables;
//! no figure passes or fails, but a hook that does not do all of its work ends the run.
//!
//! Makes simulated hosts as the tests do, so it needs root, and leaves nothing behind. What is compared is
//! measured in turns within one run; figures of different runs, or of different machines, say little.

#[path = "../../tests/common/mod.rs"]
mod common;
mod hook;
mod lock;
mod machine;
mod parked;
mod spawn;
mod turns;
mod whole;

use common::view::Cgroups;

/// The binary that is measured.
const VGPU: &str = env!("CARGO_BIN_EXE_vgpu");

fn main() {
    machine::print();
    hook::print(Cgroups::V1, "v1");
    hook::print(Cgroups::V2, "v2");
    lock::print();
    whole::print();
}
