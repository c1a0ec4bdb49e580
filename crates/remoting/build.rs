//! Gives the crate the number of its source, see `src/fingerprint.rs`.

#[path = "src/fingerprint.rs"]
mod fingerprint;

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    let number = fingerprint::of(&fingerprint::files(Path::new("src")));
    println!("cargo::rustc-env=VGPU_REMOTING_FINGERPRINT={number:016x}");
}
