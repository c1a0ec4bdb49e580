//! What is installed for containers of remote types, and their workers as processes of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// The libraries that stand in for NVIDIA's, by SONAME.
pub const SONAMES: [&str; 5] =
    ["libcuda.so.1", "libcudart.so.12", "libcublas.so.12", "libcudnn.so.9", "libcudnn.so.8"];

/// The same, after the client that they jump into.
pub const LIBRARIES: [&str; 6] = [
    "libvgpu_client.so",
    "libcuda.so.1",
    "libcudart.so.12",
    "libcublas.so.12",
    "libcudnn.so.9",
    "libcudnn.so.8",
];

/// The program under test.
const VGPU: &str = env!("CARGO_BIN_EXE_vgpu");

/// Installs libraries and worker where the program under test looks for them.
pub fn ready() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        super::host::make_dir(&directory());
        install(&directory());
        copy("vgpu-worker", &directory().join("vgpu-worker"));
    });
}

/// Puts the libraries there: `cargo build --workspace` has put them beside the program under test.
pub fn install(into: &Path) {
    for soname in LIBRARIES {
        let built = match soname[3..].split_once(".so.") {
            Some((name, version)) => format!("libvgpu_{name}_{version}.so"),
            None => soname.to_owned(),
        };
        copy(&built, &into.join(soname));
    }
}

/// Several test processes may each do so at a time: a file is there whole, or not.
fn copy(built: &str, to: &Path) {
    let built = Path::new(VGPU).parent().expect("a directory").join(built);
    let temporary = to.with_added_extension(std::process::id().to_string());
    fs::copy(&built, &temporary)
        .unwrap_or_else(|e| panic!("{}, of `cargo build --workspace`: {e}", built.display()));
    fs::rename(temporary, to).expect("renaming");
}

/// Where that is.
pub fn directory() -> PathBuf {
    let built = Path::new(VGPU).parent().and_then(Path::parent).expect("a directory");
    built.join("lib/vgpu")
}

/// The workers of a container, by process id.
pub fn workers(id: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of_it = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
        words[0] == b"vgpu-worker" && words.contains(&id.as_bytes())
    };
    pids.filter(of_it).collect()
}
