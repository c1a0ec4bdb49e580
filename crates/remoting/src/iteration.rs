//! Where an iteration of a training program ends (B9). Touches nothing.
//!
//! The first forward compute's output is the first layer's. A backward compute that reads it is among the last of the
//! iteration; the forward compute after it is the first of the next one. Allocators reuse addresses, so this is a hint,
//! on which nothing but guesses depends.

/// Watches the computes of a process.
#[derive(Debug, Default)]
pub struct Watch {
    first: Option<u64>,
    ending: bool,
    iteration: u64,
}

impl Watch {
    /// A forward compute writes to `output`. The iteration that it is in.
    pub fn forward(&mut self, output: u64) -> u64 {
        if self.ending || self.first.is_none() {
            self.iteration += u64::from(self.ending);
            (self.first, self.ending) = (Some(output), false);
        }
        self.iteration
    }

    /// A backward compute reads from `inputs`.
    pub fn backward(&mut self, inputs: &[u64]) {
        self.ending |= self.first.is_some_and(|first| inputs.contains(&first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_ends_after_the_backward_compute_that_reads_the_first_output() {
        let mut watch = Watch::default();
        let forward = |watch: &mut Watch| [100, 200, 300].map(|output| watch.forward(output));
        assert_eq!(forward(&mut watch), [0, 0, 0]);
        watch.backward(&[300, 200]);
        watch.backward(&[200, 100]);
        watch.backward(&[7]);
        assert_eq!(forward(&mut watch), [1, 1, 1]);
        assert_eq!(forward(&mut watch), [1, 1, 1], "no backward pass");
        watch.backward(&[100]);
        assert_eq!(forward(&mut watch), [2, 2, 2]);
    }

    #[test]
    fn the_first_output_may_move() {
        let mut watch = Watch::default();
        watch.forward(100);
        watch.backward(&[100]);
        assert_eq!(watch.forward(500), 1);
        watch.backward(&[100]);
        assert_eq!(watch.forward(600), 1);
        watch.backward(&[500]);
        assert_eq!(watch.forward(500), 2);
    }
}
