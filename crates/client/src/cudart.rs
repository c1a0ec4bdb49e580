//! The runtime's C functions. Here those that want no GPU: its errors, and what the start-up code of programs with
//! kernels of their own calls before `main`. Those get as far as they can without a kernel: launching one is not
//! served, and the error is there for whoever asks for the last one. A description of an error is its name.
#![allow(unsafe_code, non_snake_case, reason = "C functions")]

mod device;
mod memory;
mod names;
mod stream;

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use vgpu_remoting::cudnn::Status;
use vgpu_remoting::session::Session;

use crate::arguments::give;
use crate::device::{Error, context};
use crate::{cuda, name_of, process};

/// `cudaErrorInvalidValue`
const INVALID_VALUE: c_int = 1;

/// `cudaErrorMissingConfiguration`
const MISSING_CONFIGURATION: c_int = 52;

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

const INVALID: Error = Error::INVALID_VALUE;

/// What C is told of a call, for which there is a context.
fn answer(call: impl FnOnce(&Session<'static>) -> Result<(), Error>) -> c_int {
    ask(|session| {
        context::enter(session)?;
        call(session)
    })
}

/// What C is told of a call that wants none.
fn ask(call: impl FnOnce(&Session<'static>) -> Result<(), Error>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(|| process::call(|session, _| call(session))));
    result.unwrap_or(Err(Status::InternalError.into())).map_or_else(|Error(error)| failed(error), |()| 0)
}

/// Remembers a call's status for whoever asks for the last error.
pub fn failed(status: c_int) -> c_int {
    // In a thread that ends nobody asks.
    let _ = LAST.try_with(|last| last.set(status));
    status
}

fn name(error: c_int) -> &'static CStr {
    name_of(names::NAMES, error).unwrap_or(c"unrecognized error code")
}

// SAFETY, of the names here: each is its function's alone.
#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaGetErrorName(error: c_int) -> *const c_char {
    name(error).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaGetErrorString(error: c_int) -> *const c_char {
    name(error).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaGetLastError() -> c_int {
    LAST.try_with(Cell::take).unwrap_or_default()
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaPeekAtLastError() -> c_int {
    LAST.try_with(Cell::get).unwrap_or_default()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaRuntimeGetVersion(version: *mut c_int) -> c_int {
    if version.is_null() {
        return failed(INVALID_VALUE);
    }
    // SAFETY: it is not NULL, so the program's own, of an `int`'s size.
    unsafe { version.write_unaligned(cuda::VERSION) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12_cudaDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { vgpu_cudart_12_cudaRuntimeGetVersion(version) }
}

/// `cudaChannelFormatDesc`: bits of each component, and what they are.
#[repr(C)]
struct ChannelFormat {
    bits: [c_int; 4],
    kind: c_int,
}

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12_cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    kind: c_int,
) -> ChannelFormat {
    ChannelFormat { bits: [x, y, z, w], kind }
}

/// What fat binaries are known by. Nothing is at it.
static MODULE: usize = 0;

#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12___cudaRegisterFatBinary(_: *mut c_void) -> *const usize {
    &raw const MODULE
}

/// Functions that note something of a module, of which nothing comes.
macro_rules! noted {
    ($($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name() {})*
    };
}

noted! {
    vgpu_cudart_12___cudaRegisterFatBinaryEnd
    vgpu_cudart_12___cudaUnregisterFatBinary
    vgpu_cudart_12___cudaRegisterFunction
    vgpu_cudart_12___cudaRegisterVar
    vgpu_cudart_12___cudaRegisterHostVar
    vgpu_cudart_12___cudaRegisterManagedVar
    vgpu_cudart_12___cudaRegisterUnifiedTable
}

/// The flag says that managed variables are there.
#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12___cudaInitModule(_: *mut *mut c_void) -> c_char {
    1
}

/// `dim3`
#[derive(Clone, Copy)]
#[repr(C)]
struct Dimensions {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// Of a launch, between its two halves.
struct Configuration {
    grid: Dimensions,
    block: Dimensions,
    shared: usize,
    stream: usize,
}

/// Refusing here would leave the launch out silently.
#[unsafe(no_mangle)]
extern "C" fn vgpu_cudart_12___cudaPushCallConfiguration(
    grid: Dimensions,
    block: Dimensions,
    shared: usize,
    stream: usize,
) -> c_uint {
    let configuration = Configuration { grid, block, shared, stream };
    let _ = CONFIGURATIONS.try_with(|all| all.borrow_mut().push(configuration));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_cudart_12___cudaPopCallConfiguration(
    grid: *mut Dimensions,
    block: *mut Dimensions,
    shared: *mut usize,
    stream: *mut usize,
) -> c_int {
    let last = CONFIGURATIONS.try_with(|all| all.borrow_mut().pop());
    let Ok(Some(last)) = last else { return failed(MISSING_CONFIGURATION) };
    // SAFETY: only code that a compiler made calls it, with places of these types.
    unsafe {
        grid.write(last.grid);
        block.write(last.block);
        shared.write(last.shared);
        stream.write(last.stream);
    }
    0
}
