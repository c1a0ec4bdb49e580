//! Where an iteration of a training program ends (B9). Touches nothing.
//!
//! The first forward compute's output is the first layer's. A backward compute that reads it is among the last of the
//! iteration; the forward compute after it is the first of the next one. Allocators reuse addresses, so this is a hint,
//! on which nothing but guesses depends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Watches the computes of a process. Threads that compute at the same time may see an end late, or twice.
#[derive(Debug)]
pub struct Watch {
    first: AtomicU64,
    ending: AtomicBool,
    iteration: AtomicU64,
}

/// The address of no output.
const NONE: u64 = u64::MAX;

impl Default for Watch {
    fn default() -> Self {
        Self { first: AtomicU64::new(NONE), ending: false.into(), iteration: AtomicU64::new(0) }
    }
}

impl Watch {
    /// Which iteration is on.
    #[inline]
    pub fn iteration(&self) -> u64 {
        self.iteration.load(Ordering::Relaxed)
    }

    /// A forward compute writes to `output`.
    #[inline]
    pub fn forward(&self, output: u64) {
        if self.ending.load(Ordering::Relaxed) || self.first.load(Ordering::Relaxed) == NONE {
            self.begin(output);
        }
    }

    #[cold]
    fn begin(&self, output: u64) {
        let ended = self.ending.swap(false, Ordering::Relaxed);
        self.iteration.fetch_add(ended.into(), Ordering::Relaxed);
        self.first.store(output, Ordering::Relaxed);
    }

    /// A backward compute reads from `inputs`.
    #[inline]
    pub fn backward(&self, mut inputs: impl Iterator<Item = u64>) {
        let first = self.first.load(Ordering::Relaxed);
        if first != NONE && inputs.any(|input| input == first) {
            self.ending.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(watch: &Watch, output: u64) -> u64 {
        watch.forward(output);
        watch.iteration()
    }

    fn backward<const N: usize>(watch: &Watch, inputs: [u64; N]) {
        watch.backward(inputs.into_iter());
    }

    #[test]
    fn an_iteration_ends_after_the_backward_compute_that_reads_the_first_output() {
        let watch = Watch::default();
        backward(&watch, [NONE]);
        let forward = || [100, 200, 300].map(|output| forward(&watch, output));
        assert_eq!(forward(), [0, 0, 0]);
        backward(&watch, [300, 200]);
        backward(&watch, [200, 100]);
        backward(&watch, [7]);
        assert_eq!(forward(), [1, 1, 1]);
        assert_eq!(forward(), [1, 1, 1], "no backward pass");
        backward(&watch, [100]);
        assert_eq!(forward(), [2, 2, 2]);
    }

    #[test]
    fn the_first_output_may_move() {
        let watch = Watch::default();
        forward(&watch, 100);
        backward(&watch, [100]);
        assert_eq!(forward(&watch, 500), 1);
        backward(&watch, [100]);
        assert_eq!(forward(&watch, 600), 1);
        backward(&watch, [500]);
        assert_eq!(forward(&watch, 500), 2);
    }
}
