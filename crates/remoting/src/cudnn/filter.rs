//! Filter descriptors: contents and rules. Touches nothing.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Got, INT32, NCHW, NCHW_VECT_C, Result, Status, Version, check, element_size, pack};
use crate::descriptor::{Content, Ints, Kind, MAX_DIMS};

/// The shape of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Filter {
    /// `cudnnDataType_t`.
    pub data_type: i32,
    /// `cudnnTensorFormat_t`.
    pub format: i32,
    /// How many dimensions.
    pub count: i32,
    reserved: i32,
    /// Dimensions; with `NCHW_VECT_C` the second counts packs.
    pub(super) dims: [i32; MAX_DIMS],
}

impl Content for Filter {
    const KIND: Kind = Kind::Filter;
    const FRESH: Self = Self { data_type: 0, format: 0, count: 0, reserved: 0, dims: [0; MAX_DIMS] };

    fn is_sound(&self) -> bool {
        (0..=MAX_DIMS as i32).contains(&self.count)
    }
}

impl Filter {
    /// Dimensions, in numbers.
    #[must_use]
    pub fn dims(&self) -> [i32; MAX_DIMS] {
        let mut dims = self.dims;
        if self.format == NCHW_VECT_C {
            dims[1] = dims[1].wrapping_mul(pack(self.data_type).unwrap_or(1));
        }
        dims
    }
}

/// `cudnnSetFilter4dDescriptor`.
///
/// # Errors
/// As [`set_nd`].
pub fn set_4d(
    version: Version,
    f: &mut Filter,
    data_type: i32,
    format: i32,
    k: i32,
    c: i32,
    h: i32,
    w: i32,
) -> Result {
    set_nd(version, f, data_type, format, 4, [k, c, h, w].into_iter().collect())
}

/// `cudnnSetFilterNdDescriptor`. Dimensions are taken one after the other: those before the first wrong one
/// stay.
///
/// # Errors
/// `BadParam` for values out of range, `NotSupported` for more than eight dimensions.
pub fn set_nd(_: Version, f: &mut Filter, data_type: i32, format: i32, count: i32, dims: Ints) -> Result {
    check(element_size(data_type).is_some() && data_type != INT32 && count >= 3, Status::BadParam)?;
    check((NCHW..=NCHW_VECT_C).contains(&format), Status::BadParam)?;
    check(count <= MAX_DIMS as i32, Status::NotSupported)?;
    let pack = if format == NCHW_VECT_C { pack(data_type).ok_or(Status::BadParam)? } else { 1 };
    (f.data_type, f.format, f.count) = (data_type, format, count);
    for (i, dim) in dims.into_iter().enumerate() {
        check(dim > 0, Status::BadParam)?;
        f.dims[i] = dim;
    }
    // Only now: a dimension that stayed of a set that failed counts packs without having been divided.
    f.dims[1] /= pack;
    Ok(())
}

/// `cudnnGetFilter4dDescriptor`: data type, format, four dimensions. It takes every pack for one of four.
///
/// # Errors
/// None.
pub fn get_4d(_: Version, f: Filter) -> Result<(i32, i32, i32, i32, i32, i32)> {
    let [k, c, h, w, ..] = f.dims;
    let c = if f.format == NCHW_VECT_C { c.wrapping_mul(4) } else { c };
    Ok((f.data_type, f.format, k, c, h, w))
}

/// `cudnnGetFilterNdDescriptor`: data type, format, count, and as many dimensions as are asked for, there or
/// not.
///
/// # Errors
/// `BadParam` for fewer than one, `NotSupported` for more than eight.
pub fn get_nd(_: Version, f: Filter, requested: i32) -> Result<(i32, i32, i32, Ints)> {
    check(requested > 0, Status::BadParam)?;
    check(requested <= MAX_DIMS as i32, Status::NotSupported)?;
    let dims = f.dims().into_iter().take(requested as usize).collect();
    Ok((f.data_type, f.format, f.count, dims))
}

/// `cudnnGetFilterSizeInBytes`; of no filter it fails, with `BadParam`, and the size is 0.
pub fn size(_: Version, f: Option<Filter>) -> Got<(u64,)> {
    let Some(f) = f else { return Got::all(Err(Status::BadParam), (0,)) };
    if f.count == 0 {
        return Ok((0,)).into();
    }
    let dims = f.dims.iter().take(f.count as usize);
    let elements = dims.fold(1_u64, |product, dim| product.wrapping_mul(*dim as u64));
    Ok((elements.wrapping_mul(element_size(f.data_type).unwrap_or(0)),)).into()
}
