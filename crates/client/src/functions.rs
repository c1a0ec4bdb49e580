//! How the C functions of a library are written down.
#![allow(unsafe_code, reason = "C functions' names")]

/// C functions, by all of their names after the library's: how they are entered, their arguments, and what they do. What
/// names differ in is nothing here: the default stream that is meant by NULL (`_ptsz`, `_ptds`), or the version, where
/// only what it does has changed.
macro_rules! functions {
    ($library:literal $($enter:ident [$($name:ident)+] $arguments:tt = $call:expr;)*) => {
        $($($crate::functions::functions! { @ $library $enter $name $arguments $call })+)*
    };
    (@ $library:literal $enter:ident $name:ident ($($argument:ident: $type:ty),* $(,)?) $call:expr) => {
        const _: () = {
            // SAFETY: the name is this function's alone.
            #[unsafe(export_name = concat!($library, stringify!($name)))]
            extern "C" fn function($($argument: $type),*) -> std::ffi::c_int {
                $enter($call)
            }
        };
    };
}
pub(crate) use functions;
