//! What driver and runtime share: the device, what is on it, and their errors, which have the same numbers. So what one
//! of them has made is also the other's. All of it is of the process, and to be touched only in a call that
//! [`crate::process::call`] made.

pub mod attributes;
pub mod context;
pub mod copy;
pub mod event;
pub mod function;
pub mod host;
pub mod memory;
pub mod pool;
pub mod stream;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use vgpu_remoting::cudnn::Status;
use vgpu_remoting::session::Session;

/// `CUresult` and `cudaError_t`, not of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub c_int);

impl Error {
    pub const INVALID_VALUE: Self = Self(1);
    pub const OUT_OF_MEMORY: Self = Self(2);
    pub const NOT_INITIALIZED: Self = Self(3);
    pub const NO_DEVICE: Self = Self(100);
    pub const INVALID_DEVICE: Self = Self(101);
    pub const INVALID_CONTEXT: Self = Self(201);
    pub const UNSUPPORTED_LIMIT: Self = Self(215);
    /// Of a stream, an event, or whatever else has one.
    pub const INVALID_HANDLE: Self = Self(400);
    pub const NOT_FOUND: Self = Self(500);
    pub const NOT_READY: Self = Self(600);
    pub const CONTEXT_IS_DESTROYED: Self = Self(709);
    pub const LAUNCH_FAILED: Self = Self(719);
    /// In a function that the program has run in a stream.
    pub const NOT_PERMITTED: Self = Self(800);
    pub const NOT_SUPPORTED: Self = Self(801);
    pub const UNKNOWN: Self = Self(999);
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        match status {
            Status::BadParam | Status::InvalidValue => Self::INVALID_VALUE,
            Status::AllocFailed => Self::OUT_OF_MEMORY,
            Status::NotInitialized => Self::NOT_INITIALIZED,
            // Also where the worker is gone, since then nothing works any more.
            Status::ExecutionFailed => Self::LAUNCH_FAILED,
            Status::NotSupported => Self::NOT_SUPPORTED,
            Status::NotPermitted => Self::NOT_PERMITTED,
            Status::InternalError => Self::UNKNOWN,
        }
    }
}

/// Is there a device: a worker that has memory?
pub fn is_there(session: &Session<'_>) -> bool {
    !session.client().channel().device().is_empty()
}

/// Was `cuInit` called, or anything of the runtime that has a context?
static INITIALISED: AtomicBool = AtomicBool::new(false);

/// Has the driver work from now on.
///
/// # Errors
/// `NO_DEVICE` without one.
pub fn initialise(session: &Session<'_>) -> Result<(), Error> {
    if !is_there(session) {
        return Err(Error::NO_DEVICE);
    }
    INITIALISED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Does the driver work?
///
/// # Errors
/// `NOT_INITIALIZED` where it does not.
pub fn initialised() -> Result<(), Error> {
    if INITIALISED.load(Ordering::Relaxed) { Ok(()) } else { Err(Error::NOT_INITIALIZED) }
}
