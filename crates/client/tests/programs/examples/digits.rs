//! Trains a small convolutional net of the crate `juice` to tell digits, on the GPU that there is, and says what its loss
//! was in the first and the last tenth, how many percent of other digits it then gets right, and what its weights came
//! to. The same each time: weights begin as they are set here.
//!
//! Digits come one by one: the crate's linear layer copies a batch's gradients into the room of one digit's.

use std::rc::Rc;
use std::sync::{Arc, RwLock};

use coaster::frameworks::cuda::get_cuda_backend;
use coaster::prelude::*;
use juice::layer::{Layer, LayerConfig, LayerType};
use juice::layers::{
    ConvolutionConfig, LinearConfig, NegativeLogLikelihoodConfig, PoolingConfig, PoolingMode,
    SequentialConfig,
};
use juice::solver::{Solver, SolverConfig};
use juice::util::{ArcLock, write_to_memory};

const SIDE: usize = 12;
const TRAINED: usize = 600;
const TESTED: usize = 200;

/// Each digit's rows, of five points.
const POINTS: [[u8; 7]; 10] = [
    [0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110],
    [0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110],
    [0b01110, 0b10001, 0b00001, 0b00110, 0b01000, 0b10000, 0b11111],
    [0b11111, 0b00010, 0b00100, 0b00010, 0b00001, 0b10001, 0b01110],
    [0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010],
    [0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110],
    [0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110],
    [0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000],
    [0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110],
    [0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100],
];

/// Numbers from 0 to 1 that are as good as random, and the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() * end as f32) as usize
    }

    /// A digit somewhere in an image with noise.
    fn digit(&mut self) -> (usize, Vec<f32>) {
        let mut image: Vec<f32> = (0..SIDE * SIDE).map(|_| 0.25 * self.next() - 0.25).collect();
        let (digit, top, left) = (self.below(10), 2 + self.below(3), 3 + self.below(3));
        for (row, points) in POINTS[digit].iter().enumerate() {
            for column in (0..5).filter(|column| points >> (4 - column) & 1 == 1) {
                image[(top + row) * SIDE + left + column] += 1.0;
            }
        }
        (digit, image)
    }
}

type Gpu = Backend<Cuda>;

fn net() -> LayerConfig {
    let mut net = SequentialConfig::default();
    net.add_input("data", &[1, 1, SIDE, SIDE]);
    net.force_backward = true;
    let (filter_shape, padding, stride) = (vec![5], vec![0], vec![1]);
    let convolution = ConvolutionConfig { num_output: 8, filter_shape, padding, stride };
    net.add_layer(LayerConfig::new("convolution", convolution));
    let (filter_shape, padding, stride) = (vec![2], vec![0], vec![2]);
    let pooling = PoolingConfig { mode: PoolingMode::Max, filter_shape, padding, stride };
    net.add_layer(LayerConfig::new("pooling", LayerType::Pooling(pooling)));
    net.add_layer(LayerConfig::new("hidden", LinearConfig { output_size: 32 }));
    net.add_layer(LayerConfig::new("relu", LayerType::ReLU));
    net.add_layer(LayerConfig::new("linear", LinearConfig { output_size: 10 }));
    net.add_layer(LayerConfig::new("log_softmax", LayerType::LogSoftmax));
    LayerConfig::new("net", net)
}

fn objective() -> LayerConfig {
    let mut objective = SequentialConfig::default();
    objective.add_input("net_out", &[1, 10]);
    objective.add_input("label", &[1, 1]);
    let likelihood = NegativeLogLikelihoodConfig { num_classes: 10 };
    objective.add_layer(LayerConfig::new("likelihood", LayerType::NegativeLogLikelihood(likelihood)));
    LayerConfig::new("objective", objective)
}

fn native() -> Backend<Native> {
    Backend::<Native>::default().unwrap()
}

fn put(tensor: &ArcLock<SharedTensor<f32>>, numbers: &[f32]) {
    write_to_memory(tensor.write().unwrap().write_only(native().device()).unwrap(), numbers);
}

fn get(tensor: &ArcLock<SharedTensor<f32>>) -> Vec<f32> {
    tensor.read().unwrap().read(native().device()).unwrap().as_slice::<f32>().to_vec()
}

/// Sets all weights, to less the more there are of them.
fn begin(net: &Layer<Gpu>, random: &mut Random) {
    for weight in net.learnable_weights_data() {
        let (count, most) = {
            let shape = weight.read().unwrap().desc().clone();
            (shape.size(), (3.0 / shape.iter().skip(1).product::<usize>() as f32).sqrt())
        };
        let numbers: Vec<f32> = (0..count).map(|_| most * (2.0 * random.next() - 1.0)).collect();
        put(&weight, &numbers);
    }
}

/// FNV-1a of their bits.
fn hash(numbers: impl Iterator<Item = f32>) -> u64 {
    let bytes = numbers.flat_map(f32::to_le_bytes);
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[expect(clippy::arc_with_non_send_sync, reason = "the crate asks for it")]
fn main() {
    let gpu = Rc::new(get_cuda_backend());
    let mut config = SolverConfig { base_lr: 0.02, momentum: 0.5, ..SolverConfig::default() };
    (config.network, config.objective) = (net(), objective());
    let mut solver = Solver::from_config(gpu.clone(), gpu, &config);
    let mut random = Random(1);
    begin(solver.network(), &mut random);

    let [data, label] = [&[1, 1, SIDE, SIDE][..], &[1, 1]]
        .map(|shape| Arc::new(RwLock::new(SharedTensor::<f32>::new(&shape.to_vec()))));
    let mut losses = Vec::new();
    for _ in 0..TRAINED {
        let (digit, image) = random.digit();
        put(&data, &image);
        put(&label, &[digit as f32]);
        losses.push(-get(&solver.train_minibatch(data.clone(), label.clone()))[digit]);
    }
    let mut right = 0;
    let tested = std::env::args().nth(1).map_or(TESTED, |tested| tested.parse().unwrap());
    for _ in 0..tested {
        let (digit, image) = random.digit();
        put(&data, &image);
        let likely = get(&solver.mut_network().forward(std::slice::from_ref(&data))[0]);
        right += usize::from(likely.iter().all(|other| *other <= likely[digit]));
    }
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    let tenth = TRAINED / 10;
    let weights = solver.network().learnable_weights_data().into_iter().flat_map(|weight| get(&weight));
    println!(
        "{:.3} {:.3} {:.1} {:016x}",
        mean(&losses[..tenth]),
        mean(&losses[TRAINED - tenth..]),
        100.0 * right as f32 / tested.max(1) as f32,
        hash(weights)
    );
}
