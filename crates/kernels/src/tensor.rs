//! Where a tensor's elements lie: dimensions and strides, checked. Touches nothing.

use crate::check::{output, positive, size};
use crate::error::{Error, Result};

/// The most dimensions a tensor has (`CUDNN_DIM_MAX`).
pub const MAX_RANK: usize = 8;

/// Where a tensor's elements lie, in units of elements, from its first one. The order of the dimensions is
/// always that of cuDNN (batch, channels, then depth, height, width; of a filter: outputs, inputs, …);
/// layouts such as NHWC are a matter of strides alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    rank: usize,
    dims: [usize; MAX_RANK],
    strides: [usize; MAX_RANK],
    span: usize,
    /// Do elements share a place?
    shared: bool,
}

impl Tensor {
    /// A tensor with these dimensions and strides, all of them at least 1; the stride of a dimension of 1
    /// may be 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] for none, more than [`MAX_RANK`] or differently many of them, a zero or a
    /// negative dimension, a stride of 0; [`Error::Unsupported`] for negative strides, and for more elements than
    /// places. Elements may share a place otherwise, in what is read; what is written must not be such. (cuDNN
    /// accepts all of it in a descriptor and documents no result.) Whether elements share a place is judged by
    /// the simple rule that each dimension steps over the whole of those that step less, which holds for
    /// everything but interleavings that nobody lays out.
    pub fn new<T: Copy + Into<i64>>(dims: &[T], strides: &[T]) -> Result<Self> {
        if dims.is_empty() || dims.len() > MAX_RANK || dims.len() != strides.len() {
            return Err(Error::Invalid("a tensor has one to eight dimensions and a stride for each"));
        }
        let mut tensor =
            Self { rank: dims.len(), dims: [1; MAX_RANK], strides: [1; MAX_RANK], span: 1, shared: false };
        for (i, (&dim, &stride)) in dims.iter().zip(strides).enumerate() {
            tensor.dims[i] = positive(dim)?;
            if stride.into() < 0 {
                return Err(Error::Unsupported("a stride is negative"));
            }
            tensor.strides[i] = if tensor.dims[i] == 1 { size(stride)? } else { positive(stride)? };
        }
        (tensor.span, tensor.shared) = tensor.checked_span()?;
        let elements = tensor.dims().iter().try_fold(1_usize, |all, &dim| all.checked_mul(dim));
        match elements.is_some_and(|elements| elements <= tensor.span) {
            true => Ok(tensor),
            false => Err(Error::Unsupported("elements of a tensor share a place")),
        }
    }

    /// A tensor without gaps whose last dimension steps least (NCHW).
    ///
    /// # Errors
    /// Those of [`Tensor::new`].
    pub fn packed<T: Copy + Into<i64>>(dims: &[T]) -> Result<Self> {
        Self::in_order(dims, (0..dims.len()).rev())
    }

    /// A tensor without gaps whose second dimension steps least (NHWC, and KRSC for filters).
    ///
    /// # Errors
    /// Those of [`Tensor::new`].
    pub fn channels_last<T: Copy + Into<i64>>(dims: &[T]) -> Result<Self> {
        let channels = 1..dims.len().min(2);
        Self::in_order(dims, channels.chain((2..dims.len()).rev()).chain(0..dims.len().min(1)))
    }

    fn in_order<T: Copy + Into<i64>>(dims: &[T], order: impl Iterator<Item = usize>) -> Result<Self> {
        let dims: Vec<i64> = dims.iter().map(|&dim| dim.into()).collect();
        let mut strides = vec![1_i64; dims.len()];
        let mut step = 1_i64;
        for i in order {
            strides[i] = step;
            step = step.checked_mul(dims[i]).ok_or(Error::Unsupported("a tensor is too large"))?;
        }
        Self::new(&dims, &strides)
    }

    /// The number of elements from the first to the last, both included; and whether some share a place.
    fn checked_span(&self) -> Result<(usize, bool)> {
        let mut order: Vec<usize> = (0..self.rank).filter(|&i| self.dims[i] > 1).collect();
        order.sort_by_key(|&i| self.strides[i]);
        let (mut span, mut shared) = (1_usize, false);
        for i in order {
            shared |= self.strides[i] < span;
            span = (self.dims[i] - 1)
                .checked_mul(self.strides[i])
                .and_then(|reach| span.checked_add(reach))
                .filter(|&span| isize::try_from(span).is_ok())
                .ok_or(Error::Unsupported("a tensor is too large"))?;
        }
        Ok((span, shared))
    }

    /// The dimensions.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// The strides, in elements.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.rank]
    }

    /// How many elements a slice must have to hold it.
    #[must_use]
    pub fn span(&self) -> usize {
        self.span
    }

    /// Do elements share a place? Then it can be read alone.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The part of `data` that it is, to be written.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where elements share a place; [`Error::Short`] where that is not all there.
    pub(crate) fn output<'a>(&self, data: &'a mut [f32]) -> Result<&'a mut [f32]> {
        match self.shared {
            true => Err(Error::Unsupported("elements of an output share a place")),
            false => output(data, self.span),
        }
    }

    /// How many elements it has; never more than it spans.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.dims().iter().product()
    }

    /// Sizes and strides after batch and channels, with sizes of 1 in front to make three.
    pub(crate) fn spatial(&self) -> ([usize; 3], [usize; 3]) {
        let (mut sizes, mut steps) = ([1; 3], [0; 3]);
        for (i, at) in (2..self.rank).rev().zip((0..3).rev()) {
            sizes[at] = self.dims[i];
            steps[at] = self.strides[i];
        }
        (sizes, steps)
    }

    /// Has `other` the same dimensions?
    ///
    /// # Errors
    /// [`Error::Invalid`] if not.
    pub fn same_dims(&self, other: &Self) -> Result<()> {
        match self.dims() == other.dims() {
            true => Ok(()),
            false => Err(Error::Invalid("two tensors differ in a dimension")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts() {
        let dims = [2, 3, 4, 5];
        assert_eq!(Tensor::packed(&dims).unwrap().strides(), [60, 20, 5, 1]);
        assert_eq!(Tensor::channels_last(&dims).unwrap().strides(), [60, 1, 15, 3]);
        assert_eq!(Tensor::channels_last(&[7]).unwrap().strides(), [1]);
    }

    #[test]
    fn gaps_count_for_the_span() {
        let tensor = Tensor::new(&[2, 3], &[10, 2]).unwrap();
        assert_eq!((tensor.elements(), tensor.span()), (6, 15));
    }

    #[test]
    fn a_dimension_of_one_does_not_step() {
        assert_eq!(Tensor::new(&[1, 3], &[1, 1]).unwrap().span(), 3);
        assert_eq!(Tensor::new(&[1, 3], &[i32::MAX, 1]).unwrap().span(), 3);
        assert_eq!(Tensor::new(&[1, 3], &[0, 1]).unwrap().span(), 3);
    }

    #[test]
    fn elements_that_share_a_place_are_not_written() {
        let window = Tensor::new(&[2, 2, 3], &[12, 2, 1]).unwrap();
        assert_eq!((window.is_shared(), window.elements(), window.span()), (true, 12, 17));
        let refused = Error::Unsupported("elements of an output share a place");
        assert_eq!(window.output(&mut [0.0; 17]), Err(refused));
        let apart = Tensor::new(&[2, 2, 3], &[12, 3, 1]).unwrap();
        assert_eq!((apart.is_shared(), apart.output(&mut [0.0; 18])), (false, Ok(&mut [0.0; 18][..])));
    }

    #[test]
    fn what_is_refused() {
        let refused = |dims: &[i64], strides: &[i64]| Tensor::new(dims, strides).unwrap_err();
        assert!(matches!(refused(&[], &[]), Error::Invalid(_)));
        assert!(matches!(refused(&[1; 9], &[1; 9]), Error::Invalid(_)));
        assert!(matches!(refused(&[2, 2], &[1]), Error::Invalid(_)));
        assert!(matches!(refused(&[0], &[1]), Error::Invalid(_)));
        assert!(matches!(refused(&[-1], &[1]), Error::Invalid(_)));
        assert!(matches!(refused(&[2], &[0]), Error::Invalid(_)));
        assert!(matches!(refused(&[2], &[-1]), Error::Unsupported(_)));
        assert!(matches!(
            refused(&[2, 3], &[2, 1]),
            Error::Unsupported("elements of a tensor share a place")
        ));
        let most = 1 << 30;
        assert!(matches!(refused(&[most; 5], &[1, 1, 1, 1, 4]), Error::Unsupported(_)));
        assert!(matches!(refused(&[1 << 40], &[1]), Error::Unsupported(_)));
        let most = i64::from(i32::MAX);
        assert!(matches!(refused(&[most; 3], &[1, most, most]), Error::Unsupported(_)));
        assert!(Tensor::packed(&[most, most, most]).is_err());
    }
}
