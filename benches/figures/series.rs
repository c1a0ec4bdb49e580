//! Durations that were measured in turns, and the table they are shown in. Pure, but for printing.

use std::time::Duration;

/// What is measured, and how long it took each time.
pub struct Series {
    /// The row's name.
    pub name: &'static str,
    /// At most so many milliseconds above the first series, if that is an aim.
    pub aim: Option<f64>,
    took: Vec<Duration>,
}

impl Series {
    /// Nothing measured yet.
    pub fn new(name: &'static str) -> Self {
        Self { name, aim: None, took: Vec::new() }
    }

    /// With an aim, in milliseconds above the first series.
    pub fn aimed(name: &'static str, aim: f64) -> Self {
        Self { aim: Some(aim), ..Self::new(name) }
    }

    /// One more measurement.
    pub fn push(&mut self, took: Duration) {
        self.took.push(took);
    }

    /// In milliseconds; `part` is 0.5 for the median.
    fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        let at = (part * (sorted.len() - 1) as f64).round() as usize;
        sorted[at].as_secs_f64() * 1000.0
    }

    fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Prints a table of milliseconds: medians, spread, and how far each median is above the first one.
pub fn print(title: &str, series: &[Series]) {
    let (base, rounds) = (&series[0], series[0].took.len());
    println!("\n{title}, {rounds} rounds, milliseconds");
    println!("{:<44}{:>9}{:>9}{:>9}{:>9}{:>9}", "", "median", "p10", "p90", "above", "aim");
    for row in series {
        let aim = row.aim.map(|aim| format!("{aim:.1}")).unwrap_or_default();
        println!(
            "{:<44}{:>9.3}{:>9.3}{:>9.3}{:>+9.3}{:>9}",
            row.name,
            row.median(),
            row.quantile(0.1),
            row.quantile(0.9),
            row.median() - base.median(),
            aim
        );
    }
}

/// The order in which a round measures `n` things: another one each round, so that nothing always comes
/// after the same, and the same ones in every run.
pub fn order(n: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut random = round as u64 + 1;
    for last in (1..n).rev() {
        // Knuth's MMIX generator; the upper bits are the good ones.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (random >> 33) as usize % (last + 1));
    }
    order
}
