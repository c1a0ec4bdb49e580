//! Of cuDNN what the CPU computes: in single precision. Touches nothing but its client's memory.

use vgpu_kernels::convolution::{self, Axis};
use vgpu_kernels::pooling::{self, Window};
use vgpu_kernels::reduction::{self, Op};
use vgpu_kernels::softmax::{self, Softmax};
use vgpu_kernels::{self as kernels, Blend, Nan, Tensor as Shape, activation, dropout, elementwise};

use super::Cpu;
use crate::api::{Handle, Read, Scalar, Update, Write};
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
use crate::cudnn::{FLOAT, NCHW, NHWC, Result, Status, check};

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

/// How many algorithms there are, and the one among them that the library names and does not have (of data there is none
/// such): `cudnnConvolutionFwdAlgo_t` and its like.
const FORWARD: (i32, Option<i32>) = (8, Some(3));
const DATA: (i32, Option<i32>) = (6, None);
const FILTER: (i32, Option<i32>) = (7, Some(4));

/// Is it an algorithm of these?
fn there_is(algorithm: i32, (count, missing): (i32, Option<i32>)) -> Result {
    check((0..count).contains(&algorithm), Status::BadParam)?;
    check(Some(algorithm) != missing, Status::NotSupported)
}

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

// Where shapes do not fit, that is said before anything is looked for at its address.
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
        algorithm: i32,
    ) -> Result<(u64,)> {
        there_is(algorithm, FORWARD)?;
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
        algorithm: i32,
    ) -> Result<(u64,)> {
        there_is(algorithm, DATA)?;
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
        algorithm: i32,
    ) -> Result<(u64,)> {
        there_is(algorithm, FILTER)?;
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
        algorithm: i32,
        _workspace: Write,
        _workspace_size: u64,
        beta: Scalar,
        y: Tensor,
        y_data: Update,
    ) -> Result {
        there_is(algorithm, FORWARD)?;
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
        there_is(algorithm, FORWARD)?;
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
        xt.same_dims(&gradient)?;
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
        algorithm: i32,
        _workspace: Write,
        _workspace_size: u64,
        beta: Scalar,
        dx: Tensor,
        dx_data: Update,
    ) -> Result {
        there_is(algorithm, DATA)?;
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
        algorithm: i32,
        _workspace: Write,
        _workspace_size: u64,
        beta: Scalar,
        dw: Filter,
        dw_data: Update,
    ) -> Result {
        there_is(algorithm, FILTER)?;
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
        convolution::check_bias(&y, &b)?;
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
        xt.same_dims(&yt)?;
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
        [b.y, b.dy, b.dx].iter().try_for_each(|other| b.x.same_dims(other))?;
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
        gradient.same_dims(&yt)?;
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
        xt.same_dims(&yt)?;
        let words = reserve_of(&xt, reserve_size)?;
        // All of it before anything is drawn, so that a call that fails draws nothing.
        let (range, _) = (self.memory.range(reserve.0, words)?, self.memory.range(x_data.0, xt.span())?);
        self.memory.range(y_data.0, yt.span())?;
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
        yt.same_dims(&xt)?;
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
        elementwise::repeated(&at, &ct)?;
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
        xt.same_dims(&yt)?;
        self.run([(xt.span(), x_data.0)], (yt.span(), y_data.0), |[x], y| {
            elementwise::transform(blend(alpha, beta), &xt, x, &yt, y)
        })
    }
}
