//! The client and the facades as a container has them: in one directory, under the names of the real libraries.
#![allow(dead_code, reason = "each test uses its part")]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use tempfile::TempDir;

/// The libraries that are stood in for; `crates/facades` has a folder for each.
pub const SONAMES: [&str; 5] =
    ["libcublas.so.12", "libcuda.so.1", "libcudart.so.12", "libcudnn.so.8", "libcudnn.so.9"];

/// All of them, and the client.
pub fn installed() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    install(directory.path());
    directory
}

/// Puts them there.
pub fn install(directory: &Path) {
    let copy = |from: &str, to: &str| {
        fs::copy(built(from), directory.join(to)).unwrap_or_else(|error| panic!("{from}: {error}"));
    };
    copy("libvgpu_client.so", "libvgpu_client.so");
    for soname in SONAMES {
        let (name, version) = soname[3..].split_once(".so.").unwrap();
        copy(&format!("libvgpu_{name}_{version}.so"), soname);
    }
}

/// Where cargo puts a library that a test depends on: beside the test, and the folder beside an example's.
fn built(library: &str) -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().with_file_name("deps").join(library)
}

/// The names that a library exports, of the real one.
pub fn symbols(soname: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../facades").join(soname);
    fs::read_to_string(folder.join("symbols")).unwrap()
}

/// Compiles a C program of the tests' into `directory`, against these libraries in it.
pub fn compiled(source: &str, directory: &Path, libraries: &[&str]) -> PathBuf {
    let program = directory.join(Path::new(source).file_stem().unwrap());
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
    gcc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source));
    gcc.args(libraries.iter().map(|library| directory.join(library))).arg("-ldl");
    // The libraries find the client beside them; what they are linked to is for run time.
    gcc.arg("-Wl,--allow-shlib-undefined");
    assert!(gcc.status().unwrap().success());
    program
}

/// What a program said, which must have succeeded.
pub fn said(output: &Output) -> (String, String) {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{:?}\n{out}{err}", output.status);
    (out, err)
}

/// The program `vgpu-worker`, killed when dropped.
pub struct Worker {
    child: Child,
    directory: TempDir,
}

impl Worker {
    /// With so many bytes of device memory. The program is another package's, so that cargo has to be asked for it.
    pub fn start(memory: u64) -> Self {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "vgpu-remoting", "--bin", "vgpu-worker"]);
        cargo.args(if cfg!(debug_assertions) { &[][..] } else { &["--release"] });
        assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        let deps = built("");
        let directory = tempfile::tempdir().unwrap();
        let mut worker = Command::new(deps.parent().unwrap().join("vgpu-worker"));
        worker.args(["--memory", &memory.to_string(), "--socket"]).arg(directory.path().join("socket"));
        let mut started = Self { child: worker.spawn().unwrap(), directory };
        while UnixStream::connect(started.socket()).is_err() {
            assert_eq!(started.child.try_wait().unwrap(), None, "it ended");
            std::thread::yield_now();
        }
        started
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
