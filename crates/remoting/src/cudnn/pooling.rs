//! Pooling descriptors: contents and rules. Touches nothing.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::tensor::Tensor;
use super::{Got, Result, Status, UINT8X4, Version, check, four};
use crate::descriptor::{Content, Ints, Kind};

/// The most spatial dimensions.
const MAX: usize = 6;

/// Window, padding and stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Pooling {
    /// `cudnnPoolingMode_t`: 0 maximum, 1 and 2 average with and without padding, 3 maximum, deterministic.
    pub mode: i32,
    /// `cudnnNanPropagation_t`.
    pub nan: i32,
    /// How many spatial dimensions.
    pub count: i32,
    reserved: i32,
    /// The window.
    pub window: [i32; MAX],
    /// Padding on either side.
    pub padding: [i32; MAX],
    /// Steps of the window.
    pub stride: [i32; MAX],
}

impl Content for Pooling {
    const KIND: Kind = Kind::Pooling;
    const FRESH: Self = Self {
        mode: 0,
        nan: 0,
        count: 0,
        reserved: 0,
        window: [0; MAX],
        padding: [0; MAX],
        stride: [0; MAX],
    };

    fn is_sound(&self) -> bool {
        (0..=MAX as i32).contains(&self.count)
    }
}

/// `cudnnSetPooling2dDescriptor`.
///
/// # Errors
/// As [`set_nd`].
pub fn set_2d(
    version: Version,
    pool: &mut Pooling,
    mode: i32,
    nan: i32,
    window_h: i32,
    window_w: i32,
    pad_h: i32,
    pad_w: i32,
    stride_h: i32,
    stride_w: i32,
) -> Result {
    let ints = |h, w| [h, w].into_iter().collect();
    let (window, padding) = (ints(window_h, window_w), ints(pad_h, pad_w));
    set_nd(version, pool, mode, nan, 2, window, padding, ints(stride_h, stride_w))
}

/// `cudnnSetPoolingNdDescriptor`. Values are taken one after the other: those before the first wrong one stay. Any
/// padding goes.
///
/// # Errors
/// `BadParam` for values out of range, `NotSupported` for more than six dimensions.
pub fn set_nd(
    _: Version,
    pool: &mut Pooling,
    mode: i32,
    nan: i32,
    count: i32,
    window: Ints,
    padding: Ints,
    stride: Ints,
) -> Result {
    check(count <= MAX as i32, Status::NotSupported)?;
    check((0..=3).contains(&mode) && matches!(nan, 0 | 1) && count > 0, Status::BadParam)?;
    (pool.mode, pool.nan, pool.count) = (mode, nan, count);
    for (i, ((window, padding), stride)) in window.into_iter().zip(padding).zip(stride).enumerate() {
        check(window > 0, Status::BadParam)?;
        (pool.window[i], pool.padding[i]) = (window, padding);
        check(stride > 0, Status::BadParam)?;
        pool.stride[i] = stride;
    }
    Ok(())
}

/// `cudnnGetPooling2dDescriptor`: mode, NaN propagation, window, padding, stride, each by height and width,
/// whatever the number of dimensions.
///
/// # Errors
/// None.
pub fn get_2d(_: Version, pool: Pooling) -> Result<(i32, i32, i32, i32, i32, i32, i32, i32)> {
    let ([wh, ww, ..], [ph, pw, ..], [sh, sw, ..]) = (pool.window, pool.padding, pool.stride);
    Ok((pool.mode, pool.nan, wh, ww, ph, pw, sh, sw))
}

/// `cudnnGetPoolingNdDescriptor`: mode, NaN propagation, count, and as many windows, paddings and strides as are
/// asked for, there or not.
///
/// # Errors
/// `NotSupported` for more than six.
pub fn get_nd(_: Version, pool: Pooling, requested: i32) -> Result<(i32, i32, i32, Ints, Ints, Ints)> {
    check(requested <= MAX as i32, Status::NotSupported)?;
    let first = |values: [i32; MAX]| values.into_iter().take(requested.max(0) as usize).collect();
    let (window, padding, stride) = (first(pool.window), first(pool.padding), first(pool.stride));
    Ok((pool.mode, pool.nan, pool.count, window, padding, stride))
}

/// `cudnnGetPooling2dForwardOutputDim`. Whatever it could not compute is 0.
pub fn output_2d(version: Version, pool: Option<Pooling>, x: Option<Tensor>) -> Got<(i32, i32, i32, i32)> {
    let Got { status, results, .. } = match (pool, x) {
        (Some(pool), Some(x)) => output_nd(version, pool, x, 4),
        _ => Err(Status::BadParam).into(),
    };
    Got::all(status, four(results))
}

/// `cudnnGetPoolingNdForwardOutputDim`, in wrapping numbers. Dimensions before one that the window does not fit into are written even so, then it
/// fails, with `BadParam`; packs of a data type that has none, and those of unsigned numbers, are as bad, after two dimensions.
pub fn output_nd(_: Version, pool: Pooling, x: Tensor, count: i32) -> Got<(Ints,)> {
    if x.count != pool.count + 2 || count != x.count {
        return Err(Status::BadParam).into();
    }
    if x.has_wrong_packs() || x.is_packed() && x.data_type == UINT8X4 {
        return Got::all(Err(Status::BadParam), (x.dims.into_iter().take(2).collect(),));
    }
    let mut dims: Ints = x.dims().into_iter().take(2).collect();
    for i in 0..pool.count as usize {
        // A set that failed can leave the 0 of a fresh one. The real library divides by it.
        if pool.stride[i] < 1 {
            return Err(Status::BadParam).into();
        }
        let padded = x.dims[i + 2].wrapping_add(pool.padding[i].wrapping_mul(2));
        let left = padded.wrapping_sub(pool.window[i]);
        if left < 0 {
            return Got::all(Err(Status::BadParam), (dims,));
        }
        dims.push((left / pool.stride[i]).wrapping_add(1));
    }
    Ok((dims,)).into()
}
