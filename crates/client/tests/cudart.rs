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

/// Of what goes wrong: 1 is an invalid value, 101 no such device, 500 not found.
#[test]
fn there_is_one_device_and_it_has_attributes() {
    assert_says(
        "device",
        &["0 101 1 0 101 0 0 1 0 5 0 0 1 101 1", "0 0000:00:00.0 0 101 1 0 0 101 0 0 1 0 1 1 500 0 1 0"],
    );
}

/// By the places that they have in C, of this version and of the one before CUDA 12, and nothing beyond.
#[test]
fn properties_are_the_attributes_and_no_larger_than_a_program_has_room_for() {
    assert_says(
        "properties",
        &[
            "0 vgpu 16777216 49152 32 1024 2147483647 5 0 512 1 0 512 1 2048 65536 0 32 49152 32 0 1 0 1 0 5 0 1 1 101",
        ],
    );
}

/// 215 is no such limit.
#[test]
fn a_reset_ends_what_there_was_and_what_was_set() {
    assert_says("context", &["0 0 4 1 0 1024 0 0 2048 215 0 0 2 1 0 0 1 0 0 0 0", "0 0 1 0 1024 0 0 1"]);
}

/// 2 is no room, 21 no direction, 400 no such handle, 801 not supported.
#[test]
fn host_allocated_memory_is_copied_in_order_and_freed_after_its_copies() {
    let (out, err) = served("host");
    let lines = [
        "0 0 1 2 1 0 1 0 7 0 0 1 1 801 801 1",
        "0 0 0 0 ABCDABC 0 0 abcdefg 1 0 abcdABC 1 1 21 400 0",
        "0 0 0 1 1 0 0 1 0 1 0 yyyy 0 2 0 0 2 0",
    ];
    assert_eq!(out, lines);
    assert!(err.contains("cudaHostRegister is not served") && err.contains("cudaMallocManaged"), "{err}");
    assert_eq!(err.lines().count(), 2, "{err}");
}

/// 600 is not ready: what is copied is what is there when the copy has its turn.
#[test]
fn copies_of_host_allocated_memory_are_not_waited_for_and_others_are() {
    assert_says("asynchronous", &["0 0 0 600 0 0 new late 0 0 0 small 600"]);
}

/// 12 is no pitch.
#[test]
fn planes_are_copied_and_filled_and_nothing_beside_them() {
    assert_says(
        "planes",
        &[
            "0 512 0 0 0 0 +abc+.+fgh+. 0 0 0 +a-c+.+f-h+. 0 0 0 +fbc-h+fgh+. 0 abcfgh+fgh+.",
            "12 12 1 1 0 1 1 1 1 1 0 0 101 2 0 1 0",
        ],
    );
}

#[test]
fn volumes_are_copied_and_filled_and_nothing_beside_them() {
    assert_says(
        "volumes",
        &[
            "0 512 1 0 0 0 0 -+lmn++qrs-+vwx++ABC-+++++++++",
            "12 1 801 0 21 1 400 1 1 1 1 1 0 -+lmn++qrs-+vwx++ABC-+++++++++ 2 0 1 1 0",
        ],
    );
}

/// Types are 0 for none of CUDA's, 1 for the host's, 2 for the device's.
#[test]
fn an_address_says_whose_it_is() {
    assert_says("addresses", &["0 2 0 1 0 0 1 0 0 1 0 0 -2 0 1 0 0 -2 1 1 0 0 1"]);
}

#[test]
fn pools_are_names_for_what_was_allocated_from_them() {
    assert_says("pools", &["0 0 1 0 801 0 0 1 0 1024 0 0 0 1 400 0 0 0 1"]);
}

#[test]
fn functions_of_the_program_are_called_after_what_was_sent_before() {
    assert_says(
        "streams",
        &[
            "0 1 0 0 1 0 0 0 0 1 0 0 0 400",
            "0 1 0 0 1 0 0 0 400 0 1 0 400",
            "0 0 0 mmmm 0 0 0 11 1 1 400 1 0 11 0 0",
        ],
    );
}

#[test]
fn without_a_worker_there_is_no_device() {
    let (out, err) = says("none", "/nowhere");
    assert_eq!(out, ["100 100 100 100 100 100 0"]);
    assert_eq!(err.lines().count(), 1, "{err}");
}
