//! Bytes on their way through shared memory. Touches nothing but that.

use crate::sync::{Ordering, Region};

/// The words of the memory for it.
pub const WORDS: usize = 1 << 17;

/// Puts bytes there, which are no more than fit.
pub fn store(staging: Region<'_>, bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let last = (!rest.is_empty()).then_some(&last);
    for (word, bytes) in staging.iter().zip(words.iter().chain(last)) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
}

/// Gets the bytes that are there.
pub fn load(staging: Region<'_>, bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut();
    let (whole, last) = staging.split_at(words.len().min(staging.len()));
    for (word, bytes) in whole.iter().zip(words) {
        *bytes = word.load(Ordering::Relaxed).to_le_bytes();
    }
    for word in last.iter().take(1) {
        rest.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..rest.len()]);
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
