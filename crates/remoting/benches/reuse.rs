//! What a descriptor call costs. Nothing passes or fails: medians, beside the aims.
//!
//! A turn is create, set4d, first use, destroy, of sixteen contents one after the other, with the thread's state found
//! as a C function finds it, in thread-local storage. Beside them what forwarding costs in the same run, to a worker on
//! another thread.

use std::cell::RefCell;
use std::hint::black_box;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use vgpu_remoting::api::{Handle, Read, Scalar, Update};
use vgpu_remoting::channel::{Channel, Client, serve};
use vgpu_remoting::contents::{self, Id};
use vgpu_remoting::counters;
use vgpu_remoting::cublas::backend::Blas;
use vgpu_remoting::cudnn::activation::Activation;
use vgpu_remoting::cudnn::backend::Backend;
use vgpu_remoting::cudnn::table::Function;
use vgpu_remoting::cudnn::tensor::{self, Tensor};
use vgpu_remoting::cudnn::{self, Version};
use vgpu_remoting::reuse::{Reuse, Thread};
use vgpu_remoting::session::{Mode, Session};
use vgpu_remoting::slots::MAX_SLOTS;
use vgpu_remoting::sync::Region;
use vgpu_remoting::wire::Words;
use vgpu_remoting::worker::{Device, SYNCHRONISE, Worker};

/// Fewer than the predictor takes for an iteration of its own.
const TURNS: u32 = 50_000;
const ROUNDS: usize = 31;

static REUSE: LazyLock<Reuse<'static>> = LazyLock::new(|| {
    let zeros = |words| -> Region<'static> { Box::leak((0..words).map(|_| AtomicU64::new(0)).collect()) };
    Reuse::new(MAX_SLOTS, zeros(contents::words(contents::CAPACITY)), zeros(counters::WORDS))
});

thread_local! {
    static THREAD: RefCell<Thread<'static>> = RefCell::new(REUSE.enter());
}

fn turn(i: u32) -> Id {
    let n = black_box(1 + (i % 16) as i32);
    let t = THREAD.with_borrow_mut(|thread| REUSE.create::<Tensor>(thread, Version::V9)).unwrap();
    REUSE
        .change(Version::V9, black_box(t), |v, t: &mut Tensor| tensor::set_4d(v, t, 0, 0, n, 64, 56, 56))
        .unwrap();
    let id = THREAD.with_borrow_mut(|thread| REUSE.id::<Tensor>(thread, Version::V9, black_box(t))).unwrap();
    THREAD.with_borrow_mut(|thread| REUSE.destroy::<Tensor>(thread, Version::V9, black_box(t))).unwrap();
    id
}

/// Nanoseconds of a turn.
fn turns() -> f64 {
    let start = Instant::now();
    (0..TURNS).for_each(|i| {
        black_box(turn(i));
    });
    start.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS)
}

/// So that the next turns are guessed from these: the end of an iteration.
fn end_iteration() {
    THREAD.with_borrow_mut(|thread| {
        REUSE.forward(thread, 1);
        REUSE.backward(thread, [1]);
        REUSE.forward(thread, 1);
    });
}

fn predicted() -> f64 {
    after_one_that_was_ahead(0)
}

/// None of the guesses is right.
fn known() -> f64 {
    after_one_that_was_ahead(1)
}

/// The guesses are those of an iteration of as many turns, that was so many ahead.
fn after_one_that_was_ahead(ahead: u32) -> f64 {
    end_iteration();
    (0..TURNS).for_each(|i| {
        turn(i + ahead);
    });
    end_iteration();
    turns()
}

fn two(what: fn() -> f64) -> f64 {
    std::thread::scope(|scope| {
        let other = scope.spawn(what);
        let ours = what();
        f64::midpoint(ours, other.join().unwrap())
    })
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Computes nothing, successfully.
struct Nothing;

impl Device for Nothing {}

impl Blas for Nothing {}

impl Backend for Nothing {
    fn cudnnActivationForward(
        &mut self,
        _: Handle,
        _: Activation,
        _: Scalar,
        _: Tensor,
        _: Read,
        _: Scalar,
        _: Tensor,
        _: Update,
    ) -> cudnn::Result {
        Ok(())
    }
}

/// A connection to a worker on a thread.
fn connected(mode: Mode) -> &'static Channel {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        let channel = Channel::accept(theirs, 0..0).unwrap();
        let mut worker = match mode {
            Mode::Reuse => Worker::new(channel.contents(), Nothing),
            _ => Worker::forwarded(Version::V9, Nothing),
        };
        serve(&channel, &mut worker)
    });
    Box::leak(Box::new(Channel::connect(ours).unwrap()))
}

fn session(mode: Mode) -> Session<'static> {
    let channel = connected(mode);
    Session::new(mode, Reuse::new(MAX_SLOTS, channel.contents(), channel.counters()), Client::new(channel))
}

/// The third iteration of three, in microseconds: the descriptor calls of ResNet-50's, and its computes; twelve for
/// each.
fn iteration(session: &Session<'_>) -> f64 {
    const COMPUTES: i32 = 264;
    let (mut entered, v) = (session.enter(), Version::V9);
    let thread = &mut entered;
    let mut last = 0.0;
    for _ in 0..3 {
        let start = Instant::now();
        for i in 0..COMPUTES {
            let n = 1 + i % 16;
            let tensors = [n, n + 1, n + 2].map(|n| {
                let t = session.cudnnCreateTensorDescriptor(thread, v).unwrap();
                session.cudnnSetTensor4dDescriptor(v, t, 0, 0, n, 64, 56, 56).unwrap();
                t
            });
            let [x, y, _] = tensors;
            let a = session.cudnnCreateActivationDescriptor(thread, v).unwrap();
            session.cudnnSetActivationDescriptor(v, a, 1, 0, 0.0).unwrap();
            let (one, zero) = (Scalar(1.0), Scalar(0.0));
            let (from, to) = (Read(0x1000), Update(0x2000));
            session.cudnnActivationForward(thread, v, Handle(1), a, one, x, from, zero, y, to).unwrap();
            session.cudnnDestroyActivationDescriptor(thread, v, a).unwrap();
            for t in tensors {
                session.cudnnDestroyTensorDescriptor(thread, v, t).unwrap();
            }
        }
        session.synchronise().unwrap();
        session.reuse().backward(thread, [0x2000]);
        last = start.elapsed().as_secs_f64() * 1e6;
    }
    session.leave(&mut entered);
    last
}

/// An iteration in each mode.
fn iterations() {
    let sessions = [Mode::Reuse, Mode::Forward, Mode::ForwardAndWait].map(session);
    let mut measured = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (measured, session) in measured.iter_mut().zip(&sessions) {
            measured.push(iteration(session));
        }
    }
    let measured = measured.map(median);
    println!("\n{:<26} {:>10} {:>16}", "ResNet-50-like iteration", "us", "of off,waiting");
    for (name, us) in ["reuse", "off", "off,waiting"].iter().zip(measured) {
        println!("{name:<26} {us:>10.1} {:>16.4}", us / measured[2]);
    }
}

/// Descriptor calls as with `VGPU_REUSE=off`.
static WORKER: LazyLock<Client<'static>> = LazyLock::new(|| Client::new(connected(Mode::Forward)));

/// A turn without its use, of calls that are all sent.
fn forwarded(turns: u32, send: impl Fn(Function, &[u64])) -> f64 {
    let start = Instant::now();
    for i in 0..turns {
        send(Function::cudnnCreateTensorDescriptor, &[1]);
        let n = black_box(u64::from(1 + i % 16));
        send(Function::cudnnSetTensor4dDescriptor, &[1, 0, 0, n, 64, 56, 56]);
        send(Function::cudnnDestroyTensorDescriptor, &[1]);
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(turns)
}

fn sent() -> f64 {
    let send = |function, words: &[u64]| {
        WORKER.send(function as u16, &words.iter().copied().collect()).unwrap();
    };
    forwarded(TURNS / 10, send)
}

fn waited() -> f64 {
    let call = |function, words: &[u64]| {
        WORKER.call(function as u16, &words.iter().copied().collect()).unwrap();
    };
    forwarded(TURNS / 100, call)
}

/// The ring's floor: a record that is answered with nothing, and is waited for.
fn floor() -> f64 {
    let (words, turns) = (Words::new(), TURNS / 100);
    let start = Instant::now();
    for _ in 0..turns {
        WORKER.call(SYNCHRONISE, &words).unwrap();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(turns)
}

fn main() {
    type Measure = (&'static str, &'static str, fn() -> f64);
    let all: [Measure; 7] = [
        ("predicted", "50", predicted),
        ("known", "80", known),
        ("predicted, two threads", "50", || two(predicted)),
        ("known, two threads", "80", || two(known)),
        ("forwarded, not waited for", "", sent),
        ("forwarded, waited for", "", waited),
        ("one record and its answer", "", floor),
    ];
    let mut measured = all.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (measured, (_, _, measure)) in measured.iter_mut().zip(all) {
            measured.push(measure());
        }
    }
    let measured = measured.map(median);
    println!("{:<26} {:>10} {:>6} {:>10}", "create+set4d+use+destroy", "ns", "aim", "of the floor");
    for ((name, aim, _), ns) in all.iter().zip(measured) {
        println!("{name:<26} {ns:>10.1} {aim:>6} {:>10.3}", ns / measured[6]);
    }
    iterations();
}
