//! What a descriptor call costs. Nothing passes or fails: medians, beside the aims.
//!
//! A turn is create, set4d, first use, destroy, of sixteen contents one after the other, with the thread's state found
//! as a C function finds it, in thread-local storage.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use vgpu_remoting::contents::{self, Id};
use vgpu_remoting::cudnn::Version;
use vgpu_remoting::cudnn::tensor::{self, Tensor};
use vgpu_remoting::reuse::{Reuse, Thread};
use vgpu_remoting::slots::MAX_SLOTS;

/// Fewer than the predictor takes for an iteration of its own.
const TURNS: u32 = 50_000;
const ROUNDS: usize = 31;

static REUSE: LazyLock<Reuse<'static>> = LazyLock::new(|| {
    let words = (0..contents::words(contents::CAPACITY)).map(|_| AtomicU64::new(0)).collect();
    Reuse::new(MAX_SLOTS, Box::leak(words))
});

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::new(REUSE.enter());
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
        REUSE.backward(thread, &[1]);
        REUSE.forward(thread, 1);
    });
}

fn predicted() -> f64 {
    end_iteration();
    (0..16).for_each(|i| {
        turn(i);
    });
    end_iteration();
    turns()
}

/// The guesses are those of an iteration that was one ahead, so that none is right.
fn known() -> f64 {
    end_iteration();
    (0..16).for_each(|i| {
        turn(i + 1);
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

fn main() {
    type Measure = (&'static str, &'static str, fn() -> f64);
    let all: [Measure; 4] = [
        ("predicted", "50", predicted),
        ("known", "80", known),
        ("predicted, two threads", "50", || two(predicted)),
        ("known, two threads", "80", || two(known)),
    ];
    let mut measured = all.map(|_| Vec::new());
    let mut shares = all.map(|_| String::new());
    for _ in 0..ROUNDS {
        for (i, (_, _, measure)) in all.iter().enumerate() {
            let before = REUSE.found();
            measured[i].push(measure());
            let after = REUSE.found();
            let (predicted, known) = (after.predicted - before.predicted, after.known - before.known);
            shares[i] = format!("{:.0}%", 100.0 * predicted as f64 / (predicted + known) as f64);
        }
    }
    println!("{:<26} {:>8} {:>8} {:>10}", "create+set4d+use+destroy", "ns", "aim", "predicted");
    for (i, (name, aim, _)) in all.iter().enumerate() {
        println!("{name:<26} {:>8.1} {aim:>8} {:>10}", median(measured[i].clone()), shares[i]);
    }
}
