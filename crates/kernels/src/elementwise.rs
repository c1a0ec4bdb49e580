//! Element by element: add, transform, scale, set. Touches nothing but the slices it is given.

use crate::check::operand;
use crate::error::{Error, Result};
use crate::tensor::{MAX_RANK, Tensor};
use crate::{Blend, walk};

/// `c = alpha * a + beta * c`, where a dimension of `a` that is 1 is repeated (`cudnnAddTensor`: each
/// dimension of the bias tensor matches the destination's or is 1).
///
/// # Errors
/// Where the dimensions do not fit, or a slice is too short.
pub fn add(blend: Blend, at: &Tensor, a: &[f32], ct: &Tensor, c: &mut [f32]) -> Result<()> {
    let strides = repeated(at, ct)?;
    let (a, c) = (operand(a, at.span())?, ct.output(c)?);
    walk::zip(ct.dims(), [(a, &strides)], (c, ct.strides()), |[a], c| blend.store(a, c));
    Ok(())
}

/// The strides of `at`, in elements, where it is gone through with the dimensions of `ct`: 0 where it is repeated.
///
/// # Errors
/// Where the dimensions do not fit, as [`add`] says.
pub fn repeated(at: &Tensor, ct: &Tensor) -> Result<[usize; MAX_RANK]> {
    if at.dims().len() != ct.dims().len() {
        return Err(Error::Invalid("two tensors differ in their number of dimensions"));
    }
    let mut strides = [0; MAX_RANK];
    for (i, (&have, &want)) in at.dims().iter().zip(ct.dims()).enumerate() {
        strides[i] = match have {
            _ if have == want => at.strides()[i],
            1 => 0,
            _ => return Err(Error::Invalid("a dimension is neither that of the destination nor 1")),
        };
    }
    Ok(strides)
}

/// `y = alpha * x + beta * y`: the same dimensions, any two layouts (`cudnnTransformTensor`).
///
/// # Errors
/// Where the dimensions differ, or a slice is too short.
pub fn transform(blend: Blend, xt: &Tensor, x: &[f32], yt: &Tensor, y: &mut [f32]) -> Result<()> {
    xt.same_dims(yt)?;
    add(blend, xt, x, yt, y)
}

/// `y = alpha * y` (`cudnnScaleTensor`). Zero times NaN is NaN here: this is a product, not a blend.
///
/// # Errors
/// Where the slice is too short.
pub fn scale(alpha: f32, yt: &Tensor, y: &mut [f32]) -> Result<()> {
    let y = yt.output(y)?;
    walk::zip(yt.dims(), [], (y, yt.strides()), |[], y| *y *= alpha);
    Ok(())
}

/// `y = value`, leaving the gaps between its elements (`cudnnSetTensor`).
///
/// # Errors
/// Where the slice is too short.
pub fn set(value: f32, yt: &Tensor, y: &mut [f32]) -> Result<()> {
    let y = yt.output(y)?;
    walk::zip(yt.dims(), [], (y, yt.strides()), |[], y| *y = value);
    Ok(())
}
