//! Tensors for tests: values in the order of their dimensions, and the memory they lie in. Touches nothing.

#![allow(dead_code, reason = "no test uses all of it")]

pub mod naive;

use vgpu_kernels::Tensor;

/// Values in the order of their dimensions, the last one fastest.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
pub struct Values<T = f32> {
    pub dims: Vec<usize>,
    pub data: Vec<T>,
}

impl<T: Copy + Default> Values<T> {
    pub fn of(dims: &[usize], value: impl FnMut() -> T) -> Self {
        let data = std::iter::repeat_with(value).take(dims.iter().product()).collect();
        Self { dims: dims.to_vec(), data }
    }

    /// The place of an index, or none beside the dimensions.
    pub fn place(&self, index: &[i64]) -> Option<usize> {
        assert_eq!(index.len(), self.dims.len());
        index.iter().zip(&self.dims).try_fold(0, |place, (&at, &dim)| {
            usize::try_from(at).ok().filter(|&at| at < dim).map(|at| place * dim + at)
        })
    }

    /// The value at an index; beside the dimensions, zero.
    pub fn at(&self, index: &[i64]) -> T {
        self.place(index).map_or_else(T::default, |place| self.data[place])
    }

    /// Every index, in order.
    pub fn indices(&self) -> impl Iterator<Item = Vec<i64>> + use<T> {
        indices(&self.dims)
    }
}

impl Values {
    pub fn double(&self) -> Values<f64> {
        Values { dims: self.dims.clone(), data: self.data.iter().map(|&x| f64::from(x)).collect() }
    }

    /// The memory that holds them, with NaN in the gaps.
    pub fn laid_out(&self, layout: Layout) -> (Tensor, Vec<f32>) {
        let tensor = layout.tensor(&self.dims);
        let mut memory = vec![f32::NAN; tensor.span()];
        for (place, &value) in places(&tensor).zip(&self.data) {
            memory[place] = value;
        }
        (tensor, memory)
    }
}

/// Every index of these dimensions, in order.
pub fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<i64>> + use<> {
    let dims = dims.to_vec();
    (0..dims.iter().product()).map(move |mut place: usize| {
        let mut index = vec![0; dims.len()];
        for (at, &dim) in index.iter_mut().zip(&dims).rev() {
            *at = (place % dim) as i64;
            place /= dim;
        }
        index
    })
}

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug)]
pub enum Layout {
    Packed,
    ChannelsLast,
    /// The first dimension steps least, and there are gaps between all elements.
    Gaps,
}

pub const LAYOUTS: [Layout; 3] = [Layout::Packed, Layout::ChannelsLast, Layout::Gaps];

impl Layout {
    pub fn tensor(self, dims: &[usize]) -> Tensor {
        let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        match self {
            Self::Packed => Tensor::packed(&dims).unwrap(),
            Self::ChannelsLast => Tensor::channels_last(&dims).unwrap(),
            Self::Gaps => {
                let mut step = 2;
                let strides: Vec<i64> = dims
                    .iter()
                    .map(|dim| {
                        let stride = step;
                        step = step * dim + 1;
                        stride
                    })
                    .collect();
                Tensor::new(&dims, &strides).unwrap()
            }
        }
    }
}

/// Where each element lies, in the order of the dimensions.
pub fn places(tensor: &Tensor) -> impl Iterator<Item = usize> + use<> {
    let strides = tensor.strides().to_vec();
    indices(tensor.dims())
        .map(move |index| index.iter().zip(&strides).map(|(&at, step)| at as usize * step).sum())
}

/// What was written to memory: everything between the elements must still be NaN.
pub fn read(tensor: &Tensor, memory: &[f32]) -> Values {
    let mut gap = vec![true; memory.len()];
    places(tensor).for_each(|place| gap[place] = false);
    let untouched = memory.iter().zip(gap).all(|(value, gap)| !gap || value.is_nan());
    assert!(untouched, "a gap was written to");
    Values { dims: tensor.dims().to_vec(), data: places(tensor).map(|place| memory[place]).collect() }
}

/// Asserts that every element is as wanted, to within `tolerance`, relative above 1.
#[track_caller]
pub fn assert_close<T: Copy + Into<f64>>(what: &str, got: &[f32], want: &[T], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let (got, want) = (f64::from(got), want.into());
        let fits = (got - want).abs() <= tolerance * want.abs().max(1.0);
        assert!(
            fits || got == want || got.is_nan() && want.is_nan(),
            "{what}, element {i}: {got}, not {want}"
        );
    }
}
