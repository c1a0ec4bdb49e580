//! What descriptor calls cost a program, through the C functions of `libcudnn.so.9`. Nothing passes or fails: medians,
//! beside the aims, and beside the real library in the same run where `make conformance` has fetched it.
//!
//! A turn is create, set4d and destroy, of sixteen contents one after the other; with a use, it has a compute before the
//! destroy, and what a compute costs whose descriptors did not change is taken off. A worker on another thread takes the
//! computes and does nothing.
#![allow(unsafe_code)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::ffi::c_void;
use std::hint::black_box;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
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
const ROUNDS: usize = 1001;

/// How many computes the worker has done.
static DONE: AtomicU64 = AtomicU64::new(0);

/// Does nothing.
struct Idle;

impl Device for Idle {}

impl Blas for Idle {}

#[rustfmt::skip]
impl Backend for Idle {
    fn cudnnActivationForward(
        &mut self, _: Handle, _: Activation, _: Scalar, _: Tensor, _: Read, _: Scalar, _: Tensor, _: Update,
    ) -> cudnn::Result {
        DONE.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn cudnnActivationBackward(
        &mut self, _: Handle, _: Activation, _: Scalar, _: Tensor, _: Read, _: Tensor, _: Read, _: Tensor, _: Read,
        _: Scalar, _: Tensor, _: Update,
    ) -> cudnn::Result {
        DONE.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

type Descriptor = *mut c_void;

/// The functions that a turn needs.
#[derive(Clone, Copy)]
struct Cudnn {
    create: unsafe extern "C" fn(*mut Descriptor) -> i32,
    set: unsafe extern "C" fn(Descriptor, i32, i32, i32, i32, i32, i32) -> i32,
    destroy: unsafe extern "C" fn(Descriptor) -> i32,
    create_activation: unsafe extern "C" fn(*mut Descriptor) -> i32,
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

    fn without_use(self) -> f64 {
        nanoseconds(|i| self.end(self.tensor(i)))
    }
}

/// The facade, and what to compute with that stays.
#[derive(Clone, Copy)]
struct Facade {
    cudnn: Cudnn,
    handle: Descriptor,
    activation: Descriptor,
    kept: Descriptor,
}

impl Facade {
    fn forward(self, t: Descriptor, y: usize) {
        let (one, zero, dnn, a) = (1.0, 0.0, self.handle, self.activation);
        // SAFETY: descriptors live; factors are there; nothing is at the device pointers, which only the worker follows.
        assert_eq!(unsafe { (self.cudnn.forward)(dnn, a, &one, t, 0x100, &zero, t, y) }, 0);
    }

    /// The end of an iteration: the next guesses are from this one.
    fn end_iteration(self) {
        let (one, zero, dnn, a, t) = (1.0, 0.0, self.handle, self.activation, self.kept);
        self.forward(t, 0x200);
        // SAFETY: as above.
        let done =
            unsafe { (self.cudnn.backward)(dnn, a, &one, t, 0x200, t, 0x300, t, 0x100, &zero, t, 0x400) };
        assert_eq!(done, 0);
        self.forward(t, 0x200);
    }

    fn turn(self, i: u32) {
        let t = self.cudnn.tensor(i);
        self.forward(t, 0x500);
        self.cudnn.end(t);
    }

    /// What a turn costs more than its compute, where the iteration before was ahead by so many.
    fn with_use(self, ahead: u32) -> f64 {
        self.end_iteration();
        (0..16).for_each(|i| self.turn(i + ahead));
        self.end_iteration();
        let turns = nanoseconds_and_wait(|i| self.turn(i));
        turns - nanoseconds_and_wait(|_| self.forward(self.kept, 0x500))
    }
}

fn nanoseconds(what: impl Fn(u32)) -> f64 {
    let start = Instant::now();
    (0..TURNS).for_each(what);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS)
}

/// Waits also until the worker has done what was sent, which does not count.
fn nanoseconds_and_wait(what: impl Fn(u32)) -> f64 {
    let wanted = DONE.load(Ordering::Relaxed) + u64::from(TURNS);
    let nanoseconds = nanoseconds(what);
    while DONE.load(Ordering::Relaxed) < wanted {
        std::hint::spin_loop();
    }
    nanoseconds
}

/// Where `make conformance` puts the real library.
fn real() -> PathBuf {
    let home = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = || home("XDG_CACHE_HOME").or_else(|| Some(home("HOME")?.join(".cache")));
    let fetched = home("CUDNN").or_else(|| Some(cache()?.join("vgpu/cudnn"))).unwrap_or_default();
    fetched.join("9.1.0.70/nvidia/cudnn/lib/libcudnn.so.9")
}

fn main() {
    let directory = common::installed();
    let socket = directory.path().join("worker");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        let channel = Channel::accept(listener.accept().unwrap().0, 0..0).unwrap();
        serve(&channel, &mut Worker::new(channel.contents(), Idle)).unwrap();
    });
    // SAFETY: the other thread does not look at the environment.
    unsafe { std::env::set_var("VGPU_WORKER", &socket) };
    let cudnn = Cudnn::load(&directory.path().join("libcudnn.so.9"));
    let [mut activation, mut handle] = [std::ptr::null_mut(); 2];
    // SAFETY: the places are pointers'.
    assert_eq!(unsafe { (cudnn.create_activation)(&raw mut activation) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { (cudnn.create_handle)(&raw mut handle) }, 0);
    let facade = Facade { cudnn, handle, activation, kept: cudnn.tensor(0) };

    type Measure = Box<dyn Fn() -> f64>;
    let mut all: Vec<(&str, &str, Measure)> = vec![
        ("with a use, predicted", "50", Box::new(move || facade.with_use(0))),
        ("with a use, known", "80", Box::new(move || facade.with_use(1))),
        ("without a use", "", Box::new(move || cudnn.without_use())),
    ];
    if real().exists() {
        let real = Cudnn::load(&real());
        all.push(("without a use, real cuDNN 9.1.0", "", Box::new(move || real.without_use())));
    }
    let mut measured: Vec<Vec<f64>> = all.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        all.iter().zip(&mut measured).for_each(|((_, _, measure), measured)| measured.push(measure()));
    }
    println!("{:<34} {:>8} {:>5}", "create, set4d, destroy", "ns", "aim");
    for ((name, aim, _), mut measured) in all.into_iter().zip(measured) {
        measured.sort_by(f64::total_cmp);
        println!("{name:<34} {:>8.1} {aim:>5}", measured[ROUNDS / 2]);
    }
}
