//! A client may send any numbers. A geometry refuses them or works: nothing panics, and memory that is too
//! short is an error.

use proptest::prelude::*;
use proptest::sample::select;
use vgpu_kernels::activation::{self, Backward, Function};
use vgpu_kernels::blas::{self, Gemm, Gemv, Op, Vector};
use vgpu_kernels::convolution::{self, Axis, Convolution};
use vgpu_kernels::dropout::Dropout;
use vgpu_kernels::pooling::{self, Pooling, Window};
use vgpu_kernels::reduction::{self, Reduction};
use vgpu_kernels::softmax::{Algorithm, Mode, Softmax};
use vgpu_kernels::{Blend, Error, Nan, Normalization, Result, Tensor, elementwise};

/// Mostly a number that is likely to do, sometimes one that is at an end of something.
fn number(usual: std::ops::Range<i64>) -> impl Strategy<Value = i64> {
    prop_oneof![12 => usual, 1 => end()]
}

/// Where one thing or another ends.
fn end() -> impl Strategy<Value = i64> {
    let int = i64::from(i32::MAX);
    select(vec![0, -1, 1, 7, 46_341, 65_536, int, int + 1, 1 << 32, -int - 1, 1 << 62, i64::MAX, i64::MIN])
}

/// A number to put into a list of others, or none.
#[derive(Clone, Debug)]
struct Poke(Option<(prop::sample::Index, i64)>);

fn poke() -> impl Strategy<Value = Poke> {
    prop::option::of((any::<prop::sample::Index>(), end())).prop_map(Poke)
}

impl Poke {
    fn put(&self, numbers: &mut [i64]) {
        if let Some((at, number)) = &self.0 {
            numbers[at.index(numbers.len())] = *number;
        }
    }
}

/// Input, filter and (padding, stride, dilation) of one dimension, the filter no larger than the padded input.
fn axis() -> impl Strategy<Value = (i64, i64, (i64, i64, i64))> {
    (1..4_i64, 1..4_i64, 0..3_i64, 1..3_i64, 1..3_i64).prop_map(|(x, w, pad, stride, dilation)| {
        (x, w.min((x + 2 * pad - 1) / dilation + 1), (pad, stride, dilation))
    })
}

fn dims(rank: std::ops::Range<usize>) -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(number(1..4), rank)
}

type Layout = fn(&[i64]) -> Result<Tensor>;

const LAYOUTS: [Layout; 3] = [Tensor::packed, Tensor::channels_last, stretched];

/// A tensor without gaps whose dimensions of 1 step as far as they can.
fn stretched(dims: &[i64]) -> Result<Tensor> {
    let packed = Tensor::packed(dims)?;
    let far = |(&dim, &stride)| if dim == 1 { i64::from(i32::MAX) } else { stride as i64 };
    let strides: Vec<i64> = dims.iter().zip(packed.strides()).map(far).collect();
    Tensor::new(dims, &strides)
}

/// A tensor of these dimensions, in one of the layouts or with strides of any kind.
fn tensor(dims: Vec<i64>) -> impl Strategy<Value = Result<Tensor>> {
    let strides = prop::collection::vec(number(1..40), dims.len());
    (0..4_usize, strides).prop_map(move |(kind, strides)| match LAYOUTS.get(kind) {
        Some(layout) => layout(&dims),
        None => Tensor::new(&dims, &strides),
    })
}

/// Ones in a slice that holds the span, or is one too short; none where that would be much.
fn memory<const N: usize>(spans: [usize; N], short: usize) -> Option<[Vec<f32>; N]> {
    if spans.iter().any(|&span| span > 512) {
        return None;
    }
    let mut number = 0;
    Some(spans.map(|span| {
        number += 1;
        vec![1.0; if number == short { span.saturating_sub(1) } else { span }]
    }))
}

/// A run on such memory ends well, or says what is too short.
fn assert_result(result: Result<()>, spans: &[usize], short: usize) {
    match short.checked_sub(1).and_then(|i| spans.get(i)) {
        Some(0) | None => assert_eq!(result, Ok(())),
        Some(&needed) => assert_eq!(result, Err(Error::Short { needed, given: needed - 1 })),
    }
}

const NEW: Blend = Blend::REPLACE;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tensors(pair in (dims(0..10), prop::collection::vec(number(1..40), 0..10))) {
        let (dims, strides) = pair;
        if let Ok(tensor) = Tensor::new(&dims, &strides) {
            prop_assert!(tensor.elements() <= tensor.span());
        }
    }

    #[test]
    fn elements(
        (a, c) in dims(1..6).prop_flat_map(|dims| (tensor(dims.clone()), tensor(dims))),
        short in 0..3_usize,
    ) {
        if let (Ok(a), Ok(c)) = (a, c) {
            let spans = [a.span(), c.span()];
            let Some([input, mut output]) = memory(spans, short) else { return Ok(()) };
            if c.is_shared() {
                let refused = elementwise::add(NEW, &a, &vec![1.0; spans[0]], &c, &mut vec![1.0; spans[1]]);
                prop_assert!(matches!(refused, Err(Error::Unsupported(_))));
                return Ok(());
            }
            assert_result(elementwise::add(NEW, &a, &input, &c, &mut output), &spans, short);
            assert_result(elementwise::transform(NEW, &a, &input, &c, &mut output), &spans, short);
            let f = Function::Relu(Nan::Ignore);
            assert_result(activation::forward(f, NEW, &a, &input, &c, &mut output), &spans, short);
            let (half, reserve) = (Dropout::new(0.5).unwrap(), vec![1.0; Dropout::reserve(a.elements())]);
            assert_result(half.apply(&reserve, &a, &input, &c, &mut output), &spans, short);
            assert!(half.apply(&reserve[1..], &a, &input, &c, &mut output).is_err());
            assert_eq!(elementwise::scale(2.0, &c, &mut output).is_ok(), short != 2);
            assert_eq!(elementwise::set(2.0, &c, &mut output).is_ok(), short != 2);
            let all = Backward { y: c, dy: a, x: a, dx: c };
            let result = all.run(f, NEW, &vec![1.0; c.span()], &input, &input, &mut output);
            assert_result(result, &spans, short);
        }
    }

    #[test]
    fn unlike_tensors((a, b) in (dims(1..6), dims(1..6)).prop_flat_map(|(a, b)| (tensor(a), tensor(b)))) {
        if let (Ok(a), Ok(b)) = (a, b) {
            let Some([x, mut y]) = memory([a.span(), b.span()], 0) else { return Ok(()) };
            prop_assume!(!b.is_shared());
            let same = a.dims() == b.dims();
            prop_assert_eq!(elementwise::transform(NEW, &a, &x, &b, &mut y).is_ok(), same);
            if let Ok(reduction) = Reduction::new(reduction::Op::Maximum, Nan::Ignore, a, b) {
                prop_assert_eq!(reduction.run(NEW, &x, &mut y), Ok(()));
                prop_assert_eq!(reduction.indices(&x, &mut vec![1.0; b.elements()]), Ok(()));
                prop_assert!(reduction.run(NEW, &x[1..], &mut y).is_err());
                prop_assert!(reduction.run(NEW, &x, &mut y[1..]).is_err());
            }
            prop_assert_eq!(Softmax::new(Algorithm::Fast, Mode::Channel, a, b).is_ok(), same && a.dims().len() > 1);
            let _ = elementwise::add(NEW, &a, &x, &b, &mut y);
            let _ = convolution::backward_bias(NEW, &a, &x, &b, &mut y);
        }
    }

    #[test]
    fn convolutions(
        (channels, spatial) in (prop::collection::vec(1..4_i64, 4), prop::collection::vec(axis(), 0..5)),
        layouts in [0..3_usize, 0..3, 0..3],
        flip: bool,
        poke in poke(),
        short in 0..4_usize,
    ) {
        let [batch, groups, inputs, outputs] = channels[..] else { unreachable!() };
        // Numbers that fit, in one list, and then perhaps one that does not.
        let mut numbers = vec![groups, batch, groups * inputs, groups * outputs, inputs, batch, groups * outputs];
        for &(x, w, (pad, stride, dilation)) in &spatial {
            let y = 1 + (x + 2 * pad - (w - 1) * dilation - 1) / stride;
            numbers.extend([x, w, y, pad, stride, dilation]);
        }
        poke.put(&mut numbers);
        let (groups, first, rest) = (numbers[0], &numbers[1..7], &numbers[7..]);
        let dims = |at: usize| -> Vec<i64> {
            first[2 * at..][..2].iter().copied().chain(rest.chunks(6).map(|axis| axis[at])).collect()
        };
        let tensor = |at: usize| LAYOUTS[layouts[at]](&dims(at));
        let axes: Result<Vec<Axis>> = rest.chunks(6).map(|axis| Axis::new(axis[3], axis[4], axis[5])).collect();
        let (Ok(axes), Ok(x), Ok(w), Ok(y)) = (axes, tensor(0), tensor(1), tensor(2)) else { return Ok(()) };
        for (axis, (&x, &w)) in axes.iter().zip(x.dims().iter().zip(w.dims())) {
            let _ = axis.output(x, w);
        }
        let mode = if flip { convolution::Mode::Convolution } else { convolution::Mode::CrossCorrelation };
        let Ok(ours) = Convolution::new(&axes, groups, mode, x, w, y) else { return Ok(()) };
        let spans = [x.span(), w.span(), y.span()];
        let Some([mut xm, mut wm, mut ym]) = memory(spans, short) else { return Ok(()) };
        assert_result(ours.forward(NEW, &xm, &wm, &mut ym), &spans, short);
        assert_result(ours.backward_data(NEW, &wm, &ym, &mut xm), &spans, short);
        assert_result(ours.backward_filter(NEW, &xm, &ym, &mut wm), &spans, short);
    }

    /// The output's size need not fit the windows.
    #[test]
    fn poolings(
        (planes, spatial) in ([1..4_i64, 1..4], prop::collection::vec((1..4_i64, axis()), 0..5)),
        layouts in [0..3_usize, 0..3],
        mode in select(vec![
            pooling::Mode::Max(Nan::Ignore),
            pooling::Mode::AverageIncludingPadding,
            pooling::Mode::AverageExcludingPadding,
        ]),
        poke in poke(),
        short in 0..3_usize,
    ) {
        let mut numbers = [planes, planes].concat();
        for &(y, (x, window, (pad, stride, _))) in &spatial {
            numbers.extend([x, y, window, pad, stride]);
        }
        poke.put(&mut numbers);
        let (first, rest) = numbers.split_at(4);
        let dims = |at: usize| -> Vec<i64> {
            first[2 * at..][..2].iter().copied().chain(rest.chunks(5).map(|axis| axis[at])).collect()
        };
        let tensor = |at: usize| LAYOUTS[layouts[at]](&dims(at));
        let windows: Result<Vec<Window>> =
            rest.chunks(5).map(|axis| Window::new(axis[2], axis[3], axis[4])).collect();
        let (Ok(windows), Ok(x), Ok(y)) = (windows, tensor(0), tensor(1)) else { return Ok(()) };
        for (window, &input) in windows.iter().zip(x.dims()) {
            let _ = window.output(input);
        }
        let Ok(ours) = Pooling::new(mode, &windows, x, y) else { return Ok(()) };
        let spans = [x.span(), y.span()];
        let Some([xm, mut ym]) = memory(spans, short) else { return Ok(()) };
        assert_result(ours.forward(NEW, &xm, &mut ym), &spans, short);
        let (dy, mut dx) = (ym, vec![1.0; x.span()]);
        assert_result(ours.backward(NEW, &dy, &xm, &mut dx), &spans, short);
    }

    #[test]
    fn softmaxes(
        (x, y) in dims(0..6).prop_flat_map(|dims| (tensor(dims.clone()), tensor(dims))),
        algorithm in select(vec![Algorithm::Fast, Algorithm::Accurate, Algorithm::Log]),
        mode in select(vec![Mode::Instance, Mode::Channel]),
        short in 0..3_usize,
    ) {
        let (Ok(x), Ok(y)) = (x, y) else { return Ok(()) };
        if let Ok(ours) = Normalization::new(5, [1.0, 0.75, 2.0], x, y) && !y.is_shared() {
            let spans = [x.span(), y.span()];
            if let Some([xm, mut ym]) = memory(spans, short) {
                assert_result(ours.forward(NEW, &xm, &mut ym), &spans, short);
                assert_result(ours.backward(NEW, &x, &vec![1.0; x.span()], &xm, &mut ym), &spans, short);
            }
        }
        let Ok(ours) = Softmax::new(algorithm, mode, x, y) else { return Ok(()) };
        prop_assume!(!y.is_shared());
        let spans = [x.span(), y.span()];
        let Some([xm, mut ym]) = memory(spans, short) else { return Ok(()) };
        assert_result(ours.forward(NEW, &xm, &mut ym), &spans, short);
        assert_result(ours.backward(NEW, &x, &vec![1.0; x.span()], &xm, &mut ym), &spans, short);
    }

    #[test]
    fn matrices(
        sizes in [number(0..6), number(0..6), number(0..6)],
        lds in [number(1..9), number(1..9), number(1..9)],
        incs in [number(1..4), number(-3..1)],
        transposed: [bool; 2],
        short in 0..4_usize,
    ) {
        let ops = transposed.map(|transposed| if transposed { Op::Transpose } else { Op::None });
        if let Ok(gemm) = Gemm::new(ops, sizes, lds) {
            let spans = [gemm.a().span(), gemm.b().span(), gemm.c().span()];
            if let Some([a, b, mut c]) = memory(spans, short) {
                assert_result(gemm.run(NEW, &a, &b, &mut c), &spans, short);
                let [a, b, mut c] = [a, b, c].map(|numbers| numbers.into_iter().map(f64::from).collect::<Vec<_>>());
                let result = gemm.run_double(Blend { alpha: 1.0, beta: 0.0 }, &a, &b, &mut c);
                assert_result(result, &spans, short);
            }
        }
        if let Ok(gemv) = Gemv::new(ops[0], [sizes[0], sizes[1]], lds[0], incs) {
            let spans = [gemv.a().span(), gemv.x().span(), gemv.y().span()];
            if let Some([a, x, mut y]) = memory(spans, short) {
                assert_result(gemv.run(NEW, &a, &x, &mut y), &spans, short);
            }
        }
    }

    #[test]
    fn vectors(
        (n, other) in (number(-2..9), number(-2..9)),
        incs in [number(-4..5), number(-4..5)],
        short in 0..3_usize,
    ) {
        let (Ok(xv), Ok(yv)) = (Vector::new(n, incs[0]), Vector::new(n, incs[1])) else { return Ok(()) };
        let spans = [xv.span(), yv.span()];
        // A step of zero makes a short vector of many elements.
        if n > 65_536 {
            return Ok(());
        }
        if let Some([x, mut y]) = memory(spans, short) {
            assert_result(blas::axpy(2.0, xv, &x, yv, &mut y), &spans, short);
            assert_result(blas::copy(xv, &x, yv, &mut y), &spans, short);
            assert_result(blas::dot(xv, &x, yv, &y).map(|_| ()), &spans, short);
            assert_eq!(blas::nrm2(xv, &x).is_ok(), short != 1 || spans[0] == 0);
            assert_eq!(blas::asum(xv, &x).is_ok(), short != 1 || spans[0] == 0);
            assert_eq!(blas::scal(2.0, yv, &mut y).is_ok(), short != 2 || spans[1] == 0);
        }
        if let Ok(unlike) = Vector::new(other, 1) && n.max(0) != other.max(0) {
            assert!(matches!(blas::dot::<f32>(xv, &[], unlike, &[]), Err(Error::Invalid(_))));
        }
    }
}

/// The numbers that come closest to an overflow.
#[test]
fn the_largest_numbers() {
    let most = i64::from(i32::MAX);
    let axis = Axis::new(most, most, most).unwrap();
    assert_eq!(axis.output(i32::MAX as usize, 1), Ok(3));
    assert!(axis.output(1, 2).is_ok());
    assert!(axis.output(usize::MAX, usize::MAX).is_err());
    assert!(axis.output(0, 0).is_err());
    assert!(Window::new(most, most, most).unwrap().output(usize::MAX).is_err());

    let mode = convolution::Mode::Convolution;
    let one = Tensor::packed(&[1, 1, 1]).unwrap();
    let far = Convolution::new(
        &[Axis::new(most, most, most).unwrap()],
        1,
        mode,
        one,
        one,
        Tensor::packed(&[1, 1, 3]).unwrap(),
    );
    let mut y = [7.0; 3];
    far.unwrap().forward(NEW, &[2.0], &[3.0], &mut y).unwrap();
    assert_eq!(y, [0.0, 6.0, 0.0]);

    // Far outside of a tensor that steps far, places are beyond 64 bits; nothing is there.
    let steps_far = Tensor::new(&[1, 1, 1, 1, 1], &[most; 5]).unwrap();
    let axes = [Axis::new(most, most, most).unwrap(); 3];
    let cube = Tensor::packed(&[1, 1, 3, 3, 3]).unwrap();
    let far = Convolution::new(&axes, 1, mode, steps_far, Tensor::packed(&[1; 5]).unwrap(), cube).unwrap();
    let (mut y, mut dx) = ([7.0; 27], [7.0]);
    far.forward(NEW, &[2.0], &[3.0], &mut y).unwrap();
    assert_eq!((y[13], y.iter().sum::<f32>()), (6.0, 6.0));
    far.backward_data(NEW, &[3.0], &y, &mut dx).unwrap();
    assert_eq!(dx, [18.0]);

    let window = Window::new(most, most, most).unwrap();
    let mean = Pooling::new(
        pooling::Mode::AverageExcludingPadding,
        &[window],
        one,
        Tensor::packed(&[1, 1, 5]).unwrap(),
    );
    let mut y = [7.0; 5];
    mean.unwrap().forward(NEW, &[2.0], &mut y).unwrap();
    assert_eq!(y, [0.0, 2.0, 0.0, 0.0, 0.0]);

    let vector = Vector::new(most, -most).unwrap();
    assert_eq!(vector.span() as u64, (most as u64 - 1) * most as u64 + 1);
    assert!(Vector::new(1, i64::MIN).is_err());
    let sizes = [most; 3];
    assert!(Gemm::new([Op::None; 2], sizes, sizes).unwrap().run(NEW, &[], &[], &mut []).is_err());
    // Nothing, but many rows of it: done at once.
    for sizes in [[0, most, 0], [most, 0, 0], [most, 0, most], [0, 0, most]] {
        Gemm::new([Op::None; 2], sizes, [most; 3]).unwrap().run(NEW, &[], &[], &mut []).unwrap();
    }
}
