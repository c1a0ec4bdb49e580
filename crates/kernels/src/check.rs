//! What every operation checks of its numbers and slices. Touches nothing.

use crate::error::{Error, Result};

/// The first `span` elements of `data`.
pub(crate) fn operand<T>(data: &[T], span: usize) -> Result<&[T]> {
    data.get(..span).ok_or(Error::Short { needed: span, given: data.len() })
}

/// The first `span` elements of `data`, to be written.
pub(crate) fn output<T>(data: &mut [T], span: usize) -> Result<&mut [T]> {
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
