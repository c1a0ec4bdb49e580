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
