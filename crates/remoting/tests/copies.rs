//! Copies between a program and its device: rows of them, and those of host-allocated memory, which nobody waits for; and
//! what a worker makes of a client that sends others than it should.
#![cfg(not(any(loom, feature = "blind")))]

use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use vgpu_remoting::channel::{Channel, Client, Unanswered, serve};
use vgpu_remoting::cpu::Cpu;
use vgpu_remoting::cublas::backend::Blas;
use vgpu_remoting::cudnn::backend::Backend;
use vgpu_remoting::cudnn::{Result, Status};
use vgpu_remoting::host::{Host, MOST, MOST_ROWS};
use vgpu_remoting::memory::{Budget, Memory, Rows};
use vgpu_remoting::reuse::Reuse;
use vgpu_remoting::session::{Mode, Session};
use vgpu_remoting::staging;
use vgpu_remoting::wire::{Malformed, Words};
use vgpu_remoting::worker::{
    ALLOCATE_HOST, COPY_FROM_HOST, COPY_IN, COPY_TO_HOST, Device, FREE_HOST, Worker,
};

const MIB: u64 = 1 << 20;

/// Device memory on which copies within the device wait until they are let in.
struct Gated {
    cpu: Cpu,
    gate: Arc<Mutex<()>>,
}

impl Backend for Gated {}

impl Blas for Gated {}

impl Device for Gated {
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        self.cpu.allocate(bytes)
    }

    fn free(&mut self, address: u64) -> bool {
        self.cpu.free(address)
    }

    fn copy(&mut self, to: Rows, from: Rows, width: u64, count: u64) -> Result {
        let _through = self.gate.lock().unwrap();
        self.cpu.copy(to, from, width, count)
    }

    fn fill(&mut self, to: Rows, width: u64, count: u64, value: &[u8]) -> Result {
        self.cpu.fill(to, width, count, value)
    }

    fn bytes(&mut self, address: u64, len: usize) -> Result<&mut [u8]> {
        self.cpu.bytes(address, len)
    }
}

/// A client of a worker in this process.
struct Served {
    session: Session<'static>,
    channel: &'static Channel,
    gate: Arc<Mutex<()>>,
    worker: Option<JoinHandle<std::result::Result<(), Malformed>>>,
}

impl Served {
    /// With so much device memory.
    fn new(bytes: u64, host: &Arc<Budget>) -> Self {
        // The sessions of this process are not to be at the same addresses.
        static NEXT: AtomicU64 = AtomicU64::new(0x2000_0000_0000);
        let start = NEXT.fetch_add(1 << 32, Ordering::Relaxed);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let gate = Arc::new(Mutex::new(()));
        let (host, worker_gate) = (Arc::clone(host), Arc::clone(&gate));
        let worker = thread::spawn(move || {
            let channel = Channel::accept(theirs, start..start + bytes).unwrap();
            let cpu = Cpu::new(Memory::new(channel.device(), &Budget::new(bytes)).unwrap());
            let worker = Worker::new(channel.contents(), Gated { cpu, gate: worker_gate });
            let host = Host::new(channel.host().unwrap(), &host);
            serve(&channel, &mut worker.staging(channel.staging()).host(host))
        });
        let channel: &Channel = Box::leak(Box::new(Channel::connect(ours).unwrap()));
        let session = Session::new(
            Mode::Reuse,
            Reuse::new(64, channel.contents(), channel.counters()),
            Client::new(channel),
        );
        Self { session, channel, gate, worker: Some(worker) }
    }

    /// What a record is answered with, whatever it says.
    fn raw<const N: usize>(&self, number: u16, words: [u64; N]) -> std::result::Result<Words, Unanswered> {
        self.session.client().call(number, &words.into_iter().collect())
    }

    fn status<const N: usize>(&self, number: u16, words: [u64; N]) -> Result {
        Status::from_wire(self.raw(number, words).unwrap()[0])
    }

    /// The worker has found out that this client does not keep to the rules, and has done with it.
    fn is_over(&mut self) {
        assert_eq!(self.worker.take().unwrap().join().unwrap(), Err(Malformed));
    }

    /// The client's file from this byte of host-allocated memory on, where the first allocation begins.
    fn host(&self, at: u64, bytes: &mut [u8]) {
        let (memory, room) = self.channel.host().unwrap();
        memory.file().read_exact_at(bytes, room.start + at).unwrap();
    }

    fn set_host(&self, at: u64, bytes: &[u8]) {
        let (memory, room) = self.channel.host().unwrap();
        memory.file().write_all_at(bytes, room.start + at).unwrap();
    }

    /// How many bytes of memory the client's file takes up.
    fn used(&self) -> u64 {
        512 * self.channel.host().unwrap().0.file().metadata().unwrap().blocks()
    }
}

fn rows(address: u64, pitch: u64) -> Rows {
    Rows { address, pitch }
}

/// Bytes that look like nothing, and are the same each time.
fn bytes(count: u64) -> Vec<u8> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// As many bytes of one value as rows span, with these rows in it, one byte from the beginning on.
fn spread(value: u8, rows: &[u8], width: u64, pitch: u64) -> Vec<u8> {
    let count = rows.len() as u64 / width;
    let mut all = vec![value; (pitch * (count - 1) + width + 2) as usize];
    for (row, bytes) in rows.chunks(width as usize).enumerate() {
        all[1 + row * pitch as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    all
}

/// Widths and pitches of rows, and how many; the last but one is more than goes through the staging memory at a time.
const SHAPES: [(u64, u64, u64); 6] =
    [(1, 3, 5000), (7, 7, 9), (1000, 1024, 1100), (8, 20, 20_000), (MIB + 3, MIB + 8, 3), (9, 0, 1)];

#[test]
fn rows_come_back_from_the_device_as_they_went_and_nothing_else_is_changed() {
    let Served { session, .. } = Served::new(4 * MIB, &Budget::new(0));
    let address = session.allocate(4 * MIB).unwrap();
    for (width, pitch, count) in SHAPES {
        let to = rows(address + 1, pitch);
        session.fill(rows(address, 0), 4 * MIB, 1, 0xAA, 1).unwrap();
        let bytes = bytes(width * count);
        session.copy_rows_in(to, bytes.chunks(width as usize), width).unwrap();
        let mut back = vec![0; bytes.len()];
        session.copy_rows_out(back.chunks_mut(width as usize), to, width).unwrap();
        assert!(back == bytes, "{width} {pitch} {count}");
        let wanted = spread(0xAA, &bytes, width, pitch);
        let mut all = vec![0; wanted.len()];
        session.copy_out(&mut all, address).unwrap();
        assert!(all == wanted, "{width} {pitch} {count}");
    }
    let two = || [&[0; 4][..]; 2].into_iter();
    assert_eq!(session.copy_rows_in(rows(address, 3), two(), 4), Err(Status::BadParam));
    assert_eq!(session.copy_rows_in(rows(address, 4 * MIB), two(), 4), Err(Status::ExecutionFailed));
    assert_eq!(session.copy_rows_in(rows(address, u64::MAX), two(), 4), Err(Status::ExecutionFailed));
    let long = bytes(MIB);
    let long = [&long[..]; 2].into_iter();
    assert_eq!(
        session.copy_rows_in(rows(address, u64::MAX - (1 << 44)), long, MIB),
        Err(Status::ExecutionFailed)
    );
    assert_eq!(session.copy_rows_in(rows(0, 0), two(), 0), Ok(()));
}

#[test]
fn rows_of_host_allocated_memory_come_back_as_they_went_and_nothing_else_is_changed() {
    let served = Served::new(4 * MIB, &Budget::new(4 * MIB));
    let session = &served.session;
    let device = session.allocate(4 * MIB).unwrap();
    let host = session.allocate_host(4 * MIB, 0).unwrap();
    for (width, pitch, count) in SHAPES {
        // There with one pitch, back with the other.
        for wait in [false, true] {
            let other = width + 5;
            let bytes = bytes(width * count);
            served.set_host(0, &spread(1, &bytes, width, pitch));
            session.fill(rows(device, 0), 4 * MIB, 1, 0xAA, 1).unwrap();
            let from = session.shared(rows(host + 1, pitch), width, count).unwrap();
            session.copy_from_host(rows(device + 1, other), from, width, count, wait).unwrap();
            let wanted = spread(0xAA, &bytes, width, other);
            let mut all = vec![0; wanted.len()];
            session.copy_out(&mut all, device).unwrap();
            assert!(all == wanted, "{width} {pitch} {count}");
            served.set_host(0, &vec![7; 4 * MIB as usize]);
            let to = session.shared(rows(host + 1, pitch), width, count).unwrap();
            session.copy_to_host(to, rows(device + 1, other), width, count, wait).unwrap();
            session.synchronise().unwrap();
            let wanted = spread(7, &bytes, width, pitch);
            let mut all = vec![0; wanted.len()];
            served.host(0, &mut all);
            assert!(all == wanted, "{width} {pitch} {count}");
        }
    }
}

#[test]
fn what_moves_between_program_and_device_is_counted() {
    let Served { session, .. } = Served::new(MIB, &Budget::new(MIB));
    let device = session.allocate(1 << 10).unwrap();
    let host = session.allocate_host(1 << 10, 0).unwrap();
    let moved = || session.reuse().counters().counts().bytes;
    let mut bytes = [0; 8];
    session.copy_rows_in(rows(device, 9), [&bytes[..]; 3].into_iter(), 8).unwrap();
    assert_eq!(moved(), 24);
    session.copy_rows_out([&mut bytes[..]].into_iter(), rows(device, 9), 8).unwrap();
    assert_eq!(moved(), 32);
    let there = session.shared(rows(host, 8), 7, 2).unwrap();
    session.copy_from_host(rows(device, 8), there, 7, 2, false).unwrap();
    session.copy_to_host(there, rows(device, 8), 7, 2, true).unwrap();
    session.copy(rows(device, 0), rows(device, 0), 8, 1).unwrap();
    assert_eq!(moved(), 60);
}

#[test]
fn copies_of_host_allocated_memory_are_not_waited_for_and_are_done_in_order() {
    let served = Served::new(MIB, &Budget::new(MIB));
    let session = &served.session;
    let [a, b] = [0, 1].map(|_| session.allocate(512).unwrap());
    let host = session.allocate_host(1 << 17, 0).unwrap();
    let there = |at: u64| session.shared(rows(host + at, 0), 4, 1).unwrap();
    session.fill(rows(a, 0), 4, 1, 7, 1).unwrap();
    served.set_host(0, &[1, 2, 3, 4]);
    let closed = served.gate.lock().unwrap();
    session.copy(rows(b, 0), rows(a, 0), 4, 1).unwrap();
    session.copy_to_host(there(1 << 16), rows(b, 0), 4, 1, false).unwrap();
    session.copy_from_host(rows(b, 0), there(0), 4, 1, false).unwrap();
    session.copy_to_host(there((1 << 16) + 4), rows(b, 0), 4, 1, false).unwrap();
    let mut copied = [0; 8];
    served.host(1 << 16, &mut copied);
    assert_eq!(copied, [0; 8], "the worker is at the first copy");
    drop(closed);
    session.synchronise().unwrap();
    served.host(1 << 16, &mut copied);
    assert_eq!(copied, [7, 7, 7, 7, 1, 2, 3, 4]);
}

/// Of a program that frees them too early in its own eyes, too.
#[test]
fn what_is_freed_while_it_is_copied_is_freed_after_that() {
    let served = Served::new(MIB, &Budget::new(MIB));
    let session = &served.session;
    let [a, b] = [0, 1].map(|_| session.allocate(1 << 16).unwrap());
    let [one, other] = [0, 1].map(|_| session.allocate_host(1 << 16, 0).unwrap());
    served.set_host(0, &[5; 1 << 16]);
    let closed = served.gate.lock().unwrap();
    session.copy(rows(b, 0), rows(a, 0), 4, 1).unwrap();
    let shared = |address| session.shared(rows(address, 0), 1 << 16, 1).unwrap();
    session.copy_from_host(rows(a, 0), shared(one), 1 << 16, 1, false).unwrap();
    session.copy_to_host(shared(other), rows(a, 0), 1 << 16, 1, false).unwrap();
    thread::scope(|scope| {
        let frees = [one, other].map(|address| scope.spawn(move || session.free_host(address)));
        while session.host_allocation(one).or(session.host_allocation(other)).is_some() {
            thread::yield_now();
        }
        drop(closed);
        frees.into_iter().for_each(|free| free.join().unwrap().unwrap());
    });
    session.synchronise().unwrap();
    let mut copied = vec![0; 1 << 16];
    session.copy_out(&mut copied, a).unwrap();
    assert!(copied == [5; 1 << 16]);
    // Nothing of it is left.
    served.host(0, &mut copied);
    assert!(copied == [0; 1 << 16]);
}

#[test]
fn host_allocated_memory_is_known_by_each_of_its_bytes() {
    let served = Served::new(MIB, &Budget::new(MIB));
    let session = &served.session;
    let [a, b] = [10, 100_000].map(|bytes| session.allocate_host(bytes, 4).unwrap());
    let known =
        |address| session.host_allocation(address).map(|known| (known.address, known.bytes, known.flags));
    let found = [a, a + 9, a + 10, b, b + 99_999, b + 100_000, 0, u64::MAX].map(known);
    let [first, second] = [Some((a, 10, 4)), Some((b, 100_000, 4))];
    assert_eq!(found, [first, first, None, second, second, None, None, None]);
    let wrong = [
        (rows(a, 0), 11, 1),
        (rows(a + 10, 0), 1, 1),
        (rows(a, 5), 6, 2),
        (rows(a, 6), 5, 2),
        (rows(a, 0), 0, 1),
        (rows(a, u64::MAX), 1, 3),
        (rows(b + 99_999, 0), 2, 1),
        (rows(b, 0), u64::MAX, 1),
        (rows(0, 0), 1, 1),
    ];
    for (rows, width, count) in wrong {
        assert_eq!(session.shared(rows, width, count), None, "{rows:?} {width} {count}");
    }
    assert!(session.shared(rows(a, 5), 5, 2).is_some());
    assert_eq!(session.allocate_host(0, 0), Err(Status::AllocFailed));
    assert_eq!([a + 1, 0].map(|wrong| session.free_host(wrong)), [Err(Status::BadParam); 2]);
    assert_eq!([a, a].map(|address| session.free_host(address)), [Ok(()), Err(Status::BadParam)]);
    assert_eq!((known(a), session.shared(rows(a, 0), 1, 1)), (None, None));
}

/// Whatever it says: nothing but what it has allocated is read or written.
#[test]
fn a_hostile_client_reaches_its_own_allocations_alone() {
    let served = Served::new(MIB, &Budget::new(MIB));
    let device = served.session.allocate(1 << 17).unwrap();
    let at = served.raw(ALLOCATE_HOST, [1 << 16]).unwrap()[1];
    let end = at + (1 << 16);
    let far = Err(Status::ExecutionFailed);
    let wrong = [
        ([at - 1, 0, 4, 1], far),
        ([at - (1 << 16), 0, 4, 1], far),
        ([0, 0, 4, 1], far),
        ([end, 0, 4, 1], far),
        ([end - 3, 0, 4, 1], far),
        ([at, 1 << 15, 4, 3], far),
        ([at, 1 << 63, 4, 3], far),
        ([u64::MAX - 3, 0, 4, 1], far),
        ([u64::MAX, 4, 4, 2], far),
        ([at, 3, 4, 2], Err(Status::BadParam)),
        ([end - 4, 0, 4, 1], Ok(())),
        ([at, 1 << 15, 4, 2], Ok(())),
    ];
    for ([host, pitch, width, count], status) in wrong {
        let from = [device, 8, host, pitch, width, count];
        assert_eq!(served.status(COPY_FROM_HOST, from), status, "{host:#x} {pitch} {width} {count}");
        let to = [host, pitch, device, 8, width, count];
        assert_eq!(served.status(COPY_TO_HOST, to), status, "{host:#x} {pitch} {width} {count}");
    }
    for wrong in [device - 1, device + (1 << 17) - 3, 0, u64::MAX] {
        assert_eq!(served.status(COPY_FROM_HOST, [wrong, 0, at, 0, 4, 1]), far, "{wrong:#x}");
        assert_eq!(served.status(COPY_TO_HOST, [at, 0, wrong, 0, 4, 1]), far, "{wrong:#x}");
    }
    assert_eq!(served.status(COPY_FROM_HOST, [device, 3, at, 8, 4, 2]), Err(Status::BadParam));
    for wrong in [at - 1, at + 1, end, 0, u64::MAX] {
        assert_eq!(served.status(FREE_HOST, [wrong]), Err(Status::BadParam), "{wrong:#x}");
    }
    assert_eq!([at, at].map(|at| served.status(FREE_HOST, [at])), [Ok(()), Err(Status::BadParam)]);
    assert_eq!(served.status(COPY_TO_HOST, [at, 0, device, 0, 4, 1]), far, "freed");
    let all = [0, u64::MAX, 1 << 36, (1 << 36) + 1].map(|bytes| served.status(ALLOCATE_HOST, [bytes]));
    assert_eq!(all, [Err(Status::AllocFailed); 4]);
    assert_eq!(served.session.synchronise(), Ok(()));
}

/// No client of ours sends them: what a worker does at a time is bounded.
#[test]
fn records_of_too_much_are_malformed() {
    let staged = 8 * staging::WORDS as u64;
    let staged =
        [(staged, 2), (1, staged), (8, staged / 8 + 1), (staged + 1, 1), (u64::MAX, 1), (2, u64::MAX)];
    let staged = staged.map(|(width, count)| (COPY_IN, vec![0, 8, width, count]));
    let hosts =
        [(MOST + 1, 1), (MOST / 2, 3), (1, MOST_ROWS + 1), (u64::MAX, 2), (0, u64::MAX), (u64::MAX, 1)];
    let hosts = hosts.map(|(width, count)| (COPY_FROM_HOST, vec![0, 8, 0, 8, width, count]));
    thread::scope(|scope| {
        for (number, words) in staged.into_iter().chain(hosts) {
            scope.spawn(move || {
                let mut served = Served::new(MIB, &Budget::new(MIB));
                let answer = served.session.client().call(number, &words.iter().copied().collect());
                assert_eq!(answer, Err(Unanswered::Gone), "{number:#x} {words:?}");
                served.is_over();
            });
        }
    });
}

#[test]
fn an_error_of_a_copy_that_nobody_waited_for_is_kept_and_what_is_waited_for_is_said_once() {
    let served = Served::new(MIB, &Budget::new(MIB));
    let session = &served.session;
    let device = session.allocate(512).unwrap();
    let [a, b] = [0, 1].map(|_| session.allocate_host(512, 0).unwrap());
    let freed = session.shared(rows(b, 0), 4, 1).unwrap();
    session.free_host(b).unwrap();
    let failed = Err(Status::ExecutionFailed);
    assert_eq!(session.copy_from_host(rows(device, 0), freed, 4, 1, true), failed);
    assert_eq!(session.synchronise(), Ok(()));
    session.copy_from_host(rows(device, 0), freed, 4, 1, false).unwrap();
    assert_eq!(session.synchronise(), failed);
    let there = session.shared(rows(a, 0), 4, 1).unwrap();
    assert_eq!(session.copy_to_host(there, rows(device, 0), 4, 1, true), failed);
    session.fill(rows(device, 0), 4, 1, 7, 1).unwrap();
    session.copy_to_host(there, rows(device, 0), 4, 1, false).unwrap();
    assert_eq!(session.synchronise(), failed);
    let mut copied = [9; 4];
    served.host(0, &mut copied);
    assert_eq!(copied, [0; 4], "nothing is done after it");
    assert_eq!(session.free_host(a), Ok(()));
}

#[test]
fn clients_share_a_budget_of_host_allocated_memory_and_give_back_what_they_had() {
    let budget = Budget::new(3 << 16);
    let [one, mut other] = [0, 1].map(|_| Served::new(MIB, &budget));
    let a = one.session.allocate_host(1, 0).unwrap();
    one.session.allocate_host((1 << 16) + 1, 0).unwrap();
    assert_eq!(other.session.allocate_host(1, 0), Err(Status::AllocFailed));
    one.session.free_host(a).unwrap();
    let b = other.session.allocate_host(1 << 16, 0).unwrap();
    assert_eq!(one.session.allocate_host(1, 0), Err(Status::AllocFailed));
    // No such record: it is not served any more.
    assert_eq!(other.raw(0x7FFF, []), Err(Unanswered::Gone));
    other.is_over();
    assert_eq!(other.session.free_host(b), Err(Status::ExecutionFailed));
    assert_eq!(other.session.host_allocation(b), None, "it is freed all the same");
    assert_eq!(budget.info(), (1 << 16, 3 << 16));
}

#[test]
fn memory_is_there_when_it_is_allocated_and_gone_when_it_is_freed_and_reading_takes_none() {
    let served = Served::new(4 * MIB, &Budget::new(64 * MIB));
    let session = &served.session;
    let device = session.allocate(4 * MIB).unwrap();
    let before = served.used();
    let host = session.allocate_host(2 * MIB, 0).unwrap();
    assert_eq!(served.used() - before, 2 * MIB);
    session.free_host(host).unwrap();
    assert_eq!(served.used(), before);
    // A client that has not mapped it.
    let at = served.raw(ALLOCATE_HOST, [2 * MIB]).unwrap()[1];
    session.fill(rows(device, 0), MIB, 1, 9, 1).unwrap();
    served.status(COPY_FROM_HOST, [device, 0, at, 0, 2 * MIB, 1]).unwrap();
    assert_eq!(served.used(), before);
    let mut zeros = [9];
    session.copy_out(&mut zeros, device).unwrap();
    assert_eq!(zeros, [0]);
    let before = served.used();
    served.status(COPY_TO_HOST, [at, 0, device, 0, 2 * MIB, 1]).unwrap();
    assert_eq!(served.used() - before, 2 * MIB, "that is the worker's");
}

/// A client may have left the file to another process, of another container.
#[test]
fn of_a_client_that_is_not_served_any_more_the_file_is_empty() {
    let mut served = Served::new(MIB, &Budget::new(MIB));
    served.session.allocate_host(MIB, 0).unwrap();
    let device = served.session.allocate(512).unwrap();
    served.session.copy_in(device, &[1; 512]).unwrap();
    assert!(served.used() > MIB);
    assert_eq!(served.raw(0x7FFF, []), Err(Unanswered::Gone));
    served.is_over();
    // The client's own part takes a page again as it looks for an answer.
    assert!(served.used() <= 1 << 16, "{}", served.used());
}
