//! Calls between processes: answered as they would be here, and an error once the other side has died, at whatever
//! moment.
#![cfg(not(loom))]

#[allow(dead_code, reason = "random calls are for the example")]
mod conformance;

use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use conformance::{Answer, Call};
use tempfile::TempDir;
use vgpu_remoting::api::{Handle, Read, Scalar, Update};
use vgpu_remoting::channel::{Channel, Client, Unanswered, serve};
use vgpu_remoting::cublas::backend::Blas;
use vgpu_remoting::cudnn::backend::Backend;
use vgpu_remoting::cudnn::table::Function;
use vgpu_remoting::cudnn::tensor::Tensor;
use vgpu_remoting::cudnn::{self, Status, Version};
use vgpu_remoting::deferred::{self, Progress};
use vgpu_remoting::ring::Gone;
use vgpu_remoting::wire::Words;
use vgpu_remoting::worker::{Device, SYNCHRONISE, Worker};

/// Is never answered, of tensors that there are.
const HANG: u16 = Function::cudnnAddTensor as u16;

const SOCKET: &str = "VGPU_TEST_SOCKET";

/// This test as another process.
fn process(test: &str, socket: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(SOCKET, socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until a process says so.
fn until(child: &mut Child, word: &str) {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains(word)), "it ended without {word}");
}

struct Process {
    child: Child,
    _directory: TempDir,
    socket: PathBuf,
}

impl Process {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let mut child = process("worker_process", &socket);
        until(&mut child, "listening");
        Self { child, _directory: directory, socket }
    }

    fn connect(&self) -> Channel {
        Channel::connect(UnixStream::connect(&self.socket).unwrap()).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hangs in a compute.
struct Hanging;

impl Device for Hanging {}

impl Blas for Hanging {}

impl Backend for Hanging {
    fn cudnnAddTensor(
        &mut self,
        _: Handle,
        _: Scalar,
        _: Tensor,
        _: Read,
        _: Scalar,
        _: Tensor,
        _: Update,
    ) -> cudnn::Result {
        loop {
            std::thread::park();
        }
    }
}

/// Not a test: the worker of the others, in a process of its own.
#[test]
fn worker_process() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let listener = UnixListener::bind(socket).unwrap();
    println!("listening");
    let channel = Channel::accept(listener.accept().unwrap().0, 0..0).unwrap();
    serve(&channel, &mut Worker::forwarded(Version::V9, Hanging)).unwrap();
}

/// Not a test: a client of the others, in a process of its own.
#[test]
fn client_process() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let channel = Channel::connect(UnixStream::connect(socket).unwrap()).unwrap();
    let client = Client::new(&channel);
    client.call(SYNCHRONISE, &Words::new()).unwrap();
    println!("connected");
    loop {
        client.send(SYNCHRONISE, &Words::new()).unwrap();
    }
}

#[test]
fn a_worker_answers_as_the_rules_do() {
    let worker = Process::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    for line in include_str!("conformance/cudnn9.txt").lines().skip(1) {
        let (call, answer) = line.split_once(" = ").unwrap();
        let (call, answer): (Call, Answer) = (call.parse().unwrap(), answer.parse().unwrap());
        let words = client.call(call.function as u16, &call.arguments).unwrap();
        let status = Status::from_wire(words[0]).map_or_else(|status| status.code(Version::V9), |()| 0);
        assert_eq!(status, answer.status, "{call}");
        assert_eq!(words[1..], answer.results[..], "{call}");
    }
}

fn tensor(client: &Client<'_>, handle: u64, n: u64) {
    let words = |words: &[u64]| words.iter().copied().collect();
    client.send(Function::cudnnCreateTensorDescriptor as u16, &words(&[handle])).unwrap();
    client.send(Function::cudnnSetTensor4dDescriptor as u16, &words(&[handle, 0, 0, n, 1, 1, 1])).unwrap();
}

#[test]
fn each_thread_gets_its_own_answers() {
    let worker = Process::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    std::thread::scope(|scope| {
        for thread in 1..=100 {
            let client = &client;
            scope.spawn(move || {
                for i in 1..=50 {
                    tensor(client, thread, thread * i);
                    let size = Function::cudnnGetTensorSizeInBytes as u16;
                    let answer = client.call(size, &[thread].into_iter().collect()).unwrap();
                    assert_eq!(answer[..], [0, 4 * thread * i]);
                }
            });
        }
    });
    assert_eq!(client.sent().records, 15_000);
}

#[test]
fn functions_have_their_turns_before_all_that_is_sent_after_them() {
    let worker = Process::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    let (release, released) = mpsc::channel();
    let (done, order) = mpsc::channel();
    tensor(&client, 1, 1);
    assert_eq!(client.moment(), 0);
    let again = done.clone();
    let first = client.defer(Box::new(move |answer| {
        released.recv().unwrap();
        done.send(answer.map(|words| words[0])).unwrap();
    }));
    let second = client.defer(Box::new(move |answer| again.send(answer.map(|_| 2)).unwrap()));
    assert_eq!((first, second), (Ok(true), Ok(false)));
    tensor(&client, 2, 2);
    let free = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| client.run(SYNCHRONISE));
        // More than there are places for answers.
        for _ in 0..80 {
            scope.spawn(|| {
                let size = Function::cudnnGetTensorSizeInBytes as u16;
                let answer = client.call(size, &[2].into_iter().collect()).unwrap();
                assert!(free.load(Ordering::SeqCst) && answer[..] == [0, 8]);
            });
        }
        // What was sent before a function is done when its turn has come.
        assert!(client.reach(0));
        assert_eq!((client.progress(0), client.progress(2)), (Progress::Done, Progress::Pending));
        free.store(true, Ordering::SeqCst);
        release.send(()).unwrap();
    });
    assert_eq!(order.iter().collect::<Vec<_>>(), [Ok(0), Ok(2)]);
    assert_eq!((client.progress(2), client.reach(2)), (Progress::Sent, false));
    assert_eq!(client.defer(Box::new(|_| ())), Ok(true), "nobody runs them any more");
}

/// But for what it sends itself.
#[test]
fn what_is_sent_while_a_function_has_its_turn_waits_once_there_is_no_room() {
    let worker = Process::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    let one_more = |client: &Client<'_>| client.send(SYNCHRONISE, &Words::new()).unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ended);
    let first = client.defer(Box::new(move |_| {
        begun.send(()).unwrap();
        released.recv().unwrap();
        // Whoever does not wait has long sent.
        (0..10_000).for_each(|_| thread::yield_now());
        ends.store(true, Ordering::SeqCst);
    }));
    assert_eq!(first, Ok(true));
    thread::scope(|scope| {
        scope.spawn(|| client.run(SYNCHRONISE));
        has_begun.recv().unwrap();
        (0..deferred::ROOM).for_each(|_| one_more(&client));
        assert!(!ended.load(Ordering::SeqCst));
        scope.spawn(|| {
            one_more(&client);
            assert!(ended.load(Ordering::SeqCst), "there was room");
        });
        release.send(()).unwrap();
    });
    assert_eq!(client.sent().records, deferred::ROOM as u64 + 2);
}

#[test]
fn a_function_whose_worker_is_killed_is_told_so() {
    let mut worker = Process::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    tensor(&client, 1, 1);
    client.send(HANG, &[1, 0, 1, 0, 0, 1, 0].into_iter().collect()).unwrap();
    let (told, is_told) = mpsc::channel();
    assert_eq!(client.defer(Box::new(move |answer| told.send(answer).unwrap())), Ok(true));
    std::thread::scope(|scope| {
        scope.spawn(|| client.run(SYNCHRONISE));
        worker.child.kill().unwrap();
    });
    assert_eq!(is_told.recv().unwrap(), Err(Gone));
}

#[test]
fn a_call_whose_worker_is_killed_fails_and_so_do_all_after_it() {
    let mut worker = Process::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    tensor(&client, 1, 1);
    client.call(SYNCHRONISE, &Words::new()).unwrap();
    let hang: Words = [1, 0, 1, 0, 0, 1, 0].into_iter().collect();
    std::thread::scope(|scope| {
        // More than there are places for answers.
        let waiting: Vec<_> = (0..80).map(|_| scope.spawn(|| client.call(HANG, &hang))).collect();
        worker.child.kill().unwrap();
        waiting.into_iter().for_each(|call| assert_eq!(call.join().unwrap(), Err(Unanswered::Gone)));
    });
    assert!(!worker.child.wait().unwrap().success(), "it was killed, it did not end");
    assert_eq!(client.call(SYNCHRONISE, &Words::new()), Err(Unanswered::Gone));
    assert_eq!(client.send(SYNCHRONISE, &Words::new()), Err(Gone));
}

#[test]
fn sends_to_a_worker_that_is_killed_fail_when_the_ring_is_full() {
    let mut worker = Process::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    worker.child.kill().unwrap();
    while client.send(SYNCHRONISE, &Words::new()).is_ok() {}
    assert_eq!(client.call(SYNCHRONISE, &Words::new()), Err(Unanswered::Gone));
}

#[test]
fn a_worker_whose_client_is_killed_ends() {
    let mut worker = Process::start();
    let mut client = process("client_process", &worker.socket);
    until(&mut client, "connected");
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(worker.child.wait().unwrap().success());
}

/// Until the time for it is up, which is seconds.
#[test]
fn a_client_that_says_nothing_is_not_waited_for() {
    let (_ours, theirs) = UnixStream::pair().unwrap();
    assert_eq!(Channel::accept(theirs, 0..0).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn a_client_of_another_build_is_refused() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::io::Write::write_all(&mut &ours, &[0; 8]).unwrap();
    assert_eq!(Channel::accept(theirs, 0..0).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    drop(ours);
}
