//! Bytes on their way through shared memory. Touches nothing but that.

use crate::sync::{Ordering, Region};

/// The words of the memory for it.
pub const WORDS: usize = 1 << 17;

/// Puts bytes there, which are no more than fit.
pub fn store(staging: Region<'_>, bytes: &[u8]) {
    for (word, part) in staging.iter().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..part.len()].copy_from_slice(part);
        word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
    }
}

/// Gets the bytes that are there.
pub fn load(staging: Region<'_>, bytes: &mut [u8]) {
    for (word, part) in staging.iter().zip(bytes.chunks_mut(8)) {
        part.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..part.len()]);
    }
}

/// How many words a row of so many bytes takes, which begins with a word.
#[must_use]
pub fn words(width: u64) -> u64 {
    width.div_ceil(8).max(1)
}

/// Where each row of so many bytes is.
pub fn rows(staging: Region<'_>, width: u64) -> impl Iterator<Item = Region<'_>> {
    staging.chunks(words(width) as usize)
}
