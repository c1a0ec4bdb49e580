//! What a descriptor is to the rest of the crate: a kind, and a content of plain numbers. Touches nothing.
//!
//! The rules that read and write contents are beside each content in [`crate::cudnn`].

use arrayvec::ArrayVec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The kinds of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The shape of data: [`crate::cudnn::tensor::Tensor`].
    Tensor = 1,
    /// The shape of weights: [`crate::cudnn::filter::Filter`].
    Filter,
    /// [`crate::cudnn::convolution::Convolution`].
    Convolution,
    /// [`crate::cudnn::pooling::Pooling`].
    Pooling,
    /// [`crate::cudnn::activation::Activation`].
    Activation,
    /// [`crate::cudnn::dropout::Dropout`].
    Dropout,
    /// [`crate::cudnn::reduction::Reduction`].
    Reduction,
    /// [`crate::cudnn::normalization::Normalization`].
    Normalization,
    /// The library's handle: [`crate::cudnn::handle::State`].
    Handle,
}

impl Kind {
    /// Those that computes are of, in the order of their numbers: all but handles.
    pub const ALL: [Self; 8] = [
        Self::Tensor,
        Self::Filter,
        Self::Convolution,
        Self::Pooling,
        Self::Activation,
        Self::Dropout,
        Self::Reduction,
        Self::Normalization,
    ];

    /// The kind with this number, of those.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// The words of the largest content.
pub const WORDS: usize = 12;

/// A content of any kind, as words; those after the content's own are zero.
pub type Words = [u64; WORDS];

/// The content of one kind of descriptor: numbers in a fixed layout without padding, so that two contents are
/// equal when their bytes are.
pub trait Content: Copy + FromBytes + IntoBytes + Immutable + KnownLayout {
    /// Its kind.
    const KIND: Kind;
    /// What create leaves in it.
    const FRESH: Self;
    /// How many words it fills.
    const LEN: usize = {
        assert!(size_of::<Self>().is_multiple_of(8) && size_of::<Self>() <= WORDS * 8);
        size_of::<Self>() / 8
    };

    /// Can it be used as it is, without a look beyond its arrays? All that the rules write can. What comes from a
    /// client's memory need not.
    fn is_sound(&self) -> bool {
        true
    }

    /// It as words.
    #[inline]
    fn to_words(&self) -> Words {
        let mut words = [0; WORDS];
        words.as_mut_bytes()[..size_of::<Self>()].copy_from_slice(self.as_bytes());
        words
    }

    /// The content of these words; any words are a content, though not of any that the rules write.
    #[inline]
    fn from_words(words: &Words) -> Self {
        let mut content = Self::FRESH;
        content.as_mut_bytes().copy_from_slice(&words.as_bytes()[..size_of::<Self>()]);
        content
    }
}

/// The most dimensions of a tensor or filter, in cuDNN 8 and 9.
pub const MAX_DIMS: usize = 8;

/// An array argument, by value: arrays that a program passes are copied at the call.
pub type Ints = ArrayVec<i32, MAX_DIMS>;
