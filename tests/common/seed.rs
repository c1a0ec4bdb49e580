//! Chance that can be repeated: a test says which seed it had, and `VGPU_SEED` gives it that one again.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of numbers.
#[derive(Debug)]
pub struct Seed(u64);

impl Seed {
    /// That of `VGPU_SEED`, else a new one, and says which.
    pub fn new(test: &str) -> Self {
        let given = std::env::var("VGPU_SEED").ok().map(|seed| seed.parse().expect("VGPU_SEED is a number"));
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_nanos() as u64;
        let seed = given.unwrap_or_else(now);
        say(&format!("{test}: VGPU_SEED={seed}"));
        Self(seed)
    }

    /// A number below `limit` (splitmix64).
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

/// Says it also of a test that passes, whose output is not shown otherwise.
pub fn say(line: &str) {
    // Nobody need listen.
    let _ = writeln!(std::io::stderr(), "{line}");
}
