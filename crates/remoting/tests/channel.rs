//! Calls between processes: answered as they would be here, and an error once the other side has died, at whatever
//! moment.
#![cfg(not(loom))]

#[allow(dead_code, reason = "random calls are for the example")]
mod conformance;

use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use conformance::{Answer, Call, Rules};
use tempfile::TempDir;
use vgpu_remoting::channel::{Channel, Client, serve};
use vgpu_remoting::cudnn::Version;
use vgpu_remoting::cudnn::table::Function;
use vgpu_remoting::ring::Gone;
use vgpu_remoting::wire::{Malformed, Words};

/// Answers with its arguments.
const ECHO: u16 = 0xFF00;
/// Is never answered.
const HANG: u16 = 0xFF01;

const SOCKET: &str = "VGPU_TEST_SOCKET";

/// This test as another process.
fn process(test: &str, socket: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
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

struct Worker {
    child: Child,
    _directory: TempDir,
    socket: PathBuf,
}

impl Worker {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let mut child = process("worker", &socket);
        until(&mut child, "listening");
        Self { child, _directory: directory, socket }
    }

    fn connect(&self) -> Channel {
        Channel::connect(UnixStream::connect(&self.socket).unwrap()).unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(rules: &mut Rules, number: u16, arguments: &[u64], words: &mut Words) -> Result<(), Malformed> {
    match number {
        ECHO => words.extend(arguments.iter().copied()),
        HANG => loop {
            std::thread::park();
        },
        _ => {
            let function = Function::from_number(number).ok_or(Malformed)?;
            let arguments = arguments.iter().copied().collect();
            let Answer { status, results } = rules.answer(&Call { function, arguments });
            words.push(u64::from(status.cast_unsigned()));
            words.extend(results);
        }
    }
    Ok(())
}

#[test]
#[ignore = "the worker of the other tests, a process of its own"]
fn worker() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let listener = UnixListener::bind(socket).unwrap();
    println!("listening");
    let channel = Channel::accept(listener.accept().unwrap().0).unwrap();
    let mut rules = Rules::new(Version::V9);
    serve(&channel, |number, arguments, words| answer(&mut rules, number, arguments, words)).unwrap();
}

#[test]
#[ignore = "a client of the other tests, a process of its own"]
fn client() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let channel = Channel::connect(UnixStream::connect(socket).unwrap()).unwrap();
    let client = Client::new(&channel);
    client.call(ECHO, &Words::new()).unwrap();
    println!("connected");
    loop {
        client.send(ECHO, &Words::new()).unwrap();
    }
}

#[test]
fn a_worker_answers_as_the_rules_do() {
    let worker = Worker::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    for line in include_str!("conformance/cudnn9.txt").lines().skip(1) {
        let (call, answer) = line.split_once(" = ").unwrap();
        let (call, answer): (Call, Answer) = (call.parse().unwrap(), answer.parse().unwrap());
        let words = client.call(call.function as u16, &call.arguments).unwrap();
        assert_eq!((words[0] as u32).cast_signed(), answer.status, "{call}");
        assert_eq!(words[1..], answer.results[..], "{call}");
    }
}

#[test]
fn each_thread_gets_its_own_answers() {
    let worker = Worker::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    std::thread::scope(|scope| {
        for thread in 0..100 {
            let client = &client;
            scope.spawn(move || {
                for i in 0..50 {
                    let words: Words = [thread, i].into_iter().collect();
                    client.send(ECHO, &words).unwrap();
                    assert_eq!(client.call(ECHO, &words), Ok(words));
                }
            });
        }
    });
    assert_eq!(client.sent().records, 10_000);
}

#[test]
fn a_call_whose_worker_is_killed_fails_and_so_do_all_after_it() {
    let mut worker = Worker::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    client.call(ECHO, &Words::new()).unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..80).map(|_| scope.spawn(|| client.call(HANG, &Words::new()))).collect();
        worker.child.kill().unwrap();
        waiting.into_iter().for_each(|call| assert_eq!(call.join().unwrap(), Err(Gone)));
    });
    assert_eq!(client.call(ECHO, &Words::new()), Err(Gone));
    assert_eq!(client.send(ECHO, &Words::new()), Err(Gone));
}

#[test]
fn sends_to_a_worker_that_is_killed_fail_when_the_ring_is_full() {
    let mut worker = Worker::start();
    let channel = worker.connect();
    let client = Client::new(&channel);
    worker.child.kill().unwrap();
    while client.send(ECHO, &Words::new()).is_ok() {}
    assert_eq!(client.call(ECHO, &Words::new()), Err(Gone));
}

#[test]
fn a_worker_whose_client_is_killed_ends() {
    let mut worker = Worker::start();
    let mut client = process("client", &worker.socket);
    until(&mut client, "connected");
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(worker.child.wait().unwrap().success());
}

#[test]
fn a_client_of_another_build_is_refused() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::io::Write::write_all(&mut &ours, &[0; 8]).unwrap();
    assert_eq!(Channel::accept(theirs).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    drop(ours);
}
