//! The program `vgpu-worker` with client processes: side by side, hostile, and killed at any moment, as it is itself.
#![cfg(not(any(loom, feature = "blind")))]

mod common;

use std::io::{BufRead, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Program, Random, SOCKET, connect, session};
use vgpu_remoting::channel::{Channel, Client};
use vgpu_remoting::cudnn::Status;
use vgpu_remoting::memory::Rows;
use vgpu_remoting::session::{Mode, Session};
use vgpu_remoting::sync::Ordering;
use vgpu_remoting::wire::{MAX_WORDS, Words};
use vgpu_remoting::worker::{ALLOCATE, COPY_IN, FORWARD, SYNCHRONISE};

const MIB: u64 = 1 << 20;

/// A client of the worker, a test below in a process of its own, which is told what to do in lines. Killed when dropped.
struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Process {
    fn start(test: &str, socket: &Path) -> Self {
        Self::started(Command::new(std::env::current_exe().unwrap()), test, socket)
    }

    fn started(mut command: Command, test: &str, socket: &Path) -> Self {
        let mut child = command
            .args(["--exact", test, "--nocapture"])
            .env(SOCKET, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// What comes of it, of a [`client_that_allocates`].
    fn allocate(&mut self, bytes: u64) -> String {
        self.tell(&bytes.to_string());
        self.hear("allocated ")
    }

    /// Likewise, of host-allocated memory.
    fn allocate_host(&mut self, bytes: u64) -> String {
        self.tell(&format!("host {bytes}"));
        self.hear("allocated ")
    }

    /// The rest of the next line that begins so.
    fn hear(&mut self, begin: &str) -> String {
        let mut lines = (&mut self.said).lines().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix(begin).map(str::to_owned)).expect("it ended without a word")
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What it ends with, which it does soon, or the test fails.
    fn ends(&mut self) -> Option<i32> {
        let mut status = None;
        soon("at its end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: a client that allocates as much as each line says, and writes and reads it back.
#[test]
fn client_that_allocates() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let channel = connect(socket.as_ref());
    let session = session(Mode::Reuse, &channel);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let allocated = match line.strip_prefix("host ") {
            Some(bytes) => allocate_host(&session, bytes.parse().unwrap()),
            None => allocate(&session, line.parse().unwrap()),
        };
        println!(
            "\nallocated {}",
            allocated.map_or_else(|status| format!("{status:?}"), |same| same.to_string())
        );
    }
}

/// Are the last bytes as they were written?
fn allocate(session: &Session<'_>, bytes: u64) -> Result<bool, Status> {
    let address = session.allocate(bytes)?;
    let number = std::process::id().to_le_bytes();
    session.copy_in(address + bytes - 4, &number)?;
    let mut back = [0; 4];
    session.copy_out(&mut back, address + bytes - 4)?;
    Ok(back == number)
}

/// Does the worker get at it?
fn allocate_host(session: &Session<'_>, bytes: u64) -> Result<bool, Status> {
    let address = session.allocate_host(bytes, 0)?;
    let device = session.allocate(512)?;
    let [row, last] = [device, address + bytes - 4].map(|address| Rows { address, pitch: 0 });
    let last = session.shared(last, 4, 1).ok_or(Status::InternalError)?;
    session.copy_to_host(last, row, 4, 1, true)?;
    session.free(device)?;
    Ok(true)
}

/// Not a test: a client that copies until its worker is gone, which it is to be told.
#[test]
fn client_that_copies() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let channel = connect(socket.as_ref());
    let session = session(Mode::Reuse, &channel);
    let address = session.allocate(MIB).unwrap();
    let host = session.allocate_host(MIB, 0).unwrap();
    println!("\nbusy");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let session = &session;
            scope.spawn(move || {
                let bytes = vec![number; 1 << 16];
                while session.copy_in(address + (u64::from(number) << 16), &bytes).is_ok() {}
                assert_eq!(session.synchronise(), Err(Status::ExecutionFailed));
            });
        }
        scope.spawn(|| {
            let [device, host] = [address + (4 << 16), host].map(|address| Rows { address, pitch: 0 });
            let host = session.shared(host, MIB / 2, 1).unwrap();
            while session.copy_from_host(device, host, MIB / 2, 1, false).is_ok()
                && session.copy_to_host(host, device, MIB / 2, 1, true).is_ok()
            {}
            assert_eq!(session.synchronise(), Err(Status::ExecutionFailed));
        });
    });
    println!("\ntold");
}

/// Not a test: a client that sends minutes of work, and waits for it.
#[test]
fn client_that_fills() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let channel = connect(socket.as_ref());
    let session = session(Mode::Reuse, &channel);
    let address = session.allocate(8 * MIB).unwrap();
    for _ in 0..5000 {
        session.fill(Rows { address, pitch: 0 }, 8 * MIB, 1, 7, 1).unwrap();
    }
    println!("\nbusy");
    session.synchronise().unwrap();
}

/// Until it is so, which is to be within a second; a machine that does other things too has half a minute.
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "not {what}");
        std::thread::yield_now();
    }
}

#[test]
fn processes_share_what_memory_there_is_and_one_that_is_killed_has_none() {
    let program = Program::start(8 * MIB);
    let [mut one, mut other] = [0, 1].map(|_| Process::start("client_that_allocates", &program.socket));
    assert_eq!(one.allocate(6 * MIB), "true");
    assert_eq!(other.allocate(3 * MIB), "AllocFailed");
    assert_eq!(other.allocate(2 * MIB), "true");
    one.kill();
    soon("free", || other.allocate(6 * MIB) == "true");
    assert_eq!(other.allocate(1), "AllocFailed");
}

#[test]
fn clients_that_are_killed_at_any_moment_leave_nothing() {
    let program = Program::start(64 * MIB);
    let mut random = Random(7);
    for _ in 0..12 {
        let mut processes = [0, 1].map(|_| Process::start("client_that_copies", &program.socket));
        for process in &mut processes {
            if random.below(4) > 0 {
                process.hear("busy");
            }
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            process.kill();
        }
    }
    let mut last = Process::start("client_that_allocates", &program.socket);
    soon("free", || last.allocate_host(64 * MIB) == "true");
    soon("free", || last.allocate(64 * MIB) == "true");
    soon("as many threads as clients", || program.threads() == 2);
}

/// Else it would be killed where it writes too far.
#[test]
fn who_may_not_write_large_files_has_as_much_host_allocated_memory_as_it_may() {
    // The shell counts blocks of 512 bytes.
    let most = 8 * Channel::WORDS as u64 + 4 * MIB;
    let limited = |program: &Command| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -f {}; exec \"$0\" \"$@\"", most / 512));
        command.arg(program.get_program()).args(program.get_args());
        command
    };
    let (worker, client) = (Program::command(16 * MIB), || Command::new(std::env::current_exe().unwrap()));
    for (command, limited_client, all) in [
        (limited(&worker), client(), "AllocFailed"),
        (Program::command(16 * MIB), limited(&client()), "AllocFailed"),
        (worker, client(), "true"),
    ] {
        let program = Program::listening(command);
        let mut client = Process::started(limited_client, "client_that_allocates", &program.socket);
        assert_eq!(client.allocate_host(8 * MIB), all);
        assert_eq!(client.allocate_host(2 * MIB), "true");
    }
}

#[test]
fn what_a_killed_client_has_sent_is_not_all_done() {
    let program = Program::start(8 * MIB);
    let mut client = Process::start("client_that_fills", &program.socket);
    client.hear("busy");
    client.kill();
    let mut other = Process::start("client_that_allocates", &program.socket);
    soon("free", || other.allocate(8 * MIB) == "true");
}

#[test]
fn clients_of_a_worker_that_is_killed_at_any_moment_are_told() {
    let mut random = Random(11);
    for _ in 0..6 {
        let mut program = Program::start(64 * MIB);
        let mut processes = [0, 1].map(|_| Process::start("client_that_copies", &program.socket));
        processes.iter_mut().for_each(|process| drop(process.hear("busy")));
        std::thread::sleep(Duration::from_micros(random.below(5000)));
        program.child.kill().unwrap();
        for process in &mut processes {
            assert_eq!(process.ends(), Some(0));
            process.hear("told");
        }
    }
}

/// While it computes for one, and others, at any moment, begin or have just begun.
#[test]
fn clients_that_compute_or_connect_when_their_worker_is_killed_end() {
    let mut random = Random(13);
    for _ in 0..6 {
        let mut program = Program::start(64 * MIB);
        let mut computing = Process::start("client_that_fills", &program.socket);
        computing.hear("busy");
        let mut connecting = [0, 1].map(|_| Process::start("client_that_copies", &program.socket));
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        program.child.kill().unwrap();
        // It is told, and asked for success.
        assert_eq!(computing.ends(), Some(101));
        for process in &mut connecting {
            // There was nobody to connect to, or all went as it should.
            assert!([Some(0), Some(101)].contains(&process.ends()));
        }
    }
}

#[test]
fn it_ends_when_it_is_told_and_leaves_no_socket() {
    let mut program = Program::start(MIB);
    let mut client = Process::start("client_that_copies", &program.socket);
    client.hear("busy");
    program.signal("TERM");
    assert!(program.child.wait().unwrap().success());
    assert!(!program.socket.exists());
    client.hear("told");
}

#[test]
fn it_ends_with_the_process_that_it_watches() {
    let mut watched = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut program = Program::watching(MIB, &watched);
    let mut client = Process::start("client_that_copies", &program.socket);
    client.hear("busy");
    watched.kill().unwrap();
    watched.wait().unwrap();
    assert!(program.child.wait().unwrap().success());
    assert!(program.socket.exists(), "it is not the program's");
    client.hear("told");
}

#[test]
fn what_is_there_already_is_not_taken_away() {
    let program = Program::start(MIB);
    let second = Program::command(MIB).arg("--socket").arg(&program.socket).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("Address already in use"));
    UnixStream::connect(&program.socket).unwrap();
}

#[test]
fn arguments_that_are_wrong_are_said_in_a_line() {
    let output = Program::command(MIB).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("vgpu-worker: --socket or --socket-fd is missing; usage: ")
            && said.lines().count() == 1
    );
}

/// Whatever one sends, the worker is there for the others.
#[test]
fn a_hostile_client_harms_itself_alone() {
    let program = Program::start(64 * MIB);
    let mut honest = Process::start("client_that_allocates", &program.socket);
    let mut hostile = Process::start("client_that_is_hostile", &program.socket);
    for round in 0..60 {
        hostile.tell(&round.to_string());
        hostile.hear("done");
        soon("served", || honest.allocate(512) == "true");
    }
    hostile.kill();
    soon("free", || honest.allocate(63 * MIB) == "true");
    soon("as many threads as clients", || program.threads() == 2);
}

/// Not a test: a client that sends what none should, another seed for each line.
#[test]
fn client_that_is_hostile() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let seed = line.parse::<u64>().unwrap();
        let way =
            [says_nonsense, changes_all_that_is_shared, sends_anything, sends_anything][seed as usize % 4];
        way(socket.as_ref(), &mut Random(seed));
        println!("\ndone");
    }
}

fn says_nonsense(socket: &Path, random: &mut Random) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let bytes: Vec<u8> = (0..random.below(64)).map(|_| random.below(256) as u8).collect();
    // It may have been refused already.
    let _ = stream.write_all(&bytes);
    let _ = stream.shutdown(Shutdown::Both);
}

fn sends_anything(socket: &Path, random: &mut Random) {
    let channel = connect(socket);
    let client = Client::new(&channel);
    if random.below(2) == 0 {
        let _ = client.send(FORWARD, &[8 + random.below(3)].into_iter().collect());
    }
    let base = channel.device().start;
    for _ in 0..300 {
        let function = match random.below(3) {
            0 => random.below(100) as u16,
            1 => (SYNCHRONISE as u64 - random.below(20)) as u16,
            _ => 0x1000 + random.below(20) as u16,
        };
        let words: Words = (0..random.below(16).min(MAX_WORDS as u64))
            .map(|_| match random.below(4) {
                0 => random.next(),
                1 => base + random.below(1 << 22),
                2 => 0_u64.wrapping_sub(random.below(3)),
                _ => random.below(40),
            })
            .collect();
        if client.send(function, &words).is_err() {
            break;
        }
    }
    let _ = client.call(SYNCHRONISE, &Words::new());
}

/// The ring's positions, records, answers, contents and staging memory, all while the worker reads and writes them.
fn changes_all_that_is_shared(socket: &Path, random: &mut Random) {
    let channel = connect(socket);
    let client = Client::new(&channel);
    let address = client.call(ALLOCATE, &[MIB].into_iter().collect()).unwrap()[1];
    let all = channel.shared();
    for _ in 0..200 {
        let _ = client.send(COPY_IN, &[address, 0, 4096, 1].into_iter().collect());
        for _ in 0..20 {
            // Half of them at the beginning, where the ring is.
            let end = if random.below(2) == 0 { 512 } else { all.len() as u64 };
            all[random.below(end) as usize].store(random.next() >> random.below(64), Ordering::Relaxed);
        }
    }
}
