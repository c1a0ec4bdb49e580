//! What the backend is asked to do is the same whether descriptor calls are answered in the client or forwarded.
#![cfg(not(loom))]

use std::sync::atomic::AtomicU64;

use vgpu_remoting::api::{Handle, Read, Scalar, Update};
use vgpu_remoting::contents::{self, Contents, Sort};
use vgpu_remoting::counters;
use vgpu_remoting::cublas::backend::Blas;
use vgpu_remoting::cudnn::backend::Backend;
use vgpu_remoting::cudnn::convolution::{self, Convolution};
use vgpu_remoting::cudnn::filter::{self, Filter};
use vgpu_remoting::cudnn::table::Function;
use vgpu_remoting::cudnn::tensor::{self, Tensor};
use vgpu_remoting::cudnn::{self, Status, Version};
use vgpu_remoting::descriptor::Content;
use vgpu_remoting::reuse::Reuse;
use vgpu_remoting::sync::Region;
use vgpu_remoting::wire::{Head, Malformed, Value, Words};
use vgpu_remoting::worker::{Device, FORGET, MARK, MAX_EVENTS, SYNCHRONISE, Worker};

const V: Version = Version::V9;

/// The head of a record that nobody waits for.
fn sent(function: u16) -> Head {
    Head { function, place: None }
}

/// Writes down what it is asked to do. A factor of 13 is beyond it.
#[derive(Default)]
struct Diary(Vec<String>);

impl Device for &mut Diary {}

impl Blas for &mut Diary {}

impl Backend for &mut Diary {
    fn cudnnAddTensor(
        &mut self,
        handle: Handle,
        alpha: Scalar,
        a: Tensor,
        a_data: Read,
        beta: Scalar,
        c: Tensor,
        c_data: Update,
    ) -> cudnn::Result {
        self.0.push(format!("add {handle:?} {alpha:?} {a:?} {a_data:?} {beta:?} {c:?} {c_data:?}"));
        if alpha.0 == 13.0 { Err(Status::ExecutionFailed) } else { Ok(()) }
    }

    fn cudnnConvolutionForward(
        &mut self,
        handle: Handle,
        alpha: Scalar,
        x: Tensor,
        x_data: Read,
        w: Filter,
        w_data: Read,
        conv: Convolution,
        algorithm: i32,
        _workspace: vgpu_remoting::api::Write,
        _workspace_size: u64,
        beta: Scalar,
        y: Tensor,
        y_data: Update,
    ) -> cudnn::Result {
        self.0.push(format!(
            "conv {handle:?} {alpha:?} {x:?} {x_data:?} {w:?} {w_data:?} {conv:?} {algorithm} {beta:?} {y:?} {y_data:?}"
        ));
        Ok(())
    }
}

fn table() -> Region<'static> {
    Box::leak((0..contents::words(256)).map(|_| AtomicU64::new(0)).collect())
}

fn add(alpha: f64, a: u64, c: u64) -> Words {
    let mut words: Words = [1].into_iter().collect();
    alpha.put(&mut words);
    words.extend([a, 0x1000]);
    0.0.put(&mut words);
    words.extend([c, 0x2000]);
    words
}

fn conv(x: u64, w: u64, c: u64, y: u64) -> Words {
    let mut words: Words = [1].into_iter().collect();
    1.0.put(&mut words);
    words.extend([x, 0x1000, w, 0x3000, c, 1, 0, 0]);
    0.0.put(&mut words);
    words.extend([y, 0x2000]);
    words
}

/// A program, to be run in either way: layers with batches that change, groups that are set on some, descriptors that
/// are made for each compute.
fn program() -> impl Iterator<Item = (u64, u64, Option<i32>)> {
    (0..40_u64).map(|i| (1 + i % 3 + i / 20, 1 + i % 5, (i % 4 == 1).then_some(2)))
}

fn reused(diary: &mut Diary) {
    let table = table();
    let counters: Vec<AtomicU64> = (0..counters::WORDS).map(|_| AtomicU64::new(0)).collect();
    let reuse = Reuse::new(16, table, &counters);
    let mut thread = reuse.enter();
    let mut worker = Worker::new(table, diary);
    let mut send = |function: Function, words: &Words| {
        worker.record(sent(function as u16), words, &mut Words::new()).unwrap();
    };
    for (n, k, groups) in program() {
        let x = reuse.create::<Tensor>(&mut thread, V).unwrap();
        let w = reuse.create::<Filter>(&mut thread, V).unwrap();
        let c = reuse.create::<Convolution>(&mut thread, V).unwrap();
        let set = |v, x: &mut Tensor| tensor::set_4d(v, x, 0, 0, n as i32, 4, 8, 8);
        reuse.change(V, x, set).unwrap();
        reuse.change(V, w, |v, w: &mut Filter| filter::set_4d(v, w, 0, 0, k as i32, 4, 3, 3)).unwrap();
        reuse
            .change(V, c, |v, c: &mut Convolution| convolution::set_2d(v, c, 1, 1, 1, 1, 1, 1, 1, 0))
            .unwrap();
        if let Some(groups) = groups {
            reuse.change(V, c, |v, c| convolution::set_groups(v, c, groups)).unwrap();
        }
        let ids = (
            reuse.id::<Tensor>(&mut thread, V, x).unwrap().0,
            reuse.id::<Filter>(&mut thread, V, w).unwrap().0,
            reuse.id::<Convolution>(&mut thread, V, c).unwrap().0,
        );
        send(Function::cudnnConvolutionForward, &conv(ids.0, ids.1, ids.2, ids.0));
        reuse.forward(&mut thread, 0x2000);
        send(Function::cudnnAddTensor, &add(1.0, ids.0, ids.0));
        reuse.backward(&mut thread, [0x2000]);
        reuse.destroy::<Tensor>(&mut thread, V, x).unwrap();
        reuse.destroy::<Filter>(&mut thread, V, w).unwrap();
        reuse.destroy::<Convolution>(&mut thread, V, c).unwrap();
    }
}

fn forwarded(diary: &mut Diary) {
    let mut worker = Worker::forwarded(V, diary);
    let mut send = |function: Function, words: &[u64]| {
        let mut answer = Words::new();
        worker.record(sent(function as u16), words, &mut answer).unwrap();
        assert_eq!(answer[0], 0);
    };
    for (n, k, groups) in program() {
        send(Function::cudnnCreateTensorDescriptor, &[1]);
        send(Function::cudnnCreateFilterDescriptor, &[2]);
        send(Function::cudnnCreateConvolutionDescriptor, &[3]);
        send(Function::cudnnSetTensor4dDescriptor, &[1, 0, 0, n, 4, 8, 8]);
        send(Function::cudnnSetFilter4dDescriptor, &[2, 0, 0, k, 4, 3, 3]);
        send(Function::cudnnSetConvolution2dDescriptor, &[3, 1, 1, 1, 1, 1, 1, 1, 0]);
        if let Some(groups) = groups {
            send(Function::cudnnSetConvolutionGroupCount, &[3, groups as u64]);
        }
        send(Function::cudnnConvolutionForward, &conv(1, 2, 3, 1));
        send(Function::cudnnAddTensor, &add(1.0, 1, 1));
        send(Function::cudnnDestroyTensorDescriptor, &[1]);
        send(Function::cudnnDestroyFilterDescriptor, &[2]);
        send(Function::cudnnDestroyConvolutionDescriptor, &[3]);
    }
}

#[test]
fn the_backend_sees_the_same_with_reuse_and_without() {
    let (mut with, mut without) = (Diary::default(), Diary::default());
    reused(&mut with);
    forwarded(&mut without);
    assert_eq!(with.0.len(), 80);
    assert_eq!(with.0, without.0);
}

#[test]
fn an_error_that_nobody_waited_for_is_kept() {
    let mut diary = Diary::default();
    let mut worker = Worker::forwarded(V, &mut diary);
    let mut record = |place: Option<u8>, function: u16, words: &[u64]| {
        let mut answer = Words::new();
        worker.record(Head { function, place }, words, &mut answer).unwrap();
        Status::from_wire(answer[0])
    };
    let (create, set) =
        (Function::cudnnCreateTensorDescriptor as u16, Function::cudnnSetTensor4dDescriptor as u16);
    let compute = Function::cudnnAddTensor as u16;
    let failed = Err(Status::ExecutionFailed);
    record(None, create, &[1]).unwrap();
    assert_eq!(record(None, set, &[1, 0, 0, 0, 0, 0, 0]), Err(Status::BadParam));
    assert_eq!(record(Some(0), compute, &add(13.0, 1, 1)), failed);
    assert_eq!(record(Some(0), SYNCHRONISE, &[]), Ok(()), "the client knows of both already");
    assert_eq!(record(None, compute, &add(13.0, 1, 1)), failed);
    assert_eq!(record(Some(0), SYNCHRONISE, &[]), failed);
    assert_eq!(record(Some(0), compute, &add(1.0, 1, 1)), failed);
    assert_eq!(record(Some(0), SYNCHRONISE, &[]), failed);
    assert_eq!(diary.0.len(), 2, "nothing is done after it");
}

#[test]
fn what_a_backend_does_not_have_is_not_supported() {
    let mut diary = Diary::default();
    let mut worker = Worker::forwarded(V, &mut diary);
    let mut answer = Words::new();
    worker.record(sent(Function::cudnnCreateTensorDescriptor as u16), &[1], &mut answer).unwrap();
    answer.clear();
    worker.record(sent(Function::cudnnTransformTensor as u16), &add(1.0, 1, 1), &mut answer).unwrap();
    assert_eq!(Status::from_wire(answer[0]), Err(Status::NotSupported));
}

#[test]
fn a_content_that_no_rule_writes_is_malformed() {
    let table = table();
    let (contents, mut writer) = Contents::new(table);
    let mut diary = Diary::default();
    let mut worker = Worker::new(table, &mut diary);
    for (count, right) in [(0, true), (8, true), (9, false), (-1, false)] {
        let mut tensor = Tensor::FRESH;
        tensor.count = count;
        let sort = Sort { kind: Tensor::KIND, version: V };
        let (id, _) = contents.intern(&mut writer, sort, &tensor.to_words()).unwrap();
        let result =
            worker.record(sent(Function::cudnnAddTensor as u16), &add(1.0, id.0, id.0), &mut Words::new());
        assert_eq!(result.is_ok(), right, "{count}");
    }
}

#[test]
fn records_of_a_client_that_does_not_keep_to_the_rules_are_malformed() {
    let mut diary = Diary::default();
    let mut worker = Worker::new(table(), &mut diary);
    let mut record = |number: u16, words: &[u64]| worker.record(sent(number), words, &mut Words::new());
    let function = Function::cudnnAddTensor as u16;
    assert_eq!(record(function, &add(1.0, 1, 1)), Err(Malformed), "no content has this id");
    assert_eq!(record(function, &add(1.0, 0, 0)), Err(Malformed), "nor this");
    assert_eq!(record(function, &[]), Err(Malformed));
    assert_eq!(record(SYNCHRONISE - 1, &[]), Err(Malformed));
    let create = Function::cudnnCreateTensorDescriptor as u16;
    assert_eq!(record(create, &[1]), Err(Malformed), "it answers these itself");
}

/// Where descriptor calls are forwarded: by another thread, while the compute was on its way.
#[test]
fn a_compute_on_a_descriptor_that_has_ended_is_refused_and_not_done() {
    let mut diary = Diary::default();
    let mut worker = Worker::forwarded(V, &mut diary);
    let mut record = |function: Function, words: &[u64]| {
        let (head, mut answer) = (Head { function: function as u16, place: Some(0) }, Words::new());
        worker.record(head, words, &mut answer).map(|()| Status::from_wire(answer[0]))
    };
    assert_eq!(record(Function::cudnnCreateTensorDescriptor, &[1]), Ok(Ok(())));
    assert_eq!(record(Function::cudnnAddTensor, &add(1.0, 1, 1)), Ok(Ok(())));
    assert_eq!(record(Function::cudnnDestroyTensorDescriptor, &[1]), Ok(Ok(())));
    assert_eq!(record(Function::cudnnAddTensor, &add(1.0, 1, 1)), Ok(Err(Status::BadParam)));
    assert_eq!(record(Function::cudnnAddTensor, &[]), Err(Malformed));
    assert_eq!(diary.0.len(), 1);
}

/// Computes nothing.
struct Nothing;

impl Device for Nothing {}

impl Blas for Nothing {}

impl Backend for Nothing {}

#[test]
fn moments_beyond_the_bound_are_refused_until_others_are_forgotten() {
    let mut worker = Worker::new(table(), Nothing);
    let mut answer = Words::new();
    let mut record = |number: u16, words: &[u64]| {
        answer.clear();
        worker.record(sent(number), words, &mut answer).unwrap();
        Status::from_wire(answer[0])
    };
    let bound = 2 * MAX_EVENTS as u64;
    assert!((0..bound).all(|moment| record(MARK, &[moment]) == Ok(())));
    assert_eq!(record(MARK, &[bound]), Err(Status::AllocFailed));
    assert_eq!((record(MARK, &[0]), record(SYNCHRONISE, &[])), (Ok(()), Ok(())));
    assert_eq!((record(FORGET, &[1]), record(MARK, &[bound])), (Ok(()), Ok(())));
}

/// Whatever a client sends, its worker answers, or ends serving it.
#[test]
fn any_words_are_answered_or_malformed() {
    let mut state = 1_u64;
    let mut random = |bound: u64| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 33) % bound
    };
    let table = table();
    table.iter().for_each(|word| word.store(random(1 << 20), std::sync::atomic::Ordering::Relaxed));
    let mut workers = [Worker::new(table, Nothing), Worker::forwarded(V, Nothing)];
    let (mut answered, mut answer) = (0, Words::new());
    for _ in 0..300_000 {
        let function = random(Function::ALL.len() as u64 + 2) as u16;
        let edges = [0, 1, 2, 3, 4, 8, 9, 1 << 16, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, u64::MAX];
        let len = random(30);
        let word = |_| {
            let bound = if random(4) == 0 { 12 } else { 6 };
            edges[random(bound) as usize]
        };
        let words: Words = (0..len).map(word).collect();
        for worker in &mut workers {
            answer.clear();
            answered += u32::from(worker.record(sent(function), &words, &mut answer).is_ok());
        }
    }
    assert!(answered > 10_000, "{answered}");
}
