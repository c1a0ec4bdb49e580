//! Device memory of a client, as the CPU has it. Touches nothing but that.
//!
//! Addresses are those that the client is given. Whatever it computes on is looked up here: a range counts only if it
//! is wholly in one allocation, but for what is only read. How much there is of it is bounded for all clients together, by a [`Budget`].

use std::io;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::cudnn::{Result, Status};
pub use crate::places::Budget;
use crate::places::Places;
use crate::sys::Numbers;

/// What an allocation begins at a multiple of, and is rounded up to, in bytes; as with CUDA.
const GRAIN: u64 = 512;

/// What a GPU maps of its memory at once, in bytes.
const MAPPED: u64 = 2 << 20;

/// What is given back to the system at once, in bytes: whole pages, on each architecture.
const PAGE: u64 = 1 << 16;

/// Where rows of bytes begin: the first, and how far it is to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The address of the first.
    pub address: u64,
    /// Bytes from one to the next.
    pub pitch: u64,
}

impl Rows {
    /// Where each begins, without end.
    pub fn each(self) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(self.address), move |address| Some(address.wrapping_add(self.pitch)))
    }

    /// So many rows in groups of at most so many: where each group begins, and how many there are in it.
    pub fn groups(self, most: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
        let begin = move |row: u64| (self.address + row * self.pitch, most.min(count - row));
        (0..count).step_by(most as usize).map(begin)
    }

    /// How far it is from the beginning of the first of so many rows, of so many bytes each, to the end of the last.
    ///
    /// # Errors
    /// `BadParam` where rows are longer than it is to the next one; `ExecutionFailed` where there is no such memory.
    pub fn span(self, width: u64, count: u64) -> Result<u64> {
        if width == 0 || count == 0 {
            return Ok(0);
        }
        if count > 1 && self.pitch < width {
            return Err(Status::BadParam);
        }
        let span = (count - 1).checked_mul(self.pitch).and_then(|before| before.checked_add(width));
        span.filter(|span| self.address.checked_add(*span).is_some()).ok_or(Status::ExecutionFailed)
    }
}

/// What memory can be taken for.
pub trait Number: Copy + FromBytes + IntoBytes + Immutable + KnownLayout {}
impl<T: Copy + FromBytes + IntoBytes + Immutable + KnownLayout> Number for T {}

/// The device memory of one client. What it has of the budget is given back when this is dropped.
#[derive(Debug)]
pub struct Memory {
    base: u64,
    /// Given back before the budget is.
    numbers: Numbers,
    places: Places,
}

impl Memory {
    /// At these addresses, from a multiple of 512 on. The system gives the memory as it is first used.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn new(addresses: Range<u64>, budget: &Arc<Budget>) -> io::Result<Self> {
        let bytes = addresses.end.saturating_sub(addresses.start) / GRAIN * GRAIN;
        let numbers = Numbers::new(bytes as usize / size_of::<f32>())?;
        Ok(Self { base: addresses.start, numbers, places: Places::new(bytes, GRAIN, budget) })
    }

    /// The address of so many bytes; none where there is no room, or nothing is asked for.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        self.places.take(bytes).map(|offset| self.base + offset)
    }

    /// Frees what begins at an address. The flag tells whether anything did.
    pub fn free(&mut self, address: u64) -> bool {
        let Some(offset) = address.checked_sub(self.base) else { return false };
        self.places.give(offset, |places, freed| {
            // The pages that nothing else is on.
            let free = places.around(&freed);
            let start = (freed.start / PAGE * PAGE).max(free.start.next_multiple_of(PAGE));
            let end = freed.end.next_multiple_of(PAGE).min(free.end / PAGE * PAGE);
            self.numbers.discard(start as usize..end as usize);
        })
    }

    /// How much of the budget there is.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        self.places.budget()
    }

    /// Where so many numbers at an address are in [`Memory::numbers`].
    ///
    /// # Errors
    /// `ExecutionFailed` where they are not in one allocation, as where a GPU's kernel runs into memory that there is
    /// not; and where the address is no number's.
    pub fn range(&self, address: u64, count: usize) -> Result<Range<usize>> {
        self.range_of::<f32>(address, count)
    }

    /// Where so many numbers of any kind are in [`Memory::all`] of that kind.
    ///
    /// # Errors
    /// As [`Memory::range`].
    pub fn range_of<T>(&self, address: u64, count: usize) -> Result<Range<usize>> {
        self.find::<T>(address, count, Places::hold)
    }

    /// The same of numbers that are read alone. There may be more of them than their allocation has, as far as a GPU would
    /// not tell either, which maps its memory in pieces of 2 MiB; what these are is chance.
    ///
    /// # Errors
    /// As [`Memory::range`].
    pub fn readable<T>(&self, address: u64, count: usize) -> Result<Range<usize>> {
        self.find::<T>(address, count, |places, bytes| places.reach(bytes, MAPPED))
    }

    fn find<T>(
        &self,
        address: u64,
        count: usize,
        is_there: impl FnOnce(&Places, &Range<u64>) -> bool,
    ) -> Result<Range<usize>> {
        let number = size_of::<T>() as u64;
        let range = || {
            let offset = address.checked_sub(self.base).filter(|offset| offset.is_multiple_of(number))?;
            let end = (count as u64).checked_mul(number)?.checked_add(offset)?;
            let there = is_there(&self.places, &(offset..end));
            there.then_some((offset / number) as usize..(end / number) as usize)
        };
        range().ok_or(Status::ExecutionFailed)
    }

    /// So many bytes at an address.
    ///
    /// # Errors
    /// As [`Memory::range`].
    pub fn bytes(&mut self, address: u64, len: usize) -> Result<&mut [u8]> {
        let range = self.range_of::<u8>(address, len)?;
        Ok(&mut self.numbers.as_mut_bytes()[range])
    }

    /// Copies rows of so many bytes, one after the other.
    ///
    /// # Errors
    /// `BadParam` where rows are longer than it is to the next one; and as [`Memory::range`].
    pub fn copy(&mut self, to: Rows, from: Rows, width: u64, count: u64) -> Result {
        let [to_at, from_at] = [self.place(to, width, count)?, self.place(from, width, count)?];
        let bytes = self.numbers.as_mut_bytes();
        for (to, from) in steps(to_at, to.pitch, count, width).zip(steps(from_at, from.pitch, count, width)) {
            bytes.copy_within(from, to.start);
        }
        Ok(())
    }

    /// Fills rows of so many bytes with a value again and again.
    ///
    /// # Errors
    /// As [`Memory::copy`]; `BadParam` where rows do not end with a value's end.
    pub fn fill(&mut self, to: Rows, width: u64, count: u64, value: &[u8]) -> Result {
        if value.is_empty() || !width.is_multiple_of(value.len() as u64) {
            return Err(Status::BadParam);
        }
        let at = self.place(to, width, count)?;
        let bytes = self.numbers.as_mut_bytes();
        for row in steps(at, to.pitch, count, width) {
            repeat(value, &mut bytes[row]);
        }
        Ok(())
    }

    /// Where the first of such rows is, all of which are in one allocation.
    fn place(&self, rows: Rows, width: u64, count: u64) -> Result<usize> {
        let span = rows.span(width, count)?;
        if span == 0 {
            return Ok(0);
        }
        self.range_of::<u8>(rows.address, span as usize).map(|range| range.start)
    }

    /// All of it, allocated or not.
    #[must_use]
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// All of it, as numbers of this kind.
    #[must_use]
    pub fn all<T: Number>(&self) -> &[T] {
        // It begins with a page, and ends with a grain, which is as many numbers of any kind.
        <[T]>::ref_from_bytes(self.numbers.as_bytes()).unwrap_or_default()
    }

    /// All of it, as numbers of this kind, to be written.
    pub fn all_mut<T: Number>(&mut self) -> &mut [T] {
        <[T]>::mut_from_bytes(self.numbers.as_mut_bytes()).unwrap_or_default()
    }

    /// All of it, to be written.
    pub fn numbers_mut(&mut self) -> &mut [f32] {
        &mut self.numbers
    }
}

/// Fills bytes with a value again and again, of as many as these are at least: what there is of it is doubled as long as
/// there is room.
fn repeat(value: &[u8], bytes: &mut [u8]) {
    bytes[..value.len()].copy_from_slice(value);
    let mut filled = value.len();
    while filled < bytes.len() {
        let more = filled.min(bytes.len() - filled);
        bytes.copy_within(..more, filled);
        filled += more;
    }
}

/// The bytes of each row, of those that have any.
fn steps(first: usize, pitch: u64, count: u64, width: u64) -> impl Iterator<Item = Range<usize>> {
    let count = if width == 0 { 0 } else { count as usize };
    (0..count).map(move |i| first + i * pitch as usize).map(move |start| start..start + width as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7000_0000_0000;

    fn memory(bytes: u64) -> Memory {
        Memory::new(BASE..BASE + bytes, &Budget::new(bytes)).unwrap()
    }

    #[test]
    fn clients_share_a_budget_and_give_back_what_they_had() {
        let budget = Budget::new(4096);
        let new = || Memory::new(BASE..BASE + (1 << 20), &budget).unwrap();
        let (mut one, mut other) = (new(), new());
        let a = one.allocate(3000).unwrap();
        assert_eq!((budget.info(), other.allocate(1025)), ((1024, 4096), None));
        assert!(one.free(a) && other.allocate(1025).is_some());
        assert_eq!(one.allocate(4096), None);
        drop(other);
        assert_eq!((one.allocate(4096), budget.info()), (Some(a), (0, 4096)));
    }

    #[test]
    fn pages_that_nothing_is_on_are_given_back_and_no_others() {
        let mut memory = memory(16 * PAGE);
        let sizes = [PAGE / 2, PAGE, 3 * PAGE, 512];
        let at = sizes.map(|size| memory.allocate(size).unwrap());
        for (address, size) in at.iter().zip(sizes) {
            memory.bytes(*address, size as usize).unwrap().fill(1);
        }
        assert!(memory.free(at[1]) && memory.free(at[2]));
        // Pages come back as zeros.
        let zeros = |memory: &mut Memory, from: u64, to: u64| {
            memory.numbers()[(from / 4) as usize..(to / 4) as usize].iter().all(|number| *number == 0.0)
        };
        assert!(zeros(&mut memory, PAGE, 4 * PAGE), "in two parts");
        assert!(memory.bytes(at[0], sizes[0] as usize).unwrap().iter().all(|byte| *byte == 1));
        assert!(memory.bytes(at[3], 512).unwrap().iter().all(|byte| *byte == 1));
        assert!(memory.free(at[0]) && zeros(&mut memory, 0, PAGE));
    }

    #[test]
    fn a_range_is_in_one_allocation_or_none() {
        let mut memory = memory(4096);
        let [a, b] = [1000, 512].map(|bytes| memory.allocate(bytes).unwrap());
        assert_eq!((a, b), (BASE, BASE + 1024));
        assert_eq!(memory.range(a, 256), Ok(0..256));
        assert_eq!(memory.range(a + 8, 2), Ok(2..4));
        let wrong = [
            (a, 257),
            (a + 2, 1),
            (b + 512, 1),
            (b, 1 << 62),
            (b, usize::MAX),
            (0, 1),
            (BASE - 4, 1),
            (u64::MAX, 1),
        ];
        for (address, count) in wrong {
            assert_eq!(memory.range(address, count), Err(Status::ExecutionFailed), "{address:#x} {count}");
        }
        assert!(memory.free(a) && !memory.free(a) && !memory.free(b + 4));
        assert_eq!(memory.range(a, 1), Err(Status::ExecutionFailed), "freed");
    }

    #[test]
    fn bytes_may_begin_and_end_within_a_number() {
        let mut memory = memory(1024);
        let a = memory.allocate(512).unwrap();
        memory.bytes(a + 3, 6).unwrap().copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(memory.bytes(a, 10), Ok(&mut [0, 0, 0, 1, 2, 3, 4, 5, 6, 0][..]));
        assert_eq!(memory.bytes(a + 511, 1).map(|bytes| bytes.len()), Ok(1));
        for (address, len) in [(a + 511, 2), (a - 1, 1), (a, 1 << 40)] {
            assert_eq!(memory.bytes(address, len), Err(Status::ExecutionFailed));
        }
    }

    #[test]
    fn rows_are_copied_and_filled_and_what_is_between_them_is_left() {
        let mut memory = memory(4096);
        let [a, b] = [0, 1].map(|_| memory.allocate(512).unwrap());
        let rows = |address, pitch| Rows { address, pitch };
        memory.fill(rows(a + 1, 4), 2, 3, &[7, 8]).unwrap();
        assert_eq!(memory.bytes(a, 12).unwrap(), [0, 7, 8, 0, 0, 7, 8, 0, 0, 7, 8, 0]);
        memory.copy(rows(b, 3), rows(a + 1, 4), 3, 3).unwrap();
        assert_eq!(memory.bytes(b, 10).unwrap(), [7, 8, 0, 7, 8, 0, 7, 8, 0, 0]);
        memory.fill(rows(b, 0), 15, 1, &[1, 2, 3]).unwrap();
        assert_eq!(memory.bytes(b, 16).unwrap(), [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 0]);
        // Nothing is done of what is wrong, and nothing is right anywhere.
        let far = Status::ExecutionFailed;
        let wrong = [
            (rows(a, 1), 2, 2, Status::BadParam),
            (rows(a, 2), 3, 1, Status::BadParam),
            (rows(a, 256), 2, 3, far),
            (rows(a, u64::MAX), 2, 3, far),
            (rows(a, 2), 2, u64::MAX, far),
            (rows(0, 2), 2, 1, far),
        ];
        for (to, width, count, status) in wrong {
            assert_eq!(memory.fill(to, width, count, &[1, 1]), Err(status), "{to:?} {width} {count}");
        }
        assert_eq!(memory.copy(rows(a, 4), rows(b, 256), 2, 3), Err(far));
        assert_eq!(memory.fill(rows(0, 0), 0, u64::MAX, &[1]), Ok(()));
        assert_eq!(memory.copy(rows(0, 0), rows(0, 0), 2, 0), Ok(()));
    }

    #[test]
    fn what_is_freed_is_given_again_and_there_is_no_more_than_there_is() {
        let mut memory = memory(4096);
        let all: Vec<u64> = std::iter::from_fn(|| memory.allocate(1)).collect();
        assert_eq!(all.len(), 8);
        memory.free(all[2]);
        memory.free(all[3]);
        assert_eq!(memory.allocate(1025), None);
        assert_eq!(memory.allocate(1024), Some(all[2]));
        assert_eq!([0, u64::MAX].map(|bytes| memory.allocate(bytes)), [None, None]);
    }
}
