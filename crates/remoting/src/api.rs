//! What the tables of API functions are made of. Touches nothing.
//!
//! There is one table for each library, [`crate::cudnn_functions`] and [`crate::cublas_functions`], a macro: it hands its rows to another
//! macro, which makes of them what it is for. Signatures and the worker's dispatch are made here in this crate, C
//! functions in the client, export lists in the facades. A row reads
//!
//! ```text
//! class cudnnName(argument: Type, …) -> (result: Type, …) = rule;
//! ```
//!
//! in the order of the C function's parameters: first those that it reads, then those where it writes. An array
//! ([`Ints`]) has as many elements as the `i32` before it says. A row and its rule are all that a further
//! descriptor function takes; a row and a method of [`crate::cudnn::backend::Backend`], whose declaration is made of
//! the row, all that a further compute takes.

use crate::cublas::{self, Factor, Outcome, Sums};
use crate::cudnn;
use crate::cudnn::algorithms::Performances;
use crate::descriptor::{Content, Ints, Kind};
use crate::wire::{Reader, Value, Words};

/// What a function does, and so where it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Makes a descriptor: answered in the container.
    Create,
    /// Changes its first argument, a descriptor: answered in the container.
    Set,
    /// Changes its first argument in the container, after the worker has begun random numbers.
    Seed,
    /// Computes its results from descriptors and numbers: answered in the container.
    Get,
    /// Ends a descriptor: answered in the container.
    Destroy,
    /// Says how something would be computed: asked of the worker once, then answered in the container.
    Query,
    /// Computes a layer's output: sent to the worker, with the ids of its descriptors' contents.
    Forward,
    /// Computes a gradient: sent likewise.
    Backward,
    /// Computes something that may be of either pass: sent likewise.
    Compute,
}

impl Class {
    /// Is it the backend's?
    #[must_use]
    pub fn computes(self) -> bool {
        matches!(self, Self::Query | Self::Forward | Self::Backward | Self::Compute)
    }

    /// Is the worker asked or told anything, even with reuse?
    #[must_use]
    pub fn sent(self) -> bool {
        self.computes() || self == Self::Seed
    }
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `int`, or an enumeration.
    I32,
    /// `size_t`, `unsigned long long`, or a device pointer that is only kept.
    U64,
    /// `float`
    F32,
    /// `double`
    F64,
    /// An array of `int`.
    Ints,
    /// A descriptor.
    Descriptor(Kind),
    /// `cudnnHandle_t`
    Handle,
    /// A factor, of `float`, or of `double` where the tensors are.
    Scalar,
    /// A factor, of the program or on the device.
    Factor,
    /// One number that is written, in the program or on the device.
    Outcome,
    /// An array of how algorithms perform, as many as asked for at most.
    Performances,
    /// Device memory that is read.
    Read,
    /// Device memory that is written.
    Write,
    /// Device memory that is written, and read where the factor before it is not 0.
    Update,
}

/// A type that stands in a row.
pub trait Typed {
    /// What it is in C.
    const TYPE: Type;
}

impl Typed for i32 {
    const TYPE: Type = Type::I32;
}
impl Typed for u64 {
    const TYPE: Type = Type::U64;
}
impl Typed for f32 {
    const TYPE: Type = Type::F32;
}
impl Typed for f64 {
    const TYPE: Type = Type::F64;
}
impl Typed for Factor {
    const TYPE: Type = Type::Factor;
}
impl Typed for Sums {
    const TYPE: Type = Type::I32;
}
impl Typed for Outcome {
    const TYPE: Type = Type::Outcome;
}
impl Typed for Performances {
    const TYPE: Type = Type::Performances;
}
impl Typed for Ints {
    const TYPE: Type = Type::Ints;
}
impl<C: Content> Typed for C {
    const TYPE: Type = Type::Descriptor(C::KIND);
}

/// One that may be NULL; the rule says what comes then. Elsewhere that is `BadParam`, and nothing is written.
impl<C: Content> Typed for Option<C> {
    const TYPE: Type = Type::Descriptor(C::KIND);
}

/// A `cudnnHandle_t` that was checked: not NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub u64);

impl Typed for Handle {
    const TYPE: Type = Type::Handle;
}

/// A factor, as the widest type that it can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalar(pub f64);

impl Typed for Scalar {
    const TYPE: Type = Type::Scalar;
}

/// Device memory that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read(pub u64);

impl Typed for Read {
    const TYPE: Type = Type::Read;
}

/// Device memory that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write(pub u64);

impl Typed for Write {
    const TYPE: Type = Type::Write;
}

/// Device memory that is written, and read where the factor before it is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update(pub u64);

impl Typed for Update {
    const TYPE: Type = Type::Update;
}

macro_rules! address {
    ($($type:ident),*) => {
        $(impl Value for $type {
            fn put(&self, words: &mut Words) {
                words.push(self.0);
            }

            fn read(reader: &mut Reader<'_>) -> Self {
                Self(reader.word())
            }
        })*
    };
}
address!(Read, Write, Update);

/// A parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the row.
    pub name: &'static str,
    /// What it is; of a result, what it points to.
    pub r#type: Type,
}

/// A row, as data.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The C function's name.
    pub name: &'static str,
    /// What it does.
    pub class: Class,
    /// What it reads.
    pub arguments: &'static [Parameter],
    /// What it writes through pointers; they come after the arguments.
    pub results: &'static [Parameter],
    /// Which arguments are what, for those that are asked for at each call.
    pub which: Which,
}

/// Some of a row's arguments, a bit for each in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(u64);

impl Mask {
    /// The words of these.
    #[inline]
    pub fn of(self, words: &[u64]) -> impl Iterator<Item = u64> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let place = left.trailing_zeros() as usize;
            // None is left where there are 64 zeros.
            left = left.checked_sub(1)? & left;
            words.get(place).copied()
        })
    }
}

/// Those of a row's arguments that are asked for at each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    /// Descriptors.
    pub descriptors: Mask,
    /// What a call's success depends on: descriptors, and numbers such as the algorithm; not data, nor factors.
    pub decisive: Mask,
    reads: Mask,
    output: Mask,
}

impl Which {
    /// Of these, which are 64 at most.
    #[must_use]
    pub const fn of(arguments: &[Parameter]) -> Self {
        let none = Mask(0);
        let mut which = Self { descriptors: none, decisive: none, reads: none, output: none };
        let mut i = 0;
        while i < arguments.len() {
            let place = 1 << i;
            match arguments[i].r#type {
                Type::I32 | Type::U64 => which.decisive.0 |= place,
                Type::Descriptor(_) => {
                    which.decisive.0 |= place;
                    which.descriptors.0 |= place;
                }
                Type::Read => which.reads.0 |= place,
                // What is blended is the output; else the first that is written, before any scratch space.
                Type::Update => which.output.0 = place,
                Type::Write if which.output.0 == 0 => which.output.0 = place,
                _ => {}
            }
            i += 1;
        }
        which
    }
}

impl Signature {
    /// A row.
    #[must_use]
    pub const fn new(
        name: &'static str,
        class: Class,
        arguments: &'static [Parameter],
        results: &'static [Parameter],
    ) -> Self {
        Self { name, class, arguments, results, which: Which::of(arguments) }
    }

    /// The descriptors that it reads.
    pub fn reads(&self) -> impl Iterator<Item = Kind> {
        let skip = usize::from(matches!(self.class, Class::Set | Class::Seed | Class::Destroy));
        self.arguments.iter().skip(skip).filter_map(descriptor)
    }

    /// The descriptor that it makes, changes or ends.
    #[must_use]
    pub fn writes(&self) -> Option<Kind> {
        match self.class {
            Class::Create => self.results.first().and_then(descriptor),
            Class::Set | Class::Seed | Class::Destroy => self.arguments.first().and_then(descriptor),
            Class::Get | Class::Query | Class::Forward | Class::Backward | Class::Compute => None,
        }
    }
}

impl Signature {
    /// Where a compute with these words writes its output.
    #[must_use]
    pub fn output(&self, words: &[u64]) -> Option<u64> {
        self.which.output.of(words).next()
    }

    /// What a compute with these words reads.
    #[inline]
    pub fn inputs(&self, words: &[u64]) -> impl Iterator<Item = u64> {
        self.which.reads.of(words)
    }
}

fn descriptor(parameter: &Parameter) -> Option<Kind> {
    match parameter.r#type {
        Type::Descriptor(kind) => Some(kind),
        _ => None,
    }
}

/// All functions of all tables.
pub fn all() -> impl Iterator<Item = &'static Signature> {
    cudnn::table::SIGNATURES.iter().chain(cublas::table::SIGNATURES)
}

/// By which client and worker know that they are of the same build: what the build script made of the source.
pub const FINGERPRINT: u64 = match u64::from_str_radix(env!("VGPU_REMOTING_FINGERPRINT"), 16) {
    Ok(number) => number,
    Err(_) => panic!("the build script writes a number"),
};
