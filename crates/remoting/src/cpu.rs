//! The backend of hosts without a GPU, and of tests: contents and addresses become geometries and ranges of
//! [`vgpu_kernels`]. Touches nothing but its client's memory.
//!
//! Of cuDNN single precision; of cuBLAS double precision too, and products of numbers of 16 bits. Anything else is not
//! supported. All that a client sends is checked there, or in [`Memory`].

use std::ops::Range;

use half::{bf16, f16};
use vgpu_kernels::blas::{self, Part, Vector};
use vgpu_kernels::convolution::{self, Axis};
use vgpu_kernels::pooling::{self, Window};
use vgpu_kernels::reduction::{self, Op};
use vgpu_kernels::softmax::{self, Softmax};
use vgpu_kernels::{
    self as kernels, Blend, Nan, Real, Tensor as Shape, activation, arena, dropout, elementwise,
};

use crate::api::{Handle, Read, Scalar, Update, Write};
use crate::cublas::backend::Blas;
use crate::cublas::rule::Stored;
use crate::cublas::{Factor, Outcome, State, Sums, rule};
use crate::cudnn::activation::Activation;
use crate::cudnn::algorithms::{Performance, Performances};
use crate::cudnn::backend::Backend;
use crate::cudnn::convolution::Convolution;
use crate::cudnn::dropout::Dropout;
use crate::cudnn::filter::Filter;
use crate::cudnn::normalization::Normalization;
use crate::cudnn::pooling::Pooling;
use crate::cudnn::reduction::Reduction;
use crate::cudnn::tensor::Tensor;
use crate::cudnn::{FLOAT, NCHW, NHWC, Result, Status};
use crate::memory::{Memory, Number, Rows};
use crate::worker::Device;

/// Computes on the CPU, for one client.
#[derive(Debug)]
pub struct Cpu {
    memory: Memory,
}

/// An operand: how many numbers it spans, and its address.
type At = (usize, u64);

/// How many numbers of a product are there in single precision beside those that are stored in 16 bits: 64 MiB of what a
/// worker has beyond its device memory.
const WIDENED: usize = 16 << 20;

impl Cpu {
    /// On this memory.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory }
    }

    /// The client's memory.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn run<T: Number, const N: usize>(
        &mut self,
        inputs: [At; N],
        output: At,
        compute: impl FnOnce([&[T]; N], &mut [T]) -> kernels::Result<()>,
    ) -> Result {
        let ranges = self.ranges::<T, N>(inputs)?;
        let output = self.memory.range_of::<T>(output.1, output.0)?;
        Ok(arena::write(self.memory.all_mut(), ranges, output, compute)?)
    }

    fn ranges<T, const N: usize>(&self, inputs: [At; N]) -> Result<[Range<usize>; N]> {
        let mut ranges = [const { 0..0 }; N];
        for (range, (span, address)) in ranges.iter_mut().zip(inputs) {
            *range = self.memory.readable::<T>(address, span)?;
        }
        Ok(ranges)
    }
}

impl Device for Cpu {
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        self.memory.allocate(bytes)
    }

    fn free(&mut self, address: u64) -> bool {
        self.memory.free(address)
    }

    fn seed(&mut self, address: u64, len: u64, seed: u64) -> Result {
        if len < dropout::State::SIZE as u64 {
            return Err(Status::InvalidValue);
        }
        self.keep(address, dropout::State::new(seed))
    }

    fn copy(&mut self, to: Rows, from: Rows, width: u64, count: u64) -> Result {
        self.memory.copy(to, from, width, count)
    }

    fn fill(&mut self, to: Rows, width: u64, count: u64, value: &[u8]) -> Result {
        self.memory.fill(to, width, count, value)
    }

    fn info(&self) -> (u64, u64) {
        self.memory.budget().info()
    }

    fn bytes(&mut self, address: u64, len: usize) -> Result<&mut [u8]> {
        self.memory.bytes(address, len)
    }
}

fn blend(alpha: Scalar, beta: Scalar) -> Blend {
    Blend { alpha: alpha.0 as f32, beta: beta.0 as f32 }
}

fn nan(propagation: i32) -> Nan {
    if propagation == 1 { Nan::Propagate } else { Nan::Ignore }
}

fn shape(t: &Tensor) -> Result<Shape> {
    if t.count > 0 && (t.data_type != FLOAT || t.is_packed()) {
        return Err(Status::NotSupported);
    }
    let count = t.count as usize;
    Ok(Shape::new(&t.dims()[..count], &t.strides[..count])?)
}

fn filter_shape(f: &Filter) -> Result<Shape> {
    let dims = &f.dims()[..f.count as usize];
    match (f.data_type, f.format) {
        (FLOAT, NCHW) => Ok(Shape::packed(dims)?),
        (FLOAT, NHWC) => Ok(Shape::channels_last(dims)?),
        _ => Err(Status::NotSupported),
    }
}

/// The geometry of a convolution of `x` with `w` into `y`, be these data or gradients.
fn convolution(conv: &Convolution, x: &Tensor, w: &Filter, y: &Tensor) -> Result<kernels::Convolution> {
    let axis = |i: usize| Axis::new(conv.padding[i], conv.stride[i], conv.dilation[i]);
    let axes = (0..conv.count as usize).map(axis).collect::<kernels::Result<Vec<Axis>>>()?;
    let mode =
        if conv.mode == 0 { convolution::Mode::Convolution } else { convolution::Mode::CrossCorrelation };
    let (x, w, y) = (shape(x)?, filter_shape(w)?, shape(y)?);
    Ok(kernels::Convolution::new(&axes, conv.groups, mode, x, w, y)?)
}

fn pooling(pool: &Pooling, x: &Tensor, y: &Tensor) -> Result<kernels::Pooling> {
    let mode = match pool.mode {
        0 | 3 => pooling::Mode::Max(nan(pool.nan)),
        1 => pooling::Mode::AverageIncludingPadding,
        2 => pooling::Mode::AverageExcludingPadding,
        _ => return Err(Status::BadParam),
    };
    let window = |i: usize| Window::new(pool.window[i], pool.padding[i], pool.stride[i]);
    let windows = (0..pool.count as usize).map(window).collect::<kernels::Result<Vec<Window>>>()?;
    Ok(kernels::Pooling::new(mode, &windows, shape(x)?, shape(y)?)?)
}

fn function(a: &Activation) -> Result<activation::Function> {
    let (nan, coefficient) = (nan(a.nan), a.coefficient as f32);
    match a.mode {
        0 => Ok(activation::Function::Sigmoid),
        1 => Ok(activation::Function::Relu(nan)),
        2 => Ok(activation::Function::Tanh),
        3 => Ok(activation::Function::ClippedRelu { ceiling: coefficient, nan }),
        4 => Ok(activation::Function::Elu { alpha: coefficient }),
        // The library has the identity for its fused convolution alone.
        5 => Err(Status::NotSupported),
        6 => Ok(activation::Function::Swish { beta: a.beta as f32 }),
        _ => Err(Status::BadParam),
    }
}

fn softmax(algorithm: i32, mode: i32, x: &Tensor, y: &Tensor) -> Result<Softmax> {
    let algorithm = match algorithm {
        0 => softmax::Algorithm::Fast,
        1 => softmax::Algorithm::Accurate,
        2 => softmax::Algorithm::Log,
        _ => return Err(Status::BadParam),
    };
    let mode = match mode {
        0 => softmax::Mode::Instance,
        1 => softmax::Mode::Channel,
        _ => return Err(Status::BadParam),
    };
    Ok(Softmax::new(algorithm, mode, shape(x)?, shape(y)?)?)
}

fn normalization(norm: &Normalization, mode: i32, x: &Tensor, y: &Tensor) -> Result<kernels::Normalization> {
    // There is one mode, across channels.
    if mode != 0 {
        return Err(Status::BadParam);
    }
    Ok(kernels::Normalization::new(norm.n, [norm.alpha, norm.beta, norm.k], shape(x)?, shape(y)?)?)
}

fn reduction(r: &Reduction, a: &Tensor, c: &Tensor) -> Result<reduction::Reduction> {
    let op = match r.operation {
        0 => Op::Add,
        1 => Op::Multiply,
        2 => Op::Minimum,
        3 => Op::Maximum,
        4 => Op::MaximumSize,
        5 => Op::Average,
        6 => Op::Norm1,
        7 => Op::Norm2,
        8 => Op::MultiplyNonZero,
        _ => return Err(Status::BadParam),
    };
    // The library has indices of 32 bits alone.
    if r.compute_type != FLOAT || with_indices(r) && r.indices_type != 0 {
        return Err(Status::NotSupported);
    }
    Ok(reduction::Reduction::new(op, nan(r.nan), shape(a)?, shape(c)?)?)
}

/// Is it asked where the results are, and are they anywhere? Else nothing is said of it, whatever is asked.
fn with_indices(r: &Reduction) -> bool {
    r.indices == 1 && matches!(r.operation, 2..=4)
}

/// Of the algorithms of forward pass, data and filter, that with this number, which gives the same results each time
/// with the library too. Here all are the same, and need no memory.
const BEST: i32 = 1;

fn best(requested: i32) -> Result<(i32, Performances)> {
    if requested < 1 {
        return Err(Status::BadParam);
    }
    let one = Performance { algorithm: BEST, status: 0, time: -1.0, memory: 0, determinism: 1, math_type: 0 };
    Ok((1, Performances::from_iter([one])))
}

/// The words of dropout's reserve space, which is to have so many bytes.
fn reserve_of(x: &Shape, bytes: u64) -> Result<usize> {
    let words = dropout::Dropout::reserve(x.elements());
    if bytes < size_of::<f32>() as u64 * words as u64 { Err(Status::BadParam) } else { Ok(words) }
}

impl Backend for Cpu {
    fn cudnnGetConvolutionForwardAlgorithmMaxCount(&mut self, _: Handle) -> Result<(i32,)> {
        Ok((1,))
    }

    fn cudnnGetConvolutionForwardAlgorithm_v7(
        &mut self,
        _: Handle,
        x: Tensor,
        w: Filter,
        conv: Convolution,
        y: Tensor,
        requested: i32,
    ) -> Result<(i32, Performances)> {
        convolution(&conv, &x, &w, &y)?;
        best(requested)
    }

    fn cudnnFindConvolutionForwardAlgorithm(
        &mut self,
        _: Handle,
        x: Tensor,
        w: Filter,
        conv: Convolution,
        y: Tensor,
        requested: i32,
    ) -> Result<(i32, Performances)> {
        convolution(&conv, &x, &w, &y)?;
        best(requested)
    }

    fn cudnnGetConvolutionForwardWorkspaceSize(
        &mut self,
        _: Handle,
        x: Tensor,
        w: Filter,
        conv: Convolution,
        y: Tensor,
        _algorithm: i32,
    ) -> Result<(u64,)> {
        convolution(&conv, &x, &w, &y).map(|_| (0,))
    }

    fn cudnnGetConvolutionBackwardDataAlgorithmMaxCount(&mut self, _: Handle) -> Result<(i32,)> {
        Ok((1,))
    }

    fn cudnnGetConvolutionBackwardDataAlgorithm_v7(
        &mut self,
        _: Handle,
        w: Filter,
        dy: Tensor,
        conv: Convolution,
        dx: Tensor,
        requested: i32,
    ) -> Result<(i32, Performances)> {
        convolution(&conv, &dx, &w, &dy)?;
        best(requested)
    }

    fn cudnnFindConvolutionBackwardDataAlgorithm(
        &mut self,
        _: Handle,
        w: Filter,
        dy: Tensor,
        conv: Convolution,
        dx: Tensor,
        requested: i32,
    ) -> Result<(i32, Performances)> {
        convolution(&conv, &dx, &w, &dy)?;
        best(requested)
    }

    fn cudnnGetConvolutionBackwardDataWorkspaceSize(
        &mut self,
        _: Handle,
        w: Filter,
        dy: Tensor,
        conv: Convolution,
        dx: Tensor,
        _algorithm: i32,
    ) -> Result<(u64,)> {
        convolution(&conv, &dx, &w, &dy).map(|_| (0,))
    }

    fn cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(&mut self, _: Handle) -> Result<(i32,)> {
        Ok((1,))
    }

    fn cudnnGetConvolutionBackwardFilterAlgorithm_v7(
        &mut self,
        _: Handle,
        x: Tensor,
        dy: Tensor,
        conv: Convolution,
        dw: Filter,
        requested: i32,
    ) -> Result<(i32, Performances)> {
        convolution(&conv, &x, &dw, &dy)?;
        best(requested)
    }

    fn cudnnFindConvolutionBackwardFilterAlgorithm(
        &mut self,
        _: Handle,
        x: Tensor,
        dy: Tensor,
        conv: Convolution,
        dw: Filter,
        requested: i32,
    ) -> Result<(i32, Performances)> {
        convolution(&conv, &x, &dw, &dy)?;
        best(requested)
    }

    fn cudnnGetConvolutionBackwardFilterWorkspaceSize(
        &mut self,
        _: Handle,
        x: Tensor,
        dy: Tensor,
        conv: Convolution,
        dw: Filter,
        _algorithm: i32,
    ) -> Result<(u64,)> {
        convolution(&conv, &x, &dw, &dy).map(|_| (0,))
    }

    fn cudnnDropoutGetStatesSize(&mut self, _: Handle) -> Result<(u64,)> {
        Ok((dropout::State::SIZE as u64,))
    }

    fn cudnnConvolutionForward(
        &mut self,
        _: Handle,
        alpha: Scalar,
        x: Tensor,
        x_data: Read,
        w: Filter,
        w_data: Read,
        conv: Convolution,
        _algorithm: i32,
        _workspace: Write,
        _workspace_size: u64,
        beta: Scalar,
        y: Tensor,
        y_data: Update,
    ) -> Result {
        let c = convolution(&conv, &x, &w, &y)?;
        self.run(
            [(c.x().span(), x_data.0), (c.w().span(), w_data.0)],
            (c.y().span(), y_data.0),
            |[x, w], y| c.forward(blend(alpha, beta), x, w, y),
        )
    }

    fn cudnnConvolutionBiasActivationForward(
        &mut self,
        _: Handle,
        alpha1: Scalar,
        x: Tensor,
        x_data: Read,
        w: Filter,
        w_data: Read,
        conv: Convolution,
        algorithm: i32,
        _workspace: Write,
        _workspace_size: u64,
        alpha2: Scalar,
        z: Tensor,
        z_data: Read,
        bias: Tensor,
        bias_data: Read,
        a: Activation,
        y: Tensor,
        y_data: Update,
    ) -> Result {
        let f = match a.mode {
            1 => function(&a)?,
            5 if algorithm == BEST => activation::Function::Identity,
            _ => return Err(Status::NotSupported),
        };
        let (c, zt, bt) = (convolution(&conv, &x, &w, &y)?, shape(&z)?, shape(&bias)?);
        let channels = |(i, dim): (usize, &usize)| *dim == if i == 1 { c.y().dims()[1] } else { 1 };
        if zt.dims() != c.y().dims() || !bt.dims().iter().enumerate().all(channels) {
            return Err(Status::BadParam);
        }
        let inputs = [
            (c.x().span(), x_data.0),
            (c.w().span(), w_data.0),
            (zt.span(), z_data.0),
            (bt.span(), bias_data.0),
        ];
        self.run(inputs, (c.y().span(), y_data.0), |[x, w, z, b], y| {
            c.forward(blend(alpha1, Scalar(0.0)), x, w, y)?;
            let one = Scalar(1.0);
            if alpha2.0 != 0.0 {
                elementwise::add(blend(alpha2, one), &zt, z, c.y(), y)?;
            }
            elementwise::add(blend(one, one), &bt, b, c.y(), y)?;
            activation::in_place(f, c.y(), y)
        })
    }

    fn cudnnLRNCrossChannelForward(
        &mut self,
        _: Handle,
        norm: Normalization,
        mode: i32,
        alpha: Scalar,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        y: Tensor,
        y_data: Update,
    ) -> Result {
        let (n, xt, yt) = (normalization(&norm, mode, &x, &y)?, shape(&x)?, shape(&y)?);
        self.run([(xt.span(), x_data.0)], (yt.span(), y_data.0), |[x], y| n.forward(blend(alpha, beta), x, y))
    }

    fn cudnnLRNCrossChannelBackward(
        &mut self,
        _: Handle,
        norm: Normalization,
        mode: i32,
        alpha: Scalar,
        _: Tensor,
        _: Read,
        dy: Tensor,
        dy_data: Read,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        dx: Tensor,
        dx_data: Update,
    ) -> Result {
        let n = normalization(&norm, mode, &x, &dx)?;
        let (gradient, xt, to) = (shape(&dy)?, shape(&x)?, shape(&dx)?);
        self.run(
            [(gradient.span(), dy_data.0), (xt.span(), x_data.0)],
            (to.span(), dx_data.0),
            |[dy, x], dx| n.backward(blend(alpha, beta), &gradient, dy, x, dx),
        )
    }

    fn cudnnGetReductionIndicesSize(
        &mut self,
        _: Handle,
        r: Reduction,
        a: Tensor,
        c: Tensor,
    ) -> Result<(u64,)> {
        let results = reduction(&r, &a, &c)?.c().elements();
        Ok((if with_indices(&r) { (size_of::<f32>() * results) as u64 } else { 0 },))
    }

    fn cudnnGetReductionWorkspaceSize(
        &mut self,
        _: Handle,
        r: Reduction,
        a: Tensor,
        c: Tensor,
    ) -> Result<(u64,)> {
        reduction(&r, &a, &c).map(|_| (0,))
    }

    fn cudnnReduceTensor(
        &mut self,
        _: Handle,
        r: Reduction,
        indices: Write,
        indices_size: u64,
        _workspace: Write,
        _workspace_size: u64,
        alpha: Scalar,
        a: Tensor,
        a_data: Read,
        beta: Scalar,
        c: Tensor,
        c_data: Update,
    ) -> Result {
        let reduced = reduction(&r, &a, &c)?;
        let input = (reduced.a().span(), a_data.0);
        if with_indices(&r) {
            let results = reduced.c().elements();
            if indices_size < (size_of::<f32>() * results) as u64 {
                return Err(Status::BadParam);
            }
            self.run([input], (results, indices.0), |[a], indices| reduced.indices(a, indices))?;
        }
        self.run([input], (reduced.c().span(), c_data.0), |[a], c| reduced.run(blend(alpha, beta), a, c))
    }

    fn cudnnScaleTensor(&mut self, _: Handle, y: Tensor, y_data: Update, alpha: Scalar) -> Result {
        let yt = shape(&y)?;
        self.run([], (yt.span(), y_data.0), |[], y| elementwise::scale(alpha.0 as f32, &yt, y))
    }

    fn cudnnSetTensor(&mut self, _: Handle, y: Tensor, y_data: Update, value: Scalar) -> Result {
        let yt = shape(&y)?;
        self.run([], (yt.span(), y_data.0), |[], y| elementwise::set(value.0 as f32, &yt, y))
    }

    fn cudnnConvolutionBackwardData(
        &mut self,
        _: Handle,
        alpha: Scalar,
        w: Filter,
        w_data: Read,
        dy: Tensor,
        dy_data: Read,
        conv: Convolution,
        _algorithm: i32,
        _workspace: Write,
        _workspace_size: u64,
        beta: Scalar,
        dx: Tensor,
        dx_data: Update,
    ) -> Result {
        let c = convolution(&conv, &dx, &w, &dy)?;
        self.run(
            [(c.w().span(), w_data.0), (c.y().span(), dy_data.0)],
            (c.x().span(), dx_data.0),
            |[w, dy], dx| c.backward_data(blend(alpha, beta), w, dy, dx),
        )
    }

    fn cudnnConvolutionBackwardFilter(
        &mut self,
        _: Handle,
        alpha: Scalar,
        x: Tensor,
        x_data: Read,
        dy: Tensor,
        dy_data: Read,
        conv: Convolution,
        _algorithm: i32,
        _workspace: Write,
        _workspace_size: u64,
        beta: Scalar,
        dw: Filter,
        dw_data: Update,
    ) -> Result {
        let c = convolution(&conv, &x, &dw, &dy)?;
        self.run(
            [(c.x().span(), x_data.0), (c.y().span(), dy_data.0)],
            (c.w().span(), dw_data.0),
            |[x, dy], dw| c.backward_filter(blend(alpha, beta), x, dy, dw),
        )
    }

    fn cudnnConvolutionBackwardBias(
        &mut self,
        _: Handle,
        alpha: Scalar,
        dy: Tensor,
        dy_data: Read,
        beta: Scalar,
        db: Tensor,
        db_data: Update,
    ) -> Result {
        let (y, b) = (shape(&dy)?, shape(&db)?);
        self.run([(y.span(), dy_data.0)], (b.span(), db_data.0), |[dy], db| {
            convolution::backward_bias(blend(alpha, beta), &y, dy, &b, db)
        })
    }

    fn cudnnActivationForward(
        &mut self,
        _: Handle,
        a: Activation,
        alpha: Scalar,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        y: Tensor,
        y_data: Update,
    ) -> Result {
        let (f, xt, yt) = (function(&a)?, shape(&x)?, shape(&y)?);
        self.run([(xt.span(), x_data.0)], (yt.span(), y_data.0), |[x], y| {
            activation::forward(f, blend(alpha, beta), &xt, x, &yt, y)
        })
    }

    fn cudnnActivationBackward(
        &mut self,
        _: Handle,
        a: Activation,
        alpha: Scalar,
        y: Tensor,
        y_data: Read,
        dy: Tensor,
        dy_data: Read,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        dx: Tensor,
        dx_data: Update,
    ) -> Result {
        let f = function(&a)?;
        let b = activation::Backward { y: shape(&y)?, dy: shape(&dy)?, x: shape(&x)?, dx: shape(&dx)? };
        let inputs = [(b.y.span(), y_data.0), (b.dy.span(), dy_data.0), (b.x.span(), x_data.0)];
        self.run(inputs, (b.dx.span(), dx_data.0), |[y, dy, x], dx| {
            b.run(f, blend(alpha, beta), y, dy, x, dx)
        })
    }

    fn cudnnPoolingForward(
        &mut self,
        _: Handle,
        pool: Pooling,
        alpha: Scalar,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        y: Tensor,
        y_data: Update,
    ) -> Result {
        let p = pooling(&pool, &x, &y)?;
        self.run([(p.x().span(), x_data.0)], (p.y().span(), y_data.0), |[x], y| {
            p.forward(blend(alpha, beta), x, y)
        })
    }

    fn cudnnPoolingBackward(
        &mut self,
        _: Handle,
        pool: Pooling,
        alpha: Scalar,
        y: Tensor,
        _: Read,
        dy: Tensor,
        dy_data: Read,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        dx: Tensor,
        dx_data: Update,
    ) -> Result {
        // One geometry for data and gradients; layouts that differ are not supported.
        if dy != y || dx != x {
            return Err(Status::NotSupported);
        }
        let p = pooling(&pool, &x, &y)?;
        self.run(
            [(p.y().span(), dy_data.0), (p.x().span(), x_data.0)],
            (p.x().span(), dx_data.0),
            |[dy, x], dx| p.backward(blend(alpha, beta), dy, x, dx),
        )
    }

    fn cudnnSoftmaxForward(
        &mut self,
        _: Handle,
        algorithm: i32,
        mode: i32,
        alpha: Scalar,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        y: Tensor,
        y_data: Update,
    ) -> Result {
        let s = softmax(algorithm, mode, &x, &y)?;
        let (xt, yt) = (shape(&x)?, shape(&y)?);
        self.run([(xt.span(), x_data.0)], (yt.span(), y_data.0), |[x], y| s.forward(blend(alpha, beta), x, y))
    }

    fn cudnnSoftmaxBackward(
        &mut self,
        _: Handle,
        algorithm: i32,
        mode: i32,
        alpha: Scalar,
        y: Tensor,
        y_data: Read,
        dy: Tensor,
        dy_data: Read,
        beta: Scalar,
        dx: Tensor,
        dx_data: Update,
    ) -> Result {
        let s = softmax(algorithm, mode, &dy, &dx)?;
        let (yt, gradient, xt) = (shape(&y)?, shape(&dy)?, shape(&dx)?);
        self.run(
            [(yt.span(), y_data.0), (gradient.span(), dy_data.0)],
            (xt.span(), dx_data.0),
            |[y, dy], dx| s.backward(blend(alpha, beta), &yt, y, dy, dx),
        )
    }

    fn cudnnDropoutForward(
        &mut self,
        _: Handle,
        d: Dropout,
        x: Tensor,
        x_data: Read,
        y: Tensor,
        y_data: Write,
        reserve: Write,
        reserve_size: u64,
    ) -> Result {
        let (f, xt, yt) = (dropout::Dropout::new(d.dropout)?, shape(&x)?, shape(&y)?);
        let words = reserve_of(&xt, reserve_size)?;
        // All of it before anything is drawn, so that a call that fails draws nothing.
        let (range, _) = (self.memory.range(reserve.0, words)?, self.memory.range(x_data.0, xt.span())?);
        self.memory.range(y_data.0, yt.span())?;
        if xt.dims() != yt.dims() {
            return Err(Status::BadParam);
        }
        let bytes = self.memory.bytes(d.states, dropout::State::SIZE)?;
        let mut state = dropout::State::from_bytes(std::array::from_fn(|i| bytes[i]));
        f.draw(&mut state, xt.elements(), &mut self.memory.numbers_mut()[range])?;
        self.keep(d.states, state)?;
        self.run([(xt.span(), x_data.0), (words, reserve.0)], (yt.span(), y_data.0), |[x, reserve], y| {
            f.apply(reserve, &xt, x, &yt, y)
        })
    }

    fn cudnnDropoutBackward(
        &mut self,
        _: Handle,
        d: Dropout,
        dy: Tensor,
        dy_data: Read,
        dx: Tensor,
        dx_data: Write,
        reserve: Read,
        reserve_size: u64,
    ) -> Result {
        let (f, yt, xt) = (dropout::Dropout::new(d.dropout)?, shape(&dy)?, shape(&dx)?);
        let words = reserve_of(&yt, reserve_size)?;
        self.run([(yt.span(), dy_data.0), (words, reserve.0)], (xt.span(), dx_data.0), |[dy, reserve], dx| {
            f.apply(reserve, &yt, dy, &xt, dx)
        })
    }

    fn cudnnAddTensor(
        &mut self,
        _: Handle,
        alpha: Scalar,
        a: Tensor,
        a_data: Read,
        beta: Scalar,
        c: Tensor,
        c_data: Update,
    ) -> Result {
        let (at, ct) = (shape(&a)?, shape(&c)?);
        self.run([(at.span(), a_data.0)], (ct.span(), c_data.0), |[a], c| {
            elementwise::add(blend(alpha, beta), &at, a, &ct, c)
        })
    }

    fn cudnnTransformTensor(
        &mut self,
        _: Handle,
        alpha: Scalar,
        x: Tensor,
        x_data: Read,
        beta: Scalar,
        y: Tensor,
        y_data: Update,
    ) -> Result {
        let (xt, yt) = (shape(&x)?, shape(&y)?);
        self.run([(xt.span(), x_data.0)], (yt.span(), y_data.0), |[x], y| {
            elementwise::transform(blend(alpha, beta), &xt, x, &yt, y)
        })
    }
}

impl Cpu {
    /// Writes down where random numbers are.
    fn keep(&mut self, address: u64, state: dropout::State) -> Result {
        self.memory.bytes(address, dropout::State::SIZE)?.copy_from_slice(&state.to_bytes());
        Ok(())
    }

    fn number<T: Real + Number>(&self, factor: Factor) -> Result<T> {
        match factor {
            Factor::Host(number) => Ok(T::nearest(number)),
            Factor::Device(address) => Ok(self.memory.all()[self.memory.range_of::<T>(address, 1)?][0]),
        }
    }

    fn blend<T: Real + Number>(&self, [alpha, beta]: [Factor; 2]) -> Result<Blend<T>> {
        Ok(Blend { alpha: self.number(alpha)?, beta: self.number(beta)? })
    }

    /// A product as often as is said, with matrices so many numbers apart.
    fn products(
        &mut self,
        p: rule::Product,
        factors: [Factor; 2],
        [a, b, c]: [u64; 3],
        strides: [u64; 3],
        count: i32,
    ) -> Answer {
        // Of nothing there is nothing to do, however often.
        let count = if p.gemm.c().span() == 0 { 0 } else { count };
        let [a_step, b_step, c_step] =
            [(strides[0], p.factors), (strides[1], p.factors), (strides[2], p.result)]
                .map(|(stride, stored)| stride.wrapping_mul(stored.size()));
        for i in 0..count.cast_unsigned().into() {
            let at = |base: u64, step: u64| base.wrapping_add(step.wrapping_mul(i));
            self.product(p, factors, [at(a, a_step), at(b, b_step), at(c, c_step)])?;
        }
        Ok(None)
    }

    fn product(&mut self, p: rule::Product, factors: [Factor; 2], [a, b, c]: [u64; 3]) -> Result {
        let g = p.gemm;
        let (inputs, output) = ([(g.a().span(), a), (g.b().span(), b)], (g.c().span(), c));
        match p {
            rule::Product { factors: Stored::Double, .. } => {
                let blend = self.blend(factors)?;
                self.run(inputs, output, |[a, b], c| g.run_double(blend, a, b, c))
            }
            rule::Product { factors: Stored::Single, .. } => {
                let blend = self.blend(factors)?;
                self.run(inputs, output, |[a, b], c| g.run(blend, a, b, c))
            }
            // What is stored in 16 bits is computed in single precision.
            rule::Product { factors: stored, result, .. } => {
                let blend = self.blend(factors)?;
                let end = |(span, at): At, stored: Stored| at.saturating_add(span as u64 * stored.size());
                let (_, c) = output;
                let overlaps = |input: At| input.1 < end(output, result) && c < end(input, stored);
                // As if the factors had been read before anything is written.
                let most = if inputs.into_iter().any(overlaps) { usize::MAX } else { WIDENED };
                for (g, [a, b, c]) in g.parts(most) {
                    let [a, b] =
                        [(inputs[0], a), (inputs[1], b)].map(|(at, part)| self.widened(stored, at, part));
                    let mut numbers = self.widened(result, output, c)?;
                    g.run(blend, &a?, &b?, &mut numbers)?;
                    self.narrow(result, output, c, &numbers)?;
                }
                Ok(())
            }
        }
    }

    /// Numbers in single precision, without gaps.
    fn widened(&self, stored: Stored, (span, address): At, part: Part) -> Result<Vec<f32>> {
        fn wide<T: Number + Into<f32>>(memory: &Memory, (span, address): At, part: Part) -> Result<Vec<f32>> {
            let numbers = &memory.all::<T>()[memory.readable::<T>(address, span)?];
            Ok(part.columns().flat_map(|column| &numbers[column]).map(|number| (*number).into()).collect())
        }
        match stored {
            Stored::Half => wide::<f16>(&self.memory, (span, address), part),
            Stored::Brain => wide::<bf16>(&self.memory, (span, address), part),
            Stored::Single => wide::<f32>(&self.memory, (span, address), part),
            Stored::Double => Err(Status::InternalError),
        }
    }

    /// Stores numbers of single precision that have no gaps, those that are not there already.
    fn narrow(&mut self, stored: Stored, (span, address): At, part: Part, numbers: &[f32]) -> Result {
        fn put<T: Number + Into<f32>>(
            memory: &mut Memory,
            (span, address): At,
            part: Part,
            numbers: &[f32],
            narrow: fn(f32) -> T,
        ) -> Result {
            let range = memory.range_of::<T>(address, span)?;
            let all = &mut memory.all_mut::<T>()[range];
            for (to, number) in part.columns().flatten().zip(numbers) {
                let before: f32 = all[to].into();
                if before.to_bits() != number.to_bits() {
                    all[to] = narrow(*number);
                }
            }
            Ok(())
        }
        let at = (span, address);
        match stored {
            Stored::Half => put(&mut self.memory, at, part, numbers, f16::from_f32),
            Stored::Brain => put(&mut self.memory, at, part, numbers, bf16::from_f32),
            Stored::Single => put(&mut self.memory, at, part, numbers, |number| number),
            Stored::Double => Err(Status::InternalError),
        }
    }

    fn gemv<T: Real + Number>(
        &mut self,
        g: blas::Gemv,
        factors: [Factor; 2],
        a: Read,
        x: Read,
        y: Update,
    ) -> Answer {
        let blend = self.blend::<T>(factors)?;
        let inputs = [(g.a().span(), a.0), (g.x().span(), x.0)];
        self.run(inputs, (g.y().span(), y.0), |[a, x], y| g.run(blend, a, x, y)).map(|()| None)
    }

    fn axpy<T: Real + Number>(&mut self, [xv, yv]: [Vector; 2], alpha: Factor, x: Read, y: Update) -> Answer {
        let alpha = self.number::<T>(alpha)?;
        self.run([(xv.span(), x.0)], (yv.span(), y.0), |[x], y| blas::axpy(alpha, xv, x, yv, y))
            .map(|()| None)
    }

    fn scal<T: Real + Number>(&mut self, v: Vector, alpha: Factor, x: Update) -> Answer {
        let alpha = self.number::<T>(alpha)?;
        self.run([], (v.span(), x.0), |[], x| blas::scal(alpha, v, x)).map(|()| None)
    }

    /// A result of one number goes where it is to.
    fn outcome<T: Real + Number, const N: usize>(
        &mut self,
        inputs: [At; N],
        to: Outcome,
        compute: impl FnOnce([&[T]; N]) -> kernels::Result<T>,
    ) -> Answer {
        let ranges = self.ranges::<T, N>(inputs)?;
        let numbers = self.memory.all::<T>();
        let number = compute(ranges.map(|range| &numbers[range]))?;
        match to {
            Outcome::Host => Ok(Some(number.into())),
            Outcome::Device(address) => {
                let range = self.memory.range_of::<T>(address, 1)?;
                self.memory.all_mut()[range].fill(number);
                Ok(None)
            }
        }
    }
}

/// What a method of [`Blas`] answers.
type Answer = Result<Option<f64>>;

/// The methods of one precision, by their names.
macro_rules! precision {
    ($type:ty, $stored:ident: $gemm:ident $gemm_batched:ident $gemv:ident $axpy:ident $scal:ident $copy:ident $dot:ident
        $nrm2:ident $asum:ident) => {
        fn $gemm(
            &mut self,
            _: State,
            op_a: i32,
            op_b: i32,
            m: i32,
            n: i32,
            k: i32,
            alpha: Factor,
            a: Read,
            lda: i32,
            b: Read,
            ldb: i32,
            beta: Factor,
            c: Update,
            ldc: i32,
        ) -> Answer {
            let gemm = rule::gemm(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)?;
            let p = rule::Product { gemm, factors: Stored::$stored, result: Stored::$stored };
            self.product(p, [alpha, beta], [a.0, b.0, c.0]).map(|()| None)
        }

        fn $gemm_batched(
            &mut self,
            _: State,
            op_a: i32,
            op_b: i32,
            m: i32,
            n: i32,
            k: i32,
            alpha: Factor,
            a: Read,
            lda: i32,
            stride_a: u64,
            b: Read,
            ldb: i32,
            stride_b: u64,
            beta: Factor,
            c: Update,
            ldc: i32,
            stride_c: u64,
            count: i32,
        ) -> Answer {
            let strides = [stride_a, stride_b, stride_c];
            let gemm = rule::gemm_batched(
                op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, count,
            )?;
            let p = rule::Product { gemm, factors: Stored::$stored, result: Stored::$stored };
            self.products(p, [alpha, beta], [a.0, b.0, c.0], strides, count)
        }

        fn $gemv(
            &mut self,
            _: State,
            op: i32,
            m: i32,
            n: i32,
            alpha: Factor,
            a: Read,
            lda: i32,
            x: Read,
            incx: i32,
            beta: Factor,
            y: Update,
            incy: i32,
        ) -> Answer {
            let g = rule::gemv(op, m, n, alpha, a, lda, x, incx, beta, y, incy)?;
            self.gemv::<$type>(g, [alpha, beta], a, x, y)
        }

        fn $axpy(
            &mut self,
            _: State,
            n: i32,
            alpha: Factor,
            x: Read,
            incx: i32,
            y: Update,
            incy: i32,
        ) -> Answer {
            self.axpy::<$type>(rule::axpy(n, alpha, x, incx, y, incy)?, alpha, x, y)
        }

        fn $scal(&mut self, _: State, n: i32, alpha: Factor, x: Update, incx: i32) -> Answer {
            self.scal::<$type>(rule::scal(n, alpha, x, incx)?, alpha, x)
        }

        fn $copy(&mut self, _: State, n: i32, x: Read, incx: i32, y: Write, incy: i32) -> Answer {
            let [xv, yv] = rule::copy(n, x, incx, y, incy)?;
            self.run::<$type, 1>([(xv.span(), x.0)], (yv.span(), y.0), |[x], y| blas::copy(xv, x, yv, y))
                .map(|()| None)
        }

        fn $dot(
            &mut self,
            _: State,
            n: i32,
            x: Read,
            incx: i32,
            y: Read,
            incy: i32,
            result: Outcome,
        ) -> Answer {
            let [xv, yv] = rule::dot(n, x, incx, y, incy, result)?;
            let inputs = [(xv.span(), x.0), (yv.span(), y.0)];
            self.outcome::<$type, 2>(inputs, result, |[x, y]| blas::dot(xv, x, yv, y))
        }

        fn $nrm2(&mut self, _: State, n: i32, x: Read, incx: i32, result: Outcome) -> Answer {
            let v = rule::one(n, x, incx, result)?;
            self.outcome::<$type, 1>([(v.span(), x.0)], result, |[x]| blas::nrm2(v, x))
        }

        fn $asum(&mut self, _: State, n: i32, x: Read, incx: i32, result: Outcome) -> Answer {
            let v = rule::one(n, x, incx, result)?;
            self.outcome::<$type, 1>([(v.span(), x.0)], result, |[x]| blas::asum(v, x))
        }
    };
}

impl Blas for Cpu {
    precision! {
        f32, Single: cublasSgemm_v2 cublasSgemmStridedBatched cublasSgemv_v2 cublasSaxpy_v2 cublasSscal_v2 cublasScopy_v2
        cublasSdot_v2 cublasSnrm2_v2 cublasSasum_v2
    }
    precision! {
        f64, Double: cublasDgemm_v2 cublasDgemmStridedBatched cublasDgemv_v2 cublasDaxpy_v2 cublasDscal_v2 cublasDcopy_v2
        cublasDdot_v2 cublasDnrm2_v2 cublasDasum_v2
    }

    fn cublasGemmEx(
        &mut self,
        _: State,
        op_a: i32,
        op_b: i32,
        m: i32,
        n: i32,
        k: i32,
        alpha: Factor,
        a: Read,
        a_type: i32,
        lda: i32,
        b: Read,
        b_type: i32,
        ldb: i32,
        beta: Factor,
        c: Update,
        c_type: i32,
        ldc: i32,
        sums: Sums,
        algorithm: i32,
    ) -> Answer {
        let p = rule::gemm_ex(
            op_a, op_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, sums, algorithm,
        )?;
        self.product(p, [alpha, beta], [a.0, b.0, c.0]).map(|()| None)
    }

    fn cublasGemmStridedBatchedEx(
        &mut self,
        _: State,
        op_a: i32,
        op_b: i32,
        m: i32,
        n: i32,
        k: i32,
        alpha: Factor,
        a: Read,
        a_type: i32,
        lda: i32,
        stride_a: u64,
        b: Read,
        b_type: i32,
        ldb: i32,
        stride_b: u64,
        beta: Factor,
        c: Update,
        c_type: i32,
        ldc: i32,
        stride_c: u64,
        count: i32,
        sums: Sums,
        algorithm: i32,
    ) -> Answer {
        let strides = [stride_a, stride_b, stride_c];
        let p = rule::gemm_batched_ex(
            op_a, op_b, m, n, k, alpha, a, a_type, lda, stride_a, b, b_type, ldb, stride_b, beta, c, c_type,
            ldc, stride_c, count, sums, algorithm,
        )?;
        self.products(p, [alpha, beta], [a.0, b.0, c.0], strides, count)
    }
}
