//! Whether a call of cuBLAS is right, and what it comes to. Touches nothing.

use vgpu_kernels::blas::{Gemm, Gemv, Op, Vector};

use super::{Factor, Outcome, State, Sums};
use crate::api::{Read, Update, Write};
use crate::cudnn::{Result, Status};

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// `float`
    Single,
    /// `double`
    Double,
    /// IEEE 754's 16 bits.
    Half,
    /// The upper 16 bits of a `float`.
    Brain,
}

impl Stored {
    /// Of `cudaDataType_t`; none where there is nothing that computes with it.
    fn from_number(number: i32) -> Option<Self> {
        match number {
            0 => Some(Self::Single),
            1 => Some(Self::Double),
            2 => Some(Self::Half),
            14 => Some(Self::Brain),
            _ => None,
        }
    }

    /// The bytes of a number.
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            Self::Half | Self::Brain => 2,
            Self::Single => 4,
            Self::Double => 8,
        }
    }
}

/// A product of matrices, and how these are stored.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// The product.
    pub gemm: Gemm,
    /// How the factors are stored.
    pub factors: Stored,
    /// How the result is.
    pub result: Stored,
}

/// Of `cublasComputeType_t` those whose sums are of single precision, plain and pedantic, of whatever is stored; and those
/// with leave to round single precision first, to half, bfloat16 or TF32, which need not be taken.
const SINGLE_SUMS: [i32; 2] = [68, 69];
const ROUNDED_SUMS: [i32; 3] = [74, 75, 77];

/// What is stored how, as the table in the documentation of `cublasGemmEx` has it, of real numbers without integers.
fn stored([a, b, c]: [i32; 3], sums: Sums) -> Result<(Stored, Stored)> {
    use Stored::{Brain, Double, Half, Single};
    let types = [a, b, c].map(Stored::from_number);
    let [Some(a), Some(b), Some(c)] = types else { return Err(Status::NotSupported) };
    let known = match (a, c) {
        (Single, Single) => SINGLE_SUMS.contains(&sums.0) || ROUNDED_SUMS.contains(&sums.0),
        (Half, Half | Single) | (Brain, Brain | Single) => SINGLE_SUMS.contains(&sums.0),
        (Double, Double) => sums.are_double(),
        _ => false,
    };
    if known && a == b { Ok((a, c)) } else { Err(Status::NotSupported) }
}

fn one_of(value: i32, count: i32) -> Result<i32> {
    if (0..count).contains(&value) { Ok(value) } else { Err(Status::BadParam) }
}

fn not_negative(count: i32) -> Result {
    if count < 0 { Err(Status::BadParam) } else { Ok(()) }
}

/// `cublasSetStream`: any, as streams are not looked at before something is sent on one.
///
/// # Errors
/// None.
pub fn set_stream(state: &mut State, stream: u64) -> Result {
    state.stream = stream;
    Ok(())
}

/// `cublasSetPointerMode`
///
/// # Errors
/// `BadParam` for a mode that there is not; so of the next ones.
pub fn set_pointer_mode(state: &mut State, mode: i32) -> Result {
    state.pointer_mode = one_of(mode, 2)?;
    Ok(())
}

/// `cublasSetMathMode`: default, tensor cores (of old), pedantic, TF32, and with a bit that forbids reduced sums.
///
/// # Errors
/// As above.
pub fn set_math_mode(state: &mut State, mode: i32) -> Result {
    one_of(mode & !16, 4)?;
    state.math_mode = mode;
    Ok(())
}

/// `cublasSetAtomicsMode`
///
/// # Errors
/// As above.
pub fn set_atomics_mode(state: &mut State, mode: i32) -> Result {
    state.atomics_mode = one_of(mode, 2)?;
    Ok(())
}

/// `cublasGetStream`
#[must_use]
pub fn stream(state: State) -> u64 {
    state.stream
}

/// `cublasGetPointerMode`
#[must_use]
pub fn pointer_mode(state: State) -> i32 {
    state.pointer_mode
}

/// `cublasGetMathMode`
#[must_use]
pub fn math_mode(state: State) -> i32 {
    state.math_mode
}

/// `cublasGetAtomicsMode`
#[must_use]
pub fn atomics_mode(state: State) -> i32 {
    state.atomics_mode
}

/// `cublasOperation_t`: as it is, transposed, and its conjugate transposed, which for real numbers is the same.
fn op(number: i32) -> Result<Op> {
    match number {
        0 => Ok(Op::None),
        1 | 2 => Ok(Op::Transpose),
        _ => Err(Status::BadParam),
    }
}

/// `cublasSgemm` and, of this one and those below, what differs from it in its precision.
///
/// # Errors
/// `BadParam` for sizes that cannot be; so of the next ones.
pub fn gemm(
    op_a: i32,
    op_b: i32,
    m: i32,
    n: i32,
    k: i32,
    _: Factor,
    _: Read,
    lda: i32,
    _: Read,
    ldb: i32,
    _: Factor,
    _: Update,
    ldc: i32,
) -> Result<Gemm> {
    Ok(Gemm::new([op(op_a)?, op(op_b)?], [m, n, k], [lda, ldb, ldc])?)
}

/// `cublasSgemmStridedBatched`: any distances.
///
/// # Errors
/// As above.
pub fn gemm_batched(
    op_a: i32,
    op_b: i32,
    m: i32,
    n: i32,
    k: i32,
    alpha: Factor,
    a: Read,
    lda: i32,
    _: u64,
    b: Read,
    ldb: i32,
    _: u64,
    beta: Factor,
    c: Update,
    ldc: i32,
    _: u64,
    count: i32,
) -> Result<Gemm> {
    not_negative(count)?;
    gemm(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

/// `cublasGemmEx`
///
/// # Errors
/// As above, and `NotSupported` for what is stored in another way than these types have.
pub fn gemm_ex(
    op_a: i32,
    op_b: i32,
    m: i32,
    n: i32,
    k: i32,
    alpha: Factor,
    a: Read,
    a_type: i32,
    lda: i32,
    b: Read,
    b_type: i32,
    ldb: i32,
    beta: Factor,
    c: Update,
    c_type: i32,
    ldc: i32,
    sums: Sums,
    _algorithm: i32,
) -> Result<Product> {
    let (factors, result) = stored([a_type, b_type, c_type], sums)?;
    let gemm = gemm(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)?;
    Ok(Product { gemm, factors, result })
}

/// `cublasGemmStridedBatchedEx`
///
/// # Errors
/// As above.
pub fn gemm_batched_ex(
    op_a: i32,
    op_b: i32,
    m: i32,
    n: i32,
    k: i32,
    alpha: Factor,
    a: Read,
    a_type: i32,
    lda: i32,
    _: u64,
    b: Read,
    b_type: i32,
    ldb: i32,
    _: u64,
    beta: Factor,
    c: Update,
    c_type: i32,
    ldc: i32,
    _: u64,
    count: i32,
    sums: Sums,
    algorithm: i32,
) -> Result<Product> {
    not_negative(count)?;
    gemm_ex(op_a, op_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, sums, algorithm)
}

/// `cublasSgemv`
///
/// # Errors
/// As above.
pub fn gemv(
    op_a: i32,
    m: i32,
    n: i32,
    _: Factor,
    _: Read,
    lda: i32,
    _: Read,
    incx: i32,
    _: Factor,
    _: Update,
    incy: i32,
) -> Result<Gemv> {
    Ok(Gemv::new(op(op_a)?, [m, n], lda, [incx, incy])?)
}

/// `cublasSaxpy`; of vectors any size and step is right, less than one element being none.
///
/// # Errors
/// As above.
pub fn axpy(n: i32, _: Factor, _: Read, incx: i32, _: Update, incy: i32) -> Result<[Vector; 2]> {
    pair(n, incx, incy)
}

/// `cublasSscal`
///
/// # Errors
/// As above.
pub fn scal(n: i32, _: Factor, _: Update, incx: i32) -> Result<Vector> {
    Ok(Vector::new(n, incx)?)
}

/// `cublasScopy`
///
/// # Errors
/// As above.
pub fn copy(n: i32, _: Read, incx: i32, _: Write, incy: i32) -> Result<[Vector; 2]> {
    pair(n, incx, incy)
}

/// `cublasSdot`
///
/// # Errors
/// As above.
pub fn dot(n: i32, _: Read, incx: i32, _: Read, incy: i32, _: Outcome) -> Result<[Vector; 2]> {
    pair(n, incx, incy)
}

/// `cublasSnrm2` and `cublasSasum`, of one vector.
///
/// # Errors
/// As above.
pub fn one(n: i32, _: Read, incx: i32, _: Outcome) -> Result<Vector> {
    Ok(Vector::new(n, incx)?)
}

fn pair(n: i32, incx: i32, incy: i32) -> Result<[Vector; 2]> {
    Ok([Vector::new(n, incx)?, Vector::new(n, incy)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(sizes: [i32; 3], lds: [i32; 3], types: [i32; 4]) -> Result<Product> {
        let ([m, n, k], [lda, ldb, ldc], [a, b, c, sums]) = (sizes, lds, types);
        let (one, read, to) = (Factor::Host(1.0), Read(0), Update(0));
        gemm_ex(0, 1, m, n, k, one, read, a, lda, read, b, ldb, one, to, c, ldc, Sums(sums), -1)
    }

    #[test]
    fn what_is_not_right_is_said() {
        assert!(product([2, 3, 4], [2, 3, 2], [0, 0, 0, 68]).is_ok());
        assert!(product([0, 3, 4], [1, 3, 1], [0, 0, 0, 77]).is_ok());
        for (sizes, lds) in [([2, 3, 4], [1, 3, 2]), ([2, 3, 4], [2, 2, 2]), ([-1, 3, 4], [2, 3, 2])] {
            assert_eq!(product(sizes, lds, [0, 0, 0, 68]).err(), Some(Status::BadParam), "{sizes:?} {lds:?}");
        }
        let known = [[2, 2, 2, 68], [2, 2, 0, 69], [14, 14, 14, 68], [14, 14, 0, 68], [1, 1, 1, 70]];
        for types in known {
            assert!(product([2, 3, 4], [2, 3, 2], types).is_ok(), "{types:?}");
        }
        let others =
            [[2, 0, 0, 68], [0, 0, 2, 68], [0, 0, 0, 64], [0, 0, 0, 70], [2, 2, 2, 64], [2, 2, 2, 77]];
        for types in others.into_iter().chain([[2, 2, 14, 68], [1, 1, 1, 68], [3, 3, 0, 68]]) {
            assert_eq!(product([2, 3, 4], [2, 3, 2], types).err(), Some(Status::NotSupported), "{types:?}");
        }
        assert_eq!(op(3), Err(Status::BadParam));
        let gemv = |incx| {
            gemv(0, 2, 2, Factor::Host(1.0), Read(0), 2, Read(0), incx, Factor::Host(0.0), Update(0), 1)
        };
        assert!(gemv(-1).is_ok() && gemv(0).is_err());
    }

    #[test]
    fn modes_are_those_that_there_are() {
        let mut state = State::default();
        assert_eq!([0, 3, 16, 19].map(|mode| set_math_mode(&mut state, mode)), [Ok(()); 4]);
        assert_eq!([-1, 4, 32].map(|mode| set_math_mode(&mut state, mode)), [Err(Status::BadParam); 3]);
        assert_eq!((math_mode(state), set_atomics_mode(&mut state, 2)), (19, Err(Status::BadParam)));
    }
}
