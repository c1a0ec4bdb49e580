//! The runtime's copies and fills.
#![allow(unsafe_code, reason = "C functions' names, and whose memory they are given")]

use std::ffi::c_int;

use vgpu_remoting::memory::Rows;
use vgpu_remoting::session::Session;

use super::{Result, answer, functions};
use crate::cuda::device::checked;
use crate::device::copy::{copy, fill, on_device, row};
use crate::device::{Error, stream};
use crate::pointers::Address;

/// `cudaErrorInvalidPitchValue`
pub const INVALID_PITCH: Error = Error(12);

/// `cudaErrorInvalidMemcpyDirection`
const INVALID_DIRECTION: Error = Error(21);

/// `cudaMemcpyKind`: whether that goes from the device, and to it; none where the addresses say so.
///
/// # Errors
/// `INVALID_DIRECTION` where it is none.
pub fn sides(kind: c_int) -> Result<Option<[bool; 2]>> {
    match kind {
        0 => Ok(Some([false, false])),
        1 => Ok(Some([false, true])),
        2 => Ok(Some([true, false])),
        3 => Ok(Some([true, true])),
        4 => Ok(None),
        _ => Err(INVALID_DIRECTION),
    }
}

/// Copies rows of so many bytes, and so many rows.
///
/// # Errors
/// `INVALID_VALUE` where they are not where they are said to be; as [`sides`] and [`copy`].
pub fn rows(
    session: &Session<'_>,
    [to, from]: [Rows; 2],
    size: [usize; 2],
    kind: c_int,
    wait: bool,
) -> Result {
    let [width, count] = size.map(|size| size as u64);
    let sides = sides(kind)?;
    if width == 0 || count == 0 {
        return Ok(());
    }
    let are = [from, to].map(|rows| on_device(session, rows.address));
    if sides.is_some_and(|sides| sides != are) {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: an address is the device's, or the program's own, of so many such rows; the program leaves them as they are.
    unsafe { copy(session, to, from, width, count, wait) }
}

/// Copies bytes.
fn bytes(session: &Session<'_>, to: Address, from: Address, bytes: usize, kind: c_int, wait: bool) -> Result {
    rows(session, [to, from].map(|address| row(address.number())), [bytes, 1], kind, wait)
}

/// Copies a plane.
fn plane(
    session: &Session<'_>,
    sides: [(Address, usize); 2],
    [width, height]: [usize; 2],
    kind: c_int,
    wait: bool,
) -> Result {
    if sides.iter().any(|(_, pitch)| *pitch < width) {
        return Err(INVALID_PITCH);
    }
    let both = sides.map(|(address, pitch)| Rows { address: address.number(), pitch: pitch as u64 });
    rows(session, both, [width, height], kind, wait)
}

/// Fills bytes.
fn set(session: &Session<'_>, address: u64, value: c_int, bytes: usize) -> Result {
    set_plane(session, row(address), value, bytes, 1)
}

/// Fills a plane with a byte, which is the lowest of the value.
///
/// # Errors
/// As [`fill`].
pub fn set_plane(session: &Session<'_>, to: Rows, value: c_int, width: usize, height: usize) -> Result {
    fill(session, to, width as u64, height as u64, u64::from(value as u8), 1)
}

/// Of devices both of which are to be the one that there is.
const ON_DEVICE: c_int = 3;

functions! {
    answer [cudaMemcpy cudaMemcpy_ptds] (to: Address, from: Address, count: usize, kind: c_int) = |session| {
        bytes(session, to, from, count, kind, true)
    };
    answer [cudaMemcpyAsync cudaMemcpyAsync_ptsz] (
        to: Address, from: Address, count: usize, kind: c_int, stream: u64
    ) = |session| {
        stream::known(stream)?;
        bytes(session, to, from, count, kind, false)
    };
    answer [cudaMemcpy2D cudaMemcpy2D_ptds] (
        to: Address, to_pitch: usize, from: Address, from_pitch: usize, width: usize, height: usize, kind: c_int
    ) = |session| plane(session, [(to, to_pitch), (from, from_pitch)], [width, height], kind, true);
    answer [cudaMemcpy2DAsync cudaMemcpy2DAsync_ptsz] (
        to: Address,
        to_pitch: usize,
        from: Address,
        from_pitch: usize,
        width: usize,
        height: usize,
        kind: c_int,
        stream: u64,
    ) = |session| {
        stream::known(stream)?;
        plane(session, [(to, to_pitch), (from, from_pitch)], [width, height], kind, false)
    };
    answer [cudaMemcpyPeer] (
        to: Address, to_device: c_int, from: Address, from_device: c_int, count: usize
    ) = |session| {
        checked(to_device)?;
        checked(from_device)?;
        bytes(session, to, from, count, ON_DEVICE, true)
    };
    answer [cudaMemcpyPeerAsync] (
        to: Address, to_device: c_int, from: Address, from_device: c_int, count: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        checked(to_device)?;
        checked(from_device)?;
        bytes(session, to, from, count, ON_DEVICE, false)
    };
    answer [cudaMemset cudaMemset_ptds] (address: u64, value: c_int, count: usize) = |session| {
        set(session, address, value, count)
    };
    answer [cudaMemsetAsync cudaMemsetAsync_ptsz] (address: u64, value: c_int, count: usize, stream: u64) = |session| {
        stream::known(stream)?;
        set(session, address, value, count)
    };
    answer [cudaMemset2D cudaMemset2D_ptds] (
        address: u64, pitch: usize, value: c_int, width: usize, height: usize
    ) = |session| set_plane(session, Rows { address, pitch: pitch as u64 }, value, width, height);
    answer [cudaMemset2DAsync cudaMemset2DAsync_ptsz] (
        address: u64, pitch: usize, value: c_int, width: usize, height: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        set_plane(session, Rows { address, pitch: pitch as u64 }, value, width, height)
    };
}
