//! Copies between the program's memory and the device's, and fills. Whose memory is meant is told by the address. A
//! program's own memory is copied from and to before a call returns, also where the call need not wait for that; what
//! stays on the device is done later, in order.
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
/// What is not the device's is NULL, or the program's own, of so many bytes in each row.
pub unsafe fn copy(session: &Session<'_>, to: Rows, from: Rows, width: u64, count: u64) -> Result<(), Error> {
    if width == 0 || count == 0 {
        return Ok(());
    }
    let len = usize::try_from(width).ok().filter(|len| isize::try_from(*len).is_ok());
    let len = len.ok_or(Error::INVALID_VALUE)?;
    for rows in [to, from] {
        check(session, rows, width, count)?;
    }
    let address = |rows: Rows, row: u64| rows.address + row * rows.pitch;
    match (on_device(session, to.address), on_device(session, from.address)) {
        (true, true) => Ok(session.copy(to, from, width, count)?),
        (true, false) => (0..count).try_for_each(|row| {
            let from = address(from, row) as *const u8;
            // SAFETY: it is not NULL and not the device's, so the program's own, of so many bytes.
            Ok(session.copy_in(address(to, row), unsafe { slice::from_raw_parts(from, len) })?)
        }),
        (false, true) => (0..count).try_for_each(|row| {
            let to = address(to, row) as *mut u8;
            // SAFETY: as above.
            Ok(session.copy_out(unsafe { slice::from_raw_parts_mut(to, len) }, address(from, row))?)
        }),
        (false, false) => {
            // All that was sent before comes first, on whatever stream.
            session.synchronise()?;
            for row in 0..count {
                // SAFETY: as above, of both; they may overlap.
                unsafe { ptr::copy(address(from, row) as *const u8, address(to, row) as *mut u8, len) };
            }
            Ok(())
        }
    }
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

fn check(session: &Session<'_>, rows: Rows, width: u64, count: u64) -> Result<(), Error> {
    let between = (count - 1).checked_mul(rows.pitch);
    let whole = between.and_then(|between| between.checked_add(width)).filter(|_| rows.address != 0);
    let end = whole.and_then(|whole| rows.address.checked_add(whole)).ok_or(Error::INVALID_VALUE)?;
    if count > 1 && rows.pitch < width {
        return Err(Error::INVALID_VALUE);
    }
    if on_device(session, rows.address) { memory::within(rows.address, end - rows.address) } else { Ok(()) }
}
