//! Links the client under the name by which the facades want it, and so that it loads in every program of an image
//! whose `/etc/ld.so.preload` names it: also where there is no `libgcc_s.so.1`.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvgpu_client.so");
    // Threads that end, and children, come back to it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // The standard library asks the linker for `-lgcc_s`, and finds this first: the unwinder is linked in.
    fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh)\n").expect("OUT_DIR");
    println!("cargo::rustc-cdylib-link-arg=-L{}", out.display());
}
