//! Softmax, forward and backward. Touches nothing but the slices it is given.

use crate::Blend;
use crate::check::operand;
use crate::error::{Error, Result};
use crate::tensor::{MAX_RANK, Tensor};
use crate::walk::{Walk, each, zip};

/// How it is computed (`cudnnSoftmaxAlgorithm_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// `exp(x) / sum(exp(x))` straight: great values overflow.
    Fast,
    /// The same, with the greatest value taken off each first.
    Accurate,
    /// The logarithm of it.
    Log,
}

/// What sums to one (`cudnnSoftmaxMode_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything of a batch element: channels and space.
    Instance,
    /// The channels at one place.
    Channel,
}

/// A softmax, all sizes known and checked.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    algorithm: Algorithm,
    x: Tensor,
    y: Tensor,
    /// The dimensions that do not sum to one, and those that do; 1 for the rest.
    outer: [usize; MAX_RANK],
    inner: [usize; MAX_RANK],
}

impl Softmax {
    /// A softmax of a tensor like `x` into one like `y`; for [`Softmax::backward`], of the output's
    /// gradient into the input's.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the dimensions differ or are fewer than two.
    pub fn new(algorithm: Algorithm, mode: Mode, x: Tensor, y: Tensor) -> Result<Self> {
        x.same_dims(&y)?;
        if x.dims().len() < 2 {
            return Err(Error::Invalid("a softmax has batch and channels"));
        }
        let (mut outer, mut inner) = ([1; MAX_RANK], [1; MAX_RANK]);
        for (i, &dim) in x.dims().iter().enumerate() {
            let sums = i == 1 || (i > 1 && mode == Mode::Instance);
            *if sums { &mut inner[i] } else { &mut outer[i] } = dim;
        }
        Ok(Self { algorithm, x, y, outer, inner })
    }

    /// `y = alpha * softmax(x) + beta * y` (`cudnnSoftmaxForward`; may be in place).
    ///
    /// # Errors
    /// Where a slice is too short.
    pub fn forward(&self, blend: Blend, x: &[f32], y: &mut [f32]) -> Result<()> {
        let (x, y) = (operand(x, self.x.span())?, self.y.output(y)?);
        let inner = &self.inner[..self.x.dims().len()];
        self.each([&self.x], &self.y, |[from], to| {
            let x = &x[from..];
            let shift = match self.algorithm {
                Algorithm::Fast => 0.0,
                Algorithm::Accurate | Algorithm::Log => {
                    let mut greatest = f32::NEG_INFINITY;
                    each(inner, x, self.x.strides(), |x| greatest = greatest.max(x));
                    greatest
                }
            };
            let mut sum = 0.0_f64;
            each(inner, x, self.x.strides(), |x| sum += f64::from((x - shift).exp()));
            // Times the inverse, as the library does: results of it in its users' tests say so.
            let (inverse, log) = (1.0 / sum as f32, sum.ln() as f32);
            let value = |x: f32| match self.algorithm {
                Algorithm::Log => x - shift - log,
                Algorithm::Fast | Algorithm::Accurate => (x - shift).exp() * inverse,
            };
            let (input, result) = ((x, self.x.strides()), (&mut y[to..], self.y.strides()));
            zip(inner, [input], result, |[x], y| blend.store(value(x), y));
        });
        Ok(())
    }

    /// `dx = alpha * (gradient of x) + beta * dx` from the output `y`, which lies as `yt` says, and its
    /// gradient (`cudnnSoftmaxBackward`; `dx` may be in `dy`'s place).
    ///
    /// # Errors
    /// Where the dimensions differ, or a slice is too short.
    pub fn backward(&self, blend: Blend, yt: &Tensor, y: &[f32], dy: &[f32], dx: &mut [f32]) -> Result<()> {
        yt.same_dims(&self.x)?;
        let (y, dy) = (operand(y, yt.span())?, operand(dy, self.x.span())?);
        let dx = self.y.output(dx)?;
        let inner = &self.inner[..self.x.dims().len()];
        self.each([yt, &self.x], &self.y, |[output, gradient], to| {
            let (y, dy, dx) = (&y[output..], &dy[gradient..], &mut dx[to..]);
            let mut sum = 0.0_f64;
            let weight = |y: f32| if self.algorithm == Algorithm::Log { 1.0 } else { f64::from(y) };
            Walk::new(inner, self.x.strides(), [yt.strides()]).rows(|row| {
                for at in 0..row.len {
                    let y = y[row.others[0].0 + at * row.others[0].1];
                    sum += weight(y) * f64::from(dy[row.lead.0 + at * row.lead.1]);
                }
            });
            let sum = sum as f32;
            let value = |y: f32, dy: f32| match self.algorithm {
                Algorithm::Log => dy - y.exp() * sum,
                Algorithm::Fast | Algorithm::Accurate => y * (dy - sum),
            };
            let inputs = [(y, yt.strides()), (dy, self.x.strides())];
            zip(inner, inputs, (dx, self.y.strides()), |[y, dy], dx| blend.store(value(y, dy), dx));
        });
        Ok(())
    }

    /// Calls `visit` with where each set that sums to one begins.
    fn each<const N: usize>(
        &self,
        inputs: [&Tensor; N],
        output: &Tensor,
        mut visit: impl FnMut([usize; N], usize),
    ) {
        let outer = &self.outer[..self.x.dims().len()];
        Walk::new(outer, output.strides(), inputs.map(Tensor::strides)).rows(|row| {
            for at in 0..row.len {
                let inputs = row.others.map(|(start, step)| start + at * step);
                visit(inputs, row.lead.0 + at * row.lead.1);
            }
        });
    }
}
