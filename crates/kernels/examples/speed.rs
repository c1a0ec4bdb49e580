//! Prints what the products and convolutions of LeNet-5 cost on one thread:
//! `cargo run --release -p vgpu-kernels --example speed`. Nothing passes or fails.

use std::hint::black_box;
use std::time::Duration;

use vgpu_kernels::activation::{self, Function};
use vgpu_kernels::blas::{Gemm, Op};
use vgpu_kernels::convolution::{Axis, Convolution, Mode, backward_bias};
use vgpu_kernels::pooling::{self, Pooling, Window};
use vgpu_kernels::{Blend, Nan, Tensor, elementwise};

const NEW: Blend = Blend::REPLACE;

/// How long this thread has been on a CPU (`/proc/[pid]/schedstat`, proc(5)): other programs do not count.
fn on_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// What a run costs, on average over a fifth of a second: the kernel counts in ticks.
fn cost(mut run: impl FnMut()) -> Duration {
    let (start, mut runs) = (on_cpu(), 0);
    loop {
        run();
        runs += 1;
        let cost = on_cpu() - start;
        if cost > Duration::from_millis(200) {
            return cost / runs;
        }
    }
}

/// Prints what a run costs, and its rate where it is one of so many products; returns the cost.
fn measure(what: &str, products: Option<usize>, run: impl FnMut()) -> Duration {
    let cost = cost(run);
    let rate = products.map(|products| 2.0 * products as f64 / cost.as_secs_f64() / 1e9);
    let rate = rate.map_or(String::new(), |rate| format!("{rate:>8.1} GFLOP/s"));
    println!("  {what:<40} {:>9.1} µs{rate}", cost.as_secs_f64() * 1e6);
    cost
}

fn gemm(ops: [Op; 2], [m, n, k]: [i64; 3]) -> Duration {
    let ld = |op, rows, columns| if op == Op::None { rows } else { columns };
    let gemm = Gemm::new(ops, [m, n, k], [ld(ops[0], m, k), ld(ops[1], k, n), m]).unwrap();
    let (a, b) = (vec![1.0; gemm.a().span()], vec![1.0; gemm.b().span()]);
    let mut c = vec![0.0; gemm.c().span()];
    let what = format!("gemm {ops:?} {m}x{n}x{k}");
    measure(&what, Some((m * n * k) as usize), || gemm.run(NEW, &a, &b, black_box(&mut c)).unwrap())
}

/// A convolution forward, back to the data and back to the filter.
fn convolution(
    batch: i64,
    [inputs, outputs]: [i64; 2],
    size: i64,
    filter: i64,
    layout: Layout,
) -> [Duration; 3] {
    let out = size - filter + 1;
    let (xt, yt) = (layout(&[batch, inputs, size, size]), layout(&[batch, outputs, out, out]));
    let wt = layout(&[outputs, inputs, filter, filter]);
    let axes = [Axis::new(0, 1, 1).unwrap(); 2];
    let ours = Convolution::new(&axes, 1, Mode::CrossCorrelation, xt, wt, yt).unwrap();
    let [mut x, mut w, mut y] = [xt, wt, yt].map(|tensor| vec![1.0; tensor.span()]);
    let products = Some(yt.elements() / outputs as usize * wt.elements());
    let what = format!("{inputs}x{size}x{size} to {outputs}, {filter}x{filter}");
    [
        measure(&format!("{what}: y"), products, || ours.forward(NEW, &x, &w, black_box(&mut y)).unwrap()),
        measure(&format!("{what}: dx"), products, || {
            ours.backward_data(NEW, &w, &y, black_box(&mut x)).unwrap()
        }),
        measure(&format!("{what}: dw"), products, || {
            ours.backward_filter(NEW, &x, &y, black_box(&mut w)).unwrap()
        }),
    ]
}

/// What follows a convolution, forward and back: bias, relu, pooling.
fn rest(batch: i64, channels: i64, size: i64) -> Duration {
    let (xt, yt) = (packed(&[batch, channels, size, size]), packed(&[batch, channels, size / 2, size / 2]));
    let bt = packed(&[1, channels, 1, 1]);
    let windows = [Window::new(2, 0, 2).unwrap(); 2];
    let pooling = Pooling::new(pooling::Mode::Max(Nan::Ignore), &windows, xt, yt).unwrap();
    let relu = Function::Relu(Nan::Ignore);
    let [mut b, x, mut y, mut dx] = [bt, xt, yt, xt].map(|tensor| vec![1.0; tensor.span()]);
    let tensors = activation::Backward { y: xt, dy: xt, x: xt, dx: xt };
    let what = format!("{channels}x{size}x{size}");
    [
        measure(&format!("{what}: bias"), None, || {
            elementwise::add(Blend { alpha: 1.0, beta: 1.0 }, &bt, &b, &xt, black_box(&mut dx)).unwrap();
        }),
        measure(&format!("{what}: relu"), None, || {
            activation::forward(relu, NEW, &xt, &x, &xt, black_box(&mut dx)).unwrap();
        }),
        measure(&format!("{what}: pooling"), None, || pooling.forward(NEW, &x, black_box(&mut y)).unwrap()),
        measure(&format!("{what}: pooling, back"), None, || {
            pooling.backward(NEW, &y, &x, black_box(&mut dx)).unwrap();
        }),
        measure(&format!("{what}: relu, back"), None, || {
            tensors.run(relu, NEW, &x, &x, &x, black_box(&mut dx)).unwrap();
        }),
        measure(&format!("{what}: bias, back"), None, || {
            backward_bias(NEW, &xt, &x, &bt, black_box(&mut b)).unwrap();
        }),
    ]
    .iter()
    .sum()
}

type Layout = fn(&[i64]) -> Tensor;

fn packed(dims: &[i64]) -> Tensor {
    Tensor::packed(dims).unwrap()
}

fn channels_last(dims: &[i64]) -> Tensor {
    Tensor::channels_last(dims).unwrap()
}

fn main() {
    use Op::{None, Transpose};
    println!("Products of matrices");
    for ops in [[None, None], [Transpose, None], [None, Transpose], [Transpose, Transpose]] {
        gemm(ops, [512, 512, 512]);
    }
    for (name, layout) in [("NCHW", packed as Layout), ("NHWC", channels_last)] {
        println!("LeNet-5 (20 and 50 channels), {name}, batch 64");
        let [y, _, dw] = convolution(64, [1, 20], 28, 5, layout);
        let second: Duration = convolution(64, [20, 50], 12, 5, layout).iter().sum();
        let others = rest(64, 20, 24) + rest(64, 50, 8);
        let dense: Duration = [
            ([Transpose, None], [500, 64, 800]),
            ([None, None], [800, 64, 500]),
            ([None, Transpose], [800, 500, 64]),
        ]
        .map(|(ops, sizes)| gemm(ops, sizes))
        .iter()
        .sum();
        println!("  an iteration, nearly: {:.1} ms", (y + dw + second + others + dense).as_secs_f64() * 1e3);
    }
    println!("ResNet-50, batch 1");
    convolution(1, [64, 64], 56, 1, packed);
    convolution(1, [64, 64], 58, 3, packed);
}
