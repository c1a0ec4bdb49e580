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

    fn holds(&self, at: i64) -> bool {
        (0..self.limit).contains(&at)
    }
}

/// What is known of one lead of a panel before the depth is.
#[derive(Clone, Copy)]
struct Lead {
    offset: i64,
    at: [i64; 3],
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
        let mut leads = [Lead { offset: 0, at: [0; 3] }; W];
        let mut counter = Counter::new(first, self.lead);
        for lead in &mut leads[..count] {
            *lead = self.lead_at(counter.digits);
            counter.step();
        }
        let leads = &leads[..count];
        let reach = Reach::<W>::new(leads, &self.taps);
        let mut counter = Counter::new(depths.start, self.depth);
        for values in panel.iter_mut().take(depths.len()) {
            *values = [0.0; W];
            let values = &mut values[..count];
            let [plain, spatial @ ..] = counter.digits;
            let step: [i64; 3] = std::array::from_fn(|i| self.taps[i].depth * int(spatial[i]));
            let offset = int(plain * self.depth_step);
            match &reach {
                Some(reach) => reach.read(self, leads, &step, offset, values),
                None => {
                    for (value, lead) in values.iter_mut().zip(leads) {
                        *value = self.divided(lead, &step, offset);
                    }
                }
            }
            counter.step();
        }
    }

    fn lead_at(&self, digits: [usize; DIGITS]) -> Lead {
        let [plain, spatial @ ..] = digits;
        Lead {
            offset: int(self.base + plain * self.lead_step),
            at: std::array::from_fn(|i| self.taps[i].start + self.taps[i].lead * int(spatial[i])),
        }
    }

    /// One element, or the zero beside it or between its elements.
    fn divided(&self, lead: &Lead, step: &[i64; 3], offset: i64) -> f32 {
        let mut place = lead.offset + offset;
        for (i, tap) in self.taps.iter().enumerate() {
            let mut at = lead.at[i] + step[i];
            if tap.divisor != 1 {
                if at % tap.divisor != 0 {
                    return 0.0;
                }
                at /= tap.divisor;
            }
            if !tap.holds(at) {
                return 0.0;
            }
            place += at * tap.step;
        }
        self.data[index(place)]
    }
}

/// How far the leads of a panel reach, where nothing is divided: most steps of the depth leave all of them
/// inside a dimension, or all outside, and no element has to be asked.
struct Reach<const W: usize> {
    /// Where each lead lies.
    places: [i64; W],
    /// They lie beside each other.
    run: bool,
    /// The least and the most of them in each dimension.
    least: [i64; 3],
    most: [i64; 3],
}

impl<const W: usize> Reach<W> {
    fn new(leads: &[Lead], taps: &[Tap; 3]) -> Option<Self> {
        let first = leads.first()?;
        if taps.iter().any(|tap| tap.divisor != 1) {
            return None;
        }
        let mut reach = Self { places: [0; W], run: true, least: first.at, most: first.at };
        for (place, lead) in reach.places.iter_mut().zip(leads) {
            *place = along(lead.offset, &lead.at, taps);
            for i in 0..3 {
                reach.least[i] = reach.least[i].min(lead.at[i]);
                reach.most[i] = reach.most[i].max(lead.at[i]);
            }
        }
        let places = &reach.places[..leads.len()];
        reach.run = places.windows(2).all(|pair| pair[0].wrapping_add(1) == pair[1]);
        Some(reach)
    }

    /// The values at one step of the depth; those beside the dimensions are left as they are.
    fn read(&self, from: &Gather<'_>, leads: &[Lead], step: &[i64; 3], offset: i64, values: &mut [f32]) {
        let taps = &from.taps;
        let inside: [bool; 3] = std::array::from_fn(|i| {
            taps[i].holds(self.least[i] + step[i]) && taps[i].holds(self.most[i] + step[i])
        });
        let outside = |i: usize| self.most[i] + step[i] < 0 || self.least[i] + step[i] >= taps[i].limit;
        let offset = along(offset, step, taps);
        if inside == [true; 3] && self.run {
            let start = index(self.places[0].wrapping_add(offset));
            values.copy_from_slice(&from.data[start..start + values.len()]);
        } else if !(0..3).any(outside) {
            for ((value, lead), place) in values.iter_mut().zip(leads).zip(self.places) {
                if (0..3).all(|i| inside[i] || taps[i].holds(lead.at[i] + step[i])) {
                    *value = from.data[index(place.wrapping_add(offset))];
                }
            }
        }
    }
}

/// The place that lies `at` so far along each dimension from `place`. Far outside the dimensions it may be
/// beyond 64 bits: it wraps, and comes back when the rest is added that leads inside.
fn along(place: i64, at: &[i64; 3], taps: &[Tap; 3]) -> i64 {
    (0..3).fold(place, |place, i| place.wrapping_add(at[i].wrapping_mul(taps[i].step)))
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

/// A place inside the dimensions is one inside the data.
fn index(place: i64) -> usize {
    place as usize
}
