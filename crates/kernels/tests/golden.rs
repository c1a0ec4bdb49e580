//! Against PyTorch on the CPU and NumPy: `golden/vectors.json` and `golden/with_numpy.json`, made once by `golden/make.py`
//! and `golden/with_numpy.py`.

mod common;

use serde::Deserialize;
use vgpu_kernels::activation::{self, Function};
use vgpu_kernels::blas::{self, Gemm, Gemv, Op, Vector};
use vgpu_kernels::convolution::{self, Axis};
use vgpu_kernels::dropout::{Dropout, State};
use vgpu_kernels::pooling::{self, Window};
use vgpu_kernels::reduction::{self, Reduction};
use vgpu_kernels::softmax::{Algorithm, Mode, Softmax};
use vgpu_kernels::{Blend, Convolution, Nan, Normalization, Pooling, Tensor, elementwise};

use common::{LAYOUTS, Layout, Values, assert_close, read};

/// Inputs are sixteenths, so sums of products are exact; what is left is the rounding of functions such as
/// exp, a few units in the last place.
const TOLERANCE: f64 = 1e-6;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
enum Case {
    Convolution(ConvolutionCase),
    Pooling(PoolingCase),
    Softmax { algorithm: String, mode: String, x: Values, y: Values, dy: Values, dx: Values },
    Activation { function: String, coefficient: f32, x: Values, y: Values, dy: Values, dx: Values },
    Add { alpha: f32, beta: f32, a: Values, c: Values, result: Values },
    Gemm(GemmCase),
    Gemv { transposed: bool, alpha: f32, beta: f32, a: Values, x: Values, y: Values, result: Values },
    Vectors { alpha: f32, x: Values, y: Values, axpy: Values, dot: f32, norm: f32 },
    Dropout { probability: f32, elements: usize, kept: usize, pairs: usize, scale: f32 },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConvolutionCase {
    name: String,
    pad: Vec<i64>,
    stride: Vec<i64>,
    dilation: Vec<i64>,
    groups: i64,
    flip: bool,
    x: Values,
    w: Values,
    b: Values,
    y: Values,
    dy: Values,
    dx: Values,
    dw: Values,
    db: Values,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolingCase {
    name: String,
    mode: String,
    window: Vec<i64>,
    pad: Vec<i64>,
    stride: Vec<i64>,
    x: Values,
    y: Values,
    dy: Values,
    dx: Values,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GemmCase {
    transposed: [bool; 2],
    sizes: [i64; 3],
    alpha: f32,
    beta: f32,
    a: Values,
    b: Values,
    c: Values,
    result: Values,
}

/// Runs `check` with every case that it takes, and sees that there are as many as expected.
fn each(expected: usize, mut check: impl FnMut(Case) -> bool) {
    let golden: Golden = serde_json::from_str(include_str!("../golden/vectors.json")).unwrap();
    let checked = golden.cases.into_iter().filter_map(|case| check(case).then_some(())).count();
    assert_eq!(checked, expected);
}

/// Memory full of NaN for a tensor, which must all be written over.
fn blank(tensor: &Tensor) -> Vec<f32> {
    vec![f32::NAN; tensor.span()]
}

/// The inputs' layout and the output's, in every combination.
fn layouts() -> impl Iterator<Item = (Layout, Layout)> {
    LAYOUTS.into_iter().flat_map(|a| LAYOUTS.into_iter().map(move |b| (a, b)))
}

fn check_convolution(case: &ConvolutionCase, filter: Layout, data: Layout) {
    let ConvolutionCase { name, pad, stride, dilation, .. } = case;
    let axes: Vec<Axis> =
        (0..pad.len()).map(|i| Axis::new(pad[i], stride[i], dilation[i]).unwrap()).collect();
    let mode = match case.flip {
        true => convolution::Mode::Convolution,
        false => convolution::Mode::CrossCorrelation,
    };
    let ((xt, x), (wt, w), (yt, dy)) =
        (case.x.laid_out(data), case.w.laid_out(filter), case.dy.laid_out(data));
    let bias = Values {
        dims: (0..case.x.dims.len()).map(|i| if i == 1 { case.w.dims[0] } else { 1 }).collect(),
        data: case.b.data.clone(),
    };
    let (bt, b) = bias.laid_out(data);
    let convolution = Convolution::new(&axes, case.groups, mode, xt, wt, yt).unwrap();

    let mut y = blank(&yt);
    convolution.forward(Blend::REPLACE, &x, &w, &mut y).unwrap();
    elementwise::add(Blend { alpha: 1.0, beta: 1.0 }, &bt, &b, &yt, &mut y).unwrap();
    assert_close(name, &read(&yt, &y).data, &case.y.data, TOLERANCE);

    let mut dx = blank(&xt);
    convolution.backward_data(Blend::REPLACE, &w, &dy, &mut dx).unwrap();
    assert_close(name, &read(&xt, &dx).data, &case.dx.data, TOLERANCE);

    let mut dw = blank(&wt);
    convolution.backward_filter(Blend::REPLACE, &x, &dy, &mut dw).unwrap();
    assert_close(name, &read(&wt, &dw).data, &case.dw.data, TOLERANCE);

    let mut db = blank(&bt);
    convolution::backward_bias(Blend::REPLACE, &yt, &dy, &bt, &mut db).unwrap();
    assert_close(name, &read(&bt, &db).data, &case.db.data, TOLERANCE);
}

#[test]
fn convolutions() {
    each(15, |case| {
        let Case::Convolution(case) = case else { return false };
        layouts().for_each(|(filter, data)| check_convolution(&case, filter, data));
        true
    });
}

fn check_pooling(case: &PoolingCase, mode: pooling::Mode, from: Layout, to: Layout) {
    let PoolingCase { name, window, pad, stride, .. } = case;
    let windows: Vec<Window> =
        (0..pad.len()).map(|i| Window::new(window[i], pad[i], stride[i]).unwrap()).collect();
    let ((xt, x), (yt, dy)) = (case.x.laid_out(from), case.dy.laid_out(to));
    let pooling = Pooling::new(mode, &windows, xt, yt).unwrap();
    let mut y = blank(&yt);
    pooling.forward(Blend::REPLACE, &x, &mut y).unwrap();
    assert_close(name, &read(&yt, &y).data, &case.y.data, TOLERANCE);
    let mut dx = blank(&xt);
    pooling.backward(Blend::REPLACE, &dy, &x, &mut dx).unwrap();
    assert_close(name, &read(&xt, &dx).data, &case.dx.data, TOLERANCE);
}

#[test]
fn poolings() {
    each(9, |case| {
        let Case::Pooling(case) = case else { return false };
        let mode = match case.mode.as_str() {
            "max" => pooling::Mode::Max(Nan::Propagate),
            "including" => pooling::Mode::AverageIncludingPadding,
            _ => pooling::Mode::AverageExcludingPadding,
        };
        layouts().for_each(|(from, to)| check_pooling(&case, mode, from, to));
        true
    });
}

#[test]
fn softmaxes() {
    each(7, |case| {
        let Case::Softmax { algorithm, mode, x, y, dy, dx } = case else { return false };
        let name = format!("{algorithm}, {mode}");
        let algorithm = match algorithm.as_str() {
            "fast" => Algorithm::Fast,
            "accurate" => Algorithm::Accurate,
            _ => Algorithm::Log,
        };
        let mode = if mode == "instance" { Mode::Instance } else { Mode::Channel };
        for (from, to) in layouts() {
            let ((xt, x), (yt, y_memory)) = (x.laid_out(from), y.laid_out(to));
            let softmax = Softmax::new(algorithm, mode, xt, yt).unwrap();
            let mut got = blank(&yt);
            softmax.forward(Blend::REPLACE, &x, &mut got).unwrap();
            assert_close(&name, &read(&yt, &got).data, &y.data, TOLERANCE);

            let ((dyt, dy), mut got) = (dy.laid_out(from), blank(&yt));
            let softmax = Softmax::new(algorithm, mode, dyt, yt).unwrap();
            softmax.backward(Blend::REPLACE, &yt, &y_memory, &dy, &mut got).unwrap();
            assert_close(&name, &read(&yt, &got).data, &dx.data, TOLERANCE);
        }
        true
    });
}

#[test]
fn activations() {
    each(7, |case| {
        let Case::Activation { function: name, coefficient, x, y, dy, dx } = case else { return false };
        let nan = Nan::Propagate;
        let function = match name.as_str() {
            "sigmoid" => Function::Sigmoid,
            "relu" => Function::Relu(nan),
            "tanh" => Function::Tanh,
            "clipped relu" => Function::ClippedRelu { ceiling: coefficient, nan },
            "elu" => Function::Elu { alpha: coefficient },
            "identity" => Function::Identity,
            _ => Function::Swish { beta: coefficient },
        };
        for (from, to) in layouts() {
            let ((xt, x), (yt, y_memory), (dyt, dy)) = (x.laid_out(from), y.laid_out(to), dy.laid_out(from));
            let mut got = blank(&yt);
            activation::forward(function, Blend::REPLACE, &xt, &x, &yt, &mut got).unwrap();
            assert_close(&name, &read(&yt, &got).data, &y.data, TOLERANCE);
            let (tensors, mut got) = (activation::Backward { y: yt, dy: dyt, x: xt, dx: yt }, blank(&yt));
            tensors.run(function, Blend::REPLACE, &y_memory, &dy, &x, &mut got).unwrap();
            assert_close(&name, &read(&yt, &got).data, &dx.data, TOLERANCE);
        }
        true
    });
}

#[test]
fn additions() {
    each(3, |case| {
        let Case::Add { alpha, beta, a, c, result } = case else { return false };
        for (from, to) in layouts() {
            let ((at, a), (ct, mut c)) = (a.laid_out(from), c.laid_out(to));
            elementwise::add(Blend { alpha, beta }, &at, &a, &ct, &mut c).unwrap();
            assert_close("add", &read(&ct, &c).data, &result.data, TOLERANCE);
        }
        true
    });
}

/// A matrix in column order with a leading dimension that leaves a gap: (values, leading dimension).
fn columns<T: Copy + From<f32>>(matrix: &Values<T>) -> (Vec<T>, i64) {
    let (rows, count) = (matrix.dims[0], matrix.dims[1]);
    let ld = rows + 3;
    let mut memory = vec![f32::NAN.into(); ld * count];
    for (i, value) in matrix.data.iter().enumerate() {
        memory[i / count + i % count * ld] = *value;
    }
    (memory, ld as i64)
}

fn op(transposed: bool) -> Op {
    if transposed { Op::Transpose } else { Op::None }
}

#[test]
fn matrix_products() {
    each(6, |case| {
        let Case::Gemm(case) = case else { return false };
        let ((a, lda), (b, ldb)) = (columns(&case.a), columns(&case.b));
        let (mut c, ldc) = columns(&case.c);
        let gemm = Gemm::new(case.transposed.map(op), case.sizes, [lda, ldb, ldc]).unwrap();
        gemm.run(Blend { alpha: case.alpha, beta: case.beta }, &a, &b, &mut c).unwrap();
        let (want, _) = columns(&case.result);
        assert_close("gemm", &c, &want, TOLERANCE);
        true
    });
}

/// Three elements apart, counted from the end.
fn backwards(values: &Values) -> Vec<f32> {
    let mut memory = vec![f32::NAN; (values.data.len() - 1) * 3 + 1];
    for (i, value) in values.data.iter().rev().enumerate() {
        memory[i * 3] = *value;
    }
    memory
}

#[test]
fn matrix_vector_products() {
    each(2, |case| {
        let Case::Gemv { transposed, alpha, beta, a, x, y, result } = case else { return false };
        let (sizes, (a, lda)) = ([a.dims[0] as i64, a.dims[1] as i64], columns(&a));
        let mut forwards = y.data.clone();
        let gemv = Gemv::new(op(transposed), sizes, lda, [1, 1]).unwrap();
        gemv.run(Blend { alpha, beta }, &a, &x.data, &mut forwards).unwrap();
        assert_close("gemv", &forwards, &result.data, TOLERANCE);

        let mut memory = backwards(&y);
        let gemv = Gemv::new(op(transposed), sizes, lda, [-3, -3]).unwrap();
        gemv.run(Blend { alpha, beta }, &a, &backwards(&x), &mut memory).unwrap();
        assert_close("gemv", &memory, &backwards(&result), TOLERANCE);
        true
    });
}

#[test]
fn vector_operations() {
    each(1, |case| {
        let Case::Vectors { alpha, x, y, axpy, dot, norm } = case else { return false };
        let n = x.data.len() as i64;
        let (straight, back) = (Vector::new(n, 1).unwrap(), Vector::new(n, -3).unwrap());
        let mut got = backwards(&y);
        blas::axpy(alpha, straight, &x.data, back, &mut got).unwrap();
        assert_close("axpy", &got, &backwards(&axpy), TOLERANCE);
        let got = blas::dot(straight, &x.data, back, &backwards(&y)).unwrap();
        assert_close("dot", &[got], &[dot], TOLERANCE);
        assert_close("nrm2", &[blas::nrm2(straight, &x.data).unwrap()], &[norm], TOLERANCE);
        true
    });
}

/// What NumPy says, in double precision.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
enum Number {
    Reduction { name: String, a: Values, c: Values, indices: Vec<u32> },
    Product(Product),
    Normalization { n: i64, parameters: [f64; 3], x: Values, y: Values, dy: Values, dx: Values },
    Vectors { alpha: f64, x: Values<f64>, y: Values<f64>, axpy: Values<f64>, dot: f64, norm: f64, sum: f64 },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Product {
    transposed: [bool; 2],
    sizes: [i64; 3],
    alpha: f64,
    beta: f64,
    a: Values<f64>,
    b: Values<f64>,
    c: Values<f64>,
    result: Values<f64>,
}

/// Calls `check` with each of NumPy's cases, of which it takes `expected`.
fn each_number(expected: usize, mut check: impl FnMut(Number) -> bool) {
    #[derive(Deserialize)]
    struct Golden {
        cases: Vec<Number>,
    }
    let golden: Golden = serde_json::from_str(include_str!("../golden/with_numpy.json")).unwrap();
    let checked = golden.cases.into_iter().filter_map(|case| check(case).then_some(())).count();
    assert_eq!(checked, expected);
}

#[test]
fn reductions() {
    each_number(27, |case| {
        let Number::Reduction { name, a, c, indices } = case else { return false };
        let op = match name.as_str() {
            "add" => reduction::Op::Add,
            "multiply" => reduction::Op::Multiply,
            "minimum" => reduction::Op::Minimum,
            "maximum" => reduction::Op::Maximum,
            "maximum size" => reduction::Op::MaximumSize,
            "average" => reduction::Op::Average,
            "norm 1" => reduction::Op::Norm1,
            "norm 2" => reduction::Op::Norm2,
            _ => reduction::Op::MultiplyNonZero,
        };
        for (from, to) in layouts() {
            let (at, am) = a.laid_out(from);
            let ct = to.tensor(&c.dims);
            let ours = Reduction::new(op, Nan::Propagate, at, ct).unwrap();
            let mut got = blank(&ct);
            ours.run(Blend::REPLACE, &am, &mut got).unwrap();
            assert_close(&name, &read(&ct, &got).data, &c.data, TOLERANCE);
            let mut places = vec![f32::NAN; indices.len()];
            if !indices.is_empty() {
                ours.indices(&am, &mut places).unwrap();
            }
            let places: Vec<u32> = places.iter().map(|place| place.to_bits()).collect();
            assert_eq!(places, indices, "{name}");
        }
        true
    });
}

#[test]
fn normalizations() {
    each_number(5, |case| {
        let Number::Normalization { n, parameters, x, y, dy, dx } = case else { return false };
        for (from, to) in layouts() {
            let ((xt, x), (dyt, dy)) = (x.laid_out(from), dy.laid_out(from));
            let yt = to.tensor(&y.dims);
            let ours = Normalization::new(n, parameters, xt, yt).unwrap();
            let mut got = blank(&yt);
            ours.forward(Blend::REPLACE, &x, &mut got).unwrap();
            assert_close("y", &read(&yt, &got).data, &y.data, TOLERANCE);
            let mut got = blank(&yt);
            ours.backward(Blend::REPLACE, &dyt, &dy, &x, &mut got).unwrap();
            assert_close("dx", &read(&yt, &got).data, &dx.data, TOLERANCE);
        }
        true
    });
}

/// Asserts that each is as wanted to the last digits that a sum in another order leaves.
fn assert_double(what: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        let fits = (got - want).abs() <= 1e-14 * want.abs().max(1.0) || got.is_nan() && want.is_nan();
        assert!(fits, "{what}: {got}, not {want}");
    }
}

#[test]
fn products_in_double_precision() {
    each_number(5, |case| {
        let Number::Product(case) = case else { return false };
        let ((a, lda), (b, ldb), (mut c, ldc)) = (columns(&case.a), columns(&case.b), columns(&case.c));
        if case.beta == 0.0 {
            c.fill(f64::NAN);
        }
        let gemm = Gemm::new(case.transposed.map(op), case.sizes, [lda, ldb, ldc]).unwrap();
        gemm.run_double(Blend { alpha: case.alpha, beta: case.beta }, &a, &b, &mut c).unwrap();
        assert_double("gemm", &c, &columns(&case.result).0);
        // A matrix times the other's columns, one by one.
        if !case.transposed[1] {
            let [m, n, k] = case.sizes;
            let (rows, across) = if case.transposed[0] { (k, m) } else { (m, k) };
            let gemv = Gemv::new(op(case.transposed[0]), [rows, across], lda, [1, 1]).unwrap();
            let (mut c, result) = (columns(&case.c).0, columns(&case.result).0);
            for column in 0..n as usize {
                let (x, y) = (&b[column * ldb as usize..], &mut c[column * ldc as usize..]);
                gemv.run(Blend { alpha: case.alpha, beta: case.beta }, &a, x, y).unwrap();
            }
            assert_double("gemv", &c, &result);
        }
        true
    });
}

#[test]
fn vectors_in_double_precision() {
    each_number(1, |case| {
        let Number::Vectors { alpha, x, y, axpy, dot, norm, sum } = case else { return false };
        let v = Vector::new(x.data.len() as i64, 1).unwrap();
        let mut got = y.data.clone();
        blas::axpy(alpha, v, &x.data, v, &mut got).unwrap();
        assert_double("axpy", &got, &axpy.data);
        assert_double("dot", &[blas::dot(v, &x.data, v, &y.data).unwrap()], &[dot]);
        assert_double("nrm2", &[blas::nrm2(v, &x.data).unwrap()], &[norm]);
        assert_double("asum", &[blas::asum(v, &x.data).unwrap()], &[sum]);
        true
    });
}

/// Whether a count of `n` events of this probability is within five standard deviations: once in 1.7
/// million it is not.
fn likely(count: usize, n: usize, probability: f64) -> bool {
    let n = n as f64;
    (count as f64 - n * probability).abs() <= 5.0 * (n * probability * (1.0 - probability)).sqrt()
}

#[test]
fn dropout() {
    each(4, |case| {
        let Case::Dropout { probability, elements, kept, pairs, scale } = case else { return false };
        let stays = 1.0 - f64::from(probability);
        let dropout = Dropout::new(probability).unwrap();
        let mut reserve = vec![f32::NAN; Dropout::reserve(elements)];
        dropout.draw(&mut State::new(7), elements, &mut reserve).unwrap();
        let shape = Tensor::packed(&[1, elements as i64]).unwrap();
        let mut factors = vec![f32::NAN; elements];
        dropout.apply(&reserve, &shape, &vec![1.0; elements], &shape, &mut factors).unwrap();
        let ours = factors.iter().filter(|&&factor| factor != 0.0).count();
        let together = factors.windows(2).filter(|pair| pair[0] != 0.0 && pair[1] != 0.0).count();
        assert!(likely(kept, elements, stays) && likely(ours, elements, stays));
        // Neighbouring pairs overlap, so their number varies up to three times as much in square.
        assert!(
            likely(pairs / 3, elements / 3, stays * stays)
                && likely(together / 3, elements / 3, stays * stays)
        );
        // PyTorch takes the probability in double precision, cuDNN in single.
        let close = |factor: f32| (factor - scale).abs() <= 1e-6 * scale;
        assert!(factors.iter().all(|&factor| factor == 0.0 || close(factor)));
        true
    });
}
