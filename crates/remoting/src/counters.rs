//! What a process counts of its calls, in memory that it shares with its worker: there the numbers are also once it has
//! died. The client alone writes, in relaxed stores; to the worker they are numbers and text of a stranger, and nothing
//! but what it says of that client depends on them.
//!
//! A thread counts in a *block* of its own, a cache line, so that it costs a load and a store. More threads than there
//! are blocks share one, with additions that are atomic. A block keeps its numbers when its thread ends, and goes to
//! another thread.

use std::ops::AddAssign;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sync::{AtomicU64, Ordering, Region};

/// Blocks: the first is all threads', the others are one thread's at a time. As many as a word has bits.
const BLOCKS: usize = 64;

/// The words of a block.
const BLOCK: usize = 8;

/// A block. It is in memory that the worker reads.
pub type Block = [AtomicU64; BLOCK];

/// How many functions that are not served are named.
pub const NAMES: usize = 32;

/// The words of a name: 64 bytes, of which the last is 0. CUDA's longest have 56.
const TEXT: usize = 8;

/// The words of what is not served: how often others were called than those that are named; of each that is, how often,
/// and its name.
const UNSERVED: usize = 1 + NAMES * (1 + TEXT);

/// The words of all.
pub const WORDS: usize = BLOCKS * BLOCK + UNSERVED;

/// What is counted, by its word in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Calls of API functions, of all libraries.
    Calls,
    /// Records sent.
    Records,
    /// How often the worker was woken for them.
    Wakes,
    /// Contents found by a compare.
    Predicted,
    /// Contents found by a lookup.
    Known,
    /// Contents not found.
    New,
    /// Bytes of the program's that were moved to the device, or from it.
    Bytes,
}

/// What a process has counted, or several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// See [`Counter::Calls`], as of all of these.
    pub calls: u64,
    /// Records.
    pub records: u64,
    /// Wake-ups.
    pub wakes: u64,
    /// By a compare.
    pub predicted: u64,
    /// By a lookup.
    pub known: u64,
    /// Not found.
    pub new: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Of a stranger's numbers the sum is no larger than there are numbers.
impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let Self { calls, records, wakes, predicted, known, new, bytes } = self;
        let pairs = [
            (calls, other.calls),
            (records, other.records),
            (wakes, other.wakes),
            (predicted, other.predicted),
            (known, other.known),
            (new, other.new),
            (bytes, other.bytes),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
}

/// The counters of a process, its own end of them.
#[derive(Debug)]
pub struct Counters<'a> {
    blocks: &'a [Block; BLOCKS],
    /// A bit for each block that no thread has.
    free: Mutex<u64>,
}

impl<'a> Counters<'a> {
    /// In `region`, which is zero.
    ///
    /// # Panics
    /// If it is not of [`WORDS`], as all that is given one.
    #[must_use]
    pub fn new(region: Region<'a>) -> Self {
        Self { blocks: blocks(region), free: Mutex::new(u64::MAX - 1) }
    }

    /// A block for a thread that begins, if one is left.
    pub fn enter(&self) -> Option<&'a Block> {
        let mut free = self.lock();
        let number = free.trailing_zeros();
        *free &= !1_u64.checked_shl(number)?;
        Some(&self.blocks[number as usize])
    }

    /// Takes back what a thread had that ends.
    pub fn leave(&self, block: &Block) {
        let number = self.blocks.iter().position(|one| std::ptr::eq(one, block));
        *self.lock() |= number.map_or(0, |number| 1 << number);
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one, of a thread that has this block, or none.
    #[inline]
    pub fn count(&self, own: Option<&Block>, counter: Counter) {
        match own {
            Some(block) => {
                let word = &block[counter as usize];
                word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            None => self.add(counter, 1),
        }
    }

    /// Adds so many, of any thread.
    pub fn add(&self, counter: Counter, count: u64) {
        self.blocks[0][counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        sum(self.blocks)
    }
}

fn blocks(region: Region<'_>) -> &[Block; BLOCKS] {
    region.as_chunks().0.first_chunk().expect("a region of `WORDS`")
}

/// Says how far a counter is that one writer at a time has, which counts for itself.
pub fn set(region: Region<'_>, counter: Counter, count: u64) {
    blocks(region)[0][counter as usize].store(count, Ordering::Relaxed);
}

fn sum(blocks: &[Block; BLOCKS]) -> Counts {
    let mut sum = Counts::default();
    for block in blocks {
        let get = |counter: Counter| block[counter as usize].load(Ordering::Relaxed);
        sum += Counts {
            calls: get(Counter::Calls),
            records: get(Counter::Records),
            wakes: get(Counter::Wakes),
            predicted: get(Counter::Predicted),
            known: get(Counter::Known),
            new: get(Counter::New),
            bytes: get(Counter::Bytes),
        };
    }
    sum
}

/// Says how often a function was called that is not served, the `index`th that there is such; to be called under a lock
/// of the caller's. Beyond [`NAMES`] functions are only counted together, and so are `others` in all.
pub fn put_unserved(region: Region<'_>, index: usize, name: &str, count: u64, others: u64) {
    let words = &region[BLOCKS * BLOCK..];
    words[0].store(others, Ordering::Relaxed);
    let Some([of, text @ ..]) = words[1..].chunks_exact(1 + TEXT).nth(index) else { return };
    let mut bytes = [0; 8 * TEXT];
    let len = name.len().min(bytes.len() - 1);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    for (to, word) in text.iter().zip(bytes.as_chunks().0) {
        to.store(u64::from_le_bytes(*word), Ordering::Relaxed);
    }
    // The name is there before it counts.
    of.store(count, Ordering::Release);
}

/// What processes have counted, and what they called that is not served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Their counts.
    pub counts: Counts,
    /// The functions that were named, [`NAMES`] at most, and how often each was called. Each is a name of C's: nothing
    /// in it is to be escaped, wherever it goes.
    pub unserved: Vec<(String, u64)>,
    /// How often others were called.
    pub others: u64,
}

impl Totals {
    /// What a stranger says in its `region`, of [`WORDS`].
    #[must_use]
    pub fn read(region: Region<'_>) -> Self {
        let words = &region[BLOCKS * BLOCK..];
        let mut totals = Self { counts: sum(blocks(region)), ..Self::default() };
        totals.others = words[0].load(Ordering::Relaxed);
        for words in words[1..].chunks_exact(1 + TEXT) {
            let count = words[0].load(Ordering::Acquire);
            if count > 0 {
                totals.add_unserved(name(&words[1..]), count);
            }
        }
        totals
    }

    /// A name that cannot be one, or is one too many, is among the others.
    fn add_unserved(&mut self, name: Option<String>, count: u64) {
        let sum = match name.and_then(|name| self.index(name)) {
            Some(index) => &mut self.unserved[index].1,
            None => &mut self.others,
        };
        *sum = sum.saturating_add(count);
    }

    fn index(&mut self, name: String) -> Option<usize> {
        let known = self.unserved.iter().position(|(known, _)| *known == name);
        if known.is_none() && self.unserved.len() < NAMES {
            self.unserved.push((name, 0));
            return Some(self.unserved.len() - 1);
        }
        known
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.others = self.others.saturating_add(other.others);
        other.unserved.into_iter().for_each(|(name, count)| self.add_unserved(Some(name), count));
    }
}

/// A name of C's that is written in these words.
fn name(words: &[AtomicU64]) -> Option<String> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    let name = bytes.split(|byte| *byte == 0).next()?;
    let is_name = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    // Without its end it is none.
    (is_name && name.len() < bytes.len()).then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn what_is_counted_is_what_the_other_side_reads() {
        let region = region();
        let counters = Counters::new(&region);
        let thread = counters.enter();
        for (times, counter) in [
            (1, Counter::Calls),
            (2, Counter::Records),
            (3, Counter::Wakes),
            (4, Counter::Predicted),
            (5, Counter::Known),
            (6, Counter::New),
        ] {
            (0..times).for_each(|_| counters.count(thread, counter));
        }
        counters.count(None, Counter::Bytes);
        counters.add(Counter::Bytes, 6);
        let counts = Counts { calls: 1, records: 2, wakes: 3, predicted: 4, known: 5, new: 6, bytes: 7 };
        assert_eq!(counters.counts(), counts);
        assert_eq!(Totals::read(&region), Totals { counts, ..Totals::default() });
    }

    /// Twice as many at a time as there are blocks, and all of them one after the other: each call is counted.
    #[test]
    fn threads_beyond_the_blocks_share_one_and_none_is_forgotten() {
        const EACH: u64 = 100_000;
        let region = region();
        let counters = Counters::new(&region);
        let barrier = std::sync::Barrier::new(2 * BLOCKS);
        std::thread::scope(|scope| {
            for _ in 0..2 * BLOCKS {
                scope.spawn(|| {
                    let thread = counters.enter();
                    barrier.wait();
                    (0..EACH).for_each(|_| counters.count(thread, Counter::Calls));
                    thread.into_iter().for_each(|block| counters.leave(block));
                });
            }
        });
        assert_eq!(counters.counts().calls, 2 * BLOCKS as u64 * EACH);
        let number = |block: &Block| blocks(&region).iter().position(|one| std::ptr::eq(one, block));
        let numbers: Vec<_> = std::iter::from_fn(|| counters.enter().map(number)).collect();
        assert!(numbers.iter().copied().eq((1..BLOCKS).map(Some)), "all but the one that threads share");
        counters.leave(&blocks(&region)[7]);
        assert_eq!([counters.enter().map(number), counters.enter().map(number)], [Some(Some(7)), None]);
    }

    #[test]
    fn names_come_back_and_those_that_can_be_none_are_counted_with_the_others() {
        let region = region();
        put_unserved(&region, 0, "cudnnCTCLoss", 2, 0);
        put_unserved(&region, 0, "cudnnCTCLoss", 3, 0);
        let longest = "x".repeat(63);
        put_unserved(&region, 1, &longest, 1, 0);
        let mut totals = Totals::read(&region);
        assert_eq!(totals.unserved, [("cudnnCTCLoss".into(), 3), (longest, 1)]);
        for (index, name) in [(2, "a\"b"), (3, "\u{1b}[2J"), (4, ""), (5, "caf\u{e9}")] {
            put_unserved(&region, index, name, 10, 0);
        }
        // Without an end.
        region[WORDS - TEXT..]
            .iter()
            .for_each(|word| word.store(u64::from_le_bytes([b'a'; 8]), Ordering::Relaxed));
        region[WORDS - TEXT - 1].store(10, Ordering::Relaxed);
        totals.others = 50;
        assert_eq!(Totals::read(&region), totals);
    }

    #[test]
    fn there_are_only_so_many_names_whatever_is_added() {
        let mut all = Totals::default();
        for process in 0..10 {
            let region = region();
            for index in 0..NAMES + 5 {
                put_unserved(&region, index, &format!("f{process}_{index}"), 1, index as u64 % 2);
            }
            all += Totals::read(&region);
        }
        assert_eq!((all.unserved.len(), all.others), (NAMES, 9 * NAMES as u64));
    }

    #[test]
    fn a_strangers_numbers_are_never_too_large_to_be_added() {
        let region = region();
        region.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        let mut all = Totals::read(&region);
        all += Totals::read(&region);
        assert_eq!((all.counts.calls, all.counts.bytes, all.others), (u64::MAX, u64::MAX, u64::MAX));
        assert_eq!(all.unserved, []);
        put_unserved(&region, 0, "cuFoo", u64::MAX, 0);
        all += Totals::read(&region);
        all += Totals::read(&region);
        assert_eq!(all.unserved, [("cuFoo".into(), u64::MAX)]);
    }
}
