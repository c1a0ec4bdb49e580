//! A client's calls for device memory. Touches nothing but the channel.
//!
//! They wait, so that bytes copied to the device may be changed as soon as the call has returned, as CUDA has it of
//! memory that it did not allocate itself.

use crate::cudnn::{Result, Status};
use crate::session::Session;
use crate::staging;
use crate::wire::Words;
use crate::worker::{ALLOCATE, COPY_IN, COPY_OUT, FREE};

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
    /// `ExecutionFailed` where they are not wholly in what was allocated.
    pub fn copy_in(&self, address: u64, bytes: &[u8]) -> Result {
        let staging = self.staging();
        for (address, part) in parts(address).zip(bytes.chunks(8 * staging::WORDS)) {
            staging::store(*staging, part);
            self.core(COPY_IN, &[address, part.len() as u64])?;
        }
        Ok(())
    }

    /// Copies bytes from the device, after all that was sent before.
    ///
    /// # Errors
    /// As [`Session::copy_in`].
    pub fn copy_out(&self, bytes: &mut [u8], address: u64) -> Result {
        let staging = self.staging();
        for (address, part) in parts(address).zip(bytes.chunks_mut(8 * staging::WORDS)) {
            self.core(COPY_OUT, &[address, part.len() as u64])?;
            staging::load(*staging, part);
        }
        Ok(())
    }

    fn core(&self, number: u16, arguments: &[u64]) -> Result<Words> {
        let arguments = arguments.iter().copied().collect();
        let words = self.client().call(number, &arguments).map_err(|_| Status::ExecutionFailed)?;
        Status::from_wire(words.first().copied().unwrap_or_default())?;
        Ok(words)
    }
}

/// Where the parts begin that go through the staging memory one by one.
fn parts(address: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |part: u64| address.wrapping_add(part * 8 * staging::WORDS as u64))
}
