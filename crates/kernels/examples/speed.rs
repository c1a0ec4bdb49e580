//! Prints what the products and convolutions of LeNet-5 cost on one thread:
//! `cargo run --release -p vgpu-kernels --example speed`. Nothing passes or fails.

use std::hint::black_box;
use std::time::Duration;

use vgpu_kernels::blas::{Gemm, Op};
use vgpu_kernels::convolution::{Axis, Convolution, Mode};
use vgpu_kernels::pooling::{self, Pooling, Window};
use vgpu_kernels::{Blend, Nan, Tensor};

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

fn print(what: &str, products: f64, time: Duration) {
    let rate = 2.0 * products / time.as_secs_f64() / 1e9;
    println!("{what:<40} {:>9.1} µs {rate:>6.1} GFLOP/s", time.as_secs_f64() * 1e6);
}

fn gemm(ops: [Op; 2], [m, n, k]: [i32; 3]) {
    let ld = |op, rows, columns| if op == Op::None { rows } else { columns };
    let gemm = Gemm::new(ops, [m, n, k], [ld(ops[0], m, k), ld(ops[1], k, n), m]).unwrap();
    let (a, b) = (vec![1.0; gemm.a().span()], vec![1.0; gemm.b().span()]);
    let mut c = vec![0.0; gemm.c().span()];
    let time = cost(|| gemm.run(NEW, &a, &b, black_box(&mut c)).unwrap());
    print(&format!("gemm {ops:?} {m}x{n}x{k}"), f64::from(m) * f64::from(n) * f64::from(k), time);
}

/// A convolution forward and both ways back.
fn convolution(
    batch: i64,
    [inputs, outputs]: [i64; 2],
    size: i64,
    filter: i64,
    layout: fn(&[i64]) -> Tensor,
) {
    let out = size - filter + 1;
    let (xt, yt) = (layout(&[batch, inputs, size, size]), layout(&[batch, outputs, out, out]));
    let wt = layout(&[outputs, inputs, filter, filter]);
    let axes = [Axis::new(0, 1, 1).unwrap(); 2];
    let convolution = Convolution::new(&axes, 1, Mode::CrossCorrelation, xt, wt, yt).unwrap();
    let mut x = vec![1.0; xt.span()];
    let mut w = vec![1.0; wt.span()];
    let mut y = vec![1.0; yt.span()];
    let products = (yt.elements() * wt.elements()) as f64 / outputs as f64;
    let name = format!("convolution {inputs}x{size}x{size} to {outputs}, {filter}x{filter}");
    let time = cost(|| convolution.forward(NEW, &x, &w, black_box(&mut y)).unwrap());
    print(&format!("{name}, y"), products, time);
    let time = cost(|| convolution.backward_data(NEW, &w, &y, black_box(&mut x)).unwrap());
    print(&format!("{name}, dx"), products, time);
    let time = cost(|| convolution.backward_filter(NEW, &x, &y, black_box(&mut w)).unwrap());
    print(&format!("{name}, dw"), products, time);
}

fn pooling(batch: i64, channels: i64, size: i64) {
    let (xt, yt) = (packed(&[batch, channels, size, size]), packed(&[batch, channels, size / 2, size / 2]));
    let windows = [Window::new(2, 0, 2).unwrap(); 2];
    let pooling = Pooling::new(pooling::Mode::Max(Nan::Ignore), &windows, xt, yt).unwrap();
    let (x, mut y, mut dx) = (vec![1.0; xt.span()], vec![1.0; yt.span()], vec![1.0; xt.span()]);
    let time = cost(|| pooling.forward(NEW, &x, black_box(&mut y)).unwrap());
    println!("pooling {channels}x{size}x{size}, y {:>27.1} µs", time.as_secs_f64() * 1e6);
    let time = cost(|| pooling.backward(NEW, &y, &x, black_box(&mut dx)).unwrap());
    println!("pooling {channels}x{size}x{size}, dx {:>26.1} µs", time.as_secs_f64() * 1e6);
}

fn packed(dims: &[i64]) -> Tensor {
    Tensor::packed(dims).unwrap()
}

fn channels_last(dims: &[i64]) -> Tensor {
    Tensor::channels_last(dims).unwrap()
}

fn main() {
    use Op::{None, Transpose};
    for ops in [[None, None], [Transpose, None], [None, Transpose], [Transpose, Transpose]] {
        gemm(ops, [512, 512, 512]);
    }
    println!("\nLeNet-5, batch 64");
    for layout in [packed, channels_last] {
        convolution(64, [1, 20], 28, 5, layout);
        convolution(64, [20, 50], 12, 5, layout);
    }
    pooling(64, 20, 24);
    pooling(64, 50, 8);
    gemm([Transpose, None], [500, 64, 800]);
    gemm([None, None], [800, 64, 500]);
    gemm([None, Transpose], [800, 500, 64]);
    println!("\nResNet-50, batch 1");
    convolution(1, [64, 64], 56, 1, packed);
    convolution(1, [64, 64], 58, 3, packed);
}
