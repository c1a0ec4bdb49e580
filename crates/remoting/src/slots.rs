//! Descriptors on the client's side: a slot each, in a slab that is never unmapped. A handle is a slot's address, and is
//! found again by arithmetic: a program can pass any number without anything being read at it.
//!
//! A slot's words are atomics, so that a program that uses a descriptor on two threads at once, which the library
//! forbids, sees one content or the other, or a mixture, as with the library; and nothing worse.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use zerocopy::{FromZeros, KnownLayout};

use crate::contents::{Id, Sort};
use crate::descriptor::{Content, WORDS, Words};

/// How many descriptors can live at a time. Memory is taken as they are first used.
pub const MAX_SLOTS: usize = 1 << 20;

/// How many free slots a thread hands over, or takes, at a time; and half of what it keeps.
const BATCH: usize = 32;

/// Says of an identity that it is that of the content.
const RESOLVED: u64 = 1 << 63;
/// Counts the changes of a content, in an identity.
const CHANGE: u64 = 1 << Id::BITS;

/// A descriptor, or room for one.
#[derive(Debug, FromZeros, KnownLayout)]
#[repr(C)]
pub struct Slot {
    /// [`Sort::number`] of the descriptor that lives here; 0 if none does.
    sort: AtomicU64,
    /// The id of the content, if [`RESOLVED`], else the guess at it; and between these a count, so that an id found
    /// for a content that has changed meanwhile is not taken for the new one's.
    identity: AtomicU64,
    /// Where in its lane's queue the first id is wanted; see [`crate::predictor`].
    ticket: AtomicU64,
    words: [AtomicU64; WORDS],
    /// Makes it two cache lines.
    unused: u64,
}

/// What a slot knows of its content's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64);

impl Identity {
    /// The id, if it is known.
    #[inline]
    #[must_use]
    pub fn id(self) -> Option<Id> {
        (self.0 & RESOLVED != 0).then(|| self.guess())
    }

    /// The id, or a guess at it.
    #[inline]
    #[must_use]
    pub fn guess(self) -> Id {
        Id(self.0 & (CHANGE - 1))
    }
}

impl Slot {
    /// Does a descriptor of this sort live here?
    #[inline]
    fn is(&self, sort: Sort) -> bool {
        self.sort.load(Ordering::Acquire) == sort.number()
    }

    /// Its content.
    #[inline]
    pub fn content<C: Content>(&self) -> C {
        C::from_words(&self.words(C::LEN))
    }

    #[inline]
    fn words(&self, len: usize) -> Words {
        let mut words = [0; WORDS];
        words[..len].iter_mut().zip(&self.words).for_each(|(to, word)| *to = word.load(Ordering::Relaxed));
        words
    }

    /// What it knows of its content's id, and the content, of `len` words, for [`Slot::resolve`].
    #[inline]
    pub fn identity(&self, len: usize) -> (Identity, Words) {
        let identity = Identity(self.identity.load(Ordering::Acquire));
        (identity, self.words(len))
    }

    /// Its content's id, if it is known.
    #[inline]
    pub fn id(&self) -> Option<Id> {
        Identity(self.identity.load(Ordering::Acquire)).id()
    }

    /// Changes its content by a rule. The id that it had is the guess at the new one's: programs set what they set
    /// before.
    #[inline]
    pub fn change<C: Content, T>(&self, rule: impl FnOnce(&mut C) -> T) -> T {
        let mut content = self.content();
        let answer = rule(&mut content);
        let words = content.to_words();
        let differs = |(there, word): (&AtomicU64, &u64)| there.load(Ordering::Relaxed) ^ word;
        let changed = self.words.iter().zip(&words[..C::LEN]).map(differs).fold(0, |all, one| all | one);
        if changed != 0 {
            self.put(&words[..C::LEN]);
            let identity = self.identity.load(Ordering::Relaxed);
            // After the last word. An id that somebody found for a mixture is overwritten here, or refused after.
            self.identity.store(identity.wrapping_add(CHANGE) & !RESOLVED, Ordering::Release);
        }
        answer
    }

    fn put(&self, words: &[u64]) {
        self.words.iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
    }

    /// Keeps the id of the content that was read with `identity`, if that is still the content.
    #[inline]
    pub fn resolve(&self, identity: Identity, id: Id) {
        let known = identity.0 & !(CHANGE - 1) | RESOLVED | id.0;
        let _ = self.identity.compare_exchange(identity.0, known, Ordering::Release, Ordering::Relaxed);
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
    slab: Box<[Slot]>,
    /// The first slot that was never used.
    fresh: AtomicU32,
    /// Free ones that no thread keeps.
    depot: Mutex<Vec<u32>>,
}

/// Free slots that a thread keeps for itself, the last one freed on top: it is in the thread's cache.
#[derive(Debug, Default)]
pub struct Magazine {
    free: Vec<u32>,
}

impl Slots {
    /// Room for so many descriptors.
    ///
    /// # Panics
    /// If there is not so much address space.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let slab = <[Slot]>::new_box_zeroed_with_elems(count).expect("address space for descriptors");
        Self { slab, fresh: AtomicU32::new(0), depot: Mutex::new(Vec::new()) }
    }

    /// Makes a descriptor with the content that new ones have, and gives its handle; none where there is no room.
    #[inline]
    pub fn create<C: Content>(
        &self,
        magazine: &mut Magazine,
        sort: Sort,
        guess: Id,
        ticket: u64,
    ) -> Option<usize> {
        let slot = &self.slab[self.take(magazine)? as usize];
        slot.put(&C::FRESH.to_words()[..C::LEN]);
        let changes = slot.identity.load(Ordering::Relaxed) & !(CHANGE - 1);
        slot.identity.store(changes.wrapping_add(CHANGE) & !RESOLVED | guess.0, Ordering::Relaxed);
        slot.ticket.store(ticket, Ordering::Relaxed);
        slot.sort.store(sort.number(), Ordering::Release);
        Some(std::ptr::from_ref(slot).addr())
    }

    /// The descriptor of this handle, if it is one of this sort.
    #[inline]
    #[must_use]
    pub fn get(&self, handle: usize, sort: Sort) -> Option<&Slot> {
        self.slab.get(self.place(handle)?).filter(|slot| slot.is(sort))
    }

    /// Where in the slab a handle points; none for one that does not point at the beginning of a slot. It may be past
    /// the end.
    #[inline]
    fn place(&self, handle: usize) -> Option<usize> {
        let offset = handle.wrapping_sub(self.slab.as_ptr().addr());
        offset.is_multiple_of(size_of::<Slot>()).then_some(offset / size_of::<Slot>())
    }

    /// Ends a descriptor. The flag tells whether there was one of this sort; of two threads that end the same one,
    /// one is told so.
    #[inline]
    pub fn destroy(&self, magazine: &mut Magazine, handle: usize, sort: Sort) -> bool {
        let Some(place) = self.place(handle).filter(|place| *place < self.slab.len()) else { return false };
        let slot = &self.slab[place];
        let ended = slot.sort.compare_exchange(sort.number(), 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if ended {
            self.give(magazine, place as u32);
        }
        ended
    }

    #[inline]
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
        let all = self.slab.len() as u32;
        let next = |used| (used < all).then_some(used + 1);
        self.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }

    #[inline]
    fn give(&self, magazine: &mut Magazine, place: u32) {
        magazine.free.push(place);
        if magazine.free.len() >= 2 * BATCH {
            self.depot().extend(magazine.free.drain(..BATCH));
        }
    }

    /// Takes what a thread kept that ends.
    pub fn empty(&self, magazine: &mut Magazine) {
        self.depot().append(&mut magazine.free);
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
        slots.get(handle, CONVOLUTION).unwrap().change(|content: &mut Convolution| content.groups = 4);
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
        let set = |count| slot.change(|content: &mut Tensor| content.count = count);
        let (identity, _) = slot.identity(Tensor::LEN);
        assert_eq!((identity.id(), identity.guess()), (None, Id(7)));
        set(1);
        slot.resolve(identity, Id(8));
        assert_eq!(slot.id(), None, "it has changed since");
        let (identity, _) = slot.identity(Tensor::LEN);
        slot.resolve(identity, Id(9));
        assert_eq!(slot.id(), Some(Id(9)));
        set(1);
        assert_eq!(slot.id(), Some(Id(9)), "the same again");
        set(2);
        let (identity, _) = slot.identity(Tensor::LEN);
        assert_eq!((identity.id(), identity.guess()), (None, Id(9)));
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
