//! cuDNN's C functions, of both versions, made from the rows of the table; and those that are no rows.

mod about;
mod handle;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};

use vgpu_remoting::cudnn::{Result, Status, Version};

/// What C is told of a call. A panic, which would be an error of this crate's, becomes the library's own.
#[inline]
fn answer(version: Version, call: impl FnOnce() -> Result) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Status::InternalError));
    result.map_or_else(|status| status.code(version), |()| 0)
}
