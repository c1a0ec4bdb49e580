//! The program `vgpu-worker`: serves the processes of one container, each on a thread of its own, until it is told to end
//! or what it watches has ended. Touches its socket, and what clients hand over there; looks at no environment.
//!
//! Of what it was given, the process has nothing anywhere but in its memory, and the socket's path, if it made it.
//! So it ends by ending.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::channel::{Channel, Hello, hello, serve};
use crate::counters::Totals;
use crate::cpu::Cpu;
use crate::host::Host;
use crate::memory::{Budget, Memory};
use crate::status::Status;
use crate::watch::Watch;
use crate::wire::Malformed;
use crate::worker::Worker;
use crate::{confine, sys};

/// How to call it.
pub const USAGE: &str = "vgpu-worker --memory BYTES (--socket PATH | --socket-fd N) [--watch-cgroup-fd N] [--watch-fd N] \
     [--user UID] [--name TEXT]";

/// How many client processes are served at a time: their threads and shared memory are the worker's.
pub const MAX_CLIENTS: usize = 128;

/// How many connections there are at a time, with those that have not yet said what they are, or only ask.
const MAX_CONNECTIONS: usize = MAX_CLIENTS + 16;

/// How long it waits before it tries again to let somebody in.
const BREATH: Duration = Duration::from_millis(100);

/// How much stack a client's thread has: the environment is not asked.
const STACK: usize = 2 << 20;

/// The same of a thread that only waits.
const SMALL_STACK: usize = 64 << 10;

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
    /// A cgroup's folder: when there is no process in it and below, the worker ends.
    pub watch_cgroup: Option<RawFd>,
    /// A pidfd: when that process ends, so does the worker; but where it watches a cgroup, it only looks at that then.
    pub watch: Option<RawFd>,
    /// Who it becomes where it is started as root.
    pub user: Option<u32>,
    /// Whose it is: then its lines are as those in the hooks' log.
    pub name: Option<String>,
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
        let (mut memory, mut socket) = (None, None);
        let (mut watch_cgroup, mut watch, mut user, mut name_of) = (None, None, None, None);
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name:?} has no value"))?;
            let twice = match name.to_str() {
                Some("--memory") => memory.replace(number(&name, &value)?).is_some(),
                Some("--socket") => socket.replace(Socket::Path(value.into())).is_some(),
                Some("--socket-fd") => socket.replace(Socket::Inherited(number(&name, &value)?)).is_some(),
                Some("--watch-cgroup-fd") => watch_cgroup.replace(number(&name, &value)?).is_some(),
                Some("--name") => name_of.replace(text(&name, value)?).is_some(),
                Some("--user") => user.replace(number(&name, &value)?).is_some(),
                Some("--watch-fd") => watch.replace(number(&name, &value)?).is_some(),
                _ => return Err(format!("{name:?} is no argument")),
            };
            if twice {
                return Err(format!("{name:?} comes after one of its kind"));
            }
        }
        let memory = memory.filter(|memory| (1..=MAX_MEMORY).contains(memory));
        let memory = memory.ok_or_else(|| format!("--memory is to be 1 to {MAX_MEMORY}"))?;
        if matches!(user, Some(0 | u32::MAX)) {
            return Err("--user is to be 1 to 4294967294".into());
        }
        let socket = socket.ok_or("--socket or --socket-fd is missing")?;
        let arguments = Self { memory, socket, watch_cgroup, watch, user, name: name_of };
        let fds = arguments.fds();
        if (1..fds.len()).any(|i| fds[i..].contains(&fds[i - 1])) {
            return Err("a descriptor is one thing only".into());
        }
        Ok(arguments)
    }

    /// The descriptors that it was started with, by their numbers.
    fn fds(&self) -> Vec<RawFd> {
        let socket = match self.socket {
            Socket::Inherited(number) => Some(number),
            Socket::Path(_) => None,
        };
        [socket, self.watch_cgroup, self.watch].into_iter().flatten().collect()
    }
}

fn number<T: std::str::FromStr>(name: &OsString, value: &OsString) -> Result<T, String> {
    value
        .to_str()
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("{name:?} is no number: {value:?}"))
}

fn text(name: &OsString, value: OsString) -> Result<String, String> {
    let text = value.into_string().ok().filter(|text| !text.contains(char::is_control));
    text.ok_or_else(|| format!("{name:?} is no text in one line"))
}

/// Serves until it is told to end, by SIGTERM or SIGINT, or by the end of what it watches. With a socket that it was
/// started with it leaves all else behind that it was; where it makes one, as for tests, it stays where it is, and whose.
///
/// # Errors
/// Of the system, before any client is served.
pub fn run(arguments: &Arguments) -> io::Result<()> {
    let Arguments { memory, socket, watch_cgroup, watch, user, name } = arguments;
    let server = Arc::new(Server::new(*memory, name.as_deref()));
    let [process, cgroup] = [watch, watch_cgroup].map(|number| number.map(sys::inherited).transpose());
    let (process, cgroup) = (process?, cgroup?);
    match socket {
        Socket::Inherited(number) => {
            let listener = UnixListener::from(sys::inherited(*number)?);
            confine::detach(&arguments.fds())?;
            let mut watch = Watch::new(process, cgroup)?;
            confine::confine(Some(user.unwrap_or(confine::NOBODY)))?;
            serve_all(&server, listener, &mut watch)
        }
        Socket::Path(path) => {
            let mut watch = Watch::new(process, cgroup)?;
            let listener = UnixListener::bind(path)?;
            confine::confine(*user)?;
            let served = serve_all(&server, listener, &mut watch);
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

/// This thread waits for the end alone, and so for nothing that a client could hold up: not even for a socket to be
/// closed, in which descriptors may lie that take their time.
fn serve_all(server: &Arc<Server>, listener: UnixListener, watch: &mut Watch) -> io::Result<()> {
    let told = told()?;
    server.say_panics();
    let lets_in = Arc::clone(server);
    std::thread::Builder::new().name("door".into()).stack_size(STACK).spawn(move || {
        loop {
            lets_in.let_in(&listener);
        }
    })?;
    while !watch.is_over() {
        let mut fds = vec![PollFd::new(&told, PollFlags::IN)];
        fds.extend(watch.fds());
        match poll(&mut fds, watch.timeout()) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if !fds[0].revents().is_empty() {
            break;
        }
    }
    Ok(())
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
    /// What its lines begin with.
    name: Option<String>,
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

/// Ends the connection of a client, and with that the thread that waits for its end.
struct Closed<'a>(&'a Channel);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A client while it is served.
struct Served<'a> {
    server: &'a Server,
    channel: Arc<Channel>,
}

impl Server {
    fn new(memory: u64, name: Option<&str>) -> Self {
        Self {
            name: name.map(str::to_owned),
            budget: Budget::new(memory),
            host: Budget::new(memory),
            device: addresses(memory),
            lines: LINES.into(),
            clients: Mutex::default(),
        }
    }

    /// Lets a peer in who has connected. One that is gone again is none.
    fn let_in(self: &Arc<Self>, listener: &UnixListener) {
        if let Err(error) = listener.accept().and_then(|(socket, _)| self.start(socket)) {
            self.say(&format!("nobody can be let in: {error}"));
            // Who waits is there yet, and what is lacking may be there again soon.
            std::thread::sleep(BREATH);
        }
    }

    /// Has a panic said as all else is. It ends the service of the client whose thread it was, by the end of its socket.
    fn say_panics(self: &Arc<Self>) {
        let server = Arc::downgrade(self);
        std::panic::set_hook(Box::new(move |panic| {
            if let Some(server) = server.upgrade() {
                server.say(&panic.to_string().replace('\n', " "));
            }
        }));
    }

    /// Serves a peer on a thread of its own. One too many is refused, by the end of its socket.
    fn start(self: &Arc<Self>, socket: UnixStream) -> io::Result<()> {
        // Each thread has one; this thread alone makes them.
        if Arc::strong_count(self) > MAX_CONNECTIONS {
            self.say("one connection too many is refused");
            return Ok(());
        }
        self.spawn(|server| server.meet(socket))
    }

    fn spawn(
        self: &Arc<Self>,
        serve: impl FnOnce(&Self) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let server = Arc::clone(self);
        std::thread::Builder::new().name("client".into()).stack_size(STACK).spawn(move || {
            if let Err(error) = serve(&server) {
                server.say(&format!("a client is not served any more: {error}"));
            }
        })?;
        Ok(())
    }

    fn meet(&self, socket: UnixStream) -> io::Result<()> {
        match hello(&socket) {
            Ok(Hello::Client(memory)) => self.serve(Channel::with(socket, memory, self.device.clone())?),
            Ok(Hello::Status) => self.answer(&socket),
            Err(gone) if gone.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn serve(&self, channel: Channel) -> io::Result<()> {
        let served = self.admit(channel)?;
        let channel = &served.channel;
        channel.welcome()?;
        let cpu = Cpu::new(Memory::new(channel.device(), &self.budget)?);
        let host = Host::new(channel.host()?, &self.host);
        let mut worker = Worker::new(channel.contents(), cpu).staging(channel.staging()).host(host);
        std::thread::scope(|scope| {
            let end = std::thread::Builder::new().name("end".into()).stack_size(SMALL_STACK);
            end.spawn_scoped(scope, || channel.tell_of_the_end())?;
            // Also after a panic.
            let _closed = Closed(channel);
            serve(channel, &mut worker).map_err(|Malformed| {
                io::Error::new(io::ErrorKind::InvalidData, "it does not keep to the rules")
            })
        })
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
            let line = match &self.name {
                // Time, container, the exit code of what is no hook's error, message.
                Some(name) => format!("{:.3} {name} 0 worker: {line}\n", Timestamp::now()),
                None => format!("vgpu-worker: {line}\n"),
            };
            // Nobody may read it, or the disk be full.
            let _ = io::Write::write_all(&mut io::stderr(), line.as_bytes());
        }
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let mut clients = self.server.clients();
        clients.live.retain(|channel| !Arc::ptr_eq(channel, &self.channel));
        clients.ended += Totals::read(self.channel.counters());
        self.channel.discard();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::sys::Shared;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn arguments_are_read() {
        let none = || Arguments {
            memory: 1,
            socket: Socket::Inherited(3),
            watch_cgroup: None,
            watch: None,
            user: None,
            name: None,
        };
        assert_eq!(parse("--socket-fd 3 --memory 1"), Ok(none()));
        let socket = || Socket::Path("/run/s".into());
        let arguments = parse("--memory 1024 --socket /run/s --watch-fd 5");
        assert_eq!(arguments, Ok(Arguments { memory: 1024, socket: socket(), watch: Some(5), ..none() }));
        let arguments = parse("--watch-cgroup-fd 4 --memory 1 --user 7 --name c1 --socket-fd 3");
        let name = Some("c1".into());
        assert_eq!(arguments, Ok(Arguments { watch_cgroup: Some(4), user: Some(7), name, ..none() }));
    }

    #[test]
    fn a_panic_ends_the_service_of_one_client() {
        let server = Arc::new(Server::new(1 << 20, None));
        let (ours, theirs) = UnixStream::pair().unwrap();
        server
            .spawn(|server| {
                let memory = Shared::new(Channel::WORDS, 0)?.as_fd().try_clone_to_owned()?;
                let _served = server.admit(Channel::with(theirs, memory, 0..0)?)?;
                assert_eq!(server.status().live, 1);
                panic!("as a fault of ours would have it");
            })
            .unwrap();
        assert_eq!(io::Read::read(&mut &ours, &mut [0]).unwrap(), 0, "it is told");
        let status = server.status();
        assert_eq!((status.live, status.ever), (0, 1));
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
            ("--memory 1 --socket s --user 0", "--user is to be 1 to 4294967294"),
            ("--memory 1 --socket s --user 4294967295", "--user is to be 1 to 4294967294"),
            ("--memory 1 --socket-fd 3 --watch-fd 4 --watch-cgroup-fd 3", "a descriptor is one thing only"),
            ("--memory 1 --socket-fd 3 --watch-fd 4 --watch-cgroup-fd 4", "a descriptor is one thing only"),
            ("--memory 1 --socket s --name \u{1b}[2J", "\"--name\" is no text in one line"),
            ("--gpu 1", "\"--gpu\" is no argument"),
        ];
        for (line, message) in wrong {
            assert_eq!(parse(line), Err(message.into()), "{line}");
        }
    }
}
