//! The program `vgpu-worker` in tests, and sessions with it.
#![allow(dead_code, reason = "each test has a part of it")]

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tempfile::TempDir;
use vgpu_remoting::channel::{Channel, Client};
use vgpu_remoting::reuse::Reuse;
use vgpu_remoting::session::{Mode, Session};

/// What tells a test in another process where the worker is.
pub const SOCKET: &str = "VGPU_TEST_SOCKET";

/// The program, killed when dropped.
pub struct Program {
    pub child: Child,
    pub socket: PathBuf,
    _directory: TempDir,
}

impl Program {
    /// With so much device memory.
    pub fn command(memory: u64) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vgpu-worker"));
        command.args(["--memory", &memory.to_string()]);
        command
    }

    pub fn start(memory: u64) -> Self {
        Self::listening(Self::command(memory))
    }

    /// Until this process has ended. All that it needs it has from whoever starts it.
    pub fn watching(memory: u64, watched: &Child) -> Self {
        let watch = pidfd_open(Pid::from_child(watched), PidfdFlags::empty()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        // The shell has them as its standard input and output, and hands them on with numbers that the program takes.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" --watch-fd 8 --socket-fd 9 8<&0 9<&1 </dev/null >/dev/null"]);
        let program = Self::command(memory);
        command.arg(program.get_program()).args(program.get_args());
        command.stdin(Stdio::from(watch)).stdout(Stdio::from(OwnedFd::from(listener)));
        Self { child: command.spawn().unwrap(), socket, _directory: directory }
    }

    /// What the command starts, at a socket of its own.
    pub fn listening(mut command: Command) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let child = command.arg("--socket").arg(&socket).spawn().unwrap();
        let mut program = Self { child, socket, _directory: directory };
        while UnixStream::connect(&program.socket).is_err() {
            assert_eq!(program.child.try_wait().unwrap(), None, "it ended");
            std::thread::yield_now();
        }
        program
    }

    /// What runs already, with a socket in a folder of its own.
    pub fn with(child: Child, socket: PathBuf, directory: TempDir) -> Self {
        Self { child, socket, _directory: directory }
    }

    pub fn signal(&self, name: &str) {
        let mut kill = Command::new("sh");
        kill.args(["-c", "kill -$0 $1", name, &self.child.id().to_string()]);
        assert!(kill.status().unwrap().success());
    }

    /// How many threads it has that serve, and one.
    pub fn threads(&self) -> usize {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let serves = |thread: &std::fs::DirEntry| {
            std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name == "client\n")
        };
        1 + threads.filter(serves).count()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All clients have the same addresses: one at a time in a process.
pub fn connect(socket: &Path) -> Channel {
    Channel::connect(UnixStream::connect(socket).unwrap()).unwrap()
}

/// The calls of this process.
pub fn session(mode: Mode, channel: &Channel) -> Session<'_> {
    Session::new(mode, Reuse::new(1024, channel.contents(), channel.counters()), Client::new(channel))
}

/// Numbers that are as good as random, and the same each time.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // A Weyl sequence, whose bits are mixed (Steele and others, "SplitMix", 2014).
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
