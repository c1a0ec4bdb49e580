//! Dropout: which elements go, and the product with what is left. Touches nothing but the slices and the
//! state it is given.
//!
//! cuDNN's generator is not documented, so the numbers are our own: Philox 4x32 with 10 rounds (Salmon et
//! al., "Parallel random numbers: as easy as 1, 2, 3", 2011), which turns a key and a counter into four
//! independent numbers. Element *i* of a call takes number *i*, in the order of its dimensions: the same
//! seed and calls drop the same elements, in any layout.
//!
//! Forward is [`Dropout::draw`] and then [`apply`]; backward is [`apply`] alone, with the same factors.

use crate::check::{operand, output};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::walk;

/// The generator's state: what was drawn from which seed. Kept in device memory as [`State::to_bytes`]
/// (`cudnnDropoutGetStatesSize`, `cudnnRestoreDropoutDescriptor`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    seed: u64,
    /// The next block of four numbers.
    block: u64,
}

impl State {
    /// How many bytes it is kept in.
    pub const SIZE: usize = 16;

    /// Nothing drawn yet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, block: 0 }
    }

    /// The state as it is kept.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        (u128::from(self.block) << 64 | u128::from(self.seed)).to_le_bytes()
    }

    /// The state from what was kept; any bytes are one.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { seed: both as u64, block: (both >> 64) as u64 }
    }

    /// The next four numbers.
    fn next(&mut self) -> [u32; 4] {
        let numbers = philox([low(self.block), high(self.block), 0, 0], [low(self.seed), high(self.seed)]);
        self.block = self.block.wrapping_add(1);
        numbers
    }
}

/// How many elements go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// A number below this drops its element: the probability in units of 2^-32.
    threshold: u64,
    /// The factor of those that stay.
    scale: f32,
}

impl Dropout {
    /// Each element goes with this probability, 0 to 1; the others are scaled by `1 / (1 - probability)`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything else.
    pub fn new(probability: f32) -> Result<Self> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(Error::Invalid("a probability is not between 0 and 1"));
        }
        let threshold = (f64::from(probability) * 4_294_967_296.0) as u64;
        Ok(Self { threshold, scale: 1.0 / (1.0 - probability) })
    }

    /// Draws a factor for each element of the reserve space: zero, or the scale
    /// (`cudnnDropoutGetReserveSpaceSize` is thus the number of elements).
    pub fn draw(&self, state: &mut State, factors: &mut [f32]) {
        for factors in factors.chunks_mut(4) {
            for (factor, number) in factors.iter_mut().zip(state.next()) {
                *factor = if u64::from(number) < self.threshold { 0.0 } else { self.scale };
            }
        }
    }
}

/// `y = factors * x` (`cudnnDropoutForward`, and with gradients `cudnnDropoutBackward`; may be in place).
/// `factors` has one element for each of `x`, in the order of the dimensions. Where it is zero so is `y`,
/// even of a NaN.
///
/// # Errors
/// Where the numbers of elements differ, or a slice is too short.
pub fn apply(factors: &[f32], xt: &Tensor, x: &[f32], yt: &Tensor, y: &mut [f32]) -> Result<()> {
    xt.same_dims(yt)?;
    let order = Tensor::packed(&xt.dims().iter().map(|&dim| dim as i64).collect::<Vec<_>>())?;
    let (x, y) = (operand(x, xt.span())?, output(y, yt.span())?);
    let inputs = [(operand(factors, order.span())?, order.strides()), (x, xt.strides())];
    walk::zip(xt.dims(), inputs, (y, yt.strides()), |[factor, x], y| {
        *y = if factor == 0.0 { 0.0 } else { factor * x };
    });
    Ok(())
}

/// Ten rounds of Philox 4x32.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let [a, b, c, d] = counter;
        let (left, right) = (u64::from(a) * 0xD251_1F53, u64::from(c) * 0xCD9E_8D57);
        counter = [high(right) ^ b ^ key[0], low(right), high(left) ^ d ^ key[1], low(left)];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

fn low(number: u64) -> u32 {
    number as u32
}

fn high(number: u64) -> u32 {
    (number >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the authors publish with their library Random123 (`kat_vectors`).
    #[test]
    fn known_answers() {
        let zeros = philox([0; 4], [0; 2]);
        assert_eq!(zeros, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let answer = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(philox(pi, [0xa409_3822, 0x299f_31d0]), answer);
    }

    #[test]
    fn the_state_goes_on_where_it_was() {
        let dropout = Dropout::new(0.5).unwrap();
        let (mut state, mut all) = (State::new(7), [0.0; 16]);
        dropout.draw(&mut state, &mut all);
        let (mut state, mut parts) = (State::new(7), [0.0; 16]);
        dropout.draw(&mut state, &mut parts[..8]);
        let mut state = State::from_bytes(state.to_bytes());
        dropout.draw(&mut state, &mut parts[8..]);
        assert_eq!(all, parts);
    }

    #[test]
    fn a_call_never_sees_the_numbers_of_the_one_before() {
        let (mut state, mut some) = (State::new(7), [0.0; 3]);
        Dropout::new(0.5).unwrap().draw(&mut state, &mut some);
        assert_eq!(state, State { seed: 7, block: 1 });
    }

    #[test]
    fn the_ends() {
        let mut factors = [7.0; 1000];
        Dropout::new(0.0).unwrap().draw(&mut State::new(1), &mut factors);
        assert_eq!(factors, [1.0; 1000]);
        Dropout::new(1.0).unwrap().draw(&mut State::new(1), &mut factors);
        assert_eq!(factors, [0.0; 1000]);
        for bad in [-0.1, 1.1, f32::NAN, f32::INFINITY] {
            assert!(Dropout::new(bad).is_err());
        }
    }
}
