//! Functions that are not served: each is answered with its library's status for that, counted, and named once in
//! the log.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::panic::catch_unwind;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vgpu_remoting::counters::{NAMES, put_unserved};
use vgpu_remoting::cudnn::{Status, Version};
use vgpu_remoting::sync::Region;

use crate::process::is_forked;
use crate::{cudart, log};

static UNSERVED: Mutex<Unserved> = Mutex::new(Unserved { process: 0, calls: Vec::new(), shared: None });

/// Which functions were called, and how often; those beyond [`NAMES`] count together for the worker.
struct Unserved {
    /// Whose calls they are: a child has its parent's memory, and has called nothing.
    process: u32,
    calls: Vec<Call>,
    /// Where the worker is told. Such a call begins nothing: a program may fork after it.
    shared: Option<Region<'static>>,
}

struct Call {
    library: &'static str,
    name: String,
    count: u64,
}

impl Unserved {
    fn tell(&self, index: usize) {
        let others = self.calls.iter().skip(NAMES).map(|call| call.count).sum();
        if let (Some(shared), Some(call)) = (self.shared, self.calls.get(index)) {
            put_unserved(shared, index, &call.name, call.count, others);
        }
    }
}

fn lock() -> MutexGuard<'static, Unserved> {
    let mut unserved = UNSERVED.lock().unwrap_or_else(PoisonError::into_inner);
    if unserved.process != process::id() {
        *unserved = Unserved { process: process::id(), calls: Vec::new(), shared: None };
    }
    unserved
}

/// Has the worker told in these counters what was called so far, and will be.
pub fn tell(shared: Region<'static>) {
    let mut unserved = lock();
    unserved.shared = Some(shared);
    (0..unserved.calls.len()).for_each(|index| unserved.tell(index));
}

/// Notes a call. A child that was forked does not: a thread that it does not have may hold the lock.
fn note(library: &'static str, name: &CStr) {
    if is_forked() {
        return;
    }
    let name = name.to_string_lossy();
    let mut unserved = lock();
    let known = unserved.calls.iter().position(|call| call.library == library && call.name == name);
    let index = known.unwrap_or_else(|| {
        log(&format!("{library}: {name} is not served by vgpu: it answers that it is not supported"));
        unserved.calls.push(Call { library, name: name.into_owned(), count: 0 });
        unserved.calls.len() - 1
    });
    unserved.calls[index].count += 1;
    unserved.tell(index);
}

macro_rules! libraries {
    ($($name:ident $library:literal $status:expr;)*) => {
        $(
            // SAFETY: the name is this function's alone.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(name: *const c_char) -> c_int {
                // SAFETY: only facades call it, with a constant of theirs.
                let name = unsafe { CStr::from_ptr(name) };
                let _ = catch_unwind(|| note($library, name));
                $status
            }
        )*
    };
}

libraries! {
    vgpu_cudnn_8_unserved "libcudnn.so.8" Status::NotSupported.code(Version::V8);
    vgpu_cudnn_9_unserved "libcudnn.so.9" Status::NotSupported.code(Version::V9);
    vgpu_cudart_12_unserved "libcudart.so.12" cudart::failed(801);
    vgpu_cuda_1_unserved "libcuda.so.1" 801;
    vgpu_cublas_12_unserved "libcublas.so.12" 15;
}
