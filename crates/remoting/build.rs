//! Gives the crate the number of the source, see `src/fingerprint.rs`.

#[path = "src/fingerprint.rs"]
mod fingerprint;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for folder in fingerprint::FOLDERS {
        println!("cargo::rerun-if-changed={folder}");
    }
    let number = fingerprint::of(&fingerprint::source());
    println!("cargo::rustc-env=VGPU_REMOTING_FINGERPRINT={number:016x}");
}
