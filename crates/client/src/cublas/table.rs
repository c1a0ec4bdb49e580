//! A C function for each row of cuBLAS's table. Where a factor is, and where a result goes, is as the handle's pointer
//! mode says: in the program, where it is followed here, or on the device, where it is an address like others.
#![allow(
    unsafe_code,
    non_snake_case,
    clippy::too_many_arguments,
    reason = "names and signatures are the library's"
)]

use std::ffi::c_void;
use std::ptr;

use vgpu_remoting::api::{Read, Update, Write};
use vgpu_remoting::cublas::{Factor, Outcome, State, Sums};
use vgpu_remoting::cublas_functions;
use vgpu_remoting::cudnn::Result;

use super::answer;
use crate::arguments::all_there;
use crate::process::{call, end};

/// What is known of a compute while its arguments are taken.
struct Compute {
    /// Are factors and the result on the device?
    on_device: bool,
    /// Are they `double`? Else they are `float`.
    double: bool,
    /// Where the result goes, in the program.
    result: *mut c_void,
}

impl Compute {
    /// By a function of this name, on a handle with this state.
    fn new(name: &str, state: State) -> Self {
        let double = name.starts_with("cublasD");
        Self { on_device: state.pointer_mode == 1, double, result: ptr::null_mut() }
    }

    /// Writes the result.
    ///
    /// # Safety
    /// There is one, and it goes to the program.
    unsafe fn finish(&self, number: f64) {
        // SAFETY: it is not NULL, so the program's own, of the type that the function has.
        unsafe {
            match self.double {
                true => self.result.cast::<f64>().write_unaligned(number),
                false => self.result.cast::<f32>().write_unaligned(number as f32),
            }
        }
    }
}

/// A type of the table's arguments.
trait Argument: Sized {
    /// How C passes it.
    type C: Copy;

    /// Notes what other arguments depend on, before any is taken.
    fn note(_: Self::C, _: &mut Compute) {}

    /// Takes it.
    ///
    /// # Errors
    /// `BadParam` for a NULL where a number is, or goes.
    ///
    /// # Safety
    /// A pointer into the program is NULL or the program's own, to as much as the C function's declaration says.
    unsafe fn take(from: Self::C, compute: &mut Compute) -> Result<Self>;
}

/// Those that C passes as they are.
macro_rules! plain {
    ($($type:ty: $c:ty = $make:expr;)*) => {
        $(impl Argument for $type {
            type C = $c;

            unsafe fn take(from: $c, _: &mut Compute) -> Result<Self> {
                Ok($make(from))
            }
        })*
    };
}

plain! {
    i32: i32 = i32::from;
    u64: u64 = u64::from;
    Read: u64 = Read;
    Write: u64 = Write;
    Update: u64 = Update;
}

impl Argument for Sums {
    type C = i32;

    fn note(from: i32, compute: &mut Compute) {
        compute.double = Self(from).are_double();
    }

    unsafe fn take(from: i32, _: &mut Compute) -> Result<Self> {
        Ok(Self(from))
    }
}

impl Argument for Factor {
    type C = *const c_void;

    unsafe fn take(from: *const c_void, compute: &mut Compute) -> Result<Self> {
        all_there(&[!from.is_null()])?;
        if compute.on_device {
            return Ok(Self::Device(from.addr() as u64));
        }
        // SAFETY: it is not NULL and not on the device, so the program's own, of the type that the function has.
        Ok(Self::Host(unsafe {
            match compute.double {
                true => from.cast::<f64>().read_unaligned(),
                false => from.cast::<f32>().read_unaligned().into(),
            }
        }))
    }
}

impl Argument for Outcome {
    type C = *mut c_void;

    unsafe fn take(from: *mut c_void, compute: &mut Compute) -> Result<Self> {
        all_there(&[!from.is_null()])?;
        if compute.on_device {
            return Ok(Self::Device(from.addr() as u64));
        }
        compute.result = from;
        Ok(Self::Host)
    }
}

macro_rules! functions {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        $(function! { $class $name ($($argument: $type),*) ($($($result: $of),*)?) })*
    };
}

macro_rules! function {
    (create $name:ident () ($result:ident: $of:ty)) => {
        // SAFETY, of this name and those below: it is the function's alone.
        #[unsafe(export_name = concat!("vgpu_cublas_12_", stringify!($name)))]
        unsafe extern "C" fn $name($result: *mut u64) -> i32 {
            answer(|| call(|session| {
                all_there(&[!$result.is_null()])?;
                let made = session.$name()?;
                // SAFETY: it is not NULL, so the program's own, of a pointer's size.
                unsafe { $result.write_unaligned(made) };
                Ok(())
            }))
        }
    };
    (destroy $name:ident ($handle:ident: $of:ty) ()) => {
        #[unsafe(export_name = concat!("vgpu_cublas_12_", stringify!($name)))]
        extern "C" fn $name($handle: u64) -> i32 {
            answer(|| end(|| call(|session| session.$name($handle))))
        }
    };
    (set $name:ident ($handle:ident: $of:ty, $argument:ident: $type:ty) ()) => {
        #[unsafe(export_name = concat!("vgpu_cublas_12_", stringify!($name)))]
        extern "C" fn $name($handle: u64, $argument: $type) -> i32 {
            answer(|| call(|session| session.$name($handle, $argument)))
        }
    };
    (get $name:ident ($handle:ident: $handle_type:ty) ($result:ident: $of:ty)) => {
        #[unsafe(export_name = concat!("vgpu_cublas_12_", stringify!($name)))]
        unsafe extern "C" fn $name($handle: u64, $result: *mut $of) -> i32 {
            answer(|| call(|session| {
                all_there(&[!$result.is_null()])?;
                let got = session.$name($handle)?;
                // SAFETY: it is not NULL, so the program's own, of the result's type.
                unsafe { $result.write_unaligned(got) };
                Ok(())
            }))
        }
    };
    (compute $name:ident ($handle:ident: $of:ty $(, $argument:ident: $type:ty)*) ()) => {
        #[unsafe(export_name = concat!("vgpu_cublas_12_", stringify!($name)))]
        unsafe extern "C" fn $name($handle: u64 $(, $argument: <$type as Argument>::C)*) -> i32 {
            answer(|| call(|session| {
                let mut compute = Compute::new(stringify!($name), session.handles().get($handle)?);
                $(<$type as Argument>::note($argument, &mut compute);)*
                // SAFETY: the arguments are what the C function's declaration says.
                $(let $argument = unsafe { <$type as Argument>::take($argument, &mut compute) }?;)*
                if let Some(number) = session.$name($handle $(, $argument)*)? {
                    // SAFETY: a number comes back only where it goes to the program, to a place that is not NULL.
                    unsafe { compute.finish(number) };
                }
                Ok(())
            }))
        }
    };
}

cublas_functions!(functions);
