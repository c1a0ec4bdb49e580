//! The runtime's functions, as a C program meets them that has a real `vgpu-worker` with sixteen mebibytes.

mod common;

use std::process::Command;

use common::{Worker, compiled, installed, said};

/// What the C program `cudart.c` says that does `what`, line by line, beside what is said of functions that are not served.
fn says(what: &str, worker: &str) -> (Vec<String>, String) {
    let libraries = installed();
    let program = compiled("cudart.c", libraries.path(), &["libcudart.so.12"]);
    let mut command = Command::new(program);
    command.arg(what).env("LD_LIBRARY_PATH", libraries.path()).env("VGPU_WORKER", worker);
    let (out, err) = said(&command.output().unwrap());
    (out.lines().map(|line| line.trim_end().to_owned()).collect(), err)
}

fn served(what: &str) -> (Vec<String>, String) {
    let worker = Worker::start(16 << 20);
    says(what, worker.socket().to_str().unwrap())
}

/// That what is said is this; and nothing is not served.
#[track_caller]
fn assert_says(what: &str, lines: &[&str]) {
    let (out, err) = served(what);
    assert_eq!(out, lines);
    assert_eq!(err, "");
}

#[test]
fn x() {
    for what in ["device", "properties", "context", "host", "planes", "addresses", "pools", "streams"] {
        let (out, err) = served(what);
        println!("{what}\n{}\n{err}", out.join("\n"));
    }
    let (out, err) = says("none", "/nowhere");
    println!("{}\n{err}", out.join("\n"));
}
