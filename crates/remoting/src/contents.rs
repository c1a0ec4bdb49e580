//! The contents that descriptors have had, each once: a table in shared memory that the client writes and the worker
//! reads. A content's place in it is its [`Id`], which is all that a compute record says of a descriptor.
//!
//! An entry is written once in an *epoch*, with its mark last, and a mark is never used again. So whoever reads the
//! mark it expects, then the words, then the same mark, has read the content of that id, without any lock. When the
//! table is full, the client waits until the worker has no record left and begins the next epoch; ids of the
//! last one are then no content's any more.

use crate::cudnn::Version;
use crate::descriptor::{Kind, WORDS, Words};
use crate::sync::{AtomicU64, Ordering, Region, fence};

/// The words of an entry: its mark, and the content; and as many more as make it two lines of the processor's cache. A
/// content of two is enough for `loom` to see half of one, and all that it can try all orders of.
const ENTRY: usize = if cfg!(loom) { 3 } else { 16 };

const _: () = assert!(cfg!(loom) || ENTRY > WORDS);
// The hash takes two at a time.
const _: () = assert!(WORDS.is_multiple_of(2));

type Entry = [AtomicU64; ENTRY];

/// The bits of an id that say the place.
const PLACE_BITS: u32 = 16;

/// How many contents there can be in an epoch. Programs have some dozens; one that never repeats a shape has
/// thousands.
pub const CAPACITY: usize = 1 << PLACE_BITS;

/// What a descriptor is to the library, whatever its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    /// Its kind.
    pub kind: Kind,
    /// Of which library.
    pub version: Version,
}

impl Sort {
    /// As a number that is never 0, of 16 bits.
    #[must_use]
    pub fn number(self) -> u64 {
        self.kind as u64 | (self.version as u64) << 8
    }

    /// The sort with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        let kind = Kind::from_number(number as u8)?;
        let version = Version::ALL.into_iter().find(|version| *version as u64 == number >> 8)?;
        Some(Self { kind, version })
    }
}

/// A content: the epoch, and below it the place in the table. 0 is none, and place 0 stays empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub u64);

impl Id {
    /// No content.
    pub const NONE: Self = Self(0);
    /// How many bits an id has: enough for thirty years of a thousand new contents a second.
    pub const BITS: u32 = 40;

    fn new(Epoch(epoch): Epoch, place: usize) -> Self {
        Self(epoch << PLACE_BITS | place as u64)
    }

    /// The one that it is of.
    #[inline]
    #[must_use]
    pub fn epoch(self) -> Epoch {
        Epoch(self.0 >> PLACE_BITS)
    }

    #[inline]
    fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }
}

/// An epoch's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// How many words a table of so many contents takes.
#[must_use]
pub const fn words(capacity: usize) -> usize {
    capacity * ENTRY
}

/// What is written in the mark of an entry that has this content.
#[inline]
fn mark(id: Id, sort: Sort) -> u64 {
    id.epoch().0 << 16 | sort.number()
}

/// The entries of a region.
fn entries(region: Region<'_>) -> &[Entry] {
    let (entries, rest) = region.as_chunks();
    assert!(entries.len().is_power_of_two() && entries.len() <= CAPACITY && rest.is_empty());
    entries
}

/// The client's side. All methods but [`Contents::intern`] are free of locks.
#[derive(Debug)]
pub struct Contents<'a> {
    table: &'a [Entry],
    /// Ids by the hash of their contents. One of an earlier epoch is an empty place.
    index: Box<[AtomicU64]>,
}

/// The right to add contents; there is one.
#[derive(Debug)]
pub struct Writer {
    /// The id of the next content.
    next: Id,
}

/// The table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl<'a> Contents<'a> {
    /// A table in `region`, which is zero.
    ///
    /// # Panics
    /// If the region is not one of [`words`] of a power of two, which is [`CAPACITY`] at most.
    #[must_use]
    pub fn new(region: Region<'a>) -> (Self, Writer) {
        let table = entries(region);
        let index = (0..2 * table.len()).map(|_| AtomicU64::new(0)).collect();
        (Self { table, index }, Writer { next: Id(1) })
    }

    /// Has `id` this content? `content` is the words of the sort.
    #[inline]
    #[must_use]
    pub fn holds(&self, id: Id, sort: Sort, content: impl Iterator<Item = u64>) -> bool {
        let mark = mark(id, sort);
        let Some([is, words @ ..]) = self.table.get(id.place()) else { return false };
        is.load(Ordering::Acquire) == mark
            && words.iter().zip(content).all(|(is, wanted)| is.load(Ordering::Relaxed) == wanted)
            && {
                // Any word of the next epoch that was read is after that epoch's clearing of the mark.
                fence(Ordering::Acquire);
                is.load(Ordering::Relaxed) == mark
            }
    }

    /// The content's id, if it has one in this epoch.
    #[must_use]
    pub fn find(&self, epoch: Epoch, sort: Sort, content: &Words) -> Option<Id> {
        self.probe(sort, content)
            .map(|place| Id(self.index[place].load(Ordering::Relaxed)))
            .take_while(|id| is_of(*id, epoch))
            .find(|id| self.holds(*id, sort, content.iter().copied()))
    }

    /// The places of the index that the content can be at, in the order in which they fill.
    #[inline]
    fn probe(&self, sort: Sort, content: &Words) -> impl Iterator<Item = usize> {
        let places = self.index.len();
        let first = hash(sort, content) as usize;
        (0..places).map(move |step| first.wrapping_add(step) & (places - 1))
    }

    /// The content's id: the one it has, or a new one. The flag tells whether it is new.
    ///
    /// # Errors
    /// `Full` where it has none and the epoch has no more.
    pub fn intern(&self, writer: &mut Writer, sort: Sort, content: &Words) -> Result<(Id, bool), Full> {
        let epoch = writer.next.epoch();
        if let Some(id) = self.find(epoch, sort, content) {
            return Ok((id, false));
        }
        let id = writer.next;
        // The last id is not used: after that of a table of the largest capacity comes place 0 of the next epoch.
        if id.place() == self.table.len() - 1 {
            return Err(Full);
        }
        writer.next = Id(id.0 + 1);
        self.write(id, sort, content);
        let mut places = self.probe(sort, content);
        let empty = places.find(|place| !is_of(Id(self.index[*place].load(Ordering::Relaxed)), epoch));
        if let Some(place) = empty {
            // Whoever finds it looks at the mark, which says what is written.
            self.index[place].store(id.0, Ordering::Relaxed);
        }
        Ok((id, true))
    }

    fn write(&self, id: Id, sort: Sort, content: &Words) {
        let [is, words @ ..] = &self.table[id.place()];
        is.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        words.iter().zip(content).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
        is.store(mark(id, sort), Ordering::Release);
    }

    /// The epoch that the writer is in.
    #[must_use]
    pub fn epoch(&self, writer: &Writer) -> Epoch {
        writer.next.epoch()
    }

    /// Begins the next epoch. No record with an id of this one may be left for the worker.
    pub fn next_epoch(&self, writer: &mut Writer) -> Epoch {
        let Epoch(epoch) = writer.next.epoch();
        writer.next = Id::new(Epoch(epoch + 1), 1);
        writer.next.epoch()
    }
}

#[inline]
fn is_of(id: Id, epoch: Epoch) -> bool {
    id.epoch() == epoch && id != Id::NONE
}

/// Products of two words each, by their two halves: not one after the other, so that the processor need not wait for one
/// to begin the next.
#[inline]
fn hash(sort: Sort, content: &Words) -> u64 {
    const ODD: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93];
    let mut sum = sort.number();
    for (i, [one, other]) in (1..).zip(content.as_chunks().0) {
        let product = u128::from(one ^ ODD[0].wrapping_mul(i)) * u128::from(other ^ ODD[1]);
        sum = sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
    }
    sum
}

/// The worker's side. A content is copied when its id is first seen, so that one that a client changes afterwards
/// stays what it was.
#[derive(Debug)]
pub struct Seen<'a> {
    table: &'a [Entry],
    epoch: Epoch,
    contents: Vec<Option<(Sort, Words)>>,
}

impl<'a> Seen<'a> {
    /// None yet, of the table in `region`; see [`Contents::new`].
    ///
    /// # Panics
    /// As [`Contents::new`].
    #[must_use]
    pub fn new(region: Region<'a>) -> Self {
        Self { table: entries(region), epoch: Epoch(0), contents: Vec::new() }
    }

    /// The content of an id; none where no client that keeps to the rules would send it.
    pub fn content(&mut self, id: Id) -> Option<(Sort, Words)> {
        let (epoch, place) = (id.epoch(), id.place());
        if epoch > self.epoch {
            self.contents.clear();
            self.epoch = epoch;
        }
        if epoch < self.epoch || place == 0 {
            return None;
        }
        let entry = self.table.get(place)?;
        if self.contents.len() <= place {
            self.contents.resize(place + 1, None);
        }
        if self.contents[place].is_none() {
            self.contents[place] = copy(entry, id);
        }
        self.contents[place]
    }
}

/// The content of an id, if that is what is in its entry.
fn copy([is, content @ ..]: &Entry, id: Id) -> Option<(Sort, Words)> {
    let is = is.load(Ordering::Acquire);
    let sort = Sort::from_number(is & 0xFFFF)?;
    let mut words = [0; WORDS];
    words.iter_mut().zip(content).for_each(|(to, word)| *to = word.load(Ordering::Relaxed));
    (is == mark(id, sort)).then_some((sort, words))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SORT: Sort = Sort { kind: Kind::Tensor, version: Version::V9 };

    fn region(capacity: usize) -> Region<'static> {
        Box::leak((0..words(capacity)).map(|_| AtomicU64::new(0)).collect())
    }

    fn content(number: u64) -> Words {
        [number; WORDS]
    }

    #[test]
    fn a_content_has_one_id_whoever_asks() {
        let (contents, mut writer) = Contents::new(region(64));
        let (first, new) = contents.intern(&mut writer, SORT, &content(1)).unwrap();
        assert!(new && first != Id::NONE);
        let (second, new) = contents.intern(&mut writer, SORT, &content(2)).unwrap();
        assert!(new && second != first);
        assert_eq!(contents.intern(&mut writer, SORT, &content(1)), Ok((first, false)));
        let epoch = contents.epoch(&writer);
        assert_eq!(contents.find(epoch, SORT, &content(2)), Some(second));
        assert_eq!(contents.find(epoch, SORT, &content(3)), None);
        assert!(contents.holds(first, SORT, content(1).into_iter()));
        assert!(!contents.holds(first, SORT, content(2).into_iter()));
        assert!(!contents.holds(Id::NONE, SORT, [0; WORDS].into_iter()));
    }

    #[test]
    fn equal_words_of_another_sort_are_another_content() {
        let (contents, mut writer) = Contents::new(region(64));
        let (tensor, _) = contents.intern(&mut writer, SORT, &content(1)).unwrap();
        for sort in [Sort { kind: Kind::Filter, ..SORT }, Sort { version: Version::V8, ..SORT }] {
            assert!(!contents.holds(tensor, sort, content(1).into_iter()));
            assert_ne!(contents.intern(&mut writer, sort, &content(1)).unwrap().0, tensor);
        }
    }

    #[test]
    fn a_full_table_says_so_and_goes_on_in_the_next_epoch() {
        let (contents, mut writer) = Contents::new(region(8));
        let mut ids = Vec::new();
        for number in 0..6 {
            ids.push(contents.intern(&mut writer, SORT, &content(number)).unwrap().0);
        }
        assert_eq!(contents.intern(&mut writer, SORT, &content(6)), Err(Full));
        assert_eq!(contents.intern(&mut writer, SORT, &content(5)), Ok((ids[5], false)));
        let epoch = contents.next_epoch(&mut writer);
        assert_eq!(contents.find(epoch, SORT, &content(0)), None);
        let (again, new) = contents.intern(&mut writer, SORT, &content(6)).unwrap();
        assert!(new && again != ids[0] && again.epoch() == epoch);
        assert!(!contents.holds(ids[0], SORT, content(0).into_iter()), "overwritten");
    }

    #[test]
    #[cfg_attr(miri, ignore = "two million words")]
    #[should_panic(expected = "CAPACITY")]
    fn a_table_has_no_more_places_than_ids() {
        let _ = Contents::new(region(2 * CAPACITY));
    }

    /// Its lower bits say the place in the index.
    #[test]
    fn each_word_counts_in_the_hash_and_each_half_of_it() {
        let mut hashes = HashSet::new();
        for (at, shift, number) in
            (0..WORDS).flat_map(|at| (0..20).map(move |i| (at, 32 * (i % 2), 1 + i / 2)))
        {
            let mut words = content(7);
            words[at] ^= number << shift;
            hashes.insert(hash(SORT, &words) % (1 << 17));
        }
        // Of 240 in so many places, less than one pair at the average.
        assert!(hashes.len() >= 20 * WORDS - 2, "{}", hashes.len());
        let pairs: Words = std::array::from_fn(|i| i as u64);
        let mut swapped = pairs;
        swapped.rotate_left(2);
        assert_ne!(hash(SORT, &pairs), hash(SORT, &swapped));
    }

    #[test]
    fn the_worker_keeps_what_it_saw_first() {
        let table = region(8);
        let (contents, mut writer) = Contents::new(table);
        let (id, _) = contents.intern(&mut writer, SORT, &content(1)).unwrap();
        let mut seen = Seen::new(table);
        assert_eq!(seen.content(id), Some((SORT, content(1))));
        table.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        assert_eq!(seen.content(id), Some((SORT, content(1))));
    }

    #[test]
    fn ids_that_no_content_has_are_none_to_the_worker() {
        let table = region(8);
        let (contents, mut writer) = Contents::new(table);
        let (id, _) = contents.intern(&mut writer, SORT, &content(1)).unwrap();
        let mut seen = Seen::new(table);
        for wrong in [0, id.0 + 1, 7, 8, u64::MAX, u64::MAX << PLACE_BITS, u64::MAX << PLACE_BITS | 1] {
            assert_eq!(seen.content(Id(wrong)), None, "{wrong}");
        }
        // It has seen an id of the last epoch there is.
        assert_eq!(seen.content(id), None);
    }

    #[test]
    fn the_worker_forgets_an_epoch_with_the_next() {
        let table = region(8);
        let (contents, mut writer) = Contents::new(table);
        let (old, _) = contents.intern(&mut writer, SORT, &content(1)).unwrap();
        let mut seen = Seen::new(table);
        seen.content(old);
        contents.next_epoch(&mut writer);
        let (new, _) = contents.intern(&mut writer, SORT, &content(2)).unwrap();
        assert_eq!(seen.content(new), Some((SORT, content(2))));
        assert_eq!(seen.content(old), None);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    const SORT: Sort = Sort { kind: Kind::Tensor, version: Version::V9 };

    fn region(capacity: usize) -> Region<'static> {
        Box::leak((0..words(capacity)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Two words that differ, so that half a content is seen to be one.
    fn content(number: u64) -> Words {
        let mut words = [0; WORDS];
        (words[0], words[1]) = (number, number);
        words
    }

    /// While one thread writes an entry anew in the next epoch, another takes it for neither half of both contents,
    /// nor for one under the other's id.
    #[test]
    fn an_entry_is_never_half_of_two_contents() {
        let mut mixed = content(1);
        mixed[1] = 2;
        for (epoch, wrong) in [(0, mixed), (1, mixed), (0, content(2)), (1, content(1))] {
            loom::model(move || {
                let (contents, mut writer) = Contents::new(region(4));
                contents.intern(&mut writer, SORT, &content(1)).unwrap();
                contents.next_epoch(&mut writer);
                let contents = Arc::new(contents);
                let theirs = Arc::clone(&contents);
                let thread = thread::spawn(move || {
                    assert!(!theirs.holds(Id::new(Epoch(epoch), 1), SORT, wrong.into_iter()))
                });
                contents.intern(&mut writer, SORT, &content(2)).unwrap();
                thread.join().unwrap();
            });
        }
    }

    /// An id that another thread can find has its content.
    #[test]
    fn what_is_found_is_whole() {
        loom::model(|| {
            let (contents, mut writer) = Contents::new(region(4));
            let epoch = contents.epoch(&writer);
            let contents = Arc::new(contents);
            let theirs = Arc::clone(&contents);
            let thread = thread::spawn(move || theirs.find(epoch, SORT, &content(1)));
            let (id, _) = contents.intern(&mut writer, SORT, &content(1)).unwrap();
            let found = thread.join().unwrap();
            assert!(found.is_none_or(|found| found == id));
        });
    }
}
