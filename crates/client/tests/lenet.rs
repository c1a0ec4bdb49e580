//! A C program trains LeNet-5 through the facades and a real `vgpu-worker`, in each mode: to over 95% right, and to the
//! same weights bit for bit.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Worker, compiled, installed, said};

/// Trains: how many calls an iteration takes, the weights' hash, and how many percent of digits it gets right.
fn trained(program: &Path, libraries: &Path, worker: &Worker, reuse: &str) -> [String; 3] {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", libraries).env("VGPU_WORKER", worker.socket()).env("VGPU_REUSE", reuse);
    let (out, err) = said(&command.output().unwrap());
    eprint!("VGPU_REUSE={reuse}: {out}{err}");
    // Nothing that is not served, and a worker.
    assert!(!err.contains("vgpu:"), "{err}");
    let words: Vec<String> = out.split_whitespace().map(Into::into).collect();
    words.try_into().unwrap()
}

#[test]
fn a_c_program_learns_the_same_in_each_mode() {
    let libraries = installed();
    let names = ["libcudnn.so.9", "libcublas.so.12", "libcudart.so.12"];
    let program = compiled("lenet.c", libraries.path(), &names);
    let worker = Worker::start(64 << 20);
    let [reused, forwarded, waited] =
        ["", "off", "off,waiting"].map(|reuse| trained(&program, libraries.path(), &worker, reuse));
    assert!(reused[2].parse::<f64>().unwrap() > 95.0);
    assert_eq!(forwarded, reused);
    assert_eq!(waited, reused);
}
