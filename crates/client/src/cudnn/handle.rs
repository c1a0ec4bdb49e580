//! cuDNN's handles, which are the client's alone, and their streams. Order is total, so that a stream is only kept.
#![allow(unsafe_code, non_snake_case, reason = "the names are the library's")]

use vgpu_remoting::cudnn::Version;
use vgpu_remoting::cudnn::handle::State;

use super::answer;
use crate::arguments::all_there;
use crate::process::{call, call_with_thread, end};

macro_rules! functions {
    ($version:ident $prefix:literal) => {
        // SAFETY, of this one and those below: the name is this function's alone.
        #[unsafe(export_name = concat!($prefix, "cudnnCreate"))]
        unsafe extern "C" fn cudnnCreate(handle: *mut usize) -> i32 {
            answer(Version::$version, || {
                call_with_thread(|session, thread| {
                    all_there(&[!handle.is_null()])?;
                    let made = session.reuse().create::<State>(thread, Version::$version)?;
                    // SAFETY: it is not NULL, so the program's own, of a pointer's size.
                    unsafe { handle.write_unaligned(made) };
                    Ok(())
                })
            })
        }

        #[unsafe(export_name = concat!($prefix, "cudnnDestroy"))]
        extern "C" fn cudnnDestroy(handle: usize) -> i32 {
            answer(Version::$version, || {
                end(|| {
                    call_with_thread(|session, thread| {
                        session.reuse().destroy::<State>(thread, Version::$version, handle)
                    })
                })
            })
        }

        #[unsafe(export_name = concat!($prefix, "cudnnSetStream"))]
        extern "C" fn cudnnSetStream(handle: usize, stream: u64) -> i32 {
            let set = |_, state: &mut State| {
                state.stream = stream;
                Ok(())
            };
            answer(Version::$version, || {
                call(|session| session.reuse().change(Version::$version, handle, set))
            })
        }

        #[unsafe(export_name = concat!($prefix, "cudnnGetStream"))]
        unsafe extern "C" fn cudnnGetStream(handle: usize, stream: *mut u64) -> i32 {
            answer(Version::$version, || {
                call(|session| {
                    all_there(&[!stream.is_null()])?;
                    let set: State = session.reuse().get(Version::$version, handle)?;
                    // SAFETY: it is not NULL, so the program's own, of a pointer's size.
                    unsafe { stream.write_unaligned(set.stream) };
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
