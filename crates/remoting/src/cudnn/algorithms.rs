//! How algorithms perform, as queries answer it. Touches nothing.

use arrayvec::ArrayVec;

use crate::wire::{Reader, Value, Words};

/// The most that a query answers: as many as there are for the forward pass.
pub const MOST: usize = 8;

/// `cudnnConvolutionFwdAlgoPerf_t` and its like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Performance {
    /// `cudnnConvolutionFwdAlgo_t` and its like.
    pub algorithm: i32,
    /// Whether it can be used: `cudnnStatus_t`, 0 if so.
    pub status: i32,
    /// Milliseconds; -1 where that was not tried.
    pub time: f32,
    /// Bytes of workspace.
    pub memory: u64,
    /// `cudnnDeterminism_t`: 1 if the results are the same each time.
    pub determinism: i32,
    /// `cudnnMathType_t`
    pub math_type: i32,
}

/// Some, the best first.
pub type Performances = ArrayVec<Performance, MOST>;

impl Value for Performances {
    fn put(&self, words: &mut Words) {
        words.push(self.len() as u64);
        for one in self {
            one.algorithm.put(words);
            one.status.put(words);
            one.time.put(words);
            one.memory.put(words);
            one.determinism.put(words);
            one.math_type.put(words);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        let len = reader.word().min(MOST as u64);
        let performance = |reader: &mut Reader<'_>| Performance {
            algorithm: Value::read(reader),
            status: Value::read(reader),
            time: Value::read(reader),
            memory: Value::read(reader),
            determinism: Value::read(reader),
            math_type: Value::read(reader),
        };
        (0..len).map(|_| performance(reader)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn performances_come_back_as_they_went() {
        let one = Performance {
            algorithm: 1,
            status: 9,
            time: -1.0,
            memory: 1 << 40,
            determinism: 1,
            math_type: 3,
        };
        let (mut words, all) = (Words::new(), Performances::from([one; MOST]));
        (MOST as i32).put(&mut words);
        all.put(&mut words);
        // The status comes before them.
        assert!(words.len() < words.capacity());
        let mut reader = Reader::new(&words);
        assert_eq!((i32::read(&mut reader), Performances::read(&mut reader)), (MOST as i32, all));
        assert_eq!(reader.finish(), Ok(()));
    }
}
