//! The atomics of what is shared, which `loom` replaces when it tries out all orders of them.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Memory that another process may have mapped too, and change at any time; so it is words that are read and
/// written one by one, and never anything that a reference could be held to.
pub type Region<'a> = &'a [AtomicU64];
