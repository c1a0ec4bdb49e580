//! Makes of a folder, named as the library is and with its symbols, what `facade.rs` is built of; and has it linked
//! under that name, with the library's symbol versions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let soname = folder.file_name().and_then(|name| name.to_str()).expect("a folder named as the library");
    println!("cargo::rerun-if-changed=../build.rs");
    println!("cargo::rerun-if-changed=symbols");
    fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh)\n").expect("OUT_DIR");
    let symbols = fs::read_to_string(folder.join("symbols")).expect("the library's symbols");
    let client = prefix(soname);
    fs::write(out.join("symbols.rs"), format!("facade! {{ \"{client}\"\n{symbols}}}\n")).expect("OUT_DIR");
    for argument in arguments(soname, &stand_in(&out), &out) {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}

/// What the client's names for a library's functions begin with: of `libcudnn.so.9`, `vgpu_cudnn_9_`.
fn prefix(soname: &str) -> String {
    let (name, version) = soname.trim_start_matches("lib").split_once(".so.").expect("libNAME.so.VERSION");
    format!("vgpu_{name}_{version}_")
}

fn arguments(soname: &str, client: &Path, out: &Path) -> Vec<String> {
    let mut arguments = vec![
        // Of the linkers, the one that makes versions of a library's name and goes along with Rust's list of exports.
        "-fuse-ld=bfd".to_owned(),
        format!("-Wl,-soname,{soname}"),
        // The client is beside it.
        "-Wl,-rpath,$ORIGIN".to_owned(),
        "-Wl,--no-as-needed".to_owned(),
        client.display().to_string(),
        "-Wl,--strip-all".to_owned(),
        // Nothing in it unwinds. The standard library asks for `-lgcc_s` all the same, which an image may not have.
        format!("-L{}", out.display()),
    ];
    // All but the driver's have their name as the version of their symbols.
    if soname != "libcuda.so.1" {
        arguments.push("-Wl,--default-symver".to_owned());
    }
    arguments
}

/// An empty library with the client's name, for the linker: of another package's library cargo does not say where it
/// is, or that it was built before.
fn stand_in(out: &Path) -> PathBuf {
    let library = out.join("libvgpu_client.so");
    let cc = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let linked = Command::new(cc)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libvgpu_client.so", "-x", "c", "/dev/null", "-o"])
        .arg(&library)
        .status();
    assert!(linked.is_ok_and(|status| status.success()), "a C compiler is needed");
    library
}
