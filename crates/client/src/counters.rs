//! What this process has counted, for a program that asks: `vgpu_counters`, the one function here that is no library's.
//! Programs find it with dlsym(3), and do without where it is not.
#![allow(unsafe_code, reason = "a C function")]

use std::ffi::c_int;
use std::ptr;

use vgpu_remoting::counters::Counts;

use crate::process;

/// What is written, in this order for ever; a later build may have more after it.
#[repr(C)]
struct Counters {
    /// How many bytes the program has room for, with this; then how many were written.
    size: u64,
    calls: u64,
    records: u64,
    wakes: u64,
    predicted: u64,
    known: u64,
    new: u64,
    bytes: u64,
}

/// Writes what was counted so far, as far as there is room; it is no call itself. The status is 0, or 1 where there is no
/// room.
// SAFETY: the name is this function's alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_counters(to: *mut Counters) -> c_int {
    if to.is_null() {
        return 1;
    }
    // SAFETY: it is not NULL, so the program's own, and begins with a number.
    let room = unsafe { (&raw const (*to).size).read_unaligned() };
    let size = (size_of::<Counters>() as u64).min(room);
    if size < size_of::<u64>() as u64 {
        return 1;
    }
    let Counts { calls, records, wakes, predicted, known, new, bytes } = process::counts();
    let counters = Counters { size, calls, records, wakes, predicted, known, new, bytes };
    // SAFETY: no more than the program says that it has room for, nor than there is.
    unsafe { ptr::copy_nonoverlapping((&raw const counters).cast::<u8>(), to.cast(), size as usize) };
    0
}
