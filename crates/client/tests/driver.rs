//! The driver's functions, as a C program meets them that has a real `vgpu-worker`.

mod common;

use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use common::{Worker, compiled, installed, said};
use vgpu_remoting::channel::Channel;

/// Has a C program of `driver/` do `what`.
fn driver(program: &str, what: &str, worker: &str) -> Output {
    driver_with(program, what, worker, |_| {})
}

fn driver_with(program: &str, what: &str, worker: &str, environment: impl FnOnce(&mut Command)) -> Output {
    let libraries = installed();
    let program = compiled(
        &format!("driver/{program}.c"),
        libraries.path(),
        &["libcuda.so.1", "libcudart.so.12", "libcublas.so.12"],
    );
    let mut command = Command::new(program);
    command.arg(what).env("LD_LIBRARY_PATH", libraries.path()).env("VGPU_WORKER", worker);
    environment(&mut command);
    command.output().unwrap()
}

/// What it says, beside what is said of functions that are not served.
fn says(program: &str, what: &str) -> (String, String) {
    let worker = Worker::start(16 << 20);
    said(&driver(program, what, worker.socket().to_str().unwrap()))
}

/// That what is said is this, one line for each; and nothing is not served.
#[track_caller]
fn assert_says(program: &str, what: &str, lines: &[&str]) {
    let (out, err) = says(program, what);
    let said: Vec<&str> = out.lines().map(str::trim_end).collect();
    assert_eq!(said, lines);
    assert_eq!(err, "");
}

/// Of what goes wrong: 1 is an invalid value, 3 not initialised, 101 no such device.
#[test]
fn nothing_works_before_it_is_initialised_and_then_there_is_one_device() {
    assert_says(
        "contexts",
        "start",
        &[
            "3 3 3 1 0 12040 0 0",
            "0 1 1 0 0 101 101 0 vgpu 0 vg 1 0 0 0 16777216 101",
            "1 0 0 1 5 0 0 0 1 -1 0 1 1 1 101 0 50 0 1024 32 512",
            "0 0000:00:00.0 0 0 101 1 0 0 101",
        ],
    );
}

#[test]
fn who_asks_the_runtime_has_the_driver_work() {
    assert_says("contexts", "asked", &["3 0 0 0 1 0 0"]);
}

#[test]
fn without_a_worker_there_is_no_device() {
    let (out, err) = said(&driver("contexts", "none", "/nowhere"));
    assert_eq!(out, "100 3 100 \n");
    assert_eq!(err.lines().count(), 1, "{err}");
}

/// 201 is an invalid context, 215 no such limit, 709 a context that has ended.
#[test]
fn contexts_are_stacked_in_each_thread_and_end_once() {
    assert_says(
        "contexts",
        "contexts",
        &[
            "0 1 201 201 201 101 1 1 1 0 0 0 0 140 0 3020 201 0",
            "0 1024 0 0 2048 215 215 0 0 2 1 0 0",
            "0 1 1 1024 0 1 1 201 201 0 0 1 201 201 201 0",
            "0 1 0 0 0 1 1 709 201 201 0 1 201",
        ],
    );
}

/// 400 is no such handle.
#[test]
fn what_is_a_contexts_ends_with_it() {
    assert_says("contexts", "ends", &["0 0 0 0 0 1 0 1 0 0 400 0 1 0 400 400 1 1 1"]);
}

#[test]
fn the_primary_context_is_the_runtimes_and_comes_back_by_the_same_handle() {
    assert_says(
        "contexts",
        "primary",
        &["0 0 0 201 0 1 101 0 0 1 4 1 1 201 0 0 0 0 709 0 1 0 1 400", "0 1 0 0 0 0 709 0 0 1 0 0 1 0 1"],
    );
}

#[test]
fn the_runtimes_device_is_chosen_whatever_is_current() {
    assert_says("contexts", "selected", &["101 0 1 4 1 101 0 1 709 0 0 1"]);
}

#[test]
fn threads_have_contexts_side_by_side_and_nothing_is_left() {
    assert_says("contexts", "threads", &["0 0 0 0 0 0 0 0 1"]);
}

/// 2 is no room, 500 not found, 801 not supported.
#[test]
fn memory_is_copied_and_filled_and_wrong_addresses_are_said_at_once() {
    let (out, err) = says("memory", "memory");
    let wanted = "201 201 0 1 1 2 0 1 0 1 8 0 500 \n\
                  0 0 0 0 ABCDABx 0 0 0 ababcde 0 0 0 0 -BCDEFG\n\
                  1 1 1 0 1 1 400 1 1 1 1 0 801 1 0 \n\
                  0 512 1 1 0 0 0 +BC+FG 801 1 1 1 0 1 1 0 0 \n";
    assert_eq!(out, wanted);
    assert!(err.contains("cuMemAllocManaged is not served") && err.lines().count() == 1, "{err}");
}

#[test]
fn planes_follow_each_other() {
    assert_says("memory", "volumes", &["0 0 0 kl..qr.. 400 1 0 kl..qr.. 1 1 0 kl...... 1 801 0 1"]);
}

#[test]
fn host_allocated_memory_is_copied_in_order_and_ends_with_its_context() {
    assert_says(
        "memory",
        "host",
        &["201 0 0 1 1 1 2 0 5 1 1 0", "0 0 0 ABCDEFG 0 0 ABCDABG 1 0 1 0 1 0 1 1 0 8 0 1 1 0 0 1"],
    );
}

#[test]
fn an_address_says_what_it_is_in() {
    assert_says("memory", "pointers", &["0 1 0 2 0 1 1 0 0 0 0 0 1000 1 1 1 1 1 0 1 0 1 1"]);
}

#[test]
fn pools_are_names_for_what_was_allocated_from_them() {
    assert_says(
        "memory",
        "pools",
        &[
            "0 0 1 201 0 0 0 400 0 1024 400 0 1 0 0 0 0 1024 1 0 0 0",
            "0 0 1 0 1 0 0 1 1 801 1 0 0 0 0 512 0 0 0 0 1 0 1 1",
        ],
    );
}

#[test]
fn streams_and_events_are_the_runtimes_too_and_no_childs() {
    let (out, err) = says("streams", "streams");
    let wanted = "201 201 1 1 0 0 0 1 0 0 0 0 0 400 400 0 400 400 \n\
                  1 1 0 0 0 400 0 0 400 400 0 0 0 1 400 1 0 400 400 0 \n\
                  0 0 0 400 0 0 400 801 0 \n";
    assert_eq!(out, wanted);
    assert!(err.contains("cuModuleLoadData is not served") && err.lines().count() == 1, "{err}");
}

/// 2 is no room.
#[test]
fn there_are_so_many_events_and_one_too_many_harms_nobody() {
    assert_says("streams", "events", &["0 2 2 0 0 0 0 0 0"]);
}

/// 600 is not ready.
#[test]
fn functions_have_their_turn_and_what_is_sent_meanwhile_comes_after_them() {
    let lines = ["1 400 0 0 0 0 0 1 0 0 0 600 600 0", "0 0 0 0 3 123 1 0 Z 0 0"];
    assert_says("streams", "functions", &lines);
}

/// 800 is not permitted.
#[test]
fn what_a_function_calls_does_not_wait_for_it() {
    assert_says("streams", "nested", &["0 0 0 1 800 800 0 800 0"]);
}

#[test]
fn what_ends_waits_for_a_function_and_the_function_for_nothing() {
    assert_says("streams", "released", &["0 0 201"]);
}

#[test]
fn the_end_of_a_worker_is_said_once() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    // The program is served, and then no more.
    let worker = std::thread::spawn(move || {
        drop(Channel::accept(listener.accept().unwrap().0, 0x2000_0000_0000..0x2000_0010_0000).unwrap());
    });
    let (_, err) = said(&driver("streams", "wrong", socket.to_str().unwrap()));
    assert!(
        err.contains("is gone, or does not serve this process any more") && err.lines().count() == 1,
        "{err}"
    );
    worker.join().unwrap();
}

/// 719 is a failed compute.
#[test]
fn an_error_that_nobody_waited_for_is_said_by_all_that_wait() {
    assert_says("streams", "wrong", &["0 0 0 0 0 719 719 1 719 719 719 719"]);
}

/// 13 is `CUBLAS_STATUS_EXECUTION_FAILED`.
#[test]
fn who_wants_each_compute_waited_for_is_told_which_has_failed() {
    let worker = Worker::start(16 << 20);
    for (value, wanted) in [("1", "0 13 0 \n"), ("0", "0 0 719 \n")] {
        let run = |program: &mut Command| {
            program.env("CUDA_LAUNCH_BLOCKING", value);
        };
        let socket = worker.socket();
        assert_eq!(said(&driver_with("streams", "blocking", socket.to_str().unwrap(), run)).0, wanted);
    }
}

#[test]
fn each_function_has_an_address_by_its_name_and_version() {
    let (out, err) = says("streams", "entries");
    assert_eq!(out, "0 0 1 0 0 0 0 1 0 500 1 1 500 2 1 1 1 0 801 \n");
    assert!(err.contains("cuModuleLoad is not served") && err.lines().count() == 1, "{err}");
}
