//! The backend of hosts without a GPU, and of tests: contents and addresses become geometries and ranges of
//! [`vgpu_kernels`]. Touches nothing but its client's memory.
//!
//! Of cuDNN single precision; of cuBLAS double precision too, and products of numbers of 16 bits. Anything else is not
//! supported. All that a client sends is checked there, or in [`Memory`].

mod cublas;
mod cudnn;

use std::ops::Range;

use vgpu_kernels::{self as kernels, arena, dropout};

use crate::cudnn::{Result, Status};
use crate::memory::{Memory, Number, Rows};
use crate::worker::Device;

/// Computes on the CPU, for one client.
#[derive(Debug)]
pub struct Cpu {
    memory: Memory,
}

/// An operand: how many numbers it spans, and its address.
type At = (usize, u64);

impl Cpu {
    /// On this memory.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory }
    }

    /// The client's memory.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn run<T: Number, const N: usize>(
        &mut self,
        inputs: [At; N],
        output: At,
        compute: impl FnOnce([&[T]; N], &mut [T]) -> kernels::Result<()>,
    ) -> Result {
        let ranges = self.ranges::<T, N>(inputs)?;
        let output = self.memory.range_of::<T>(output.1, output.0)?;
        Ok(arena::write(self.memory.all_mut(), ranges, output, compute)?)
    }

    fn ranges<T, const N: usize>(&self, inputs: [At; N]) -> Result<[Range<usize>; N]> {
        let mut ranges = [const { 0..0 }; N];
        for (range, (span, address)) in ranges.iter_mut().zip(inputs) {
            *range = self.memory.readable::<T>(address, span)?;
        }
        Ok(ranges)
    }

    /// Writes down where random numbers are.
    fn keep(&mut self, address: u64, state: dropout::State) -> Result {
        self.memory.bytes(address, dropout::State::SIZE)?.copy_from_slice(&state.to_bytes());
        Ok(())
    }
}

impl Device for Cpu {
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        self.memory.allocate(bytes)
    }

    fn free(&mut self, address: u64) -> bool {
        self.memory.free(address)
    }

    fn seed(&mut self, address: u64, len: u64, seed: u64) -> Result {
        if len < dropout::State::SIZE as u64 {
            return Err(Status::InvalidValue);
        }
        self.keep(address, dropout::State::new(seed))
    }

    fn copy(&mut self, to: Rows, from: Rows, width: u64, count: u64) -> Result {
        self.memory.copy(to, from, width, count)
    }

    fn fill(&mut self, to: Rows, width: u64, count: u64, value: &[u8]) -> Result {
        self.memory.fill(to, width, count, value)
    }

    fn info(&self) -> (u64, u64) {
        self.memory.budget().info()
    }

    fn bytes(&mut self, address: u64, len: usize) -> Result<&mut [u8]> {
        self.memory.bytes(address, len)
    }
}
