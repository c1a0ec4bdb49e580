//! Walks several tensors of the same dimensions at once, in rows as long as their layouts allow. Touches
//! nothing.

use std::cmp::Reverse;

use crate::tensor::MAX_RANK;

/// Rows through a leading tensor and `N` others. The rows go in the order in which the leading one lies in
/// memory, so a result must not depend on their order, or only on the dimensions.
pub(crate) struct Walk<const N: usize> {
    axes: Vec<Axis<N>>,
}

/// One dimension: its size and how far each tensor steps. A step of zero repeats the same element.
#[derive(Clone, Copy)]
struct Axis<const N: usize> {
    size: usize,
    lead: usize,
    others: [usize; N],
}

/// A run of elements at equal distances: where it begins and how far it steps in each tensor.
pub(crate) struct Row<const N: usize> {
    pub(crate) len: usize,
    pub(crate) lead: (usize, usize),
    pub(crate) others: [(usize, usize); N],
}

impl<const N: usize> Walk<N> {
    /// A walk through `dims` with these strides, one for each dimension.
    pub(crate) fn new(dims: &[usize], lead: &[usize], others: [&[usize]; N]) -> Self {
        let mut axes: Vec<Axis<N>> = (0..dims.len())
            .filter(|&i| dims[i] != 1)
            .map(|i| Axis { size: dims[i], lead: lead[i], others: others.map(|strides| strides[i]) })
            .collect();
        axes.sort_by_key(|axis| Reverse(axis.lead));
        Self { axes: merged(axes) }
    }

    /// Calls `visit` with every row.
    pub(crate) fn rows(&self, mut visit: impl FnMut(Row<N>)) {
        let Some((inner, outer)) = self.axes.split_last() else {
            return visit(Row { len: 1, lead: (0, 1), others: [(0, 1); N] });
        };
        let mut at = [0; MAX_RANK];
        let mut lead = 0;
        let mut others = [0; N];
        loop {
            visit(Row {
                len: inner.size,
                lead: (lead, inner.lead),
                others: std::array::from_fn(|i| (others[i], inner.others[i])),
            });
            let mut level = outer.len();
            loop {
                if level == 0 {
                    return;
                }
                level -= 1;
                let axis = &outer[level];
                at[level] += 1;
                if at[level] < axis.size {
                    lead += axis.lead;
                    others.iter_mut().zip(axis.others).for_each(|(offset, step)| *offset += step);
                    break;
                }
                at[level] = 0;
                lead -= (axis.size - 1) * axis.lead;
                others
                    .iter_mut()
                    .zip(axis.others)
                    .for_each(|(offset, step)| *offset -= (axis.size - 1) * step);
            }
        }
    }
}

/// Two neighbouring axes are one where the outer steps as far as the whole inner one, in every tensor.
fn merged<const N: usize>(axes: Vec<Axis<N>>) -> Vec<Axis<N>> {
    let mut merged: Vec<Axis<N>> = Vec::with_capacity(axes.len());
    for inner in axes {
        match merged.last_mut() {
            Some(outer)
                if outer.lead == inner.lead * inner.size
                    && (0..N).all(|i| outer.others[i] == inner.others[i] * inner.size) =>
            {
                *outer = Axis { size: outer.size * inner.size, ..inner };
            }
            _ => merged.push(inner),
        }
    }
    merged
}

/// Calls `f` with the elements of `inputs` and the one of `output` at each place of `dims`.
pub(crate) fn zip<const N: usize>(
    dims: &[usize],
    inputs: [(&[f32], &[usize]); N],
    output: (&mut [f32], &[usize]),
    f: impl Fn([f32; N], &mut f32),
) {
    let (output, strides) = output;
    Walk::new(dims, strides, inputs.map(|(_, strides)| strides)).rows(|row| {
        let (start, step) = row.lead;
        if step == 1 && row.others.iter().all(|&(_, step)| step == 1) {
            let inputs: [&[f32]; N] = std::array::from_fn(|i| &inputs[i].0[row.others[i].0..][..row.len]);
            for (at, output) in output[start..][..row.len].iter_mut().enumerate() {
                f(inputs.map(|input| input[at]), output);
            }
        } else {
            for at in 0..row.len {
                let values = std::array::from_fn(|i| inputs[i].0[row.others[i].0 + at * row.others[i].1]);
                f(values, &mut output[start + at * step]);
            }
        }
    });
}

/// Calls `f` with each element of `data` at `dims`, in an order that only dimensions and strides decide.
pub(crate) fn each(dims: &[usize], data: &[f32], strides: &[usize], mut f: impl FnMut(f32)) {
    Walk::<0>::new(dims, strides, []).rows(|row| {
        let (start, step) = row.lead;
        (0..row.len).for_each(|at| f(data[start + at * step]));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(walk: &Walk<1>) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        walk.rows(|row| {
            let ((lead, step), (other, other_step)) = (row.lead, row.others[0]);
            places.extend((0..row.len).map(|at| (lead + at * step, other + at * other_step)));
        });
        places
    }

    #[test]
    fn packed_tensors_are_one_row() {
        let walk = Walk::new(&[2, 1, 3], &[3, 3, 1], [&[3, 99, 1]]);
        let mut rows = 0;
        walk.rows(|row| rows += usize::from(row.len == 6));
        assert_eq!(rows, 1);
    }

    #[test]
    fn different_layouts_meet_at_the_same_element() {
        let walk = Walk::new(&[2, 3], &[3, 1], [&[1, 2]]);
        assert_eq!(places(&walk), [(0, 0), (1, 2), (2, 4), (3, 1), (4, 3), (5, 5)]);
    }

    #[test]
    fn a_step_of_zero_repeats() {
        let walk = Walk::new(&[2, 2], &[2, 1], [&[0, 1]]);
        assert_eq!(places(&walk), [(0, 0), (1, 1), (2, 0), (3, 1)]);
    }

    #[test]
    fn a_single_element() {
        assert_eq!(places(&Walk::new(&[1, 1], &[5, 5], [&[1, 1]])), [(0, 0)]);
    }
}
