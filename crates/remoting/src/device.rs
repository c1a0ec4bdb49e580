//! A client's calls for device memory. Touches nothing but the channel.
//!
//! What copies between program and device waits, so that bytes may be changed as soon as the call has returned, as CUDA
//! has it of memory that it did not allocate itself; for that which it did see [`crate::pinned`]. What stays on the
//! device does not wait.
//!
//! | here | CUDA runtime | driver |
//! |---|---|---|
//! | `allocate`, `free` | `cudaMalloc`, `cudaFree` | `cuMemAlloc`, `cuMemFree` |
//! | `copy_in`, `copy_out` | `cudaMemcpy`, `cudaMemcpyAsync` of pageable memory | `cuMemcpyHtoD`, `cuMemcpyDtoH`, `…Async` |
//! | `copy_rows_in`, `copy_rows_out` | `cudaMemcpy2D`, `…Async`, likewise | `cuMemcpy2D`, `…Async` |
//! | `copy` | `cudaMemcpy`, `cudaMemcpy2D`, `…Async`, within the device | `cuMemcpyDtoD`, `cuMemcpy2D`, `…Async` |
//! | `fill` | `cudaMemset`, `cudaMemset2D`, `…Async` | `cuMemsetD8`, `D16`, `D32`, `D2D8` and so on, `…Async` |
//! | `memory_info` | `cudaMemGetInfo` | `cuMemGetInfo` |
//! | `mark`, `elapsed`, `forget` | `cudaEventRecord`, `cudaEventElapsedTime`, `cudaEventDestroy` | `cuEventRecord` and so on |
//! | `synchronise` | `cudaDeviceSynchronize`, `cudaStreamSynchronize`, `cudaEventSynchronize` | `cuCtxSynchronize` and so on |
//!
//! Order is total, so that streams are numbers of the client's, and to wait for one is to wait for all.

use crate::cudnn::{Result, Status};
use crate::memory::Rows;
use crate::session::Session;
use crate::staging;
use crate::wire::Words;
use crate::worker::{ALLOCATE, COPY, COPY_IN, COPY_OUT, ELAPSED, FILL, FORGET, FREE, INFO, MARK};

/// The bytes of the staging memory.
const STAGED: u64 = 8 * staging::WORDS as u64;

impl Session<'_> {
    /// The address of so many bytes of device memory.
    ///
    /// # Errors
    /// `AllocFailed` where there is no room; `ExecutionFailed` where the worker is gone.
    pub fn allocate(&self, bytes: u64) -> Result<u64> {
        let words = self.core(ALLOCATE, &[bytes])?;
        words.get(1).copied().ok_or(Status::InternalError)
    }

    /// Frees what begins at an address.
    ///
    /// # Errors
    /// `BadParam` where nothing does.
    pub fn free(&self, address: u64) -> Result {
        self.core(FREE, &[address]).map(|_| ())
    }

    /// Copies bytes to the device, after all that was sent before.
    ///
    /// # Errors
    /// `ExecutionFailed` where they are not wholly in what was allocated; that of a compute that nobody waited for.
    pub fn copy_in(&self, address: u64, bytes: &[u8]) -> Result {
        let staging = self.staging()?;
        for (address, part) in parts(address).zip(bytes.chunks(STAGED as usize)) {
            staging::store(*staging, part);
            self.core(COPY_IN, &[address, 0, part.len() as u64, 1])?;
            self.moved(part.len() as u64);
        }
        Ok(())
    }

    /// Copies bytes from the device, after all that was sent before.
    ///
    /// # Errors
    /// As [`Session::copy_in`].
    pub fn copy_out(&self, bytes: &mut [u8], address: u64) -> Result {
        let staging = self.staging()?;
        for (address, part) in parts(address).zip(bytes.chunks_mut(STAGED as usize)) {
            self.core(COPY_OUT, &[address, 0, part.len() as u64, 1])?;
            staging::load(*staging, part);
            self.moved(part.len() as u64);
        }
        Ok(())
    }

    /// Copies rows, of so many bytes each, to the device, after all that was sent before.
    ///
    /// # Errors
    /// As [`Session::copy_in`]; `BadParam` where rows are longer than it is to the next one.
    pub fn copy_rows_in<'p>(
        &self,
        to: Rows,
        mut from: impl ExactSizeIterator<Item = &'p [u8]>,
        width: u64,
    ) -> Result {
        if to.span(width, from.len() as u64)? == 0 {
            return Ok(());
        }
        if width > STAGED {
            return to.each().zip(from).try_for_each(|(address, row)| self.copy_in(address, row));
        }
        let staging = self.staging()?;
        for (address, count) in to.groups(staged(width), from.len() as u64) {
            for (staging, row) in staging::rows(*staging, width).zip(from.by_ref().take(count as usize)) {
                staging::store(staging, row);
            }
            self.core(COPY_IN, &[address, to.pitch, width, count])?;
            self.moved(width * count);
        }
        Ok(())
    }

    /// Copies rows, of so many bytes each, from the device, after all that was sent before.
    ///
    /// # Errors
    /// As [`Session::copy_rows_in`].
    pub fn copy_rows_out<'p>(
        &self,
        mut to: impl ExactSizeIterator<Item = &'p mut [u8]>,
        from: Rows,
        width: u64,
    ) -> Result {
        if from.span(width, to.len() as u64)? == 0 {
            return Ok(());
        }
        if width > STAGED {
            return from.each().zip(to).try_for_each(|(address, row)| self.copy_out(row, address));
        }
        let staging = self.staging()?;
        for (address, count) in from.groups(staged(width), to.len() as u64) {
            self.core(COPY_OUT, &[address, from.pitch, width, count])?;
            for (staging, row) in staging::rows(*staging, width).zip(to.by_ref().take(count as usize)) {
                staging::load(staging, row);
            }
            self.moved(width * count);
        }
        Ok(())
    }

    /// Copies rows of bytes on the device.
    ///
    /// # Errors
    /// `ExecutionFailed` where the worker is gone; those of the copy itself are said later.
    pub fn copy(&self, to: Rows, from: Rows, width: u64, count: u64) -> Result {
        self.send_core(COPY, &[to.address, to.pitch, from.address, from.pitch, width, count])
    }

    /// Fills rows of bytes on the device with the first bytes of a value, 1 to 8.
    ///
    /// # Errors
    /// As [`Session::copy`]; `BadParam` for another number of bytes.
    pub fn fill(&self, to: Rows, width: u64, count: u64, value: u64, size: u64) -> Result {
        if !(1..=8).contains(&size) {
            return Err(Status::BadParam);
        }
        self.send_core(FILL, &[to.address, to.pitch, width, count, value, size])
    }

    /// How much memory is free, and how much there is, for all processes together.
    ///
    /// # Errors
    /// `ExecutionFailed` where the worker is gone.
    pub fn memory_info(&self) -> Result<(u64, u64)> {
        match self.core(INFO, &[])?[..] {
            [_, free, total] => Ok((free, total)),
            _ => Err(Status::InternalError),
        }
    }

    /// Marks the moment at which all that was sent before is done, by a number that is the caller's choice.
    ///
    /// # Errors
    /// As [`Session::copy`].
    pub fn mark(&self, moment: u64) -> Result {
        self.send_core(MARK, &[moment])
    }

    /// Milliseconds from one moment to another.
    ///
    /// # Errors
    /// `BadParam` where one was not marked.
    pub fn elapsed(&self, from: u64, to: u64) -> Result<f32> {
        let words = self.core(ELAPSED, &[from, to])?;
        let nanoseconds = words.get(1).copied().ok_or(Status::InternalError)?;
        Ok((nanoseconds.cast_signed() as f64 / 1e6) as f32)
    }

    /// Ends a moment that is not asked for any more.
    ///
    /// # Errors
    /// As [`Session::copy`].
    pub fn forget(&self, moment: u64) -> Result {
        self.send_core(FORGET, &[moment])
    }

    pub(crate) fn send_core(&self, number: u16, arguments: &[u64]) -> Result {
        Ok(self.client().send(number, &arguments.iter().copied().collect())?)
    }

    pub(crate) fn core(&self, number: u16, arguments: &[u64]) -> Result<Words> {
        let arguments = arguments.iter().copied().collect();
        let words = self.client().call(number, &arguments)?;
        Status::from_wire(words.first().copied().unwrap_or_default())?;
        Ok(words)
    }
}

/// Where the parts begin that go through the staging memory one by one.
fn parts(address: u64) -> impl Iterator<Item = u64> {
    Rows { address, pitch: STAGED }.each()
}

/// How many rows of so many bytes go through the staging memory at a time.
fn staged(width: u64) -> u64 {
    staging::WORDS as u64 / staging::words(width)
}
