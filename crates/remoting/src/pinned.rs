//! A client's calls for host-allocated memory, which CUDA calls page-locked: a part of the file that client and worker
//! share, so that a copy between it and the device is a record that nobody need wait for. Touches nothing but the
//! channel.
//!
//! | here | CUDA runtime | driver |
//! |---|---|---|
//! | `allocate_host`, `free_host` | `cudaHostAlloc`, `cudaMallocHost`, `cudaFreeHost` | `cuMemHostAlloc`, `cuMemAllocHost`, `cuMemFreeHost` |
//! | `host_allocation` | `cudaHostGetFlags`, `cudaPointerGetAttributes` | `cuMemHostGetFlags`, `cuPointerGetAttribute` |
//! | `shared`, `copy_from_host`, `copy_to_host` | `cudaMemcpy`, `cudaMemcpy2D`, `…Async` of such memory | `cuMemcpyHtoD`, `cuMemcpyDtoH`, `cuMemcpy2D`, `…Async` |
//!
//! Whether the memory is mapped, portable or write-combined makes no difference to a client with one device, which
//! reads nothing of it but in copies.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cudnn::{Result, Status};
use crate::host::{MOST, MOST_ROWS};
use crate::memory::Rows;
use crate::session::Session;
use crate::sys::Lent;
use crate::worker::{ALLOCATE_HOST, COPY_FROM_HOST, COPY_TO_HOST, FREE_HOST};

/// The host-allocated memory of a process, by address.
#[derive(Debug, Default)]
pub struct Pinned(Mutex<BTreeMap<u64, Allocation>>);

#[derive(Debug)]
struct Allocation {
    lent: Lent,
    bytes: u64,
    flags: u32,
    /// In the file.
    offset: u64,
}

/// What a program knows of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Where it begins.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// With which flags it was asked for.
    pub flags: u32,
}

/// Rows that are wholly in host-allocated memory. What is copied from and to them once they are freed fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRows(Rows);

impl Pinned {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Allocation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session<'_> {
    /// The address of so many bytes of host-allocated memory, all zero. The flags are only kept.
    ///
    /// # Errors
    /// `AllocFailed` where there is no room; `ExecutionFailed` where the worker is gone.
    pub fn allocate_host(&self, bytes: u64, flags: u32) -> Result<u64> {
        let (memory, _) = self.client().channel().host().map_err(|_| Status::ExecutionFailed)?;
        let words = self.core(ALLOCATE_HOST, &[bytes])?;
        let offset = words.get(1).copied().ok_or(Status::InternalError)?;
        let Ok(lent) = Lent::new(memory.file(), offset, bytes as usize) else {
            self.core(FREE_HOST, &[offset])?;
            return Err(Status::AllocFailed);
        };
        let address = lent.address() as u64;
        self.pinned().lock().insert(address, Allocation { lent, bytes, flags, offset });
        Ok(address)
    }

    /// Frees what begins at an address, after all that was sent before.
    ///
    /// # Errors
    /// `BadParam` where nothing does; `ExecutionFailed` where the worker is gone, and it is freed all the same.
    pub fn free_host(&self, address: u64) -> Result {
        let Allocation { lent, offset, .. } =
            self.pinned().lock().remove(&address).ok_or(Status::BadParam)?;
        let freed = self.core(FREE_HOST, &[offset]);
        // Then nothing is copied any more, and the address may be another's.
        drop(lent);
        freed.map(|_| ())
    }

    /// The host-allocated memory that an address is in.
    #[must_use]
    pub fn host_allocation(&self, address: u64) -> Option<Known> {
        let all = self.pinned().lock();
        let (start, found) = all.range(..=address).next_back()?;
        let Allocation { bytes, flags, .. } = *found;
        (address - start < bytes).then_some(Known { address: *start, bytes, flags })
    }

    /// Rows of so many bytes of the program's memory; none where they are not wholly in one allocation of
    /// host-allocated memory, or there are none.
    #[must_use]
    pub fn shared(&self, rows: Rows, width: u64, count: u64) -> Option<HostRows> {
        let span = rows.span(width, count).ok().filter(|span| *span > 0)?;
        let all = self.pinned().lock();
        let (start, found) = all.range(..=rows.address).next_back()?;
        let into = rows.address - start;
        let held = into.checked_add(span).is_some_and(|end| end <= found.bytes);
        held.then_some(HostRows(Rows { address: found.offset + into, ..rows }))
    }

    /// Copies rows of so many bytes to the device. The program leaves them as they are until that is done, which this
    /// waits for if it is to.
    ///
    /// # Errors
    /// As [`Session::copy`]; where it waits, as [`Session::copy_in`].
    pub fn copy_from_host(&self, to: Rows, from: HostRows, width: u64, count: u64, wait: bool) -> Result {
        self.copy_host(COPY_FROM_HOST, [to, from.0], width, count, wait)
    }

    /// Copies rows of so many bytes from the device, likewise.
    ///
    /// # Errors
    /// As [`Session::copy_from_host`].
    pub fn copy_to_host(&self, to: HostRows, from: Rows, width: u64, count: u64, wait: bool) -> Result {
        self.copy_host(COPY_TO_HOST, [to.0, from], width, count, wait)
    }

    fn copy_host(&self, number: u16, rows: [Rows; 2], width: u64, count: u64, wait: bool) -> Result {
        for (row, byte, width, count) in parts(rows.map(|rows| rows.pitch), width, count) {
            let [to, from] = rows.map(|rows| rows.address + row * rows.pitch + byte);
            let words = [to, rows[0].pitch, from, rows[1].pitch, width, count];
            if wait {
                self.core(number, &words)?;
            } else {
                self.send_core(number, &words)?;
            }
            self.moved(width * count);
        }
        Ok(())
    }
}

/// What one record has, of rows that are so far apart: from which row and which byte of it on, how many bytes, and how
/// many rows.
fn parts(pitches: [u64; 2], width: u64, count: u64) -> impl Iterator<Item = (u64, u64, u64, u64)> {
    // Rows without anything between them are one.
    let (width, count) = if pitches == [width; 2] { (width * count, 1) } else { (width, count) };
    let rows = (MOST / width.max(1)).clamp(1, MOST_ROWS);
    (0..count).step_by(rows as usize).flat_map(move |row| {
        (0..width)
            .step_by(MOST as usize)
            .map(move |byte| (row, byte, MOST.min(width - byte), rows.min(count - row)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_so_many_rows_and_bytes_and_all_of_them() {
        let parts = |pitches, width, count| parts(pitches, width, count).collect::<Vec<_>>();
        assert_eq!(parts([0, 9], 5, 1), [(0, 0, 5, 1)]);
        assert_eq!(parts([8, 5], 5, 3), [(0, 0, 5, 3)]);
        assert_eq!(parts([5, 5], 5, 3), [(0, 0, 15, 1)]);
        assert_eq!(parts([8, 8], 0, 3), []);
        assert_eq!(parts([8, 8], 3, 0), []);
        let many = [(0, 0, 1, MOST_ROWS), (MOST_ROWS, 0, 1, 7)];
        assert_eq!(parts([2, 1], 1, MOST_ROWS + 7), many);
        let long = [(0, 0, MOST, 1), (0, MOST, 2, 1), (1, 0, MOST, 1), (1, MOST, 2, 1)];
        assert_eq!(parts([1 << 30, 1 << 30], MOST + 2, 2), long);
        let half = MOST / 2;
        assert_eq!(parts([MOST, MOST], half, 3), [(0, 0, half, 2), (2, 0, half, 1)]);
    }
}
