//! Copies between the program's memory and the device's, and fills. Whose memory is meant is told by the address. A
//! program's own memory is copied from and to before a call returns, also where the call need not wait for that;
//! host-allocated memory only where it is to wait; what stays on the device is done later, in order.
#![allow(unsafe_code, reason = "follows the program's pointers")]

use std::{ptr, slice};

use vgpu_remoting::memory::Rows;
use vgpu_remoting::session::Session;

use super::{Error, memory};

/// One row, of whatever length.
pub fn row(address: u64) -> Rows {
    Rows { address, pitch: 0 }
}

/// Is it the device's memory?
pub fn on_device(session: &Session<'_>, address: u64) -> bool {
    session.client().channel().device().contains(&address)
}

/// Copies rows of so many bytes.
///
/// # Errors
/// `INVALID_VALUE` where an address is NULL, or rows are longer than it is to the next one, or not all of them are the
/// device's in one allocation; of what was sent before.
///
/// # Safety
/// What is not the device's is NULL, or the program's own, of so many bytes in each row; and it stays as it is until this
/// returns, or what is sent is done where it is host-allocated and this need not wait.
pub unsafe fn copy(
    session: &Session<'_>,
    to: Rows,
    from: Rows,
    width: u64,
    count: u64,
    wait: bool,
) -> Result<(), Error> {
    if width == 0 || count == 0 {
        return Ok(());
    }
    for rows in [to, from] {
        check(session, rows, width, count)?;
    }
    match (on_device(session, to.address), on_device(session, from.address)) {
        (true, true) => Ok(session.copy(to, from, width, count)?),
        (true, false) => match session.shared(from, width, count) {
            Some(from) => Ok(session.copy_from_host(to, from, width, count, wait)?),
            // SAFETY: it is not NULL and not the device's, so the program's own, of so many bytes.
            None => Ok(session.copy_rows_in(to, unsafe { each(from, width, count) }, width)?),
        },
        (false, true) => match session.shared(to, width, count) {
            Some(to) => Ok(session.copy_to_host(to, from, width, count, wait)?),
            // SAFETY: as above.
            None => Ok(session.copy_rows_out(unsafe { each_mut(to, width, count) }, from, width)?),
        },
        (false, false) => {
            // All that was sent before comes first, on whatever stream.
            session.synchronise()?;
            for row in 0..count {
                let [to, from] = [to, from].map(|rows| rows.address + row * rows.pitch);
                // SAFETY: as above, of both; they may overlap.
                unsafe { ptr::copy(from as *const u8, to as *mut u8, width as usize) };
            }
            Ok(())
        }
    }
}

/// Rows of the program's memory.
///
/// # Safety
/// They are the program's own, no longer than it is to the next one, and stay as they are.
unsafe fn each<'p>(rows: Rows, width: u64, count: u64) -> impl ExactSizeIterator<Item = &'p [u8]> {
    (0..count as usize).map(move |row| {
        let address = rows.address as usize + row * rows.pitch as usize;
        // SAFETY: as the caller says.
        unsafe { slice::from_raw_parts(address as *const u8, width as usize) }
    })
}

/// As [`each`], to be written.
///
/// # Safety
/// As [`each`].
unsafe fn each_mut<'p>(rows: Rows, width: u64, count: u64) -> impl ExactSizeIterator<Item = &'p mut [u8]> {
    (0..count as usize).map(move |row| {
        let address = rows.address as usize + row * rows.pitch as usize;
        // SAFETY: as the caller says; no two rows overlap.
        unsafe { slice::from_raw_parts_mut(address as *mut u8, width as usize) }
    })
}

/// Fills rows with so many values of a size of bytes, 1, 2, 4 or 8, which all are a multiple of.
///
/// # Errors
/// As [`copy`]; `INVALID_VALUE` where the rows are not the device's, or do not begin with a multiple of the size.
pub fn fill(
    session: &Session<'_>,
    to: Rows,
    values: u64,
    count: u64,
    value: u64,
    size: u64,
) -> Result<(), Error> {
    let pitch = if count > 1 { to.pitch } else { 0 };
    if !to.address.is_multiple_of(size) || !pitch.is_multiple_of(size) {
        return Err(Error::INVALID_VALUE);
    }
    let width = values.checked_mul(size).ok_or(Error::INVALID_VALUE)?;
    if width == 0 || count == 0 {
        return Ok(());
    }
    if !on_device(session, to.address) {
        return Err(Error::INVALID_VALUE);
    }
    check(session, to, width, count)?;
    Ok(session.fill(to, width, count, value, size)?)
}

/// Planes of rows.
#[derive(Clone, Copy)]
pub struct Planes {
    /// Those of the first.
    pub rows: Rows,
    /// Bytes from one to the next.
    pub pitch: u64,
}

impl Planes {
    /// Are so many there, of so many rows of so many bytes, and none in another?
    ///
    /// # Errors
    /// `INVALID_VALUE` where they are not, or not all of them are the device's in one allocation.
    pub fn check(self, session: &Session<'_>, [width, height, depth]: [u64; 3]) -> Result<(), Error> {
        let plane = self.rows.span(width, height).map_err(|_| Error::INVALID_VALUE)?;
        check(session, Rows { address: self.rows.address, pitch: self.pitch }, plane, depth)
    }

    /// So many of them, which are there.
    pub fn each(self, depth: u64) -> impl Iterator<Item = Rows> {
        (0..depth).map(move |number| Rows { address: self.rows.address + number * self.pitch, ..self.rows })
    }
}

fn check(session: &Session<'_>, rows: Rows, width: u64, count: u64) -> Result<(), Error> {
    let span = rows.span(width, count).map_err(|_| Error::INVALID_VALUE)?;
    let end = rows.address.checked_add(span).filter(|_| rows.address != 0);
    if end.is_none() || isize::try_from(span).is_err() {
        return Err(Error::INVALID_VALUE);
    }
    if on_device(session, rows.address) { memory::within(rows.address, span) } else { Ok(()) }
}
