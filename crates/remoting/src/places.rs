//! Which parts of a range of bytes are taken, and how much that is of a budget. Touches nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much memory clients may have together, in bytes.
#[derive(Debug)]
pub struct Budget {
    total: u64,
    /// Only a number: nothing is read or written because of its order with anything.
    free: AtomicU64,
}

impl Budget {
    /// So much.
    #[must_use]
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { total: bytes, free: bytes.into() })
    }

    /// How much of it nobody has, and all of it, as `cudaMemGetInfo` has it.
    #[must_use]
    pub fn info(&self) -> (u64, u64) {
        (self.free.load(Ordering::Relaxed), self.total)
    }

    /// Takes so much. The flag tells whether there was so much.
    fn take(&self, bytes: u64) -> bool {
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(bytes)).is_ok()
    }

    fn give(&self, bytes: u64) {
        self.free.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The parts of one client. What it has of the budget is given back when this is dropped.
#[derive(Debug)]
pub struct Places {
    end: u64,
    grain: u64,
    /// Of those that are taken, the size in bytes by the offset.
    live: BTreeMap<u64, u64>,
    budget: Arc<Budget>,
}

impl Places {
    /// Of so many bytes, all free. What is taken begins at a multiple of the grain, and is rounded up to one.
    #[must_use]
    pub fn new(bytes: u64, grain: u64, budget: &Arc<Budget>) -> Self {
        Self { end: bytes / grain * grain, grain, live: BTreeMap::new(), budget: Arc::clone(budget) }
    }

    /// The offset of so many bytes; none where there is no room, or nothing is asked for.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let size = bytes.checked_next_multiple_of(self.grain).filter(|size| *size > 0)?;
        let offset = self.gap(size).filter(|_| self.budget.take(size))?;
        self.live.insert(offset, size);
        Some(offset)
    }

    /// Where so many bytes are free, the first such place.
    fn gap(&self, size: u64) -> Option<u64> {
        let mut free = 0;
        for (offset, taken) in &self.live {
            if offset - free >= size {
                break;
            }
            free = offset + taken;
        }
        (self.end - free >= size).then_some(free)
    }

    /// Frees what begins at an offset, once `empty` has given back the memory of these bytes, since then they are
    /// others'. The flag tells whether anything did.
    pub fn give(&mut self, offset: u64, empty: impl FnOnce(&Self, Range<u64>)) -> bool {
        let Some(size) = self.live.get(&offset).copied() else { return false };
        empty(self, offset..offset + size);
        self.live.remove(&offset);
        self.budget.give(size);
        true
    }

    /// All bytes that would be free around a part, were it.
    #[must_use]
    pub fn around(&self, part: &Range<u64>) -> Range<u64> {
        let before = self.live.range(..part.start).next_back().map_or(0, |(offset, size)| offset + size);
        let after = self.live.range(part.end..).next().map_or(self.end, |(offset, _)| *offset);
        before..after
    }

    /// Are these bytes wholly in one part that is taken? No bytes may be at its end too.
    #[must_use]
    pub fn hold(&self, bytes: &Range<u64>) -> bool {
        let before = self.live.range(..=bytes.start).next_back();
        before.is_some_and(|(offset, size)| bytes.end <= offset + size)
    }

    /// The same of bytes that begin in such a part, and may go on to the next multiple of so many.
    #[must_use]
    pub fn reach(&self, bytes: &Range<u64>, piece: u64) -> bool {
        let before = self.live.range(..=bytes.start).next_back().map(|(offset, size)| offset + size);
        let goes_on = |end: u64| bytes.start < end && bytes.end <= end.next_multiple_of(piece).min(self.end);
        before.is_some_and(|end| bytes.end <= end || goes_on(end))
    }

    /// How much there is for all.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.budget.give(self.live.values().sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_one_part_or_none() {
        let mut places = Places::new(4096, 512, &Budget::new(4096));
        let [a, b] = [1000, 512].map(|bytes| places.take(bytes).unwrap());
        assert_eq!((a, b), (0, 1024));
        for (bytes, held) in [(0..1024, true), (1..1, true), (0..1025, false), (1024..1536, true)] {
            assert_eq!(places.hold(&bytes), held, "{bytes:?}");
        }
        assert!(!places.hold(&(2000..2001)) && !places.hold(&(1023..1025)));
        let mut emptied = None;
        let mut give = |offset| places.give(offset, |_, bytes| emptied = Some(bytes));
        assert_eq!([1, a, a].map(&mut give), [false, true, false]);
        assert_eq!(emptied, Some(0..1024));
        assert!(!places.hold(&(0..1)));
    }

    #[test]
    fn bytes_that_begin_in_a_part_may_go_on_for_a_while() {
        let mut places = Places::new(4096, 512, &Budget::new(4096));
        let [a, b, c] = [1000, 512, 512].map(|bytes| places.take(bytes).unwrap());
        assert_eq!((places.give(b, |_, _| {}), (a, c)), (true, (0, 1536)));
        for (bytes, there) in [
            (0..1024, true),
            (1023..1024, true),
            (8..1536, true),
            (8..1537, false),
            (1024..1024, true),
            (1024..1025, false),
            (1600..2304, true),
            (1600..2305, false),
        ] {
            assert_eq!(places.reach(&bytes, 768), there, "{bytes:?}");
        }
        assert!(!places.reach(&(1600..4097), 1 << 20), "beyond all");
    }

    #[test]
    fn what_is_free_around_is_up_to_what_is_taken() {
        let mut places = Places::new(4096, 512, &Budget::new(4096));
        let [a, b, c, d] = [0; 4].map(|_| places.take(512).unwrap());
        let mut around = Vec::new();
        for part in [b, d, c, a] {
            assert!(places.give(part, |places, bytes| around.push(places.around(&bytes))));
        }
        assert_eq!(around, [b..c, d..4096, b..4096, 0..4096]);
    }

    #[test]
    fn what_is_given_back_is_empty_before_others_can_have_it() {
        let budget = Budget::new(512);
        let mut places = Places::new(4096, 512, &budget);
        let a = places.take(512).unwrap();
        places.give(a, |_, _| assert_eq!(budget.info(), (0, 512)));
        assert_eq!(budget.info(), (512, 512));
    }
}
