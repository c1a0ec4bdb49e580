//! Handles that are the client's alone: streams and events. A handle is a number that none had before, as an
//! address looks. Touches nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The last that was given out, of whatever sort: the handle of one sort is none of another. The first numbers are
/// the runtime's own streams.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A handle that nothing had before.
pub fn fresh() -> u64 {
    LAST.fetch_add(64, Ordering::Relaxed) + 64
}

/// The handles of one sort, with what is set on each. Only to be touched in a call that [`crate::process::call`] made.
pub struct Handles<T>(Mutex<BTreeMap<u64, T>>);

impl<T: Copy> Handles<T> {
    /// None yet.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// One more.
    pub fn create(&self, set: T) -> u64 {
        let handle = fresh();
        self.insert(handle, set);
        handle
    }

    /// One more; none where there are as many as there may be.
    pub fn create_within(&self, most: usize, set: T) -> Option<u64> {
        self.with(|all| {
            (all.len() < most).then(|| {
                let handle = fresh();
                all.insert(handle, set);
                handle
            })
        })
    }

    /// One by a handle that [`fresh`] gave, or that there was before.
    pub fn insert(&self, handle: u64, set: T) {
        self.with(|all| all.insert(handle, set));
    }

    /// What is set on one; none where there is no such.
    pub fn get(&self, handle: u64) -> Option<T> {
        self.with(|all| all.get(&handle).copied())
    }

    /// Sets something else on one; none where there is no such.
    pub fn set(&self, handle: u64, set: T) -> Option<()> {
        self.with(|all| all.get_mut(&handle).map(|was| *was = set))
    }

    /// Ends one; none where there is no such.
    pub fn destroy(&self, handle: u64) -> Option<T> {
        self.with(|all| all.remove(&handle))
    }

    /// Ends those of which `which` is true, and gives them.
    pub fn destroy_if(&self, which: impl Fn(&T) -> bool) -> Vec<(u64, T)> {
        self.with(|all| all.extract_if(.., |_, set| which(set)).collect())
    }

    fn with<R>(&self, look: impl FnOnce(&mut BTreeMap<u64, T>) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
