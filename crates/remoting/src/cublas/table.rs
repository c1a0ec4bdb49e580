//! The table of cuBLAS's functions, and its rows as data. Touches nothing.

use super::{Factor, Outcome, Sums};
use crate::api::{Class, Handle, Parameter, Read, Signature, Typed, Update, Write};

/// The rows, given to the macro `$with`; [`crate::api`] says how to read them. The rule of a compute says whether its
/// arguments are right.
#[macro_export]
macro_rules! cublas_functions {
    ($with:ident) => {
        $with! {
            create  cublasCreate_v2() -> (handle: Handle);
            set     cublasSetStream_v2(handle: Handle, stream: u64) = rule::set_stream;
            set     cublasSetPointerMode_v2(handle: Handle, mode: i32) = rule::set_pointer_mode;
            set     cublasSetMathMode(handle: Handle, mode: i32) = rule::set_math_mode;
            set     cublasSetAtomicsMode(handle: Handle, mode: i32) = rule::set_atomics_mode;
            get     cublasGetStream_v2(handle: Handle) -> (stream: u64) = rule::stream;
            get     cublasGetPointerMode_v2(handle: Handle) -> (mode: i32) = rule::pointer_mode;
            get     cublasGetMathMode(handle: Handle) -> (mode: i32) = rule::math_mode;
            get     cublasGetAtomicsMode(handle: Handle) -> (mode: i32) = rule::atomics_mode;
            destroy cublasDestroy_v2(handle: Handle);

            compute cublasSgemm_v2(handle: Handle, op_a: i32, op_b: i32, m: i32, n: i32, k: i32, alpha: Factor,
                        a: Read, lda: i32, b: Read, ldb: i32, beta: Factor, c: Update, ldc: i32) = rule::gemm;
            compute cublasSgemmStridedBatched(handle: Handle, op_a: i32, op_b: i32, m: i32, n: i32, k: i32,
                        alpha: Factor, a: Read, lda: i32, stride_a: u64, b: Read, ldb: i32, stride_b: u64,
                        beta: Factor, c: Update, ldc: i32, stride_c: u64, count: i32) = rule::gemm_batched;
            compute cublasSgemv_v2(handle: Handle, op: i32, m: i32, n: i32, alpha: Factor, a: Read, lda: i32,
                        x: Read, incx: i32, beta: Factor, y: Update, incy: i32) = rule::gemv;
            compute cublasSaxpy_v2(handle: Handle, n: i32, alpha: Factor, x: Read, incx: i32, y: Update, incy: i32)
                        = rule::axpy;
            compute cublasSscal_v2(handle: Handle, n: i32, alpha: Factor, x: Update, incx: i32) = rule::scal;
            compute cublasScopy_v2(handle: Handle, n: i32, x: Read, incx: i32, y: Write, incy: i32) = rule::copy;
            compute cublasSdot_v2(handle: Handle, n: i32, x: Read, incx: i32, y: Read, incy: i32, result: Outcome)
                        = rule::dot;
            compute cublasSnrm2_v2(handle: Handle, n: i32, x: Read, incx: i32, result: Outcome) = rule::one;
            compute cublasSasum_v2(handle: Handle, n: i32, x: Read, incx: i32, result: Outcome) = rule::one;
            compute cublasDgemm_v2(handle: Handle, op_a: i32, op_b: i32, m: i32, n: i32, k: i32, alpha: Factor,
                        a: Read, lda: i32, b: Read, ldb: i32, beta: Factor, c: Update, ldc: i32) = rule::gemm;
            compute cublasDgemmStridedBatched(handle: Handle, op_a: i32, op_b: i32, m: i32, n: i32, k: i32,
                        alpha: Factor, a: Read, lda: i32, stride_a: u64, b: Read, ldb: i32, stride_b: u64,
                        beta: Factor, c: Update, ldc: i32, stride_c: u64, count: i32) = rule::gemm_batched;
            compute cublasDgemv_v2(handle: Handle, op: i32, m: i32, n: i32, alpha: Factor, a: Read, lda: i32,
                        x: Read, incx: i32, beta: Factor, y: Update, incy: i32) = rule::gemv;
            compute cublasDaxpy_v2(handle: Handle, n: i32, alpha: Factor, x: Read, incx: i32, y: Update, incy: i32)
                        = rule::axpy;
            compute cublasDscal_v2(handle: Handle, n: i32, alpha: Factor, x: Update, incx: i32) = rule::scal;
            compute cublasDcopy_v2(handle: Handle, n: i32, x: Read, incx: i32, y: Write, incy: i32) = rule::copy;
            compute cublasDdot_v2(handle: Handle, n: i32, x: Read, incx: i32, y: Read, incy: i32, result: Outcome)
                        = rule::dot;
            compute cublasDnrm2_v2(handle: Handle, n: i32, x: Read, incx: i32, result: Outcome) = rule::one;
            compute cublasDasum_v2(handle: Handle, n: i32, x: Read, incx: i32, result: Outcome) = rule::one;
            compute cublasGemmEx(handle: Handle, op_a: i32, op_b: i32, m: i32, n: i32, k: i32, alpha: Factor,
                        a: Read, a_type: i32, lda: i32, b: Read, b_type: i32, ldb: i32, beta: Factor, c: Update,
                        c_type: i32, ldc: i32, sums: Sums, algorithm: i32) = rule::gemm_ex;
            compute cublasGemmStridedBatchedEx(handle: Handle, op_a: i32, op_b: i32, m: i32, n: i32, k: i32,
                        alpha: Factor, a: Read, a_type: i32, lda: i32, stride_a: u64, b: Read, b_type: i32, ldb: i32,
                        stride_b: u64, beta: Factor, c: Update, c_type: i32, ldc: i32, stride_c: u64, count: i32,
                        sums: Sums, algorithm: i32) = rule::gemm_batched_ex;
        }
    };
}

macro_rules! signatures {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        /// A row. Its number, after [`FIRST`], names it on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[allow(non_camel_case_types, missing_docs, reason = "the names are the library's")]
        pub enum Function {
            $($name,)*
        }

        impl Function {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }

        /// The rows as data, in the order of their numbers.
        pub const SIGNATURES: &[Signature] = &[$(Signature::new(
            stringify!($name),
            class!($class),
            &[$(Parameter { name: stringify!($argument), r#type: <$type as Typed>::TYPE }),*],
            &[$($(Parameter { name: stringify!($result), r#type: <$of as Typed>::TYPE }),*)?],
        )),*];
    };
}

macro_rules! class {
    (create) => {
        Class::Create
    };
    (set) => {
        Class::Set
    };
    (get) => {
        Class::Get
    };
    (destroy) => {
        Class::Destroy
    };
    (compute) => {
        Class::Compute
    };
}

cublas_functions!(signatures);

/// Where this library's numbers begin on the wire.
pub const FIRST: u16 = 0x1000;

impl Function {
    /// What names it on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        FIRST + self as u16
    }

    /// The function with this number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number.checked_sub(FIRST)?)).copied()
    }
}
