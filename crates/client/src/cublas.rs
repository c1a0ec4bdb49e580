//! cuBLAS's C functions, made from the rows of the table; and those that are no rows.

mod copy;
mod names;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};

use vgpu_remoting::cublas::code;
use vgpu_remoting::cudnn::{Result, Status};

/// What C is told of a call. A panic, which would be an error of this crate's, becomes the library's own.
#[inline]
fn answer(call: impl FnOnce() -> Result) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Status::InternalError));
    result.map_or_else(code, |()| 0)
}
