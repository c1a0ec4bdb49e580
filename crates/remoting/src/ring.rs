//! The way of records from a client to its worker: a ring in shared memory, written by one side under the process's
//! lock, read by the other. Order is total, which makes threads and streams safe.
//!
//! Neither side is trusted to keep to the rules by the other: each keeps its own position to itself and publishes it;
//! what it reads of the other's is checked; and the reader copies a record out before anybody looks at it, so that one
//! that changes afterwards changes nothing.
//!
//! *Doorbells* are coalesced. The reader sleeps only on an empty ring, and says so. The writer looks at that once in
//! [`UNRUNG`] records, and when it is to wait for an answer ([`Writer::flush`]). A record that nobody waits for is
//! done by the reader's next [`NAP`] at the latest.

use crate::sync::{AtomicU64, NAP, Ordering, Region, Spin, fence, futex_wait, futex_wake};
use crate::wire::{MAX_WORDS, Malformed, Words};

/// How many records may lie in the ring without a doorbell.
pub const UNRUNG: u32 = if cfg!(loom) { 2 } else { 64 };

/// Where the writer says how far it has written, in words since the beginning.
const WRITTEN: usize = 0;
/// Where the reader says how far it has read. On a cache line of its own, like the next two.
const READ: usize = 16;
/// Where the reader says that it sleeps.
const READER_SLEEPS: usize = 32;
/// Where the writer says that it sleeps, for want of room.
const WRITER_SLEEPS: usize = 48;
/// Where the records begin.
const HEADER: usize = 64;

/// How many words a ring takes that has room for so many.
#[must_use]
pub const fn words(room: usize) -> usize {
    HEADER + room
}

/// The peer has died, or does not keep to the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

#[derive(Clone, Copy, Debug)]
struct Ring<'a> {
    words: Region<'a>,
    room: u64,
}

impl<'a> Ring<'a> {
    fn new(region: Region<'a>) -> Self {
        let room = (region.len() - HEADER) as u64;
        assert!(room.is_power_of_two() && room > 2 * MAX_WORDS as u64 || cfg!(loom));
        Self { words: region, room }
    }

    #[inline]
    fn at(&self, position: u64) -> &'a AtomicU64 {
        &self.words[HEADER + (position & (self.room - 1)) as usize]
    }
}

/// The client's end.
#[derive(Debug)]
pub struct Writer<'a> {
    ring: Ring<'a>,
    written: u64,
    /// How far the reader was when last looked.
    read: u64,
    unrung: u32,
    wakes: u64,
    spin: Spin,
}

impl<'a> Writer<'a> {
    /// The end of a ring in `region`, which is zero.
    ///
    /// # Panics
    /// If the region is not one of [`words`] of a power of two, or too small for two records.
    #[must_use]
    pub fn new(region: Region<'a>) -> Self {
        let ring = Ring::new(region);
        Self { ring, written: 0, read: 0, unrung: 0, wakes: 0, spin: Spin::default() }
    }

    /// Sends a record, which is in two parts. Where there is no room it waits for some, as long as the peer is `there`.
    ///
    /// # Errors
    /// `Gone` where it is not, or says that it has read what was not written.
    #[inline]
    pub fn send(&mut self, parts: [&[u64]; 2], there: impl Fn() -> bool) -> Result<(), Gone> {
        let len = (parts[0].len() + parts[1].len()) as u64;
        debug_assert!(len <= MAX_WORDS as u64, "a longer one is none to the reader");
        let size = 1 + len;
        if self.written + size - self.read > self.ring.room {
            self.make_room(size, there)?;
        }
        self.ring.at(self.written).store(len, Ordering::Relaxed);
        for (i, word) in (1..).zip(parts.into_iter().flatten()) {
            self.ring.at(self.written + i).store(*word, Ordering::Relaxed);
        }
        self.written += size;
        self.ring.words[WRITTEN].store(self.written, Ordering::Release);
        self.unrung += 1;
        if self.unrung == UNRUNG {
            self.flush();
        }
        Ok(())
    }

    /// Wakes the reader, if it sleeps and there are records that it was not woken for.
    #[inline]
    pub fn flush(&mut self) {
        if self.unrung == 0 {
            return;
        }
        self.unrung = 0;
        // After the record, before the look: either this side sees that the reader sleeps, or the reader, which
        // looks for records after it has said so, sees the record.
        fence(Ordering::SeqCst);
        let sleeps = &self.ring.words[READER_SLEEPS];
        if sleeps.load(Ordering::Relaxed) != 0 {
            sleeps.store(0, Ordering::Relaxed);
            futex_wake(sleeps);
            self.wakes += 1;
        }
    }

    /// How often it woke the reader.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    #[cold]
    fn make_room(&mut self, size: u64, there: impl Fn() -> bool) -> Result<(), Gone> {
        self.flush();
        let Self { ring, written, read, spin, .. } = self;
        // A reader ahead of the writer does not keep to the rules, and is not waited for.
        let mut look = || {
            *read = ring.words[READ].load(Ordering::Acquire);
            *read > *written || *written + size - *read <= ring.room
        };
        let sleeps = &ring.words[WRITER_SLEEPS];
        while !spin.until(&mut look) {
            sleeps.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !look() {
                futex_wait(sleeps, 1, NAP);
            }
            sleeps.store(0, Ordering::Relaxed);
            if !there() {
                return Err(Gone);
            }
        }
        if *read > *written { Err(Gone) } else { Ok(()) }
    }
}

/// The worker's end.
#[derive(Debug)]
pub struct Reader<'a> {
    ring: Ring<'a>,
    read: u64,
    spin: Spin,
}

impl<'a> Reader<'a> {
    /// The other end of [`Writer::new`].
    ///
    /// # Panics
    /// As that.
    #[must_use]
    pub fn new(region: Region<'a>) -> Self {
        Self { ring: Ring::new(region), read: 0, spin: Spin::default() }
    }

    /// Copies the next record, if there is one, to `record`. The flag tells.
    ///
    /// # Errors
    /// `Malformed` where the writer does not keep to the rules.
    #[inline]
    pub fn receive(&mut self, record: &mut Words) -> Result<bool, Malformed> {
        let before = self.written() - self.read;
        if before == 0 {
            return Ok(false);
        }
        // Of each word one copy is made, and only that is looked at.
        let len = self.ring.at(self.read).load(Ordering::Relaxed);
        if before > self.ring.room || len > MAX_WORDS as u64 || len >= before {
            return Err(Malformed);
        }
        record.clear();
        record.extend((1..=len).map(|i| self.ring.at(self.read + i).load(Ordering::Relaxed)));
        self.read += 1 + len;
        self.ring.words[READ].store(self.read, Ordering::Release);
        let half = self.ring.room / 2;
        if before > half && before - 1 - len <= half {
            self.wake_writer();
        }
        Ok(true)
    }

    /// How far the writer is; one that goes back does not keep to the rules and is taken to stay.
    #[inline]
    fn written(&self) -> u64 {
        self.ring.words[WRITTEN].load(Ordering::Acquire).max(self.read)
    }

    /// At half, so that the writer is back before the ring is empty. That is by what the reader knew of the writer, and
    /// so may be missed: [`Reader::wait`] makes sure.
    #[cold]
    fn wake_writer(&self) {
        fence(Ordering::SeqCst);
        let sleeps = &self.ring.words[WRITER_SLEEPS];
        if sleeps.load(Ordering::Relaxed) != 0 {
            sleeps.store(0, Ordering::Relaxed);
            futex_wake(sleeps);
        }
    }

    /// Waits for a record: until there is one, which it says, or for a [`NAP`].
    pub fn wait(&mut self) -> bool {
        self.wake_writer();
        let (ring, read) = (self.ring, self.read);
        let ready = || ring.words[WRITTEN].load(Ordering::Acquire) > read;
        if self.spin.until(ready) {
            return true;
        }
        let sleeps = &ring.words[READER_SLEEPS];
        sleeps.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            futex_wait(sleeps, 1, NAP);
        }
        sleeps.store(0, Ordering::Relaxed);
        ready()
    }
}

/// Wakes the reader, whether or not there is a record; one that is about to sleep may miss it, and sleeps for a [`NAP`].
#[cfg(not(loom))]
pub fn rouse(words: Region<'_>) {
    let sleeps = &words[READER_SLEEPS];
    sleeps.store(0, Ordering::Relaxed);
    futex_wake(sleeps);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ROOM: usize = 256;
    const MANY: u64 = if cfg!(miri) { 200 } else { 20_000 };

    fn region() -> Region<'static> {
        Box::leak((0..words(ROOM)).map(|_| AtomicU64::new(0)).collect())
    }

    fn record(of: impl IntoIterator<Item = u64>) -> Words {
        of.into_iter().collect()
    }

    #[test]
    fn records_come_out_as_they_went_in() {
        let region = region();
        let (mut writer, mut reader) = (Writer::new(region), Reader::new(region));
        let mut out = Words::new();
        assert_eq!(reader.receive(&mut out), Ok(false));
        // Often enough to go round, at every offset.
        for round in 0..MANY / 20 {
            let sent: Vec<Words> = (0..round % 4).map(|i| record(0..(round * 7 + i) % 60)).collect();
            sent.iter().for_each(|sent| writer.send([sent, &[]], || true).unwrap());
            for sent in &sent {
                assert_eq!(reader.receive(&mut out), Ok(true));
                assert_eq!(out, *sent);
            }
            assert_eq!(reader.receive(&mut out), Ok(false));
        }
    }

    #[test]
    fn a_writer_waits_for_room_and_both_for_each_other() {
        let region = region();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = Writer::new(region);
                for i in 0..MANY {
                    writer.send([&record((0..i % 60).map(|j| i * 100 + j)), &[]], || true).unwrap();
                }
                writer.flush();
            });
            let (mut reader, mut out) = (Reader::new(region), Words::new());
            for i in 0..MANY {
                while !reader.receive(&mut out).unwrap() {
                    reader.wait();
                }
                assert_eq!(out, record((0..i % 60).map(|j| i * 100 + j)));
            }
        });
    }

    #[test]
    fn a_full_ring_whose_reader_is_gone_is_an_error() {
        let mut writer = Writer::new(region());
        let sent = (0..100).map(|_| writer.send([&record(0..60), &[]], || false)).find(Result::is_err);
        assert_eq!(sent, Some(Err(Gone)));
    }

    #[test]
    fn doorbells_are_rung_once_in_so_many_records() {
        let region = region();
        let mut writer = Writer::new(region);
        let sleeps = || region[READER_SLEEPS].store(1, Ordering::Relaxed);
        sleeps();
        for _ in 0..UNRUNG - 1 {
            writer.send([&record([]), &[]], || true).unwrap();
        }
        assert_eq!(writer.wakes(), 0);
        writer.send([&record([]), &[]], || true).unwrap();
        assert_eq!(writer.wakes(), 1);
        sleeps();
        writer.flush();
        assert_eq!(writer.wakes(), 1, "there is nothing that it was not woken for");
        writer.send([&record([]), &[]], || true).unwrap();
        writer.flush();
        assert_eq!(writer.wakes(), 2);
        writer.send([&record([]), &[]], || true).unwrap();
        writer.flush();
        assert_eq!(writer.wakes(), 2, "it is awake");
    }

    #[test]
    fn a_writer_that_does_not_keep_to_the_rules_is_found_out() {
        let written_and_len = [(1, 1), (300, 3), (10, 10), (10, u64::MAX), (u64::MAX, 3), (100, 63)];
        for (written, len) in written_and_len {
            let region = region();
            let mut reader = Reader::new(region);
            region[HEADER].store(len, Ordering::Relaxed);
            region[WRITTEN].store(written, Ordering::Relaxed);
            assert_eq!(reader.receive(&mut Words::new()), Err(Malformed), "{written} {len}");
        }
    }

    /// Whatever a client writes while its worker reads, the worker gets records or an error.
    #[test]
    fn a_hostile_writer_cannot_make_the_reader_fail() {
        let region = region();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = 1_u64;
                while !done.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                    let place = (random >> 33) as usize % region.len();
                    let word = if place < HEADER { WRITTEN } else { place };
                    let value = if random >> 60 == 0 { random } else { random >> 57 };
                    region[word].store(value, Ordering::Relaxed);
                }
            });
            let (mut records, mut errors, mut out) = (0, 0, Words::new());
            let mut reader = Reader::new(region);
            while records < MANY / 2 || errors < MANY / 20 {
                match reader.receive(&mut out) {
                    Ok(received) => records += u64::from(received),
                    Err(Malformed) => {
                        errors += 1;
                        reader = Reader::new(region);
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_writer_that_goes_back_has_nothing() {
        let region = region();
        let (mut writer, mut reader) = (Writer::new(region), Reader::new(region));
        writer.send([&record(0..5), &[]], || true).unwrap();
        reader.receive(&mut Words::new()).unwrap();
        region[WRITTEN].store(2, Ordering::Relaxed);
        assert_eq!(reader.receive(&mut Words::new()), Ok(false));
    }

    #[test]
    fn a_reader_ahead_of_the_writer_is_gone() {
        let region = region();
        let mut writer = Writer::new(region);
        region[READ].store(u64::MAX, Ordering::Relaxed);
        let sent = (0..100).map(|_| writer.send([&record(0..60), &[]], || true)).find(Result::is_err);
        assert_eq!(sent, Some(Err(Gone)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;

    fn region(room: usize) -> Region<'static> {
        Box::leak((0..words(room)).map(|_| AtomicU64::new(0)).collect())
    }

    /// The reader gets all that was sent, whole and in order, and whoever sleeps is woken: else the model would end
    /// with all threads asleep.
    fn sent_is_received(room: usize, records: u64, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let region = region(room);
            let reader = thread::spawn(move || {
                let (mut reader, mut out) = (Reader::new(region), Words::new());
                for i in 0..records {
                    while !reader.receive(&mut out).unwrap() {
                        reader.wait();
                    }
                    assert_eq!(out[..], [i + 1]);
                }
            });
            let mut writer = Writer::new(region);
            for i in 0..records {
                writer.send([&[i + 1], &[]], || true).unwrap();
            }
            writer.flush();
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_sleeping_reader_is_woken() {
        sent_is_received(8, 2, 3);
    }

    #[test]
    fn a_doorbell_after_the_last_record_is_enough() {
        sent_is_received(8, 3, 3);
    }

    #[test]
    fn a_writer_without_room_is_woken() {
        sent_is_received(4, 3, 2);
    }
}
