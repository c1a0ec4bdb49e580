//! Descriptor calls are answered from what there is, and what the worker then sees is right whatever was guessed.
#![cfg(not(any(loom, feature = "blind")))]

use std::sync::atomic::AtomicU64;

use vgpu_remoting::contents::{self, Id, Seen};
use vgpu_remoting::counters;
use vgpu_remoting::cudnn::convolution::{self, Convolution};
use vgpu_remoting::cudnn::tensor::{self, Tensor};
use vgpu_remoting::cudnn::{Status, Version};
use vgpu_remoting::descriptor::Content;
use vgpu_remoting::reuse::{Found, Reuse, Thread, Unresolved};
use vgpu_remoting::sync::Region;

const V: Version = Version::V9;

fn table(capacity: usize) -> Region<'static> {
    zeros(contents::words(capacity))
}

fn zeros(words: usize) -> Region<'static> {
    Box::leak((0..words).map(|_| AtomicU64::new(0)).collect())
}

fn reuse(slots: usize, table: Region<'static>) -> Reuse<'static> {
    Reuse::new(slots, table, zeros(counters::WORDS))
}

/// Creates a tensor, sets it, uses it, destroys it. The id.
fn tensor_used(reuse: &Reuse, thread: &mut Thread, n: i32) -> Result<Id, Unresolved> {
    let t = reuse.create::<Tensor>(thread, V).unwrap();
    reuse.change(V, t, |v, t: &mut Tensor| tensor::set_4d(v, t, 0, 0, n, 3, 8, 8)).unwrap();
    let id = reuse.id::<Tensor>(thread, V, t);
    reuse.destroy::<Tensor>(thread, V, t).unwrap();
    id
}

fn content(n: i32) -> Tensor {
    let mut t = Tensor::FRESH;
    tensor::set_4d(V, &mut t, 0, 0, n, 3, 8, 8).unwrap();
    t
}

/// One iteration of a network of these layers: a tensor, and a compute, each way.
fn iterate(reuse: &Reuse, thread: &mut Thread, layers: &[i32]) {
    for (i, n) in layers.iter().enumerate() {
        tensor_used(reuse, thread, *n).unwrap();
        reuse.forward(thread, 0x1000 + i as u64);
    }
    for (i, n) in layers.iter().enumerate().rev() {
        tensor_used(reuse, thread, *n).unwrap();
        reuse.backward(thread, [0x1000 + i as u64]);
    }
}

fn since(reuse: &Reuse, before: Found) -> [u64; 3] {
    let Found { predicted, known, new } = reuse.found();
    [predicted - before.predicted, known - before.known, new - before.new]
}

#[test]
fn from_the_third_iteration_on_all_is_predicted() {
    let reuse = reuse(64, table(64));
    let mut thread = reuse.enter();
    let layers = [5, 6, 7, 8, 6, 5, 9];
    for _ in 0..2 {
        iterate(&reuse, &mut thread, &layers);
    }
    let before = reuse.found();
    assert_eq!(before.new, 5, "distinct contents");
    for _ in 0..10 {
        iterate(&reuse, &mut thread, &layers);
    }
    assert_eq!(since(&reuse, before), [140, 0, 0]);
    assert_eq!(reuse.slots_used(), 1, "the same slot all the time");
}

/// As with PyTorch: the backward pass is another thread's.
#[test]
fn passes_on_threads_of_their_own_are_predicted() {
    let reuse = reuse(64, table(64));
    let (mut there, mut back) = (reuse.enter(), reuse.enter());
    let mut iterate = || {
        for n in 1..20 {
            tensor_used(&reuse, &mut there, n).unwrap();
            reuse.forward(&mut there, n as u64);
        }
        for n in (1..20).rev() {
            tensor_used(&reuse, &mut back, n).unwrap();
            tensor_used(&reuse, &mut back, n / 2 + 30).unwrap();
            reuse.backward(&mut back, [n as u64]);
        }
    };
    (0..2).for_each(|_| iterate());
    let before = reuse.found();
    (0..10).for_each(|_| iterate());
    assert_eq!(since(&reuse, before), [10 * 3 * 19, 0, 0]);
}

#[test]
fn a_shape_that_changes_is_known_or_new_and_never_wrong() {
    let table = table(256);
    let reuse = reuse(64, table);
    let mut thread = reuse.enter();
    let mut seen = Seen::new(table);
    for round in 0..500 {
        let n = 1 + round * round % 37;
        let id = tensor_used(&reuse, &mut thread, n).unwrap();
        let (sort, words) = seen.content(id).unwrap();
        assert_eq!((sort.kind, Tensor::from_words(&words)), (Tensor::KIND, content(n)));
        if round % 3 == 0 {
            reuse.forward(&mut thread, 1);
            reuse.backward(&mut thread, [1]);
        }
    }
    let found = reuse.found();
    assert!(found.new == 19 && found.predicted + found.known == 481, "{found:?}");
}

/// As blind reuse would not have it.
#[test]
fn a_group_count_of_an_earlier_life_is_not_reused() {
    let reuse = reuse(1, table(64));
    let mut thread = reuse.enter();
    let mut used = |groups: Option<i32>| {
        let conv = reuse.create::<Convolution>(&mut thread, V).unwrap();
        let set = |v, c: &mut Convolution| convolution::set_2d(v, c, 0, 0, 1, 1, 1, 1, 1, 0);
        reuse.change(V, conv, set).unwrap();
        if let Some(groups) = groups {
            reuse.change(V, conv, |v, c| convolution::set_groups(v, c, groups)).unwrap();
        }
        let id = reuse.id::<Convolution>(&mut thread, V, conv).unwrap();
        let groups = reuse.get::<Convolution>(V, conv).unwrap().groups;
        reuse.destroy::<Convolution>(&mut thread, V, conv).unwrap();
        (id, groups)
    };
    let ((four, _), (one, groups)) = (used(Some(4)), used(None));
    assert_ne!(four, one);
    assert_eq!(groups, 1);
}

#[test]
fn setting_the_same_again_finds_nothing_anew() {
    let reuse = reuse(4, table(64));
    let mut thread = reuse.enter();
    let t = reuse.create::<Tensor>(&mut thread, V).unwrap();
    for n in [1, 1, 2, 1] {
        reuse.change(V, t, |v, t: &mut Tensor| tensor::set_4d(v, t, 0, 0, n, 3, 8, 8)).unwrap();
        reuse.id::<Tensor>(&mut thread, V, t).unwrap();
        reuse.id::<Tensor>(&mut thread, V, t).unwrap();
    }
    assert_eq!(reuse.found(), Found { predicted: 0, known: 1, new: 2 });
}

#[test]
fn what_is_no_descriptor_has_a_clear_status() {
    let reuse = reuse(1, table(64));
    let mut thread = reuse.enter();
    let t = reuse.create::<Tensor>(&mut thread, V).unwrap();
    assert_eq!(reuse.create::<Tensor>(&mut thread, V), Err(Status::AllocFailed));
    assert_eq!(reuse.get::<Convolution>(V, t), Err(Status::BadParam));
    assert_eq!(reuse.get::<Tensor>(Version::V8, t), Err(Status::BadParam));
    assert_eq!(reuse.id::<Convolution>(&mut thread, V, t), Err(Unresolved::NoSuch));
    assert_eq!(reuse.destroy::<Tensor>(&mut thread, V, 0), Ok(()));
    assert_eq!(reuse.destroy::<Tensor>(&mut thread, V, t), Ok(()));
    assert_eq!(reuse.destroy::<Tensor>(&mut thread, V, t), Err(Status::BadParam));
    assert_eq!(reuse.id::<Tensor>(&mut thread, V, t), Err(Unresolved::NoSuch));
}

#[test]
fn a_full_table_begins_anew() {
    let table = table(16);
    let reuse = reuse(4, table);
    let (mut thread, mut seen) = (reuse.enter(), Seen::new(table));
    let kept = reuse.create::<Tensor>(&mut thread, V).unwrap();
    let mut epochs = 0;
    for n in 1..100 {
        let id = tensor_used(&reuse, &mut thread, n).or_else(|unresolved| {
            assert_eq!(unresolved, Unresolved::Full);
            reuse.next_epoch();
            epochs += 1;
            tensor_used(&reuse, &mut thread, n)
        });
        assert!(reuse.is_current(id.unwrap()));
        assert_eq!(seen.content(id.unwrap()).map(|(_, words)| Tensor::from_words(&words)), Some(content(n)));
        // One that had its id in an earlier epoch gets one of this.
        match reuse.id::<Tensor>(&mut thread, V, kept) {
            Ok(id) => {
                assert_eq!(seen.content(id).map(|(_, words)| Tensor::from_words(&words)), Some(Tensor::FRESH))
            }
            Err(unresolved) => assert_eq!(unresolved, Unresolved::Full),
        }
    }
    assert!(epochs > 3, "{epochs}");
}

#[test]
fn threads_that_contend_send_what_they_set() {
    const SHAPES: i32 = if cfg!(miri) { 4 } else { 200 };
    const ROUNDS: i32 = if cfg!(miri) { 8 } else { 5_000 };
    let table = table(1 << 10);
    let reuse = reuse(256, table);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let reuse = &reuse;
            scope.spawn(move || {
                let (mut thread, mut seen) = (reuse.enter(), Seen::new(table));
                for round in 0..ROUNDS {
                    let n = 1 + (round * (number + 3)) % SHAPES;
                    let id = tensor_used(reuse, &mut thread, n).unwrap();
                    let words = seen.content(id).unwrap().1;
                    assert_eq!(Tensor::from_words(&words), content(n));
                }
                reuse.leave(&mut thread);
            });
        }
    });
    let found = reuse.found();
    assert_eq!(found.predicted + found.known + found.new, 4 * ROUNDS as u64);
    assert_eq!(found.new, SHAPES as u64, "each content once, whoever came first");
}

/// More than there are blocks of counters, one after the other.
#[test]
fn what_a_thread_had_is_there_for_others_when_it_ends() {
    let reuse = reuse(4, table(64));
    for _ in 0..100 {
        let mut thread = reuse.enter();
        assert!(thread.counts().is_some());
        tensor_used(&reuse, &mut thread, 1).unwrap();
        reuse.leave(&mut thread);
    }
    assert_eq!(reuse.slots_used(), 1);
}
