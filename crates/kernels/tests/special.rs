//! NaN, infinities, zeros of alpha and beta, and operands in the same place.

mod common;

use vgpu_kernels::activation::{self, Backward, Function};
use vgpu_kernels::blas::{self, Gemm, Gemv, Op, Vector};
use vgpu_kernels::dropout::Dropout;
use vgpu_kernels::pooling::{self, Pooling, Window};
use vgpu_kernels::softmax::{Algorithm, Mode, Softmax};
use vgpu_kernels::{Blend, Nan, Tensor, arena, elementwise};

const NAN: f32 = f32::NAN;
const NEW: Blend = Blend::REPLACE;

fn row(len: i64) -> Tensor {
    Tensor::packed(&[1, 1, 1, len]).unwrap()
}

/// NaN is like NaN here.
#[track_caller]
fn assert_same(got: &[f32], want: &[f32]) {
    common::assert_close("", got, want, 0.0);
}

#[test]
fn nan_in_activations() {
    let ceiling = 6.0;
    let cases = [
        (Function::Relu(Nan::Ignore), 0.0, 0.0),
        (Function::Relu(Nan::Propagate), NAN, NAN),
        (Function::ClippedRelu { ceiling, nan: Nan::Ignore }, 0.0, 0.0),
        (Function::ClippedRelu { ceiling, nan: Nan::Propagate }, NAN, NAN),
        (Function::Sigmoid, NAN, NAN),
        (Function::Tanh, NAN, NAN),
        (Function::Elu { alpha: 1.0 }, NAN, NAN),
        (Function::Swish { beta: 1.0 }, NAN, NAN),
    ];
    for (f, value, gradient) in cases {
        let (t, mut y, mut dx) = (row(1), [7.0], [7.0]);
        activation::forward(f, NEW, &t, &[NAN], &t, &mut y).unwrap();
        assert_same(&y, &[value]);
        let tensors = Backward { y: t, dy: t, x: t, dx: t };
        tensors.run(f, NEW, &y, &[1.0], &[NAN], &mut dx).unwrap();
        assert_same(&dx, &[gradient]);
    }
}

#[test]
fn far_ends_of_activations() {
    let ends = |f: Function| {
        let mut y = [0.0; 2];
        activation::forward(f, NEW, &row(2), &[-1e30, 1e30], &row(2), &mut y).unwrap();
        y
    };
    assert_eq!(ends(Function::Sigmoid), [0.0, 1.0]);
    assert_eq!(ends(Function::Tanh), [-1.0, 1.0]);
    assert_eq!(ends(Function::ClippedRelu { ceiling: 6.0, nan: Nan::Ignore }), [0.0, 6.0]);
    assert_eq!(ends(Function::Elu { alpha: 0.5 }), [-0.5, 1e30]);
    assert_eq!(ends(Function::Swish { beta: 1.0 }), [0.0, 1e30]);
}

/// A gradient that is not let through leaves a zero, even if it is a NaN.
#[test]
fn a_closed_relu_stops_a_nan() {
    let (t, mut dx) = (row(2), [7.0; 2]);
    let tensors = Backward { y: t, dy: t, x: t, dx: t };
    tensors.run(Function::Relu(Nan::Ignore), NEW, &[0.0; 2], &[NAN; 2], &[-1.0, 0.0], &mut dx).unwrap();
    assert_eq!(dx, [0.0; 2]);
}

fn max(nan: Nan, window: i64, pad: i64, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let windows = [Window::new(1, 0, 1).unwrap(), Window::new(window, pad, window).unwrap()];
    let len = x.len() as i64;
    let (xt, yt) = (row(len), row(1 + (len + 2 * pad - window) / window));
    let pooling = Pooling::new(pooling::Mode::Max(nan), &windows, xt, yt).unwrap();
    let (mut y, mut dx) = (vec![7.0; yt.span()], vec![7.0; x.len()]);
    pooling.forward(NEW, x, &mut y).unwrap();
    pooling.backward(NEW, &vec![1.0; y.len()], x, &mut dx).unwrap();
    (y, dx)
}

#[test]
fn nan_in_max_pooling() {
    let x = [1.0, NAN, 2.0, NAN, NAN, NAN];
    let (y, dx) = max(Nan::Ignore, 3, 0, &x);
    assert_same(&y, &[2.0, f32::NEG_INFINITY]);
    assert_same(&dx, &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    let (y, dx) = max(Nan::Propagate, 3, 0, &x);
    assert_same(&y, &[NAN, NAN]);
    assert_same(&dx, &[0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn padding_is_no_maximum() {
    assert_eq!(max(Nan::Ignore, 2, 1, &[-3.0, -1.0]).0, [-3.0, -1.0]);
    assert_eq!(max(Nan::Ignore, 1, 1, &[-3.0]).0, [f32::NEG_INFINITY, -3.0, f32::NEG_INFINITY]);
    assert_eq!(max(Nan::Ignore, 1, 0, &[f32::NEG_INFINITY]).1, [1.0]);
}

#[test]
fn great_values_in_softmax() {
    let softmax = |algorithm| {
        let t = Tensor::packed(&[1, 2, 1, 1]).unwrap();
        let mut y = [7.0; 2];
        Softmax::new(algorithm, Mode::Channel, t, t).unwrap().forward(NEW, &[1000.0, 999.0], &mut y).unwrap();
        y
    };
    assert!(softmax(Algorithm::Fast)[0].is_nan());
    let first = 1.0 / (1.0 + (-1.0_f64).exp());
    common::assert_close("", &softmax(Algorithm::Accurate), &[first, 1.0 - first], 1e-6);
    common::assert_close("", &softmax(Algorithm::Log), &[first.ln(), (1.0 - first).ln()], 1e-6);
}

#[test]
fn dropped_is_zero_even_of_a_nan() {
    let mut y = [7.0; 2];
    let half = Dropout::new(0.5).unwrap();
    half.apply(&[f32::from_bits(0b10)], &row(2), &[NAN, 3.0], &row(2), &mut y).unwrap();
    assert_eq!(y, [0.0, 6.0]);
}

/// The bits of dropout follow the dimensions, not the layout.
#[test]
fn dropped_elements_do_not_depend_on_the_layout() {
    let dims = [1, 2, 1, 2];
    let (packed, last) = (Tensor::packed(&dims).unwrap(), Tensor::channels_last(&dims).unwrap());
    let (half, reserve) = (Dropout::new(0.5).unwrap(), [f32::from_bits(0b0110)]);
    let mut y = [7.0; 4];
    half.apply(&reserve, &packed, &[1.0, 2.0, 3.0, 4.0], &packed, &mut y).unwrap();
    assert_eq!(y, [0.0, 4.0, 6.0, 0.0]);
    half.apply(&reserve, &last, &[1.0, 3.0, 2.0, 4.0], &last, &mut y).unwrap();
    assert_eq!(y, [0.0, 6.0, 4.0, 0.0]);
}

#[test]
fn nothing_is_read_for_an_alpha_of_zero() {
    let fade = Blend { alpha: 0.0, beta: 2.0 };
    let mut c = [1.0, 2.0, 3.0, 4.0];
    let gemm = Gemm::new([Op::None; 2], [2, 2, 2], [2; 3]).unwrap();
    gemm.run(fade, &[NAN; 4], &[NAN; 4], &mut c).unwrap();
    assert_eq!(c, [2.0, 4.0, 6.0, 8.0]);
    let mut y = [1.0, 2.0];
    let gemv = Gemv::new(Op::None, [2, 2], 2, [1, 1]).unwrap();
    gemv.run(fade, &[NAN; 4], &[NAN; 2], &mut y).unwrap();
    assert_eq!(y, [2.0, 4.0]);
    let two = Vector::new(2, 1).unwrap();
    blas::axpy(0.0, two, &[NAN; 2], two, &mut y).unwrap();
    assert_eq!(y, [2.0, 4.0]);
}

#[test]
fn a_product_over_nothing() {
    let gemm = Gemm::new([Op::None; 2], [2, 1, 0], [2, 1, 2]).unwrap();
    let mut c = [NAN; 2];
    gemm.run(NEW, &[], &[], &mut c).unwrap();
    assert_eq!(c, [0.0; 2]);
}

#[test]
fn increments_that_are_not_positive() {
    let mut x = [1.0, 2.0];
    for inc in [0, -1] {
        let vector = Vector::new(2, inc).unwrap();
        blas::scal(5.0, vector, &mut x).unwrap();
        assert_eq!((x, blas::nrm2(vector, &x).unwrap()), ([1.0, 2.0], 0.0));
    }
    let (still, moving) = (Vector::new(2, 0).unwrap(), Vector::new(2, 1).unwrap());
    assert_eq!(blas::dot(still, &[3.0], moving, &x), Ok(9.0));
    assert_eq!(Vector::new(-5, 1).unwrap().span(), 0);
}

#[test]
fn a_norm_whose_squares_overflow() {
    let two = Vector::new(2, 1).unwrap();
    assert_eq!(blas::nrm2(two, &[3e38, 0.0]), Ok(3e38));
    assert_eq!(blas::nrm2(two, &[3e-45, 0.0]), Ok(3e-45));
    // Squares that double precision does not hold.
    for scale in [2.0_f64.powi(1000), 2.0_f64.powi(-1000), f64::from_bits(1)] {
        assert_eq!(blas::nrm2(two, &[3.0 * scale, -4.0 * scale]), Ok(5.0 * scale));
    }
    assert_eq!(blas::nrm2(two, &[f64::INFINITY, 1.0]), Ok(f64::INFINITY));
    assert!(blas::nrm2(two, &[f64::NAN, 2.0_f64.powi(1000)]).unwrap().is_nan());
}

#[test]
fn scaling_and_setting_leave_the_gaps() {
    let t = Tensor::new(&[2, 2], &[3, 1]).unwrap();
    let mut y = [1.0, 2.0, NAN, 3.0, 4.0];
    elementwise::scale(2.0, &t, &mut y).unwrap();
    assert_same(&y, &[2.0, 4.0, NAN, 6.0, 8.0]);
    elementwise::set(5.0, &t, &mut y).unwrap();
    assert_same(&y, &[5.0, 5.0, NAN, 5.0, 5.0]);
}

/// In place, an operation gives what it gives elsewhere: forward over its input, backward over the gradient.
#[test]
fn in_place() {
    let (t, f) = (row(3), Function::Elu { alpha: 1.0 });
    let x = [-1.0, 0.5, 2.0];
    let mut apart = [0.0; 3];
    activation::forward(f, NEW, &t, &x, &t, &mut apart).unwrap();
    let mut memory = x;
    let all = 0..3;
    arena::write(&mut memory, [all.clone()], all, |[x], y| activation::forward(f, NEW, &t, x, &t, y))
        .unwrap();
    assert_eq!(memory, apart);

    let t = Tensor::packed(&[1, 3, 1, 1]).unwrap();
    let softmax = Softmax::new(Algorithm::Accurate, Mode::Channel, t, t).unwrap();
    let (y, dy) = ([0.2, 0.3, 0.5], [1.0, -1.0, 2.0]);
    softmax.backward(NEW, &t, &y, &dy, &mut apart).unwrap();
    let mut memory = [0.2, 0.3, 0.5, 1.0, -1.0, 2.0];
    arena::write(&mut memory, [0..3, 3..6], 3..6, |[y, dy], dx| softmax.backward(NEW, &t, y, dy, dx))
        .unwrap();
    assert_eq!(memory[3..], apart);
}
