//! Calls on descriptors as lines of text, chosen at random, answered by the rules of this crate. What answers them
//! for real is in `real.rs`.

use std::fmt;
use std::str::FromStr;

use vgpu_remoting::api::{Class, Parameter, Type};
use vgpu_remoting::cudnn::convolution::Convolution;
use vgpu_remoting::cudnn::filter::Filter;
use vgpu_remoting::cudnn::forwarded::Forwarded;
use vgpu_remoting::cudnn::table::Function;
use vgpu_remoting::cudnn::tensor::Tensor;
use vgpu_remoting::cudnn::{NCHW_VECT_C, Version};
use vgpu_remoting::descriptor::{Ints, Kind, MAX_DIMS};
use vgpu_remoting::wire::{Reader, Value, Words};

/// How many descriptors of each kind there are at a time. Their numbers, in hexadecimal, are that of the kind
/// and then their own; 0 is NULL.
const EACH: u64 = 3;

/// A call: of a descriptor, its number stands among the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub function: Function,
    pub arguments: Words,
}

/// What it answered: `cudnnStatus_t`, and the results where any were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: i32,
    pub results: Words,
}

/// This crate's answers.
pub struct Rules {
    version: Version,
    forwarded: Forwarded,
}

impl Rules {
    pub fn new(version: Version) -> Self {
        Self { version, forwarded: Forwarded::new(version) }
    }

    pub fn answer(&mut self, call: &Call) -> Answer {
        let mut results = Words::new();
        let mut reader = Reader::new(&call.arguments);
        let result = self.forwarded.call(call.function, &mut reader, &mut results);
        Answer { status: result.map_or_else(|status| status.code(self.version), |()| 0), results }
    }

    /// Does the real library crash, or answer by what happens to be on its stack or beyond an array? A packed format
    /// looks at dimension 1 of an array without one, NHWC at the stride of dimension 2.
    fn undefined(&self, call: &Call) -> bool {
        match (call.function, &call.arguments[..]) {
            (Function::cudnnGetPooling2dForwardOutputDim, [_, x]) => *x == 0,
            (Function::cudnnGetPoolingNdForwardOutputDim, [_, x, _]) => *x == 0,
            (Function::cudnnGetTensorSizeInBytes, [t]) => *t == 0,
            (Function::cudnnSetLRNDescriptor | Function::cudnnGetLRNDescriptor, [norm, ..]) => *norm == 0,
            (Function::cudnnGetTensorNdDescriptor, [t, requested]) => {
                (*requested as i32) < 2 && self.forwarded.get::<Tensor>(*t).is_ok_and(|t| t.is_packed())
            }
            (Function::cudnnGetFilterNdDescriptor, [f, requested]) => {
                (*requested as i32) < 2
                    && self.forwarded.get::<Filter>(*f).is_ok_and(|f| f.format == NCHW_VECT_C)
            }
            (Function::cudnnGetConvolution2dForwardOutputDim, [conv, ..])
            | (Function::cudnnGetConvolutionNdForwardOutputDim, [conv, ..]) => self
                .forwarded
                .get::<Convolution>(*conv)
                .is_ok_and(|conv| conv.stride.iter().any(|stride| *stride < 1)),
            (Function::cudnnSetTensorNdDescriptorEx, [_, 1, _, count, ..]) => (*count as i32) < 3,
            (Function::cudnnSetTensorNdDescriptorEx, [_, 2, _, count, ..]) => (*count as i32) < 2,
            _ => false,
        }
    }
}

/// Random calls, the same ones for the same seed.
pub struct Calls {
    state: u64,
    /// Calls to be made before the next random one.
    pending: Vec<Call>,
    /// What the calls so far have left.
    model: Rules,
}

impl Calls {
    pub fn new(version: Version, seed: u64) -> Self {
        let mut pending = Vec::new();
        for kind in Kind::ALL {
            for number in 1..=EACH {
                pending.extend(birth(kind, (kind as u64) << 4 | number));
            }
        }
        pending.reverse();
        Self { state: seed, pending, model: Rules::new(version) }
    }

    /// splitmix64
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub fn next_call(&mut self) -> Call {
        let call = self.choose();
        self.model.answer(&call);
        call
    }

    fn choose(&mut self) -> Call {
        if let Some(call) = self.pending.pop() {
            return call;
        }
        let function = loop {
            let function = self.pick(Function::ALL);
            match function.signature().class {
                class if class.sent() => {}
                Class::Create => {}
                // Rarely: else most calls would be on fresh ones.
                Class::Destroy if !self.one_in(10) => {}
                _ => break function,
            }
        };
        if function == Function::cudnnGetConvolution2dForwardOutputDim && self.one_in(2) {
            self.pending = self.fitting();
            return self.choose();
        }
        let call = loop {
            let arguments = self.arguments(function);
            let call = Call { function, arguments };
            if !self.model.undefined(&call) {
                break call;
            }
        };
        if let (Class::Destroy, Some(kind), number @ 1..) =
            (function.signature().class, function.signature().writes(), call.arguments[0])
        {
            self.pending.extend(birth(kind, number).into_iter().rev());
        }
        call
    }

    /// Both output dimensions of a convolution of a tensor and a filter that fit together, the last call first.
    fn fitting(&mut self) -> Vec<Call> {
        let [n, c, h, w, k] = [1, 1, 8, 8, 1].map(|least| least + self.below(8));
        let [kh, kw, pad, stride, dilation, groups] = [1, 1, 0, 1, 1, 1].map(|least| least + self.below(3));
        vec![
            made(Function::cudnnGetConvolutionNdForwardOutputDim, &[0x31, 0x11, 0x21, 4]),
            made(Function::cudnnGetConvolution2dForwardOutputDim, &[0x31, 0x11, 0x21]),
            made(Function::cudnnSetConvolutionGroupCount, &[0x31, groups]),
            made(
                Function::cudnnSetConvolution2dDescriptor,
                &[0x31, pad, 0, stride, 1, dilation, dilation, 1, 0],
            ),
            made(Function::cudnnSetFilter4dDescriptor, &[0x21, 0, 0, k, c, kh, kw]),
            made(Function::cudnnSetTensor4dDescriptor, &[0x11, 0, 0, n, c * groups, h, w]),
        ]
    }

    fn arguments(&mut self, function: Function) -> Words {
        let mut words = Words::new();
        let mut count = 0;
        for parameter in function.signature().arguments {
            match parameter.r#type {
                Type::Descriptor(_) if self.one_in(12) => words.push(0),
                Type::Descriptor(kind) => words.push((kind as u64) << 4 | (1 + self.below(EACH))),
                Type::Handle => words.push(u64::from(!self.one_in(20))),
                Type::I32 => {
                    count = self.int(parameter);
                    count.put(&mut words);
                }
                Type::Ints => self.ints(parameter, count).put(&mut words),
                Type::U64 => words.push(self.below(1 << 20) << 8),
                Type::Scalar
                | Type::Read
                | Type::Write
                | Type::Update
                | Type::Factor
                | Type::Outcome
                | Type::Performances => {
                    unreachable!("of no descriptor call")
                }
                Type::F32 => self.pick(&[0.0_f32, 0.5, 1.0, 2.0, -1.0, f32::NAN]).put(&mut words),
                Type::F64 => self
                    .pick(&[0.0_f64, 0.5, 1.0, 6.0, -1.0, 0.01, 0.0099, 1e-5, 9e-6, f64::NAN, f64::INFINITY])
                    .put(&mut words),
            }
        }
        words
    }

    fn int(&mut self, parameter: &Parameter) -> i32 {
        // The real library writes past its stack for counts far out of range.
        if self.one_in(14) && parameter.name != "count" {
            return self.pick(&[-1, 0, i32::MIN, i32::MAX, 1 << 16, 1 << 15, 11, -4]);
        }
        match parameter.name {
            "format" => self.pick(&[0, 0, 0, 1, 1, 2, 2, 2]),
            "data_type" => self.pick(&[0, 0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 7, 8, 8, 9, 10, 11]),
            "compute_type" => self.pick(&[0, 0, 0, 0, 1, 2, 4, 3]),
            "mode" | "math_type" => self.pick(&[0, 0, 1, 1, 2, 3, 4]),
            "nan" | "reorder" => self.pick(&[0, 0, 0, 1, 1, 1, 2]),
            "count" => self.pick(&[2, 3, 4, 4, 4, 4, 5, 5, 6, 7, 8, 1, 9, 0, -1]),
            "requested" => self.pick(&[0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9]),
            "operation" => self.below(10) as i32,
            "indices" => self.pick(&[0, 0, 0, 1, 1, 1, 2]),
            "indices_type" => self.pick(&[0, 0, 0, 1, 2, 3, 4]),
            "n" if self.one_in(2) => self.below(18) as i32,
            "groups" => self.pick(&[1, 1, 1, 2, 4]),
            _ => self.size(parameter.name),
        }
    }

    fn size(&mut self, name: &str) -> i32 {
        let step = name.contains("stride") || name.contains("dilation");
        if step && self.one_in(40) || name.contains("pad") {
            return self.pick(&[0, 0, 1, 2, 3, -1]).max(if self.one_in(4) { -1 } else { 0 });
        }
        if self.one_in(40) {
            return self.pick(&[0, -2, 1 << 15, 1 << 16, 46341, i32::MAX]);
        }
        let vector = self.one_in(6);
        if vector { self.pick(&[4, 8, 32, 64]) } else { 1 + self.below(9) as i32 }
    }

    fn ints(&mut self, parameter: &Parameter, count: i32) -> Ints {
        (0..count.clamp(0, MAX_DIMS as i32)).map(|_| self.size(parameter.name)).collect()
    }
}

fn made(function: Function, words: &[u64]) -> Call {
    Call { function, arguments: words.iter().copied().collect() }
}

/// Makes a descriptor. The real library does not clear all kinds: what programs would see of an unset one is
/// chance, so those are set.
fn birth(kind: Kind, number: u64) -> Vec<Call> {
    let ones = [6, 1, 1, 1, 1, 1, 1];
    match kind {
        Kind::Tensor => vec![made(Function::cudnnCreateTensorDescriptor, &[number])],
        Kind::Filter => vec![made(Function::cudnnCreateFilterDescriptor, &[number])],
        Kind::Convolution => vec![made(Function::cudnnCreateConvolutionDescriptor, &[number])],
        Kind::Pooling => vec![
            made(Function::cudnnCreatePoolingDescriptor, &[number]),
            made(
                Function::cudnnSetPoolingNdDescriptor,
                &[&[number, 0, 0, 6], &ones[..], &ones, &ones].concat(),
            ),
        ],
        Kind::Activation => vec![
            made(Function::cudnnCreateActivationDescriptor, &[number]),
            made(Function::cudnnSetActivationDescriptor, &[number, 0, 0, 0]),
        ],
        Kind::Dropout => vec![made(Function::cudnnCreateDropoutDescriptor, &[number])],
        Kind::Reduction => vec![
            made(Function::cudnnCreateReduceTensorDescriptor, &[number]),
            made(Function::cudnnSetReduceTensorDescriptor, &[number, 0, 0, 0, 0, 0]),
        ],
        Kind::Normalization => vec![made(Function::cudnnCreateLRNDescriptor, &[number])],
        Kind::Handle => unreachable!("of no descriptor call"),
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.signature().name)?;
        write_words(f, &self.arguments)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        write_words(f, &self.results)
    }
}

fn write_words(f: &mut fmt::Formatter<'_>, words: &Words) -> fmt::Result {
    words.iter().try_for_each(|word| write!(f, " {word:x}"))
}

fn read_words<'a>(words: impl Iterator<Item = &'a str>) -> Words {
    words.map(|word| u64::from_str_radix(word, 16).expect("a hexadecimal number")).collect()
}

impl FromStr for Call {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let function = Function::ALL.iter().find(|function| function.signature().name == name);
        let function = *function.ok_or_else(|| format!("no function {name}"))?;
        Ok(Self { function, arguments: read_words(words) })
    }
}

impl FromStr for Answer {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut words = line.split_ascii_whitespace();
        let status = words.next().unwrap_or_default();
        let status = status.parse().map_err(|_| format!("no status {status}"))?;
        Ok(Self { status, results: read_words(words) })
    }
}
