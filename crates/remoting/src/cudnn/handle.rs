//! The library's handles: descriptors to whoever keeps them, with what is set on each. They are a client's own, and no
//! record has their contents. Touches nothing.
//!
//! The real library looks at a handle only as far as it is not NULL; one that has ended, or never was one, it follows.
//! Here that is `BadParam`, as NULL is.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::descriptor::{Content, Kind};

/// What is set on a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct State {
    /// `cudaStream_t`
    pub stream: u64,
}

impl Content for State {
    const KIND: Kind = Kind::Handle;
    const FRESH: Self = Self { stream: 0 };
}
