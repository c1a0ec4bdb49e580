//! Any bytes as what a client process does to the memory that it shares with its worker: records, contents, and words
//! anywhere, that change between the worker's looks at them. The worker ends serving, or answers; with what its client
//! has and no more.

#![no_main]

use std::sync::atomic::{AtomicU64, Ordering};

use libfuzzer_sys::fuzz_target;
use vgpu_remoting::contents::{self, Contents, Sort, Writer};
use vgpu_remoting::cpu::Cpu;
use vgpu_remoting::cudnn::activation::{self, Activation};
use vgpu_remoting::cudnn::convolution::{self, Convolution};
use vgpu_remoting::cudnn::filter::{self, Filter};
use vgpu_remoting::cudnn::pooling::{self, Pooling};
use vgpu_remoting::cudnn::tensor::{self, Tensor};
use vgpu_remoting::cudnn::{Status, Version};
use vgpu_remoting::descriptor::{Content, Kind};
use vgpu_remoting::host::Host;
use vgpu_remoting::memory::{Budget, Memory};
use vgpu_remoting::ring::{self, Reader};
use vgpu_remoting::sync::Region;
use vgpu_remoting::sys;
use vgpu_remoting::wire::{Head, Malformed, Words};
use vgpu_remoting::worker::{COPY_TO_HOST, Worker};
use vgpu_remoting::{cublas, cudnn, reply};

const V: Version = Version::V9;
const ROOM: usize = 256;
const CONTENTS: usize = contents::words(64);
const STAGING: usize = 64;
const ALL: usize = ring::words(ROOM) + reply::WORDS + CONTENTS + STAGING;
/// So little that what is computed on it takes no seconds.
const MEMORY: u64 = 8 << 10;
const BASE: u64 = 0x2000_0000_0000;
/// Of host-allocated memory, and how much room there is for it: two of what is allocated at least, and three.
const HOST: u64 = 2 << 16;
const HOST_ROOM: u64 = 3 << 16;

/// All that is shared.
struct Shared {
    words: Vec<AtomicU64>,
}

impl Shared {
    fn new() -> Self {
        Self { words: (0..ALL).map(|_| AtomicU64::new(0)).collect() }
    }

    fn part(&self, start: usize, words: usize) -> Region<'_> {
        &self.words[start..][..words]
    }

    fn ring(&self) -> Region<'_> {
        self.part(0, ring::words(ROOM))
    }

    fn answers(&self) -> Region<'_> {
        self.part(ring::words(ROOM), reply::WORDS)
    }

    fn contents(&self) -> Region<'_> {
        self.part(ring::words(ROOM) + reply::WORDS, CONTENTS)
    }

    fn staging(&self) -> Region<'_> {
        self.part(ring::words(ROOM) + reply::WORDS + CONTENTS, STAGING)
    }
}

/// What the client does next, as long as there are bytes.
struct Input<'i>(std::slice::Iter<'i, u8>);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or_default()
    }

    /// Small numbers, addresses of device memory, less than nothing, factors, small ones in the upper half, or any.
    fn word(&mut self) -> u64 {
        match self.byte() {
            small @ ..0x80 => small.into(),
            place @ ..0xC0 => BASE + 512 * u64::from(place & 15) + u64::from(place >> 4 & 3) * 4,
            less @ ..0xD0 => 0_u64.wrapping_sub(u64::from(less & 15)),
            factor @ ..=0xDF => (f32::from(factor & 15) - 8.0).to_bits().into(),
            upper @ 0xE1..=0xEF => u64::from(upper & 15) << 32,
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn int(&mut self) -> i32 {
        self.word() as i32
    }

    /// A function's number: of a table, or one of the core's, or none.
    fn function(&mut self) -> u16 {
        match (self.byte() % 4, u16::from(self.byte())) {
            (0 | 1, number) => number % (cudnn::table::Function::ALL.len() as u16 + 1),
            (2, number) => cublas::table::FIRST + number % (cublas::table::Function::ALL.len() as u16 + 1),
            (_, number) => u16::MAX - number % (u16::MAX - COPY_TO_HOST + 2),
        }
    }
}

/// A client that writes whatever it likes.
struct Client<'s> {
    shared: &'s Shared,
    contents: Contents<'s>,
    writer: Writer,
    written: u64,
}

impl Client<'_> {
    fn put(&mut self, word: u64) {
        let ring = self.shared.ring();
        ring[64 + self.written as usize % ROOM].store(word, Ordering::Relaxed);
        self.written += 1;
    }

    fn record(&mut self, input: &mut Input<'_>) {
        let (function, place, count) = (input.function(), input.byte(), input.byte() % 20);
        let place = place.checked_sub(0x80);
        self.put(u64::from(count) + 1);
        self.put(Head { function, place }.word());
        (0..count).for_each(|_| {
            let word = input.word();
            self.put(word);
        });
        self.shared.ring()[0].store(self.written, Ordering::Relaxed);
    }

    /// One that a rule makes, with any word changed that no rule writes.
    fn content(&mut self, input: &mut Input<'_>, changed: bool) {
        let kind = Kind::ALL[usize::from(input.byte()) % Kind::ALL.len()];
        let mut word = || input.int();
        // What a set that fails leaves is a content, too.
        let mut words = match kind {
            Kind::Tensor => {
                let mut t = Tensor::FRESH;
                let _ = tensor::set_4d(V, &mut t, word() & 1, 0, word(), word(), word(), word());
                t.to_words()
            }
            Kind::Filter => {
                let mut f = Filter::FRESH;
                let _ = filter::set_4d(V, &mut f, 0, 0, word(), word(), word(), word());
                f.to_words()
            }
            Kind::Convolution => {
                let mut c = Convolution::FRESH;
                let _ = convolution::set_2d(V, &mut c, word(), word(), word(), word(), word(), word(), 1, 0);
                let _ = convolution::set_groups(V, &mut c, word());
                c.to_words()
            }
            Kind::Pooling => {
                let mut p = Pooling::FRESH;
                let mode = word() & 3;
                let _ = pooling::set_2d(V, &mut p, mode, 0, word(), word(), word(), word(), word(), word());
                p.to_words()
            }
            Kind::Activation => {
                let mut a = Activation::FRESH;
                let _ = activation::set(V, &mut a, word() & 7, 0, word().into());
                a.to_words()
            }
            _ => std::array::from_fn(|_| word() as u64),
        };
        if changed {
            words[usize::from(input.byte()) % words.len()] = input.word();
        }
        let _ = self.contents.intern(&mut self.writer, Sort { kind, version: V }, &words);
    }

    /// A word anywhere, or in the ring's first ones, where the positions are.
    fn poke(&mut self, input: &mut Input<'_>) {
        let [low, high, value] = [input.byte().into(), input.byte().into(), input.word()];
        let place = low + 256 * high;
        self.shared.words[(place % ALL as u64) as usize].store(value, Ordering::Relaxed);
    }
}

/// Does what is in the ring, to the end.
fn serve(
    reader: &mut Reader<'_>,
    worker: &mut Worker<'_, Cpu>,
    answers: Region<'_>,
) -> Result<(), Malformed> {
    let (mut record, mut answer) = (Words::new(), Words::new());
    while reader.receive(&mut record)? {
        let (head, arguments) = record.split_first().ok_or(Malformed)?;
        let head = Head::from_word(*head);
        answer.clear();
        worker.record(head, arguments, &mut answer)?;
        let _ = Status::from_wire(*answer.first().expect("an answer has a status"));
        if let Some(place) = head.place {
            reply::answer(answers, place.into(), &answer)?;
        }
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let (shared, budget) = (Shared::new(), Budget::new(MEMORY));
    let memory = Memory::new(BASE..BASE + 2 * MEMORY, &budget).expect("memory");
    // From the file's beginning on, so that its places are small numbers.
    let file = sys::Shared::new(1, HOST_ROOM).expect("memory");
    let host_budget = Budget::new(HOST);
    let host = Host::new((&file, 0..HOST_ROOM), &host_budget);
    let mut worker = Worker::new(shared.contents(), Cpu::new(memory)).staging(shared.staging()).host(host);
    let mut reader = Reader::new(shared.ring());
    let (contents, writer) = Contents::new(shared.contents());
    let mut client = Client { shared: &shared, contents, writer, written: 0 };
    let mut input = Input(bytes.iter());
    while input.0.len() > 0 {
        match input.byte() % 8 {
            0..=3 => client.record(&mut input),
            4 => client.content(&mut input, false),
            5 => client.content(&mut input, true),
            6 => client.poke(&mut input),
            _ if serve(&mut reader, &mut worker, shared.answers()).is_err() => break,
            _ => {}
        }
    }
    let _ = serve(&mut reader, &mut worker, shared.answers());
    for (free, total) in [budget.info(), host_budget.info()] {
        assert!(free <= total, "{free} of {total} bytes are free");
    }
    drop(worker);
    let all = [(MEMORY, MEMORY), (HOST, HOST)];
    assert_eq!([budget.info(), host_budget.info()], all, "what it had is not given back");
});
