//! LeNet-5 learns digits on a real `vgpu-worker`, in each mode: to over 95% right, to the same weights bit for bit, and
//! with reuse without a message for a descriptor.
#![cfg(not(any(loom, feature = "blind")))]

mod common;

use std::path::Path;

use common::{Program, Random, connect, session};
use vgpu_remoting::api::{Handle, Read, Scalar, Update, Write};
use vgpu_remoting::channel::Sent;
use vgpu_remoting::cublas::{Factor, Outcome};
use vgpu_remoting::cudnn::{Result, Version};
use vgpu_remoting::reuse::{Found, Thread};
use vgpu_remoting::session::{Mode, Session};

const V: Version = Version::V9;
const H: Handle = Handle(1);
const ONE: Scalar = Scalar(1.0);
const ZERO: Scalar = Scalar(0.0);
/// Of `cudnnDataType_t`, `cudnnTensorFormat_t`, `cudnnPoolingMode_t`, `cudnnActivationMode_t`, `cudnnSoftmaxMode_t`.
const FLOAT: i32 = 0;
const NCHW: i32 = 0;
const MAX: i32 = 0;
const RELU: i32 = 1;
const CHANNELS: i32 = 1;

const SIDE: usize = 28;
const BATCH: usize = 20;
const STEPS: usize = 150;
const RATE: f32 = 0.1;

/// Digits as they are on a display of five by seven points.
const DIGITS: [[u8; 7]; 10] = [
    [0x0E, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0E],
    [0x04, 0x0C, 0x04, 0x04, 0x04, 0x04, 0x0E],
    [0x0E, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1F],
    [0x1F, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0E],
    [0x02, 0x06, 0x0A, 0x12, 0x1F, 0x02, 0x02],
    [0x1F, 0x10, 0x1E, 0x01, 0x01, 0x11, 0x0E],
    [0x06, 0x08, 0x10, 0x1E, 0x11, 0x11, 0x0E],
    [0x1F, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08],
    [0x0E, 0x11, 0x11, 0x0E, 0x11, 0x11, 0x0E],
    [0x0E, 0x11, 0x11, 0x0F, 0x01, 0x02, 0x0C],
];

/// Digits somewhere in their pictures, three times as large, with noise; and which they are, a number for each of ten.
fn digits(random: &mut Random) -> ([Vec<f32>; 2], Vec<usize>) {
    let (mut pictures, mut right) = (vec![0.0; BATCH * SIDE * SIDE], vec![0.0; BATCH * 10]);
    let mut labels = Vec::new();
    for (picture, right) in pictures.chunks_mut(SIDE * SIDE).zip(right.chunks_mut(10)) {
        let digit = random.below(10) as usize;
        let [top, left] = [random.below(5), random.below(8)].map(|at| at as usize + 2);
        for (i, number) in picture.iter_mut().enumerate() {
            let (row, column) = ((i / SIDE).wrapping_sub(top) / 3, (i % SIDE).wrapping_sub(left) / 3);
            let lit = row < 7 && column < 5 && DIGITS[digit][row] >> (4 - column) & 1 == 1;
            *number = f32::from(u8::from(lit)) + random.below(100) as f32 / 250.0 - 0.2;
        }
        right[digit] = 1.0;
        labels.push(digit);
    }
    ([pictures, right], labels)
}

/// Data and its gradient.
#[derive(Clone, Copy)]
struct Data {
    at: u64,
    gradient: u64,
    count: usize,
}

/// A layer's weights and bias.
struct Weights {
    w: Data,
    b: Data,
}

struct Net<'a> {
    session: &'a Session<'a>,
    thread: Thread<'a>,
    blas: u64,
    /// Calls that compute, and others that are waited for.
    computes: u64,
    waits: u64,
    layers: Vec<Weights>,
    /// Between the layers, the input first.
    data: Vec<Data>,
    right: u64,
}

/// The shapes of what is between the layers: convolution, activation and pooling, twice; then three products, with
/// activations between them; and what comes of the last.
const SHAPES: [[i32; 3]; 13] = [
    [1, 28, 28],
    [6, 28, 28],
    [6, 28, 28],
    [6, 14, 14],
    [16, 10, 10],
    [16, 10, 10],
    [16, 5, 5],
    [120, 1, 1],
    [120, 1, 1],
    [84, 1, 1],
    [84, 1, 1],
    [10, 1, 1],
    [10, 1, 1],
];

/// The shapes of the filters, and the padding.
const FILTERS: [([i32; 4], i32); 2] = [([6, 1, 5, 5], 2), ([16, 6, 5, 5], 0)];

/// How many go into a product, and come out.
const PRODUCTS: [[i32; 2]; 3] = [[400, 120], [120, 84], [84, 10]];

impl<'a> Net<'a> {
    fn new(session: &'a Session<'a>) -> Result<Self> {
        let thread = session.enter();
        let blas = session.cublasCreate_v2()?;
        let right = session.allocate(4 * 10 * BATCH as u64)?;
        let mut net = Self {
            session,
            thread,
            blas,
            computes: 0,
            waits: 0,
            layers: Vec::new(),
            data: Vec::new(),
            right,
        };
        let mut random = Random(3);
        for (dims, _) in FILTERS {
            net.weights(dims.iter().product(), dims[0], &mut random)?;
        }
        for [inputs, outputs] in PRODUCTS {
            net.weights(inputs * outputs, outputs, &mut random)?;
        }
        for shape in SHAPES {
            let data = net.place(BATCH * shape.iter().product::<i32>() as usize)?;
            net.data.push(data);
        }
        Ok(net)
    }

    fn place(&mut self, count: usize) -> Result<Data> {
        let [at, gradient] = [0, 1].map(|_| self.session.allocate(4 * count as u64));
        Ok(Data { at: at?, gradient: gradient?, count })
    }

    /// As large as He and others have it, so that signals neither grow nor fade.
    fn weights(&mut self, count: i32, outputs: i32, random: &mut Random) -> Result {
        let (w, b) = (self.place(count as usize)?, self.place(outputs as usize)?);
        let largest = (6.0 * outputs as f32 / count as f32).sqrt();
        let numbers = (0..count).map(|_| largest * (random.below(2001) as f32 / 1000.0 - 1.0));
        self.put(w.at, &numbers.collect::<Vec<f32>>())?;
        self.put(b.at, &vec![0.0; b.count])?;
        self.layers.push(Weights { w, b });
        Ok(())
    }

    fn put(&mut self, to: u64, numbers: &[f32]) -> Result {
        self.waits += 1;
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.session.copy_in(to, &bytes)
    }

    fn get(&mut self, from: u64, count: usize) -> Result<Vec<f32>> {
        self.waits += 1;
        let mut bytes = vec![0; 4 * count];
        self.session.copy_out(&mut bytes, from)?;
        Ok(bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect())
    }

    /// A descriptor for as long as a call, as PyTorch has them.
    fn with_tensor(&mut self, shape: [i32; 3], call: impl FnOnce(&mut Self, usize) -> Result) -> Result {
        self.with_batch(BATCH as i32, shape, call)
    }

    fn with_batch(
        &mut self,
        n: i32,
        shape: [i32; 3],
        call: impl FnOnce(&mut Self, usize) -> Result,
    ) -> Result {
        let ([c, h, w], session) = (shape, self.session);
        let t = session.cudnnCreateTensorDescriptor(&mut self.thread, V)?;
        session.cudnnSetTensor4dDescriptor(V, t, NCHW, FLOAT, n, c, h, w)?;
        call(self, t)?;
        session.cudnnDestroyTensorDescriptor(&mut self.thread, V, t)
    }

    fn with_bias(&mut self, layer: usize, call: impl FnOnce(&mut Self, usize) -> Result) -> Result {
        let count = self.layers[layer].b.count as i32;
        self.with_batch(1, [count, 1, 1], call)
    }

    fn with_filter(&mut self, layer: usize, call: impl FnOnce(&mut Self, usize, usize) -> Result) -> Result {
        let (([k, c, h, w], padding), session) = (FILTERS[layer], self.session);
        let f = session.cudnnCreateFilterDescriptor(&mut self.thread, V)?;
        session.cudnnSetFilter4dDescriptor(V, f, FLOAT, NCHW, k, c, h, w)?;
        let t = &mut self.thread;
        let conv = session.cudnnCreateConvolutionDescriptor(t, V)?;
        session.cudnnSetConvolution2dDescriptor(V, conv, padding, padding, 1, 1, 1, 1, 1, FLOAT)?;
        call(self, f, conv)?;
        session.cudnnDestroyConvolutionDescriptor(&mut self.thread, V, conv)?;
        session.cudnnDestroyFilterDescriptor(&mut self.thread, V, f)
    }

    fn with_pooling(&mut self, call: impl FnOnce(&mut Self, usize) -> Result) -> Result {
        let session = self.session;
        let pool = session.cudnnCreatePoolingDescriptor(&mut self.thread, V)?;
        session.cudnnSetPooling2dDescriptor(V, pool, MAX, 0, 2, 2, 0, 0, 2, 2)?;
        call(self, pool)?;
        session.cudnnDestroyPoolingDescriptor(&mut self.thread, V, pool)
    }

    fn with_relu(&mut self, call: impl FnOnce(&mut Self, usize) -> Result) -> Result {
        let session = self.session;
        let relu = session.cudnnCreateActivationDescriptor(&mut self.thread, V)?;
        session.cudnnSetActivationDescriptor(V, relu, RELU, 0, 0.0)?;
        call(self, relu)?;
        session.cudnnDestroyActivationDescriptor(&mut self.thread, V, relu)
    }

    /// What lies before and after a step of the net.
    fn around(
        &mut self,
        step: usize,
        call: impl FnOnce(&mut Self, [usize; 2], [Data; 2]) -> Result,
    ) -> Result {
        self.computes += 1;
        let data = [self.data[step], self.data[step + 1]];
        self.with_tensor(SHAPES[step], |net, x| {
            net.with_tensor(SHAPES[step + 1], |net, y| call(net, [x, y], data))
        })
    }

    fn add_bias(&mut self, step: usize, layer: usize) -> Result {
        self.computes += 1;
        let (to, b) = (Update(self.data[step + 1].at), Read(self.layers[layer].b.at));
        self.with_bias(layer, |net, bias| {
            net.with_tensor(SHAPES[step + 1], |net, y| {
                net.session.cudnnAddTensor(&mut net.thread, V, H, ONE, bias, b, ONE, y, to)
            })
        })
    }

    fn bias_gradient(&mut self, step: usize, layer: usize) -> Result {
        self.computes += 1;
        let (from, b) = (Read(self.data[step + 1].gradient), Update(self.layers[layer].b.gradient));
        self.with_bias(layer, |net, bias| {
            net.with_tensor(SHAPES[step + 1], |net, y| {
                net.session.cudnnConvolutionBackwardBias(&mut net.thread, V, H, ONE, y, from, ZERO, bias, b)
            })
        })
    }

    #[rustfmt::skip]
    fn convolve(&mut self, step: usize, layer: usize) -> Result {
        let w = Read(self.layers[layer].w.at);
        self.around(step, |net, [x, y], [from, to]| net.with_filter(layer, |net, f, conv| {
            let (s, t) = (net.session, &mut net.thread);
            let found = s.cudnnGetConvolutionForwardAlgorithm_v7(t, V, H, x, f, conv, y, 1);
            let algorithm = found.results.unwrap().1[0].algorithm;
            let size = s.cudnnGetConvolutionForwardWorkspaceSize(t, V, H, x, f, conv, y, algorithm);
            let size = size.results.unwrap().0;
            s.cudnnConvolutionForward(t, V, H, ONE, x, Read(from.at), f, w, conv, algorithm, Write(0), size, ZERO, y,
                Update(to.at))
        }))?;
        self.add_bias(step, layer)
    }

    #[rustfmt::skip]
    fn convolve_back(&mut self, step: usize, layer: usize) -> Result {
        let w = self.layers[layer].w;
        self.bias_gradient(step, layer)?;
        self.around(step, |net, [x, y], [from, to]| net.with_filter(layer, |net, f, conv| {
            net.session.cudnnConvolutionBackwardFilter(&mut net.thread, V, H, ONE, x, Read(from.at), y,
                Read(to.gradient), conv, 1, Write(0), 0, ZERO, f, Update(w.gradient))
        }))?;
        if step == 0 {
            return Ok(());
        }
        self.around(step, |net, [x, y], [from, to]| net.with_filter(layer, |net, f, conv| {
            net.session.cudnnConvolutionBackwardData(&mut net.thread, V, H, ONE, f, Read(w.at), y,
                Read(to.gradient), conv, 1, Write(0), 0, ZERO, x, Update(from.gradient))
        }))
    }

    fn activate(&mut self, step: usize) -> Result {
        self.around(step, |net, [x, y], [from, to]| {
            net.with_relu(|net, relu| {
                let (from, to) = (Read(from.at), Update(to.at));
                net.session.cudnnActivationForward(&mut net.thread, V, H, relu, ONE, x, from, ZERO, y, to)
            })
        })
    }

    #[rustfmt::skip]
    fn activate_back(&mut self, step: usize) -> Result {
        self.around(step, |net, [x, y], [from, to]| net.with_relu(|net, relu| {
            net.session.cudnnActivationBackward(&mut net.thread, V, H, relu, ONE, y, Read(to.at), y,
                Read(to.gradient), x, Read(from.at), ZERO, x, Update(from.gradient))
        }))
    }

    fn pool(&mut self, step: usize) -> Result {
        self.around(step, |net, [x, y], [from, to]| {
            net.with_pooling(|net, pool| {
                let (from, to) = (Read(from.at), Update(to.at));
                net.session.cudnnPoolingForward(&mut net.thread, V, H, pool, ONE, x, from, ZERO, y, to)
            })
        })
    }

    #[rustfmt::skip]
    fn pool_back(&mut self, step: usize) -> Result {
        self.around(step, |net, [x, y], [from, to]| net.with_pooling(|net, pool| {
            net.session.cudnnPoolingBackward(&mut net.thread, V, H, pool, ONE, y, Read(to.at), y, Read(to.gradient), x,
                Read(from.at), ZERO, x, Update(from.gradient))
        }))
    }

    /// Matrices in column order: a column for each picture; weights as many columns as there are outputs.
    fn multiply(
        &mut self,
        sides: [i32; 2],
        sizes: [i32; 3],
        from: [(u64, i32); 2],
        to: (u64, i32),
    ) -> Result {
        self.computes += 1;
        let ([op_a, op_b], [m, n, k], [(a, lda), (b, ldb)]) = (sides, sizes, from);
        let (one, zero, c) = (Factor::Host(1.0), Factor::Host(0.0), Update(to.0));
        let session = self.session;
        session
            .cublasSgemm_v2(self.blas, op_a, op_b, m, n, k, one, Read(a), lda, Read(b), ldb, zero, c, to.1)
            .map(|_| ())
    }

    fn product(&mut self, step: usize, layer: usize) -> Result {
        let ([inputs, outputs], n) = (PRODUCTS[layer - 2], BATCH as i32);
        let (x, y, w) = (self.data[step].at, self.data[step + 1].at, self.layers[layer].w.at);
        self.multiply([1, 0], [outputs, n, inputs], [(w, inputs), (x, inputs)], (y, outputs))?;
        self.add_bias(step, layer)
    }

    fn product_back(&mut self, step: usize, layer: usize) -> Result {
        let ([inputs, outputs], n) = (PRODUCTS[layer - 2], BATCH as i32);
        let (x, dy, w) = (self.data[step], self.data[step + 1].gradient, self.layers[layer].w);
        self.bias_gradient(step, layer)?;
        self.multiply([0, 1], [inputs, outputs, n], [(x.at, inputs), (dy, outputs)], (w.gradient, inputs))?;
        self.multiply([0, 0], [inputs, n, outputs], [(w.at, inputs), (dy, outputs)], (x.gradient, inputs))
    }

    /// What the net takes the pictures for: for each of ten digits, how likely it is that one.
    fn forward(&mut self, pictures: &[f32]) -> Result {
        self.put(self.data[0].at, pictures)?;
        for (layer, step) in [0, 3].into_iter().enumerate() {
            self.convolve(step, layer)?;
            self.activate(step + 1)?;
            self.pool(step + 2)?;
        }
        self.product(6, 2)?;
        self.activate(7)?;
        self.product(8, 3)?;
        self.activate(9)?;
        self.product(10, 4)?;
        self.around(11, |net, [x, y], [from, to]| {
            let (from, to) = (Read(from.at), Update(to.at));
            net.session.cudnnSoftmaxForward(&mut net.thread, V, H, 1, CHANNELS, ONE, x, from, ZERO, y, to)
        })
    }

    fn backward(&mut self, right: &[f32]) -> Result {
        self.put(self.right, right)?;
        // Of softmax and cross entropy together.
        let (said, gradient) = (self.data[12], self.data[11].gradient);
        let (n, session) = (said.count as i32, self.session);
        session.cublasScopy_v2(self.blas, n, Read(said.at), 1, Write(gradient), 1)?;
        session.cublasSaxpy_v2(self.blas, n, Factor::Host(-1.0), Read(self.right), 1, Update(gradient), 1)?;
        session.cublasSscal_v2(
            self.blas,
            n,
            Factor::Host(f64::from(1.0 / BATCH as f32)),
            Update(gradient),
            1,
        )?;
        self.computes += 3;
        self.product_back(10, 4)?;
        self.activate_back(9)?;
        self.product_back(8, 3)?;
        self.activate_back(7)?;
        self.product_back(6, 2)?;
        for (layer, step) in [(1, 3), (0, 0)] {
            self.pool_back(step + 2)?;
            self.activate_back(step + 1)?;
            self.convolve_back(step, layer)?;
        }
        Ok(())
    }

    fn learn(&mut self) -> Result {
        for data in self.layers.iter().flat_map(|layer| [layer.w, layer.b]) {
            let (n, from, to) = (data.count as i32, Read(data.gradient), Update(data.at));
            self.session.cublasSaxpy_v2(self.blas, n, Factor::Host(f64::from(-RATE)), from, 1, to, 1)?;
            self.computes += 1;
        }
        Ok(())
    }

    /// How long the gradient of the last weights is, which is waited for.
    fn length(&mut self) -> Result<f32> {
        self.waits += 1;
        let w = self.layers[4].w;
        let length =
            self.session.cublasSnrm2_v2(self.blas, w.count as i32, Read(w.gradient), 1, Outcome::Host)?;
        Ok(length.unwrap() as f32)
    }
}

/// What was sent, and how ids were found, between two moments.
fn since(net: &Net<'_>, (sent, found): (Sent, Found)) -> (Sent, Found) {
    let (now, then) = (net.session.client().sent(), net.session.reuse().found());
    let sent = Sent { records: now.records - sent.records, wakes: now.wakes - sent.wakes };
    let (predicted, known) = (then.predicted - found.predicted, then.known - found.known);
    (sent, Found { predicted, known, new: then.new - found.new })
}

/// Trains a net: its weights, and what part of digits that it has not seen it gets right.
fn trained(mode: Mode, socket: &Path) -> Result<(Vec<f32>, f64)> {
    let channel = connect(socket);
    let session = session(mode, &channel);
    let mut net = Net::new(&session)?;
    let mut random = Random(1);
    let mut all = Found::default();
    for step in 0..STEPS {
        let before = (session.client().sent(), session.reuse().found());
        (net.computes, net.waits) = (0, 0);
        let ([pictures, right], _) = digits(&mut random);
        net.forward(&pictures)?;
        net.backward(&right)?;
        net.learn()?;
        assert!(net.length()?.is_finite());
        let (sent, found) = since(&net, before);
        if mode == Mode::Reuse && step >= 2 {
            assert_eq!(sent.records, net.computes + net.waits, "{step}");
            assert!(sent.wakes <= net.waits + sent.records / 64, "{step}: {sent:?}");
            assert_eq!(found.new, 0, "{step}");
            all.predicted += found.predicted;
            all.known += found.known;
        }
    }
    if mode == Mode::Reuse {
        assert!(all.predicted >= 95 * (all.predicted + all.known) / 100, "{all:?}");
        eprintln!("{} computes, {} others an iteration; {all:?}", net.computes, net.waits);
    }
    let mut right = 0;
    for _ in 0..10 {
        let ([pictures, _], labels) = digits(&mut random);
        net.forward(&pictures)?;
        let said = net.get(net.data[12].at, 10 * BATCH)?;
        let said = said.chunks(10).map(|of| (0..10).max_by(|a, b| of[*a].total_cmp(&of[*b])).unwrap());
        right += said.zip(labels).filter(|(said, label)| said == label).count();
    }
    let mut weights = Vec::new();
    for data in net.layers.iter().flat_map(|layer| [layer.w, layer.b]).collect::<Vec<Data>>() {
        weights.extend(net.get(data.at, data.count)?);
    }
    Ok((weights, right as f64 / (10 * BATCH) as f64))
}

#[test]
fn it_learns_the_same_in_each_mode_and_sends_no_descriptor() {
    let program = Program::start(64 << 20);
    let [reused, forwarded, waited] = [Mode::Reuse, Mode::Forward, Mode::ForwardAndWait]
        .map(|mode| trained(mode, &program.socket).unwrap());
    eprintln!("{} of the digits right", reused.1);
    assert!(reused.1 > 0.95);
    let bits = |weights: &[f32]| weights.iter().map(|weight| weight.to_bits()).collect::<Vec<u32>>();
    assert!(bits(&reused.0) == bits(&forwarded.0), "forwarded");
    assert!(bits(&reused.0) == bits(&waited.0), "waited");
}
