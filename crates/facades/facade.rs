//! A library that a program was linked to, by name, version and symbols only: each of its functions jumps into
//! `libvgpu_client.so`, where all state is. Touches nothing.
//!
//! The folders beside this file are named by SONAME; `symbols` in each are the names that the real library exports.
//! Which of them are served is not known here: the client exports a function for each that is, and a weak reference
//! to one that is not is NULL. So a further function needs nothing here.
//!
//! The jumps are x86-64's; elsewhere the library is empty.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, non_snake_case, reason = "the names are the library's")]

/// A function for each name. Arguments stay where the caller put them; a function that is not served is asked for its
/// status by its name, wherefore its arguments are lost.
macro_rules! facade {
    ($client:literal $($name:ident)*) => {
        $(
            // SAFETY: the name is this library's own, and of no other object of it.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                std::arch::naked_asm!(
                    concat!(".weak ", $client, stringify!($name)),
                    concat!("mov r11, qword ptr [rip + ", $client, stringify!($name), "@GOTPCREL]"),
                    "test r11, r11",
                    "jz 2f",
                    "jmp r11",
                    "2: lea rdi, [rip + 3f]",
                    concat!("jmp qword ptr [rip + ", $client, "unserved@GOTPCREL]"),
                    concat!("3: .asciz \"", stringify!($name), "\""),
                )
            }
        )*
    };
}

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
