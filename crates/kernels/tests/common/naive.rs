//! What the operations are by definition: in double precision, one sum for each result, nothing shared with
//! the code under test. Touches nothing.

use vgpu_kernels::reduction::Op;

use super::Values;

/// How a filter or window goes over one spatial dimension.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    pub pad: usize,
    pub stride: usize,
    pub dilation: usize,
}

/// A convolution's sizes besides those of its tensors.
#[derive(Clone, Debug)]
pub struct Convolution {
    pub axes: Vec<Axis>,
    pub groups: usize,
    pub flip: bool,
}

impl Convolution {
    /// How many outputs there are along each spatial dimension, found by placing the filter.
    pub fn output(&self, x: &[usize], w: &[usize]) -> Vec<usize> {
        let spatial = self.axes.iter().enumerate().map(|(i, axis)| {
            let last_tap = |place: usize| place * axis.stride + (w[i + 2] - 1) * axis.dilation;
            (0..).take_while(|&place| last_tap(place) < x[i + 2] + 2 * axis.pad).count()
        });
        [x[0], w[0]].into_iter().chain(spatial).collect()
    }

    /// Calls `visit` with the index in x, w and y of every product that the output is the sum of; those of x
    /// may be in the padding.
    fn products(&self, w: &[usize], y: &[usize], mut visit: impl FnMut(&[i64], &[i64], &[i64])) {
        let inputs_per_group = w[1] as i64;
        let outputs_per_group = (w[0] / self.groups) as i64;
        for yi in super::indices(y) {
            for tap in super::indices(&w[1..]) {
                let group = yi[1] / outputs_per_group;
                let mut xi = vec![yi[0], group * inputs_per_group + tap[0]];
                let mut wi = vec![yi[1], tap[0]];
                for (i, axis) in self.axes.iter().enumerate() {
                    let (place, tap) = (yi[i + 2], tap[i + 1]);
                    xi.push(place * axis.stride as i64 + tap * axis.dilation as i64 - axis.pad as i64);
                    wi.push(if self.flip { w[i + 2] as i64 - 1 - tap } else { tap });
                }
                visit(&xi, &wi, &yi);
            }
        }
    }

    pub fn forward(&self, x: &Values<f64>, w: &Values<f64>) -> Values<f64> {
        let mut y = Values::of(&self.output(&x.dims, &w.dims), || 0.0);
        let dims = y.dims.clone();
        self.products(&w.dims, &dims, |xi, wi, yi| {
            let place = y.place(yi).unwrap();
            y.data[place] += x.at(xi) * w.at(wi);
        });
        y
    }

    /// The gradients of x and w.
    pub fn backward(&self, x: &Values<f64>, w: &Values<f64>, dy: &Values<f64>) -> [Values<f64>; 2] {
        let (mut dx, mut dw) = (Values::of(&x.dims, || 0.0), Values::of(&w.dims, || 0.0));
        self.products(&w.dims, &dy.dims, |xi, wi, yi| {
            if let Some(place) = dx.place(xi) {
                dx.data[place] += w.at(wi) * dy.at(yi);
            }
            let place = dw.place(wi).unwrap();
            dw.data[place] += x.at(xi) * dy.at(yi);
        });
        [dx, dw]
    }
}

/// The sum over everything but the channels.
pub fn bias_gradient(dy: &Values<f64>) -> Values<f64> {
    let mut dims = vec![1; dy.dims.len()];
    dims[1] = dy.dims[1];
    let mut db = Values::of(&dims, || 0.0);
    for index in dy.indices() {
        db.data[index[1] as usize] += dy.at(&index);
    }
    db
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pool {
    Max,
    Including,
    Excluding,
}

/// A window along each spatial dimension: its size and how it goes (its dilation is 1).
#[derive(Clone, Debug)]
pub struct Pooling {
    pub pool: Pool,
    pub windows: Vec<(usize, Axis)>,
}

impl Pooling {
    pub fn output(&self, x: &[usize]) -> Vec<usize> {
        let spatial = self.windows.iter().enumerate().map(|(i, (size, axis))| {
            (0..).take_while(|place| place * axis.stride + size <= x[i + 2] + 2 * axis.pad).count()
        });
        x[..2].iter().copied().chain(spatial).collect()
    }

    /// The indices in x of the window at an index of y, without padding, in order.
    fn window(&self, x: &[usize], yi: &[i64]) -> Vec<Vec<i64>> {
        let sizes: Vec<usize> = self.windows.iter().map(|(size, _)| *size).collect();
        super::indices(&sizes)
            .map(|tap| {
                let spatial = self
                    .windows
                    .iter()
                    .enumerate()
                    .map(|(i, (_, axis))| yi[i + 2] * axis.stride as i64 + tap[i] - axis.pad as i64);
                yi[..2].iter().copied().chain(spatial).collect::<Vec<i64>>()
            })
            .filter(|index| index.iter().zip(x).all(|(&at, &dim)| (0..dim as i64).contains(&at)))
            .collect()
    }

    /// What each element of a window contributes to the result, as a factor.
    fn factors(&self, x: &Values<f64>, yi: &[i64]) -> Vec<(Vec<i64>, f64)> {
        let window = self.window(&x.dims, yi);
        let size: usize = self.windows.iter().map(|(size, _)| size).product();
        let count = window.len();
        match self.pool {
            Pool::Including => window.into_iter().map(|index| (index, 1.0 / size as f64)).collect(),
            Pool::Excluding => window.into_iter().map(|index| (index, 1.0 / count as f64)).collect(),
            Pool::Max => {
                let first = window.into_iter().reduce(|a, b| if x.at(&b) > x.at(&a) { b } else { a });
                first.map(|index| (index, 1.0)).into_iter().collect()
            }
        }
    }

    pub fn forward(&self, x: &Values<f64>) -> Values<f64> {
        let mut y = Values::of(&self.output(&x.dims), || 0.0);
        for (place, yi) in y.indices().enumerate() {
            let factors = self.factors(x, &yi);
            y.data[place] = factors.iter().map(|(xi, factor)| x.at(xi) * factor).sum();
            if self.pool == Pool::Max && factors.is_empty() {
                y.data[place] = f64::NEG_INFINITY;
            }
        }
        y
    }

    pub fn backward(&self, x: &Values<f64>, dy: &Values<f64>) -> Values<f64> {
        let mut dx = Values::of(&x.dims, || 0.0);
        for yi in dy.indices() {
            for (xi, factor) in self.factors(x, &yi) {
                let place = dx.place(&xi).unwrap();
                dx.data[place] += factor * dy.at(&yi);
            }
        }
        dx
    }
}

/// Softmax over the channels, or over everything but the batch.
pub fn softmax(x: &Values<f64>, channel: bool, log: bool) -> Values<f64> {
    let same = |a: &[i64], b: &[i64]| a[0] == b[0] && (!channel || a[2..] == b[2..]);
    let mut y = x.clone();
    for (place, index) in x.indices().enumerate() {
        let sum: f64 = x.indices().filter(|other| same(other, &index)).map(|other| x.at(&other).exp()).sum();
        y.data[place] = if log { x.at(&index) - sum.ln() } else { x.at(&index).exp() / sum };
    }
    y
}

/// op(A) * op(B) of matrices in the order of rows.
pub fn product(a: &Values<f64>, b: &Values<f64>, transposed: [bool; 2]) -> Values<f64> {
    let op = |matrix: &Values<f64>, transposed: bool, i: usize, j: usize| {
        let (i, j) = if transposed { (j, i) } else { (i, j) };
        matrix.at(&[i as i64, j as i64])
    };
    let [m, k] = if transposed[0] { [a.dims[1], a.dims[0]] } else { [a.dims[0], a.dims[1]] };
    let n = if transposed[1] { b.dims[0] } else { b.dims[1] };
    let mut c = Values::of(&[m, n], || 0.0);
    for i in 0..m {
        for j in 0..n {
            c.data[i * n + j] = (0..k).map(|p| op(a, transposed[0], i, p) * op(b, transposed[1], p, j)).sum();
        }
    }
    c
}

/// All there are.
pub const REDUCTIONS: [Op; 9] = [
    Op::Add,
    Op::Multiply,
    Op::Minimum,
    Op::Maximum,
    Op::MaximumSize,
    Op::Average,
    Op::Norm1,
    Op::Norm2,
    Op::MultiplyNonZero,
];

/// The reduction along some dimensions; and where among the reduced the result is, the first of equals.
pub fn reduce(op: Op, a: &Values<f64>, reduced: &[bool]) -> (Values<f64>, Vec<u32>) {
    let dims: Vec<usize> =
        a.dims.iter().zip(reduced).map(|(&dim, &reduced)| if reduced { 1 } else { dim }).collect();
    let mut c = Values::of(&dims, || 0.0);
    let mut places = vec![0; c.data.len()];
    for (at, index) in c.indices().enumerate() {
        let met = a.indices().filter(|other| {
            other.iter().zip(&index).zip(reduced).all(|((other, index), &reduced)| reduced || other == index)
        });
        let values: Vec<f64> = met.map(|index| a.at(&index)).collect();
        let sizes = || values.iter().map(|value| value.abs());
        let result = match op {
            Op::Add => values.iter().sum(),
            Op::Multiply => values.iter().product(),
            Op::MultiplyNonZero => values.iter().filter(|value| **value != 0.0).product(),
            Op::Average => values.iter().sum::<f64>() / values.len() as f64,
            Op::Norm1 => sizes().sum(),
            Op::Norm2 => sizes().map(|size| size * size).sum::<f64>().sqrt(),
            Op::Minimum => values.iter().copied().fold(f64::INFINITY, f64::min),
            Op::Maximum => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Op::MaximumSize => sizes().fold(0.0, f64::max),
        };
        let is_it = |value: &f64| (if op == Op::MaximumSize { value.abs() } else { *value }) == result;
        places[at] = values.iter().position(is_it).unwrap_or_default() as u32;
        c.data[at] = result;
    }
    (c, places)
}
