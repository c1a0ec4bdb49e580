//! What a client process and its worker share: a socket, over which the client hands over memory, and in that memory the
//! ring, the answers, the counters and the table of contents. After that the socket says only one thing, by its end: the peer has
//! died.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with,
};
use rustix::process::{Resource, getrlimit};

use crate::api;
use crate::contents;
use crate::counters::{self, Counter};
use crate::cublas::backend::Blas;
use crate::cudnn::backend::Backend;
use crate::deferred::{Deferred, Function, Progress, Waiting};
use crate::reply::{self, Free};
use crate::ring::{self, Gone, Reader, Writer};
use crate::staging;
use crate::status;
use crate::sync::{Region, Spin};
use crate::sys::{self, Mapped, Reserved, Shared};
use crate::wire::{Head, Malformed, Words};
use crate::worker::{Device, Worker};

/// How long a client may take to say who it is. It does so as soon as it is connected.
const HELLO: Duration = Duration::from_secs(5);

/// How long a worker may take to answer it; that is when the host has much else to do.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a worker goes on doing a client's records before it looks whether that is there.
const LOOK: Duration = Duration::from_millis(250);

/// Room for some thousand records.
const RING: usize = ring::words(1 << 16);
const CONTENTS: usize = contents::words(contents::CAPACITY);

/// Where each part of the shared memory begins; the ring is the first.
const ANSWERS: usize = RING;
const COUNTERS: usize = ANSWERS + reply::WORDS;
const TABLE: usize = COUNTERS + counters::WORDS;
const STAGING: usize = TABLE + CONTENTS;
/// Where host-allocated memory begins, after all that both sides have mapped: of whole pages, on each architecture.
const HOST: u64 = (Channel::WORDS * size_of::<u64>()).next_multiple_of(1 << 16) as u64;

/// Where it ends, in a process that may write files of that size.
const HOST_END: u64 = HOST + (1 << 36);

/// The connection of a client process to its worker, seen from either side.
#[derive(Debug)]
pub struct Channel {
    memory: Memory,
    /// Readable once the peer has died: of the worker the socket, of the client a pidfd, since a child that the
    /// client forked may hold its socket. None where there never was a peer.
    peer: Option<OwnedFd>,
    /// Keeps the worker's end open, for the client to see it end.
    socket: Option<UnixStream>,
    /// The addresses of device memory, which are the same on both sides.
    device: Range<u64>,
    /// Keeps the client from having anything there.
    _reserved: Option<Reserved>,
}

/// What a channel is in.
#[derive(Debug)]
enum Memory {
    Shared(Shared),
    /// Without a peer.
    Alone(Mapped),
}

/// Connects to where a worker listens, for [`Channel::connect`].
///
/// # Errors
/// Of the system; `TimedOut` where more wait to be let in than there is room for, and none is.
pub fn reach(path: &Path) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    let (address, end) = (SocketAddrUnix::new(path)?, Instant::now() + PATIENCE);
    loop {
        match connect(&socket, &address) {
            // A program's timer may interrupt it again and again.
            Err(Errno::INTR) if Instant::now() < end => {}
            Err(Errno::INTR | Errno::AGAIN) => return Err(late()),
            connected => return connected.map(|()| socket.into()).map_err(Into::into),
        }
    }
}

/// All that a client can know of it; the worker's log says which.
const REFUSED: &str = "it does not let this process in: it serves as many as it can, or is of another build";

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("it does not answer within {} seconds", PATIENCE.as_secs()))
}

/// Waits until there is something to be read, or the end.
fn wait_for_answer(socket: &UnixStream) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(late()),
            Err(Errno::INTR) => {}
            polled => return polled.map(|_| ()).map_err(Into::into),
        }
    }
}

impl Channel {
    /// How much memory is shared.
    pub const WORDS: usize = STAGING + staging::WORDS;

    /// The client's side.
    ///
    /// # Errors
    /// Of the system, as where the client has something at the addresses of device memory; `UnexpectedEof` where the
    /// worker refuses, `TimedOut` where it does not answer; `FileTooLarge` where the process may not write files of the
    /// size of what is shared.
    pub fn connect(socket: UnixStream) -> io::Result<Self> {
        // Making a larger one would kill the process.
        let (most, least) = (largest_file(), (Self::WORDS * size_of::<u64>()) as u64);
        if most < least {
            let lacking =
                format!("files may have {most} bytes (RLIMIT_FSIZE), and it shares memory of {least}");
            return Err(io::Error::new(ErrorKind::FileTooLarge, lacking));
        }
        let memory = Shared::new(Self::WORDS, HOST_END.min(most))?;
        let hello = api::FINGERPRINT.to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [memory.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&hello)], &mut ancillary, SendFlags::NOSIGNAL))?;
        wait_for_answer(&socket)?;
        // Which comes at once.
        let mut ready = [0; 16];
        io::Read::read_exact(&mut &socket, &mut ready).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => io::Error::new(error.kind(), REFUSED),
            _ => error,
        })?;
        let [start, end] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| ready[at + i])));
        let reserved = if start == end { None } else { Some(Reserved::new(start..end)?) };
        let (memory, peer) = (Memory::Shared(memory), Some(socket.into()));
        Ok(Self { memory, peer, socket: None, device: start..end, _reserved: reserved })
    }

    /// As to a worker that has died, and had no device memory. It takes neither file nor socket, which there may be no
    /// more of.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn nobodys() -> io::Result<Self> {
        let memory = Memory::Alone(Mapped::alone(Self::WORDS)?);
        Ok(Self { memory, peer: None, socket: None, device: 0..0, _reserved: None })
    }

    /// The worker's side, with these addresses of device memory for the client.
    ///
    /// # Errors
    /// As [`hello`] and [`Channel::with`]; `InvalidData` for one that is no client.
    pub fn accept(socket: UnixStream, device: Range<u64>) -> io::Result<Self> {
        let Hello::Client(memory) = hello(&socket)? else {
            return Err(io::Error::new(ErrorKind::InvalidData, "no client, but one who asks"));
        };
        let channel = Self::with(socket, memory, device)?;
        channel.welcome()?;
        Ok(channel)
    }

    /// As [`Channel::accept`], once the client has said that it is one. It waits for its [`Channel::welcome`].
    ///
    /// # Errors
    /// Of the system, and those of [`sys::peer`]; `InvalidData` where what the client has handed over is not what was
    /// agreed upon.
    pub fn with(socket: UnixStream, memory: OwnedFd, device: Range<u64>) -> io::Result<Self> {
        let memory = Memory::Shared(Shared::open(memory, Self::WORDS)?);
        let peer = Some(sys::peer(&socket)?);
        Ok(Self { memory, peer, socket: Some(socket), device, _reserved: None })
    }

    /// Tells the client that it is served, and where its device memory is.
    ///
    /// # Errors
    /// Of the system.
    pub fn welcome(&self) -> io::Result<()> {
        let ready = [self.device.start.to_le_bytes(), self.device.end.to_le_bytes()];
        self.socket
            .as_ref()
            .map_or(Ok(()), |mut socket| io::Write::write_all(&mut socket, ready.as_flattened()))
    }

    /// What to poll(2) for the peer's end. A client ends also where its program executes another one: its socket ends
    /// then, if no child has it.
    fn ends(&self) -> Vec<PollFd<'_>> {
        let peer = self.peer.iter().map(|peer| PollFd::new(peer, PollFlags::IN | PollFlags::RDHUP));
        peer.chain(self.socket.iter().map(|socket| PollFd::new(socket, PollFlags::RDHUP))).collect()
    }

    /// Waits for the peer's end, or for [`Channel::close`], and wakes the thread that serves this.
    pub fn tell_of_the_end(&self) {
        while matches!(poll(&mut self.ends(), None), Ok(0) | Err(Errno::INTR)) {}
        ring::rouse(self.ring());
    }

    /// Tells the peer, and who waits for its end, that this side does not go on.
    pub fn close(&self) {
        // One that is closed already is.
        let _ = self.socket.as_ref().map(|socket| socket.shutdown(std::net::Shutdown::Both));
    }

    /// Gives all of the shared memory back that is not needed any more: another process may have the file yet, and does
    /// not pay for it.
    pub fn discard(&self) {
        if let Ok((memory, room)) = self.host() {
            let _ = memory.discard(&(0..room.end));
        }
    }

    /// Is the peer still there?
    #[must_use]
    pub fn there(&self) -> bool {
        if self.peer.is_none() {
            return false;
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut self.ends(), Some(&now)), Ok(0) | Err(_))
    }

    /// The addresses of device memory.
    #[must_use]
    pub fn device(&self) -> Range<u64> {
        self.device.clone()
    }

    /// All that both sides have mapped: the ring, the answers, the counters, the contents, the staging memory.
    #[must_use]
    pub fn shared(&self) -> Region<'_> {
        match &self.memory {
            Memory::Shared(memory) => memory.region(),
            Memory::Alone(memory) => memory.region(),
        }
    }

    /// The memory that this is of; and where in its file there is room for host-allocated memory, see [`crate::host`].
    ///
    /// # Errors
    /// As fstat(2); `NotConnected` without a peer.
    pub fn host(&self) -> io::Result<(&Shared, Range<u64>)> {
        let Memory::Shared(memory) = &self.memory else { return Err(ErrorKind::NotConnected.into()) };
        let end = memory.file().metadata()?.len().min(largest_file());
        Ok((memory, HOST..end.max(HOST)))
    }

    fn ring(&self) -> Region<'_> {
        &self.shared()[..RING]
    }

    fn answers(&self) -> Region<'_> {
        &self.shared()[ANSWERS..COUNTERS]
    }

    /// What the client counts, see [`crate::counters`].
    #[must_use]
    pub fn counters(&self) -> Region<'_> {
        &self.shared()[COUNTERS..TABLE]
    }

    /// The table of contents, see [`crate::contents`].
    #[must_use]
    pub fn contents(&self) -> Region<'_> {
        &self.shared()[TABLE..STAGING]
    }

    /// The memory for what is copied to and from the device, see [`crate::staging`].
    #[must_use]
    pub fn staging(&self) -> Region<'_> {
        &self.shared()[STAGING..]
    }
}

/// Who a peer says that it is.
#[derive(Debug)]
pub enum Hello {
    /// A client of this build, with the memory that it shares.
    Client(OwnedFd),
    /// One who asks how the worker and its clients are ([`crate::status`]).
    Status,
}

/// What a peer says when it has connected.
///
/// # Errors
/// Of the system; `InvalidData` for a client of another build, or whatever else; `TimedOut` for one that says nothing
/// within seconds; `UnexpectedEof` for one that has gone.
pub fn hello(socket: &UnixStream) -> io::Result<Hello> {
    socket.set_read_timeout(Some(HELLO))?;
    let mut hello = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut hello)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
            .map_err(|error| match error {
                Errno::AGAIN => silent(),
                error => error.into(),
            })?;
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    match fd {
        Some(memory) if received.bytes == 8 && hello == api::FINGERPRINT.to_le_bytes() => {
            Ok(Hello::Client(memory))
        }
        None if received.bytes == 8 && hello == status::HELLO => Ok(Hello::Status),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "a client of another build, or none")),
    }
}

fn silent() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("it has said nothing within {} seconds", HELLO.as_secs()))
}

/// How large a file this process may make, or where it may write in one, before it is killed by SIGXFSZ.
fn largest_file() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// What a client process calls its worker with, from any of its threads.
#[derive(Debug)]
pub struct Client<'a> {
    channel: &'a Channel,
    sending: Mutex<Sending<'a>>,
    /// A place for an answer has become free.
    freed: Condvar,
    /// A function of the program's has its turn, or is done.
    turned: Condvar,
    spin: Spin,
    /// The worker was found gone; it stays so.
    gone: AtomicBool,
}

#[derive(Debug)]
struct Sending<'a> {
    ring: Writer<'a>,
    free: Free,
    records: u64,
    deferred: Deferred,
}

/// What a client has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Records.
    pub records: u64,
    /// How often the worker was woken for them.
    pub wakes: u64,
}

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The worker is not there.
    Gone,
    /// It is made in a function that was deferred, which what is sent now waits for.
    Deferred,
}

impl From<Gone> for Unanswered {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl<'a> Client<'a> {
    /// There is to be one of a channel.
    #[must_use]
    pub fn new(channel: &'a Channel) -> Self {
        let sending = Sending {
            ring: Writer::new(channel.ring()),
            free: Free::default(),
            records: 0,
            deferred: Deferred::default(),
        };
        Self {
            channel,
            sending: Mutex::new(sending),
            freed: Condvar::new(),
            turned: Condvar::new(),
            spin: Spin::default(),
            gone: AtomicBool::new(false),
        }
    }

    /// Sends a call that nobody waits for. While as many wait for a function of the program's as there is room for, it
    /// waits too, if it is not made in such a function.
    ///
    /// # Errors
    /// `Gone`, then and ever after, where the worker is not there.
    pub fn send(&self, function: u16, arguments: &Words) -> Result<(), Gone> {
        self.send_if(|| true, function, arguments).unwrap_or(Ok(()))
    }

    /// Sends a call and waits for its answer.
    ///
    /// # Errors
    /// As [`Client::send`], within a second of the worker's death; in a function that was deferred.
    pub fn call(&self, function: u16, arguments: &Words) -> Result<Words, Unanswered> {
        self.call_if(|| true, function, arguments).unwrap_or(Err(Unanswered::Gone))
    }

    /// As [`Client::send`], if what is sent is still right when the lock is held; else none.
    pub fn send_if(
        &self,
        right: impl FnOnce() -> bool,
        function: u16,
        arguments: &Words,
    ) -> Option<Result<(), Gone>> {
        let mut sending = self.lock();
        while sending.deferred.is_full() && !sending.deferred.runs_here() {
            sending = self.turned.wait(sending).unwrap_or_else(PoisonError::into_inner);
        }
        right().then(|| self.put(&mut sending, Head { function, place: None }, arguments))
    }

    /// As [`Client::call`], if what is sent is still right when the lock is held; else none.
    pub fn call_if(
        &self,
        right: impl FnOnce() -> bool,
        function: u16,
        arguments: &Words,
    ) -> Option<Result<Words, Unanswered>> {
        let (mut sending, place) = match self.lock_with_place() {
            Ok((sending, place)) if !sending.deferred.runs_here() => (sending, place),
            Ok((mut sending, place)) => {
                self.give(&mut sending, place);
                return Some(Err(Unanswered::Deferred));
            }
            Err(unanswered) => return Some(Err(unanswered)),
        };
        if !right() {
            self.give(&mut sending, place);
            return None;
        }
        let sent = self.put(&mut sending, Head { function, place: Some(place) }, arguments);
        self.flush(&mut sending);
        drop(sending);
        let answer = sent.and_then(|()| self.wait(place));
        self.give(&mut self.lock(), place);
        Some(answer.map_err(Unanswered::from))
    }

    /// Sends a call, waits for its answer, and does `then` before anybody sends anything more.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn quiesce(&self, function: u16, then: impl FnOnce()) -> Result<(), Unanswered> {
        let (mut sending, place) = self.lock_with_place()?;
        while sending.deferred.holds() {
            if sending.deferred.runs_here() {
                self.give(&mut sending, place);
                return Err(Unanswered::Deferred);
            }
            sending = self.turned.wait(sending).unwrap_or_else(PoisonError::into_inner);
        }
        let sent = self.put(&mut sending, Head { function, place: Some(place) }, &Words::new());
        self.flush(&mut sending);
        let answer = sent.and_then(|()| self.wait(place));
        self.give(&mut sending, place);
        answer?;
        then();
        Ok(())
    }

    /// Has a function run once all that was sent before is done, and what is sent from now on only after it. It may send,
    /// but not wait. The flag tells that nobody runs such: then [`Client::run`] is to be called, on a thread of its own.
    ///
    /// # Errors
    /// In such a function, where as many wait as there is room for: it would wait for itself.
    pub fn defer(&self, function: Function) -> Result<bool, Unanswered> {
        // Its place is taken now, since later all may be taken by those who wait for it.
        let (mut sending, place) = self.lock_with_place()?;
        let first = !sending.deferred.holds();
        sending.deferred.ask(function, place);
        Ok(first)
    }

    /// Runs functions, and sends what waits for them, until there are no more. They are told the answer to a record of
    /// this number.
    pub fn run(&self, number: u16) {
        let mut sending = self.lock();
        while let Some(next) = sending.deferred.take() {
            match next {
                // Whoever waits for its answer finds out that the worker is gone.
                Waiting::Record(record) => drop(self.put_now(&mut sending, [&record, &[]])),
                Waiting::Function(function, place) => {
                    let head = Head { function: number, place: Some(place) };
                    let sent = self.put_now(&mut sending, [&[head.word()], &[]]);
                    self.flush(&mut sending);
                    drop(sending);
                    let answer = sent.and_then(|()| self.wait(place));
                    drop(self.turn(|sending| {
                        self.give(sending, place);
                        sending.deferred.begin();
                    }));
                    function(answer);
                    sending = self.turn(|sending| sending.deferred.end());
                }
            }
        }
        self.flush(&mut sending);
    }

    fn turn(&self, change: impl FnOnce(&mut Sending<'a>)) -> MutexGuard<'_, Sending<'a>> {
        let mut sending = self.lock();
        change(&mut sending);
        self.turned.notify_all();
        sending
    }

    /// Is this a deferred function's own thread, which cannot wait for anything?
    pub fn runs_here(&self) -> bool {
        self.lock().deferred.runs_here()
    }

    /// This moment, for [`Client::progress`].
    pub fn moment(&self) -> u64 {
        self.lock().deferred.moment()
    }

    /// How it is with what was sent before a moment.
    pub fn progress(&self, moment: u64) -> Progress {
        self.lock().deferred.progress(moment)
    }

    /// Waits while a later function is to tell that what was sent before a moment is done. The flag tells that it is.
    pub fn reach(&self, moment: u64) -> bool {
        let mut sending = self.lock();
        loop {
            match sending.deferred.progress(moment) {
                Progress::Done => return true,
                Progress::Pending | Progress::Unknown if sending.deferred.moment() > moment => {}
                _ => return false,
            }
            sending = self.turned.wait(sending).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A deferred function waits for no place, since it may be one that others wait for it with.
    fn lock_with_place(&self) -> Result<(MutexGuard<'_, Sending<'a>>, u8), Unanswered> {
        let mut sending = self.lock();
        loop {
            match sending.free.take(self.channel.answers()) {
                Some(place) => return Ok((sending, place)),
                None if sending.deferred.runs_here() => return Err(Unanswered::Deferred),
                None => sending = self.freed.wait(sending).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn wait(&self, place: u8) -> Result<Words, Gone> {
        let answer = reply::wait(self.channel.answers(), place, &self.spin, || self.channel.there());
        self.gone.fetch_or(answer.is_err(), Ordering::Relaxed);
        answer
    }

    /// Also after a call that failed: others wait for a place, and are to fail too.
    fn give(&self, sending: &mut Sending<'_>, place: u8) {
        sending.free.give(place);
        self.freed.notify_one();
    }

    /// Was the worker found gone?
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// The channel that it sends through.
    #[must_use]
    pub fn channel(&self) -> &'a Channel {
        self.channel
    }

    /// What was sent so far.
    pub fn sent(&self) -> Sent {
        let sending = self.lock();
        Sent { records: sending.records, wakes: sending.ring.wakes() }
    }

    fn put(&self, sending: &mut Sending<'_>, head: Head, arguments: &Words) -> Result<(), Gone> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(Gone);
        }
        let head = [head.word()];
        if sending.deferred.holds() {
            sending.deferred.hold(head.into_iter().chain(arguments.iter().copied()).collect());
            return Ok(());
        }
        self.put_now(sending, [&head, arguments])
    }

    fn put_now(&self, sending: &mut Sending<'_>, record: [&[u64]; 2]) -> Result<(), Gone> {
        let sent = sending.ring.send(record, || self.channel.there());
        self.gone.fetch_or(sent.is_err(), Ordering::Relaxed);
        sending.records += u64::from(sent.is_ok());
        self.count(sending);
        sent
    }

    fn flush(&self, sending: &mut Sending<'_>) {
        sending.ring.flush();
        self.count(sending);
    }

    fn count(&self, sending: &Sending<'_>) {
        counters::set(self.channel.counters(), Counter::Records, sending.records);
        counters::set(self.channel.counters(), Counter::Wakes, sending.ring.wakes());
    }

    fn lock(&self) -> MutexGuard<'_, Sending<'a>> {
        // A thread that panicked while it sent has published nothing or a whole record.
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the calls of a client until it has died; what it has sent before is not all done then.
///
/// # Errors
/// `Malformed` where it does not keep to the rules.
pub fn serve<B: Backend + Blas + Device>(
    channel: &Channel,
    worker: &mut Worker<'_, B>,
) -> Result<(), Malformed> {
    let mut ring = Reader::new(channel.ring());
    let (mut record, mut answer) = (Words::new(), Words::new());
    let mut looked = Instant::now();
    loop {
        let received = ring.receive(&mut record)?;
        if received {
            let (head, arguments) = record.split_first().ok_or(Malformed)?;
            let head = Head::from_word(*head);
            answer.clear();
            worker.record(head, arguments, &mut answer)?;
            if let Some(place) = head.place {
                reply::answer(channel.answers(), place.into(), &answer)?;
            }
        }
        // The clock costs tens of nanoseconds, the look a system call.
        if (received && looked.elapsed() > LOOK) || (!received && !ring.wait()) {
            if !channel.there() {
                return Ok(());
            }
            looked = Instant::now();
        }
    }
}
