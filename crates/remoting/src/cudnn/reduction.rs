//! Reduction descriptors: contents and rules. Touches nothing.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Result, Status, Version, check};
use crate::descriptor::{Content, Kind};

/// What elements are reduced to, and whether it is said where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reduction {
    /// `cudnnReduceTensorOp_t`: 0 add, 1 multiply, 2 minimum, 3 maximum, 4 maximum of sizes, 5 average, 6 and 7 norms, 8
    /// multiply those that are not zero.
    pub operation: i32,
    /// `cudnnDataType_t` to compute in.
    pub compute_type: i32,
    /// `cudnnNanPropagation_t`
    pub nan: i32,
    /// `cudnnReduceTensorIndices_t`: 0 none, 1 flattened.
    pub indices: i32,
    /// `cudnnIndicesType_t`: 0 of 32 bits, then of 64, 16 and 8.
    pub indices_type: i32,
    reserved: u32,
}

impl Content for Reduction {
    const KIND: Kind = Kind::Reduction;
    const FRESH: Self =
        Self { operation: 0, compute_type: 0, nan: 0, indices: 0, indices_type: 0, reserved: 0 };
}

/// `cudnnSetReduceTensorDescriptor`.
///
/// # Errors
/// `BadParam` for values out of range.
pub fn set(
    _: Version,
    r: &mut Reduction,
    operation: i32,
    compute_type: i32,
    nan: i32,
    indices: i32,
    indices_type: i32,
) -> Result {
    let known = (0..=8).contains(&operation)
        && matches!(compute_type, 0..=2)
        && matches!(nan, 0 | 1)
        && matches!(indices, 0 | 1);
    check(known && (0..=3).contains(&indices_type), Status::BadParam)?;
    *r = Reduction { operation, compute_type, nan, indices, indices_type, reserved: 0 };
    Ok(())
}

/// `cudnnGetReduceTensorDescriptor`: operation, compute type, NaN propagation, indices and their type.
///
/// # Errors
/// None.
pub fn get(_: Version, r: Reduction) -> Result<(i32, i32, i32, i32, i32)> {
    Ok((r.operation, r.compute_type, r.nan, r.indices, r.indices_type))
}
