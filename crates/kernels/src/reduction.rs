//! Reduction of a tensor along some of its dimensions. Touches nothing but the slices it is given.

use crate::check::{operand, output};
use crate::error::{Error, Result};
use crate::tensor::{MAX_RANK, Tensor};
use crate::walk::{Walk, each};
use crate::{Blend, Nan};

/// What elements are reduced to (`cudnnReduceTensorOp_t`). Sums and products are taken in double precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Their sum.
    Add,
    /// Their product.
    Multiply,
    /// The smallest.
    Minimum,
    /// The greatest.
    Maximum,
    /// The greatest of their sizes.
    MaximumSize,
    /// Their mean.
    Average,
    /// The sum of their sizes.
    Norm1,
    /// The square root of the sum of their squares.
    Norm2,
    /// The product of those that are not zero.
    MultiplyNonZero,
}

/// A reduction of a tensor into one that is 1 in each dimension that is reduced, all sizes known and checked.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    op: Op,
    nan: Nan,
    a: Tensor,
    c: Tensor,
    /// The dimensions that stay, and those that are reduced; 1 for the rest.
    outer: [usize; MAX_RANK],
    inner: [usize; MAX_RANK],
}

impl Reduction {
    /// A reduction of a tensor like `a` into one like `c`. What becomes of a NaN is asked where the greater or
    /// smaller of two is taken; elsewhere it gives a NaN.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a dimension of `c` is neither that of `a` nor 1.
    pub fn new(op: Op, nan: Nan, a: Tensor, c: Tensor) -> Result<Self> {
        if a.dims().len() != c.dims().len() {
            return Err(Error::Invalid("two tensors differ in their number of dimensions"));
        }
        let (mut outer, mut inner) = ([1; MAX_RANK], [1; MAX_RANK]);
        for (i, (&from, &to)) in a.dims().iter().zip(c.dims()).enumerate() {
            match to {
                _ if from == to => outer[i] = from,
                1 => inner[i] = from,
                _ => return Err(Error::Invalid("a dimension is neither that of the tensor nor 1")),
            }
        }
        Ok(Self { op, nan, a, c, outer, inner })
    }

    /// What is reduced.
    #[must_use]
    pub fn a(&self) -> &Tensor {
        &self.a
    }

    /// The result.
    #[must_use]
    pub fn c(&self) -> &Tensor {
        &self.c
    }

    /// `c = alpha * reduce(a) + beta * c` (`cudnnReduceTensor`).
    ///
    /// # Errors
    /// Where a slice is too short.
    pub fn run(&self, blend: Blend, a: &[f32], c: &mut [f32]) -> Result<()> {
        let (a, c) = (operand(a, self.a.span())?, self.c.output(c)?);
        let rank = self.a.dims().len();
        Walk::new(&self.outer[..rank], self.c.strides(), [self.a.strides()]).rows(|row| {
            for at in 0..row.len {
                let [(from, step)] = row.others;
                let value = self.value(&a[from + at * step..], &self.inner[..rank]);
                blend.store(value, &mut c[row.lead.0 + at * row.lead.1]);
            }
        });
        Ok(())
    }

    fn value(&self, a: &[f32], inner: &[usize]) -> f32 {
        let fold = |mut value: f64, next: fn(f64, f64) -> f64| {
            each(inner, a, self.a.strides(), |a| value = next(value, f64::from(a)));
            value
        };
        let value = match self.op {
            Op::Add => fold(0.0, |sum, a| sum + a),
            Op::Multiply => fold(1.0, |product, a| product * a),
            Op::MultiplyNonZero => fold(1.0, |product, a| if a == 0.0 { product } else { product * a }),
            Op::Average => fold(0.0, |sum, a| sum + a) / inner.iter().product::<usize>() as f64,
            Op::Norm1 => fold(0.0, |sum, a| sum + a.abs()),
            Op::Norm2 => fold(0.0, |sum, a| sum + a * a).sqrt(),
            Op::Minimum | Op::Maximum | Op::MaximumSize => {
                let mut best = Best { op: self.op, nan: self.nan, found: None };
                each(inner, a, self.a.strides(), |a| {
                    best.meet(a);
                });
                return best.found.unwrap_or(f32::NAN);
            }
        };
        value as f32
    }

    /// Where among those that are reduced to it each result is, the first of equals, counted with the last
    /// dimension fastest (`CUDNN_REDUCE_TENSOR_FLATTENED_INDICES`). They are unsigned integers of 32 bits, in
    /// the place of numbers, without gaps in the order of the result's dimensions (assumed). Where there are
    /// only NaNs that are none, it is 0.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the result is none of the elements; and where a slice is too short.
    pub fn indices(&self, a: &[f32], indices: &mut [f32]) -> Result<()> {
        if !matches!(self.op, Op::Minimum | Op::Maximum | Op::MaximumSize) {
            return Err(Error::Unsupported("the result of a reduction is none of the elements"));
        }
        let (a, indices) = (operand(a, self.a.span())?, output(indices, self.c.elements())?);
        let rank = self.a.dims().len();
        for (from, index) in places(&self.outer[..rank], self.a.strides()).zip(indices) {
            let mut best = Best { op: self.op, nan: self.nan, found: None };
            let mut found = 0;
            for (at, place) in (0_u32..).zip(places(&self.inner[..rank], self.a.strides())) {
                if best.meet(a[from + place]) {
                    found = at;
                }
            }
            *index = f32::from_bits(found);
        }
        Ok(())
    }
}

/// The smallest or greatest so far.
struct Best {
    op: Op,
    nan: Nan,
    found: Option<f32>,
}

impl Best {
    /// Is this one better than all before?
    fn meet(&mut self, a: f32) -> bool {
        let a = if self.op == Op::MaximumSize { a.abs() } else { a };
        let better = match self.found {
            _ if a.is_nan() => self.nan == Nan::Propagate && !self.found.is_some_and(f32::is_nan),
            Some(best) if self.op == Op::Minimum => a < best,
            Some(best) => a > best,
            None => true,
        };
        if better {
            self.found = Some(a);
        }
        better
    }
}

/// Where the elements of `dims` are, the last dimension fastest.
fn places(dims: &[usize], strides: &[usize]) -> impl Iterator<Item = usize> {
    (0..dims.iter().product()).map(move |mut index: usize| {
        let mut place = 0;
        for (&dim, &stride) in dims.iter().zip(strides).rev() {
            place += index % dim * stride;
            index /= dim;
        }
        place
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduction(op: Op, nan: Nan, from: &[i64], to: &[i64]) -> Reduction {
        Reduction::new(op, nan, Tensor::packed(from).unwrap(), Tensor::packed(to).unwrap()).unwrap()
    }

    #[test]
    fn what_is_refused() {
        let tensors = |dims: &[i64]| Tensor::packed(dims).unwrap();
        for to in [&[2, 2][..], &[2], &[2, 1, 1]] {
            let refused = Reduction::new(Op::Add, Nan::Ignore, tensors(&[2, 3]), tensors(to));
            assert!(matches!(refused, Err(Error::Invalid(_))), "{to:?}");
        }
        let sum = reduction(Op::Add, Nan::Ignore, &[2, 3], &[2, 1]);
        assert!(matches!(sum.indices(&[0.0; 6], &mut [0.0; 2]), Err(Error::Unsupported(_))));
        assert_eq!(
            sum.run(Blend::REPLACE, &[0.0; 5], &mut [0.0; 2]),
            Err(Error::Short { needed: 6, given: 5 })
        );
        let most = reduction(Op::Maximum, Nan::Ignore, &[2, 3], &[2, 1]);
        assert_eq!(most.indices(&[0.0; 6], &mut [0.0]), Err(Error::Short { needed: 2, given: 1 }));
    }

    #[test]
    fn a_nan_is_none_or_wins() {
        let (a, nan) = ([f32::NAN, -3.0, 2.0, f32::NAN, 2.0], f32::NAN);
        let cases = [
            (Op::Maximum, Nan::Ignore, 2.0, 2),
            (Op::Minimum, Nan::Ignore, -3.0, 1),
            (Op::MaximumSize, Nan::Ignore, 3.0, 1),
            (Op::Maximum, Nan::Propagate, nan, 0),
            (Op::Minimum, Nan::Propagate, nan, 0),
        ];
        for (op, propagation, value, at) in cases {
            let r = reduction(op, propagation, &[1, 5], &[1, 1]);
            let (mut got, mut index) = ([0.0], [0.0]);
            r.run(Blend::REPLACE, &a, &mut got).unwrap();
            r.indices(&a, &mut index).unwrap();
            assert!(got[0] == value || got[0].is_nan() && value.is_nan(), "{op:?} {propagation:?} {got:?}");
            assert_eq!(index[0].to_bits(), at, "{op:?} {propagation:?}");
        }
        let none = reduction(Op::Maximum, Nan::Ignore, &[1, 2], &[1, 1]);
        let mut got = [0.0];
        none.run(Blend::REPLACE, &[nan; 2], &mut got).unwrap();
        assert!(got[0].is_nan());
    }
}
