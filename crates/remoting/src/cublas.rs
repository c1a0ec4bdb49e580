//! cuBLAS: handles, which are a client's own and answered there, and what computes. Touches nothing.
//!
//! A record has of a handle what the computing depends on ([`State`]). Arguments are checked by one rule for both sides
//! ([`rule`]), so that a call that is not right is answered in the client, and one that is right need not be waited for.
#![allow(clippy::too_many_arguments, reason = "the signatures are the library's")]

pub mod backend;
pub mod rule;
#[cfg(not(loom))]
pub mod session;
pub mod table;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cudnn::{Result, Status};
use crate::wire::{Reader, Value, Words};

/// `cublasStatus_t`; success is 0.
#[must_use]
pub const fn code(status: Status) -> i32 {
    match status {
        Status::NotInitialized => 1,
        Status::AllocFailed => 3,
        Status::BadParam | Status::InvalidValue => 7,
        Status::ExecutionFailed | Status::NotPermitted => 13,
        Status::InternalError => 14,
        Status::NotSupported => 15,
    }
}

/// What is set on a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// `cudaStream_t`
    pub stream: u64,
    /// `cublasPointerMode_t`: 0 where factors and results of one number are the program's memory, 1 where the device's.
    pub pointer_mode: i32,
    /// `cublasMath_t`
    pub math_mode: i32,
    /// `cublasAtomicsMode_t`
    pub atomics_mode: i32,
}

/// The handles of a process.
#[derive(Debug, Default)]
pub struct Handles(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    states: HashMap<u64, State>,
    last: u64,
}

/// How many handles a process can have.
const MOST: usize = 1 << 16;

impl Handles {
    /// `cublasCreate`: a number that none had before, as an address looks.
    ///
    /// # Errors
    /// `AllocFailed` where there are too many.
    pub fn create(&self) -> Result<u64> {
        let mut table = self.lock();
        if table.states.len() == MOST {
            return Err(Status::AllocFailed);
        }
        table.last += 64;
        let handle = table.last;
        table.states.insert(handle, State::default());
        Ok(handle)
    }

    /// `cublasDestroy`
    ///
    /// # Errors
    /// `NotInitialized` for a handle that is none, as of all functions.
    pub fn destroy(&self, handle: u64) -> Result {
        self.lock().states.remove(&handle).map(|_| ()).ok_or(Status::NotInitialized)
    }

    /// What is set on a handle.
    ///
    /// # Errors
    /// As above.
    pub fn get(&self, handle: u64) -> Result<State> {
        self.lock().states.get(&handle).copied().ok_or(Status::NotInitialized)
    }

    /// Sets something on it.
    ///
    /// # Errors
    /// As above, and those of the rule.
    pub fn change(&self, handle: u64, rule: impl FnOnce(&mut State) -> Result) -> Result {
        self.lock().states.get_mut(&handle).ok_or(Status::NotInitialized).and_then(rule)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A factor: a number of the program's, or one that is on the device when the compute comes to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factor {
    /// The number, as the widest type that it can have.
    Host(f64),
    /// Its address.
    Device(u64),
}

/// Where a result of one number goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To the program, which waits for it.
    Host,
    /// To this address.
    Device(u64),
}

/// `cublasComputeType_t`, which says what precision sums are of, and factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums(pub i32);

impl Sums {
    /// Are factors `double`? Else they are `float`.
    #[must_use]
    pub fn are_double(self) -> bool {
        matches!(self.0, 70 | 71)
    }
}

impl Value for Sums {
    fn put(&self, words: &mut Words) {
        self.0.put(words);
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        Self(Value::read(reader))
    }
}

/// No address has it.
const ON_DEVICE: u64 = 1 << 63;

impl Value for Factor {
    fn put(&self, words: &mut Words) {
        let (on_device, word) = match self {
            Self::Host(number) => (0, number.to_bits()),
            Self::Device(address) => (1, *address),
        };
        words.extend([on_device, word]);
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        match (reader.word(), reader.word()) {
            (0, word) => Self::Host(f64::from_bits(word)),
            (_, address) => Self::Device(address),
        }
    }
}

impl Value for Outcome {
    fn put(&self, words: &mut Words) {
        words.push(match self {
            Self::Host => 0,
            Self::Device(address) => ON_DEVICE | address,
        });
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        match reader.word() {
            0 => Self::Host,
            word => Self::Device(word & !ON_DEVICE),
        }
    }
}

/// The pointer mode is in the factors already.
impl Value for State {
    fn put(&self, words: &mut Words) {
        words.push(self.stream);
        self.math_mode.put(words);
        self.atomics_mode.put(words);
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        let (stream, math_mode) = (reader.word(), i32::read(reader));
        Self { stream, pointer_mode: 0, math_mode, atomics_mode: i32::read(reader) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_as_they_were_set_until_they_are_destroyed() {
        let handles = Handles::default();
        let [a, b] = [0, 1].map(|_| handles.create().unwrap());
        handles.change(a, |state| rule::set_pointer_mode(state, 1)).unwrap();
        assert_eq!(handles.change(a, |state| rule::set_pointer_mode(state, 2)), Err(Status::BadParam));
        assert_eq!([a, b].map(|handle| handles.get(handle).unwrap().pointer_mode), [1, 0]);
        handles.destroy(a).unwrap();
        assert_eq!(handles.destroy(a), Err(Status::NotInitialized));
        for wrong in [0, a, b + 1, u64::MAX] {
            assert_eq!(handles.get(wrong), Err(Status::NotInitialized));
        }
        assert!(!([a, b].contains(&handles.create().unwrap())));
    }

    #[test]
    fn factors_and_outcomes_come_back_as_they_went() {
        let mut words = Words::new();
        let factors = [Factor::Host(-0.0), Factor::Host(f64::MIN_POSITIVE), Factor::Device(0x2000_0000_0000)];
        factors.iter().for_each(|factor| factor.put(&mut words));
        let outcomes = [Outcome::Host, Outcome::Device(0), Outcome::Device(512)];
        outcomes.iter().for_each(|outcome| outcome.put(&mut words));
        let mut reader = Reader::new(&words);
        assert_eq!(factors.map(|_| Factor::read(&mut reader)), factors);
        assert_eq!(outcomes.map(|_| Outcome::read(&mut reader)), outcomes);
    }
}
