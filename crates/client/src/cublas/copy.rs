//! cuBLAS's names for copies of vectors and matrices, between the program and the device.
#![allow(unsafe_code, reason = "C functions' names")]

use std::ffi::c_int;

use vgpu_remoting::memory::Rows;
use vgpu_remoting::session::Session;

use super::{INVALID_VALUE, Wrong, ask};
use crate::cudart::copy::rows;
use crate::device::{Error, stream};
use crate::functions::functions;
use crate::pointers::Address;

/// `CUBLAS_STATUS_MAPPING_ERROR`: all that a copy can be told to have failed of.
impl From<Error> for Wrong {
    fn from(_: Error) -> Self {
        Self(11)
    }
}

type Copied = Result<(), Wrong>;

/// Where one side is, and how many elements from one, or from one column, to the next.
type Side = (Address, c_int);

/// As `cudaMemcpyKind` has it.
const TO_DEVICE: c_int = 1;
const FROM_DEVICE: c_int = 2;

/// Columns, of so many rows, of elements of a size in bytes; on a stream where it need not be waited for.
fn matrix(
    session: &Session<'_>,
    [count, columns, size]: [c_int; 3],
    [to, from]: [Side; 2],
    kind: c_int,
    on: Option<u64>,
) -> Copied {
    on.map(stream::known).transpose()?;
    if count < 0 || columns < 0 || size <= 0 || to.1 <= 0 || from.1 <= 0 {
        return Err(INVALID_VALUE);
    }
    // Of two numbers below 2^31: no overflow.
    let bytes = |elements: c_int| i64::from(elements) * i64::from(size);
    let [to, from] =
        [to, from].map(|(at, ld)| Rows { address: at.number(), pitch: bytes(ld).cast_unsigned() });
    Ok(rows(session, [to, from], [bytes(count) as usize, columns as usize], kind, on.is_none())?)
}

/// Elements of a size in bytes: one column where they have no gaps. Of fewer than none there are none.
fn vector(
    session: &Session<'_>,
    [n, size]: [c_int; 2],
    sides: [Side; 2],
    kind: c_int,
    on: Option<u64>,
) -> Copied {
    let n = n.max(0);
    if sides.iter().all(|(_, step)| *step == 1) {
        return matrix(session, [n, 1, size], sides.map(|(at, _)| (at, n.max(1))), kind, on);
    }
    matrix(session, [1, n, size], sides, kind, on)
}

functions! { "vgpu_cublas_12_"
    ask [cublasSetVector] (
        n: c_int, size: c_int, from: Address, incx: c_int, to: Address, incy: c_int
    ) = |session| vector(session, [n, size], [(to, incy), (from, incx)], TO_DEVICE, None);
    ask [cublasSetVectorAsync] (
        n: c_int, size: c_int, from: Address, incx: c_int, to: Address, incy: c_int, stream: u64
    ) = |session| vector(session, [n, size], [(to, incy), (from, incx)], TO_DEVICE, Some(stream));
    ask [cublasGetVector] (
        n: c_int, size: c_int, from: Address, incx: c_int, to: Address, incy: c_int
    ) = |session| vector(session, [n, size], [(to, incy), (from, incx)], FROM_DEVICE, None);
    ask [cublasGetVectorAsync] (
        n: c_int, size: c_int, from: Address, incx: c_int, to: Address, incy: c_int, stream: u64
    ) = |session| vector(session, [n, size], [(to, incy), (from, incx)], FROM_DEVICE, Some(stream));
    ask [cublasSetMatrix] (
        rows: c_int, columns: c_int, size: c_int, from: Address, lda: c_int, to: Address, ldb: c_int
    ) = |session| matrix(session, [rows, columns, size], [(to, ldb), (from, lda)], TO_DEVICE, None);
    ask [cublasSetMatrixAsync] (
        rows: c_int, columns: c_int, size: c_int, from: Address, lda: c_int, to: Address, ldb: c_int, stream: u64
    ) = |session| matrix(session, [rows, columns, size], [(to, ldb), (from, lda)], TO_DEVICE, Some(stream));
    ask [cublasGetMatrix] (
        rows: c_int, columns: c_int, size: c_int, from: Address, lda: c_int, to: Address, ldb: c_int
    ) = |session| matrix(session, [rows, columns, size], [(to, ldb), (from, lda)], FROM_DEVICE, None);
    ask [cublasGetMatrixAsync] (
        rows: c_int, columns: c_int, size: c_int, from: Address, lda: c_int, to: Address, ldb: c_int, stream: u64
    ) = |session| matrix(session, [rows, columns, size], [(to, ldb), (from, lda)], FROM_DEVICE, Some(stream));
}
