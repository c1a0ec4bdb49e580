//! What descriptor calls cost a program, through the C functions of `libcudnn.so.9`. Nothing passes or fails: medians,
//! beside the aims, and beside the real library in the same run where `make conformance` has fetched it. The first tenth
//! of all rounds is beside the median, which on a machine that others use too tells more of them.
//!
//! A turn is create, set4d and destroy, of sixteen contents one after the other; with a use, it has a compute before the
//! destroy, and what a compute costs whose descriptors did not change is taken off. A worker on another thread takes the
//! computes and does nothing. Two threads would contend for the ring and the memo, at ten times what is measured, so of
//! them each compute is refused for its output once its input was found.
//!
//! An iteration has the calls of ResNet-50's: 264 computes, and twelve descriptor calls for each. Processes that differ in
//! `VGPU_REUSE` alone make them in turn, on one processor, with their workers on another; each says what an iteration takes
//! it, and what a record and its answer do.
#![allow(unsafe_code)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::ffi::c_void;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

use libloading::Library;
use vgpu_remoting::api::{Handle, Read, Scalar, Update};
use vgpu_remoting::channel::{Channel, serve};
use vgpu_remoting::cublas::backend::Blas;
use vgpu_remoting::cudnn;
use vgpu_remoting::cudnn::activation::Activation;
use vgpu_remoting::cudnn::backend::Backend;
use vgpu_remoting::cudnn::tensor::Tensor;
use vgpu_remoting::worker::{Device, Worker};

/// So few that the ring has room for their computes.
const TURNS: u32 = 1000;
const ROUNDS: usize = 3001;
/// Of iterations.
const ITERATIONS: usize = 51;

/// Where there is device memory, of which nothing is used.
const DEVICE: std::ops::Range<u64> = 0x2000_0000_0000..0x2000_0020_0000;

/// Whoever has it keeps the worker in a compute.
static GATE: Mutex<()> = Mutex::new(());

/// Does nothing.
struct Idle;

impl Device for Idle {}

impl Blas for Idle {}

#[rustfmt::skip]
impl Backend for Idle {
    fn cudnnActivationForward(
        &mut self, _: Handle, _: Activation, _: Scalar, _: Tensor, _: Read, _: Scalar, _: Tensor, _: Update,
    ) -> cudnn::Result {
        drop(GATE.lock());
        Ok(())
    }

    fn cudnnActivationBackward(
        &mut self, _: Handle, _: Activation, _: Scalar, _: Tensor, _: Read, _: Tensor, _: Read, _: Tensor, _: Read,
        _: Scalar, _: Tensor, _: Update,
    ) -> cudnn::Result {
        Ok(())
    }
}

type Descriptor = *mut c_void;

/// `CUDNN_STATUS_BAD_PARAM`
const BAD_PARAM: i32 = 2000;

/// The functions that a turn needs.
#[derive(Clone, Copy)]
struct Cudnn {
    create: unsafe extern "C" fn(*mut Descriptor) -> i32,
    set: unsafe extern "C" fn(Descriptor, i32, i32, i32, i32, i32, i32) -> i32,
    destroy: unsafe extern "C" fn(Descriptor) -> i32,
    create_activation: unsafe extern "C" fn(*mut Descriptor) -> i32,
    set_activation: unsafe extern "C" fn(Descriptor, i32, i32, f64) -> i32,
    destroy_activation: unsafe extern "C" fn(Descriptor) -> i32,
    create_handle: unsafe extern "C" fn(*mut Descriptor) -> i32,
    #[rustfmt::skip]
    forward: unsafe extern "C" fn(
        Descriptor, Descriptor, *const f32, Descriptor, usize, *const f32, Descriptor, usize,
    ) -> i32,
    #[rustfmt::skip]
    backward: unsafe extern "C" fn(
        Descriptor, Descriptor, *const f32, Descriptor, usize, Descriptor, usize, Descriptor, usize, *const f32, Descriptor,
        usize,
    ) -> i32,
}

impl Cudnn {
    fn load(path: &Path) -> Self {
        // SAFETY: the initialisers of a library that whoever runs this built, or fetched. It stays.
        let library = Box::leak(Box::new(unsafe { Library::new(path) }.unwrap()));
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is the C function's.
                *unsafe { library.get($name) }.unwrap()
            };
        }
        Self {
            create: function!(b"cudnnCreateTensorDescriptor"),
            set: function!(b"cudnnSetTensor4dDescriptor"),
            destroy: function!(b"cudnnDestroyTensorDescriptor"),
            create_activation: function!(b"cudnnCreateActivationDescriptor"),
            set_activation: function!(b"cudnnSetActivationDescriptor"),
            destroy_activation: function!(b"cudnnDestroyActivationDescriptor"),
            create_handle: function!(b"cudnnCreate"),
            forward: function!(b"cudnnActivationForward"),
            backward: function!(b"cudnnActivationBackward"),
        }
    }

    fn tensor(self, i: u32) -> Descriptor {
        let mut t = std::ptr::null_mut();
        // SAFETY: the place is a pointer's; the descriptor is one that was just made.
        unsafe {
            assert_eq!((self.create)(&raw mut t), 0);
            assert_eq!((self.set)(t, 0, 0, black_box(1 + (i % 16) as i32), 64, 56, 56), 0);
        }
        t
    }

    fn end(self, t: Descriptor) {
        // SAFETY: it is used no more.
        assert_eq!(unsafe { (self.destroy)(t) }, 0);
    }

    fn activation(self) -> Descriptor {
        let mut a = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe {
            assert_eq!((self.create_activation)(&raw mut a), 0);
            assert_eq!((self.set_activation)(a, 1, 0, 0.0), 0);
        }
        a
    }

    fn handle(self) -> Descriptor {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place is a pointer's.
        assert_eq!(unsafe { (self.create_handle)(&raw mut handle) }, 0);
        handle
    }

    fn without_use(self) -> [f64; 2] {
        [nanoseconds(|i| self.end(self.tensor(i))), 0.0]
    }
}

/// The facade, and what to compute with that stays.
#[derive(Clone, Copy)]
struct Facade {
    cudnn: Cudnn,
    handle: Descriptor,
    activation: Descriptor,
    kept: Descriptor,
    synchronise: unsafe extern "C" fn() -> i32,
}

/// How a descriptor is used.
type Compute = fn(Facade, Descriptor);

// SAFETY: descriptors may be used on any thread.
unsafe impl Send for Facade {}
// SAFETY: as above.
unsafe impl Sync for Facade {}

impl Facade {
    /// Of the libraries there.
    fn load(libraries: &Path) -> Self {
        // Cargo's LD_LIBRARY_PATH may lead to one that an earlier build has left.
        // SAFETY: it does nothing when it is loaded, and stays.
        let client = unsafe { Library::new(libraries.join("libvgpu_client.so")) }.unwrap();
        std::mem::forget(client);
        let cudnn = Cudnn::load(&libraries.join("libcudnn.so.9"));
        // SAFETY: as of the other library.
        let runtime =
            Box::leak(Box::new(unsafe { Library::new(libraries.join("libcudart.so.12")) }.unwrap()));
        // SAFETY: the type is the C function's.
        let synchronise = *unsafe { runtime.get(b"cudaDeviceSynchronize") }.unwrap();
        let (handle, activation, kept) = (cudnn.handle(), cudnn.activation(), cudnn.tensor(0));
        Self { cudnn, handle, activation, kept, synchronise }
    }

    /// Waits until all is done.
    fn wait(self) {
        // SAFETY: it has no arguments.
        assert_eq!(unsafe { (self.synchronise)() }, 0);
    }

    fn compute(self, a: Descriptor, x: Descriptor, y: Descriptor, to: usize) {
        let (one, zero) = (1.0, 0.0);
        // SAFETY: descriptors live; factors are there; nothing is at the device pointers, which only the worker follows.
        assert_eq!(unsafe { (self.cudnn.forward)(self.handle, a, &one, x, 0x100, &zero, y, to) }, 0);
    }

    fn forward(self, t: Descriptor) {
        self.compute(self.activation, t, t, 0x500);
    }

    /// A compute that has no output, which is seen after its input was found.
    fn refused(self, t: Descriptor) {
        let (one, zero, none) = (1.0, 0.0, std::ptr::null_mut());
        // SAFETY: as above.
        let status =
            unsafe { (self.cudnn.forward)(self.handle, self.activation, &one, t, 0x100, &zero, none, 0x500) };
        assert_eq!(status, BAD_PARAM);
    }

    /// The end of an iteration whose first output was there: the next guesses are from this one.
    fn backward(self, from: usize) {
        let (one, zero, dnn, a, t) = (1.0, 0.0, self.handle, self.activation, self.kept);
        // SAFETY: as above.
        let done =
            unsafe { (self.cudnn.backward)(dnn, a, &one, t, from, t, 0x300, t, 0x100, &zero, t, 0x400) };
        assert_eq!(done, 0);
    }

    fn end_iteration(self) {
        self.compute(self.activation, self.kept, self.kept, 0x500);
        self.backward(0x500);
        self.compute(self.activation, self.kept, self.kept, 0x500);
    }

    fn turn(self, i: u32, compute: Compute) {
        let t = self.cudnn.tensor(i);
        compute(self, t);
        self.cudnn.end(t);
    }

    /// A turn, and what is to be taken off, its compute; where the iteration before, of as many turns, was ahead by so many;
    /// on as many threads as meet at the barrier, of which one sees to the ends of iterations.
    fn with_use(self, ahead: u32, all: &Barrier, compute: Compute) -> [f64; 2] {
        let end_iteration = || {
            if all.wait().is_leader() {
                self.end_iteration();
            }
            all.wait();
        };
        end_iteration();
        (0..TURNS).for_each(|i| self.turn(i + ahead, compute));
        self.forward(self.kept);
        end_iteration();
        [self.measured(all, |i| self.turn(i, compute)), self.measured(all, |_| compute(self, self.kept))]
    }

    /// Begun with all, when what was sent before is done; of what is sent, the worker does nothing until the end.
    fn measured(self, all: &Barrier, what: impl Fn(u32)) -> f64 {
        all.wait();
        self.wait();
        let held = all.wait().is_leader().then(|| GATE.lock());
        held.iter().for_each(|_| self.forward(self.kept));
        all.wait();
        let nanoseconds = nanoseconds(what);
        all.wait();
        nanoseconds
    }

    fn by_two(self, ahead: u32) -> [f64; 2] {
        let all = Barrier::new(2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| self.with_use(ahead, &all, Self::refused));
            let ours = self.with_use(ahead, &all, Self::refused);
            let theirs = other.join().unwrap();
            [0, 1].map(|i| f64::midpoint(ours[i], theirs[i]))
        })
    }

    /// Microseconds of the last of three iterations, and of a record and its answer.
    fn iteration(self) -> [f64; 2] {
        let mut last = 0.0;
        for _ in 0..3 {
            let start = Instant::now();
            for i in 0..264 {
                let [x, y, w] = [i, i + 1, i + 2].map(|i| self.cudnn.tensor(i));
                let a = self.cudnn.activation();
                self.compute(a, x, y, 0x2000);
                // SAFETY: it is used no more.
                assert_eq!(unsafe { (self.cudnn.destroy_activation)(a) }, 0);
                [x, y, w].into_iter().for_each(|t| self.cudnn.end(t));
            }
            self.wait();
            last = start.elapsed().as_secs_f64() * 1e6;
            self.backward(0x2000);
            self.wait();
        }
        let start = Instant::now();
        (0..100).for_each(|_| self.wait());
        [last, start.elapsed().as_secs_f64() * 1e4]
    }
}

fn nanoseconds(what: impl Fn(u32)) -> f64 {
    let start = Instant::now();
    (0..TURNS).for_each(what);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS)
}

/// Where `make conformance` puts the real library.
fn real() -> PathBuf {
    let home = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = || home("XDG_CACHE_HOME").or_else(|| Some(home("HOME")?.join(".cache")));
    let fetched = home("CUDNN").or_else(|| Some(cache()?.join("vgpu/cudnn"))).unwrap_or_default();
    fetched.join("9.1.0.70/nvidia/cudnn/lib/libcudnn.so.9")
}

/// From now on this thread is on that processor alone, if there is one.
fn pin(processor: usize) {
    // SAFETY: plain numbers, of which none is wrong.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// A worker for one client, on a thread, and on that processor if it is told one.
fn worker(socket: &Path, processor: Option<usize>) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        processor.inspect(|processor| pin(*processor));
        let channel = Channel::accept(listener.accept().unwrap().0, DEVICE).unwrap();
        serve(&channel, &mut Worker::new(channel.contents(), Idle)).unwrap();
    });
}

/// A process that makes an iteration for each line that it is told.
struct Process {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(libraries: &Path, mode: &str) -> Self {
        let socket = libraries.join(format!("worker-{mode}"));
        worker(&socket, Some(1));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ITERATE, libraries).env("VGPU_WORKER", socket).env("VGPU_REUSE", mode);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said }
    }

    fn iteration(&mut self) -> [f64; 2] {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let line = self.said.next().unwrap().unwrap();
        let (iteration, floor) = line.split_once(' ').unwrap();
        [iteration, floor].map(|number| number.parse().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Tells such a process where the libraries are.
const ITERATE: &str = "VGPU_BENCH_ITERATE";

fn iterate(libraries: &Path) {
    pin(0);
    let facade = Facade::load(libraries);
    for _ in std::io::stdin().lines() {
        let [iteration, floor] = facade.iteration();
        println!("{iteration} {floor}");
    }
}

fn median(of: Vec<f64>) -> f64 {
    part(of, 0.5)
}

/// The least that so large a part of them is not more than.
fn part(mut of: Vec<f64>, part: f64) -> f64 {
    of.sort_by(f64::total_cmp);
    of[(of.len() as f64 * part) as usize]
}

fn turns(libraries: &Path) {
    let socket = libraries.join("worker");
    worker(&socket, None);
    // SAFETY: the other thread does not look at the environment.
    unsafe { std::env::set_var("VGPU_WORKER", &socket) };
    let facade = Facade::load(libraries);
    let cudnn = facade.cudnn;
    type Measure = Box<dyn Fn() -> [f64; 2]>;
    let mut all: Vec<(&str, &str, Measure)> = vec![
        (
            "with a use, predicted",
            "50",
            Box::new(move || facade.with_use(0, &Barrier::new(1), Facade::forward)),
        ),
        ("with a use, known", "80", Box::new(move || facade.with_use(1, &Barrier::new(1), Facade::forward))),
        ("predicted, two threads", "50", Box::new(move || facade.by_two(0))),
        ("known, two threads", "80", Box::new(move || facade.by_two(1))),
        ("without a use", "", Box::new(move || cudnn.without_use())),
    ];
    if real().exists() {
        let real = Cudnn::load(&real());
        all.push(("without a use, real cuDNN 9.1.0", "", Box::new(move || real.without_use())));
    }
    let mut measured: Vec<[Vec<f64>; 2]> = all.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS {
        for ((_, _, measure), measured) in all.iter().zip(&mut measured) {
            measured.iter_mut().zip(measure()).for_each(|(all, one)| all.push(one));
        }
    }
    println!("{:<34} {:>10} {:>10} {:>5}", "create, set4d, destroy", "median ns", "first 10th", "aim");
    for ((name, aim, _), measured) in all.into_iter().zip(measured) {
        let [median, tenth] = [0.5, 0.1].map(|of| {
            let [whole, off] = measured.clone().map(|all| part(all, of));
            whole - off
        });
        println!("{name:<34} {median:>10.1} {tenth:>10.1} {aim:>5}");
    }
}

fn iterations(libraries: &Path) {
    let modes = ["", "off", "off,waiting"];
    let mut processes = modes.map(|mode| Process::start(libraries, mode));
    let mut measured = modes.map(|_| Vec::new());
    let mut floors = Vec::new();
    for _ in 0..ITERATIONS {
        for (process, measured) in processes.iter_mut().zip(&mut measured) {
            let [iteration, floor] = process.iteration();
            measured.push(iteration);
            floors.push(floor);
        }
    }
    let measured = measured.map(median);
    println!("\n{:<34} {:>8} {:>15}", "ResNet-50-like iteration", "us", "of off,waiting");
    for (name, us) in ["reuse", "off", "off,waiting"].iter().zip(measured) {
        println!("{name:<34} {us:>8.1} {:>15.4}", us / measured[2]);
    }
    println!("{:<34} {:>8.1}", "one record and its answer", median(floors));
}

fn main() {
    if let Some(libraries) = std::env::var_os(ITERATE) {
        return iterate(libraries.as_ref());
    }
    let libraries = common::installed();
    turns(libraries.path());
    iterations(libraries.path());
}
