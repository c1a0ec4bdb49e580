//! cuDNN, versions 8 and 9: descriptor contents, and the rules that every call on them follows. Touches nothing.
//!
//! A rule is a pure function of version, content and arguments. The client runs it to answer a call inside the
//! container, the worker where calls are forwarded; so both give the same answer. What the rules say was found
//! by asking the real libraries, 8.9.7 and 9.1.0 (`make conformance`), odd things included: programs see these,
//! and reuse must not change what they see.
#![allow(clippy::too_many_arguments, clippy::type_complexity, reason = "the signatures are the library's")]

pub mod activation;
pub mod algorithms;
pub mod backend;
pub mod convolution;
pub mod dropout;
pub mod filter;
pub mod forwarded;
pub mod handle;
pub mod normalization;
pub mod pooling;
pub mod reduction;
pub mod table;
pub mod tensor;

use vgpu_kernels::Error;

use crate::descriptor::Ints;

/// Which library a program is linked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Version {
    /// `libcudnn.so.8`
    V8 = 8,
    /// `libcudnn.so.9`
    V9 = 9,
}

impl Version {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V8, Self::V9];
}

/// Why a call failed. Success, 0 in both versions, is `Ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A handle that is none.
    NotInitialized,
    /// No room for it.
    AllocFailed,
    /// An argument is wrong.
    BadParam,
    /// The library failed.
    InternalError,
    /// A value is wrong that is not an argument itself.
    InvalidValue,
    /// The device failed.
    ExecutionFailed,
    /// The arguments are right, and it cannot be done.
    NotSupported,
    /// It cannot be done there: in a function that has its turn among records, it would wait for that.
    NotPermitted,
}

impl Status {
    /// `cudnnStatus_t`.
    #[must_use]
    pub const fn code(self, version: Version) -> i32 {
        match (self, version) {
            (Self::NotInitialized, Version::V8) => 1,
            (Self::NotInitialized, Version::V9) => 1001,
            (Self::AllocFailed, Version::V8) => 2,
            (Self::AllocFailed, Version::V9) => 4003,
            (Self::BadParam, Version::V8) => 3,
            (Self::BadParam, Version::V9) => 2000,
            (Self::InternalError, Version::V8) => 4,
            (Self::InternalError, Version::V9) => 4000,
            (Self::InvalidValue, Version::V8) => 5,
            (Self::InvalidValue, Version::V9) => 2001,
            // cuDNN has no other for that.
            (Self::ExecutionFailed | Self::NotPermitted, Version::V8) => 8,
            (Self::ExecutionFailed | Self::NotPermitted, Version::V9) => 5000,
            (Self::NotSupported, Version::V8) => 9,
            (Self::NotSupported, Version::V9) => 3000,
        }
    }
}

impl Status {
    /// All of them, in the order of their numbers on the wire; 0 is success.
    const ALL: [Self; 8] = [
        Self::NotInitialized,
        Self::AllocFailed,
        Self::BadParam,
        Self::InternalError,
        Self::InvalidValue,
        Self::ExecutionFailed,
        Self::NotSupported,
        Self::NotPermitted,
    ];

    /// The number of a result on the wire, where no version is.
    #[must_use]
    pub fn to_wire(result: Result) -> u64 {
        result.map_or_else(|status| 1 + status as u64, |()| 0)
    }

    /// The result with this number.
    ///
    /// # Errors
    /// That result; `InternalError` for a number of none.
    pub fn from_wire(number: u64) -> Result {
        match number.checked_sub(1) {
            None => Ok(()),
            Some(index) => Err(Self::ALL.get(index as usize).copied().unwrap_or(Self::InternalError)),
        }
    }
}

/// What geometries say that cannot be.
impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(_) => Self::BadParam,
            Error::Unsupported(_) => Self::NotSupported,
            Error::Short { .. } => Self::ExecutionFailed,
        }
    }
}

/// What a rule answers.
pub type Result<T = ()> = std::result::Result<T, Status>;

/// What a getter answers. Some write results and fail nevertheless.
#[derive(Clone, Debug, PartialEq)]
pub struct Got<T> {
    /// The status.
    pub status: Result,
    /// The results.
    pub results: Option<T>,
    /// How many of them are written to the caller, from the first on.
    pub written: usize,
}

impl<T> Got<T> {
    fn all(status: Result, results: T) -> Self {
        Self { status, results: Some(results), written: usize::MAX }
    }
}

impl<T> From<Result<T>> for Got<T> {
    #[inline]
    fn from(result: Result<T>) -> Self {
        match result {
            Ok(results) => Self::all(Ok(()), results),
            Err(status) => Self { status: Err(status), results: None, written: 0 },
        }
    }
}

/// `cudnnDataType_t`: `FLOAT`, the zero that unset descriptors have.
pub const FLOAT: i32 = 0;
/// `cudnnDataType_t`: `DOUBLE`; factors are of it where tensors are, and else `float`.
pub const DOUBLE: i32 = 1;
const INT8: i32 = 3;
const INT32: i32 = 4;
const INT8X4: i32 = 5;
const UINT8X4: i32 = 7;
const INT8X32: i32 = 8;

/// `cudnnTensorFormat_t`.
pub const NCHW: i32 = 0;
/// `cudnnTensorFormat_t`.
pub const NHWC: i32 = 1;
/// `cudnnTensorFormat_t`: dimension 1 in packs of 4 or 32.
pub const NCHW_VECT_C: i32 = 2;

/// The bytes of an element, of the data types that tensors and filters take; none for others (64-bit integers,
/// booleans and 8-bit floats are for the graph API).
const fn element_size(data_type: i32) -> Option<u64> {
    match data_type {
        INT8 | 6 => Some(1),
        2 | 9 => Some(2),
        FLOAT | INT32 | INT8X4 | UINT8X4 => Some(4),
        DOUBLE => Some(8),
        INT8X32 => Some(32),
        _ => None,
    }
}

/// How many numbers a pack of [`NCHW_VECT_C`] has.
const fn pack(data_type: i32) -> Option<i32> {
    match data_type {
        INT8X4 | UINT8X4 => Some(4),
        INT8X32 => Some(32),
        _ => None,
    }
}

pub(crate) fn check(condition: bool, otherwise: Status) -> Result {
    if condition { Ok(()) } else { Err(otherwise) }
}

/// The dimensions that there are, then zeros, as results of their own.
fn four(dims: Option<(Ints,)>) -> (i32, i32, i32, i32) {
    let mut four = [0; 4];
    four.iter_mut().zip(dims.unwrap_or_default().0).for_each(|(to, dim)| *to = dim);
    let [n, c, h, w] = four;
    (n, c, h, w)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back_from_the_wire() {
        for result in Status::ALL.map(Err).into_iter().chain([Ok(())]) {
            assert_eq!(Status::from_wire(Status::to_wire(result)), result);
        }
        assert_eq!(Status::from_wire(u64::MAX), Err(Status::InternalError));
    }

    #[test]
    fn statuses_have_the_numbers_of_their_version() {
        let codes = |status: Status| Version::ALL.map(|version| status.code(version));
        assert_eq!(codes(Status::BadParam), [3, 2000]);
        assert_eq!(codes(Status::NotSupported), [9, 3000]);
        assert_eq!(codes(Status::NotInitialized), [1, 1001]);
    }
}
