//! Things that are measured in turns within one run, and the table of how long they took.

use std::time::Duration;

/// Something to measure: done again and again, it says how long it took.
pub struct Candidate<'a> {
    name: &'static str,
    aim: Option<f64>,
    run: Box<dyn Fn() -> Duration + 'a>,
    took: Vec<Duration>,
}

impl<'a> Candidate<'a> {
    /// `run` may do more than it measures, to have the same to do each time.
    pub fn new(name: &'static str, run: impl Fn() -> Duration + 'a) -> Self {
        Self { name, aim: None, run: Box::new(run), took: Vec::new() }
    }

    /// At most so many milliseconds above the first candidate: shown, not judged.
    pub fn aim(mut self, milliseconds: f64) -> Self {
        self.aim = Some(milliseconds);
        self
    }

    /// In milliseconds; `part` is 0.5 for the median.
    fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        let at = (part * (sorted.len() - 1) as f64).round() as usize;
        sorted[at].as_secs_f64() * 1000.0
    }
}

/// Measures the candidates `rounds` times and prints their medians, their spread, and each median beside the
/// first candidate's: how far above, how many times as long.
pub fn compare(title: &str, rounds: usize, mut candidates: Vec<Candidate<'_>>) {
    for round in 0..rounds {
        for at in order(candidates.len(), round) {
            let candidate = &mut candidates[at];
            candidate.took.push((candidate.run)());
        }
    }
    println!("\n{title}; {rounds} rounds, milliseconds");
    println!("{:<32}{:>9}{:>9}{:>9}{:>9}{:>7}{:>7}", "", "median", "p10", "p90", "above", "times", "aim");
    for candidate in &candidates {
        let [median, p10, p90] = [0.5, 0.1, 0.9].map(|part| candidate.quantile(part));
        let first = candidates[0].quantile(0.5);
        let (above, times) = (median - first, median / first);
        let aim = candidate.aim.map(|aim| format!("{aim:.1}")).unwrap_or_default();
        println!("{:<32}{median:>9.3}{p10:>9.3}{p90:>9.3}{above:>+9.3}{times:>7.2}{aim:>7}", candidate.name);
    }
}

/// The order in which a round measures `n` things: another one each round, so that nothing always comes
/// after the same, and the same ones in every run.
fn order(n: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut random = round as u64 + 1;
    for last in (1..n).rev() {
        // Knuth's MMIX generator; the upper bits are the good ones.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (random >> 33) as usize % (last + 1));
    }
    order
}
