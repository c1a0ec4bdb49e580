//! Dropout descriptors: contents and rules. Touches nothing.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Result, Version};
use crate::api::Handle;
use crate::descriptor::{Content, Kind};

/// The probability, and where on the device the random numbers' state is.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Dropout {
    /// Probability that a number becomes 0; any number.
    pub dropout: f32,
    reserved: u32,
    /// Device pointer to the state.
    pub states: u64,
    /// What the state was made from.
    pub seed: u64,
}

impl Content for Dropout {
    const KIND: Kind = Kind::Dropout;
    const FRESH: Self = Self { dropout: 0.0, reserved: 0, states: 0, seed: 0 };
}

/// `cudnnRestoreDropoutDescriptor`, and what `cudnnSetDropoutDescriptor` does to the descriptor. The size is for
/// the side that knows how many states the device has.
///
/// # Errors
/// None.
pub fn restore(
    _: Version,
    d: &mut Dropout,
    _: Handle,
    dropout: f32,
    states: u64,
    _size: u64,
    seed: u64,
) -> Result {
    (d.dropout, d.states, d.seed) = (dropout, states, seed);
    Ok(())
}

/// `cudnnGetDropoutDescriptor`: probability, state, seed.
///
/// # Errors
/// None.
pub fn get(_: Version, d: Dropout, _: Handle) -> Result<(f32, u64, u64)> {
    Ok((d.dropout, d.states, d.seed))
}
