//! cuDNN's handles, which are the client's alone, and their streams. Order is total, so that a stream is only kept.
#![allow(unsafe_code, non_snake_case, reason = "the names are the library's")]

use vgpu_remoting::cudnn::{Status, Version};

use super::answer;
use crate::arguments::all_there;
use crate::handles::Handles;
use crate::process::{call, is_forked};

/// The stream of each.
static HANDLES: Handles<u64> = Handles::new();

macro_rules! functions {
    ($version:ident $prefix:literal) => {
        // SAFETY, of this one and those below: the name is this function's alone.
        #[unsafe(export_name = concat!($prefix, "cudnnCreate"))]
        unsafe extern "C" fn cudnnCreate(handle: *mut u64) -> i32 {
            answer(Version::$version, || {
                call(|_, _| {
                    all_there(&[!handle.is_null()])?;
                    // SAFETY: it is not NULL, so the program's own, of a pointer's size.
                    unsafe { handle.write_unaligned(HANDLES.create(0)) };
                    Ok(())
                })
            })
        }

        #[unsafe(export_name = concat!($prefix, "cudnnDestroy"))]
        extern "C" fn cudnnDestroy(handle: u64) -> i32 {
            // A child has none of its own, and its parent's end with it.
            if is_forked() {
                return 0;
            }
            answer(Version::$version, || {
                call(|_, _| HANDLES.destroy(handle).map(|_| ()).ok_or(Status::BadParam))
            })
        }

        #[unsafe(export_name = concat!($prefix, "cudnnSetStream"))]
        extern "C" fn cudnnSetStream(handle: u64, stream: u64) -> i32 {
            answer(Version::$version, || call(|_, _| HANDLES.set(handle, stream).ok_or(Status::BadParam)))
        }

        #[unsafe(export_name = concat!($prefix, "cudnnGetStream"))]
        unsafe extern "C" fn cudnnGetStream(handle: u64, stream: *mut u64) -> i32 {
            answer(Version::$version, || {
                call(|_, _| {
                    all_there(&[!stream.is_null()])?;
                    let set = HANDLES.get(handle).ok_or(Status::BadParam)?;
                    // SAFETY: it is not NULL, so the program's own, of a pointer's size.
                    unsafe { stream.write_unaligned(set) };
                    Ok(())
                })
            })
        }
    };
}

mod v8 {
    use super::*;
    functions!(V8 "vgpu_cudnn_8_");
}

mod v9 {
    use super::*;
    functions!(V9 "vgpu_cudnn_9_");
}
