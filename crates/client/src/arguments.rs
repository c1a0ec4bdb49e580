//! From C's arguments to those of the tables, and back: the one place where a program's pointers are followed.
//!
//! NULL is answered with `BadParam` before anything is written. The real libraries do so for some functions, and crash
//! for others. Alignment is not asked for: they do not either.
#![allow(unsafe_code)]

use std::ffi::c_int;

use vgpu_remoting::api::Handle;
use vgpu_remoting::cudnn::activation::Activation;
use vgpu_remoting::cudnn::convolution::Convolution;
use vgpu_remoting::cudnn::dropout::Dropout;
use vgpu_remoting::cudnn::filter::Filter;
use vgpu_remoting::cudnn::pooling::Pooling;
use vgpu_remoting::cudnn::tensor::Tensor;
use vgpu_remoting::cudnn::{Result, Status, Version};
use vgpu_remoting::descriptor::{Ints, MAX_DIMS};

use crate::process::descriptors;

/// What is known of a call while its arguments are taken.
pub struct Call {
    version: Version,
    /// The `int` that was taken last: how many elements an array after it has.
    count: i32,
}

impl Call {
    pub fn new(version: Version) -> Self {
        Self { version, count: 0 }
    }
}

/// A type of the tables' arguments.
pub trait Argument: Sized {
    /// How C passes it.
    type C;

    /// Takes it.
    ///
    /// # Errors
    /// `BadParam` for a NULL, and for what is no descriptor of that kind.
    ///
    /// # Safety
    /// A pointer is NULL or the program's own, to as much as the C function's declaration says.
    unsafe fn take(from: Self::C, call: &mut Call) -> Result<Self>;
}

impl Argument for i32 {
    type C = c_int;

    #[inline]
    unsafe fn take(from: c_int, call: &mut Call) -> Result<Self> {
        call.count = from;
        Ok(from)
    }
}

macro_rules! plain {
    ($($type:ty)*) => {
        $(impl Argument for $type {
            type C = $type;

            #[inline]
            unsafe fn take(from: $type, _: &mut Call) -> Result<Self> {
                Ok(from)
            }
        })*
    };
}
plain!(u64 f32 f64);

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

macro_rules! descriptors {
    ($($kind:ty)*) => {
        $(impl Argument for $kind {
            type C = usize;

            #[inline]
            unsafe fn take(from: usize, call: &mut Call) -> Result<Self> {
                descriptors().get(call.version, from)
            }
        })*
    };
}
descriptors!(Tensor Filter Convolution Pooling Activation Dropout);

impl<D: Argument<C = usize>> Argument for Option<D> {
    type C = usize;

    #[inline]
    unsafe fn take(from: usize, call: &mut Call) -> Result<Self> {
        // SAFETY: as the caller says.
        if from == 0 { Ok(None) } else { unsafe { D::take(from, call) }.map(Some) }
    }
}

impl Argument for Handle {
    type C = usize;

    #[inline]
    unsafe fn take(from: usize, _: &mut Call) -> Result<Self> {
        if from == 0 { Err(Status::BadParam) } else { Ok(Self(from as u64)) }
    }
}

/// A type of the tables' results.
pub trait Outcome {
    /// What C has it written to.
    type C;

    /// Writes it.
    ///
    /// # Safety
    /// The pointer is not NULL, and as [`Argument::take`].
    unsafe fn write(self, to: *mut Self::C);
}

macro_rules! outcome {
    ($($type:ty)*) => {
        $(impl Outcome for $type {
            type C = $type;

            #[inline]
            unsafe fn write(self, to: *mut $type) {
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
    unsafe fn write(self, to: *mut c_int) {
        for (i, value) in self.into_iter().enumerate() {
            // SAFETY: as the caller says; a rule gives no more than the program asked for.
            unsafe { to.add(i).write_unaligned(value) }
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
