//! Dropout: which elements go, and the product with what is left. Touches nothing but the slices and the
//! state it is given.
//!
//! cuDNN's generator is not documented, so the numbers are our own: Philox 4x32 with 10 rounds (Salmon et
//! al., "Parallel random numbers: as easy as 1, 2, 3", 2011), which turns a key and a counter into four
//! independent numbers. Element *i* of a call takes number *i*, in the order of its dimensions: the same
//! seed and calls drop the same elements, in any layout.
//!
//! Forward is [`Dropout::draw`] and then [`Dropout::apply`]; backward is the latter alone. Between them, the reserve space
//! says which elements stay: a bit for each, in words of 32, the first one's the lowest. It lies among numbers, and so
//! its words are numbers here, of which nothing but the bits is looked at.

use crate::check::{operand, output};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::walk::Walk;

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

    /// How many words the reserve space of so many elements has (`cudnnDropoutGetReserveSpaceSize`).
    #[must_use]
    pub fn reserve(elements: usize) -> usize {
        elements.div_ceil(BITS)
    }

    /// Draws which of so many elements stay.
    ///
    /// # Errors
    /// Where the reserve space is too short.
    pub fn draw(&self, state: &mut State, elements: usize, reserve: &mut [f32]) -> Result<()> {
        for (i, word) in output(reserve, Self::reserve(elements))?.iter_mut().enumerate() {
            let mut bits = 0;
            for first in (0..BITS.min(elements - i * BITS)).step_by(4) {
                for (bit, number) in (first..).zip(state.next()) {
                    bits |= u32::from(u64::from(number) >= self.threshold) << bit;
                }
            }
            *word = f32::from_bits(bits);
        }
        Ok(())
    }

    /// Of elements that stay the product, of others zero, even of a NaN (`cudnnDropoutForward`, and with gradients
    /// `cudnnDropoutBackward`; may be in place). Bits are in the order of the dimensions.
    ///
    /// # Errors
    /// Where the numbers of elements differ, or a slice is too short.
    pub fn apply(&self, reserve: &[f32], xt: &Tensor, x: &[f32], yt: &Tensor, y: &mut [f32]) -> Result<()> {
        xt.same_dims(yt)?;
        let order = Tensor::packed(&xt.dims().iter().map(|&dim| dim as i64).collect::<Vec<_>>())?;
        let reserve = operand(reserve, Self::reserve(order.span()))?;
        let (x, y) = (operand(x, xt.span())?, yt.output(y)?);
        let stays = |bit: usize| reserve[bit / BITS].to_bits() >> (bit % BITS) & 1 == 1;
        Walk::new(xt.dims(), yt.strides(), [xt.strides(), order.strides()]).rows(|row| {
            let ((to, step), [(from, x_step), (bit, bit_step)]) = (row.lead, row.others);
            for at in 0..row.len {
                let product = self.scale * x[from + at * x_step];
                y[to + at * step] = if stays(bit + at * bit_step) { product } else { 0.0 };
            }
        });
        Ok(())
    }
}

/// The bits of a word.
const BITS: usize = 32;

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

    fn drawn(probability: f32, state: &mut State, elements: usize) -> Vec<u32> {
        let mut reserve = vec![f32::NAN; Dropout::reserve(elements)];
        Dropout::new(probability).unwrap().draw(state, elements, &mut reserve).unwrap();
        reserve.into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn the_state_goes_on_where_it_was() {
        let all = drawn(0.5, &mut State::new(7), 64);
        let mut state = State::new(7);
        let first = drawn(0.5, &mut state, 32);
        let mut state = State::from_bytes(state.to_bytes());
        assert_eq!(all, [first, drawn(0.5, &mut state, 32)].concat());
    }

    #[test]
    fn a_call_never_sees_the_numbers_of_the_one_before() {
        let mut state = State::new(7);
        drawn(0.5, &mut state, 3);
        assert_eq!(state, State { seed: 7, block: 1 });
        drawn(0.5, &mut state, 33);
        assert_eq!(state, State { seed: 7, block: 10 });
    }

    #[test]
    fn each_element_takes_its_number() {
        let (mut state, bits) = (State::new(7), drawn(0.5, &mut State::new(7), 40));
        let numbers = (0..10).flat_map(|_| state.next());
        for (i, number) in numbers.enumerate() {
            assert_eq!(bits[i / 32] >> (i % 32) & 1, number >> 31, "{i}");
        }
    }

    #[test]
    fn the_ends() {
        assert_eq!(drawn(0.0, &mut State::new(1), 64), [u32::MAX; 2]);
        assert_eq!(drawn(1.0, &mut State::new(1), 64), [0; 2]);
        assert!(Dropout::new(0.5).unwrap().draw(&mut State::new(1), 33, &mut [0.0]).is_err());
        for bad in [-0.1, 1.1, f32::NAN, f32::INFINITY] {
            assert!(Dropout::new(bad).is_err());
        }
    }
}
