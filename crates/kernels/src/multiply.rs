//! The product of two matrices, blocked for the caches. Touches nothing but the slices it is given and
//! scratch memory of a fixed size.

use std::ops::Range;

use crate::Blend;
use crate::gather::{Gather, Spread};

/// The tile that stays in registers: with sixteen of four lanes (SSE2, which every x86-64 has), eight hold
/// the sums, and the rest the factors.
const ROWS: usize = 4;
const COLUMNS: usize = 8;

/// A block of `a`, `LEFT * DEPTH` elements, stays in the second-level cache, and a panel of `b`,
/// `COLUMNS * DEPTH`, in the first; one of `b` is `RIGHT * DEPTH`. The scratch memory is these two blocks.
pub(crate) const DEPTH: usize = 256;
const LEFT: usize = 64;
const RIGHT: usize = 512;

/// Where the product goes: element (i, j) at the sum of the places of row i and column j.
pub(crate) struct Product<'a> {
    pub(crate) data: &'a mut [f32],
    pub(crate) rows: Spread,
    pub(crate) columns: Spread,
}

/// `product = alpha * a * bᵀ + beta * product`: the sum runs over the depth of both.
///
/// The order of additions depends on the depth alone, so an element has the same value whatever is computed
/// beside it.
pub(crate) fn multiply(blend: Blend, a: &Gather<'_>, b: &Gather<'_>, product: &mut Product<'_>) {
    let (rows, columns, depth) = (a.leads(), b.leads(), a.depths());
    if rows == 0 || columns == 0 {
        return;
    }
    if depth == 0 || blend.alpha == 0.0 {
        return product.fade(blend, rows, columns);
    }
    let deepest = depth.min(DEPTH);
    let mut left = vec![[0.0; ROWS]; rows.min(LEFT).div_ceil(ROWS) * deepest];
    let mut right = vec![[0.0; COLUMNS]; columns.min(RIGHT).div_ceil(COLUMNS) * deepest];
    for across in blocks(columns, RIGHT) {
        for depths in blocks(depth, DEPTH) {
            let blend = if depths.start == 0 { blend } else { Blend { beta: 1.0, ..blend } };
            pack(b, &across, &depths, &mut right);
            for down in blocks(rows, LEFT) {
                pack(a, &down, &depths, &mut left);
                block(blend, depths.len(), (&down, &left), (&across, &right), product);
            }
        }
    }
}

/// `0..len` in parts of `size`.
pub(crate) fn blocks(len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(size).map(move |start| start..len.min(start + size))
}

/// The leads of `range`, panel after panel.
fn pack<const W: usize>(
    source: &Gather<'_>,
    range: &Range<usize>,
    depths: &Range<usize>,
    panels: &mut [[f32; W]],
) {
    for (part, panel) in blocks(range.len(), W).zip(panels.chunks_exact_mut(depths.len())) {
        source.pack(range.start + part.start, part.len(), depths.clone(), panel);
    }
}

/// Every panel of the left block with every one of the right.
fn block(
    blend: Blend,
    depth: usize,
    (down, left): (&Range<usize>, &[[f32; ROWS]]),
    (across, right): (&Range<usize>, &[[f32; COLUMNS]]),
    product: &mut Product<'_>,
) {
    for (part, b) in blocks(across.len(), COLUMNS).zip(right.chunks_exact(depth)) {
        let columns = product.columns.places::<COLUMNS>(across.start + part.start, part.len());
        let columns = &columns[..part.len()];
        for (part, a) in blocks(down.len(), ROWS).zip(left.chunks_exact(depth)) {
            let rows = product.rows.places::<ROWS>(down.start + part.start, part.len());
            product.store(blend, &rows[..part.len()], columns, &tile(a, b));
        }
    }
}

/// The product of two panels.
#[inline]
fn tile(a: &[[f32; ROWS]], b: &[[f32; COLUMNS]]) -> [[f32; COLUMNS]; ROWS] {
    let mut sums = [[0.0; COLUMNS]; ROWS];
    for (a, b) in a.iter().zip(b) {
        for (sums, a) in sums.iter_mut().zip(a) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
    sums
}

impl Product<'_> {
    fn store(&mut self, blend: Blend, rows: &[usize], columns: &[usize], tile: &[[f32; COLUMNS]; ROWS]) {
        let first = columns[0];
        let run = columns.iter().zip(first..).all(|(&column, place)| column == place);
        for (&row, sums) in rows.iter().zip(tile) {
            if run {
                let output = &mut self.data[row + first..][..columns.len()];
                output.iter_mut().zip(sums).for_each(|(output, &sum)| blend.store(sum, output));
            } else {
                for (&column, &sum) in columns.iter().zip(sums) {
                    blend.store(sum, &mut self.data[row + column]);
                }
            }
        }
    }

    /// The product is nothing: what stays is `beta * product`.
    fn fade(&mut self, blend: Blend, rows: usize, columns: usize) {
        for row in 0..rows {
            let [row] = self.rows.places(row, 1);
            for column in 0..columns {
                let [column] = self.columns.places(column, 1);
                blend.fade(&mut self.data[row + column]);
            }
        }
    }
}
