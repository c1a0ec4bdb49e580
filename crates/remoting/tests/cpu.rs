//! The CPU backend computes what it is asked to, in its client's memory and nowhere else; and the same, bit for bit,
//! however descriptor calls are answered.
#![cfg(not(any(loom, feature = "blind")))]

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_remoting::api::{Handle, Read, Scalar, Update, Write};
use vgpu_remoting::channel::{Channel, Client, serve};
use vgpu_remoting::cpu::Cpu;
use vgpu_remoting::cublas::backend::Blas;
use vgpu_remoting::cublas::{Factor, Outcome, State, Sums};
use vgpu_remoting::cudnn::activation::{self, Activation};
use vgpu_remoting::cudnn::backend::Backend;
use vgpu_remoting::cudnn::convolution::{self, Convolution};
use vgpu_remoting::cudnn::dropout::Dropout;
use vgpu_remoting::cudnn::filter::{self, Filter};
use vgpu_remoting::cudnn::normalization::{self, Normalization};
use vgpu_remoting::cudnn::pooling::{self, Pooling};
use vgpu_remoting::cudnn::reduction::{self, Reduction};
use vgpu_remoting::cudnn::tensor::{self, Tensor};
use vgpu_remoting::cudnn::{self, Status, Version};
use vgpu_remoting::descriptor::Content;
use vgpu_remoting::memory::{Budget, Memory, Rows};
use vgpu_remoting::reuse::{Reuse, Thread};
use vgpu_remoting::session::{Mode, Session};
use vgpu_remoting::worker::Worker;

const V: Version = Version::V9;
const BASE: u64 = 0x7000_0000_0000;
const H: Handle = Handle(1);
const ONE: Scalar = Scalar(1.0);
const ZERO: Scalar = Scalar(0.0);

fn tensor(dims: [i32; 4]) -> Tensor {
    let mut t = Tensor::FRESH;
    let [n, c, h, w] = dims;
    tensor::set_4d(V, &mut t, 0, 0, n, c, h, w).unwrap();
    t
}

fn filter(dims: [i32; 4]) -> Filter {
    let mut f = Filter::FRESH;
    let [k, c, h, w] = dims;
    filter::set_4d(V, &mut f, 0, 0, k, c, h, w).unwrap();
    f
}

fn convolution() -> Convolution {
    let mut conv = Convolution::FRESH;
    convolution::set_2d(V, &mut conv, 0, 0, 1, 1, 1, 1, 1, 0).unwrap();
    conv
}

fn max_pooling() -> Pooling {
    let mut pool = Pooling::FRESH;
    pooling::set_2d(V, &mut pool, 0, 0, 2, 2, 0, 0, 1, 1).unwrap();
    pool
}

fn relu() -> Activation {
    let mut a = Activation::FRESH;
    activation::set(V, &mut a, 1, 0, 0.0).unwrap();
    a
}

/// Memory of its own for each operand, and a place for the result.
struct Desk {
    cpu: Cpu,
}

impl Desk {
    fn new() -> Self {
        Self::of(1 << 16)
    }

    fn of(bytes: u64) -> Self {
        let memory = Memory::new(BASE..BASE + bytes, &Budget::new(bytes));
        Self { cpu: Cpu::new(memory.unwrap()) }
    }

    fn put(&mut self, numbers: &[f32]) -> u64 {
        let memory = self.cpu.memory();
        let address = memory.allocate(4 * numbers.len() as u64).unwrap();
        let range = memory.range(address, numbers.len()).unwrap();
        memory.numbers_mut()[range].copy_from_slice(numbers);
        address
    }

    fn read(&mut self, address: u64, count: usize) -> Vec<f32> {
        let memory = self.cpu.memory();
        let range = memory.range(address, count).unwrap();
        memory.numbers()[range].to_vec()
    }
}

const COUNT: [f32; 9] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];

#[test]
fn convolution_and_its_gradients() {
    let mut desk = Desk::new();
    let (x, w, y) = (tensor([1, 1, 3, 3]), filter([1, 1, 2, 2]), tensor([1, 1, 2, 2]));
    let (xd, wd) = (desk.put(&COUNT), desk.put(&[1.0, 0.0, 0.0, 2.0]));
    let (yd, dyd) = (desk.put(&[9.0; 4]), desk.put(&[1.0, 2.0, 3.0, 4.0]));
    let (c, none) = (convolution(), Write(0));
    let (r, u) = (Read, Update);
    desk.cpu.cudnnConvolutionForward(H, ONE, x, r(xd), w, r(wd), c, 0, none, 0, ZERO, y, u(yd)).unwrap();
    assert_eq!(desk.read(yd, 4), [8.0, 11.0, 17.0, 20.0]);
    let dxd = desk.put(&[1.0; 9]);
    desk.cpu
        .cudnnConvolutionBackwardData(H, ONE, w, r(wd), y, r(dyd), c, 0, none, 0, ONE, x, u(dxd))
        .unwrap();
    assert_eq!(desk.read(dxd, 9), [2.0, 3.0, 1.0, 4.0, 7.0, 5.0, 1.0, 7.0, 9.0]);
    let dwd = desk.put(&[9.0; 4]);
    desk.cpu
        .cudnnConvolutionBackwardFilter(H, ONE, x, r(xd), y, r(dyd), c, 0, none, 0, ZERO, w, u(dwd))
        .unwrap();
    assert_eq!(desk.read(dwd, 4), [27.0, 37.0, 57.0, 67.0]);
    let (b, bd) = (tensor([1, 1, 1, 1]), desk.put(&[5.0]));
    desk.cpu.cudnnConvolutionBackwardBias(H, Scalar(2.0), y, r(dyd), ONE, b, u(bd)).unwrap();
    assert_eq!(desk.read(bd, 1), [25.0]);
}

#[test]
fn the_other_layers_and_their_gradients() {
    let mut desk = Desk::new();
    let (r, u) = (Read, Update);
    let t = tensor([1, 2, 1, 2]);
    let (xd, dyd) = (desk.put(&[-1.0, 2.0, 3.0, -4.0]), desk.put(&[10.0, 20.0, 30.0, 40.0]));
    let yd = desk.put(&[0.0; 4]);
    desk.cpu.cudnnActivationForward(H, relu(), ONE, t, r(xd), ZERO, t, u(yd)).unwrap();
    assert_eq!(desk.read(yd, 4), [0.0, 2.0, 3.0, 0.0]);
    desk.cpu.cudnnActivationBackward(H, relu(), ONE, t, r(yd), t, r(dyd), t, r(xd), ZERO, t, u(dyd)).unwrap();
    assert_eq!(desk.read(dyd, 4), [0.0, 20.0, 30.0, 0.0], "in place");
    desk.cpu.cudnnAddTensor(H, ONE, tensor([1, 2, 1, 1]), r(dyd), ONE, t, u(yd)).unwrap();
    assert_eq!(desk.read(yd, 4), [0.0, 2.0, 23.0, 20.0]);
    desk.cpu.cudnnTransformTensor(H, Scalar(3.0), t, r(xd), ZERO, t, u(yd)).unwrap();
    assert_eq!(desk.read(yd, 4), [-3.0, 6.0, 9.0, -12.0]);
    let (x, y) = (tensor([1, 1, 3, 3]), tensor([1, 1, 2, 2]));
    let (xd, yd) = (desk.put(&COUNT), desk.put(&[0.0; 4]));
    desk.cpu.cudnnPoolingForward(H, max_pooling(), ONE, x, r(xd), ZERO, y, u(yd)).unwrap();
    assert_eq!(desk.read(yd, 4), [4.0, 5.0, 7.0, 8.0]);
    let dxd = desk.put(&[1.0; 9]);
    desk.cpu
        .cudnnPoolingBackward(H, max_pooling(), ONE, y, r(yd), y, r(yd), x, r(xd), ZERO, x, u(dxd))
        .unwrap();
    assert_eq!(desk.read(dxd, 9), [0.0, 0.0, 0.0, 0.0, 4.0, 5.0, 0.0, 7.0, 8.0]);
    let (s, sd) = (tensor([1, 2, 1, 1]), desk.put(&[0.0, 3.0_f32.ln()]));
    desk.cpu.cudnnSoftmaxForward(H, 1, 1, ONE, s, r(sd), ZERO, s, u(sd)).unwrap();
    let soft = desk.read(sd, 2);
    assert!((soft[0] - 0.25).abs() < 1e-6 && (soft[1] - 0.75).abs() < 1e-6, "{soft:?}");
    let gd = desk.put(&[1.0, 0.0]);
    desk.cpu.cudnnSoftmaxBackward(H, 1, 1, ONE, s, r(sd), s, r(gd), ZERO, s, u(gd)).unwrap();
    let gradient = desk.read(gd, 2);
    assert!((gradient[0] - 0.1875).abs() < 1e-6 && (gradient[1] + 0.1875).abs() < 1e-6, "{gradient:?}");
}

#[test]
fn convolution_bias_and_activation_at_once() {
    let mut desk = Desk::new();
    let (x, w, y) = (tensor([1, 1, 3, 3]), filter([2, 1, 2, 2]), tensor([1, 2, 2, 2]));
    let xd = desk.put(&COUNT);
    let wd = desk.put(&[1.0, 0.0, 0.0, 2.0, -1.0, 0.0, 0.0, 0.0]);
    let (b, bd) = (tensor([1, 2, 1, 1]), desk.put(&[0.5, 2.0]));
    let yd = desk.put(&[1.0, f32::NAN, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let identity = Activation { mode: 5, ..relu() };
    let mut run = |a, algorithm, (alpha2, z): (f64, Tensor), bias| {
        let (c, none, alpha2) = (convolution(), Write(0), Scalar(alpha2));
        let (z_data, bias_data) = (Read(yd), Read(bd));
        desk.cpu.cudnnConvolutionBiasActivationForward(
            H,
            ONE,
            x,
            Read(xd),
            w,
            Read(wd),
            c,
            algorithm,
            none,
            0,
            alpha2,
            z,
            z_data,
            bias,
            bias_data,
            a,
            y,
            Update(yd),
        )?;
        Ok(desk.read(yd, 8))
    };
    // What is not added is not read.
    let relued = [8.5, 11.5, 17.5, 20.5, 2.0, 1.0, 0.0, 0.0];
    assert_eq!(run(relu(), 0, (0.0, y), b), Ok(relued.to_vec()));
    // In place.
    let added = [25.5, 34.5, 52.5, 61.5, 6.0, 3.0, -1.0, -2.0];
    assert_eq!(run(identity, 1, (2.0, y), b), Ok(added.to_vec()));
    assert_eq!(run(identity, 0, (2.0, y), b), Err(Status::NotSupported));
    assert_eq!(run(Activation { mode: 2, ..relu() }, 1, (2.0, y), b), Err(Status::NotSupported));
    assert_eq!(run(relu(), 1, (2.0, x), b), Err(Status::BadParam));
    assert_eq!(run(relu(), 1, (2.0, y), tensor([1, 2, 2, 1])), Err(Status::BadParam));
    assert_eq!(run(relu(), 1, (2.0, y), tensor([1, 1, 1, 1])), Err(Status::BadParam));
}

#[test]
fn normalisation_across_channels() {
    let mut desk = Desk::new();
    let mut norm = Normalization::FRESH;
    normalization::set(V, &mut norm, 3, 3.0, 1.0, 1.0).unwrap();
    let t = tensor([1, 3, 1, 1]);
    let (xd, dyd) = (desk.put(&[1.0, 2.0, 3.0]), desk.put(&[1.0, 0.0, 0.0]));
    let [yd, dxd] = [0, 1].map(|_| desk.put(&[9.0; 3]));
    let (r, u) = (Read, Update);
    desk.cpu.cudnnLRNCrossChannelForward(H, norm, 0, Scalar(6.0), t, r(xd), ZERO, t, u(yd)).unwrap();
    // One more than the sum of squares: 6, 15, 14.
    let close = |got: &[f32], wanted: [f32; 3]| {
        assert!(got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-6), "{got:?}");
    };
    close(&desk.read(yd, 3), [1.0, 0.8, 9.0 / 7.0]);
    desk.cpu
        .cudnnLRNCrossChannelBackward(
            H,
            norm,
            0,
            Scalar(18.0),
            t,
            r(yd),
            t,
            r(dyd),
            t,
            r(xd),
            ZERO,
            t,
            u(dxd),
        )
        .unwrap();
    // Of the first output: 1/6 - 2/36 along the first input, -4/36 along the second.
    close(&desk.read(dxd, 3), [2.0, -2.0, 0.0]);
    let wrong = desk.cpu.cudnnLRNCrossChannelForward(H, norm, 1, ONE, t, r(xd), ZERO, t, u(yd));
    assert_eq!(wrong, Err(Status::BadParam));
}

#[test]
fn reductions_and_where_the_results_are() {
    let mut desk = Desk::new();
    let set = |operation, indices, indices_type| {
        let mut r = Reduction::FRESH;
        reduction::set(V, &mut r, operation, 0, 1, indices, indices_type).unwrap();
        r
    };
    // A stride of 0 is fine where the dimension is 1.
    let (mut a, c) = (Tensor::FRESH, tensor([1, 1, 2, 1]));
    tensor::set_4d_ex(V, &mut a, 0, 1, 1, 2, 3, 0, 6, 3, 1).unwrap();
    let ad = desk.put(&[1.0, 5.0, -2.0, 3.0, 4.0, -9.0]);
    let [cd, id] = [0, 1].map(|_| desk.put(&[7.0, 7.0]));
    let mut reduce = |r, beta, size| {
        let none = Write(0);
        desk.cpu.cudnnReduceTensor(
            H,
            r,
            Write(id),
            size,
            none,
            0,
            ONE,
            a,
            Read(ad),
            Scalar(beta),
            c,
            Update(cd),
        )?;
        let bits: Vec<u32> = desk.read(id, 2).iter().map(|index| index.to_bits()).collect();
        Ok((desk.read(cd, 2), bits))
    };
    let sevens = vec![7.0_f32.to_bits(); 2];
    assert_eq!(reduce(set(0, 0, 0), 1.0, 0), Ok((vec![11.0, 5.0], sevens.clone())));
    assert_eq!(reduce(set(0, 1, 0), 0.0, 0), Ok((vec![4.0, -2.0], sevens)));
    assert_eq!(reduce(set(3, 1, 0), 0.0, 8), Ok((vec![5.0, 4.0], vec![1, 1])));
    assert_eq!(reduce(set(4, 1, 0), 0.0, 8), Ok((vec![5.0, 9.0], vec![1, 2])));
    assert_eq!(reduce(set(4, 1, 0), 0.0, 7), Err(Status::BadParam));
    assert_eq!(reduce(set(4, 1, 1), 0.0, 8), Err(Status::NotSupported));
    assert_eq!(desk.cpu.cudnnGetReductionIndicesSize(H, set(3, 1, 0), a, c), Ok((8,)));
    assert_eq!(desk.cpu.cudnnGetReductionIndicesSize(H, set(0, 1, 0), a, c), Ok((0,)));
    assert_eq!(desk.cpu.cudnnGetReductionWorkspaceSize(H, set(0, 1, 0), a, c), Ok((0,)));
    let wrong = desk.cpu.cudnnGetReductionWorkspaceSize(H, set(0, 1, 0), a, tensor([1, 1, 1, 2]));
    assert_eq!(wrong, Err(Status::BadParam));
    desk.cpu.cudnnScaleTensor(H, c, Update(cd), Scalar(2.0)).unwrap();
    assert_eq!(desk.read(cd, 2), [10.0, 18.0]);
    desk.cpu.cudnnSetTensor(H, c, Update(cd), Scalar(0.25)).unwrap();
    assert_eq!(desk.read(cd, 2), [0.25, 0.25]);
}

#[test]
fn double_precision() {
    let mut desk = Desk::new();
    let mut put = |numbers: &[f64]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let address = desk.cpu.memory().allocate(bytes.len() as u64).unwrap();
        desk.cpu.memory().bytes(address, bytes.len()).unwrap().copy_from_slice(&bytes);
        address
    };
    // Beyond single precision.
    let tiny = 2.0_f64.powi(-40);
    let (x, y, third) = (put(&[1.0 + tiny, -2.0, 3.0]), put(&[1.0; 3]), put(&[1.0 / 3.0]));
    let (state, one) = (State::default(), Factor::Host(1.0));
    let (r, u, host) = (Read, Update, Outcome::Host);
    let cpu = &mut desk.cpu;
    let read = |cpu: &mut Cpu, at: u64, count: usize| -> Vec<f64> {
        let bytes = cpu.memory().bytes(at, 8 * count).unwrap();
        bytes.chunks(8).map(|number| f64::from_le_bytes(number.try_into().unwrap())).collect()
    };
    assert_eq!(cpu.cublasDasum_v2(state, 3, r(x), 1, host), Ok(Some(6.0 + tiny)));
    assert_eq!(cpu.cublasDdot_v2(state, 3, r(x), 1, r(y), 1, host), Ok(Some(2.0 + tiny)));
    assert_eq!(cpu.cublasDnrm2_v2(state, 1, r(x), 1, host), Ok(Some(1.0 + tiny)));
    cpu.cublasDaxpy_v2(state, 3, Factor::Device(third), r(x), 1, u(y), 1).unwrap();
    assert_eq!(read(cpu, y, 3)[1..], [1.0 - 2.0 / 3.0, 2.0]);
    cpu.cublasDscal_v2(state, 3, Factor::Host(1.0 + tiny), u(y), 1).unwrap();
    assert_eq!(read(cpu, y, 3)[2], 2.0 + 2.0 * tiny);
    cpu.cublasDcopy_v2(state, 3, r(x), -1, Write(y), 1).unwrap();
    assert_eq!(read(cpu, y, 3), [3.0, -2.0, 1.0 + tiny]);
    cpu.cublasDgemv_v2(state, 0, 1, 3, one, r(x), 1, r(y), 1, Factor::Host(0.0), u(third), 1).unwrap();
    assert_eq!(read(cpu, third, 1), [3.0 * (1.0 + tiny) + 4.0 + 3.0 * (1.0 + tiny)]);
    // As a column times a row, and as a row times a column.
    cpu.cublasDgemm_v2(state, 0, 1, 1, 1, 3, one, r(x), 1, r(y), 1, one, u(third), 1).unwrap();
    assert_eq!(read(cpu, third, 1), [4.0 + 6.0 * (1.0 + tiny) + 4.0 + 6.0 * (1.0 + tiny)]);
    let misaligned = cpu.cublasDscal_v2(state, 1, one, u(x + 4), 1);
    assert_eq!(misaligned, Err(Status::ExecutionFailed));
    let beyond = cpu.cublasDdot_v2(state, 1 << 16, r(x), 1, r(y), 1, host);
    assert_eq!(beyond, Err(Status::ExecutionFailed));
}

#[test]
fn numbers_of_16_bits_are_computed_in_single_precision() {
    for (data_type, wide, narrow) in [
        (
            2,
            (|bits| half::f16::from_bits(bits).to_f32()) as fn(u16) -> f32,
            (|x| half::f16::from_f32(x).to_bits()) as fn(f32) -> u16,
        ),
        (14, |bits| half::bf16::from_bits(bits).to_f32(), |x| half::bf16::from_f32(x).to_bits()),
    ] {
        let mut desk = Desk::new();
        let put = |desk: &mut Desk, numbers: &[f32]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| narrow(*number).to_le_bytes()).collect();
            let address = desk.cpu.memory().allocate(bytes.len() as u64).unwrap();
            desk.cpu.memory().bytes(address, bytes.len()).unwrap().copy_from_slice(&bytes);
            address
        };
        let got = |desk: &mut Desk, at: u64| -> Vec<f32> {
            let bytes = desk.cpu.memory().bytes(at, 10).unwrap();
            bytes.chunks(2).map(|two| wide(u16::from_le_bytes([two[0], two[1]]))).collect()
        };
        let [a, b] = [[1.0, 2.0, 3.0, 4.0], [0.5, 0.25, 2.0, 1.0]].map(|numbers| put(&mut desk, &numbers));
        let c = put(&mut desk, &[4.0, 4.0, 9.0, 4.0, 4.0]);
        let single = desk.put(&[9.0; 4]);
        let (state, one, half) = (State::default(), Factor::Host(1.0), Factor::Host(0.5));
        let (r, u, sums) = (Read, Update, Sums(68));
        let two_by_two = |desk: &mut Desk, [op_a, op_b]: [i32; 2], k, c| {
            let (a, b, c, of) = (r(a), r(b), u(c), data_type);
            let done = desk
                .cpu
                .cublasGemmEx(state, op_a, op_b, 2, 2, k, one, a, of, 2, b, of, 2, half, c, of, 3, sums, -1);
            assert_eq!(done, Ok(None));
        };
        two_by_two(&mut desk, [0, 0], 2, c);
        let between = "what is between columns is left";
        assert_eq!(got(&mut desk, c), [3.25, 4.0, 9.0, 7.0, 10.0], "{data_type}: {between}");
        // Of nothing to be summed, in each way to transpose: half of what is there.
        for ops in [[0, 0], [1, 0], [0, 1], [1, 1]] {
            let c = put(&mut desk, &[4.0, 4.0, 9.0, 4.0, 4.0]);
            two_by_two(&mut desk, ops, 0, c);
            assert_eq!(got(&mut desk, c), [2.0, 2.0, 9.0, 2.0, 2.0], "{data_type} {ops:?}");
        }
        // One number each, as often as there are, into single precision.
        desk.cpu
            .cublasGemmStridedBatchedEx(
                state,
                0,
                0,
                1,
                1,
                1,
                one,
                r(a),
                data_type,
                1,
                1,
                r(b),
                data_type,
                1,
                1,
                Factor::Host(0.0),
                u(single),
                0,
                1,
                1,
                4,
                sums,
                -1,
            )
            .unwrap();
        assert_eq!(desk.read(single, 4), [0.5, 0.5, 6.0, 4.0]);
    }
}

/// More than are widened at once: rows of ones and twos, columns of ones to threes.
#[test]
fn a_large_product_of_16_bits_is_computed_by_parts() {
    let (m, n, k) = (2_u16, 3_u16, 3_400_000);
    let mut desk = Desk::of(64 << 20);
    let memory = desk.cpu.memory();
    let [a, b] = [m, n].map(|lines| {
        let line: Vec<u8> =
            (1..=lines).flat_map(|i| half::bf16::from_f32(i.into()).to_bits().to_le_bytes()).collect();
        let address = memory.allocate((line.len() * k) as u64).unwrap();
        memory
            .bytes(address, line.len() * k)
            .unwrap()
            .chunks_mut(line.len())
            .for_each(|to| to.copy_from_slice(&line));
        address
    });
    let c = memory.allocate(4 * 6).unwrap();
    let (state, one, zero) = (State::default(), Factor::Host(1.0), Factor::Host(0.0));
    let [m, n, k] = [m.into(), n.into(), k as i32];
    desk.cpu
        .cublasGemmEx(
            state,
            0,
            1,
            m,
            n,
            k,
            one,
            Read(a),
            14,
            m,
            Read(b),
            14,
            n,
            zero,
            Update(c),
            0,
            m,
            Sums(68),
            -1,
        )
        .unwrap();
    let k = k as f32;
    assert_eq!(desk.read(c, 6), [k, 2.0 * k, 2.0 * k, 4.0 * k, 3.0 * k, 6.0 * k]);
}

#[test]
fn products_again_and_again() {
    let mut desk = Desk::new();
    let (state, one, zero) = (State::default(), Factor::Host(1.0), Factor::Host(0.0));
    let (a, b, c) = (desk.put(&COUNT), desk.put(&COUNT), desk.put(&[9.0; 4]));
    let mut run = |stride_c: i64, c: u64, m, count| {
        let (a, b, c, strides) = (Read(a), Read(b), Update(c), [2, 0, stride_c.cast_unsigned()]);
        let [sa, sb, sc] = strides;
        desk.cpu
            .cublasSgemmStridedBatched(state, 0, 0, m, 1, 2, one, a, 1, sa, b, 2, sb, zero, c, 1, sc, count)
            .map(|_| ())
    };
    // The same factor each time, and results from the last to the first.
    assert_eq!(run(-1, c + 12, 1, 3), Ok(()));
    assert_eq!(run(1, c, 0, i32::MAX), Ok(()), "of nothing");
    assert_eq!(run(1, c, 1, -1), Err(Status::BadParam));
    assert_eq!(desk.read(c, 4), [9.0, 5.0, 3.0, 1.0]);
}

#[test]
fn products_and_sums() {
    let mut desk = Desk::new();
    let (state, one, zero) = (State::default(), Factor::Host(1.0), Factor::Host(0.0));
    let (r, u) = (Read, Update);
    let (a, b, c) = (desk.put(&COUNT[..6]), desk.put(&COUNT[..6]), desk.put(&[9.0; 4]));
    desk.cpu.cublasSgemm_v2(state, 0, 0, 2, 2, 3, one, r(a), 2, r(b), 3, zero, u(c), 2).unwrap();
    assert_eq!(desk.read(c, 4), [10.0, 13.0, 28.0, 40.0]);
    // Factors that are on the device when it comes to them.
    let two = desk.put(&[2.0]);
    let (alpha, beta) = (Factor::Device(two), Factor::Device(two));
    desk.cpu
        .cublasGemmEx(state, 1, 1, 2, 2, 3, alpha, r(a), 0, 3, r(b), 0, 2, beta, u(c), 0, 2, Sums(68), -1)
        .unwrap();
    assert_eq!(desk.read(c, 4), [40.0, 82.0, 82.0, 160.0]);
    let (x, y) = (desk.put(&[1.0, 2.0, 3.0]), desk.put(&[1.0; 3]));
    desk.cpu.cublasSgemv_v2(state, 0, 2, 3, one, r(a), 2, r(x), 1, one, u(y), 2).unwrap();
    assert_eq!(desk.read(y, 3), [17.0, 1.0, 23.0]);
    desk.cpu.cublasSaxpy_v2(state, 3, alpha, r(x), -1, u(y), 1).unwrap();
    assert_eq!(desk.read(y, 3), [23.0, 5.0, 25.0]);
    desk.cpu.cublasSscal_v2(state, 2, alpha, u(y), 2).unwrap();
    desk.cpu.cublasScopy_v2(state, 2, r(y), 2, Write(x), 1).unwrap();
    assert_eq!((desk.read(y, 3), desk.read(x, 3)), (vec![46.0, 5.0, 50.0], vec![46.0, 50.0, 3.0]));
    let dot = |desk: &mut Desk, to| desk.cpu.cublasSdot_v2(state, 3, r(x), 1, r(y), 1, to);
    assert_eq!(dot(&mut desk, Outcome::Host), Ok(Some(2516.0)));
    assert_eq!(dot(&mut desk, Outcome::Device(c)), Ok(None));
    let three_four = desk.put(&[3.0, 0.0, -4.0]);
    assert_eq!(desk.cpu.cublasSnrm2_v2(state, 2, r(three_four), 2, Outcome::Host), Ok(Some(5.0)));
    assert_eq!(desk.cpu.cublasSasum_v2(state, 3, r(three_four), 1, Outcome::Host), Ok(Some(7.0)));
    assert_eq!(desk.read(c, 1), [2516.0]);
    let beyond = desk.cpu.cublasSdot_v2(state, 1 << 20, r(x), 1, r(y), 1, Outcome::Host);
    assert_eq!(beyond, Err(Status::ExecutionFailed));
    assert_eq!(dot(&mut desk, Outcome::Device(1)), Err(Status::ExecutionFailed));
}

#[test]
fn what_cublas_is_asked_is_answered_here_or_sent() {
    let session = session(Mode::Reuse, 1 << 16);
    let (handle, one) = (session.cublasCreate_v2().unwrap(), Factor::Host(1.0));
    let [x, y] = [0, 1].map(|_| session.allocate(64).unwrap());
    session.copy_in(x, &2.0_f32.to_le_bytes()).unwrap();
    let before = session.client().sent().records;
    session.cublasSetStream_v2(handle, 7).unwrap();
    assert_eq!(session.cublasGetStream_v2(handle), Ok(7));
    let axpy = |handle, n| session.cublasSaxpy_v2(handle, n, one, Read(x), 1, Update(y), 1);
    assert_eq!(axpy(handle + 1, 1), Err(Status::NotInitialized));
    let gemv =
        |lda| session.cublasSgemv_v2(handle, 0, 2, 1, one, Read(x), lda, Read(x), 1, one, Update(y), 1);
    assert_eq!(gemv(1), Err(Status::BadParam));
    assert_eq!(session.client().sent().records, before, "all of that was answered here");
    assert_eq!(axpy(handle, 1), Ok(None));
    assert_eq!(session.cublasSdot_v2(handle, 1, Read(x), 1, Read(y), 1, Outcome::Host), Ok(Some(4.0)));
    assert_eq!(session.client().sent().records, before + 2);
    // What nobody waits for is said later.
    assert_eq!(axpy(handle, 1 << 20), Ok(None));
    assert_eq!(session.synchronise(), Err(Status::ExecutionFailed));
    session.cublasDestroy_v2(handle).unwrap();
    assert_eq!(session.cublasGetStream_v2(handle), Err(Status::NotInitialized));
}

#[test]
fn dropout_begins_where_it_was_seeded_and_goes_back_the_same_way() {
    let session = session(Mode::Reuse, 1 << 16);
    let t = &mut session.enter();
    let (d, x) = (
        session.cudnnCreateDropoutDescriptor(t, V).unwrap(),
        session.cudnnCreateTensorDescriptor(t, V).unwrap(),
    );
    session.cudnnSetTensor4dDescriptor(V, x, 0, 0, 1, 1, 10, 10).unwrap();
    let (size,) = session.cudnnDropoutGetStatesSize(t, V, H).results.unwrap();
    let (reserve_size,) = session.cudnnDropoutGetReserveSpaceSize(V, x).results.unwrap();
    assert_eq!(reserve_size, 16, "a bit for each, in words");
    let [states, reserve, data, out, back] =
        [size, reserve_size, 400, 400, 400].map(|size| session.allocate(size).unwrap());
    session.copy_in(data, &1.0_f32.to_le_bytes().repeat(100)).unwrap();
    let seed = |t: &mut Thread, size| session.cudnnSetDropoutDescriptor(t, V, d, H, 0.5, states, size, 7);
    assert_eq!(seed(t, size - 1), Err(Status::InvalidValue));
    let read = |from| {
        let mut bytes = [0; 400];
        session.copy_out(&mut bytes, from).unwrap();
        bytes
    };
    let forward = |t: &mut Thread| {
        session
            .cudnnDropoutForward(t, V, H, d, x, Read(data), x, Write(out), Write(reserve), reserve_size)
            .unwrap();
        read(out)
    };
    seed(t, size).unwrap();
    let (first, second) = (forward(t), forward(t));
    seed(t, size).unwrap();
    assert!(first == forward(t) && first != second && second == forward(t));
    let zeros = |bytes: &[u8]| bytes.chunks(4).filter(|number| **number == [0; 4]).count();
    let twos = second.chunks(4).filter(|number| **number == 2.0_f32.to_le_bytes()).count();
    assert!(zeros(&second) + twos == 100 && (30..70).contains(&twos), "{twos}");
    session
        .cudnnDropoutBackward(t, V, H, d, x, Read(data), x, Write(back), Read(reserve), reserve_size)
        .unwrap();
    assert_eq!(read(back), second);
    let short = session.cudnnDropoutForward(t, V, H, d, x, Read(data), x, Write(out), Write(reserve), 15);
    assert_eq!(short, Err(Status::BadParam));
}

#[test]
fn how_to_convolve_is_asked_once() {
    let session = session(Mode::Reuse, 1 << 16);
    let t = &mut session.enter();
    let [x, y] = [0, 1].map(|_| session.cudnnCreateTensorDescriptor(t, V).unwrap());
    let w = session.cudnnCreateFilterDescriptor(t, V).unwrap();
    let conv = session.cudnnCreateConvolutionDescriptor(t, V).unwrap();
    session.cudnnSetFilter4dDescriptor(V, w, 0, 0, 2, 1, 3, 3).unwrap();
    session.cudnnSetConvolution2dDescriptor(V, conv, 0, 0, 1, 1, 1, 1, 1, 0).unwrap();
    let mut ask = |n: i32, out: i32, requested: i32| {
        session.cudnnSetTensor4dDescriptor(V, x, 0, 0, n, 1, 8, 8).unwrap();
        session.cudnnSetTensor4dDescriptor(V, y, 0, 0, n, 2, out, out).unwrap();
        let size = session.cudnnGetConvolutionForwardWorkspaceSize(t, V, H, x, w, conv, y, 0);
        let found = session.cudnnFindConvolutionForwardAlgorithm(t, V, H, x, w, conv, y, requested);
        (size.status, found.status, found.results.map(|(returned, all)| (returned, all[0].status)))
    };
    assert_eq!(ask(4, 6, 3), (Ok(()), Ok(()), Some((1, 0))));
    let sent = session.client().sent();
    for _ in 0..10 {
        assert_eq!(ask(4, 6, 3).0, Ok(()));
    }
    assert_eq!(session.client().sent(), sent);
    let wrong = Err(Status::BadParam);
    assert_eq!(ask(4, 7, 3), (wrong, wrong, None));
    assert_eq!(ask(4, 6, 0), (Ok(()), wrong, None));
    let mut by =
        |algorithm| session.cudnnGetConvolutionForwardWorkspaceSize(t, V, H, x, w, conv, y, algorithm).status;
    let lacking = Err(Status::NotSupported);
    let all = [Ok(()), Ok(()), Ok(()), lacking, Ok(()), Ok(()), Ok(()), Ok(()), wrong, wrong];
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8, -1].map(&mut by), all);
    assert_eq!(session.synchronise(), Ok(()));
}

/// Of a compute that has worked before, so that it is waited for only then.
#[test]
fn with_blocking_an_error_is_its_calls() {
    for blocking in [false, true] {
        let session = session(Mode::Reuse, 1 << 16);
        let session = if blocking { session.blocking() } else { session };
        let t = &mut session.enter();
        let x = session.cudnnCreateTensorDescriptor(t, V).unwrap();
        session.cudnnSetTensor4dDescriptor(V, x, 0, 0, 1, 1, 1, 8).unwrap();
        let at = session.allocate(32).unwrap();
        let blas = session.cublasCreate_v2().unwrap();
        let mut add = |to| session.cudnnAddTensor(t, V, H, ONE, x, Read(at), ONE, x, Update(to));
        assert_eq!((add(at), add(at)), (Ok(()), Ok(())));
        let failed = Err(Status::ExecutionFailed);
        assert_eq!(add(64), if blocking { failed } else { Ok(()) });
        assert_eq!(session.synchronise(), if blocking { Ok(()) } else { failed });
        let scaled = session.cublasSscal_v2(blas, 8, Factor::Host(2.0), Update(64), 1).map(|_| ());
        assert_eq!(scaled, if blocking { failed } else { Ok(()) });
    }
}

#[test]
fn memory_that_is_not_the_clients_is_not_touched() {
    let mut desk = Desk::new();
    let t = tensor([1, 1, 1, 200]);
    let (a, b) = (desk.put(&[1.0; 200]), desk.put(&[7.0; 128]));
    let mut add = |from: u64, to: u64| desk.cpu.cudnnAddTensor(H, ONE, t, Read(from), ONE, t, Update(to));
    for (from, to) in [(a, b), (a, a + 300), (a, 0), (0, a), (a, u64::MAX), (a, a + 2)] {
        assert_eq!(add(from, to), Err(Status::ExecutionFailed), "{from:#x} {to:#x}");
    }
    assert_eq!(add(a, a), Ok(()));
    assert_eq!((desk.read(a, 200), desk.read(b, 128)), (vec![2.0; 200], vec![7.0; 128]));
    // To read more than there is does not tell, as with a GPU; here nothing is behind it.
    desk.cpu.cudnnAddTensor(H, ONE, t, Read(b), ONE, t, Update(a)).unwrap();
    assert_eq!(desk.read(a, 200), [[9.0; 128].as_slice(), &[2.0; 72]].concat());
    let far = desk.cpu.cublasSasum_v2(State::default(), 1 << 14, Read(b), 1, Outcome::Host);
    assert_eq!(far, Err(Status::ExecutionFailed), "beyond all");
}

/// Whether or not there is room for them.
#[test]
fn shapes_that_do_not_fit_are_said_before_addresses_that_are_not_there() {
    let mut desk = Desk::new();
    let (x, y) = (tensor([1, 1, 1, 8]), tensor([1, 1, 1, 512]));
    let from = desk.put(&[1.0; 8]);
    let (at, to, new) = (Read(from), Update(from), Write(from));
    let mut relu = Activation::FRESH;
    activation::set(V, &mut relu, 1, 0, 0.0).unwrap();
    let (norm, drop) = (Normalization::FRESH, Dropout::FRESH);
    let cpu = &mut desk.cpu;
    let refused = [
        cpu.cudnnActivationForward(H, relu, ONE, x, at, ZERO, y, to),
        cpu.cudnnActivationBackward(H, relu, ONE, y, at, x, at, x, at, ZERO, x, to),
        cpu.cudnnActivationBackward(H, relu, ONE, x, at, y, at, x, at, ZERO, x, to),
        cpu.cudnnActivationBackward(H, relu, ONE, x, at, x, at, x, at, ZERO, y, to),
        cpu.cudnnTransformTensor(H, ONE, x, at, ZERO, y, to),
        cpu.cudnnAddTensor(H, ONE, x, at, ZERO, y, to),
        cpu.cudnnConvolutionBackwardBias(H, ONE, x, at, ZERO, y, to),
        cpu.cudnnSoftmaxBackward(H, 1, 0, ONE, y, Read(64), x, at, ZERO, x, to),
        cpu.cudnnLRNCrossChannelBackward(H, norm, 0, ONE, x, at, y, Read(64), x, at, ZERO, x, to),
        cpu.cudnnDropoutForward(H, drop, x, at, y, new, new, 1024),
        cpu.cudnnDropoutBackward(H, drop, x, at, y, new, at, 1024),
    ];
    assert_eq!(refused, [Err(Status::BadParam); 11]);
    assert_eq!(cpu.cudnnActivationForward(H, relu, ONE, y, at, ZERO, y, to), Err(Status::ExecutionFailed));
}

/// As `cudnnConvolutionFwdAlgo_t` and its like number them: of each what the library has, what it names alone, and what
/// there is not.
#[test]
fn algorithms_that_there_are_not_are_refused() {
    let mut desk = Desk::new();
    let (x, y) = (tensor([1, 1, 4, 4]), tensor([1, 1, 2, 2]));
    let (mut w, mut conv) = (Filter::FRESH, Convolution::FRESH);
    filter::set_4d(V, &mut w, 0, 0, 1, 1, 3, 3).unwrap();
    convolution::set_2d(V, &mut conv, 0, 0, 1, 1, 1, 1, 1, 0).unwrap();
    let at = desk.put(&[1.0; 64]);
    let (from, to, no) = (Read(at), Update(at), Write(0));
    let cpu = &mut desk.cpu;
    let mut relu = Activation::FRESH;
    activation::set(V, &mut relu, 1, 0, 0.0).unwrap();
    let bias = tensor([1, 1, 1, 1]);
    let status = |result: cudnn::Result| result.err();
    for i in -1..10 {
        let [forward, data, filter] = [(8, Some(3)), (6, None), (7, Some(4))].map(|(count, named)| match i {
            _ if !(0..count).contains(&i) => Some(Status::BadParam),
            _ if named == Some(i) => Some(Status::NotSupported),
            _ => None,
        });
        let sized = cpu.cudnnGetConvolutionForwardWorkspaceSize(H, x, w, conv, y, i);
        let computed = cpu.cudnnConvolutionForward(H, ONE, x, from, w, from, conv, i, no, 0, ZERO, y, to);
        let fused = cpu.cudnnConvolutionBiasActivationForward(
            H, ONE, x, from, w, from, conv, i, no, 0, ZERO, y, from, bias, from, relu, y, to,
        );
        assert_eq!([sized.err(), status(computed), status(fused)], [forward; 3], "{i}");
        let sized = cpu.cudnnGetConvolutionBackwardDataWorkspaceSize(H, w, y, conv, x, i);
        let computed =
            cpu.cudnnConvolutionBackwardData(H, ONE, w, from, y, from, conv, i, no, 0, ZERO, x, to);
        assert_eq!([sized.err(), status(computed)], [data; 2], "{i}");
        let sized = cpu.cudnnGetConvolutionBackwardFilterWorkspaceSize(H, x, y, conv, w, i);
        let computed =
            cpu.cudnnConvolutionBackwardFilter(H, ONE, x, from, y, from, conv, i, no, 0, ZERO, w, to);
        assert_eq!([sized.err(), status(computed)], [filter; 2], "{i}");
    }
}

#[test]
fn what_it_cannot_do_it_says() {
    let mut desk = Desk::new();
    let at = desk.put(&[0.0; 64]);
    let mut add = |t: Tensor| desk.cpu.cudnnAddTensor(H, ONE, t, Read(at), ONE, t, Update(at));
    let mut half = tensor([1, 1, 1, 1]);
    half.data_type = 2;
    assert_eq!(add(half), Err(Status::NotSupported));
    assert_eq!(add(Tensor::FRESH), Err(Status::BadParam));
    let mut hostile = tensor([1, 1, 1, 1]);
    hostile.strides = [i32::MIN; 8];
    assert_eq!(add(hostile), Err(Status::NotSupported));
}

/// A session in this mode with a worker that has so much device memory.
fn session(mode: Mode, bytes: u64) -> Session<'static> {
    // The sessions of this process are not to be at the same addresses.
    static NEXT: AtomicU64 = AtomicU64::new(0x2000_0000_0000);
    let start = NEXT.fetch_add(1 << 32, Ordering::Relaxed);
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        let channel = Channel::accept(theirs, start..start + bytes).unwrap();
        let cpu = Cpu::new(Memory::new(channel.device(), &Budget::new(bytes)).unwrap());
        serve(&channel, &mut Worker::new(channel.contents(), cpu).staging(channel.staging()))
    });
    let channel: &Channel = Box::leak(Box::new(Channel::connect(ours).unwrap()));
    Session::new(mode, Reuse::new(64, channel.contents(), channel.counters()), Client::new(channel))
}

#[test]
fn bytes_come_back_from_the_device_as_they_went() {
    let session = session(Mode::Reuse, 8 << 20);
    let address = session.allocate(4 << 20).unwrap();
    // More than goes through the staging memory at a time, and at no number's beginning.
    let bytes: Vec<u8> =
        (0..(3 << 20) + 5).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    session.copy_in(address + 3, &bytes).unwrap();
    let mut back = vec![0; bytes.len() + 2];
    session.copy_out(&mut back, address + 2).unwrap();
    assert!(back[0] == 0 && back[1..=bytes.len()] == bytes && back[bytes.len() + 1] == 0);
}

#[test]
fn device_memory_is_bounded_and_only_the_clients() {
    let session = session(Mode::Reuse, 1 << 20);
    let address = session.allocate(1 << 19).unwrap();
    assert!(session.client().channel().device().contains(&address));
    assert_eq!(session.allocate((1 << 19) + 1), Err(Status::AllocFailed));
    let beyond = [address - 1, address + (1 << 19) - 3, 0, u64::MAX - 2];
    for address in beyond {
        assert_eq!(session.copy_in(address, &[1; 4]), Err(Status::ExecutionFailed), "{address:#x}");
        assert_eq!(session.copy_out(&mut [0; 4], address), Err(Status::ExecutionFailed), "{address:#x}");
    }
    assert_eq!(session.free(address + 512), Err(Status::BadParam));
    assert_eq!(session.free(address), Ok(()));
    assert_eq!(session.copy_in(address, &[1; 4]), Err(Status::ExecutionFailed), "freed");
    assert_eq!(session.synchronise(), Ok(()), "all of that was said to the client");
}

#[test]
fn what_stays_on_the_device_is_not_waited_for() {
    let session = session(Mode::Reuse, 1 << 16);
    let [a, b] = [0, 1].map(|_| session.allocate(1024).unwrap());
    assert_eq!(session.memory_info(), Ok(((1 << 16) - 2048, 1 << 16)));
    let rows = |address, pitch| Rows { address, pitch };
    session.mark(1).unwrap();
    session.fill(rows(a, 0), 16, 1, 0x0403_0201, 4).unwrap();
    session.copy(rows(b, 2), rows(a, 4), 2, 4).unwrap();
    session.mark(2).unwrap();
    let mut bytes = [0; 9];
    session.copy_out(&mut bytes, b).unwrap();
    assert_eq!(bytes, [1, 2, 1, 2, 1, 2, 1, 2, 0]);
    let (there, back) = (session.elapsed(1, 2).unwrap(), session.elapsed(2, 1).unwrap());
    assert!(there >= 0.0 && there == -back, "{there} {back}");
    session.forget(1).unwrap();
    assert_eq!(session.elapsed(1, 2), Err(Status::BadParam));
    assert_eq!(session.fill(rows(a, 0), 9, 1, 0, 9), Err(Status::BadParam));
    // What nobody waits for is said later, and what comes after it is not done.
    session.copy(rows(b, 0), rows(a, 0), 1025, 1).unwrap();
    session.fill(rows(b, 0), 8, 1, 9, 1).unwrap();
    assert_eq!(session.synchronise(), Err(Status::ExecutionFailed));
    assert_eq!(session.copy_in(b, &[9]), Err(Status::ExecutionFailed));
    assert_eq!(session.copy_out(&mut bytes, b), Err(Status::ExecutionFailed));
}

#[test]
fn threads_copy_side_by_side() {
    let session = session(Mode::Reuse, 8 << 20);
    std::thread::scope(|scope| {
        for number in 0..4_u8 {
            let session = &session;
            scope.spawn(move || {
                let (bytes, mut back) = (vec![number; 1_500_000], vec![0; 1_500_000]);
                let address = session.allocate(bytes.len() as u64).unwrap();
                session.copy_in(address, &bytes).unwrap();
                session.copy_out(&mut back, address).unwrap();
                assert!(back == bytes);
                session.free(address).unwrap();
            });
        }
    });
}

/// Trains one filter for some steps, with a batch that changes, and descriptors made anew for each layer. Its weights.
fn trained(mode: Mode) -> Vec<u8> {
    const STEP: Scalar = Scalar(-0.01);
    let session = session(mode, 1 << 16);
    let numbers = |of: std::ops::Range<i32>| -> Vec<u8> {
        of.flat_map(|i| ((i * 37 % 101 - 50) as f32 / 50.0).to_le_bytes()).collect()
    };
    let [x, w, y, dw] = [256, 18, 288, 18].map(|count| session.allocate(4 * count).unwrap());
    session.copy_in(x, &numbers(0..256)).unwrap();
    session.copy_in(w, &numbers(7..25)).unwrap();
    let t = &mut session.enter();
    for step in 0..30 {
        let n = if step % 5 == 4 { 2 } else { 4 };
        let result = (|| -> cudnn::Result {
            let [xt, yt] =
                [session.cudnnCreateTensorDescriptor(t, V)?, session.cudnnCreateTensorDescriptor(t, V)?];
            let [wt, dwt] =
                [session.cudnnCreateFilterDescriptor(t, V)?, session.cudnnCreateFilterDescriptor(t, V)?];
            let (c, a) = (
                session.cudnnCreateConvolutionDescriptor(t, V)?,
                session.cudnnCreateActivationDescriptor(t, V)?,
            );
            session.cudnnSetTensor4dDescriptor(V, xt, 0, 0, n, 1, 8, 8)?;
            session.cudnnSetTensor4dDescriptor(V, yt, 0, 0, n, 2, 6, 6)?;
            session.cudnnSetFilter4dDescriptor(V, wt, 0, 0, 2, 1, 3, 3)?;
            session.cudnnSetFilter4dDescriptor(V, dwt, 0, 0, 2, 1, 3, 3)?;
            session.cudnnSetConvolution2dDescriptor(V, c, 0, 0, 1, 1, 1, 1, 1, 0)?;
            session.cudnnSetActivationDescriptor(V, a, 2, 0, 0.0)?;
            let (r, u, none) = (Read, Update, Write(0));
            session.cudnnConvolutionForward(
                t,
                V,
                H,
                ONE,
                xt,
                r(x),
                wt,
                r(w),
                c,
                0,
                none,
                0,
                ZERO,
                yt,
                u(y),
            )?;
            session.cudnnActivationForward(t, V, H, a, ONE, yt, r(y), ZERO, yt, u(y))?;
            session.cudnnConvolutionBackwardFilter(
                t,
                V,
                H,
                ONE,
                xt,
                r(x),
                yt,
                r(y),
                c,
                0,
                none,
                0,
                ZERO,
                dwt,
                u(dw),
            )?;
            // The step: an addition, of filters that are tensors for it.
            session.cudnnSetTensor4dDescriptor(V, xt, 0, 0, 2, 1, 3, 3)?;
            session.cudnnAddTensor(t, V, H, STEP, xt, r(dw), ONE, xt, u(w))?;
            session.cudnnDestroyActivationDescriptor(t, V, a)?;
            session.cudnnDestroyConvolutionDescriptor(t, V, c)?;
            [dwt, wt].into_iter().try_for_each(|f| session.cudnnDestroyFilterDescriptor(t, V, f))?;
            [yt, xt].into_iter().try_for_each(|f| session.cudnnDestroyTensorDescriptor(t, V, f))
        })();
        assert_eq!(result, Ok(()), "{step}");
    }
    let mut weights = vec![0; 4 * 18];
    session.copy_out(&mut weights, w).unwrap();
    weights
}

#[test]
fn trained_weights_are_the_same_bit_for_bit_in_each_mode() {
    let [reused, forwarded, waited] = [Mode::Reuse, Mode::Forward, Mode::ForwardAndWait].map(trained);
    assert_eq!(reused, forwarded);
    assert_eq!(reused, waited);
    let weights: Vec<f32> =
        reused.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert!(weights.iter().all(|weight| weight.is_finite() && weight.abs() < 1.0), "{weights:?}");
}
