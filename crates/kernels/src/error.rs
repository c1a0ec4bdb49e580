//! Why a geometry or a run is refused. Touches nothing.

use std::fmt;

/// Why a geometry or a run is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The numbers contradict each other or the operation (cuDNN's BAD_PARAM, cuBLAS's INVALID_VALUE).
    Invalid(&'static str),
    /// They are sound, but there is no kernel for them (NOT_SUPPORTED).
    Unsupported(&'static str),
    /// An operand is not wholly in the memory given for it.
    Short {
        /// How many elements it spans.
        needed: usize,
        /// How many there are.
        given: usize,
    },
}

/// `std::result::Result` with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) | Self::Unsupported(why) => f.write_str(why),
            Self::Short { needed, given } => write!(f, "an operand spans {needed} elements of {given}"),
        }
    }
}

impl std::error::Error for Error {}

/// The first `span` elements of `data`.
pub(crate) fn operand(data: &[f32], span: usize) -> Result<&[f32]> {
    data.get(..span).ok_or(Error::Short { needed: span, given: data.len() })
}

/// The first `span` elements of `data`, to be written.
pub(crate) fn output(data: &mut [f32], span: usize) -> Result<&mut [f32]> {
    let given = data.len();
    data.get_mut(..span).ok_or(Error::Short { needed: span, given })
}

/// A size or distance from outside: not negative, and at most C's largest `int`, so that any two may be
/// multiplied and a few of the products added in an `i64`.
pub(crate) fn size(value: impl Into<i64>) -> Result<usize> {
    match i32::try_from(value.into()) {
        Ok(value) => usize::try_from(value).map_err(|_| Error::Invalid("a size is negative")),
        Err(_) => Err(Error::Unsupported("a size is beyond 32 bits")),
    }
}

/// [`size`], and not zero.
pub(crate) fn positive(value: impl Into<i64>) -> Result<usize> {
    match size(value)? {
        0 => Err(Error::Invalid("a size is zero")),
        value => Ok(value),
    }
}
