//! The program `vgpu-worker`: serves the processes of one container, each on a thread of its own, until it is told to end
//! or the process that it watches has ended. Touches its socket, and what clients hand over there.
//!
//! Of what it was given, the process has nothing anywhere but in its memory, and the socket's path, if it made it.
//! So it ends by ending.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use crate::channel::{Channel, Hello, hello, serve};
use crate::counters::Totals;
use crate::cpu::Cpu;
use crate::host::Host;
use crate::memory::{Budget, Memory};
use crate::status::Status;
use crate::sys;
use crate::wire::Malformed;
use crate::worker::Worker;

/// How to call it.
pub const USAGE: &str = "vgpu-worker --memory BYTES (--socket PATH | --socket-fd N) [--watch-fd N]";

/// How many client processes are served at a time: their threads and shared memory are the worker's.
pub const MAX_CLIENTS: usize = 128;

/// How many connections there are at a time, with those that have not yet said what they are, or only ask.
const MAX_CONNECTIONS: usize = MAX_CLIENTS + 16;

/// How long one who asks may take to take the answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Where clients have device memory, each its own: nothing of Linux, of sanitizers or of the dynamic linker is there.
const DEVICE: u64 = 0x2000_0000_0000;

/// So that addresses are what a user process can have, and twice as many of them.
const MAX_MEMORY: u64 = 1 << 43;

/// How many lines it says about clients, so that these cannot fill a disk.
const LINES: u32 = 16;

/// What it is told.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    /// How much device memory clients may have together, in bytes.
    pub memory: u64,
    /// Where clients connect.
    pub socket: Socket,
    /// A pidfd: when that process ends, so does the worker.
    pub watch: Option<RawFd>,
}

/// Where clients connect.
#[derive(Debug, PartialEq, Eq)]
pub enum Socket {
    /// At this path, which the worker makes and takes away.
    Path(PathBuf),
    /// At a listening socket with this number, which it was started with.
    Inherited(RawFd),
}

impl Arguments {
    /// Reads them.
    ///
    /// # Errors
    /// What is wrong with them, in a line.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let (mut memory, mut socket, mut watch) = (None, None, None);
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name:?} has no value"))?;
            let twice = match name.to_str() {
                Some("--memory") => memory.replace(number(&name, &value)?).is_some(),
                Some("--socket") => socket.replace(Socket::Path(value.into())).is_some(),
                Some("--socket-fd") => socket.replace(Socket::Inherited(number(&name, &value)?)).is_some(),
                Some("--watch-fd") => watch.replace(number(&name, &value)?).is_some(),
                _ => return Err(format!("{name:?} is no argument")),
            };
            if twice {
                return Err(format!("{name:?} comes after one of its kind"));
            }
        }
        let memory = memory.filter(|memory| (1..=MAX_MEMORY).contains(memory));
        let memory = memory.ok_or_else(|| format!("--memory is to be 1 to {MAX_MEMORY}"))?;
        Ok(Self { memory, socket: socket.ok_or("--socket or --socket-fd is missing")?, watch })
    }
}

fn number<T: std::str::FromStr>(name: &OsString, value: &OsString) -> Result<T, String> {
    value
        .to_str()
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("{name:?} is no number: {value:?}"))
}

/// Serves until it is told to end, by SIGTERM or SIGINT, or by the end of the process that it watches.
///
/// # Errors
/// Of the system, before any client is served.
pub fn run(arguments: &Arguments) -> io::Result<()> {
    let told = told()?;
    let watch = arguments.watch.map(sys::inherited).transpose()?;
    match &arguments.socket {
        Socket::Inherited(number) => {
            serve_all(&UnixListener::from(sys::inherited(*number)?), &told, watch, arguments.memory)
        }
        Socket::Path(path) => {
            let listener = UnixListener::bind(path)?;
            let served = serve_all(&listener, &told, watch, arguments.memory);
            std::fs::remove_file(path)?;
            served
        }
    }
}

/// Readable once a signal has told the process to end.
fn told() -> io::Result<UnixStream> {
    let (told, tell) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, tell.try_clone()?)?;
    }
    Ok(told)
}

fn serve_all(
    listener: &UnixListener,
    told: &UnixStream,
    watch: Option<OwnedFd>,
    memory: u64,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let server = Arc::new(Server::new(memory));
    let ends = [Some(told.as_fd()), watch.as_ref().map(AsFd::as_fd)];
    loop {
        let fds = ends.into_iter().flatten().chain([listener.as_fd()]);
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().rev().map(|fd| !fd.revents().is_empty());
        let connects = ready.next() == Some(true);
        if ready.any(|ended| ended) {
            return Ok(());
        }
        if connects {
            // One that is gone again is no client.
            let _ = listener.accept().and_then(|(socket, _)| server.start(socket));
        }
    }
}

/// Twice as many as there is memory, so that there is room for it in one piece more often than not.
fn addresses(memory: u64) -> Range<u64> {
    const WHOLE: u64 = 2 << 20;
    DEVICE..DEVICE + (2 * memory).next_multiple_of(WHOLE)
}

/// What clients share.
#[derive(Debug)]
struct Server {
    budget: Arc<Budget>,
    /// Of host-allocated memory, which is as much as there is of the device.
    host: Arc<Budget>,
    device: Range<u64>,
    lines: AtomicU32,
    clients: Mutex<Clients>,
}

#[derive(Debug, Default)]
struct Clients {
    live: Vec<Arc<Channel>>,
    ever: u64,
    /// What those have counted that are not live any more.
    ended: Totals,
}

/// A client while it is served.
struct Served<'a> {
    server: &'a Server,
    channel: Arc<Channel>,
}

impl Server {
    fn new(memory: u64) -> Self {
        Self {
            budget: Budget::new(memory),
            host: Budget::new(memory),
            device: addresses(memory),
            lines: LINES.into(),
            clients: Mutex::default(),
        }
    }

    /// Serves a peer on a thread of its own. One too many is refused, by the end of its socket.
    fn start(self: &Arc<Self>, socket: UnixStream) -> io::Result<()> {
        // Each thread has one; this thread alone makes them.
        if Arc::strong_count(self) > MAX_CONNECTIONS {
            self.say("one connection too many is refused");
            return Ok(());
        }
        socket.set_nonblocking(false)?;
        let server = Arc::clone(self);
        std::thread::Builder::new().name("client".into()).spawn(move || {
            if let Err(error) = server.meet(socket) {
                server.say(&format!("a client is not served any more: {error}"));
            }
        })?;
        Ok(())
    }

    fn meet(&self, socket: UnixStream) -> io::Result<()> {
        match hello(&socket) {
            Ok(Hello::Client(memory)) => self.serve(Channel::with(socket, memory, self.device.clone())?),
            Ok(Hello::Status) => self.answer(&socket),
            Ok(Hello::End) => Ok(kill_process(getpid(), Signal::TERM)?),
            Err(gone) if gone.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn serve(&self, channel: Channel) -> io::Result<()> {
        let served = self.admit(channel)?;
        let channel = &served.channel;
        channel.welcome()?;
        let cpu = Cpu::new(Memory::new(channel.device(), &self.budget)?);
        let host = Host::new(channel, &self.host)?;
        let mut worker = Worker::new(channel.contents(), cpu).staging(channel.staging()).host(host);
        serve(channel, &mut worker)
            .map_err(|Malformed| io::Error::new(io::ErrorKind::InvalidData, "it does not keep to the rules"))
    }

    fn admit(&self, channel: Channel) -> io::Result<Served<'_>> {
        let channel = Arc::new(channel);
        let mut clients = self.clients();
        if clients.live.len() == MAX_CLIENTS {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "it is one too many"));
        }
        clients.live.push(Arc::clone(&channel));
        clients.ever += 1;
        Ok(Served { server: self, channel })
    }

    /// Tells one who asks how all are.
    fn answer(&self, mut socket: &UnixStream) -> io::Result<()> {
        socket.set_write_timeout(Some(ANSWER))?;
        let line = format!("{}\n", self.status());
        // Who does not take it has gone.
        let _ = io::Write::write_all(&mut socket, line.as_bytes());
        Ok(())
    }

    fn status(&self) -> Status {
        let (free, limit) = self.budget.info();
        let clients = self.clients();
        let mut totals = clients.ended.clone();
        clients.live.iter().for_each(|channel| totals += Totals::read(channel.counters()));
        Status { limit, used: limit - free, live: clients.live.len(), ever: clients.ever, totals }
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        // Whatever is done under it is done to its end.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, line: &str) {
        if self.lines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            eprintln!("vgpu-worker: {line}");
        }
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let mut clients = self.server.clients();
        clients.live.retain(|channel| !Arc::ptr_eq(channel, &self.channel));
        clients.ended += Totals::read(self.channel.counters());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn arguments_are_read() {
        let arguments = parse("--memory 1024 --socket /run/s --watch-fd 5").unwrap();
        let socket = Socket::Path("/run/s".into());
        assert_eq!(arguments, Arguments { memory: 1024, socket, watch: Some(5) });
        let arguments = parse("--socket-fd 3 --memory 1").unwrap();
        assert_eq!(arguments, Arguments { memory: 1, socket: Socket::Inherited(3), watch: None });
    }

    #[test]
    fn wrong_arguments_are_named() {
        let wrong = [
            ("--memory 1", "--socket or --socket-fd is missing"),
            ("--socket s", "--memory is to be 1 to 8796093022208"),
            ("--memory 0 --socket s", "--memory is to be 1 to 8796093022208"),
            ("--memory 8796093022209 --socket s", "--memory is to be 1 to 8796093022208"),
            ("--memory 1g --socket s", "\"--memory\" is no number: \"1g\""),
            ("--memory 1 --socket", "\"--socket\" has no value"),
            ("--memory 1 --socket s --socket-fd 3", "\"--socket-fd\" comes after one of its kind"),
            ("--gpu 1", "\"--gpu\" is no argument"),
        ];
        for (line, message) in wrong {
            assert_eq!(parse(line), Err(message.into()), "{line}");
        }
    }
}
