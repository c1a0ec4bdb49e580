//! A client's host-allocated memory, as the worker has it: a part of the client's file, which the client maps and the
//! worker does not. It reads and writes it with pread(2) and pwrite(2), so that nothing the client does with the file
//! can harm it, and what nobody has written reads as zeros without any memory. Touches that file alone.
//!
//! Where the worker writes first, the memory is the worker's: so it gives out the places and bounds them, for all
//! clients together, and makes holes of what is freed. All of a file is a hole before its budget is given back, since a
//! client may have left the file to another process.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::cudnn::{Result, Status};
use crate::memory::{Budget, Rows};
use crate::places::Places;
use crate::sys::Shared;

/// What an allocation begins at a multiple of: a page, on each architecture.
const GRAIN: u64 = 1 << 16;

/// The most bytes that one record copies.
pub const MOST: u64 = 1 << 26;

/// The most rows that one record copies, each of which is a system call.
pub const MOST_ROWS: u64 = 1 << 14;

/// The host-allocated memory of one client.
#[derive(Debug)]
pub struct Host<'a> {
    memory: &'a Shared,
    /// In the client's file.
    room: Range<u64>,
    places: Places,
}

impl<'a> Host<'a> {
    /// In the client's file, where there is room for it ([`crate::channel::Channel::host`]).
    #[must_use]
    pub fn new((memory, room): (&'a Shared, Range<u64>), budget: &Arc<Budget>) -> Self {
        let places = Places::new(room.end - room.start, GRAIN, budget);
        Self { memory, room, places }
    }

    /// Where in the file so many bytes are; none where there is no room, or nothing is asked for.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        self.places.take(bytes).map(|offset| self.room.start + offset)
    }

    /// Frees what begins there. The flag tells whether anything did.
    pub fn free(&mut self, offset: u64) -> bool {
        let Some(offset) = offset.checked_sub(self.room.start) else { return false };
        self.places.give(offset, |_, Range { start, end }| {
            // It fails on nothing that `Shared::open` takes.
            let _ = self.memory.discard(&(self.room.start + start..self.room.start + end));
        })
    }

    /// Reads rows, which are to be as many bytes apart there.
    ///
    /// # Errors
    /// `BadParam` where rows are longer than it is to the next one; `ExecutionFailed` where they are not wholly in what
    /// was allocated.
    pub fn read(&self, to: &mut [u8], pitch: u64, from: Rows, width: u64, count: u64) -> Result {
        self.check(from, width, count)?;
        for (place, offset) in places(pitch, from, width, count) {
            let to = to.get_mut(place).ok_or(Status::InternalError)?;
            self.memory.file().read_exact_at(to, offset).map_err(|_| Status::ExecutionFailed)?;
        }
        Ok(())
    }

    /// Writes rows, which are as many bytes apart here.
    ///
    /// # Errors
    /// As [`Host::read`].
    pub fn write(&self, to: Rows, from: &[u8], pitch: u64, width: u64, count: u64) -> Result {
        self.check(to, width, count)?;
        for (place, offset) in places(pitch, to, width, count) {
            let from = from.get(place).ok_or(Status::InternalError)?;
            self.memory.file().write_all_at(from, offset).map_err(|_| Status::ExecutionFailed)?;
        }
        Ok(())
    }

    fn check(&self, rows: Rows, width: u64, count: u64) -> Result {
        let span = rows.span(width, count)?;
        let start = rows.address.checked_sub(self.room.start);
        let held = start.is_some_and(|start| self.places.hold(&(start..start + span)));
        if held { Ok(()) } else { Err(Status::ExecutionFailed) }
    }
}

/// Where each row is in memory, and where in the file.
fn places(pitch: u64, rows: Rows, width: u64, count: u64) -> impl Iterator<Item = (Range<usize>, u64)> {
    (0..count).map(move |row| {
        let start = (row * pitch) as usize;
        (start..start + width as usize, rows.address + row * rows.pitch)
    })
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        let _ = self.memory.discard(&self.room);
    }
}
