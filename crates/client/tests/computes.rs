//! Computes, from a C program's calls to what a backend is asked to do.

mod common;

use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use common::{compiled, installed, said};
use vgpu_remoting::api::{Handle, Read, Scalar, Update};
use vgpu_remoting::channel::{Channel, serve};
use vgpu_remoting::cpu::Cpu;
use vgpu_remoting::cublas::backend::Blas;
use vgpu_remoting::cudnn;
use vgpu_remoting::cudnn::activation::Activation;
use vgpu_remoting::cudnn::backend::Backend;
use vgpu_remoting::cudnn::tensor::Tensor;
use vgpu_remoting::host::Host;
use vgpu_remoting::memory::{Budget, Memory};
use vgpu_remoting::worker::{Device, Worker};

/// Where device memory is.
const BASE: u64 = 0x2000_0000_0000;

/// Notes what it is asked to do.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, entry: String) {
        self.0.lock().unwrap().push(entry);
    }
}

impl Device for Diary {}

impl Blas for Diary {}

impl Backend for Diary {
    fn cudnnActivationForward(
        &mut self,
        _: Handle,
        a: Activation,
        alpha: Scalar,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        y: Tensor,
        y_data: Update,
    ) -> cudnn::Result {
        self.note(format!("forward {a:?} {alpha:?} {x:?} {x_data:?} {beta:?} {y:?} {y_data:?}"));
        Ok(())
    }

    fn cudnnActivationBackward(
        &mut self,
        _: Handle,
        a: Activation,
        alpha: Scalar,
        y: Tensor,
        y_data: Read,
        dy: Tensor,
        dy_data: Read,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        dx: Tensor,
        dx_data: Update,
    ) -> cudnn::Result {
        let (descriptors, data) = ([y, dy, x, dx], [y_data, dy_data, x_data]);
        self.note(format!("backward {a:?} {alpha:?} {descriptors:?} {data:?} {beta:?} {dx_data:?}"));
        Ok(())
    }
}

/// Runs `computes.c` for so many iterations; the last status that it saw, and the diary of its worker.
fn computed(iterations: usize, reuse: &str) -> (String, Vec<String>) {
    let directory = installed();
    let socket = directory.path().join("worker");
    let listener = UnixListener::bind(&socket).unwrap();
    let diary = Diary::default();
    let backend = diary.clone();
    let worker = std::thread::spawn(move || {
        let channel = Channel::accept(listener.accept().unwrap().0, BASE..BASE + 512).unwrap();
        serve(&channel, &mut Worker::new(channel.contents(), backend)).unwrap();
    });
    let mut program =
        Command::new(compiled("computes.c", directory.path(), &["libcudnn.so.9", "libcudart.so.12"]));
    program.arg(iterations.to_string()).env("LD_LIBRARY_PATH", directory.path());
    let output = program.env("VGPU_WORKER", socket).env("VGPU_REUSE", reuse).output().unwrap();
    let (out, err) = said(&output);
    assert_eq!(err, "");
    worker.join().unwrap();
    let entries = diary.0.lock().unwrap().clone();
    (out, entries)
}

/// What a C program says whose worker has sixteen mebibytes of device memory.
fn served(source: &str, libraries: &[&str]) -> String {
    let directory = installed();
    let socket = directory.path().join("worker");
    let listener = UnixListener::bind(&socket).unwrap();
    let worker = std::thread::spawn(move || {
        let addresses = BASE..BASE + (1 << 24);
        let channel = Channel::accept(listener.accept().unwrap().0, addresses.clone()).unwrap();
        let cpu = Cpu::new(Memory::new(addresses, &Budget::new(1 << 24)).unwrap());
        let host = Host::new(channel.host().unwrap(), &Budget::new(1 << 24));
        let worker = Worker::new(channel.contents(), cpu).staging(channel.staging());
        serve(&channel, &mut worker.host(host)).unwrap();
    });
    let mut program = Command::new(compiled(source, directory.path(), libraries));
    program.env("LD_LIBRARY_PATH", directory.path()).env("VGPU_WORKER", socket);
    let (out, err) = said(&program.output().unwrap());
    worker.join().unwrap();
    assert_eq!(err, "");
    out
}

/// The program's memory is the worker's, and what is computed there is right.
#[test]
fn a_program_computes() {
    let out = served("device.c", &["libcudart.so.12", "libcudnn.so.9"]);
    // Of what goes wrong: 1 is an invalid value, as an address that is not the program's, and 2 no room.
    assert_eq!(out, "0 0 0 1 0\n0 0 0 0 0 4 0 8 0 12\n1 1 1 0 1 2 0 1 0 0\n");
}

#[test]
fn what_is_wrong_has_a_clear_status_and_harms_nothing() {
    let out = served("misuse.c", &["libcudart.so.12", "libcudnn.so.9"]);
    // Wrong are handles, a use each of a compute, a query, a seed and a set; then descriptors.
    let wrong = "2000 2000 2000 2000 ".repeat(7);
    let wanted = format!(
        "0 0 2000 0 {wrong}0 2000 2000 0 \n\
         0 {}0 \n\
         0 0 0 0 0 0 0 1 0 0 2000 0 0 2 0 4 0 6 \n\
         0 1 0 0 0 0 2 0 4 0 6 \n\
         0 0 0 0 \n\
         0 \n",
        "2000 ".repeat(12)
    );
    assert_eq!(out, wanted);
}

#[test]
fn factors_and_results_are_where_the_pointer_mode_says() {
    let out = served("blas.c", &["libcudart.so.12", "libcublas.so.12"]);
    // Of what goes wrong: 1 is a handle that is none, 7 an invalid value, 11 a copy, 15 not supported.
    let wanted = "7 0 0 0 1 0 0 = 20 28 28 40\n\
                  0 0 = 11 5\n\
                  0 0 1 0 0 = 11 14 20\n\
                  7 7 7 7 7 7 15 \n\
                  0 0 = 1 3 5\n\
                  0 0 0 0 = 2 1 4 5\n\
                  7 7 0 7 11 11 11 11 \n\
                  0 1 0 7 0 7 = 120405 5\n\
                  0 1 1 1 \n";
    assert_eq!(out, wanted);
}

#[test]
fn streams_are_in_order_and_events_have_times() {
    let out = served("runtime.c", &["libcudart.so.12", "libcudnn.so.9"]);
    // Of what goes wrong: 1 is an invalid value, 101 no such device, 400 no such handle, 2000 a bad parameter.
    let wanted = "0 0 1 0 0 101 1 \n\
                  1 0 \n\
                  0 0 1 0 0 0 0 0 ABCDxBC 0 ABCDEFG 1 1 1 400 0 \n\
                  0 0 1 0 400 0 0 0 0 1 400 400 0 400 400 \n\
                  2000 0 0 0 1 2000 0 0 2000 \n\
                  0 0 0 400 400 400 \n";
    assert_eq!(out, wanted);
}

#[test]
fn the_backend_is_asked_the_same_whatever_becomes_of_descriptor_calls() {
    let (status, reused) = computed(8, "");
    assert_eq!((status.as_str(), reused.len()), ("0 0\n", 80));
    assert!(reused[0].contains("Scalar(0.5)") && reused[0].contains("dims: [1, 4, 8, 8,"), "{}", reused[0]);
    assert!(reused[30].contains("Scalar(0.333333333333"), "{}", reused[30]);
    for reuse in ["off", "off,waiting"] {
        assert_eq!(computed(8, reuse), (status.clone(), reused.clone()), "{reuse}");
    }
}
