//! Activation functions, forward and backward. Touches nothing but the slices it is given.

use crate::check::operand;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::{Blend, Nan, walk};

/// A function of one number (`cudnnActivationMode_t`).
///
/// The NaN option decides where the greater or smaller of two numbers is taken, in the two kinds of relu;
/// elsewhere a NaN gives a NaN (assumed). cuDNN's coefficient is the clipped relu's ceiling and the elu's
/// alpha; of the plain relu, documentation since 8.0 calls it an upper bound, but frameworks pass 0 and get
/// a plain relu, so it is not looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `max(x, 0)`
    Relu(Nan),
    /// The hyperbolic tangent.
    Tanh,
    /// `min(max(x, 0), ceiling)`
    ClippedRelu {
        /// The greatest value.
        ceiling: f32,
        /// What becomes of a NaN.
        nan: Nan,
    },
    /// `x` above zero, else `alpha * (exp(x) - 1)`.
    Elu {
        /// How deep it goes below zero.
        alpha: f32,
    },
    /// `x`. cuDNN knows it, but documents it for `cudnnConvolutionBiasActivationForward` alone.
    Identity,
    /// `x * sigmoid(beta * x)`
    Swish {
        /// How steep the sigmoid is (`cudnnSetActivationDescriptorSwishBeta`; 1 unless set).
        beta: f32,
    },
}

impl Function {
    /// Its value at `x`.
    fn value(self, x: f32) -> f32 {
        match self {
            Self::Sigmoid => sigmoid(x),
            Self::Relu(nan) => floor(x, nan),
            Self::Tanh => x.tanh(),
            Self::ClippedRelu { ceiling, nan } => match floor(x, nan) {
                y if y > ceiling => ceiling,
                y => y,
            },
            Self::Elu { .. } if x > 0.0 => x,
            Self::Elu { alpha } => alpha * x.exp_m1(),
            Self::Identity => x,
            Self::Swish { beta } => x * sigmoid(beta * x),
        }
    }

    /// What `dy` at the output `y` is at the input `x`.
    fn gradient(self, y: f32, dy: f32, x: f32) -> f32 {
        match self {
            Self::Sigmoid => dy * y * (1.0 - y),
            Self::Tanh => dy * (1.0 - y * y),
            Self::Relu(Nan::Propagate) | Self::ClippedRelu { nan: Nan::Propagate, .. } if x.is_nan() => x,
            Self::Relu(_) => if_else(x > 0.0, dy),
            Self::ClippedRelu { ceiling, .. } => if_else(x > 0.0 && x <= ceiling, dy),
            Self::Elu { .. } if x > 0.0 => dy,
            Self::Elu { alpha } => dy * alpha * x.exp(),
            Self::Identity => dy,
            Self::Swish { beta } => {
                let s = sigmoid(beta * x);
                dy * (s + beta * x * s * (1.0 - s))
            }
        }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// The greater of `x` and 0.
fn floor(x: f32, nan: Nan) -> f32 {
    match x > 0.0 || (nan == Nan::Propagate && x.is_nan()) {
        true => x,
        false => 0.0,
    }
}

/// `dy`, or zero, even where `dy` is a NaN.
fn if_else(open: bool, dy: f32) -> f32 {
    if open { dy } else { 0.0 }
}

/// `y = alpha * f(x) + beta * y` (`cudnnActivationForward`; may be in place).
///
/// # Errors
/// Where the dimensions differ, or a slice is too short.
pub fn forward(f: Function, blend: Blend, xt: &Tensor, x: &[f32], yt: &Tensor, y: &mut [f32]) -> Result<()> {
    xt.same_dims(yt)?;
    let (x, y) = (operand(x, xt.span())?, yt.output(y)?);
    let (input, result) = ((x, xt.strides()), (y, yt.strides()));
    walk::zip(xt.dims(), [input], result, |[x], y| blend.store(f.value(x), y));
    Ok(())
}

/// `y = f(y)`.
///
/// # Errors
/// Where the slice is too short.
pub fn in_place(f: Function, yt: &Tensor, y: &mut [f32]) -> Result<()> {
    let y = yt.output(y)?;
    walk::zip(yt.dims(), [], (y, yt.strides()), |[], y| *y = f.value(*y));
    Ok(())
}

/// The operands of the gradient: what went in and came out, and the gradients.
#[derive(Clone, Copy, Debug)]
pub struct Backward {
    /// The output of [`forward`].
    pub y: Tensor,
    /// Its gradient.
    pub dy: Tensor,
    /// The input of [`forward`].
    pub x: Tensor,
    /// Its gradient.
    pub dx: Tensor,
}

impl Backward {
    /// `dx = alpha * f'(x) * dy + beta * dx` (`cudnnActivationBackward`; `dx` may be in `dy`'s place).
    ///
    /// Sigmoid and tanh look at `y`, the others at `x`.
    ///
    /// # Errors
    /// Where the dimensions differ, or a slice is too short.
    pub fn run(
        &self,
        f: Function,
        blend: Blend,
        y: &[f32],
        dy: &[f32],
        x: &[f32],
        dx: &mut [f32],
    ) -> Result<()> {
        [self.y, self.dy, self.x].iter().try_for_each(|tensor| self.dx.same_dims(tensor))?;
        let inputs = [
            (operand(y, self.y.span())?, self.y.strides()),
            (operand(dy, self.dy.span())?, self.dy.strides()),
            (operand(x, self.x.span())?, self.x.strides()),
        ];
        let result = (self.dx.output(dx)?, self.dx.strides());
        walk::zip(self.dx.dims(), inputs, result, |[y, dy, x], dx| blend.store(f.gradient(y, dy, x), dx));
        Ok(())
    }
}
