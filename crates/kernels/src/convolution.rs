//! Convolution in one to three spatial dimensions: forward, and backward to data, filter and bias. Touches
//! nothing but the slices it is given and scratch memory of a fixed size.

use crate::check::{operand, positive, size};
use crate::error::{Error, Result};
use crate::gather::{DIGITS, Gather, Spread, Tap, int};
use crate::multiply::{Product, multiply};
use crate::tensor::Tensor;
use crate::{Blend, walk};

/// Which way the filter lies (`cudnnConvolutionMode_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Turned round in every spatial dimension, as mathematics has it.
    Convolution,
    /// As it is.
    CrossCorrelation,
}

/// What happens along one spatial dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    pad: usize,
    stride: usize,
    dilation: usize,
}

impl Axis {
    /// Zeros on both sides, the distance between two outputs, and that between two elements of the filter.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a negative padding and a stride or dilation below 1.
    pub fn new(pad: impl Into<i64>, stride: impl Into<i64>, dilation: impl Into<i64>) -> Result<Self> {
        Ok(Self { pad: size(pad)?, stride: positive(stride)?, dilation: positive(dilation)? })
    }

    /// How many outputs there are:
    /// `1 + (input + 2 * pad - ((filter - 1) * dilation + 1)) / stride`
    /// (`cudnnGetConvolutionNdForwardOutputDim`).
    ///
    /// # Errors
    /// [`Error::Invalid`] where the filter is larger than the padded input.
    pub fn output(self, input: usize, filter: usize) -> Result<usize> {
        let reach = filter.checked_sub(1).and_then(|steps| steps.checked_mul(self.dilation));
        let padded = self.pad.checked_mul(2).and_then(|pad| pad.checked_add(input));
        let (Some(reach), Some(padded)) = (reach, padded) else {
            return Err(Error::Unsupported("a filter or input is too large"));
        };
        match padded.checked_sub(1).and_then(|last| last.checked_sub(reach)) {
            Some(room) => Ok(1 + room / self.stride),
            None => Err(Error::Invalid("the filter is larger than the padded input")),
        }
    }
}

/// A convolution of an input with a filter, all sizes known and checked.
///
/// The input is (N, C, …), the filter (K, C / groups, …), the output (N, K, …), in any layout; group *g*
/// takes the *g*-th part of the channels on each side (`cudnnSetConvolutionGroupCount`).
///
/// Padding is zeros that are multiplied like everything else: with an infinite filter they are NaN.
#[derive(Clone, Copy, Debug)]
pub struct Convolution {
    x: Tensor,
    w: Tensor,
    y: Tensor,
    groups: usize,
    flip: bool,
    axes: [Axis; 3],
}

/// An index over the spatial dimensions of a tensor and, before them, `count` of one more.
fn with_space(count: usize, tensor: &Tensor) -> [usize; DIGITS] {
    let ([depth, height, width], _) = tensor.spatial();
    [count, depth, height, width]
}

/// Where the elements of `tensor` lie along dimension `plain`, `count` of them from `base`.
fn line(tensor: &Tensor, plain: usize, base: usize, count: usize) -> Spread {
    Spread { base, sizes: [count, 1, 1, 1], steps: [tensor.strides()[plain], 0, 0, 0] }
}

/// The same along dimension `plain` and all of space.
fn space(tensor: &Tensor, plain: usize, base: usize, count: usize) -> Spread {
    let (_, [depth, height, width]) = tensor.spatial();
    let steps = [tensor.strides()[plain], depth, height, width];
    Spread { base, sizes: with_space(count, tensor), steps }
}

/// Taps that follow the depth's index through a tensor's space.
fn straight(tensor: &Tensor) -> [Tap; 3] {
    let (sizes, steps) = tensor.spatial();
    std::array::from_fn(|i| Tap { depth: 1, limit: int(sizes[i]), step: int(steps[i]), ..Tap::NONE })
}

impl Convolution {
    /// The convolution of a tensor like `x` with a filter like `w` into a tensor like `y`; `axes` has what
    /// happens along each spatial dimension.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the sizes do not belong together; [`Error::Unsupported`] for more than three
    /// spatial dimensions.
    pub fn new(
        axes: &[Axis],
        groups: impl Into<i64>,
        mode: Mode,
        x: Tensor,
        w: Tensor,
        y: Tensor,
    ) -> Result<Self> {
        let groups = positive(groups)?;
        let rank = axes.len() + 2;
        if [x, w, y].iter().any(|tensor| tensor.dims().len() != rank) {
            return Err(Error::Invalid("input, filter, output and convolution differ in their dimensions"));
        }
        let mut padded = [Axis { pad: 0, stride: 1, dilation: 1 }; 3];
        match axes.len() {
            1..=3 => padded[3 - axes.len()..].copy_from_slice(axes),
            _ => return Err(Error::Unsupported("a convolution has one to three spatial dimensions")),
        }
        let ([xd, wd, yd], mut fits) = ([x.dims(), w.dims(), y.dims()], true);
        fits &= xd[0] == yd[0] && wd[0] == yd[1] && wd[0] % groups == 0;
        fits &= wd[1].checked_mul(groups) == Some(xd[1]);
        for (i, axis) in axes.iter().enumerate() {
            fits &= axis.output(xd[i + 2], wd[i + 2])? == yd[i + 2];
        }
        match fits {
            true => Ok(Self { x, w, y, groups, flip: mode == Mode::Convolution, axes: padded }),
            false => Err(Error::Invalid("input, filter and output of a convolution do not fit")),
        }
    }

    /// The input, or its gradient.
    #[must_use]
    pub fn x(&self) -> &Tensor {
        &self.x
    }

    /// The filter, or its gradient.
    #[must_use]
    pub fn w(&self) -> &Tensor {
        &self.w
    }

    /// The output, or its gradient.
    #[must_use]
    pub fn y(&self) -> &Tensor {
        &self.y
    }

    /// `y = alpha * (x ∗ w) + beta * y` (`cudnnConvolutionForward`).
    ///
    /// # Errors
    /// Where a slice is too short.
    pub fn forward(&self, blend: Blend, x: &[f32], w: &[f32], y: &mut [f32]) -> Result<()> {
        let (x, w, y) = (operand(x, self.x.span())?, operand(w, self.w.span())?, self.y.output(y)?);
        for group in self.groups() {
            let (filters, patches) = (self.filters(w, &group), self.patches(x, &group));
            let rows = line(&self.y, 1, group.y, group.outputs);
            let columns = space(&self.y, 0, 0, self.y.dims()[0]);
            multiply(blend, &filters, &patches, &mut Product { data: &mut *y, rows, columns });
        }
        Ok(())
    }

    /// `dx = alpha * (gradient of x) + beta * dx` (`cudnnConvolutionBackwardData`).
    ///
    /// # Errors
    /// Where a slice is too short.
    pub fn backward_data(&self, blend: Blend, w: &[f32], dy: &[f32], dx: &mut [f32]) -> Result<()> {
        let w = operand(w, self.w.span())?;
        let (dy, dx) = (operand(dy, self.y.span())?, self.x.output(dx)?);
        for group in self.groups() {
            let filters = self.filters(w, &group).turned();
            let patches = self.gradient_patches(dy, &group);
            let rows = line(&self.x, 1, group.x, group.inputs);
            let columns = space(&self.x, 0, 0, self.x.dims()[0]);
            multiply(blend, &filters, &patches, &mut Product { data: &mut *dx, rows, columns });
        }
        Ok(())
    }

    /// `dw = alpha * (gradient of w) + beta * dw` (`cudnnConvolutionBackwardFilter`).
    ///
    /// # Errors
    /// Where a slice is too short.
    pub fn backward_filter(&self, blend: Blend, x: &[f32], dy: &[f32], dw: &mut [f32]) -> Result<()> {
        let (x, dy) = (operand(x, self.x.span())?, operand(dy, self.y.span())?);
        let dw = self.w.output(dw)?;
        for group in self.groups() {
            let (gradients, patches) = (self.gradients(dy, &group), self.patches(x, &group).transposed());
            let rows = line(&self.w, 0, group.w, group.outputs);
            let columns = space(&self.w, 1, 0, group.inputs);
            multiply(blend, &gradients, &patches, &mut Product { data: &mut *dw, rows, columns });
        }
        Ok(())
    }

    fn groups(&self) -> impl Iterator<Item = Group> {
        let (outputs, inputs) = (self.w.dims()[0] / self.groups, self.w.dims()[1]);
        let steps =
            [self.x.strides()[1] * inputs, self.w.strides()[0] * outputs, self.y.strides()[1] * outputs];
        (0..self.groups).map(move |at| {
            let [x, w, y] = steps.map(|step| at * step);
            Group { outputs, inputs, x, w, y }
        })
    }

    /// A group's filters: by output, over input and tap.
    fn filters<'a>(&self, w: &'a [f32], group: &Group) -> Gather<'a> {
        Gather {
            data: w,
            base: group.w,
            lead: [group.outputs, 1, 1, 1],
            depth: with_space(group.inputs, &self.w),
            lead_step: self.w.strides()[0],
            depth_step: self.w.strides()[1],
            taps: straight(&self.w),
        }
    }

    /// What a group's filters meet in the input: by batch and place in the output, over input and tap.
    fn patches<'a>(&self, x: &'a [f32], group: &Group) -> Gather<'a> {
        let (sizes, steps) = self.x.spatial();
        Gather {
            data: x,
            base: group.x,
            lead: with_space(self.x.dims()[0], &self.y),
            depth: with_space(group.inputs, &self.w),
            lead_step: self.x.strides()[0],
            depth_step: self.x.strides()[1],
            taps: std::array::from_fn(|i| Tap {
                start: self.first_tap(i),
                lead: int(self.axes[i].stride),
                depth: self.tap_step(i),
                divisor: 1,
                limit: int(sizes[i]),
                step: int(steps[i]),
            }),
        }
    }

    /// What an element of the input has met in the output: by batch and place in the input, over output and
    /// tap. [`Self::patches`] takes the element at `start + stride * place + step * tap`; this is that,
    /// solved for the place.
    fn gradient_patches<'a>(&self, dy: &'a [f32], group: &Group) -> Gather<'a> {
        let (sizes, steps) = self.y.spatial();
        Gather {
            data: dy,
            base: group.y,
            lead: with_space(self.x.dims()[0], &self.x),
            depth: with_space(group.outputs, &self.w),
            lead_step: self.y.strides()[0],
            depth_step: self.y.strides()[1],
            taps: std::array::from_fn(|i| Tap {
                start: -self.first_tap(i),
                lead: 1,
                depth: -self.tap_step(i),
                divisor: int(self.axes[i].stride),
                limit: int(sizes[i]),
                step: int(steps[i]),
            }),
        }
    }

    /// The output's gradient: by output, over batch and place.
    fn gradients<'a>(&self, dy: &'a [f32], group: &Group) -> Gather<'a> {
        Gather {
            data: dy,
            base: group.y,
            lead: [group.outputs, 1, 1, 1],
            depth: with_space(self.y.dims()[0], &self.y),
            lead_step: self.y.strides()[1],
            depth_step: self.y.strides()[0],
            taps: straight(&self.y),
        }
    }

    /// Where in the input the first tap of the first output lies.
    fn first_tap(&self, i: usize) -> i64 {
        let reach = int((self.w.spatial().0[i] - 1) * self.axes[i].dilation);
        if self.flip { reach - int(self.axes[i].pad) } else { -int(self.axes[i].pad) }
    }

    /// How far the next tap is from it.
    fn tap_step(&self, i: usize) -> i64 {
        let step = int(self.axes[i].dilation);
        if self.flip { -step } else { step }
    }
}

/// A part of the channels, and where it begins in each tensor.
struct Group {
    outputs: usize,
    inputs: usize,
    x: usize,
    w: usize,
    y: usize,
}

/// `db = alpha * (sum of dy over all but the channels) + beta * db` (`cudnnConvolutionBackwardBias`), where
/// `db` is 1 in every dimension but the second. The sum is taken in double precision.
///
/// # Errors
/// Where the dimensions do not fit, or a slice is too short.
pub fn backward_bias(blend: Blend, yt: &Tensor, dy: &[f32], bt: &Tensor, db: &mut [f32]) -> Result<()> {
    check_bias(yt, bt)?;
    let yd = yt.dims();
    let (dy, db) = (operand(dy, yt.span())?, bt.output(db)?);
    let mut dims = [1; crate::MAX_RANK];
    dims[..yd.len()].copy_from_slice(yd);
    dims[1] = 1;
    for channel in 0..yd[1] {
        let mut sum = 0.0_f64;
        let dy = &dy[channel * yt.strides()[1]..];
        walk::each(&dims[..yd.len()], dy, yt.strides(), |dy| sum += f64::from(dy));
        blend.store(sum as f32, &mut db[channel * bt.strides()[1]]);
    }
    Ok(())
}

/// Is it a bias's shape, of such an output?
///
/// # Errors
/// Where it is not.
pub fn check_bias(yt: &Tensor, bt: &Tensor) -> Result<()> {
    let (yd, bd) = (yt.dims(), bt.dims());
    let fits = yd.len() >= 2 && bd.len() == yd.len();
    if !fits || bd.iter().enumerate().any(|(i, &dim)| dim != if i == 1 { yd[1] } else { 1 }) {
        return Err(Error::Invalid("a bias has the output's channels, and 1 in every other dimension"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(groups: i64, x: [i64; 4], w: [i64; 4], y: [i64; 4], axes: &[Axis]) -> Error {
        let [x, w, y] = [x, w, y].map(|dims| Tensor::packed(&dims).unwrap());
        Convolution::new(axes, groups, Mode::CrossCorrelation, x, w, y).unwrap_err()
    }

    #[test]
    fn sizes_that_do_not_fit() {
        let (x, w, y) = ([2, 4, 5, 5], [6, 2, 3, 3], [2, 6, 3, 3]);
        let axes = [Axis::new(0, 1, 1).unwrap(); 2];
        let tensors = [x, w, y].map(|dims| Tensor::packed(&dims).unwrap());
        let [xt, wt, yt] = tensors;
        assert!(Convolution::new(&axes, 2, Mode::CrossCorrelation, xt, wt, yt).is_ok());
        let misfit = Error::Invalid("input, filter and output of a convolution do not fit");
        let misfits = [
            refused(1, x, w, y, &axes),
            refused(2, [3, 4, 5, 5], w, y, &axes),
            refused(2, [2, 5, 5, 5], w, y, &axes),
            refused(2, x, [7, 2, 3, 3], y, &axes),
            refused(2, x, [7, 2, 3, 3], [2, 7, 3, 3], &axes),
            refused(2, x, w, [2, 6, 4, 3], &axes),
            refused(2, x, w, [2, 6, 3, 2], &axes),
        ];
        assert_eq!(misfits, [misfit; 7]);
        let larger = Error::Invalid("the filter is larger than the padded input");
        assert_eq!(refused(2, x, [6, 2, 3, 6], y, &axes), larger);
        assert!(matches!(refused(2, x, w, y, &axes[..1]), Error::Invalid(_)));
        assert!(matches!(refused(0, x, w, y, &axes), Error::Invalid(_)));
    }

    #[test]
    fn dimensions_that_there_is_no_kernel_for() {
        let none = Tensor::packed(&[1, 1]).unwrap();
        let six = Tensor::packed(&[1; 6]).unwrap();
        let axes = [Axis::new(0, 1, 1).unwrap(); 4];
        for (axes, tensor) in [(&axes[..0], none), (&axes[..], six)] {
            let result = Convolution::new(axes, 1, Mode::Convolution, tensor, tensor, tensor);
            assert!(matches!(result.unwrap_err(), Error::Unsupported(_)));
        }
    }
}
