//! The backend of hosts without a GPU, and of tests: contents and addresses become geometries and ranges of
//! [`vgpu_kernels`]. Touches nothing but its client's memory.
//!
//! Single precision; anything else is not supported. All that a client sends is checked there, or in [`Memory`].

use vgpu_kernels::convolution::{self, Axis};
use vgpu_kernels::pooling::{self, Window};
use vgpu_kernels::softmax::{self, Softmax};
use vgpu_kernels::{self as kernels, Blend, Error, Nan, Tensor as Shape, activation, arena, elementwise};

use crate::api::{Handle, Read, Scalar, Update, Write};
use crate::cudnn::activation::Activation;
use crate::cudnn::backend::Backend;
use crate::cudnn::convolution::Convolution;
use crate::cudnn::filter::Filter;
use crate::cudnn::pooling::Pooling;
use crate::cudnn::tensor::Tensor;
use crate::cudnn::{FLOAT, NCHW, NHWC, Result, Status};
use crate::memory::Memory;
use crate::worker::Device;

/// Computes on the CPU, for one client.
#[derive(Debug)]
pub struct Cpu {
    memory: Memory,
}

/// An operand: its shape, and its address.
type At<'a> = (&'a Shape, u64);

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
        inputs: [At<'_>; N],
        output: At<'_>,
        compute: impl FnOnce([&[f32]; N], &mut [f32]) -> kernels::Result<()>,
    ) -> Result {
        let mut ranges = [const { 0..0 }; N];
        for (range, (shape, address)) in ranges.iter_mut().zip(inputs) {
            *range = self.memory.range(address, shape.span())?;
        }
        let output = self.memory.range(output.1, output.0.span())?;
        Ok(arena::write(self.memory.numbers(), ranges, output, compute)?)
    }
}

impl Device for Cpu {
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        self.memory.allocate(bytes)
    }

    fn free(&mut self, address: u64) -> bool {
        self.memory.free(address)
    }

    fn bytes(&mut self, address: u64, len: usize) -> Result<&mut [u8]> {
        self.memory.bytes(address, len)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(_) => Self::BadParam,
            Error::Unsupported(_) => Self::NotSupported,
            Error::Short { .. } => Self::ExecutionFailed,
        }
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

impl Backend for Cpu {
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
        self.run([(c.x(), x_data.0), (c.w(), w_data.0)], (c.y(), y_data.0), |[x, w], y| {
            c.forward(blend(alpha, beta), x, w, y)
        })
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
        self.run([(c.w(), w_data.0), (c.y(), dy_data.0)], (c.x(), dx_data.0), |[w, dy], dx| {
            c.backward_data(blend(alpha, beta), w, dy, dx)
        })
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
        self.run([(c.x(), x_data.0), (c.y(), dy_data.0)], (c.w(), dw_data.0), |[x, dy], dw| {
            c.backward_filter(blend(alpha, beta), x, dy, dw)
        })
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
        self.run([(&y, dy_data.0)], (&b, db_data.0), |[dy], db| {
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
        self.run([(&xt, x_data.0)], (&yt, y_data.0), |[x], y| {
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
        let inputs = [(&b.y, y_data.0), (&b.dy, dy_data.0), (&b.x, x_data.0)];
        self.run(inputs, (&b.dx, dx_data.0), |[y, dy, x], dx| b.run(f, blend(alpha, beta), y, dy, x, dx))
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
        self.run([(p.x(), x_data.0)], (p.y(), y_data.0), |[x], y| p.forward(blend(alpha, beta), x, y))
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
        self.run([(p.y(), dy_data.0), (p.x(), x_data.0)], (p.x(), dx_data.0), |[dy, x], dx| {
            p.backward(blend(alpha, beta), dy, x, dx)
        })
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
        self.run([(&xt, x_data.0)], (&yt, y_data.0), |[x], y| s.forward(blend(alpha, beta), x, y))
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
        self.run([(&yt, y_data.0), (&gradient, dy_data.0)], (&xt, dx_data.0), |[y, dy], dx| {
            s.backward(blend(alpha, beta), &yt, y, dy, dx)
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
        self.run([(&at, a_data.0)], (&ct, c_data.0), |[a], c| {
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
        self.run([(&xt, x_data.0)], (&yt, y_data.0), |[x], y| {
            elementwise::transform(blend(alpha, beta), &xt, x, &yt, y)
        })
    }
}
