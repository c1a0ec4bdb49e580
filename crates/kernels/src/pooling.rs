//! Pooling in one to three spatial dimensions, forward and backward. Touches nothing but the slices it is
//! given.

use std::ops::Range;

use crate::check::{operand, positive, size};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::{Blend, Nan, walk};

/// What is made of a window (`cudnnPoolingMode_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The greatest element; padding is none. Both of cuDNN's kinds of it are deterministic here. Of equal
    /// elements the first takes the gradient (assumed).
    Max(Nan),
    /// The sum over the window's size, whatever part of the window is padding.
    AverageIncludingPadding,
    /// The sum over the number of elements that are not padding.
    AverageExcludingPadding,
}

/// A window along one spatial dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    size: usize,
    pad: usize,
    stride: usize,
}

impl Window {
    /// The window's size, the padding on both sides and the distance between two windows.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a negative padding and a size or stride below 1.
    pub fn new(window: impl Into<i64>, pad: impl Into<i64>, stride: impl Into<i64>) -> Result<Self> {
        Ok(Self { size: positive(window)?, pad: size(pad)?, stride: positive(stride)? })
    }

    /// How many windows there are: `1 + (input + 2 * pad - window) / stride`
    /// (`cudnnGetPoolingNdForwardOutputDim`).
    ///
    /// # Errors
    /// [`Error::Invalid`] where the window is larger than the padded input.
    pub fn output(self, input: usize) -> Result<usize> {
        let padded = self.pad.checked_mul(2).and_then(|pad| pad.checked_add(input));
        match padded.and_then(|padded| padded.checked_sub(self.size)) {
            Some(room) => Ok(1 + room / self.stride),
            None => Err(Error::Invalid("the window is larger than the padded input")),
        }
    }

    /// The part of the window at `place` that lies on an input of this size; maybe nothing.
    fn on(self, place: usize, input: usize) -> Range<usize> {
        // All of them are below 2^31.
        let start = place * self.stride;
        let clip = |at: usize| at.saturating_sub(self.pad).min(input);
        clip(start)..clip(start + self.size)
    }
}

/// A pooling of an input into an output, all sizes known and checked.
///
/// The output need not have the size that [`Window::output`] gives: some frameworks round up, and their
/// last windows hang over the end. What hangs over is padding. A window of nothing but padding has the
/// average 0 and the maximum -∞ (assumed).
#[derive(Clone, Copy, Debug)]
pub struct Pooling {
    mode: Mode,
    windows: [Window; 3],
    x: Tensor,
    y: Tensor,
}

/// The elements of a window of a plane, or all those of a plane: ranges of three dimensions.
struct Part {
    ranges: [Range<usize>; 3],
    step: [usize; 3],
}

impl Part {
    fn len(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).product()
    }

    /// Calls `visit` with the index and the place of each element, the last dimension fastest.
    fn each(&self, mut visit: impl FnMut([usize; 3], usize)) {
        let [depth, height, width] = &self.ranges;
        for d in depth.clone() {
            for h in height.clone() {
                let line = d * self.step[0] + h * self.step[1];
                for w in width.clone() {
                    visit([d, h, w], line + w * self.step[2]);
                }
            }
        }
    }
}

/// Where the greatest element is; nowhere if there is none, or only NaNs that are none.
fn greatest(x: &[f32], part: &Part, nan: Nan) -> Option<usize> {
    let mut greatest: Option<(usize, f32)> = None;
    part.each(|_, at| {
        let value = x[at];
        let wins = match (greatest, nan) {
            (Some((_, best)), Nan::Propagate) => value > best || value.is_nan() && !best.is_nan(),
            (Some((_, best)), Nan::Ignore) => value > best,
            (None, nan) => nan == Nan::Propagate || !value.is_nan(),
        };
        if wins {
            greatest = Some((at, value));
        }
    });
    greatest.map(|(at, _)| at)
}

impl Pooling {
    /// A pooling of a tensor like `x` into one like `y`, with a window along each spatial dimension.
    ///
    /// # Errors
    /// [`Error::Invalid`] where batch, channels or numbers of dimensions differ; [`Error::Unsupported`] for
    /// more than three spatial dimensions.
    pub fn new(mode: Mode, windows: &[Window], x: Tensor, y: Tensor) -> Result<Self> {
        let rank = windows.len() + 2;
        if [x, y].iter().any(|tensor| tensor.dims().len() != rank) || x.dims()[..2] != y.dims()[..2] {
            return Err(Error::Invalid("input and output of a pooling differ in batch or channels"));
        }
        let mut padded = [Window { size: 1, pad: 0, stride: 1 }; 3];
        match windows.len() {
            1..=3 => padded[3 - windows.len()..].copy_from_slice(windows),
            _ => return Err(Error::Unsupported("a pooling has one to three spatial dimensions")),
        }
        Ok(Self { mode, windows: padded, x, y })
    }

    /// The input, or its gradient.
    #[must_use]
    pub fn x(&self) -> &Tensor {
        &self.x
    }

    /// The output, or its gradient.
    #[must_use]
    pub fn y(&self) -> &Tensor {
        &self.y
    }

    /// `y = alpha * pool(x) + beta * y` (`cudnnPoolingForward`).
    ///
    /// # Errors
    /// Where a slice is too short.
    pub fn forward(&self, blend: Blend, x: &[f32], y: &mut [f32]) -> Result<()> {
        let (x, y) = (operand(x, self.x.span())?, self.y.output(y)?);
        self.each(|plane, part, place| {
            let x = &x[plane..];
            let value = match self.mode {
                Mode::Max(nan) => greatest(x, part, nan).map_or(f32::NEG_INFINITY, |at| x[at]),
                _ => {
                    let mut sum = 0.0_f64;
                    part.each(|_, at| sum += f64::from(x[at]));
                    (sum / self.divisor(part)) as f32
                }
            };
            blend.store(value, &mut y[place]);
        });
        Ok(())
    }

    /// `dx = alpha * (gradient of x) + beta * dx` (`cudnnPoolingBackward`).
    ///
    /// cuDNN is given `y` too; what it would say is in `x` already. Windows are added in their order.
    ///
    /// # Errors
    /// Where a slice is too short.
    pub fn backward(&self, blend: Blend, dy: &[f32], x: &[f32], dx: &mut [f32]) -> Result<()> {
        let dy = operand(dy, self.y.span())?;
        let (x, dx) = (operand(x, self.x.span())?, self.x.output(dx)?);
        walk::zip(self.x.dims(), [], (&mut *dx, self.x.strides()), |[], dx| blend.fade(dx));
        self.each(|plane, part, place| {
            let dy = blend.alpha * dy[place];
            let (x, dx) = (&x[plane..], &mut dx[plane..]);
            match self.mode {
                Mode::Max(nan) => {
                    if let Some(at) = greatest(x, part, nan) {
                        dx[at] += dy;
                    }
                }
                _ => {
                    let dy = (f64::from(dy) / self.divisor(part)) as f32;
                    part.each(|_, at| dx[at] += dy);
                }
            }
        });
        Ok(())
    }

    /// Calls `visit` for every window with the place of its plane and its elements in the input, and the
    /// place of its result in the output.
    fn each(&self, mut visit: impl FnMut(usize, &Part, usize)) {
        let ((from, step), (to, result_step)) = (self.x.spatial(), self.y.spatial());
        let results = Part { ranges: to.map(|size| 0..size), step: result_step };
        let (xs, ys) = (self.x.strides(), self.y.strides());
        for batch in 0..self.x.dims()[0] {
            for channel in 0..self.x.dims()[1] {
                let plane = batch * xs[0] + channel * xs[1];
                let result = batch * ys[0] + channel * ys[1];
                results.each(|index, place| {
                    let ranges = std::array::from_fn(|i| self.windows[i].on(index[i], from[i]));
                    visit(plane, &Part { ranges, step }, result + place);
                });
            }
        }
    }

    /// What a window's sum is divided by.
    fn divisor(&self, part: &Part) -> f64 {
        match self.mode {
            Mode::AverageIncludingPadding => self.windows.iter().map(|window| window.size as f64).product(),
            _ => part.len().max(1) as f64,
        }
    }
}
