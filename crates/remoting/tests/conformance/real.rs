//! The real library's answers, through the C functions that the table names.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::path::Path;

use libloading::Library;
use vgpu_remoting::api::{Class, Type};
use vgpu_remoting::cudnn::table::Function;
use vgpu_remoting::descriptor::Ints;
use vgpu_remoting::wire::{Reader, Value, Words};

use super::{Answer, Call};

/// What results hold before a call, so that a call shows which of them it wrote.
const UNWRITTEN: i32 = 0x5EED_5EED;

/// Any function of the table: of the System V calling convention, integers go through six registers, then the
/// stack, floating point arguments, of which there are three at most, through registers of their own, and a
/// callee does not mind further arguments.
#[rustfmt::skip]
type Any = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, f64, f64, f64) -> i32;

pub struct Real {
    library: Library,
    /// Addresses of the descriptors, by number.
    descriptors: HashMap<u64, u64>,
    /// No library handle: the few functions of the table that take one check no more than that it is not NULL.
    handle: Box<[u64]>,
}

/// Where a function writes a result.
struct Place {
    r#type: Type,
    ints: [i32; 16],
    word: u64,
}

impl Real {
    pub fn load(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: the initialisers of the library that the caller chose to trust.
        let library = unsafe { Library::new(path) }?;
        Ok(Self { library, descriptors: HashMap::new(), handle: vec![0; 1 << 17].into() })
    }

    /// `cudnnGetVersion`
    pub fn version(&self) -> usize {
        // SAFETY: `size_t cudnnGetVersion(void)`.
        unsafe {
            let version: libloading::Symbol<unsafe extern "C" fn() -> usize> =
                self.library.get(b"cudnnGetVersion").expect("cudnnGetVersion");
            version()
        }
    }

    pub fn answer(&mut self, call: &Call) -> Answer {
        let signature = call.function.signature();
        let mut reader = Reader::new(&call.arguments);
        let mut integers = Vec::new();
        let mut floats = Vec::new();
        // Longer than any count that the library might read.
        let mut arrays: Vec<Box<[i32; 16]>> = Vec::new();
        for parameter in signature.arguments {
            match parameter.r#type {
                Type::Descriptor(_) => integers.push(self.address(reader.word())),
                Type::Handle => {
                    integers.push(if reader.word() == 0 { 0 } else { self.handle.as_ptr() as u64 })
                }
                // All 64 bits of the register, with the sign, as some compilers do it.
                Type::I32 => integers.push(i64::from(i32::read(&mut reader)).cast_unsigned()),
                Type::Scalar
                | Type::Read
                | Type::Write
                | Type::Update
                | Type::Factor
                | Type::Outcome
                | Type::Performances => {
                    unreachable!("of no descriptor call")
                }
                Type::U64 => integers.push(reader.word()),
                Type::F32 | Type::F64 => floats.push(f64::from_bits(reader.word())),
                Type::Ints => {
                    let mut array = Box::new([1; 16]);
                    let ints = Ints::read(&mut reader);
                    array[..ints.len()].copy_from_slice(&ints);
                    integers.push(array.as_ptr() as u64);
                    arrays.push(array);
                }
            }
        }
        let mut places: Vec<Place> =
            signature.results.iter().map(|result| Place::new(result.r#type)).collect();
        integers.extend(places.iter_mut().map(Place::address));
        integers.resize(14, 0);
        floats.resize(3, 0.0);
        let status = self.call(call.function, &integers, &floats);
        let mut results = Words::new();
        match signature.class {
            Class::Create => {
                self.descriptors.insert(call.arguments[0], places[0].word);
            }
            Class::Destroy => {
                self.descriptors.remove(&call.arguments[0]);
            }
            // A call that fails writes some of its results, or none; one that succeeds may have nothing to put
            // into an array.
            _ => places
                .iter()
                .take_while(|place| status == 0 || !place.untouched())
                .for_each(|place| place.put(&mut results)),
        }
        Answer { status, results }
    }

    fn address(&self, number: u64) -> u64 {
        if number == 0 { 0 } else { self.descriptors[&number] }
    }

    fn call(&self, function: Function, i: &[u64], f: &[f64]) -> i32 {
        let name = function.signature().name;
        // SAFETY: the table has the function's parameters, by their C types; each pointer among them is of a
        // descriptor that lives, or of an array or place longer than the library goes.
        unsafe {
            let any: libloading::Symbol<Any> = self.library.get(name.as_bytes()).expect(name);
            any(
                i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], i[9], i[10], i[11], i[12], i[13], f[0],
                f[1], f[2],
            )
        }
    }
}

impl Place {
    fn new(r#type: Type) -> Self {
        Self { r#type, ints: [UNWRITTEN; 16], word: UNWRITTEN as u64 }
    }

    fn address(&mut self) -> u64 {
        match self.r#type {
            Type::I32 | Type::Ints => self.ints.as_mut_ptr() as u64,
            _ => (&raw mut self.word) as u64,
        }
    }

    fn untouched(&self) -> bool {
        self.ints == [UNWRITTEN; 16] && self.word == UNWRITTEN as u64
    }

    fn put(&self, results: &mut Words) {
        match self.r#type {
            Type::I32 => self.ints[0].put(results),
            Type::Ints => {
                let ints: Ints = self.ints.into_iter().take_while(|value| *value != UNWRITTEN).collect();
                ints.put(results);
            }
            Type::F32 => results.push(self.word & u64::from(u32::MAX)),
            _ => results.push(self.word),
        }
    }
}
