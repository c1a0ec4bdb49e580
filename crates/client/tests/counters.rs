//! What a process counts of its own calls, as it is told itself and as its worker says it.

mod common;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

use common::{Worker, compiled, installed, said};
use vgpu_remoting::status::HELLO;

#[test]
fn calls_of_all_libraries_are_counted_and_what_is_not_served_is_named() {
    let libraries = installed();
    let names = ["libcudnn.so.9", "libcublas.so.12", "libcudart.so.12"];
    let mut program = Command::new(compiled("counters.c", libraries.path(), &names));
    let worker = Worker::start(1 << 20);
    program.env("LD_LIBRARY_PATH", libraries.path()).env("VGPU_WORKER", worker.socket());
    assert_eq!(said(&program.output().unwrap()).0, "done\n");
    let mut stream = UnixStream::connect(worker.socket()).unwrap();
    stream.write_all(&HELLO).unwrap();
    let mut status = String::new();
    stream.read_to_string(&mut status).unwrap();
    assert!(status.contains(r#""ever":2}"#), "the child that begins, and its parent: {status}");
    assert!(status.contains(r#""calls":12,"records":2,"#), "{status}");
    let unserved = r#""unserved":{"functions":{"cudnnCTCLoss":3,"cudaLaunchKernel":1},"others":0}"#;
    assert!(status.contains(unserved), "{status}");
}
