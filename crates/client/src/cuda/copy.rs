//! The driver's copies and fills.
#![allow(unsafe_code, reason = "C functions' names, and whose memory they are given")]

use std::ffi::{c_int, c_uchar, c_uint, c_ushort};

use vgpu_remoting::memory::Rows;
use vgpu_remoting::session::Session;

use super::{Result, current, functions};
use crate::device::copy::{Planes, copy, fill, on_device, row};
use crate::device::{Error, context, stream};
use crate::pointers::{Address, In};

/// Where one side of a copy is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Host,
    Device,
    /// Where its address says.
    Either,
}

impl Side {
    /// Is this address there?
    ///
    /// # Errors
    /// `INVALID_VALUE` where it is not.
    fn check(self, session: &Session<'_>, address: Address) -> Result {
        let device = on_device(session, address.number());
        let there = match self {
            Self::Host => !device,
            Self::Device => device,
            Self::Either => true,
        };
        if there { Ok(()) } else { Err(Error::INVALID_VALUE) }
    }
}

fn bytes(
    session: &Session<'_>,
    to: (Side, Address),
    from: (Side, Address),
    bytes: usize,
    wait: bool,
) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    let [to, from] =
        [to, from].map(|(side, address)| side.check(session, address).map(|()| row(address.number())));
    // SAFETY: an address is the device's, or the program's own, of so many bytes; the program leaves them as they are.
    unsafe { copy(session, to?, from?, bytes as u64, 1, wait) }
}

/// One side of a `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Plane {
    x: usize,
    y: usize,
    memory: c_int,
    host: Address,
    device: Address,
    array: u64,
    pitch: usize,
}

impl Plane {
    /// Where the copy begins, of rows of so many bytes.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` for arrays, `INVALID_VALUE` for what there is not.
    fn rows(&self, session: &Session<'_>, width: usize) -> Result<Rows> {
        let (side, base) = match self.memory {
            1 => (Side::Host, self.host),
            2 => (Side::Device, self.device),
            3 => return Err(Error::NOT_SUPPORTED),
            4 => (Side::Either, self.device),
            _ => return Err(Error::INVALID_VALUE),
        };
        // Rows that follow each other.
        let pitch = if self.pitch == 0 { width.saturating_add(self.x) } else { self.pitch };
        if self.x.checked_add(width).is_none_or(|end| end > pitch) {
            return Err(Error::INVALID_VALUE);
        }
        side.check(session, base)?;
        let before = self.y.checked_mul(pitch).and_then(|before| before.checked_add(self.x));
        let address =
            before.and_then(|before| base.number().checked_add(before as u64).filter(|_| base.number() != 0));
        Ok(Rows { address: address.ok_or(Error::INVALID_VALUE)?, pitch: pitch as u64 })
    }
}

/// `CUDA_MEMCPY2D`
#[repr(C)]
#[derive(Clone, Copy)]
struct Copy2d {
    from: Plane,
    to: Plane,
    width: usize,
    height: usize,
}

fn plane(session: &Session<'_>, Copy2d { from, to, width, height }: Copy2d, wait: bool) -> Result {
    if width == 0 || height == 0 {
        return Ok(());
    }
    let [to, from] = [to.rows(session, width)?, from.rows(session, width)?];
    // SAFETY: an address is the device's, or the program's own, of so many such rows; the program leaves them as they are.
    unsafe { copy(session, to, from, width as u64, height as u64, wait) }
}

/// One side of a `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Volume {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    memory: c_int,
    host: Address,
    device: Address,
    array: u64,
    reserved: u64,
    pitch: usize,
    height: usize,
}

impl Volume {
    /// Its planes, which follow each other, from where the copy begins on, which is of rows of so many bytes and so many
    /// rows.
    ///
    /// # Errors
    /// As [`Plane::rows`]; `INVALID_VALUE` where there are more rows than a plane has.
    fn planes(&self, session: &Session<'_>, width: usize, height: usize) -> Result<Planes> {
        let Self { x, y, z, memory, host, device, array, pitch, .. } = *self;
        let all = if self.height == 0 { height.saturating_add(y) } else { self.height };
        if y.checked_add(height).is_none_or(|end| end > all) {
            return Err(Error::INVALID_VALUE);
        }
        let y = z.checked_mul(all).and_then(|rows| rows.checked_add(y)).ok_or(Error::INVALID_VALUE)?;
        let rows = Plane { x, y, memory, host, device, array, pitch }.rows(session, width)?;
        Ok(Planes { rows, pitch: rows.pitch.saturating_mul(all as u64) })
    }
}

/// `CUDA_MEMCPY3D`
#[repr(C)]
#[derive(Clone, Copy)]
struct Copy3d {
    from: Volume,
    to: Volume,
    width: usize,
    height: usize,
    depth: usize,
}

fn volume(session: &Session<'_>, what: Copy3d, wait: bool) -> Result {
    let Copy3d { from, to, width, height, depth } = what;
    // However many of nothing there are.
    if width == 0 || height == 0 || depth == 0 {
        return Ok(());
    }
    let [to, from] = [to.planes(session, width, height)?, from.planes(session, width, height)?];
    let [width, height, depth] = [width, height, depth].map(|size| size as u64);
    // Before any is copied.
    to.check(session, [width, height, depth])?;
    from.check(session, [width, height, depth])?;
    to.each(depth).zip(from.each(depth)).try_for_each(|(to, from)| {
        // SAFETY: an address is the device's, or the program's own, of so many such rows; the program leaves them as they
        // are.
        unsafe { copy(session, to, from, width, height, wait) }
    })
}

/// Are there these two contexts? They are of one device, and addresses are the same in both.
fn contexts(contexts: [u64; 2]) -> Result {
    contexts.into_iter().try_for_each(|context| context::get(context).map(|_| ()))
}

use Side::{Device, Either, Host};

functions! {
    current [cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds] (to: Address, from: Address, count: usize) = |session| {
        bytes(session, (Device, to), (Host, from), count, true)
    };
    current [cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds] (to: Address, from: Address, count: usize) = |session| {
        bytes(session, (Host, to), (Device, from), count, true)
    };
    current [cuMemcpyDtoD_v2 cuMemcpyDtoD_v2_ptds] (to: Address, from: Address, count: usize) = |session| {
        bytes(session, (Device, to), (Device, from), count, true)
    };
    current [cuMemcpy cuMemcpy_ptds] (to: Address, from: Address, count: usize) = |session| {
        bytes(session, (Either, to), (Either, from), count, true)
    };
    current [cuMemcpyPeer cuMemcpyPeer_ptds] (
        to: Address, to_context: u64, from: Address, from_context: u64, count: usize
    ) = |session| {
        contexts([to_context, from_context])?;
        bytes(session, (Device, to), (Device, from), count, true)
    };
    current [cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz] (
        to: Address, from: Address, count: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        bytes(session, (Device, to), (Host, from), count, false)
    };
    current [cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2_ptsz] (
        to: Address, from: Address, count: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        bytes(session, (Host, to), (Device, from), count, false)
    };
    current [cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz] (
        to: Address, from: Address, count: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        bytes(session, (Device, to), (Device, from), count, false)
    };
    current [cuMemcpyAsync cuMemcpyAsync_ptsz] (
        to: Address, from: Address, count: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        bytes(session, (Either, to), (Either, from), count, false)
    };
    current [cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz] (
        to: Address, to_context: u64, from: Address, from_context: u64, count: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        contexts([to_context, from_context])?;
        bytes(session, (Device, to), (Device, from), count, false)
    };
    current [cuMemcpy2D_v2 cuMemcpy2D_v2_ptds cuMemcpy2DUnaligned_v2 cuMemcpy2DUnaligned_v2_ptds] (
        what: In<Copy2d>
    ) = |session| plane(session, what.get()?, true);
    current [cuMemcpy2DAsync_v2 cuMemcpy2DAsync_v2_ptsz] (what: In<Copy2d>, stream: u64) = |session| {
        stream::known(stream)?;
        plane(session, what.get()?, false)
    };
    current [cuMemcpy3D_v2 cuMemcpy3D_v2_ptds] (what: In<Copy3d>) = |session| {
        volume(session, what.get()?, true)
    };
    current [cuMemcpy3DAsync_v2 cuMemcpy3DAsync_v2_ptsz] (what: In<Copy3d>, stream: u64) = |session| {
        stream::known(stream)?;
        volume(session, what.get()?, false)
    };
    current [cuMemsetD8_v2 cuMemsetD8_v2_ptds] (to: u64, value: c_uchar, count: usize) = |session| {
        fill(session, row(to), count as u64, 1, value.into(), 1)
    };
    current [cuMemsetD16_v2 cuMemsetD16_v2_ptds] (to: u64, value: c_ushort, count: usize) = |session| {
        fill(session, row(to), count as u64, 1, value.into(), 2)
    };
    current [cuMemsetD32_v2 cuMemsetD32_v2_ptds] (to: u64, value: c_uint, count: usize) = |session| {
        fill(session, row(to), count as u64, 1, value.into(), 4)
    };
    current [cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds] (
        address: u64, pitch: usize, value: c_uchar, width: usize, height: usize
    ) = |session| fill(session, rows(address, pitch), width as u64, height as u64, value.into(), 1);
    current [cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds] (
        address: u64, pitch: usize, value: c_ushort, width: usize, height: usize
    ) = |session| fill(session, rows(address, pitch), width as u64, height as u64, value.into(), 2);
    current [cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds] (
        address: u64, pitch: usize, value: c_uint, width: usize, height: usize
    ) = |session| fill(session, rows(address, pitch), width as u64, height as u64, value.into(), 4);
    current [cuMemsetD8Async cuMemsetD8Async_ptsz] (
        to: u64, value: c_uchar, count: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        fill(session, row(to), count as u64, 1, value.into(), 1)
    };
    current [cuMemsetD16Async cuMemsetD16Async_ptsz] (
        to: u64, value: c_ushort, count: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        fill(session, row(to), count as u64, 1, value.into(), 2)
    };
    current [cuMemsetD32Async cuMemsetD32Async_ptsz] (
        to: u64, value: c_uint, count: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        fill(session, row(to), count as u64, 1, value.into(), 4)
    };
    current [cuMemsetD2D8Async cuMemsetD2D8Async_ptsz] (
        address: u64, pitch: usize, value: c_uchar, width: usize, height: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        fill(session, rows(address, pitch), width as u64, height as u64, value.into(), 1)
    };
    current [cuMemsetD2D16Async cuMemsetD2D16Async_ptsz] (
        address: u64, pitch: usize, value: c_ushort, width: usize, height: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        fill(session, rows(address, pitch), width as u64, height as u64, value.into(), 2)
    };
    current [cuMemsetD2D32Async cuMemsetD2D32Async_ptsz] (
        address: u64, pitch: usize, value: c_uint, width: usize, height: usize, stream: u64
    ) = |session| {
        stream::known(stream)?;
        fill(session, rows(address, pitch), width as u64, height as u64, value.into(), 4)
    };
}

fn rows(address: u64, pitch: usize) -> Rows {
    Rows { address, pitch: pitch as u64 }
}
