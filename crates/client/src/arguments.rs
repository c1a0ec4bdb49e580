//! From C's arguments to those of the tables, and back: the one place where a program's pointers are followed.
//!
//! NULL is answered with `BadParam` before anything is written. The real libraries do so for some functions, and crash
//! for others. Alignment is not asked for: they do not either.
#![allow(unsafe_code)]

use std::ffi::c_int;

use vgpu_remoting::api::{Handle, Read, Scalar, Update, Write};
use vgpu_remoting::cudnn::activation::Activation;
use vgpu_remoting::cudnn::algorithms::{self, Performances};
use vgpu_remoting::cudnn::convolution::Convolution;
use vgpu_remoting::cudnn::dropout::Dropout;
use vgpu_remoting::cudnn::filter::Filter;
use vgpu_remoting::cudnn::normalization::Normalization;
use vgpu_remoting::cudnn::pooling::Pooling;
use vgpu_remoting::cudnn::reduction::Reduction;
use vgpu_remoting::cudnn::tensor::Tensor;
use vgpu_remoting::cudnn::{DOUBLE, Result, Status, Version};
use vgpu_remoting::descriptor::{Ints, MAX_DIMS};
use vgpu_remoting::reuse::Thread;
use vgpu_remoting::session::{Parameter, Session};

/// What is known of a call while its arguments are taken.
pub struct Call {
    version: Version,
    /// The `int` that was taken last: how many elements an array after it has.
    count: i32,
    /// Are the tensors of `double`, and so the factors?
    double: bool,
}

impl Call {
    pub fn new(version: Version) -> Self {
        Self { version, count: 0, double: false }
    }
}

/// A type of the tables' arguments.
pub trait Argument: Parameter {
    /// How C passes it.
    type C: Copy;

    /// Notes what other arguments of a compute depend on, before any is taken.
    ///
    /// # Errors
    /// `BadParam` for a handle that is none.
    #[inline]
    fn note(_: Self::C, _: &Session<'_>, _: &mut Thread, _: &mut Call) -> Result {
        Ok(())
    }

    /// Takes it.
    ///
    /// # Errors
    /// `BadParam` for a NULL.
    ///
    /// # Safety
    /// A pointer is NULL or the program's own, to as much as the C function's declaration says.
    unsafe fn take(from: Self::C, call: &mut Call) -> Result<Self::Passed>;
}

impl Argument for i32 {
    type C = c_int;

    #[inline]
    unsafe fn take(from: c_int, call: &mut Call) -> Result<Self> {
        call.count = from;
        Ok(from)
    }
}

/// Those that C passes as they are, or as a number in a struct of the tables.
macro_rules! plain {
    ($($type:ty: $c:ty = $make:expr;)*) => {
        $(impl Argument for $type {
            type C = $c;

            #[inline]
            unsafe fn take(from: $c, _: &mut Call) -> Result<Self::Passed> {
                Ok($make(from))
            }
        })*
    };
}

plain! {
    u64: u64 = u64::from;
    f32: f32 = f32::from;
    f64: f64 = f64::from;
    Read: u64 = Read;
    Write: u64 = Write;
    Update: u64 = Update;
    Filter: usize = usize::from;
    Convolution: usize = usize::from;
    Pooling: usize = usize::from;
    Activation: usize = usize::from;
    Dropout: usize = usize::from;
    Reduction: usize = usize::from;
    Normalization: usize = usize::from;
    Option<Tensor>: usize = usize::from;
    Option<Filter>: usize = usize::from;
    Option<Convolution>: usize = usize::from;
    Option<Pooling>: usize = usize::from;
}

/// Of functions that do not compute, the real library only asks whether it is NULL.
impl Argument for Handle {
    type C = usize;

    #[inline]
    fn note(from: usize, session: &Session<'_>, thread: &mut Thread, call: &mut Call) -> Result {
        session.using(thread, call.version, from)
    }

    #[inline]
    unsafe fn take(from: usize, _: &mut Call) -> Result<Self> {
        Ok(Self(from as u64))
    }
}

impl Argument for Tensor {
    type C = usize;

    #[inline]
    fn note(from: usize, session: &Session<'_>, _: &mut Thread, call: &mut Call) -> Result {
        let tensor = session.reuse().get::<Self>(call.version, from);
        call.double |= tensor.is_ok_and(|tensor| tensor.data_type == DOUBLE);
        Ok(())
    }

    #[inline]
    unsafe fn take(from: usize, _: &mut Call) -> Result<usize> {
        Ok(from)
    }
}

impl Argument for Scalar {
    type C = *const f32;

    #[inline]
    unsafe fn take(from: *const f32, call: &mut Call) -> Result<Self> {
        if from.is_null() {
            return Err(Status::BadParam);
        }
        // SAFETY: it is not NULL, so the program's own, of the type that the tensors have.
        Ok(Self(unsafe {
            if call.double { from.cast::<f64>().read_unaligned() } else { from.read_unaligned().into() }
        }))
    }
}

/// Of more elements than there can be, which the rules refuse, the first ones.
impl Argument for Ints {
    type C = *const c_int;

    #[inline]
    unsafe fn take(from: *const c_int, call: &mut Call) -> Result<Self> {
        let len = call.count.clamp(0, MAX_DIMS as i32) as usize;
        if len > 0 && from.is_null() {
            return Err(Status::BadParam);
        }
        // SAFETY: it is not NULL, so the program's own, of as many elements as the number before it says.
        Ok((0..len).map(|i| unsafe { from.add(i).read_unaligned() }).collect())
    }
}

/// A type of the tables' results.
pub trait Outcome {
    /// What C has it written to.
    type C;

    /// Writes it, of an array as much as the program asked for.
    ///
    /// # Safety
    /// The pointer is not NULL, and as [`Argument::take`].
    unsafe fn write(self, to: *mut Self::C, call: &Call);
}

macro_rules! outcome {
    ($($type:ty)*) => {
        $(impl Outcome for $type {
            type C = $type;

            #[inline]
            unsafe fn write(self, to: *mut $type, _: &Call) {
                // SAFETY: as the caller says.
                unsafe { to.write_unaligned(self) }
            }
        })*
    };
}
outcome!(i32 u64 f32 f64);

impl Outcome for Ints {
    type C = c_int;

    #[inline]
    unsafe fn write(self, to: *mut c_int, _: &Call) {
        for (i, value) in self.into_iter().enumerate() {
            // SAFETY: as the caller says; a rule gives no more than the program asked for.
            unsafe { to.add(i).write_unaligned(value) }
        }
    }
}

/// `cudnnConvolutionFwdAlgoPerf_t` and its like.
#[repr(C)]
pub struct Performance {
    algorithm: c_int,
    status: c_int,
    time: f32,
    memory: usize,
    determinism: c_int,
    math_type: c_int,
    reserved: [c_int; 3],
}

impl Outcome for Performances {
    type C = Performance;

    unsafe fn write(self, to: *mut Performance, call: &Call) {
        // What a worker answers is not to be more than there is room for.
        for (i, one) in self.into_iter().take(call.count.max(0) as usize).enumerate() {
            let algorithms::Performance { algorithm, status, time, memory, determinism, math_type } = one;
            let (memory, reserved) = (memory as usize, [0; 3]);
            let one = Performance { algorithm, status, time, memory, determinism, math_type, reserved };
            // SAFETY: as the caller says; these are no more than the program asked for.
            unsafe { to.add(i).write_unaligned(one) }
        }
    }
}

/// Is none of these NULL?
///
/// # Errors
/// `BadParam` if one is.
#[inline]
pub fn all_there(pointers: &[bool]) -> Result {
    if pointers.iter().all(|there| *there) { Ok(()) } else { Err(Status::BadParam) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Performance = Performance {
        algorithm: 0,
        status: 0,
        time: 0.0,
        memory: 0,
        determinism: 0,
        math_type: 0,
        reserved: [0; 3],
    };

    #[test]
    fn no_more_performances_are_written_than_were_asked_for() {
        let one = algorithms::Performance {
            algorithm: 1,
            status: 0,
            time: -1.0,
            memory: 0,
            determinism: 1,
            math_type: 0,
        };
        for asked in [-1, 0, 2, 9] {
            let call = Call { count: asked, ..Call::new(Version::V9) };
            let mut written: [Performance; algorithms::MOST] = std::array::from_fn(|_| NOTHING);
            // SAFETY: there is room for all that there are.
            unsafe { Performances::from([one; algorithms::MOST]).write(written.as_mut_ptr(), &call) };
            let count = written.iter().filter(|one| one.algorithm == 1).count();
            assert_eq!(count as i32, asked.clamp(0, algorithms::MOST as i32));
        }
    }
}
