//! Links the unwinder into the program. As a shared library (libgcc_s) it costs each start of a hook a tenth
//! of a millisecond: it is looked for, mapped and relocated, and its constructor asks the processor what it
//! is, which a virtual machine answers slowly. The C library stays shared: NVML is loaded at run time.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of_target = |key: &str| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    let whole = of_target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if of_target("OS") == "linux" && of_target("ENV") == "gnu" && !whole {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
