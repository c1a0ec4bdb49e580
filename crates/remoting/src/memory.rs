//! Device memory of a client, as the CPU has it. Touches nothing but that.
//!
//! Addresses are those that the client is given. Whatever it computes on is looked up here: a range counts only if it
//! is wholly in one allocation.

use std::collections::BTreeMap;
use std::ops::Range;

use zerocopy::IntoBytes;

use crate::cudnn::{Result, Status};

/// What an allocation begins at a multiple of, and is rounded up to, in bytes; as with CUDA.
const GRAIN: u64 = 512;

/// The device memory of one client.
#[derive(Debug)]
pub struct Memory {
    base: u64,
    /// Of the allocations, the size in bytes by the offset.
    live: BTreeMap<u64, u64>,
    numbers: Vec<f32>,
}

impl Memory {
    /// At these addresses, from a multiple of 512 on. The system gives the memory as it is first used.
    #[must_use]
    pub fn new(addresses: Range<u64>) -> Self {
        let grains = addresses.end.saturating_sub(addresses.start) / GRAIN * GRAIN;
        let numbers = vec![0.0; grains as usize / size_of::<f32>()];
        Self { base: addresses.start, live: BTreeMap::new(), numbers }
    }

    /// The address of so many bytes; none where there is no room, or nothing is asked for.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let size = bytes.checked_next_multiple_of(GRAIN).filter(|size| *size > 0)?;
        let end = (self.numbers.len() * size_of::<f32>()) as u64;
        let mut free = 0;
        for (offset, taken) in &self.live {
            if offset - free >= size {
                break;
            }
            free = offset + taken;
        }
        if end - free < size {
            return None;
        }
        self.live.insert(free, size);
        Some(self.base + free)
    }

    /// Frees what begins at an address. The flag tells whether anything did.
    pub fn free(&mut self, address: u64) -> bool {
        address.checked_sub(self.base).is_some_and(|offset| self.live.remove(&offset).is_some())
    }

    /// Where so many numbers at an address are in [`Memory::numbers`].
    ///
    /// # Errors
    /// `ExecutionFailed` where they are not in one allocation, as where a GPU's kernel runs into memory that there is
    /// not; and where the address is no number's.
    pub fn range(&self, address: u64, count: usize) -> Result<Range<usize>> {
        const NUMBER: u64 = size_of::<f32>() as u64;
        let range = || {
            let offset = address.checked_sub(self.base).filter(|offset| offset.is_multiple_of(NUMBER))?;
            let end = (count as u64).checked_mul(NUMBER)?.checked_add(offset)?;
            let (start, size) = self.live.range(..=offset).next_back()?;
            (end <= start + size).then_some((offset / NUMBER) as usize..(end / NUMBER) as usize)
        };
        range().ok_or(Status::ExecutionFailed)
    }

    /// So many bytes at an address.
    ///
    /// # Errors
    /// As [`Memory::range`].
    pub fn bytes(&mut self, address: u64, len: usize) -> Result<&mut [u8]> {
        let number = address % size_of::<f32>() as u64;
        let whole = (number as usize).checked_add(len).ok_or(Status::ExecutionFailed)?;
        let range = self.range(address - number, whole.div_ceil(size_of::<f32>()))?;
        Ok(&mut self.numbers[range].as_mut_bytes()[number as usize..whole])
    }

    /// All of it, allocated or not.
    pub fn numbers(&mut self) -> &mut [f32] {
        &mut self.numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7000_0000_0000;

    #[test]
    fn a_range_is_in_one_allocation_or_none() {
        let mut memory = Memory::new(BASE..BASE + 4096);
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
        let mut memory = Memory::new(BASE..BASE + 1024);
        let a = memory.allocate(512).unwrap();
        memory.bytes(a + 3, 6).unwrap().copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(memory.bytes(a, 10), Ok(&mut [0, 0, 0, 1, 2, 3, 4, 5, 6, 0][..]));
        assert_eq!(memory.bytes(a + 511, 1).map(|bytes| bytes.len()), Ok(1));
        for (address, len) in [(a + 511, 2), (a - 1, 1), (a, 1 << 40)] {
            assert_eq!(memory.bytes(address, len), Err(Status::ExecutionFailed));
        }
    }

    #[test]
    fn what_is_freed_is_given_again_and_there_is_no_more_than_there_is() {
        let mut memory = Memory::new(BASE..BASE + 4096);
        let all: Vec<u64> = std::iter::from_fn(|| memory.allocate(1)).collect();
        assert_eq!(all.len(), 8);
        memory.free(all[2]);
        memory.free(all[3]);
        assert_eq!(memory.allocate(1025), None);
        assert_eq!(memory.allocate(1024), Some(all[2]));
        assert_eq!([0, u64::MAX].map(|bytes| memory.allocate(bytes)), [None, None]);
    }
}
