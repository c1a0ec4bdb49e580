//! Descriptors of local response normalisation: contents and rules. Touches nothing.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Result, Status, Version, check};
use crate::descriptor::{Content, Kind};

/// How many neighbours count, and the formula's parameters.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Normalization {
    /// The width of the window.
    pub n: i32,
    reserved: u32,
    /// What squares are multiplied by, once it is divided by the width.
    pub alpha: f64,
    /// The exponent.
    pub beta: f64,
    /// What is added.
    pub k: f64,
}

impl Content for Normalization {
    const KIND: Kind = Kind::Normalization;
    const FRESH: Self = Self { n: 5, reserved: 0, alpha: 1e-4, beta: 0.75, k: 2.0 };
}

/// `cudnnSetLRNDescriptor`.
///
/// # Errors
/// `BadParam` for values out of range.
pub fn set(_: Version, norm: &mut Normalization, n: i32, alpha: f64, beta: f64, k: f64) -> Result {
    // A NaN is not.
    let too_small = beta < 0.01 || k < 1e-5;
    check((1..=16).contains(&n) && !too_small, Status::BadParam)?;
    *norm = Normalization { n, alpha, beta, k, ..*norm };
    Ok(())
}

/// `cudnnGetLRNDescriptor`: width, alpha, beta, k.
///
/// # Errors
/// None.
pub fn get(_: Version, norm: Normalization) -> Result<(i32, f64, f64, f64)> {
    Ok((norm.n, norm.alpha, norm.beta, norm.k))
}
