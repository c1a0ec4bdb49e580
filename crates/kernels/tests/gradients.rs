//! Every backward against finite differences of its forward.
//!
//! For a gradient dy of the output, the sum of `dy * forward(x)` is a number that depends on x; its central
//! difference along each element of x must be what backward says. With steps of 1/64, the difference of a
//! smooth function is off by at most a sixth of the step's square times the third derivative (4e-5 where
//! that is 1; of the functions here it is below 2), and by the forward's rounding, 6e-8 a term, over twice
//! the step (2e-6 a term, few terms): 1e-3 is more than both. Of a linear function only the rounding is left.

mod common;

use vgpu_kernels::activation::{self, Function};
use vgpu_kernels::convolution::{self, Axis, Convolution};
use vgpu_kernels::dropout::{Dropout, State};
use vgpu_kernels::pooling::{self, Pooling, Window};
use vgpu_kernels::softmax::{Algorithm, Mode, Softmax};
use vgpu_kernels::{Blend, Nan, Normalization, Tensor};

use common::{Values, assert_close};

const STEP: f32 = 1.0 / 64.0;
const TOLERANCE: f64 = 1e-3;

/// Different multiples of 1/16 between -2 and 2 (up to 64 of them), none zero and no two closer than two
/// steps, in no order.
fn values(dims: &[usize]) -> Values {
    let mut at = 0;
    Values::of(dims, || {
        at = (at + 37) % 64;
        (at as f32 - 31.5) / 16.0
    })
}

/// The derivative of the sum of `dy * forward(x)` along each element of x.
fn differences(x: &[f32], dy: &[f32], forward: impl Fn(&[f32]) -> Vec<f32>) -> Vec<f64> {
    let sum =
        |x: &[f32]| -> f64 { forward(x).iter().zip(dy).map(|(&y, &dy)| f64::from(y) * f64::from(dy)).sum() };
    let along = |i: usize| {
        let mut moved = x.to_vec();
        moved[i] = x[i] + STEP;
        let above = sum(&moved);
        moved[i] = x[i] - STEP;
        (above - sum(&moved)) / f64::from(2.0 * STEP)
    };
    (0..x.len()).map(along).collect()
}

fn run(len: usize, compute: impl FnOnce(&mut [f32]) -> vgpu_kernels::Result<()>) -> Vec<f32> {
    let mut result = vec![f32::NAN; len];
    compute(&mut result).unwrap();
    result
}

fn packed(dims: &[i64]) -> Tensor {
    Tensor::packed(dims).unwrap()
}

const NEW: Blend = Blend::REPLACE;

#[test]
fn convolution() {
    for mode in [convolution::Mode::Convolution, convolution::Mode::CrossCorrelation] {
        let axes = [Axis::new(2, 2, 1).unwrap(), Axis::new(1, 1, 2).unwrap()];
        let (xt, wt, yt) = (packed(&[2, 4, 5, 6]), packed(&[6, 2, 3, 2]), packed(&[2, 6, 4, 6]));
        let ours = Convolution::new(&axes, 2, mode, xt, wt, yt).unwrap();
        let [x, w, dy] = [xt, wt, yt].map(|tensor| values(tensor.dims()).data);

        let dx = run(x.len(), |dx| ours.backward_data(NEW, &w, &dy, dx));
        let forward = |x: &[f32]| run(dy.len(), |y| ours.forward(NEW, x, &w, y));
        assert_close("dx", &dx, &differences(&x, &dy, forward), TOLERANCE);

        let dw = run(w.len(), |dw| ours.backward_filter(NEW, &x, &dy, dw));
        let forward = |w: &[f32]| run(dy.len(), |y| ours.forward(NEW, &x, w, y));
        assert_close("dw", &dw, &differences(&w, &dy, forward), TOLERANCE);
    }
}

#[test]
fn bias() {
    let (bt, yt) = (packed(&[1, 3, 1, 1]), packed(&[2, 3, 2, 4]));
    let [b, dy] = [bt, yt].map(|tensor| values(tensor.dims()).data);
    let db = run(b.len(), |db| convolution::backward_bias(NEW, &yt, &dy, &bt, db));
    let forward = |b: &[f32]| run(dy.len(), |y| vgpu_kernels::elementwise::add(NEW, &bt, b, &yt, y));
    assert_close("db", &db, &differences(&b, &dy, forward), TOLERANCE);
}

#[test]
fn pooling() {
    let modes = [
        pooling::Mode::Max(Nan::Ignore),
        pooling::Mode::Max(Nan::Propagate),
        pooling::Mode::AverageIncludingPadding,
        pooling::Mode::AverageExcludingPadding,
    ];
    for mode in modes {
        let windows = [Window::new(3, 1, 2).unwrap(), Window::new(2, 1, 1).unwrap()];
        let (xt, yt) = (packed(&[1, 2, 5, 6]), packed(&[1, 2, 3, 7]));
        let ours = Pooling::new(mode, &windows, xt, yt).unwrap();
        let [x, dy] = [xt, yt].map(|tensor| values(tensor.dims()).data);
        let dx = run(x.len(), |dx| ours.backward(NEW, &dy, &x, dx));
        let forward = |x: &[f32]| run(dy.len(), |y| ours.forward(NEW, x, y));
        assert_close(&format!("{mode:?}"), &dx, &differences(&x, &dy, forward), TOLERANCE);
    }
}

#[test]
fn softmax() {
    for algorithm in [Algorithm::Fast, Algorithm::Accurate, Algorithm::Log] {
        for mode in [Mode::Instance, Mode::Channel] {
            let xt = packed(&[2, 4, 2, 3]);
            let ours = Softmax::new(algorithm, mode, xt, xt).unwrap();
            let (x, dy) = (values(xt.dims()).data, values(&[48]).data);
            let forward = |x: &[f32]| run(dy.len(), |y| ours.forward(NEW, x, y));
            let y = forward(&x);
            let dx = run(x.len(), |dx| ours.backward(NEW, &xt, &y, &dy, dx));
            let wanted = differences(&x, &dy, forward);
            assert_close(&format!("{algorithm:?}, {mode:?}"), &dx, &wanted, TOLERANCE);
        }
    }
}

#[test]
fn normalization() {
    for (n, parameters) in [(3, [0.5, 0.75, 1.0]), (4, [1.0, 0.5, 2.0])] {
        let xt = packed(&[2, 4, 2, 3]);
        let ours = Normalization::new(n, parameters, xt, xt).unwrap();
        let (x, dy) = (values(xt.dims()).data, values(&[48]).data);
        let dx = run(x.len(), |dx| ours.backward(NEW, &xt, &dy, &x, dx));
        let wanted = differences(&x, &dy, |x| run(dy.len(), |y| ours.forward(NEW, x, y)));
        assert_close(&format!("{n}"), &dx, &wanted, TOLERANCE);
    }
}

#[test]
fn activation() {
    let functions = [
        Function::Sigmoid,
        Function::Relu(Nan::Ignore),
        Function::Relu(Nan::Propagate),
        Function::Tanh,
        Function::ClippedRelu { ceiling: 1.0, nan: Nan::Ignore },
        Function::Elu { alpha: 0.5 },
        Function::Identity,
        Function::Swish { beta: 1.25 },
    ];
    for f in functions {
        let xt = packed(&[1, 4, 4, 4]);
        let [x, dy] = [xt, packed(&[64])].map(|tensor| values(tensor.dims()).data);
        let forward = |x: &[f32]| run(dy.len(), |y| activation::forward(f, NEW, &xt, x, &xt, y));
        let y = forward(&x);
        let tensors = activation::Backward { y: xt, dy: xt, x: xt, dx: xt };
        let dx = run(x.len(), |dx| tensors.run(f, NEW, &y, &dy, &x, dx));
        assert_close(&format!("{f:?}"), &dx, &differences(&x, &dy, forward), TOLERANCE);
    }
}

#[test]
fn dropout() {
    let xt = packed(&[1, 2, 4, 6]);
    let [x, dy] = [xt, packed(&[48])].map(|tensor| values(tensor.dims()).data);
    let (quarter, mut reserve) = (Dropout::new(0.25).unwrap(), [0.0; 2]);
    quarter.draw(&mut State::new(3), 48, &mut reserve).unwrap();
    let forward = |x: &[f32]| run(dy.len(), |y| quarter.apply(&reserve, &xt, x, &xt, y));
    let dx = run(x.len(), |dx| quarter.apply(&reserve, &xt, &dy, &xt, dx));
    assert_close("dropout", &dx, &differences(&x, &dy, forward), TOLERANCE);
}
