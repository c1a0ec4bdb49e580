//! A C function for each row of cuDNN's table, and version.
#![allow(unsafe_code, non_snake_case, clippy::too_many_arguments, reason = "names and signatures are the library's")]

use vgpu_remoting::api::Handle;
use vgpu_remoting::cudnn::activation::{self, Activation};
use vgpu_remoting::cudnn::convolution::{self, Convolution};
use vgpu_remoting::cudnn::dropout::{self, Dropout};
use vgpu_remoting::cudnn::filter::{self, Filter};
use vgpu_remoting::cudnn::pooling::{self, Pooling};
use vgpu_remoting::cudnn::tensor::{self, Tensor};
use vgpu_remoting::cudnn::{Got, Result, Status, Version};
use vgpu_remoting::cudnn_functions;
use vgpu_remoting::descriptor::{Content, Ints};

use super::answer;
use crate::arguments::{Argument, Call, Outcome, all_there};
use crate::process::{descriptors, is_forked, with_thread};

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
        // SAFETY: the name is this function's alone.
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        unsafe extern "C" fn $name($result: *mut usize) -> i32 {
            answer(Version::$version, || {
                all_there(&[!$result.is_null()])?;
                let made = create::<$kind>(Version::$version)?;
                // SAFETY: it is not NULL, so the program's own, of a pointer's size.
                unsafe { $result.write_unaligned(made) };
                Ok(())
            })
        }
    };
    ($version:ident $prefix:literal destroy $name:ident ($argument:ident: $kind:ty) ()) => {
        // SAFETY: as above.
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        extern "C" fn $name($argument: usize) -> i32 {
            answer(Version::$version, || destroy::<$kind>(Version::$version, $argument))
        }
    };
    ($version:ident $prefix:literal set $name:ident ($d:ident: $kind:ty $(, $argument:ident: $type:ty)*) ()
        $rule:path) => {
        // SAFETY: as above.
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        unsafe extern "C" fn $name($d: usize $(, $argument: <$type as Argument>::C)*) -> i32 {
            answer(Version::$version, || {
                let mut call = Call::new(Version::$version);
                // SAFETY: the arguments are what the C function's declaration says.
                $(let $argument = unsafe { <$type as Argument>::take($argument, &mut call) }?;)*
                let rule = |version, content: &mut $kind| $rule(version, content $(, $argument)*);
                descriptors().change(Version::$version, $d, rule)
            })
        }
    };
    ($version:ident $prefix:literal get $name:ident ($($argument:ident: $type:ty),*) ($($result:ident: $of:ty),*)
        $rule:path) => {
        // SAFETY: as above.
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        unsafe extern "C" fn $name(
            $($argument: <$type as Argument>::C,)* $($result: *mut <$of as Outcome>::C),*
        ) -> i32 {
            answer(Version::$version, || {
                all_there(&[$(!$result.is_null()),*])?;
                let mut call = Call::new(Version::$version);
                // SAFETY: the arguments are what the C function's declaration says.
                $(let $argument = unsafe { <$type as Argument>::take($argument, &mut call) }?;)*
                let got: Got<($($of,)*)> = $rule(Version::$version $(, $argument)*).into();
                let mut places = [$($result.cast::<()>()),*].into_iter().take(got.written);
                if let Some(($($result,)*)) = got.results {
                    $(if let Some(place) = places.next() {
                        // SAFETY: it is the result's place of the C function's declaration, and not NULL.
                        unsafe { <$of as Outcome>::write($result, place.cast()) };
                    })*
                }
                got.status
            })
        }
    };
    // Not served yet: the facade finds no function.
    ($version:ident $prefix:literal $compute:ident $($rest:tt)*) => {};
}

cudnn_functions!(functions);

fn create<C: Content>(version: Version) -> Result<usize> {
    if is_forked() {
        return Err(Status::NotInitialized);
    }
    with_thread(|thread| descriptors().create::<C>(thread, version))
}

/// In a child its parent's descriptors end with it.
fn destroy<C: Content>(version: Version, handle: usize) -> Result {
    if is_forked() {
        return Ok(());
    }
    with_thread(|thread| descriptors().destroy::<C>(thread, version, handle))
}
