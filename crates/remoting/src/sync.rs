//! The atomics of what is shared, and waiting for them. `loom` replaces both when it tries out all orders of them.

use std::time::Duration;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(any(loom, miri)))]
pub use crate::sys::{futex_wait, futex_wake};
#[cfg(miri)]
pub use awake::{futex_wait, futex_wake};
#[cfg(loom)]
pub use model::{futex_wait, futex_wake};

/// Memory that another process may have mapped too, and change at any time; so it is words that are read and
/// written one by one, and never anything that a reference could be held to.
pub type Region<'a> = &'a [AtomicU64];

/// How long a sleeper sleeps before it looks whether its peer is still there: half of the second within which the
/// death of either side is to be seen.
pub const NAP: Duration = Duration::from_millis(500);

/// Spinning that adapts: it is worth its time where the peer has a core of its own, and holds it up where not.
#[derive(Debug)]
pub struct Spin {
    /// Only ever a heuristic: nothing depends on its order with anything.
    turns: std::sync::atomic::AtomicU32,
}

impl Default for Spin {
    fn default() -> Self {
        Self { turns: (Self::MOST / 4).into() }
    }
}

impl Spin {
    /// Some 20 µs, less than it costs to sleep and to be woken.
    const MOST: u32 = if cfg!(loom) { 1 } else { 2000 };
    const LEAST: u32 = if cfg!(loom) { 1 } else { 4 };

    /// Waits a while for what `ready` tells. Did it come?
    pub fn until(&self, mut ready: impl FnMut() -> bool) -> bool {
        let turns = self.turns.load(Ordering::Relaxed);
        for _ in 0..turns {
            if ready() {
                self.turns.store((turns * 2).min(Self::MOST), Ordering::Relaxed);
                return true;
            }
            std::hint::spin_loop();
        }
        self.turns.store((turns / 2).max(Self::LEAST), Ordering::Relaxed);
        ready()
    }
}

/// A futex whose sleepers wake at once, as any may. `miri` takes the kernel's look at half a word for one of the
/// program's, which would have to be at the whole.
#[cfg(miri)]
mod awake {
    use std::time::Duration;

    use super::AtomicU64;

    /// See [`crate::sys::futex_wait`].
    pub fn futex_wait(_: &AtomicU64, _: u32, _: Duration) {
        std::thread::yield_now();
    }

    /// See [`crate::sys::futex_wake`].
    pub fn futex_wake(_: &AtomicU64) {}
}

/// A futex as `loom` can follow it: one that is not woken sleeps for ever, which `loom` reports.
#[cfg(loom)]
mod model {
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    use super::{AtomicU64, Ordering};

    loom::lazy_static! {
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    /// See [`crate::sys::futex_wait`]; the time is never up.
    pub fn futex_wait(word: &AtomicU64, expected: u32, _: Duration) {
        let lock = SLEEPERS.0.lock().unwrap();
        if word.load(Ordering::SeqCst) as u32 == expected {
            drop(SLEEPERS.1.wait(lock).unwrap());
        }
    }

    /// See [`crate::sys::futex_wake`].
    pub fn futex_wake(_: &AtomicU64) {
        let _lock = SLEEPERS.0.lock().unwrap();
        SLEEPERS.1.notify_all();
    }
}
