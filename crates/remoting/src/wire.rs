//! Records: the words that a call becomes on its way to the worker, and the words of its answer. Touches nothing.
//!
//! A call's words are its arguments in their order. A reader never fails in the middle: what is missing reads as
//! zero, and [`Reader::finish`] tells whether all was there and nothing more.

use arrayvec::ArrayVec;

use crate::descriptor::{Ints, MAX_DIMS};

/// The most words of a record, head and arguments, and of an answer.
pub const MAX_WORDS: usize = 62;

/// The words of a call or of an answer.
pub type Words = ArrayVec<u64, MAX_WORDS>;

/// The first word of a record: which function, and where its answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its number.
    pub function: u16,
    /// The place of [`crate::reply`]; none where nobody waits.
    pub place: Option<u8>,
}

impl Head {
    /// As a word.
    #[inline]
    #[must_use]
    pub fn word(self) -> u64 {
        u64::from(self.function) | self.place.map_or(0, |place| (1 + u64::from(place)) << 16)
    }

    /// The head that is this word.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Self { function: word as u16, place: (word >> 16).checked_sub(1).map(|place| place as u8) }
    }
}

/// Reads what [`Value::put`] wrote, or what a hostile peer did.
#[derive(Debug)]
pub struct Reader<'a> {
    words: &'a [u64],
    complete: bool,
}

/// Words that are not those of any call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Reader<'a> {
    /// At the first of `words`.
    #[must_use]
    pub fn new(words: &'a [u64]) -> Self {
        Self { words, complete: true }
    }

    /// The next word.
    pub fn word(&mut self) -> u64 {
        match self.words.split_first() {
            Some((word, rest)) => {
                self.words = rest;
                *word
            }
            None => {
                self.complete = false;
                0
            }
        }
    }

    /// Were all words there that were read, and all read that were there?
    ///
    /// # Errors
    /// `Malformed` if not.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.complete && self.words.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// An argument or result that has no pointer in it.
pub trait Value {
    /// Writes it.
    fn put(&self, words: &mut Words);
    /// Reads it.
    fn read(reader: &mut Reader<'_>) -> Self
    where
        Self: Sized;
}

impl Value for i32 {
    fn put(&self, words: &mut Words) {
        words.push(u64::from(self.cast_unsigned()));
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        (reader.word() as u32).cast_signed()
    }
}

impl Value for u64 {
    fn put(&self, words: &mut Words) {
        words.push(*self);
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        reader.word()
    }
}

impl Value for f32 {
    fn put(&self, words: &mut Words) {
        words.push(u64::from(self.to_bits()));
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        Self::from_bits(reader.word() as u32)
    }
}

impl Value for f64 {
    fn put(&self, words: &mut Words) {
        words.push(self.to_bits());
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        Self::from_bits(reader.word())
    }
}

impl Value for Ints {
    fn put(&self, words: &mut Words) {
        words.push(self.len() as u64);
        self.iter().for_each(|value| value.put(words));
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        let len = reader.word();
        if len > MAX_DIMS as u64 {
            reader.complete = false;
            return Self::new();
        }
        (0..len).map(|_| i32::read(reader)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_went() {
        let mut words = Words::new();
        let ints: Ints = [i32::MIN, -1, 0, 7].into_iter().collect();
        (-3_i32).put(&mut words);
        ints.put(&mut words);
        (-0.5_f32).put(&mut words);
        f64::MIN_POSITIVE.put(&mut words);
        u64::MAX.put(&mut words);
        let mut reader = Reader::new(&words);
        assert_eq!(i32::read(&mut reader), -3);
        assert_eq!(Ints::read(&mut reader), ints);
        assert_eq!(f32::read(&mut reader), -0.5);
        assert_eq!(f64::read(&mut reader), f64::MIN_POSITIVE);
        assert_eq!(u64::read(&mut reader), u64::MAX);
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn heads_come_back_as_they_went() {
        for place in [None, Some(0), Some(63)] {
            let head = Head { function: 0xFFFF, place };
            assert_eq!(Head::from_word(head.word()), head);
        }
    }

    #[test]
    fn too_few_and_too_many_words_are_malformed() {
        let mut reader = Reader::new(&[1]);
        assert_eq!((reader.word(), reader.word()), (1, 0));
        assert_eq!(reader.finish(), Err(Malformed));
        assert_eq!(Reader::new(&[1]).finish(), Err(Malformed));
        let mut reader = Reader::new(&[9, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(Ints::read(&mut reader).is_empty());
        assert_eq!(reader.finish(), Err(Malformed));
    }
}
