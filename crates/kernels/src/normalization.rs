//! Local response normalisation across channels, forward and backward. Touches nothing but the slices it is given.

use std::ops::Range;

use crate::Blend;
use crate::check::{operand, positive};
use crate::error::{Error, Result};
use crate::tensor::{MAX_RANK, Tensor};
use crate::walk::Walk;

/// A normalisation of a tensor into one of the same dimensions, all sizes known and checked.
///
/// With `s` of a channel as `k + alpha / n * (sum of the squares of the n channels around it)`, the output is
/// `x * s^-beta` (`cudnnLRNCrossChannelForward`). Of an even `n` there is one more channel after than before;
/// beside the channels there is nothing. Everything is computed in double precision.
#[derive(Clone, Copy, Debug)]
pub struct Normalization {
    n: usize,
    alpha: f64,
    beta: f64,
    k: f64,
    x: Tensor,
    y: Tensor,
}

impl Normalization {
    /// A normalisation of a tensor like `x` into one like `y`, with `[alpha, beta, k]` as above.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the dimensions differ or are fewer than two, and for a width below 1.
    pub fn new(n: impl Into<i64>, [alpha, beta, k]: [f64; 3], x: Tensor, y: Tensor) -> Result<Self> {
        x.same_dims(&y)?;
        if x.dims().len() < 2 {
            return Err(Error::Invalid("a normalisation has batch and channels"));
        }
        Ok(Self { n: positive(n)?, alpha, beta, k, x, y })
    }

    /// `y = alpha * normalised(x) + beta * y`.
    ///
    /// # Errors
    /// Where a slice is too short.
    pub fn forward(&self, blend: Blend, x: &[f32], y: &mut [f32]) -> Result<()> {
        let (x, y) = (operand(x, self.x.span())?, self.y.output(y)?);
        self.each(self.y.strides(), [&self.x], |[x_at], to| {
            let x = self.channels(&self.x, x, x_at);
            for c in 0..self.count() {
                let value = x(c) * self.scale(&x, c).powf(-self.beta);
                blend.store(value as f32, &mut y[to + c * self.y.strides()[1]]);
            }
        });
        Ok(())
    }

    /// `dx = alpha * (gradient of x) + beta * dx`, where `dy` lies as `dyt` says and `dx` as the output does
    /// (`cudnnLRNCrossChannelBackward`, which is given the output too; what it says is in `x` already).
    ///
    /// # Errors
    /// Where the dimensions differ, or a slice is too short.
    pub fn backward(&self, blend: Blend, dyt: &Tensor, dy: &[f32], x: &[f32], dx: &mut [f32]) -> Result<()> {
        dyt.same_dims(&self.x)?;
        let (x, dy) = (operand(x, self.x.span())?, operand(dy, dyt.span())?);
        let dx = self.y.output(dx)?;
        let factor = 2.0 * self.alpha * self.beta / self.n as f64;
        self.each(self.y.strides(), [&self.x, dyt], |[x_at, dy_at], to| {
            let (x, dy) = (self.channels(&self.x, x, x_at), self.channels(dyt, dy, dy_at));
            for c in 0..self.count() {
                // Those whose windows have this channel.
                let (before, after) = self.around();
                let met = c.saturating_sub(after)..(c + before + 1).min(self.count());
                let through =
                    met.map(|other| dy(other) * x(other) * self.scale(&x, other).powf(-self.beta - 1.0));
                let own = dy(c) * self.scale(&x, c).powf(-self.beta);
                let value = own - factor * x(c) * through.sum::<f64>();
                blend.store(value as f32, &mut dx[to + c * self.y.strides()[1]]);
            }
        });
        Ok(())
    }

    fn count(&self) -> usize {
        self.x.dims()[1]
    }

    /// How many channels count before one, and after it.
    fn around(&self) -> (usize, usize) {
        let before = (self.n - 1) / 2;
        (before, self.n - 1 - before)
    }

    fn window(&self, c: usize) -> Range<usize> {
        let (before, after) = self.around();
        c.saturating_sub(before)..(c + after + 1).min(self.count())
    }

    fn scale(&self, x: &impl Fn(usize) -> f64, c: usize) -> f64 {
        let squares: f64 = self.window(c).map(|other| x(other) * x(other)).sum();
        self.k + self.alpha / self.n as f64 * squares
    }

    /// The channels of a tensor at one place.
    fn channels<'a>(&self, tensor: &Tensor, data: &'a [f32], at: usize) -> impl Fn(usize) -> f64 + use<'a> {
        let step = tensor.strides()[1];
        move |c| f64::from(data[at + c * step])
    }

    /// Calls `visit` with where the channels of each place begin, in some tensors and in the output.
    fn each<const N: usize>(
        &self,
        output: &[usize],
        inputs: [&Tensor; N],
        mut visit: impl FnMut([usize; N], usize),
    ) {
        let mut dims = [1; MAX_RANK];
        let rank = self.x.dims().len();
        dims[..rank].copy_from_slice(self.x.dims());
        dims[1] = 1;
        Walk::new(&dims[..rank], output, inputs.map(Tensor::strides)).rows(|row| {
            for at in 0..row.len {
                visit(row.others.map(|(start, step)| start + at * step), row.lead.0 + at * row.lead.1);
            }
        });
    }
}
