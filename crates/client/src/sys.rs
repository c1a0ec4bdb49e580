//! All `unsafe` of this crate that is not a C function's own: what threads keep, what this process's children run, and
//! what is loaded.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use zerocopy::FromZeros;

use crate::process::Kept;

/// What the thread keeps. `thread_local!` would call a function of C's for the place, each time, in a library: a fifth of
/// what a descriptor's life costs. *TLS descriptors* ("Thread-Local Storage Descriptors for IA32 and AMD64/EM64T", Oliva and
/// Araujo) need none where the loader has had room for it beside the program's own, and are as right where it has not.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn kept<T>(look: impl FnOnce(&Kept) -> T) -> T {
    let kept: *const Kept;
    // SAFETY: what is called gives the distance of the thread's own from the thread's pointer, which is at `fs:0`. It keeps
    // all registers but `rax`; those of vectors are named for loaders of before glibc 2.40, which did not keep them where
    // they had to allocate (its bug 31372), and of these this target's baseline has no others. The stack is aligned for it, and nothing
    // lies below, since `nostack` is not said. It reads what the loader wrote, and may allocate: no memory that Rust knows
    // of; and what it gives is the same as long as the thread lives: `pure`, `nomem`.
    unsafe {
        std::arch::asm!(
            "leaq vgpu_kept@tlsdesc(%rip), %rax",
            "call *vgpu_kept@tlscall(%rax)",
            "addq %fs:0, %rax",
            out("rax") kept,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(pure, nomem, att_syntax),
        );
    }
    // SAFETY: below, each thread has room for one, aligned to it, that is zero at first, which is a `Kept`: `FromZeros`. No
    // other thread comes to it, and there are no references to it but such as this one.
    look(unsafe { &*kept })
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss.vgpu_kept, \"awT\", @nobits",
    ".globl vgpu_kept",
    ".hidden vgpu_kept",
    ".type vgpu_kept, @object",
    ".size vgpu_kept, {size}",
    // Of one line of the processor's cache.
    ".p2align 6",
    "vgpu_kept: .zero {size}",
    ".popsection",
    size = const size_of::<Kept>(),
);

#[cfg(target_arch = "x86_64")]
const _: () = {
    const fn is_right_as_zero<T: FromZeros>() {}
    is_right_as_zero::<Kept>();
    assert!(align_of::<Kept>() <= 64);
    // It would have more registers of vectors.
    assert!(!cfg!(target_feature = "avx512f"));
};

/// What the thread keeps.
#[cfg(not(target_arch = "x86_64"))]
pub fn kept<T>(look: impl FnOnce(&Kept) -> T) -> T {
    thread_local! {
        static KEPT: Kept = Kept::new_zeroed();
    }
    KEPT.with(look)
}

/// Has `child` run in each child that this process forks, before `fork` returns there.
pub fn in_forked_children(child: extern "C" fn()) {
    // SAFETY: `child` is of a library that is never unloaded. Only memory can be lacking, some bytes: nothing is to be
    // done about that.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// The address of a function of a library, by that's name, by which a program would load it. It stays loaded.
pub fn function(library: &CStr, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: what loading it runs, a program's loading it would run.
    let library = NonNull::new(unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY) })?;
    // SAFETY: it is a library's handle.
    NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) }).map(NonNull::as_ptr)
}
