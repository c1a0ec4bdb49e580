//! Public programs, built of the crates in `tests/programs`.
#![allow(dead_code, reason = "each test uses its part")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{SONAMES, install};

/// A folder that stays from one run of the tests to the next.
fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The libraries of a container as a linker wants them too: of cuDNN version 8. Their place must stay, as a build is not
/// done again because of it.
pub fn linkable() -> PathBuf {
    let directory = kept("libraries");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    install(&directory);
    for soname in SONAMES.into_iter().filter(|soname| *soname != "libcudnn.so.9") {
        let (name, _) = soname.split_once(".so.").unwrap();
        symlink(soname, directory.join(name).with_extension("so")).unwrap();
    }
    // `juice` asks for it, for its own CPU backend. The program does not compute with that: no library will do.
    fs::write(directory.join("libopenblas.a"), "!<arch>\n").unwrap();
    directory
}

/// Where they are: the hook's tests run them too.
fn folder() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [here.join("tests/programs"), here.join("crates/client/tests/programs")];
    places.into_iter().find(|place| place.exists()).unwrap()
}

/// The program that cargo makes there, asked for in these words.
pub fn made(arguments: &[&str], libraries: &Path) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(folder());
    cargo.args(arguments).args(["--locked", "--quiet", "--message-format", "json", "--target-dir"]);
    cargo.arg(kept("programs")).env("CUDNN_LIB_DIR", libraries);
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let mut programs = messages.lines().filter_map(|line| line.split_once(r#""executable":""#));
    let (program, _) = programs.next_back().unwrap().1.split_once('"').unwrap();
    program.into()
}
