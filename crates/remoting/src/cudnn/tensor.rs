//! Tensor descriptors: contents and rules. Touches nothing.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Got, NCHW, NCHW_VECT_C, NHWC, Result, Status, Version, check, element_size, pack};
use crate::descriptor::{Content, Ints, Kind, MAX_DIMS};

/// The shape of data. Dimensions past `count` are what earlier sets left there; the 4d getter shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tensor {
    /// `cudnnDataType_t`.
    pub data_type: i32,
    /// How many dimensions.
    pub count: i32,
    /// 1 where dimension 1 is in packs, as `NCHW_VECT_C` has it.
    packed: i32,
    reserved: i32,
    /// Dimensions, in elements, which are packs or numbers.
    pub(super) dims: [i32; MAX_DIMS],
    /// Strides, in elements.
    pub strides: [i32; MAX_DIMS],
    /// Elements from the first to the last, as the last set found them that took all its values.
    extent: i64,
}

impl Content for Tensor {
    const KIND: Kind = Kind::Tensor;
    const FRESH: Self = Self {
        data_type: 0,
        count: 0,
        packed: 0,
        reserved: 0,
        dims: [0; MAX_DIMS],
        strides: [0; MAX_DIMS],
        extent: 0,
    };

    fn is_sound(&self) -> bool {
        (0..=MAX_DIMS as i32).contains(&self.count)
    }
}

impl Tensor {
    /// Dimensions, in numbers. A pack counts as 4 where the data type is none of packs.
    #[must_use]
    pub fn dims(&self) -> [i32; MAX_DIMS] {
        let mut dims = self.dims;
        if self.is_packed() {
            dims[1] = dims[1].wrapping_mul(pack(self.data_type).unwrap_or(4));
        }
        dims
    }

    /// Is dimension 1 in packs?
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.packed != 0
    }

    /// Is dimension 1 in packs of a data type that has none?
    pub(super) fn has_wrong_packs(&self) -> bool {
        self.is_packed() && pack(self.data_type).is_none()
    }

    /// How many elements lie between the first and the last one, both included. A negative stride counts as its
    /// positive, in 32 bits.
    fn measure(&self) -> i64 {
        let steps = self.dims.iter().zip(self.strides).take(self.count as usize);
        steps.map(|(dim, stride)| i64::from(dim - 1) * i64::from(stride.wrapping_abs())).sum::<i64>() + 1
    }
}

/// `cudnnSetTensor4dDescriptor`.
///
/// # Errors
/// `BadParam` for values out of range. `NotSupported` for 2^31 elements and more; it keeps them all the same.
#[inline]
pub fn set_4d(
    version: Version,
    t: &mut Tensor,
    format: i32,
    data_type: i32,
    n: i32,
    c: i32,
    h: i32,
    w: i32,
) -> Result {
    let Some((strides, extent)) =
        packed_strides_4d(format, n, c, h, w).filter(|_| element_size(data_type).is_some())
    else {
        let result;
        (*t, result) = set_any_4d(version, *t, format, data_type, [n, c, h, w]);
        return result;
    };
    (t.data_type, t.count, t.packed) = (data_type, 4, 0);
    [t.dims[0], t.dims[1], t.dims[2], t.dims[3]] = [n, c, h, w];
    [t.strides[0], t.strides[1], t.strides[2], t.strides[3]] = strides;
    t.extent = extent.into();
    Ok(())
}

/// The strides and the number of elements of data without gaps, where all is as programs have it: dimensions of more
/// than 0, and fewer elements than 2^31.
#[inline]
fn packed_strides_4d(format: i32, n: i32, c: i32, h: i32, w: i32) -> Option<([i32; 4], i32)> {
    // A dimension of 0 makes the product 0; a negative one, which is 2^31 and more as it is taken here, that or more.
    let times = |product: i32, dim: i32| {
        let product = u64::from(product.cast_unsigned()) * u64::from(dim.cast_unsigned());
        i32::try_from(product).ok().filter(|product| *product > 0)
    };
    let hw = times(h, w)?;
    let chw = times(hw, c)?;
    let strides = match format {
        NCHW => [chw, hw, w, 1],
        NHWC => [chw, 1, w * c, c],
        _ => return None,
    };
    Some((strides, times(chw, n)?))
}

/// [`set_4d`], whatever the values are. It has a copy of the content, so that the other may have it in registers.
#[cold]
fn set_any_4d(
    version: Version,
    mut t: Tensor,
    format: i32,
    data_type: i32,
    dims: [i32; 4],
) -> (Tensor, Result) {
    let packs = format != NCHW_VECT_C || pack(data_type).is_some();
    let right = check(dims.iter().all(|dim| *dim > 0) && packs, Status::BadParam);
    let result = right.and_then(|()| set_packed(version, &mut t, format, data_type, 4, &dims));
    (t, result)
}

/// `cudnnSetTensor4dDescriptorEx`.
///
/// # Errors
/// As [`set_4d`].
pub fn set_4d_ex(
    version: Version,
    t: &mut Tensor,
    data_type: i32,
    n: i32,
    c: i32,
    h: i32,
    w: i32,
    n_stride: i32,
    c_stride: i32,
    h_stride: i32,
    w_stride: i32,
) -> Result {
    assign(version, t, data_type, 4, &[n, c, h, w], &[n_stride, c_stride, h_stride, w_stride])
}

/// `cudnnSetTensorNdDescriptor`.
///
/// # Errors
/// As [`set_4d`], and `NotSupported` for more than eight dimensions.
pub fn set_nd(
    version: Version,
    t: &mut Tensor,
    data_type: i32,
    count: i32,
    dims: Ints,
    strides: Ints,
) -> Result {
    assign(version, t, data_type, count, &dims, &strides)
}

/// `cudnnSetTensorNdDescriptorEx`.
///
/// # Errors
/// As [`set_nd`].
pub fn set_nd_ex(
    version: Version,
    t: &mut Tensor,
    format: i32,
    data_type: i32,
    count: i32,
    dims: Ints,
) -> Result {
    set_packed(version, t, format, data_type, count, &dims)
}

/// `cudnnGetTensor4dDescriptor`: data type, four dimensions, four strides, whatever the number of dimensions. For
/// packs of a data type that has none, it fails after the first two.
pub fn get_4d(_: Version, t: Tensor) -> Got<(i32, i32, i32, i32, i32, i32, i32, i32, i32)> {
    let ([n, c, h, w, ..], [ns, cs, hs, ws, ..]) = (t.dims(), t.strides);
    let got = Got::all(Ok(()), (t.data_type, n, c, h, w, ns, cs, hs, ws));
    if t.has_wrong_packs() { Got { status: Err(Status::BadParam), written: 2, ..got } } else { got }
}

/// `cudnnGetTensorNdDescriptor`: data type, count, and as many dimensions and strides as are asked for and
/// there.
///
/// # Errors
/// None.
pub fn get_nd(_: Version, t: Tensor, requested: i32) -> Result<(i32, i32, Ints, Ints)> {
    let len = requested.clamp(0, t.count.max(0)) as usize;
    let first = |values: [i32; MAX_DIMS]| values.into_iter().take(len).collect();
    Ok((t.data_type, t.count, first(t.dims()), first(t.strides)))
}

/// `cudnnGetTensorSizeInBytes`.
///
/// # Errors
/// None.
pub fn size(_: Version, t: Tensor) -> Result<(u64,)> {
    Ok((t.extent.cast_unsigned().wrapping_mul(element_size(t.data_type).unwrap_or(0)),))
}

/// `cudnnDropoutGetReserveSpaceSize`: a bit for each element, in words of 32.
///
/// # Errors
/// `NotSupported` for 8-bit integers, and for 2^31 elements and more.
pub fn reserve_size(_: Version, x: Tensor) -> Result<(u64,)> {
    check(x.data_type != super::INT8, Status::NotSupported)?;
    let dims = x.dims.iter().take(x.count as usize);
    let elements = dims.fold(1_u64, |product, dim| product.wrapping_mul(*dim as u64));
    check(elements <= i32::MAX as u64, Status::NotSupported)?;
    Ok((elements.div_ceil(32) * 4,))
}

/// The strides of data without gaps in `format`. Products wrap, as the library's do.
fn packed_strides(format: i32, dims: &[i32]) -> [i32; MAX_DIMS] {
    let mut strides = [0; MAX_DIMS];
    let mut stride = 1_i32;
    let last = dims.len().saturating_sub(1);
    // From the innermost dimension to the outermost; NHWC has dimension 1 innermost.
    for step in 0..dims.len() {
        let i = match format {
            NHWC if step == 0 && last > 0 => 1,
            NHWC if step < last => last + 1 - step,
            NHWC => 0,
            _ => last - step,
        };
        strides[i] = stride;
        stride = stride.wrapping_mul(dims[i]);
    }
    strides
}

fn set_packed(
    version: Version,
    t: &mut Tensor,
    format: i32,
    data_type: i32,
    count: i32,
    dims: &[i32],
) -> Result {
    check((NCHW..=NCHW_VECT_C).contains(&format), Status::BadParam)?;
    if format == NCHW_VECT_C {
        return set_vector(version, t, data_type, count, dims);
    }
    assign(version, t, data_type, count, dims, &packed_strides(format, dims))
}

/// Any data type goes. Whatever comes of it, dimension 1 counts as packs, be it one that an earlier set left.
fn set_vector(version: Version, t: &mut Tensor, data_type: i32, count: i32, dims: &[i32]) -> Result {
    let pack = pack(data_type).unwrap_or(4);
    let mut elements: Ints = dims.iter().copied().collect();
    let channels = elements.get_mut(1).ok_or(Status::BadParam)?;
    check(element_size(data_type).is_some() && *channels % pack == 0, Status::BadParam)?;
    *channels /= pack;
    let strides = packed_strides(NCHW, &elements);
    let result = assign(version, t, data_type, count, &elements, &strides);
    t.packed = 1;
    result
}

/// What all sets end in. Values are taken one after the other: those before the first wrong one stay.
fn assign(
    version: Version,
    t: &mut Tensor,
    data_type: i32,
    count: i32,
    dims: &[i32],
    strides: &[i32],
) -> Result {
    let least = if version == Version::V8 { 3 } else { 2 };
    check(element_size(data_type).is_some() && count >= least, Status::BadParam)?;
    check(count <= MAX_DIMS as i32, Status::NotSupported)?;
    (t.data_type, t.count, t.packed) = (data_type, count, 0);
    for (i, (dim, stride)) in dims.iter().zip(strides).enumerate() {
        check(*dim > 0 && (*stride != 0 || *dim == 1), Status::BadParam)?;
        (t.dims[i], t.strides[i]) = (*dim, *stride);
    }
    t.extent = t.measure();
    // Negative ones, of the one stride that has no positive, are too large as well.
    check((0..=i64::from(i32::MAX)).contains(&t.extent), Status::NotSupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of dimensions whose products are just not too large, and just are.
    #[test]
    fn the_usual_set_is_as_any() {
        let values = [-1, 0, 1, 2, 46341, 65536, i32::MAX];
        let before = Tensor { packed: 1, extent: 9, dims: [3; MAX_DIMS], ..Tensor::FRESH };
        let types = (-1..4).flat_map(|format| (-1..12).map(move |data_type| (format, data_type)));
        for (format, data_type) in types {
            for i in 0..values.len().pow(4) {
                let [n, c, h, w] = [0, 1, 2, 3].map(|at| values[i / values.len().pow(at) % values.len()]);
                for version in Version::ALL {
                    let mut usual = before;
                    let result = set_4d(version, &mut usual, format, data_type, n, c, h, w);
                    let any = set_any_4d(version, before, format, data_type, [n, c, h, w]);
                    assert_eq!((usual, result), any, "{format} {data_type} {:?}", [n, c, h, w]);
                }
            }
        }
    }
}
