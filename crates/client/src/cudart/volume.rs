//! The runtime's volumes: planes of device memory, or of the program's, that follow each other. There are no arrays.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::c_int;

use vgpu_remoting::memory::Rows;
use vgpu_remoting::session::Session;

use super::copy::{INVALID_PITCH, rows, set_plane, sides};
use super::memory::{allocate, pitch_of};
use super::{Result, answer, functions};
use crate::device::copy::Planes;
use crate::device::{Error, stream};
use crate::pointers::{Address, In, Out};

/// `cudaExtent`; the width is in bytes.
#[derive(Clone, Copy)]
#[repr(C)]
struct Extent {
    width: usize,
    height: usize,
    depth: usize,
}

impl Extent {
    fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    fn sizes(self) -> [u64; 3] {
        [self.width, self.height, self.depth].map(|size| size as u64)
    }
}

/// `cudaPos`
#[derive(Clone, Copy)]
#[repr(C)]
struct Position {
    x: usize,
    y: usize,
    z: usize,
}

impl Position {
    const FIRST: Self = Self { x: 0, y: 0, z: 0 };
}

/// `cudaPitchedPtr`: where a volume is, how far it is to the next row, and how many bytes and rows of it there are.
#[derive(Clone, Copy)]
#[repr(C)]
struct Volume {
    address: Address,
    pitch: usize,
    width: usize,
    height: usize,
}

impl Volume {
    /// Its planes, from a position on.
    ///
    /// # Errors
    /// `INVALID_VALUE` where no address is so high.
    fn planes(self, from: Position) -> Result<Planes> {
        let rows = from.z.checked_mul(self.height).and_then(|rows| rows.checked_add(from.y));
        let bytes = rows.and_then(|rows| rows.checked_mul(self.pitch)?.checked_add(from.x));
        let address = bytes.and_then(|bytes| self.address.number().checked_add(bytes as u64));
        // An offset is no memory.
        let address = address.filter(|_| self.address.number() != 0).ok_or(Error::INVALID_VALUE)?;
        let pitch = self.pitch as u64;
        Ok(Planes { rows: Rows { address, pitch }, pitch: pitch.saturating_mul(self.height as u64) })
    }

    /// Are rows of so many bytes, from a position on, no longer than it is to the next row?
    ///
    /// # Errors
    /// `INVALID_PITCH` where they are.
    fn holds(self, from: Position, width: usize) -> Result {
        let held = from.x.checked_add(width).is_some_and(|end| end <= self.pitch);
        if held { Ok(()) } else { Err(INVALID_PITCH) }
    }
}

/// `cudaMemcpy3DParms`
#[derive(Clone, Copy)]
#[repr(C)]
struct Copy3d {
    from_array: u64,
    from_position: Position,
    from: Volume,
    to_array: u64,
    to_position: Position,
    to: Volume,
    extent: Extent,
    kind: c_int,
}

fn copy(session: &Session<'_>, what: Copy3d, wait: bool) -> Result {
    let Copy3d { from_position, from, to_position, to, extent, kind, .. } = what;
    if what.from_array != 0 || what.to_array != 0 {
        return Err(Error::NOT_SUPPORTED);
    }
    sides(kind)?;
    if extent.is_empty() {
        return Ok(());
    }
    to.holds(to_position, extent.width)?;
    from.holds(from_position, extent.width)?;
    let [to, from] = [to.planes(to_position)?, from.planes(from_position)?];
    // Before any is copied.
    to.check(session, extent.sizes())?;
    from.check(session, extent.sizes())?;
    to.each(extent.depth as u64)
        .zip(from.each(extent.depth as u64))
        .try_for_each(|(to, from)| rows(session, [to, from], [extent.width, extent.height], kind, wait))
}

fn set(session: &Session<'_>, to: Volume, value: c_int, extent: Extent) -> Result {
    if extent.is_empty() {
        return Ok(());
    }
    to.holds(Position::FIRST, extent.width).map_err(|_| Error::INVALID_VALUE)?;
    let planes = to.planes(Position::FIRST)?;
    planes.check(session, extent.sizes())?;
    planes
        .each(extent.depth as u64)
        .try_for_each(|plane| set_plane(session, plane, value, extent.width, extent.height))
}

functions! {
    answer [cudaMalloc3D] (to: Out<Volume>, extent: Extent) = |session| {
        let Extent { width, height, depth } = extent;
        let pitch = pitch_of(width).ok_or(Error::OUT_OF_MEMORY)?;
        let bytes = height.checked_mul(depth).and_then(|rows| rows.checked_mul(pitch)).ok_or(Error::OUT_OF_MEMORY)?;
        to.fill(|| {
            let address = Address::of(allocate(session, bytes)?);
            Ok(Volume { address, pitch, width, height })
        })
    };
    answer [cudaMemcpy3D cudaMemcpy3D_ptds] (what: In<Copy3d>) = |session| copy(session, what.get()?, true);
    answer [cudaMemcpy3DAsync cudaMemcpy3DAsync_ptsz] (what: In<Copy3d>, stream: u64) = |session| {
        stream::known(stream)?;
        copy(session, what.get()?, false)
    };
    answer [cudaMemset3D cudaMemset3D_ptds] (to: Volume, value: c_int, extent: Extent) = |session| {
        set(session, to, value, extent)
    };
    answer [cudaMemset3DAsync cudaMemset3DAsync_ptsz] (to: Volume, value: c_int, extent: Extent, stream: u64) = |session| {
        stream::known(stream)?;
        set(session, to, value, extent)
    };
}
