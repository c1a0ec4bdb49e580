//! Descriptors on the client's side: a slot each, in a slab that is never unmapped. A handle is a slot's address, and is
//! found again by arithmetic: a program can pass any number without anything being read at it. Touches memory of its own
//! alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayVec;

use crate::contents::{Id, Sort};
use crate::slot::Slot;
use crate::sys::Mapped;

/// How many descriptors can live at a time. Memory is taken as they are first used.
pub const MAX_SLOTS: usize = 1 << 20;

/// How many free slots a thread hands over, or takes, at a time; and half of what it keeps at most.
const BATCH: usize = 32;

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
    #[inline]
    pub fn create(&self, magazine: &mut Magazine, sort: Sort, guess: Id, ticket: u64) -> Option<usize> {
        loop {
            let slot = &self.slab.region()[self.take(magazine)? as usize];
            // One that two threads ended at once is free twice. This keeps it from being had twice, unless two threads take
            // it at once again: then theirs is one descriptor, as it is one block of memory in a program that frees twice.
            if slot.is_free() {
                slot.begin(sort, guess, ticket);
                return Some(std::ptr::from_ref(slot).addr());
            }
        }
    }

    /// The descriptor of this handle, if it is one of this sort.
    #[inline]
    #[must_use]
    pub fn get(&self, handle: usize, sort: Sort) -> Option<&Slot> {
        Some(self.find(handle, sort)?.1)
    }

    /// With its place in the slab.
    #[inline]
    fn find(&self, handle: usize, sort: Sort) -> Option<(usize, &Slot)> {
        let offset = handle.wrapping_sub(self.slab.region().as_ptr().addr());
        if !offset.is_multiple_of(size_of::<Slot>()) {
            return None;
        }
        let place = offset / size_of::<Slot>();
        self.slab.region().get(place).filter(|slot| slot.is(sort)).map(|slot| (place, slot))
    }

    /// Ends a descriptor. The flag tells whether there was one of this sort; two threads that end the same one at once,
    /// which the library forbids, may both be told so.
    #[inline]
    pub fn destroy(&self, magazine: &mut Magazine, handle: usize, sort: Sort) -> bool {
        let Some((place, slot)) = self.find(handle, sort) else { return false };
        slot.end();
        self.give(magazine, place as u32);
        true
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
        let all = self.slab.region().len() as u32;
        let next = |used| (used < all).then_some(used + 1);
        self.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }

    #[inline]
    fn give(&self, magazine: &mut Magazine, place: u32) {
        if magazine.free.try_push(place).is_err() {
            self.spill(magazine, place);
        }
    }

    #[cold]
    fn spill(&self, magazine: &mut Magazine, place: u32) {
        self.depot().extend(magazine.free.drain(..BATCH));
        magazine.free.push(place);
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
    use crate::descriptor::{Content, Kind};

    const TENSOR: Sort = Sort { kind: Kind::Tensor, version: Version::V9 };
    const CONVOLUTION: Sort = Sort { kind: Kind::Convolution, version: Version::V9 };

    fn tensor(slots: &Slots, magazine: &mut Magazine) -> usize {
        slots.create(magazine, TENSOR, Id::NONE, 0).unwrap()
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
    #[should_panic(expected = "address space for descriptors")]
    fn more_than_there_are_addresses_for_are_refused() {
        let _ = Slots::new((1 << 57) + 1);
    }

    #[test]
    fn a_full_slab_has_no_room_until_one_ends() {
        let (slots, mut magazine) = (Slots::new(100), Magazine::default());
        let handles: Vec<usize> = (0..100).map(|_| tensor(&slots, &mut magazine)).collect();
        assert_eq!(slots.create(&mut magazine, TENSOR, Id::NONE, 0), None);
        let mut theirs = Magazine::default();
        assert_eq!(slots.create(&mut theirs, TENSOR, Id::NONE, 0), None);
        assert!(slots.destroy(&mut magazine, handles[3], TENSOR));
        slots.empty(&mut magazine);
        assert_eq!(slots.create(&mut theirs, TENSOR, Id::NONE, 0), Some(handles[3]));
    }

    /// As where two threads end it at once, which both find that it lives.
    #[test]
    fn one_that_is_free_twice_is_not_taken_while_it_lives() {
        let (slots, mut ours, mut theirs) = (Slots::new(8), Magazine::default(), Magazine::default());
        let handle = tensor(&slots, &mut ours);
        let (place, _) = slots.find(handle, TENSOR).unwrap();
        assert!(slots.destroy(&mut ours, handle, TENSOR));
        slots.give(&mut theirs, place as u32);
        assert_eq!(tensor(&slots, &mut ours), handle);
        assert_ne!(tensor(&slots, &mut theirs), handle);
    }

    #[test]
    fn a_slot_begins_again_as_fresh_whatever_it_was() {
        let (slots, mut magazine) = (Slots::new(1), Magazine::default());
        let handle = slots.create(&mut magazine, CONVOLUTION, Id::NONE, 0).unwrap();
        slots.get(handle, CONVOLUTION).unwrap().change(|content: &mut Convolution| content.groups = 4);
        slots.destroy(&mut magazine, handle, CONVOLUTION);
        let again = slots.create(&mut magazine, CONVOLUTION, Id::NONE, 0).unwrap();
        assert_eq!(again, handle);
        assert_eq!(slots.get(again, CONVOLUTION).unwrap().content::<Convolution>().groups, 1);
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
