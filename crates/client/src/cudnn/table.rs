//! A C function for each row of cuDNN's table, and version.
#![allow(
    unsafe_code,
    non_snake_case,
    clippy::too_many_arguments,
    reason = "names and signatures are the library's"
)]

use vgpu_remoting::api::{Handle, Read, Scalar, Update, Write};
use vgpu_remoting::cudnn::activation::Activation;
use vgpu_remoting::cudnn::algorithms::Performances;
use vgpu_remoting::cudnn::convolution::Convolution;
use vgpu_remoting::cudnn::dropout::Dropout;
use vgpu_remoting::cudnn::filter::Filter;
use vgpu_remoting::cudnn::normalization::Normalization;
use vgpu_remoting::cudnn::pooling::Pooling;
use vgpu_remoting::cudnn::reduction::Reduction;
use vgpu_remoting::cudnn::tensor::Tensor;
use vgpu_remoting::cudnn::{Got, Version};
use vgpu_remoting::cudnn_functions;
use vgpu_remoting::descriptor::Ints;

use super::answer;
use crate::arguments::{Argument, Call, Outcome, all_there};
use crate::process::{call, call_with_thread, end};

macro_rules! functions {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        mod v8 {
            use super::*;
            $(function! { V8 "vgpu_cudnn_8_" $class $name ($($argument: $type),*) ($($($result: $of),*)?) $($rule)? })*
        }
        mod v9 {
            use super::*;
            $(function! { V9 "vgpu_cudnn_9_" $class $name ($($argument: $type),*) ($($($result: $of),*)?) $($rule)? })*
        }
    };
}

macro_rules! function {
    ($version:ident $prefix:literal create $name:ident () ($result:ident: $kind:ty)) => {
        // SAFETY, of this name and those below: it is the function's alone.
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        unsafe extern "C" fn $name($result: *mut usize) -> i32 {
            answer(Version::$version, || call_with_thread(|session, thread| {
                all_there(&[!$result.is_null()])?;
                let made = session.$name(thread, Version::$version)?;
                // SAFETY: it is not NULL, so the program's own, of a pointer's size.
                unsafe { $result.write_unaligned(made) };
                Ok(())
            }))
        }
    };
    ($version:ident $prefix:literal destroy $name:ident ($argument:ident: $kind:ty) ()) => {
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        extern "C" fn $name($argument: usize) -> i32 {
            answer(Version::$version, || end(|| {
                call_with_thread(|session, thread| session.$name(thread, Version::$version, $argument))
            }))
        }
    };
    // A get, or a query.
    ($version:ident $prefix:literal $class:ident $name:ident ($($argument:ident: $type:ty),*)
        ($($result:ident: $of:ty),+) $($rule:path)?) => {
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        unsafe extern "C" fn $name(
            $($argument: <$type as Argument>::C,)* $($result: *mut <$of as Outcome>::C),+
        ) -> i32 {
            answer(Version::$version, || called!($class |session, thread| {
                all_there(&[$(!$result.is_null()),*])?;
                let mut call = Call::new(Version::$version);
                note!($class session thread call $($argument: $type),*);
                // SAFETY: the arguments are what the C function's declaration says.
                $(let $argument = unsafe { <$type as Argument>::take($argument, &mut call) }?;)*
                let got: Got<($($of,)*)> = asked!($class session thread $name(Version::$version $(, $argument)*));
                let mut places = [$($result.cast::<()>()),*].into_iter().take(got.written);
                if let Some(($($result,)*)) = got.results {
                    $(if let Some(place) = places.next() {
                        // SAFETY: it is the result's place of the C function's declaration, and not NULL.
                        unsafe { <$of as Outcome>::write($result, place.cast(), &call) };
                    })*
                }
                got.status
            }))
        }
    };
    // A set, or a compute.
    ($version:ident $prefix:literal $class:ident $name:ident ($($argument:ident: $type:ty),*) () $($rule:path)?) => {
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        unsafe extern "C" fn $name($($argument: <$type as Argument>::C),*) -> i32 {
            answer(Version::$version, || called!($class |session, thread| {
                let mut call = Call::new(Version::$version);
                note!($class session thread call $($argument: $type),*);
                // SAFETY: the arguments are what the C function's declaration says.
                $(let $argument = unsafe { <$type as Argument>::take($argument, &mut call) }?;)*
                asked!($class session thread $name(Version::$version $(, $argument)*))
            }))
        }
    };
}

/// Code for the functions of a class: other code for sets and gets, which want nothing of the thread, and of which no
/// argument depends on another.
macro_rules! of_class {
    (set $with:tt $without:tt) => { of_class!(@ $without) };
    (get $with:tt $without:tt) => { of_class!(@ $without) };
    ($compute:ident $with:tt $without:tt) => { of_class!(@ $with) };
    (@ { $($code:tt)* }) => { $($code)* };
}

/// How the process makes the call.
macro_rules! called {
    ($class:ident |$session:ident, $thread:ident| $body:block) => {
        of_class!($class { call_with_thread(|$session, $thread| $body) } { call(|$session| $body) })
    };
}

/// What the session is asked.
macro_rules! asked {
    ($class:ident $session:ident $thread:ident $name:ident($($argument:expr),*)) => {
        of_class!($class { $session.$name($thread, $($argument),*) } { $session.$name($($argument),*) })
    };
}

/// What is noted of the arguments before any is taken.
macro_rules! note {
    ($class:ident $session:ident $thread:ident $call:ident $($argument:ident: $type:ty),*) => {
        of_class!($class { $(<$type as Argument>::note($argument, $session, $thread, &mut $call)?;)* } {})
    };
}

cudnn_functions!(functions);
