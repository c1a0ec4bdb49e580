//! The runtime's C functions. Here those that want no GPU: its errors, and what the start-up code of programs with
//! kernels of their own calls before `main`. Those get as far as they can without a kernel: launching one is not
//! served, and the error is there for whoever asks for the last one. A description of an error is its name.
#![allow(unsafe_code, non_snake_case, reason = "C functions")]

mod context;
pub mod copy;
mod device;
mod event;
mod memory;
mod names;
mod pool;
mod properties;
mod stream;
mod volume;

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use vgpu_remoting::session::Session;

use crate::device::{Error, context as contexts, initialise};
use crate::pointers::Out;
use crate::{cuda, name_of, process};

type Result<T = ()> = std::result::Result<T, Error>;

/// `cudaErrorMissingConfiguration`
const MISSING_CONFIGURATION: c_int = 52;

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// What C is told of a call that wants no worker, and is the same in a child.
fn alone(call: impl FnOnce() -> Result) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Error::UNKNOWN));
    result.map_or_else(|Error(error)| failed(error), |()| 0)
}

/// What C is told of a call for which there need be no context.
fn ask(call: impl FnOnce(&'static Session<'static>) -> Result) -> c_int {
    alone(|| {
        process::call(|session| {
            // The driver works from then on. Where there is no device, whoever wants one says so.
            let _ = initialise(session);
            call(session)
        })
    })
}

/// What C is told of a call for which there is a context.
fn answer(call: impl FnOnce(&'static Session<'static>) -> Result) -> c_int {
    ask(|session| {
        contexts::enter(session)?;
        call(session)
    })
}

/// C functions of the runtime.
macro_rules! functions {
    ($($functions:tt)*) => {
        $crate::functions::functions! { "vgpu_cudart_12_" $($functions)* }
    };
}
use functions;

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

functions! {
    alone [cudaRuntimeGetVersion cudaDriverGetVersion] (version: Out<c_int>) = || version.give(cuda::VERSION);
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
