//! A program's calls, from descriptors to what the backend is asked to do, in each mode.
#![cfg(not(loom))]

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use vgpu_remoting::api::{Handle, Read, Scalar, Update};
use vgpu_remoting::channel::{Channel, Client, Sent, Unanswered, serve};
use vgpu_remoting::contents;
use vgpu_remoting::cublas::backend::Blas;
use vgpu_remoting::cudnn::activation::Activation;
use vgpu_remoting::cudnn::backend::Backend;
use vgpu_remoting::cudnn::tensor::Tensor;
use vgpu_remoting::cudnn::{self, Got, Status, Version};
use vgpu_remoting::reuse::{Found, Reuse, Thread};
use vgpu_remoting::session::{Mode, Session};
use vgpu_remoting::wire::{Malformed, Words};
use vgpu_remoting::worker::{Device, Worker};

const V: Version = Version::V9;
const HANDLE: Handle = Handle(1);
const ONE: Scalar = Scalar(1.0);
const ZERO: Scalar = Scalar(0.0);

/// Writes down what it is asked to do. Activation mode 6 is beyond it.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Device for Diary {}

impl Blas for Diary {}

impl Backend for Diary {
    fn cudnnActivationForward(
        &mut self,
        handle: Handle,
        a: Activation,
        alpha: Scalar,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        y: Tensor,
        y_data: Update,
    ) -> cudnn::Result {
        let entry = format!("forward {handle:?} {a:?} {alpha:?} {x:?} {x_data:?} {beta:?} {y:?} {y_data:?}");
        self.0.lock().unwrap().push(entry);
        if a.mode == 6 { Err(Status::NotSupported) } else { Ok(()) }
    }

    fn cudnnActivationBackward(
        &mut self,
        _: Handle,
        a: Activation,
        _: Scalar,
        y: Tensor,
        y_data: Read,
        _: Tensor,
        _: Read,
        _: Tensor,
        _: Read,
        _: Scalar,
        _: Tensor,
        dx_data: Update,
    ) -> cudnn::Result {
        self.0.lock().unwrap().push(format!("backward {a:?} {y:?} {y_data:?} {dx_data:?}"));
        Ok(())
    }
}

/// A session in this mode, with room for so many contents, its worker, and what that was asked to do.
fn session(mode: Mode, room: usize) -> (Session<'static>, JoinHandle<Result<(), Malformed>>, Diary) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let diary = Diary::default();
    let backend = diary.clone();
    let worker = std::thread::spawn(move || {
        let channel = Channel::accept(theirs, 0..0).unwrap();
        let mut worker = match mode {
            Mode::Reuse => Worker::new(&channel.contents()[..contents::words(room)], backend),
            _ => Worker::forwarded(V, backend),
        };
        serve(&channel, &mut worker)
    });
    let channel: &Channel = Box::leak(Box::new(Channel::connect(ours).unwrap()));
    let reuse = Reuse::new(64, &channel.contents()[..contents::words(room)], channel.counters());
    (Session::new(mode, reuse, Client::new(channel)), worker, diary)
}

/// One layer each way: descriptors made, set, used, destroyed, as PyTorch does.
fn layer(session: &Session<'_>, thread: &mut Thread, i: u64, n: i32, backward: bool) -> cudnn::Result {
    let x = session.cudnnCreateTensorDescriptor(thread, V)?;
    session.cudnnSetTensor4dDescriptor(V, x, 0, 0, n, 4, 8, 8)?;
    let a = session.cudnnCreateActivationDescriptor(thread, V)?;
    session.cudnnSetActivationDescriptor(V, a, (n % 6).abs(), 0, 1.0)?;
    let (from, to) = (Read(0x1000 + i), Update(0x1001 + i));
    let result = if backward {
        let (y, dy) = (Read(0x1001 + i), Read(0x9000));
        session.cudnnActivationBackward(
            thread,
            V,
            HANDLE,
            a,
            ONE,
            x,
            y,
            x,
            dy,
            x,
            from,
            ZERO,
            x,
            Update(0x9001),
        )
    } else {
        session.cudnnActivationForward(thread, V, HANDLE, a, ONE, x, from, ZERO, x, to)
    };
    session.cudnnDestroyActivationDescriptor(thread, V, a)?;
    session.cudnnDestroyTensorDescriptor(thread, V, x)?;
    result
}

fn iteration(session: &Session<'_>, thread: &mut Thread, layers: &[i32]) {
    for (i, n) in layers.iter().enumerate() {
        layer(session, thread, i as u64, *n, false).unwrap();
    }
    for (i, n) in layers.iter().enumerate().rev() {
        layer(session, thread, i as u64, *n, true).unwrap();
    }
}

#[test]
fn the_backend_sees_the_same_in_each_mode() {
    let diaries = [Mode::Reuse, Mode::Forward, Mode::ForwardAndWait].map(|mode| {
        let (session, _, diary) = session(mode, 256);
        let mut thread = session.enter();
        for n in 0..10 {
            iteration(&session, &mut thread, &[1, 2, 3 + n / 4, 5]);
        }
        session.synchronise().unwrap();
        diary.0.lock().unwrap().clone()
    });
    assert_eq!(diaries[0].len(), 80);
    assert!(diaries[0] == diaries[1] && diaries[0] == diaries[2]);
}

#[test]
fn from_the_third_iteration_on_there_are_records_of_computes_alone() {
    let (session, _, _) = session(Mode::Reuse, 256);
    let mut thread = session.enter();
    let layers: Vec<i32> = (1..=50).collect();
    for _ in 0..2 {
        iteration(&session, &mut thread, &layers);
    }
    session.synchronise().unwrap();
    let (found, sent) = (session.reuse().found(), session.client().sent());
    for _ in 0..10 {
        iteration(&session, &mut thread, &layers);
        session.synchronise().unwrap();
    }
    let Found { predicted, known, new } = session.reuse().found();
    assert_eq!([predicted - found.predicted, known - found.known, new - found.new], [2000, 0, 0]);
    let Sent { records, wakes } = session.client().sent();
    assert_eq!(records - sent.records, 1000 + 10);
    assert!(wakes - sent.wakes <= 10 + 1010 / 64, "{}", wakes - sent.wakes);
}

#[test]
fn forwarding_sends_each_call() {
    let (session, _, _) = session(Mode::Forward, 256);
    let mut thread = session.enter();
    iteration(&session, &mut thread, &[1, 2, 3]);
    session.synchronise().unwrap();
    // The first one says that they come.
    assert_eq!(session.client().sent().records, 1 + 6 * 7 + 1);
}

#[test]
fn contents_without_end_are_right_in_a_table_that_is_full_again_and_again() {
    let (session, _, diary) = session(Mode::Reuse, 16);
    let mut thread = session.enter();
    for n in 1..200 {
        layer(&session, &mut thread, 0, n, false).unwrap();
    }
    session.synchronise().unwrap();
    let diary = diary.0.lock().unwrap();
    assert_eq!(diary.len(), 199);
    for (n, entry) in (1..).zip(diary.iter()) {
        assert!(entry.contains(&format!("[{n}, 4, 8, 8, 0")), "{entry}");
    }
}

#[test]
fn what_the_backend_cannot_do_is_said_at_once_and_harms_nothing() {
    let (session, _, _) = session(Mode::Reuse, 64);
    let mut thread = session.enter();
    let x = session.cudnnCreateTensorDescriptor(&mut thread, V).unwrap();
    let a = session.cudnnCreateActivationDescriptor(&mut thread, V).unwrap();
    session.cudnnSetActivationDescriptor(V, a, 6, 0, 1.0).unwrap();
    let mut compute = |a, x, handle| {
        session.cudnnActivationForward(&mut thread, V, handle, a, ONE, x, Read(1), ZERO, x, Update(2))
    };
    assert_eq!(compute(a, x, HANDLE), Err(Status::NotSupported));
    assert_eq!(compute(a, x, HANDLE), Err(Status::NotSupported));
    assert_eq!(compute(x, a, HANDLE), Err(Status::BadParam), "the wrong way round");
    assert_eq!(compute(a, 0, HANDLE), Err(Status::BadParam));
    assert_eq!(compute(a, x, Handle(0)), Err(Status::BadParam));
    assert_eq!(session.client().sent().records, 2, "what is wrong with arguments is known here");
    layer(&session, &mut session.enter(), 0, 1, false).unwrap();
    assert_eq!(session.synchronise(), Ok(()));
}

/// Whatever the handles are: these have been of a compute that works.
#[test]
fn the_first_of_its_like_is_waited_for_in_each_mode() {
    for mode in [Mode::Reuse, Mode::Forward, Mode::ForwardAndWait] {
        let (session, _, _) = session(mode, 64);
        let mut thread = session.enter();
        let x = session.cudnnCreateTensorDescriptor(&mut thread, V).unwrap();
        let a = session.cudnnCreateActivationDescriptor(&mut thread, V).unwrap();
        let statuses = [1, 1, 6, 1].map(|kind| {
            session.cudnnSetActivationDescriptor(V, a, kind, 0, 1.0).unwrap();
            session.cudnnActivationForward(&mut thread, V, HANDLE, a, ONE, x, Read(1), ZERO, x, Update(2))
        });
        assert_eq!(statuses, [Ok(()), Ok(()), Err(Status::NotSupported), Ok(())], "{mode:?}");
        assert_eq!(session.synchronise(), Ok(()));
    }
}

#[test]
fn what_has_worked_in_one_thread_is_waited_for_in_none() {
    let (session, _, Diary(diary)) = session(Mode::Reuse, 64);
    layer(&session, &mut session.enter(), 0, 1, false).unwrap();
    // The backend does nothing meanwhile.
    let held = diary.lock().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(layer(&session, &mut session.enter(), 0, 1, false)));
        let done = receiver.recv_timeout(Duration::from_secs(30));
        drop(held);
        assert_eq!(done, Ok(Ok(())));
    });
    assert_eq!(session.synchronise(), Ok(()));
}

#[test]
fn a_worker_that_is_gone_is_an_error_of_computes_and_of_nothing_else() {
    let (session, _, _) = session(Mode::Reuse, 64);
    let mut thread = session.enter();
    // No function has this number: the worker ends serving.
    assert_eq!(session.client().call(0x7FFF, &Words::new()), Err(Unanswered::Gone));
    assert_eq!(layer(&session, &mut thread, 0, 1, false), Err(Status::ExecutionFailed));
    assert_eq!(session.synchronise(), Err(Status::ExecutionFailed));
}

#[test]
fn getters_answer_here() {
    let (session, _, _) = session(Mode::Reuse, 64);
    let mut thread = session.enter();
    let x = session.cudnnCreateTensorDescriptor(&mut thread, V).unwrap();
    session.cudnnSetTensor4dDescriptor(V, x, 1, 2, 3, 4, 5, 6).unwrap();
    let Got { status, results, .. } = session.cudnnGetTensor4dDescriptor(V, x);
    assert_eq!((status, results), (Ok(()), Some((2, 3, 4, 5, 6, 120, 1, 24, 4))));
    assert_eq!(session.cudnnGetTensorSizeInBytes(V, 0).status, Err(Status::BadParam));
    let none = session.cudnnGetFilterSizeInBytes(V, 0);
    assert_eq!((none.status, none.results), (Err(Status::BadParam), Some((0,))));
    assert_eq!(session.client().sent().records, 0);
}

/// Also while other threads begin new epochs of the table.
#[test]
fn threads_compute_side_by_side() {
    let (session, _, diary) = session(Mode::Reuse, 16);
    std::thread::scope(|scope| {
        for start in 0..4 {
            let session = &session;
            scope.spawn(move || {
                let mut thread = session.enter();
                for n in 1..300 {
                    layer(session, &mut thread, n, (n + start) as i32, false).unwrap();
                }
            });
        }
    });
    session.synchronise().unwrap();
    let diary = diary.0.lock().unwrap();
    assert_eq!(diary.len(), 4 * 299);
    for entry in diary.iter() {
        let number = |after: &str| -> i64 {
            let rest = entry.split_once(after).unwrap().1;
            rest[..rest.find([',', ')']).unwrap()].parse().unwrap()
        };
        let start = number("dims: [") - (number("Read(") - 0x1000);
        assert!((0..4).contains(&start), "{entry}");
    }
}
