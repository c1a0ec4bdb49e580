//! What the README claims about speed and size, measured on the machine at hand (`make bench`). Prints
//! tables; no figure passes or fails, but a hook that does not do all of its work ends the run.
//!
//! Makes simulated hosts as the tests do, so it needs root, and leaves nothing behind. What is compared
//! runs in turns within one run: figures of different runs, or of different machines, say little.

#[path = "../../tests/common/mod.rs"]
mod common;
mod hook;
mod lock;
mod machine;
mod parked;
mod series;
mod spawn;
mod whole;

use common::view::Cgroups;

/// The binary that is measured.
const VGPU: &str = env!("CARGO_BIN_EXE_vgpu");

fn main() {
    machine::print();
    for cgroups in [Cgroups::V1, Cgroups::V2] {
        hook::print(cgroups);
    }
    lock::print();
    whole::print();
}
