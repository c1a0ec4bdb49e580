//! Descriptors on the client's side: a slot each, in a slab that is never unmapped. A handle is a slot's address, and is
//! found again by arithmetic: a program can pass any number without anything being read at it.
//!
//! A slot's words are atomics, so that a program that uses a descriptor on two threads at once, which the library
//! forbids, sees one content or the other, or a mixture, as with the library; and nothing worse.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arrayvec::ArrayVec;
use zerocopy::FromZeros;

use crate::contents::{Id, Sort};
use crate::descriptor::{Content, WORDS, Words};
use crate::sys::Mapped;

/// How many descriptors can live at a time. Memory is taken as they are first used.
pub const MAX_SLOTS: usize = 1 << 20;

/// How many free slots a thread hands over, or takes, at a time; and half of what it keeps at most.
const BATCH: usize = 32;

/// A descriptor, or room for one. Two lines of the processor's cache, which it loads and takes away together: so threads
/// whose descriptors are neighbours do not disturb each other.
#[derive(Debug, FromZeros)]
#[repr(C, align(128))]
pub struct Slot {
    /// [`Sort::number`] of the descriptor that lives here; 0 if none does.
    sort: AtomicU64,
    /// Counts the changes of the content.
    changes: AtomicU64,
    /// An id, and above it how many changes there had been when it was found: it is that of the content if there was
    /// none since, and else a guess at it. So an id that is found for a content that changes meanwhile is not taken for
    /// the new one's.
    id: AtomicU64,
    /// Where in its lane's queue the first id is wanted; see [`crate::predictor`].
    ticket: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// What a slot knows of its content's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    changes: u64,
    id: u64,
}

impl Identity {
    /// The id, if it is known.
    #[inline]
    #[must_use]
    pub fn id(self) -> Option<Id> {
        (self.id == tagged(self.changes, self.guess())).then(|| self.guess())
    }

    /// The id, or a guess at it.
    #[inline]
    #[must_use]
    pub fn guess(self) -> Id {
        Id(self.id & ((1 << Id::BITS) - 1))
    }
}

/// An id, and how many changes there had been; of these the last bits, which is enough for one who has found an id to be
/// late.
#[inline]
fn tagged(changes: u64, Id(id): Id) -> u64 {
    changes << Id::BITS | id
}

impl Slot {
    /// Does a descriptor of this sort live here?
    #[inline]
    fn is(&self, sort: Sort) -> bool {
        self.sort.load(Ordering::Acquire) == sort.number()
    }

    /// Its content.
    #[inline(always)]
    pub fn content<C: Content>(&self) -> C {
        C::from_words(&self.words(C::LEN))
    }

    #[inline(always)]
    fn words(&self, len: usize) -> Words {
        let mut words = [0; WORDS];
        words[..len].iter_mut().zip(&self.words).for_each(|(to, word)| *to = word.load(Ordering::Relaxed));
        words
    }

    /// What it knows of its content's id. For [`Slot::resolve`] it is to be asked before the content is read.
    #[inline]
    pub fn identity(&self) -> Identity {
        Identity { changes: self.changes.load(Ordering::Acquire), id: self.id.load(Ordering::Relaxed) }
    }

    /// The words of its content, each read when it comes.
    #[inline]
    pub fn read<C: Content>(&self) -> impl Iterator<Item = u64> {
        self.words[..C::LEN].iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Changes its content to this one. The id that it had is the guess at the new one's: programs set what they set
    /// before.
    #[inline(always)]
    pub fn change<C: Content>(&self, content: &C) {
        let words = content.to_words();
        if !self.read::<C>().eq(words[..C::LEN].iter().copied()) {
            self.put(&words[..C::LEN]);
            // After the last word: an id that somebody found for a mixture is of before.
            self.changed(self.identity().guess());
        }
    }

    #[inline(always)]
    fn changed(&self, guess: Id) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes.wrapping_add(1), Ordering::Release);
        // However many changes there were before, it is found at none of them.
        self.id.store(tagged(changes, guess), Ordering::Relaxed);
    }

    #[inline(always)]
    fn put(&self, words: &[u64]) {
        self.words.iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
    }

    /// Keeps the id of the content that was read after `identity`; it is the content's if that does not change any more.
    #[inline]
    pub fn resolve(&self, identity: Identity, id: Id) {
        self.id.store(tagged(identity.changes, id), Ordering::Relaxed);
    }

    /// The ticket, once.
    #[inline]
    pub fn take_ticket(&self) -> u64 {
        let ticket = self.ticket.load(Ordering::Relaxed);
        self.ticket.store(0, Ordering::Relaxed);
        ticket
    }
}

/// All slots of a process.
#[derive(Debug)]
pub struct Slots {
    slab: Mapped<Slot>,
    /// The first slot that was never used.
    fresh: AtomicU32,
    /// Free ones that no thread keeps.
    depot: Mutex<Vec<u32>>,
}

/// Free slots that a thread keeps for itself, the last one freed on top: it is in the thread's cache.
#[derive(Debug, Default)]
pub struct Magazine {
    free: ArrayVec<u32, { 2 * BATCH }>,
}

impl Slots {
    /// Room for so many descriptors.
    ///
    /// # Panics
    /// If there is not so much address space.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let slab = Mapped::alone(count).expect("address space for descriptors");
        Self { slab, fresh: AtomicU32::new(0), depot: Mutex::new(Vec::new()) }
    }

    /// Makes a descriptor with the content that new ones have, and gives its handle; none where there is no room.
    #[inline(always)]
    pub fn create<C: Content>(
        &self,
        magazine: &mut Magazine,
        sort: Sort,
        guess: Id,
        ticket: u64,
    ) -> Option<usize> {
        let slot = &self.slab.region()[self.take(magazine)? as usize];
        slot.put(&C::FRESH.to_words()[..C::LEN]);
        slot.changed(guess);
        slot.ticket.store(ticket, Ordering::Relaxed);
        slot.sort.store(sort.number(), Ordering::Release);
        Some(std::ptr::from_ref(slot).addr())
    }

    /// The descriptor of this handle, if it is one of this sort.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, handle: usize, sort: Sort) -> Option<&Slot> {
        self.slab.region().get(self.place(handle)?).filter(|slot| slot.is(sort))
    }

    /// Where in the slab a handle points; none for one that does not point at the beginning of a slot. It may be past
    /// the end.
    #[inline(always)]
    fn place(&self, handle: usize) -> Option<usize> {
        let offset = handle.wrapping_sub(self.slab.region().as_ptr().addr());
        offset.is_multiple_of(size_of::<Slot>()).then_some(offset / size_of::<Slot>())
    }

    /// Ends a descriptor. The flag tells whether there was one of this sort; of two threads that end the same one,
    /// one is told so.
    #[inline(always)]
    pub fn destroy(&self, magazine: &mut Magazine, handle: usize, sort: Sort) -> bool {
        let Some(place) = self.place(handle).filter(|place| *place < self.slab.region().len()) else {
            return false;
        };
        let slot = &self.slab.region()[place];
        let ended = slot.sort.compare_exchange(sort.number(), 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if ended {
            self.give(magazine, place as u32);
        }
        ended
    }

    #[inline(always)]
    fn take(&self, magazine: &mut Magazine) -> Option<u32> {
        magazine.free.pop().or_else(|| self.refill(magazine))
    }

    #[cold]
    fn refill(&self, magazine: &mut Magazine) -> Option<u32> {
        let mut depot = self.depot();
        let rest = depot.len().saturating_sub(BATCH);
        magazine.free.extend(depot.drain(rest..));
        drop(depot);
        magazine.free.pop().or_else(|| self.unused())
    }

    fn unused(&self) -> Option<u32> {
        let all = self.slab.region().len() as u32;
        let next = |used| (used < all).then_some(used + 1);
        self.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }

    #[inline(always)]
    fn give(&self, magazine: &mut Magazine, place: u32) {
        if magazine.free.is_full() {
            self.spill(magazine);
        }
        magazine.free.push(place);
    }

    #[cold]
    fn spill(&self, magazine: &mut Magazine) {
        self.depot().extend(magazine.free.drain(..BATCH));
    }

    /// Takes what a thread kept that ends.
    pub fn empty(&self, magazine: &mut Magazine) {
        self.depot().extend(magazine.free.drain(..));
    }

    /// How many slots were ever used.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.fresh.load(Ordering::Relaxed)
    }

    fn depot(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        // Nothing that is done under it can leave it half done.
        self.depot.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cudnn::Version;
    use crate::cudnn::convolution::Convolution;
    use crate::cudnn::tensor::Tensor;
    use crate::descriptor::Kind;

    const TENSOR: Sort = Sort { kind: Kind::Tensor, version: Version::V9 };
    const CONVOLUTION: Sort = Sort { kind: Kind::Convolution, version: Version::V9 };

    fn tensor(slots: &Slots, magazine: &mut Magazine) -> usize {
        slots.create::<Tensor>(magazine, TENSOR, Id::NONE, 0).unwrap()
    }

    #[test]
    fn a_handle_is_aligned_and_found_again() {
        let (slots, mut magazine) = (Slots::new(8), Magazine::default());
        let handle = tensor(&slots, &mut magazine);
        assert!(handle != 0 && handle.is_multiple_of(8));
        assert_eq!(slots.get(handle, TENSOR).unwrap().content::<Tensor>(), Tensor::FRESH);
    }

    #[test]
    fn what_is_no_handle_is_found_nowhere() {
        let (slots, mut magazine) = (Slots::new(8), Magazine::default());
        let handle = tensor(&slots, &mut magazine);
        let size = size_of::<Slot>();
        let wrong =
            [0, 1, usize::MAX, handle + 1, handle + 8, handle + size, handle + 8 * size, handle - size];
        for wrong in wrong {
            assert!(slots.get(wrong, TENSOR).is_none(), "{wrong:#x}");
            assert!(!slots.destroy(&mut magazine, wrong, TENSOR), "{wrong:#x}");
        }
        assert!(slots.get(handle, CONVOLUTION).is_none());
        assert!(slots.get(handle, Sort { version: Version::V8, ..TENSOR }).is_none());
        assert!(!slots.destroy(&mut magazine, handle, CONVOLUTION));
        assert!(slots.destroy(&mut magazine, handle, TENSOR));
        assert!(slots.get(handle, TENSOR).is_none(), "stale");
        assert!(!slots.destroy(&mut magazine, handle, TENSOR), "twice");
    }

    #[test]
    fn a_live_slot_is_never_handed_out() {
        let (slots, mut magazine) = (Slots::new(500), Magazine::default());
        let (mut live, mut peak) = (HashSet::new(), 0);
        for round in 0..if cfg!(miri) { 200 } else { 2000_usize } {
            if round % 7 < 3 && !live.is_empty() {
                let handle = *live.iter().nth(round % live.len()).unwrap();
                live.remove(&handle);
                assert!(slots.destroy(&mut magazine, handle, TENSOR));
            } else if live.len() < 500 {
                assert!(live.insert(tensor(&slots, &mut magazine)), "handed out twice");
            }
            peak = peak.max(live.len());
        }
        assert_eq!(slots.used() as usize, peak, "no more than lived at a time");
    }

    #[test]
    fn a_full_slab_has_no_room_until_one_ends() {
        let (slots, mut magazine) = (Slots::new(100), Magazine::default());
        let handles: Vec<usize> = (0..100).map(|_| tensor(&slots, &mut magazine)).collect();
        assert_eq!(slots.create::<Tensor>(&mut magazine, TENSOR, Id::NONE, 0), None);
        let mut theirs = Magazine::default();
        assert_eq!(slots.create::<Tensor>(&mut theirs, TENSOR, Id::NONE, 0), None);
        assert!(slots.destroy(&mut magazine, handles[3], TENSOR));
        slots.empty(&mut magazine);
        assert_eq!(slots.create::<Tensor>(&mut theirs, TENSOR, Id::NONE, 0), Some(handles[3]));
    }

    #[test]
    fn a_slot_begins_again_as_fresh_whatever_it_was() {
        let (slots, mut magazine) = (Slots::new(1), Magazine::default());
        let handle = slots.create::<Convolution>(&mut magazine, CONVOLUTION, Id::NONE, 0).unwrap();
        slots.get(handle, CONVOLUTION).unwrap().change(&Convolution { groups: 4, ..Convolution::FRESH });
        slots.destroy(&mut magazine, handle, CONVOLUTION);
        let again = slots.create::<Convolution>(&mut magazine, CONVOLUTION, Id::NONE, 0).unwrap();
        assert_eq!(again, handle);
        assert_eq!(slots.get(again, CONVOLUTION).unwrap().content::<Convolution>().groups, 1);
    }

    #[test]
    fn an_id_is_that_of_the_content_it_was_found_for() {
        let (slots, mut magazine) = (Slots::new(1), Magazine::default());
        let handle = slots.create::<Tensor>(&mut magazine, TENSOR, Id(7), 0).unwrap();
        let slot = slots.get(handle, TENSOR).unwrap();
        let set = |count| {
            let mut content = Tensor::FRESH;
            content.count = count;
            slot.change(&content);
        };
        let identity = slot.identity();
        assert_eq!((identity.id(), identity.guess()), (None, Id(7)));
        set(1);
        slot.resolve(identity, Id(8));
        assert_eq!(slot.identity().id(), None, "it has changed since");
        slot.resolve(slot.identity(), Id(9));
        assert_eq!(slot.identity().id(), Some(Id(9)));
        set(1);
        assert_eq!(slot.identity().id(), Some(Id(9)), "the same again");
        set(2);
        let identity = slot.identity();
        assert_eq!((identity.id(), identity.guess()), (None, Id(9)));
        slot.resolve(identity, Id(10));
        slots.destroy(&mut magazine, handle, TENSOR);
        tensor(&slots, &mut magazine);
        assert_eq!(slot.identity().id(), None, "another life");
        slot.resolve(slot.identity(), Id(11));
        // Its count, as far as it is kept, comes round to when the id was found.
        let changes = slot.changes.load(Ordering::Relaxed);
        slot.changes.store(changes + (1 << (u64::BITS - Id::BITS)) - 1, Ordering::Relaxed);
        set(3);
        assert_eq!(slot.identity().id(), None);
    }

    #[test]
    fn slots_that_cross_threads_come_back() {
        let slots = Slots::new(if cfg!(miri) { 500 } else { 10_000 });
        let (sender, receiver) = std::sync::mpsc::sync_channel(100);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut magazine, sender) = (Magazine::default(), sender);
                let moved = if cfg!(miri) { 300 } else { 100_000 };
                (0..moved).for_each(|_| sender.send(tensor(&slots, &mut magazine)).unwrap());
            });
            let mut magazine = Magazine::default();
            receiver.iter().for_each(|handle| assert!(slots.destroy(&mut magazine, handle, TENSOR)));
        });
        // What lives at a time, and what two threads keep.
        assert!(slots.used() <= 102 + 4 * BATCH as u32, "{}", slots.used());
    }
}
