//! The arithmetic of the CPU backend: what cuDNN and cuBLAS compute in single precision, and cuBLAS in
//! double, as pure functions over slices. Touches nothing but the slices it is given: no files, no threads, no clock.
//!
//! Every operation comes in two steps. A *geometry* ([`Tensor`], [`Convolution`], [`Pooling`],
//! [`blas::Gemm`], …) is made from the caller's numbers, whatever they are; its constructor checks them
//! with checked arithmetic and says how many elements each operand spans. Then a *run* takes slices that
//! begin at each operand's first element. A slice that is shorter than the span is an error; nothing
//! panics, whatever the numbers, and no scratch memory grows with them.
//!
//! Slices cannot alias. Where a caller's ranges of one memory do, as in-place activations are meant to,
//! [`arena::write`] makes it as if every input had been read before the output is written.
//!
//! Everything runs on the caller's thread and adds in an order that the geometry alone decides: the same
//! call has the same result, bit for bit, however many cores there are. What was in the output before counts
//! only where it is asked for: see [`Blend`].
//!
//! Rules of cuDNN and cuBLAS are those of NVIDIA's public documentation (the cuDNN API reference, 8.9 and
//! 9.1; the cuBLAS library's user guide, 12), named where they are used; where it is silent, the text says
//! "assumed".
#![forbid(unsafe_code)]

pub mod activation;
pub mod arena;
pub mod blas;
mod check;
pub mod convolution;
pub mod dropout;
pub mod elementwise;
mod error;
mod gather;
mod multiply;
pub mod normalization;
pub mod pooling;
pub mod reduction;
pub mod softmax;
mod tensor;
mod walk;

use std::ops::{Add, Mul};

pub use convolution::Convolution;
pub use error::{Error, Result};
pub use normalization::Normalization;
pub use pooling::Pooling;
pub use tensor::{MAX_RANK, Tensor};

/// Sizes below 2^31 may be multiplied in a `usize`; the checks of geometries rely on it.
const _: () = assert!(usize::BITS == 64);

/// How a result enters the output: `alpha * result + beta * prior`.
///
/// With `beta` zero the prior value is not read: a NaN there does not spread (cuDNN developer guide,
/// "Scaling Parameters"; the cuBLAS guide says the same of each `beta`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blend<T = f32> {
    /// The factor of the result.
    pub alpha: T,
    /// The factor of what was in the output.
    pub beta: T,
}

impl Blend {
    /// The result takes the output's place.
    pub const REPLACE: Self = Self { alpha: 1.0, beta: 0.0 };
}

impl<T: Real> Blend<T> {
    /// Blends `result` into `output`.
    #[inline]
    fn store(self, result: T, output: &mut T) {
        let result = self.alpha * result;
        *output = if self.beta == T::default() { result } else { result + self.beta * *output };
    }

    /// What stays of `output` before a sum is added to it, part by part.
    #[inline]
    fn fade(self, output: &mut T) {
        *output = if self.beta == T::default() { T::default() } else { self.beta * *output };
    }
}

/// A number as it is stored, of one of the two precisions that are computed in.
pub trait Real:
    Copy + Default + PartialEq + Into<f64> + Add<Output = Self> + Mul<Output = Self> + private::Sealed
{
    /// The nearest one to this.
    fn nearest(number: f64) -> Self;
}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

impl Real for f32 {
    fn nearest(number: f64) -> Self {
        number as Self
    }
}

impl Real for f64 {
    fn nearest(number: f64) -> Self {
        number
    }
}

/// What becomes of a NaN where the greater or smaller of two numbers is taken (`cudnnNanPropagation_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nan {
    /// A NaN is no number: the other one is taken.
    #[default]
    Ignore,
    /// A NaN wins.
    Propagate,
}
