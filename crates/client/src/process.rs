//! What there is once in a process, and once in each of its threads.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vgpu_remoting::contents;
use vgpu_remoting::reuse::{Reuse, Thread};
use vgpu_remoting::slots::MAX_SLOTS;
use zerocopy::FromZeros;

use crate::sys;

static DESCRIPTORS: OnceLock<Reuse<'static>> = OnceLock::new();

/// Is this a child of a process that had begun?
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static THREAD: RefCell<Entered> = RefCell::new(Entered::new());
}

/// The descriptors of this process.
#[inline]
pub fn descriptors() -> &'static Reuse<'static> {
    DESCRIPTORS.get_or_init(begin)
}

#[cold]
fn begin() -> Reuse<'static> {
    sys::in_forked_children(forked_child);
    let words = contents::words(contents::CAPACITY);
    let table = <[AtomicU64]>::new_box_zeroed_with_elems(words).expect("address space for contents");
    Reuse::new(MAX_SLOTS, Box::leak(table))
}

extern "C" fn forked_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Is this a child of a process that had begun? It has its parent's descriptors, but may find its parent's locks held
/// by threads that it does not have, and its worker is its parent's: nothing begins in it any more.
#[inline]
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Calls `with` with what this thread keeps for itself.
#[inline]
pub fn with_thread<T>(with: impl FnOnce(&mut Thread) -> T) -> T {
    let mut with = Some(with);
    let mut call = |entered: &mut Entered| Some(with.take()?(entered.0.as_mut()?));
    let done = THREAD.try_with(|entered| call(&mut *entered.try_borrow_mut().ok()?));
    // Else the thread ends, and calls from a destructor; or a signal has interrupted a call, and calls.
    done.ok().flatten().or_else(|| call(&mut Entered::new())).expect("not called yet")
}

/// What a thread keeps, until it ends.
struct Entered(Option<Thread>);

impl Entered {
    fn new() -> Self {
        Self(Some(descriptors().enter()))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take().filter(|_| !is_forked()) {
            descriptors().leave(thread);
        }
    }
}
