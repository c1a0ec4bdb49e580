//! What a real `vgpu-worker` says to whoever asks, as `vgpu status` does: of clients that live, have ended, and lie.
#![cfg(not(any(loom, feature = "blind")))]

mod common;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Program, SOCKET, connect, session};
use serde_json::{Value, json};
use vgpu_remoting::counters::{Counter, NAMES, put_unserved};
use vgpu_remoting::server::MAX_CLIENTS;
use vgpu_remoting::session::Mode;
use vgpu_remoting::status::HELLO;
use vgpu_remoting::sync::Ordering;

/// All that it says, once it has ended.
fn line(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&HELLO).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

fn status(socket: &Path) -> Value {
    let line = line(socket);
    assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line:?}");
    serde_json::from_str(&line).unwrap()
}

/// Until the worker has seen that a client has ended.
fn when_live(socket: &Path, live: u64) -> Value {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < end, "never {live} live");
        let status = status(socket);
        if status["processes"]["live"] == live {
            return status;
        }
        std::thread::yield_now();
    }
}

#[test]
fn of_no_client_there_is_nothing_to_say() {
    let program = Program::start(1 << 20);
    let none = json!({
        "backend": "cpu",
        "memory": { "limit": 1 << 20, "used": 0 },
        "processes": { "live": 0, "ever": 0 },
        "counters": {
            "calls": 0, "records": 0, "wakeups": 0, "predicted": 0, "known": 0, "new": 0, "bytes": 0
        },
        "unserved": { "functions": {}, "others": 0 },
    });
    assert_eq!(status(&program.socket), none);
}

/// A client, a test below in a process of its own, which does what it does and stays until its input ends.
struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Process {
    fn start(test: &str, socket: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(SOCKET, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// What it has said when it has done it.
    fn done(&mut self) -> Value {
        let mut lines = (&mut self.said).lines().map_while(Result::ok);
        let line = lines.find_map(|line| line.strip_prefix("done ").map(str::to_owned));
        serde_json::from_str(&line.expect("it ended without a word")).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stay(done: Value) {
    println!("\ndone {done}");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Not a test: a client that does one thing of each sort.
#[test]
fn client_that_counts() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let channel = connect(socket.as_ref());
    let session = session(Mode::Reuse, &channel);
    let thread = session.enter();
    session.reuse().counters().count(thread.counts(), Counter::Calls);
    let address = session.allocate(1000).unwrap();
    session.copy_in(address, &[1; 1000]).unwrap();
    session.copy_out(&mut [0; 24], address).unwrap();
    session.synchronise().unwrap();
    put_unserved(channel.counters(), 0, "cudnnCTCLoss", 3, 0);
    stay(session.client().sent().wakes.into());
}

#[test]
fn what_clients_did_is_known_while_they_live_and_after() {
    let program = Program::start(1 << 20);
    let mut wakes = 0;
    for ever in 1..=2 {
        let mut process = Process::start("client_that_counts", &program.socket);
        wakes += process.done().as_u64().unwrap();
        let of = |live: u64| {
            json!({
                "backend": "cpu",
                "memory": { "limit": 1 << 20, "used": 1024 * live },
                "processes": { "live": live, "ever": ever },
                "counters": {
                    "calls": ever, "records": 4 * ever, "wakeups": wakes, "predicted": 0, "known": 0, "new": 0,
                    "bytes": 1024 * ever
                },
                "unserved": { "functions": { "cudnnCTCLoss": 3 * ever }, "others": 0 },
            })
        };
        assert_eq!(status(&program.socket), of(1));
        drop(process);
        assert_eq!(when_live(&program.socket, 0), of(0));
    }
}

/// Not a test: a client that has all numbers as large as can be, and as many names as there is room for, of nonsense.
#[test]
fn client_that_lies() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let channel = connect(socket.as_ref());
    let all = channel.counters();
    all.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    let number = std::process::id();
    for index in 0..NAMES / 2 {
        let name = format!("f{number}_{index:_<63}");
        put_unserved(channel.counters(), index, &name, u64::MAX, u64::MAX);
        put_unserved(channel.counters(), NAMES / 2 + index, "\"}}\n\u{1b}[31m", u64::MAX, u64::MAX);
    }
    stay(Value::Null);
}

#[test]
fn a_client_that_lies_is_believed_of_itself_alone_and_in_so_many_words() {
    let program = Program::start(1 << 20);
    let mut liars: Vec<Process> =
        (0..4).map(|_| Process::start("client_that_lies", &program.socket)).collect();
    liars.iter_mut().for_each(|liar| drop(liar.done()));
    let of = |live: u64| {
        let line = line(&program.socket);
        assert!(line.len() < 4096 && line.bytes().all(|byte| byte == b'\n' || (b' '..127).contains(&byte)));
        let said: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(said["counters"]["calls"], u64::MAX);
        assert_eq!(said["unserved"]["functions"].as_object().unwrap().len(), NAMES);
        said["processes"] == json!({ "live": live, "ever": 4 })
    };
    assert!(of(4));
    drop(liars);
    while !of(0) {
        std::thread::yield_now();
    }
}

/// As many as there can be clients say nothing; and one who asks does not take the answer.
#[test]
fn peers_that_are_silent_hold_nobody_up() {
    let program = Program::start(1 << 20);
    let silent: Vec<UnixStream> =
        (0..MAX_CLIENTS).map(|_| UnixStream::connect(&program.socket).unwrap()).collect();
    let mut deaf = UnixStream::connect(&program.socket).unwrap();
    deaf.write_all(&HELLO).unwrap();
    assert_eq!(status(&program.socket)["processes"], json!({ "live": 0, "ever": 0 }));
    drop((silent, deaf));
}

/// Not a test: a client that takes most of the memory, and leaves it where it is.
#[test]
fn client_that_leaves_memory() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let channel = connect(socket.as_ref());
    let session = session(Mode::Reuse, &channel);
    // As often as it can be asked in a small part of the time after which a worker looks by itself.
    assert!((0..1000).any(|_| session.allocate(3 << 18).is_ok()));
    std::process::exit(0);
}

/// Programs that follow one another have all the memory each: the worker sees at once that one has ended.
#[test]
fn memory_of_a_program_that_has_ended_is_the_next_ones() {
    let program = Program::start(1 << 20);
    for _ in 0..10 {
        let mut client = Command::new(std::env::current_exe().unwrap());
        client.args(["--exact", "client_that_leaves_memory", "--nocapture"]).env(SOCKET, &program.socket);
        assert!(client.status().unwrap().success());
    }
}

/// A process that executes another program is there yet, and its connection is not. What it had is given back, though
/// somebody has the memory open that it shared.
#[test]
fn a_client_ends_with_its_connection() {
    let program = Program::start(1 << 20);
    let channel = connect(&program.socket);
    let session = session(Mode::Reuse, &channel);
    let address = session.allocate(3 << 18).unwrap();
    session.copy_in(address, &vec![1; 3 << 18]).unwrap();
    let shared = channel.host().unwrap().0.file().try_clone().unwrap();
    assert!(shared.metadata().unwrap().blocks() > 0);
    drop(session);
    drop(channel);
    assert_eq!(when_live(&program.socket, 0)["memory"]["used"], 0);
    assert_eq!(shared.metadata().unwrap().blocks(), 0);
}
