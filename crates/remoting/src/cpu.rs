//! The backend of hosts without a GPU, and of tests: contents and addresses become geometries and ranges of
//! [`vgpu_kernels`]. Touches nothing but its client's memory.
//!
//! Single precision; anything else is not supported. All that a client sends is checked there, or in [`Memory`].

use vgpu_kernels::blas;
use vgpu_kernels::convolution::{self, Axis};
use vgpu_kernels::pooling::{self, Window};
use vgpu_kernels::softmax::{self, Softmax};
use vgpu_kernels::{self as kernels, Blend, Nan, Tensor as Shape, activation, arena, dropout, elementwise};

use crate::api::{Handle, Read, Scalar, Update, Write};
use crate::cublas::backend::Blas;
use crate::cublas::{Factor, Outcome, State, rule};
use crate::cudnn::activation::Activation;
use crate::cudnn::algorithms::{Performance, Performances};
use crate::cudnn::backend::Backend;
use crate::cudnn::convolution::Convolution;
use crate::cudnn::dropout::Dropout;
use crate::cudnn::filter::Filter;
use crate::cudnn::pooling::Pooling;
use crate::cudnn::tensor::Tensor;
use crate::cudnn::{FLOAT, NCHW, NHWC, Result, Status};
use crate::memory::{Memory, Rows};
use crate::worker::Device;

/// Computes on the CPU, for one client.
#[derive(Debug)]
pub struct Cpu {
    memory: Memory,
}

/// An operand: how many numbers it spans, and its address.
type At = (usize, u64);

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

    fn run<const N: usize>(
        &mut self,
        inputs: [At; N],
        output: At,
        compute: impl FnOnce([&[f32]; N], &mut [f32]) -> kernels::Result<()>,
    ) -> Result {
        let mut ranges = [const { 0..0 }; N];
        for (range, (span, address)) in ranges.iter_mut().zip(inputs) {
            *range = self.memory.range(address, span)?;
        }
        let output = self.memory.range(output.1, output.0)?;
        Ok(arena::write(self.memory.numbers_mut(), ranges, output, compute)?)
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

/// All algorithms are the same here, need no memory and give the same results each time; this is the one that the
/// library has so as well.
fn best(algorithm: i32, requested: i32) -> Result<(i32, Performances)> {
    if requested < 1 {
        return Err(Status::BadParam);
    }
    let one = Performance { algorithm, status: 0, time: -1.0, memory: 0, determinism: 1, math_type: 0 };
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
        best(0, requested)
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
        best(0, requested)
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
        best(1, requested)
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
        best(1, requested)
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
        best(1, requested)
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
        best(1, requested)
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

    fn number(&self, factor: Factor) -> Result<f32> {
        match factor {
            Factor::Host(number) => Ok(number),
            Factor::Device(address) => Ok(self.memory.numbers()[self.memory.range(address, 1)?][0]),
        }
    }

    fn product(
        &mut self,
        g: blas::Gemm,
        factors: [Factor; 2],
        a: Read,
        b: Read,
        c: Update,
    ) -> Result<Option<f32>> {
        let blend = self.blend(factors)?;
        let inputs = [(g.a().span(), a.0), (g.b().span(), b.0)];
        self.run(inputs, (g.c().span(), c.0), |[a, b], c| g.run(blend, a, b, c)).map(|()| None)
    }

    fn blend(&self, [alpha, beta]: [Factor; 2]) -> Result<Blend> {
        Ok(Blend { alpha: self.number(alpha)?, beta: self.number(beta)? })
    }

    /// A result of one number goes where it is to.
    fn outcome<const N: usize>(
        &mut self,
        inputs: [At; N],
        to: Outcome,
        compute: impl FnOnce([&[f32]; N]) -> kernels::Result<f32>,
    ) -> Result<Option<f32>> {
        let mut ranges = [const { 0..0 }; N];
        for (range, (span, address)) in ranges.iter_mut().zip(inputs) {
            *range = self.memory.range(address, span)?;
        }
        let numbers = self.memory.numbers();
        let number = compute(ranges.map(|range| &numbers[range]))?;
        match to {
            Outcome::Host => Ok(Some(number)),
            Outcome::Device(address) => {
                let range = self.memory.range(address, 1)?;
                self.memory.numbers_mut()[range].fill(number);
                Ok(None)
            }
        }
    }
}

impl Blas for Cpu {
    fn cublasSgemm_v2(
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
    ) -> Result<Option<f32>> {
        let g = rule::sgemm(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)?;
        self.product(g, [alpha, beta], a, b, c)
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
        compute_type: i32,
        algorithm: i32,
    ) -> Result<Option<f32>> {
        let g = rule::gemm_ex(
            op_a,
            op_b,
            m,
            n,
            k,
            alpha,
            a,
            a_type,
            lda,
            b,
            b_type,
            ldb,
            beta,
            c,
            c_type,
            ldc,
            compute_type,
            algorithm,
        )?;
        self.product(g, [alpha, beta], a, b, c)
    }

    fn cublasSgemv_v2(
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
    ) -> Result<Option<f32>> {
        let g = rule::sgemv(op, m, n, alpha, a, lda, x, incx, beta, y, incy)?;
        let blend = self.blend([alpha, beta])?;
        let inputs = [(g.a().span(), a.0), (g.x().span(), x.0)];
        self.run(inputs, (g.y().span(), y.0), |[a, x], y| g.run(blend, a, x, y)).map(|()| None)
    }

    fn cublasSaxpy_v2(
        &mut self,
        _: State,
        n: i32,
        alpha: Factor,
        x: Read,
        incx: i32,
        y: Update,
        incy: i32,
    ) -> Result<Option<f32>> {
        let [xv, yv] = rule::saxpy(n, alpha, x, incx, y, incy)?;
        let alpha = self.number(alpha)?;
        self.run([(xv.span(), x.0)], (yv.span(), y.0), |[x], y| blas::axpy(alpha, xv, x, yv, y))
            .map(|()| None)
    }

    fn cublasSscal_v2(
        &mut self,
        _: State,
        n: i32,
        alpha: Factor,
        x: Update,
        incx: i32,
    ) -> Result<Option<f32>> {
        let v = rule::sscal(n, alpha, x, incx)?;
        let alpha = self.number(alpha)?;
        self.run([], (v.span(), x.0), |[], x| blas::scal(alpha, v, x)).map(|()| None)
    }

    fn cublasScopy_v2(
        &mut self,
        _: State,
        n: i32,
        x: Read,
        incx: i32,
        y: Write,
        incy: i32,
    ) -> Result<Option<f32>> {
        let [xv, yv] = rule::scopy(n, x, incx, y, incy)?;
        self.run([(xv.span(), x.0)], (yv.span(), y.0), |[x], y| blas::copy(xv, x, yv, y)).map(|()| None)
    }

    fn cublasSdot_v2(
        &mut self,
        _: State,
        n: i32,
        x: Read,
        incx: i32,
        y: Read,
        incy: i32,
        result: Outcome,
    ) -> Result<Option<f32>> {
        let [xv, yv] = rule::sdot(n, x, incx, y, incy, result)?;
        self.outcome([(xv.span(), x.0), (yv.span(), y.0)], result, |[x, y]| blas::dot(xv, x, yv, y))
    }

    fn cublasSnrm2_v2(
        &mut self,
        _: State,
        n: i32,
        x: Read,
        incx: i32,
        result: Outcome,
    ) -> Result<Option<f32>> {
        let v = rule::snrm2(n, x, incx, result)?;
        self.outcome([(v.span(), x.0)], result, |[x]| blas::nrm2(v, x))
    }
}
