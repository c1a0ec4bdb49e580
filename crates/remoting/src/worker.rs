//! What a worker does with a client's records. Touches nothing but its backend.
//!
//! An error of a compute that nobody waits for is kept, as CUDA keeps such: no later compute is done, and each
//! answer is that error.

use std::collections::HashMap;
use std::time::Instant;

use crate::contents::Seen;
use crate::cublas::backend::Blas;
use crate::cublas::{self, backend as blas};
use crate::cudnn::backend::{Backend, compute};
use crate::cudnn::forwarded::Forwarded;
use crate::cudnn::table::Function;
use crate::cudnn::{Result, Status, Version};
use crate::host::{self, Host};
use crate::memory::Rows;
use crate::staging;
use crate::sync::Region;
use crate::wire::{Head, Malformed, Reader, Words};

/// The number of a record that is answered when all before it are done, with the error that is kept, if any.
pub const SYNCHRONISE: u16 = 0xFFFF;
/// Of one that asks for so many bytes of device memory. The answer has the address.
pub const ALLOCATE: u16 = 0xFFFE;
/// Of one that frees what begins at an address.
pub const FREE: u16 = 0xFFFD;
/// Of one that copies rows of bytes from the staging memory: whereto, with the pitch, how long, and how many.
pub const COPY_IN: u16 = 0xFFFC;
/// Of one that copies rows to the staging memory: whence, likewise.
pub const COPY_OUT: u16 = 0xFFFB;
/// Of one that says that descriptor calls come too, from a program of this version of cuDNN.
pub const FORWARD: u16 = 0xFFFA;
/// Of one that begins random numbers, from a seed, in so many bytes at an address.
pub const SEED: u16 = 0xFFF9;
/// Of one that copies rows of bytes on the device: whereto and whence, each with its pitch, how long, and how many.
pub const COPY: u16 = 0xFFF8;
/// Of one that fills rows: where, with the pitch, how long, how many, the value, and how many bytes of it.
pub const FILL: u16 = 0xFFF7;
/// Of one that asks how much memory is free, and how much there is.
pub const INFO: u16 = 0xFFF6;
/// Of one that marks a moment, by a number.
pub const MARK: u16 = 0xFFF5;
/// Of one that asks for the nanoseconds between two moments.
pub const ELAPSED: u16 = 0xFFF4;
/// Of one after which a moment is not asked for any more.
pub const FORGET: u16 = 0xFFF3;
/// Of one that asks for so many bytes of host-allocated memory. The answer says where in the client's file.
pub const ALLOCATE_HOST: u16 = 0xFFF2;
/// Of one that frees what begins there.
pub const FREE_HOST: u16 = 0xFFF1;
/// Of one that copies rows from host-allocated memory: as [`COPY`], of which the latter rows are in the file.
pub const COPY_FROM_HOST: u16 = 0xFFF0;
/// Of one that copies rows to host-allocated memory: the former rows are in the file.
pub const COPY_TO_HOST: u16 = 0xFFEF;

/// How many events a client has at most, which have a moment each.
pub const MAX_EVENTS: usize = 1 << 16;

/// How many moments the worker keeps: also those of events that have ended, until it is told.
const MAX_MOMENTS: usize = 2 * MAX_EVENTS;

/// The device memory of a client. A backend without any has these defaults.
pub trait Device {
    /// The address of so many bytes; none where there is no room.
    fn allocate(&mut self, _bytes: u64) -> Option<u64> {
        None
    }

    /// Frees what begins at an address. The flag tells whether anything did.
    fn free(&mut self, _address: u64) -> bool {
        false
    }

    /// Begins random numbers, in so many bytes at an address.
    ///
    /// # Errors
    /// `InvalidValue` where these are too few, `ExecutionFailed` where they are not the client's.
    fn seed(&mut self, _address: u64, _len: u64, _seed: u64) -> Result {
        Err(Status::NotSupported)
    }

    /// Copies rows of so many bytes.
    ///
    /// # Errors
    /// `BadParam` where rows overlap, `ExecutionFailed` where they are not the client's.
    fn copy(&mut self, _to: Rows, _from: Rows, _width: u64, _count: u64) -> Result {
        Err(Status::ExecutionFailed)
    }

    /// Fills rows of so many bytes with a value.
    ///
    /// # Errors
    /// As [`Device::copy`].
    fn fill(&mut self, _to: Rows, _width: u64, _count: u64, _value: &[u8]) -> Result {
        Err(Status::ExecutionFailed)
    }

    /// How much memory is free, and how much there is.
    fn info(&self) -> (u64, u64) {
        (0, 0)
    }

    /// So many bytes at an address.
    ///
    /// # Errors
    /// `ExecutionFailed` where they are not the client's.
    fn bytes(&mut self, _address: u64, _len: usize) -> Result<&mut [u8]> {
        Err(Status::ExecutionFailed)
    }
}

fn rows((address, pitch): (u64, u64)) -> Rows {
    Rows { address, pitch }
}

/// Of one client process.
#[derive(Debug)]
pub struct Worker<'a, B> {
    descriptors: Descriptors<'a>,
    backend: B,
    staging: Region<'a>,
    host: Option<Host<'a>>,
    kept: Result,
    moments: HashMap<u64, Instant>,
}

#[derive(Debug)]
enum Descriptors<'a> {
    Reused(Seen<'a>),
    Forwarded(Forwarded),
}

impl<'a, B: Backend + Blas + Device> Worker<'a, B> {
    /// For a client that answers descriptor calls itself, with its table of contents, until it says that it forwards
    /// them.
    #[must_use]
    pub fn new(contents: Region<'a>, backend: B) -> Self {
        Self::with(Descriptors::Reused(Seen::new(contents)), backend)
    }

    /// For one that forwards them from the beginning, of a program of this version.
    #[must_use]
    pub fn forwarded(version: Version, backend: B) -> Self {
        Self::with(Descriptors::Forwarded(Forwarded::new(version)), backend)
    }

    fn with(descriptors: Descriptors<'a>, backend: B) -> Self {
        Self { descriptors, backend, staging: &[], host: None, kept: Ok(()), moments: HashMap::new() }
    }

    /// With this memory for what is copied to and from the device.
    #[must_use]
    pub fn staging(self, staging: Region<'a>) -> Self {
        Self { staging, ..self }
    }

    /// With this host-allocated memory.
    #[must_use]
    pub fn host(self, host: Host<'a>) -> Self {
        Self { host: Some(host), ..self }
    }

    /// Does what a record says. The first word of the answer is [`Status::to_wire`]; results come after it.
    ///
    /// # Errors
    /// `Malformed` for one that no client that keeps to the rules would send: it is not to be served any more.
    pub fn record(
        &mut self,
        head: Head,
        arguments: &[u64],
        answer: &mut Words,
    ) -> std::result::Result<(), Malformed> {
        answer.push(0);
        let result = match (head.function, arguments) {
            (SYNCHRONISE, []) => self.kept,
            // As with CUDA, after an error everything has it.
            (ALLOCATE, [_]) | (ALLOCATE_HOST, [_]) | (INFO, []) if self.kept.is_err() => self.kept,
            (ALLOCATE, [bytes]) => {
                let address = self.backend.allocate(*bytes);
                answer.extend(address);
                address.map(|_| ()).ok_or(Status::AllocFailed)
            }
            (FREE, [address]) if self.backend.free(*address) => self.kept,
            (FREE, [_]) => Err(Status::BadParam),
            (COPY_IN | COPY_OUT, &[address, pitch, width, count]) => {
                self.copy(head.function, rows((address, pitch)), width, count)?
            }
            (COPY, &[to, to_pitch, from, from_pitch, width, count]) => {
                let [to, from] = [(to, to_pitch), (from, from_pitch)].map(rows);
                self.unless_failed(head, |backend| backend.copy(to, from, width, count))
            }
            (FILL, &[to, pitch, width, count, value, size @ 1..=8]) => {
                let value = &value.to_le_bytes()[..size as usize];
                self.unless_failed(head, |backend| backend.fill(rows((to, pitch)), width, count, value))
            }
            (INFO, []) => {
                let (free, total) = self.backend.info();
                answer.extend([free, total]);
                Ok(())
            }
            (MARK, [moment]) if self.moments.len() < MAX_MOMENTS || self.moments.contains_key(moment) => {
                self.moments.insert(*moment, Instant::now());
                Ok(())
            }
            (MARK, [_]) => Err(Status::AllocFailed),
            (ELAPSED, [from, to]) => self.elapsed(*from, *to).map(|elapsed| answer.push(elapsed)),
            (FORGET, [moment]) => {
                self.moments.remove(moment);
                Ok(())
            }
            (ALLOCATE_HOST, [bytes]) => {
                let offset = self.host.as_mut().and_then(|host| host.allocate(*bytes));
                answer.extend(offset);
                offset.map(|_| ()).ok_or(Status::AllocFailed)
            }
            (FREE_HOST, [offset]) => {
                let freed = self.host.as_mut().is_some_and(|host| host.free(*offset));
                if freed { Ok(()) } else { Err(Status::BadParam) }
            }
            (COPY_FROM_HOST | COPY_TO_HOST, &[to, to_pitch, from, from_pitch, width, count]) => {
                self.copy_host(head, [(to, to_pitch), (from, from_pitch)].map(rows), width, count)?
            }
            (SEED, [address, len, seed]) => self.backend.seed(*address, *len, *seed),
            (FORWARD, [version]) => self.forward(*version)?,
            (cublas::table::FIRST.., _) => self.blas(head, arguments, answer)?,
            (number, _) => {
                self.call(Function::from_number(number).ok_or(Malformed)?, head, arguments, answer)?
            }
        };
        answer[0] = Status::to_wire(result);
        Ok(())
    }

    /// What comes after an error is not done.
    fn unless_failed(&mut self, head: Head, compute: impl FnOnce(&mut B) -> Result) -> Result {
        if self.kept.is_err() {
            return self.kept;
        }
        let result = compute(&mut self.backend);
        self.keep(head, result)
    }

    /// Less than nothing, in two's complement, where they come the other way round.
    fn elapsed(&self, from: u64, to: u64) -> Result<u64> {
        self.kept?;
        let [from, to] = [from, to].map(|moment| self.moments.get(&moment).ok_or(Status::BadParam));
        let (from, to) = (*from?, *to?);
        let between = |from: Instant, to: Instant| to.saturating_duration_since(from).as_nanos() as u64;
        Ok(between(from, to).wrapping_sub(between(to, from)))
    }

    /// A program that is of both versions has the descriptors of the one that it used first.
    fn forward(&mut self, version: u64) -> std::result::Result<Result, Malformed> {
        let version = Version::ALL.into_iter().find(|known| *known as u64 == version).ok_or(Malformed)?;
        if matches!(self.descriptors, Descriptors::Reused(_)) {
            self.descriptors = Descriptors::Forwarded(Forwarded::new(version));
        }
        Ok(Ok(()))
    }

    fn call(
        &mut self,
        function: Function,
        head: Head,
        arguments: &[u64],
        answer: &mut Words,
    ) -> std::result::Result<Result, Malformed> {
        if !function.signature().class.computes() {
            return self.descriptor(function, arguments, answer);
        }
        let result = self.compute(function, arguments, answer)?;
        Ok(self.keep(head, result))
    }

    fn blas(
        &mut self,
        head: Head,
        arguments: &[u64],
        answer: &mut Words,
    ) -> std::result::Result<Result, Malformed> {
        let function = cublas::table::Function::from_number(head.function).ok_or(Malformed)?;
        if self.kept.is_err() {
            return Ok(self.kept);
        }
        let result = blas::compute(function, arguments, &mut self.backend)?;
        answer.extend(result.ok().flatten().map(|number| number.to_bits()));
        Ok(self.keep(head, result.map(|_| ())))
    }

    /// An error that nobody waits for is kept.
    fn keep(&mut self, head: Head, result: Result) -> Result {
        self.kept = if head.place.is_none() { result } else { self.kept };
        result
    }

    /// Between device and staging memory.
    fn copy(
        &mut self,
        way: u16,
        device: Rows,
        width: u64,
        count: u64,
    ) -> std::result::Result<Result, Malformed> {
        if count.saturating_mul(staging::words(width)) > self.staging.len() as u64 {
            return Err(Malformed);
        }
        Ok(self.kept.and_then(|()| {
            let span = device.span(width, count)?;
            let bytes = self.backend.bytes(device.address, span as usize)?;
            // The last one ends with itself.
            let step = if count > 1 { device.pitch } else { width }.max(1) as usize;
            for (row, staging) in bytes.chunks_mut(step).zip(staging::rows(self.staging, width)) {
                let row = &mut row[..width as usize];
                if way == COPY_IN { staging::load(staging, row) } else { staging::store(staging, row) }
            }
            Ok(())
        }))
    }

    /// Between device and host-allocated memory.
    fn copy_host(
        &mut self,
        head: Head,
        [to, from]: [Rows; 2],
        width: u64,
        count: u64,
    ) -> std::result::Result<Result, Malformed> {
        if count > host::MOST_ROWS || width.saturating_mul(count) > host::MOST {
            return Err(Malformed);
        }
        let result = self.kept.and_then(|()| {
            let host = self.host.as_ref().ok_or(Status::ExecutionFailed)?;
            let device = if head.function == COPY_FROM_HOST { to } else { from };
            let span = device.span(width, count)?;
            let bytes = self.backend.bytes(device.address, span as usize)?;
            if head.function == COPY_FROM_HOST {
                host.read(bytes, device.pitch, from, width, count)
            } else {
                host.write(to, bytes, device.pitch, width, count)
            }
        });
        Ok(self.keep(head, result))
    }

    fn compute(
        &mut self,
        function: Function,
        arguments: &[u64],
        answer: &mut Words,
    ) -> std::result::Result<Result, Malformed> {
        if self.kept.is_err() {
            return Ok(self.kept);
        }
        let backend = &mut self.backend;
        match &mut self.descriptors {
            Descriptors::Reused(seen) => compute(function, arguments, seen, backend, answer),
            Descriptors::Forwarded(forwarded) => compute(function, arguments, forwarded, backend, answer),
        }
    }

    fn descriptor(
        &mut self,
        function: Function,
        arguments: &[u64],
        answer: &mut Words,
    ) -> std::result::Result<Result, Malformed> {
        let Descriptors::Forwarded(forwarded) = &mut self.descriptors else { return Err(Malformed) };
        let mut reader = Reader::new(arguments);
        let result = forwarded.call(function, &mut reader, answer);
        // A call that fails may leave some of its words unread.
        if result.is_ok() { reader.finish().map(|()| result) } else { Ok(result) }
    }
}
