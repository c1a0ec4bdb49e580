//! Matrices that are not stored: a product's operands, read out of tensors element by element. Touches
//! nothing but the slices it is given.
//!
//! A convolution is a product of matrices if one of them is spread out from a tensor ("im2col"). It never
//! exists as a whole: [`Gather`] reads the panel that the product needs next.

use std::ops::Range;

/// How many digits an index has: one plain, and one for each of three spatial dimensions.
pub(crate) const DIGITS: usize = 4;

/// A matrix read out of `data`. Its rows and columns are called *lead* and *depth*: the product runs over
/// the depth of both operands. Either index counts through [`DIGITS`] digits, the last one fastest.
pub(crate) struct Gather<'a> {
    pub(crate) data: &'a [f32],
    /// Where lead 0, depth 0 would lie.
    pub(crate) base: usize,
    /// Sizes of the digits.
    pub(crate) lead: [usize; DIGITS],
    pub(crate) depth: [usize; DIGITS],
    /// How far the first digit of each steps in `data`.
    pub(crate) lead_step: usize,
    pub(crate) depth_step: usize,
    /// What the other three do, for each spatial dimension.
    pub(crate) taps: [Tap; 3],
}

/// Where a lead and a depth digit meet in one spatial dimension: at
/// `(start + lead * l + depth * d) / divisor`. Beside the dimension, and between its elements where the
/// division leaves a rest, there is a zero.
#[derive(Clone, Copy)]
pub(crate) struct Tap {
    pub(crate) start: i64,
    pub(crate) lead: i64,
    pub(crate) depth: i64,
    pub(crate) divisor: i64,
    /// The dimension's size.
    pub(crate) limit: i64,
    /// How far it steps in `data`.
    pub(crate) step: i64,
}

impl Tap {
    /// A dimension of one element, where there is nothing to decide.
    pub(crate) const NONE: Self = Self { start: 0, lead: 0, depth: 0, divisor: 1, limit: 1, step: 0 };

    /// The index of the element that lies at `at`, which is still to be divided; none beside the dimension and
    /// between its elements.
    fn index(&self, at: i64) -> Option<i64> {
        let at = match self.divisor {
            1 => at,
            divisor if at % divisor == 0 => at / divisor,
            _ => return None,
        };
        (0..self.limit).contains(&at).then_some(at)
    }
}

/// Leads of a panel that follow each other in the last dimension, or in the first digit alone: they differ in
/// nothing else.
#[derive(Clone, Copy)]
struct Run {
    /// How many leads of the panel are before it, and how many it has.
    first: usize,
    len: usize,
    /// What is known of its first lead before the depth is: the place of its first digit, and how far it is
    /// along each dimension.
    place: i64,
    at: [i64; 3],
    /// How both go on from lead to lead, the latter in the last dimension.
    place_step: i64,
    at_step: i64,
}

impl Run {
    const NONE: Self = Self { first: 0, len: 0, place: 0, at: [0; 3], place_step: 0, at_step: 0 };

    /// Takes another lead, if it follows.
    fn extend(&mut self, place: i64, at: [i64; 3]) -> bool {
        let last = int(self.len) - 1;
        let place_step = place - self.place - last * self.place_step;
        let at_step = at[2] - self.at[2] - last * self.at_step;
        let follows = match self.len {
            0 => false,
            1 => place_step == 0 || at_step == 0,
            _ => place_step == self.place_step && at_step == self.at_step,
        };
        if follows && at[..2] == self.at[..2] {
            (self.place_step, self.at_step) = (place_step, at_step);
            self.len += 1;
            return true;
        }
        false
    }
}

impl Gather<'_> {
    /// The same matrix, rows for columns.
    pub(crate) fn transposed(self) -> Self {
        let taps = self.taps.map(|tap| Tap { lead: tap.depth, depth: tap.lead, ..tap });
        let (lead, depth, lead_step, depth_step) = (self.depth, self.lead, self.depth_step, self.lead_step);
        Self { lead, depth, lead_step, depth_step, taps, ..self }
    }

    /// The same elements with the first digits of lead and depth in each other's place.
    pub(crate) fn turned(mut self) -> Self {
        std::mem::swap(&mut self.lead[0], &mut self.depth[0]);
        std::mem::swap(&mut self.lead_step, &mut self.depth_step);
        self
    }

    /// How many leads there are.
    pub(crate) fn leads(&self) -> usize {
        self.lead.iter().product()
    }

    /// How deep it is.
    pub(crate) fn depths(&self) -> usize {
        self.depth.iter().product()
    }

    /// Fills `panel` with leads `first..first + count`, one array of them for each of `depths`; what is
    /// beyond `count` is zero.
    pub(crate) fn pack<const W: usize>(
        &self,
        first: usize,
        count: usize,
        depths: Range<usize>,
        panel: &mut [[f32; W]],
    ) {
        let (runs, count) = self.runs::<W>(first, count);
        let mut counter = Counter::new(depths.start, self.depth);
        for values in panel.iter_mut().take(depths.len()) {
            *values = [0.0; W];
            let [plain, spatial @ ..] = counter.digits;
            let step = std::array::from_fn(|i| self.taps[i].depth * int(spatial[i]));
            for run in &runs[..count] {
                // A run beside the dimensions stays zero.
                let _ = self.read(run, int(plain * self.depth_step), &step, values);
            }
            counter.step();
        }
    }

    /// The leads `first..first + count` in as few runs as they are, and how many those are.
    fn runs<const W: usize>(&self, first: usize, count: usize) -> ([Run; W], usize) {
        let (mut runs, mut len) = ([Run::NONE; W], 0);
        let mut counter = Counter::new(first, self.lead);
        for lead in 0..count {
            let [plain, spatial @ ..] = counter.digits;
            let place = int(self.base + plain * self.lead_step);
            let at = std::array::from_fn(|i| self.taps[i].start + self.taps[i].lead * int(spatial[i]));
            if len == 0 || !runs[len - 1].extend(place, at) {
                runs[len] = Run { first: lead, len: 1, place, at, ..Run::NONE };
                len += 1;
            }
            counter.step();
        }
        (runs, len)
    }

    /// The values of a run at one step of the depth.
    fn read<const W: usize>(
        &self,
        run: &Run,
        place: i64,
        step: &[i64; 3],
        values: &mut [f32; W],
    ) -> Option<()> {
        let values = &mut values[run.first..][..run.len];
        let [outer @ .., last] = &self.taps;
        let mut place = run.place + place;
        for (i, tap) in outer.iter().enumerate() {
            place += tap.index(run.at[i] + step[i])? * tap.step;
        }
        let first = run.at[2] + step[2];
        match run.at_step {
            0 => self.copy::<W>(place + last.index(first)? * last.step, run.place_step, values),
            1 if last.divisor == 1 => {
                let inside = |at: i64| at.clamp(0, int(values.len()));
                let (start, end) = (inside(-first), inside(last.limit - first));
                // None where the end is before the start.
                let values =
                    values.get_mut(start as usize..end as usize).filter(|values| !values.is_empty())?;
                self.copy::<W>(place + (first + start) * last.step, last.step, values);
            }
            at_step => {
                for (value, i) in values.iter_mut().zip(0..) {
                    if let Some(at) = last.index(first + i * at_step) {
                        *value = self.data[(place + at * last.step) as usize];
                    }
                }
            }
        }
        Some(())
    }

    /// Elements of the data, each `step` from the one before.
    fn copy<const W: usize>(&self, place: i64, step: i64, values: &mut [f32]) {
        let (data, step) = (&self.data[place as usize..], step as usize);
        match data.first_chunk::<W>() {
            Some(chunk) if step == 1 && values.len() == W => values.copy_from_slice(chunk),
            _ => values.iter_mut().enumerate().for_each(|(i, value)| *value = data[i * step]),
        }
    }
}

/// Where the elements of an index of [`DIGITS`] digits lie.
pub(crate) struct Spread {
    pub(crate) base: usize,
    pub(crate) sizes: [usize; DIGITS],
    pub(crate) steps: [usize; DIGITS],
}

impl Spread {
    /// The places of `first..first + count`; what is beyond `count` is zero.
    pub(crate) fn places<const W: usize>(&self, first: usize, count: usize) -> [usize; W] {
        let mut places = [0; W];
        let mut counter = Counter::new(first, self.sizes);
        for place in &mut places[..count] {
            *place = self.base + (0..DIGITS).map(|i| counter.digits[i] * self.steps[i]).sum::<usize>();
            counter.step();
        }
        places
    }
}

/// An index in digits.
struct Counter {
    digits: [usize; DIGITS],
    sizes: [usize; DIGITS],
}

impl Counter {
    fn new(mut index: usize, sizes: [usize; DIGITS]) -> Self {
        let mut digits = [0; DIGITS];
        for i in (0..DIGITS).rev() {
            digits[i] = index % sizes[i];
            index /= sizes[i];
        }
        Self { digits, sizes }
    }

    fn step(&mut self) {
        for i in (0..DIGITS).rev() {
            self.digits[i] += 1;
            if self.digits[i] < self.sizes[i] {
                return;
            }
            self.digits[i] = 0;
        }
    }
}

/// Sizes and offsets are of checked geometries, far below 2^63.
pub(crate) fn int(size: usize) -> i64 {
    size as i64
}
