//! What the fuzz targets share.

use std::cell::Cell;
use std::io;

use vgpu::elf::ReadAt;

/// The largest piece of a file that a reader of ELF asks for, in bytes.
pub const TABLE: usize = 64 << 10;

/// A file that counts what is read of it.
pub struct Counted<'f> {
    bytes: &'f [u8],
    asked: Cell<usize>,
}

impl<'f> Counted<'f> {
    /// A file of these bytes.
    pub fn new(bytes: &'f [u8]) -> Self {
        Self { bytes, asked: Cell::new(0) }
    }

    /// How many bytes were asked for, whether or not they were there.
    pub fn asked(&self) -> usize {
        self.asked.get()
    }
}

impl ReadAt for Counted<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.asked.set(self.asked.get() + buffer.len());
        self.bytes.read_at(offset, buffer)
    }
}
