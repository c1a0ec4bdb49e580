//! Against the definitions, written out in double precision in `common/naive.rs`, over random geometries.

mod common;

use proptest::prelude::*;
use proptest::sample::select;
use vgpu_kernels::blas::{self, Gemm, Gemv, Op, Vector};
use vgpu_kernels::convolution::{self, Convolution};
use vgpu_kernels::pooling::{self, Pooling, Window};
use vgpu_kernels::reduction::Reduction;
use vgpu_kernels::softmax::{Algorithm, Mode, Softmax};
use vgpu_kernels::{Blend, Nan, Tensor, elementwise};

use common::{LAYOUTS, Layout, Values, assert_close, naive, read};

/// Values lie between -1 and 1 and no sum here has more than a thousand terms: their roundings, 6e-8 each,
/// add up to less than this even where all go the same way.
const TOLERANCE: f64 = 1e-4;

/// Numbers between -1 and 1 that follow from a seed.
fn numbers(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

fn layout() -> impl Strategy<Value = Layout> {
    select(&LAYOUTS[..])
}

fn blend() -> impl Strategy<Value = Blend> {
    select(vec![(1.0, 0.0), (1.0, 1.0), (0.5, -2.0), (0.0, 1.5), (-1.5, 0.0)])
        .prop_map(|(alpha, beta)| Blend { alpha, beta })
}

/// Runs `compute` on an output that holds other values, or NaN where they must not be read, and asserts that
/// it blends `result` into them.
fn check(
    what: &str,
    blend: Blend,
    tensor: &Tensor,
    result: &[f64],
    compute: impl FnOnce(Blend, &mut [f32]) -> vgpu_kernels::Result<()>,
) {
    let mut number = numbers(99);
    let prior = Values::of(tensor.dims(), || if blend.beta == 0.0 { f32::NAN } else { number() });
    let mut memory = vec![f32::NAN; tensor.span()];
    common::places(tensor).zip(&prior.data).for_each(|(place, &value)| memory[place] = value);
    compute(blend, &mut memory).unwrap();
    let (alpha, beta) = (f64::from(blend.alpha), f64::from(blend.beta));
    let blended = |(result, prior): (&f64, &f32)| match beta {
        0.0 => alpha * result,
        _ => alpha * result + beta * f64::from(*prior),
    };
    let want: Vec<f64> = result.iter().zip(&prior.data).map(blended).collect();
    assert_close(what, &read(tensor, &memory).data, &want, TOLERANCE);
}

/// A convolution of one to three spatial dimensions: batch, groups, channels of a group on both sides, and
/// (input, filter, axis) for each spatial dimension, the filter no larger than the padded input.
type Sizes = (usize, usize, usize, usize, Vec<(usize, usize, naive::Axis)>);

fn axis() -> impl Strategy<Value = (usize, usize, naive::Axis)> {
    (1..7_usize, 1..4_usize, 0..3_usize, 1..4_usize, 1..4_usize).prop_map(|(x, w, pad, stride, dilation)| {
        let room = x + 2 * pad - 1;
        let w = w.min(room / dilation + 1);
        (x, w, naive::Axis { pad, stride, dilation })
    })
}

fn sizes() -> impl Strategy<Value = Sizes> {
    (1..3_usize, 1..4_usize, 1..4_usize, 1..4_usize, prop::collection::vec(axis(), 1..4))
}

fn convolve(
    (batch, groups, inputs, outputs, spatial): &Sizes,
    flip: bool,
    [data, filter, result]: [Layout; 3],
    blend: Blend,
    seed: u64,
) {
    let dims = |first: [usize; 2], pick: fn(&(usize, usize, naive::Axis)) -> usize| -> Vec<usize> {
        first.into_iter().chain(spatial.iter().map(pick)).collect()
    };
    let mut number = numbers(seed);
    let x = Values::of(&dims([*batch, groups * inputs], |axis| axis.0), &mut number);
    let w = Values::of(&dims([groups * outputs, *inputs], |axis| axis.1), &mut number);
    let axes: Vec<naive::Axis> = spatial.iter().map(|axis| axis.2).collect();
    let by_definition = naive::Convolution { axes, groups: *groups, flip };
    let y = by_definition.forward(&x.double(), &w.double());
    let dy = Values::of(&y.dims, &mut number);
    let [dx, dw] = by_definition.backward(&x.double(), &w.double(), &dy.double());
    let db = naive::bias_gradient(&dy.double());

    let axes: Vec<convolution::Axis> = spatial
        .iter()
        .map(|(_, _, axis)| {
            convolution::Axis::new(axis.pad as i64, axis.stride as i64, axis.dilation as i64).unwrap()
        })
        .collect();
    let mode = match flip {
        true => convolution::Mode::Convolution,
        false => convolution::Mode::CrossCorrelation,
    };
    let ((xt, x), (wt, w), (yt, dy)) = (x.laid_out(data), w.laid_out(filter), dy.laid_out(result));
    let ours = Convolution::new(&axes, *groups as i64, mode, xt, wt, yt).unwrap();
    check("y", blend, &yt, &y.data, |blend, out| ours.forward(blend, &x, &w, out));
    check("dx", blend, &xt, &dx.data, |blend, out| ours.backward_data(blend, &w, &dy, out));
    check("dw", blend, &wt, &dw.data, |blend, out| ours.backward_filter(blend, &x, &dy, out));
    let bt = result.tensor(&db.dims);
    check("db", blend, &bt, &db.data, |blend, out| convolution::backward_bias(blend, &yt, &dy, &bt, out));
}

fn pool() -> impl Strategy<Value = naive::Pool> {
    select(vec![naive::Pool::Max, naive::Pool::Including, naive::Pool::Excluding])
}

/// Input size, window size and how the window goes. Padding may be as wide as the window and wider.
fn window() -> impl Strategy<Value = (usize, usize, naive::Axis)> {
    (1..7_usize, 1..4_usize, 0..4_usize, 1..4_usize).prop_map(|(x, window, pad, stride)| {
        (x, window.min(x + 2 * pad), naive::Axis { pad, stride, dilation: 1 })
    })
}

/// Quarters, of which many are equal: a maximum has ties.
fn coarse(mut number: impl FnMut() -> f32) -> impl FnMut() -> f32 {
    move || (number() * 4.0).round() / 4.0
}

fn matrix(rows: usize, columns: usize, ld: usize, data: &[f32]) -> Vec<f32> {
    let mut memory = vec![f32::NAN; if columns == 0 { 0 } else { (columns - 1) * ld + rows }];
    for (i, value) in data.iter().enumerate() {
        memory[i / columns + i % columns * ld] = *value;
    }
    memory
}

fn multiply([m, n, k]: [usize; 3], transposed: [bool; 2], gap: usize, blend: Blend, seed: u64) {
    let mut number = numbers(seed);
    let shape = |transposed: bool, rows, columns| if transposed { [columns, rows] } else { [rows, columns] };
    let (a, b) = (shape(transposed[0], m, k), shape(transposed[1], k, n));
    let (a, b) = (Values::of(&a, &mut number), Values::of(&b, &mut number));
    let result = naive::product(&a.double(), &b.double(), transposed);
    let ld = |matrix: &Values| matrix.dims[0].max(1) + gap;
    let lds = [ld(&a), ld(&b), m.max(1) + gap].map(|ld| ld as i64);
    let op = |transposed| if transposed { Op::Transpose } else { Op::None };
    let gemm = Gemm::new(transposed.map(op), [m, n, k].map(|size| size as i64), lds).unwrap();
    let a = matrix(a.dims[0], a.dims[1], ld(&a), &a.data);
    let b = matrix(b.dims[0], b.dims[1], ld(&b), &b.data);
    if m == 0 || n == 0 {
        return gemm.run(blend, &a, &b, &mut []).unwrap();
    }
    let c = Tensor::new(&[m as i64, n as i64], &[1, lds[2]]).unwrap();
    check("c", blend, &c, &result.data, |blend, c| gemm.run(blend, &a, &b, c));
}

/// A vector's memory: NaN between its elements.
fn vector(values: &[f32], inc: i64) -> Vec<f32> {
    let step = inc.unsigned_abs() as usize;
    let mut memory = vec![f32::NAN; values.len().saturating_sub(1) * step + usize::from(!values.is_empty())];
    for (i, value) in values.iter().enumerate() {
        memory[if inc < 0 { values.len() - 1 - i } else { i } * step] = *value;
    }
    memory
}

fn inc() -> impl Strategy<Value = i64> {
    select(vec![1, 2, 5, -1, -3])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn convolutions(
        sizes in sizes(),
        flip: bool,
        layouts in [layout(), layout(), layout()],
        blend in blend(),
        seed: u64,
    ) {
        convolve(&sizes, flip, layouts, blend, seed);
    }

    #[test]
    fn reductions(
        dims in prop::collection::vec((1..4_usize, any::<bool>()), 1..6),
        op in select(naive::REDUCTIONS.to_vec()),
        layouts in (layout(), layout()),
        blend in blend(),
        seed: u64,
    ) {
        let (sizes, reduced): (Vec<usize>, Vec<bool>) = dims.into_iter().unzip();
        let a = Values::of(&sizes, coarse(numbers(seed)));
        let (by_definition, places) = naive::reduce(op, &a.double(), &reduced);
        let (at, am) = a.laid_out(layouts.0);
        let ct = layouts.1.tensor(&by_definition.dims);
        let ours = Reduction::new(op, Nan::Ignore, at, ct).unwrap();
        check("c", blend, &ct, &by_definition.data, |blend, c| ours.run(blend, &am, c));
        let mut indices = vec![f32::NAN; places.len()];
        if ours.indices(&am, &mut indices).is_ok() {
            let indices: Vec<u32> = indices.iter().map(|index| index.to_bits()).collect();
            prop_assert_eq!(indices, places);
        }
    }

    #[test]
    fn poolings(
        planes in (1..3_usize, 1..3_usize),
        spatial in prop::collection::vec(window(), 1..4),
        pool in pool(),
        layouts in (layout(), layout()),
        blend in blend(),
        seed: u64,
    ) {
        let mut number = coarse(numbers(seed));
        let dims: Vec<usize> =
            [planes.0, planes.1].into_iter().chain(spatial.iter().map(|axis| axis.0)).collect();
        let x = Values::of(&dims, &mut number);
        let windows = spatial.iter().map(|&(_, window, axis)| (window, axis)).collect();
        let by_definition = naive::Pooling { pool, windows };
        let y = by_definition.forward(&x.double());
        let dy = Values::of(&y.dims, &mut number);
        let dx = by_definition.backward(&x.double(), &dy.double());

        let windows: Vec<Window> = spatial
            .iter()
            .map(|(_, window, axis)| Window::new(*window as i64, axis.pad as i64, axis.stride as i64).unwrap())
            .collect();
        let mode = match pool {
            naive::Pool::Max => pooling::Mode::Max(Nan::Ignore),
            naive::Pool::Including => pooling::Mode::AverageIncludingPadding,
            naive::Pool::Excluding => pooling::Mode::AverageExcludingPadding,
        };
        let ((xt, x), (yt, dy)) = (x.laid_out(layouts.0), dy.laid_out(layouts.1));
        let ours = Pooling::new(mode, &windows, xt, yt).unwrap();
        check("y", blend, &yt, &y.data, |blend, out| ours.forward(blend, &x, out));
        check("dx", blend, &xt, &dx.data, |blend, out| ours.backward(blend, &dy, &x, out));
    }

    #[test]
    fn softmaxes(
        dims in prop::collection::vec(1..5_usize, 2..5),
        channel: bool,
        algorithm in select(vec![Algorithm::Fast, Algorithm::Accurate, Algorithm::Log]),
        layouts in (layout(), layout()),
        blend in blend(),
        seed: u64,
    ) {
        let x = Values::of(&dims, numbers(seed));
        let y = naive::softmax(&x.double(), channel, algorithm == Algorithm::Log);
        let ((xt, x), yt) = (x.laid_out(layouts.0), layouts.1.tensor(&dims));
        let mode = if channel { Mode::Channel } else { Mode::Instance };
        let ours = Softmax::new(algorithm, mode, xt, yt).unwrap();
        check("y", blend, &yt, &y.data, |blend, out| ours.forward(blend, &x, out));
    }

    #[test]
    fn additions(
        dims in prop::collection::vec((1..5_usize, any::<bool>()), 1..6),
        layouts in (layout(), layout()),
        blend in blend(),
        seed: u64,
    ) {
        let whole: Vec<usize> = dims.iter().map(|dim| dim.0).collect();
        let repeated: Vec<usize> = dims.iter().map(|&(dim, repeat)| if repeat { 1 } else { dim }).collect();
        let a = Values::of(&repeated, numbers(seed));
        let result: Vec<f64> = common::indices(&whole)
            .map(|index| index.iter().zip(&dims).map(|(&at, dim)| if dim.1 { 0 } else { at }).collect())
            .map(|index: Vec<i64>| f64::from(a.at(&index)))
            .collect();
        let ((at, a), ct) = (a.laid_out(layouts.0), layouts.1.tensor(&whole));
        check("c", blend, &ct, &result, |blend, c| elementwise::add(blend, &at, &a, &ct, c));
        if repeated == whole {
            check("y", blend, &ct, &result, |blend, c| elementwise::transform(blend, &at, &a, &ct, c));
        }
    }

    #[test]
    fn matrix_products(
        sizes in [0..12_usize, 0..12, 0..12],
        transposed: [bool; 2],
        gap in 0..3_usize,
        blend in blend(),
        seed: u64,
    ) {
        multiply(sizes, transposed, gap, blend, seed);
    }

    #[test]
    fn matrix_vector_products(
        (m, n) in (prop_oneof![1..9_usize, 60..140_usize], 1..9_usize),
        transposed: bool,
        (incx, incy) in (inc(), inc()),
        blend in blend(),
        seed: u64,
    ) {
        let mut number = numbers(seed);
        let a = Values::of(&[m, n], &mut number);
        let (xlen, ylen) = if transposed { (m, n) } else { (n, m) };
        let x = Values::of(&[xlen, 1], &mut number);
        let mut result = naive::product(&a.double(), &x.double(), [transposed, false]).data;
        let op = if transposed { Op::Transpose } else { Op::None };
        let ours = Gemv::new(op, [m as i64, n as i64], m as i64 + 1, [incx, incy]).unwrap();
        let (a, x) = (matrix(m, n, m + 1, &a.data), vector(&x.data, incx));
        if incy < 0 {
            result.reverse();
        }
        let yt = Tensor::new(&[ylen as i64], &[incy.abs()]).unwrap();
        check("y", blend, &yt, &result, |blend, y| ours.run(blend, &a, &x, y));
    }

    #[test]
    fn vectors(n in 0..20_usize, (incx, incy) in (inc(), inc()), alpha in -2.0..2.0_f32, seed: u64) {
        let mut number = numbers(seed);
        let (x, y) = (Values::of(&[n], &mut number).data, Values::of(&[n], &mut number).data);
        let (xv, yv) = (Vector::new(n as i64, incx).unwrap(), Vector::new(n as i64, incy).unwrap());
        let (xm, ym) = (vector(&x, incx), vector(&y, incy));
        let each = |f: &dyn Fn(f32, f32) -> f32| -> Vec<f32> { x.iter().zip(&y).map(|(&x, &y)| f(x, y)).collect() };

        let mut got = ym.clone();
        blas::axpy(alpha, xv, &xm, yv, &mut got).unwrap();
        assert_close("axpy", &got, &vector(&each(&|x, y| y + alpha * x), incy), TOLERANCE);

        let mut got = vec![f32::NAN; ym.len()];
        blas::copy(xv, &xm, yv, &mut got).unwrap();
        assert_close("copy", &got, &vector(&x, incy), 0.0);

        let dot: f64 = each(&|x, y| x * y).iter().map(|&product| f64::from(product)).sum();
        assert_close("dot", &[blas::dot(xv, &xm, yv, &ym).unwrap()], &[dot], TOLERANCE);

        let scales = if incx > 0 { alpha } else { 1.0 };
        let mut got = xm.clone();
        blas::scal(alpha, xv, &mut got).unwrap();
        assert_close("scal", &got, &vector(&each(&|x, _| scales * x), incx), TOLERANCE);

        let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let sizes: f64 = x.iter().map(|&x| f64::from(x).abs()).sum();
        let sizes = if incx > 0 { sizes } else { 0.0 };
        assert_close("asum", &[blas::asum(xv, &xm).unwrap()], &[sizes], TOLERANCE);
        let norm = if incx > 0 { squares.sqrt() } else { 0.0 };
        assert_close("nrm2", &[blas::nrm2(xv, &xm).unwrap()], &[norm], TOLERANCE);
    }
}

/// Sizes beyond those of the product's blocks, in each direction and in all.
#[test]
fn products_of_several_blocks() {
    let blend = Blend { alpha: 0.5, beta: -2.0 };
    for sizes in [[600, 5, 3], [5, 150, 3], [3, 5, 700]] {
        for transposed in [[false, false], [true, true]] {
            multiply(sizes, transposed, 1, blend, 5);
        }
    }
    multiply([514, 66, 258], [false, true], 0, blend, 5);
}

#[test]
fn a_convolution_of_several_blocks() {
    let plain = naive::Axis { pad: 1, stride: 1, dilation: 1 };
    let sizes = (2, 1, 30, 5, vec![(18, 3, plain), (17, 3, plain)]);
    convolve(&sizes, false, [Layout::Packed; 3], Blend { alpha: 1.0, beta: 1.0 }, 3);
}

/// A batch gives each of its elements bit for bit what that element alone gets.
#[test]
fn a_result_does_not_depend_on_what_is_computed_beside_it() {
    let axes = [convolution::Axis::new(1, 1, 1).unwrap(); 2];
    let run = |batch: usize, x: &[f32], w: &[f32]| {
        let batch = batch as i64;
        let (xt, wt) = (Tensor::packed(&[batch, 40, 7, 7]).unwrap(), Tensor::packed(&[5, 40, 3, 3]).unwrap());
        let yt = Tensor::packed(&[batch, 5, 7, 7]).unwrap();
        let mode = convolution::Mode::CrossCorrelation;
        let convolution = Convolution::new(&axes, 1, mode, xt, wt, yt).unwrap();
        let mut y = vec![0.0; yt.span()];
        convolution.forward(Blend::REPLACE, x, w, &mut y).unwrap();
        y
    };
    let mut number = numbers(1);
    let x = Values::of(&[3, 40, 7, 7], &mut number).data;
    let w = Values::of(&[5, 40, 3, 3], &mut number).data;
    let apart: Vec<f32> = x.chunks_exact(40 * 49).flat_map(|x| run(1, x, &w)).collect();
    assert_eq!(run(3, &x, &w), apart);
}
