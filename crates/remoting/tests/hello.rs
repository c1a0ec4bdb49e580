//! The first words between a client and its worker, where one of them does not answer, is of another build, or is in
//! another pid namespace.
#![cfg(not(any(loom, feature = "blind")))]

mod common;

use std::io::{self, BufRead, BufReader, ErrorKind, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Program, SOCKET, connect, session};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType, bind,
    listen, sendmsg, socket,
};
use vgpu_remoting::api::FINGERPRINT;
use vgpu_remoting::channel::{Channel, reach};
use vgpu_remoting::session::Mode;
use vgpu_remoting::sys::Shared;

/// Until the time for it is up, which is seconds.
#[test]
fn a_worker_that_does_not_answer_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let [silent, full] = ["silent", "full"].map(|name| directory.path().join(name));
    let _silent = UnixListener::bind(&silent).unwrap();
    // Where there is room for one to wait, and one waits.
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&full).unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let _waits = UnixStream::connect(&full).unwrap();
    std::thread::scope(|scope| {
        for path in [&silent, &full] {
            scope.spawn(|| {
                let error = reach(path).and_then(Channel::connect).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                assert_eq!(error.to_string(), "it does not answer within 10 seconds");
            });
        }
    });
}

#[test]
fn a_worker_that_is_not_there_is_said_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    assert_eq!(reach(&path).unwrap_err().kind(), ErrorKind::NotFound);
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(reach(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// What a worker says of a client that says so, and hands over memory of so many words, or none.
fn accepted(hello: &[u8], words: Option<usize>) -> io::Result<Channel> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let memory = words.map(|words| Shared::new(words, 0).unwrap());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [memory.as_ref().map_or(ours.as_fd(), AsFd::as_fd)];
    if memory.is_some() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    sendmsg(&ours, &[IoSlice::new(hello)], &mut ancillary, SendFlags::empty()).unwrap();
    Channel::accept(theirs, 0..0)
}

#[test]
fn a_client_of_another_build_or_without_the_memory_is_refused() {
    let (memory, hello) = (Some(Channel::WORDS), FINGERPRINT.to_le_bytes());
    accepted(&hello, memory).unwrap();
    let wrong = [
        ((FINGERPRINT ^ 1).to_le_bytes(), memory),
        (hello, memory.map(|words| words - 1)),
        (hello, None),
        (vgpu_remoting::status::HELLO, memory),
        (vgpu_remoting::status::HELLO, None),
    ];
    for (hello, memory) in wrong {
        assert_eq!(
            accepted(&hello, memory).unwrap_err().kind(),
            ErrorKind::InvalidData,
            "{hello:?} {memory:?}"
        );
    }
    assert_eq!(accepted(&hello[..7], memory).unwrap_err().kind(), ErrorKind::InvalidData);
}

/// Not a test: a client that has memory until its input ends.
#[test]
fn client_process() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let channel = connect(socket.as_ref());
    session(Mode::Reuse, &channel).allocate(1 << 20).unwrap();
    println!("\nallocated as {}", std::process::id());
    let _ = io::stdin().read(&mut [0]);
}

/// A command in a pid namespace of its own, which ends with it.
fn in_namespace(of: Command) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child"]).arg(of.get_program()).args(of.get_args());
    for (name, value) in of.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        unshare.env(name, value);
    }
    unshare
}

fn client(program: &Program) -> Command {
    let mut client = Command::new(std::env::current_exe().unwrap());
    client.args(["--exact", "client_process", "--nocapture"]).env(SOCKET, &program.socket);
    client
}

fn started(mut client: Command) -> (Child, String) {
    let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.starts_with("allocated"));
    (child, said.expect("it ended without a word"))
}

/// As a container's: the worker knows it by another number than it has there, and sees it die.
#[test]
#[ignore = "needs root: it makes a pid namespace"]
fn a_client_in_a_pid_namespace_is_seen_to_live_and_to_die() {
    let program = Program::start(1 << 20);
    let (mut first, said) = started(in_namespace(client(&program)));
    assert_eq!(said, "allocated as 1");
    first.kill().unwrap();
    first.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while program.threads() > 1 {
        assert!(Instant::now() < end, "not seen");
        std::thread::yield_now();
    }
    let (mut second, _) = started(in_namespace(client(&program)));
    second.kill().unwrap();
    second.wait().unwrap();
}

/// Whose death could not be seen.
#[test]
#[ignore = "needs root: it makes a pid namespace"]
fn a_client_outside_the_workers_pid_namespace_is_refused() {
    let mut worker = in_namespace(Program::command(1 << 20));
    worker.stderr(Stdio::piped());
    let mut program = Program::listening(worker);
    let error = reach(&program.socket).and_then(Channel::connect).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
    let mut said = String::new();
    BufReader::new(program.child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(
        said,
        "vgpu-worker: a client is not served any more: a process that is not to be seen from here\n"
    );
}
