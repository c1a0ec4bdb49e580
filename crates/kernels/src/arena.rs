//! Operands as ranges of one memory, which may overlap. Touches nothing but the memory it is given.

use std::ops::Range;

use crate::error::{Error, Result};

/// Calls `compute` with the `inputs` and the `output`, all of them ranges of `memory`, as if every input
/// had been read before the output is written.
///
/// An input that shares elements with the output is copied first, at most once as much as it spans; the
/// others are not. So in-place operations mean what cuDNN documents of them (activation and softmax forward
/// with `x` as `y`, backward with `dx` as `dy`, dropout), and an overlap that it does not allow still has
/// one, defined result.
///
/// # Errors
/// [`Error::Short`] for a range that is not in `memory`; otherwise that of `compute`.
pub fn write<const N: usize, T: Copy, R>(
    memory: &mut [T],
    inputs: [Range<usize>; N],
    output: Range<usize>,
    compute: impl FnOnce([&[T]; N], &mut [T]) -> Result<R>,
) -> Result<R> {
    for range in inputs.iter().chain([&output]) {
        if range.start > range.end || range.end > memory.len() {
            return Err(Error::Short { needed: range.end, given: memory.len() });
        }
    }
    let before = |range: &Range<usize>| range.end <= output.start;
    let after = |range: &Range<usize>| range.start >= output.end;
    let copies = inputs.clone().map(|range| match before(&range) || after(&range) {
        true => Vec::new(),
        false => memory[range].to_vec(),
    });
    let (lower, rest) = memory.split_at_mut(output.start);
    let (written, upper) = rest.split_at_mut(output.len());
    let inputs: [&[T]; N] = std::array::from_fn(|i| match inputs[i].clone() {
        range if before(&range) => &lower[range],
        range if after(&range) => &upper[range.start - output.end..range.end - output.end],
        _ => &copies[i],
    });
    compute(inputs, written)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "one input is an array of one range")]
mod tests {
    use super::*;

    /// Writes the sum of what it reads, at each place, and one more.
    fn sum<const N: usize>(inputs: [&[f32]; N], output: &mut [f32]) -> Result<()> {
        for (at, output) in output.iter_mut().enumerate() {
            *output = 1.0 + inputs.iter().map(|input| input[at]).sum::<f32>();
        }
        Ok(())
    }

    fn after<const N: usize>(inputs: [Range<usize>; N], output: Range<usize>) -> Vec<f32> {
        let mut memory: Vec<f32> = (0..6_u8).map(f32::from).collect();
        write(&mut memory, inputs, output, sum).unwrap();
        memory
    }

    #[test]
    fn apart() {
        assert_eq!(after([0..2, 4..6], 2..4), [0.0, 1.0, 5.0, 7.0, 4.0, 5.0]);
    }

    #[test]
    fn in_place() {
        assert_eq!(after([1..3, 1..3], 1..3), [0.0, 3.0, 5.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn shifted_by_one_reads_what_was_there_before() {
        assert_eq!(after([0..3], 1..4), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(after([2..5], 1..4), [0.0, 3.0, 4.0, 5.0, 4.0, 5.0]);
    }

    #[test]
    fn nothing() {
        let mut memory = [7.0; 4];
        for output in [0..0, 2..2, 4..4] {
            write(&mut memory, [1..1, 0..4], output, |[none, all], output| {
                assert_eq!((none.len(), all.len(), output.len()), (0, 4, 0));
                Ok(())
            })
            .unwrap();
        }
        write(&mut memory, [2..2, 0..4], 1..3, |[none, all], _| sum([none, &all[4..]], &mut [])).unwrap();
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "a hostile client may send one")]
    fn beyond_the_memory_is_an_error() {
        let mut memory = [0.0; 4];
        let mut refused = |input: Range<usize>, output: Range<usize>| {
            write(&mut memory, [input], output, |_, _| Ok(())).is_err()
        };
        assert!(refused(0..5, 0..1));
        assert!(refused(0..1, 3..5));
        assert!(refused(3..2, 0..1));
        assert!(refused(0..1, usize::MAX..usize::MAX));
    }
}
