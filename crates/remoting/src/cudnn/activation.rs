//! Activation descriptors: contents and rules. Touches nothing.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Result, Status, Version, check};
use crate::descriptor::{Content, Kind};

/// Which function, and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Activation {
    /// `cudnnActivationMode_t`: 0 sigmoid, 1 relu, 2 tanh, 3 clipped relu, 4 elu, 5 identity, 6 swish.
    pub mode: i32,
    /// `cudnnNanPropagation_t`.
    pub nan: i32,
    /// The ceiling of clipped relu, alpha of elu; any number.
    pub coefficient: f64,
    /// Beta of swish; setting the rest leaves it.
    pub beta: f64,
}

impl Content for Activation {
    const KIND: Kind = Kind::Activation;
    const FRESH: Self = Self { mode: 0, nan: 0, coefficient: 0.0, beta: 1.0 };
}

/// `cudnnSetActivationDescriptor`.
///
/// # Errors
/// `BadParam` for a mode or NaN propagation that is not known.
pub fn set(_: Version, activation: &mut Activation, mode: i32, nan: i32, coefficient: f64) -> Result {
    check((0..=6).contains(&mode) && matches!(nan, 0 | 1), Status::BadParam)?;
    (activation.mode, activation.nan, activation.coefficient) = (mode, nan, coefficient);
    Ok(())
}

/// `cudnnSetActivationDescriptorSwishBeta`.
///
/// # Errors
/// None.
pub fn set_swish_beta(_: Version, activation: &mut Activation, beta: f64) -> Result {
    activation.beta = beta;
    Ok(())
}

/// `cudnnGetActivationDescriptor`: mode, NaN propagation, coefficient.
///
/// # Errors
/// None.
pub fn get(_: Version, activation: Activation) -> Result<(i32, i32, f64)> {
    Ok((activation.mode, activation.nan, activation.coefficient))
}

/// `cudnnGetActivationDescriptorSwishBeta`.
///
/// # Errors
/// None.
pub fn get_swish_beta(_: Version, activation: Activation) -> Result<(f64,)> {
    Ok((activation.beta,))
}
