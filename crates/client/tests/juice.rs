//! A small convolutional net of the crate `juice` learns digits through the facades and a real `vgpu-worker`, in each mode:
//! to the same weights bit for bit, and while it does, contents are predicted.

#[path = "common/mod.rs"]
mod common;
#[path = "common/programs.rs"]
mod programs;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use common::{Worker, said};

/// Trains, and is tested with so many digits: the loss at first and at last, how many percent of digits it gets right, and
/// the weights' hash.
fn trained(program: &Path, libraries: &Path, worker: &Worker, reuse: &str, tested: u32) -> [String; 4] {
    let mut command = Command::new(program);
    command.arg(tested.to_string());
    command.env("LD_LIBRARY_PATH", libraries).env("VGPU_WORKER", worker.socket()).env("VGPU_REUSE", reuse);
    let (out, err) = said(&command.output().unwrap());
    println!("VGPU_REUSE={reuse}: {out}");
    // Nothing that is not served, and a worker.
    assert_eq!(err, "");
    let words: Vec<String> = out.split_whitespace().map(Into::into).collect();
    words.try_into().unwrap()
}

/// What the worker says of a counter, of all its clients.
fn counted(worker: &Worker, name: &str) -> u64 {
    let mut socket = UnixStream::connect(worker.socket()).unwrap();
    socket.write_all(b"vgpustat").unwrap();
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    let (_, rest) = said.split_once(&format!("\"{name}\":")).unwrap();
    rest.split(|next: char| !next.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn its_net_learns_the_same_in_each_mode() {
    let libraries = programs::linkable();
    let program = programs::made(&["build", "--example", "digits"], &libraries);
    let worker = Worker::start(64 << 20);
    trained(&program, &libraries, &worker, "", 0);
    let [predicted, known, new] = ["predicted", "known", "new"].map(|name| counted(&worker, name));
    assert!(
        predicted * 100 >= (predicted + known + new) * 95,
        "{predicted} predicted, {known} known, {new} new"
    );
    let [reused, forwarded, waited] =
        ["", "off", "off,waiting"].map(|reuse| trained(&program, &libraries, &worker, reuse, 200));
    let [first, last, right] = [0, 1, 2].map(|i| reused[i].parse::<f64>().unwrap());
    assert!(last < first / 5.0, "{reused:?}");
    assert!(right > 90.0, "{reused:?}");
    assert_eq!(forwarded, reused);
    assert_eq!(waited, reused);
}
