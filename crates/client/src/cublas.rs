//! cuBLAS's C functions, made from the rows of the table; and those that are no rows.

mod copy;
mod names;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};

use vgpu_remoting::cublas::code;
use vgpu_remoting::cudnn::{Result, Status};
use vgpu_remoting::session::Session;

use crate::process;

/// A `cublasStatus_t`, of what is not success.
struct Wrong(i32);

/// `CUBLAS_STATUS_INVALID_VALUE`
const INVALID_VALUE: Wrong = Wrong(7);

impl From<Status> for Wrong {
    fn from(status: Status) -> Self {
        Self(code(status))
    }
}

/// What C is told of a call.
#[inline]
fn answer(call: impl FnOnce() -> Result) -> i32 {
    told(|| call().map_err(Wrong::from))
}

/// The same of a call that needs nothing of its thread's, and has statuses of its own.
fn ask(call: impl FnOnce(&'static Session<'static>) -> std::result::Result<(), Wrong>) -> i32 {
    told(|| process::call(call))
}

/// A panic, which would be an error of this crate's, becomes the library's own.
#[inline]
fn told(call: impl FnOnce() -> std::result::Result<(), Wrong>) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(Status::InternalError.into()));
    result.map_or_else(|Wrong(status)| status, |()| 0)
}
