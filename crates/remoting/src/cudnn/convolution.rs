//! Convolution descriptors: contents and rules. Touches nothing.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::filter::Filter;
use super::tensor::Tensor;
use super::{Got, Result, Status, Version, check, four};
use crate::descriptor::{Content, Ints, Kind};

/// The most spatial dimensions.
const MAX: usize = 6;

/// Padding, stride and dilation, and how to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Convolution {
    /// How many spatial dimensions.
    pub count: i32,
    /// `cudnnConvolutionMode_t`: 0 convolution, 1 cross-correlation.
    pub mode: i32,
    /// `cudnnDataType_t` to compute in.
    pub compute_type: i32,
    /// How many groups; setting the rest leaves it, and the two below.
    pub groups: i32,
    /// `cudnnMathType_t`.
    pub math_type: i32,
    /// `cudnnReorderType_t`.
    pub reorder: i32,
    /// Padding on either side.
    pub padding: [i32; MAX],
    /// Steps of the filter.
    pub stride: [i32; MAX],
    /// Distance of the filter's elements.
    pub dilation: [i32; MAX],
}

impl Content for Convolution {
    const KIND: Kind = Kind::Convolution;
    const FRESH: Self = Self {
        count: 0,
        mode: 0,
        compute_type: 0,
        groups: 1,
        math_type: 0,
        reorder: 0,
        padding: [0; MAX],
        stride: [0; MAX],
        dilation: [0; MAX],
    };

    fn is_sound(&self) -> bool {
        (0..=MAX as i32).contains(&self.count) && self.groups > 0
    }
}

/// `cudnnSetConvolution2dDescriptor`.
///
/// # Errors
/// As [`set_nd`].
pub fn set_2d(
    version: Version,
    conv: &mut Convolution,
    pad_h: i32,
    pad_w: i32,
    stride_h: i32,
    stride_w: i32,
    dilation_h: i32,
    dilation_w: i32,
    mode: i32,
    compute_type: i32,
) -> Result {
    let ints = |h, w| [h, w].into_iter().collect();
    let (padding, stride) = (ints(pad_h, pad_w), ints(stride_h, stride_w));
    set_nd(version, conv, 2, padding, stride, ints(dilation_h, dilation_w), mode, compute_type)
}

/// `cudnnSetConvolutionNdDescriptor`. Groups, math type and reorder type stay; of a dimension with a wrong value,
/// what comes before that value is taken.
///
/// # Errors
/// `BadParam` for values out of range, `NotSupported` for more than six dimensions.
pub fn set_nd(
    _: Version,
    conv: &mut Convolution,
    count: i32,
    padding: Ints,
    stride: Ints,
    dilation: Ints,
    mode: i32,
    compute_type: i32,
) -> Result {
    check(matches!(mode, 0 | 1) && matches!(compute_type, 0 | 1 | 2 | 4), Status::BadParam)?;
    check(count >= 0, Status::BadParam)?;
    check(count <= MAX as i32, Status::NotSupported)?;
    (conv.count, conv.mode, conv.compute_type) = (count, mode, compute_type);
    for (i, ((padding, stride), dilation)) in padding.into_iter().zip(stride).zip(dilation).enumerate() {
        conv.padding[i] = padding;
        check(padding >= 0, Status::BadParam)?;
        conv.stride[i] = stride;
        check(stride > 0, Status::BadParam)?;
        conv.dilation[i] = dilation;
        check(dilation > 0, Status::BadParam)?;
    }
    Ok(())
}

/// `cudnnSetConvolutionGroupCount`.
///
/// # Errors
/// `BadParam` for fewer than one.
pub fn set_groups(_: Version, conv: &mut Convolution, groups: i32) -> Result {
    check(groups > 0, Status::BadParam)?;
    conv.groups = groups;
    Ok(())
}

/// `cudnnSetConvolutionMathType`.
///
/// # Errors
/// `BadParam` for one that is not known.
pub fn set_math_type(_: Version, conv: &mut Convolution, math_type: i32) -> Result {
    check((0..=3).contains(&math_type), Status::BadParam)?;
    conv.math_type = math_type;
    Ok(())
}

/// `cudnnSetConvolutionReorderType`.
///
/// # Errors
/// `BadParam` for one that is not known.
pub fn set_reorder(_: Version, conv: &mut Convolution, reorder: i32) -> Result {
    check((0..=1).contains(&reorder), Status::BadParam)?;
    conv.reorder = reorder;
    Ok(())
}

/// `cudnnGetConvolution2dDescriptor`: padding, stride, dilation, each by height and width, mode and compute
/// type, whatever the number of dimensions.
///
/// # Errors
/// None.
pub fn get_2d(_: Version, conv: Convolution) -> Result<(i32, i32, i32, i32, i32, i32, i32, i32)> {
    let ([ph, pw, ..], [sh, sw, ..], [dh, dw, ..]) = (conv.padding, conv.stride, conv.dilation);
    Ok((ph, pw, sh, sw, dh, dw, conv.mode, conv.compute_type))
}

/// `cudnnGetConvolutionNdDescriptor`: count, as many paddings, strides and dilations as are asked for, there or
/// not, mode and compute type.
///
/// # Errors
/// `BadParam` for fewer than none, `NotSupported` for more than six.
pub fn get_nd(_: Version, conv: Convolution, requested: i32) -> Result<(i32, Ints, Ints, Ints, i32, i32)> {
    check(requested >= 0, Status::BadParam)?;
    check(requested <= MAX as i32, Status::NotSupported)?;
    let first = |values: [i32; MAX]| values.into_iter().take(requested as usize).collect();
    let (padding, stride, dilation) = (first(conv.padding), first(conv.stride), first(conv.dilation));
    Ok((conv.count, padding, stride, dilation, conv.mode, conv.compute_type))
}

/// `cudnnGetConvolutionGroupCount`.
///
/// # Errors
/// None.
pub fn get_groups(_: Version, conv: Convolution) -> Result<(i32,)> {
    Ok((conv.groups,))
}

/// `cudnnGetConvolutionMathType`.
///
/// # Errors
/// None.
pub fn get_math_type(_: Version, conv: Convolution) -> Result<(i32,)> {
    Ok((conv.math_type,))
}

/// `cudnnGetConvolutionReorderType`.
///
/// # Errors
/// None.
pub fn get_reorder(_: Version, conv: Convolution) -> Result<(i32,)> {
    Ok((conv.reorder,))
}

/// `cudnnGetConvolution2dForwardOutputDim`. Whatever it could not compute is 0.
pub fn output_2d(
    version: Version,
    conv: Option<Convolution>,
    x: Option<Tensor>,
    w: Option<Filter>,
) -> Got<(i32, i32, i32, i32)> {
    let Got { status, results, .. } = match (conv, x, w) {
        (Some(conv), Some(x), Some(w)) => output_nd(version, conv, x, w, 4),
        _ => Err(Status::BadParam).into(),
    };
    Got::all(status, four(results))
}

/// `cudnnGetConvolutionNdForwardOutputDim`, in wrapping numbers: the first two dimensions, and as many of the others as make up `count`.
/// Those before one that the filter does not fit into are written even so; then it fails, with `BadParam`.
pub fn output_nd(_: Version, conv: Convolution, x: Tensor, w: Filter, count: i32) -> Got<(Ints,)> {
    let fits = x.count == conv.count + 2 && w.count == x.count && (0..=x.count).contains(&count);
    if !fits || x.dims[1] != w.dims[1].wrapping_mul(conv.groups) {
        return Err(Status::BadParam).into();
    }
    let mut dims: Ints = [x.dims[0], w.dims[0]].into_iter().collect();
    for i in 0..count.max(2) as usize - 2 {
        // A set that failed leaves such. The real library divides by it.
        if conv.stride[i] < 1 {
            return Err(Status::BadParam).into();
        }
        let window = (w.dims[i + 2].wrapping_sub(1)).wrapping_mul(conv.dilation[i]).wrapping_add(1);
        let padded = x.dims[i + 2].wrapping_add(conv.padding[i].wrapping_mul(2));
        if window > padded {
            return Got::all(Err(Status::BadParam), (dims,));
        }
        let dim = padded.wrapping_sub(window).wrapping_div(conv.stride[i]).wrapping_add(1);
        dims.push(dim);
    }
    Ok((dims,)).into()
}
