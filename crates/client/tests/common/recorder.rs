//! A worker in this process whose CPU does what it is asked, and that notes it: function, contents, numbers and
//! addresses. Not noted are queries, which are not asked again once they were answered, and handles, which differ
//! from process to process.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use vgpu_remoting::api::{Handle, Read, Scalar, Update, Write};
use vgpu_remoting::channel::{Channel, serve};
use vgpu_remoting::counters::{Counts, Totals};
use vgpu_remoting::cpu::Cpu;
use vgpu_remoting::cublas::backend::Blas;
use vgpu_remoting::cublas::{Factor, Outcome, State, Sums};
use vgpu_remoting::cudnn::activation::Activation;
use vgpu_remoting::cudnn::algorithms::Performances;
use vgpu_remoting::cudnn::backend::Backend;
use vgpu_remoting::cudnn::convolution::Convolution;
use vgpu_remoting::cudnn::dropout::Dropout;
use vgpu_remoting::cudnn::filter::Filter;
use vgpu_remoting::cudnn::normalization::Normalization;
use vgpu_remoting::cudnn::pooling::Pooling;
use vgpu_remoting::cudnn::reduction::Reduction;
use vgpu_remoting::cudnn::tensor::Tensor;
use vgpu_remoting::cudnn::{self, Result};
use vgpu_remoting::memory::{Budget, Memory, Rows};
use vgpu_remoting::worker::{Device, Worker};
use vgpu_remoting::{cublas_functions, cudnn_functions};

use crate::common::said;

const ADDRESSES: std::ops::Range<u64> = 0x2000_0000_0000..0x2000_1000_0000;

struct Recorder {
    cpu: Cpu,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn note(&self, what: &str, with: &[&dyn std::fmt::Debug]) {
        let with: Vec<String> = with.iter().map(|one| format!("{one:?}")).collect();
        self.notes.lock().unwrap().push(format!("{what} {}", with.join(" ")));
    }
}

impl Device for Recorder {
    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let address = self.cpu.allocate(bytes);
        self.note("allocate", &[&bytes, &address]);
        address
    }

    fn free(&mut self, address: u64) -> bool {
        self.note("free", &[&address]);
        self.cpu.free(address)
    }

    fn seed(&mut self, address: u64, len: u64, seed: u64) -> Result {
        self.note("seed", &[&address, &len, &seed]);
        self.cpu.seed(address, len, seed)
    }

    fn copy(&mut self, to: Rows, from: Rows, width: u64, count: u64) -> Result {
        self.note("copy", &[&to, &from, &width, &count]);
        self.cpu.copy(to, from, width, count)
    }

    fn fill(&mut self, to: Rows, width: u64, count: u64, value: &[u8]) -> Result {
        self.note("fill", &[&to, &width, &count, &value]);
        self.cpu.fill(to, width, count, value)
    }

    fn bytes(&mut self, address: u64, len: usize) -> Result<&mut [u8]> {
        self.note("bytes", &[&address, &len]);
        self.cpu.bytes(address, len)
    }
}

macro_rules! methods {
    (query $name:ident ($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn $name(&mut self, $($argument: $type),*) -> $answer {
            self.cpu.$name($($argument),*)
        }
    };
    (forward $($rest:tt)*) => { methods!(compute $($rest)*); };
    (backward $($rest:tt)*) => { methods!(compute $($rest)*); };
    (compute $name:ident ($handle:ident: $of:ty $(, $argument:ident: $type:ty)*) -> $answer:ty) => {
        fn $name(&mut self, $handle: $of $(, $argument: $type)*) -> $answer {
            self.note(stringify!($name), &[$(&$argument),*]);
            self.cpu.$name($handle $(, $argument)*)
        }
    };
    ($class:ident $($rest:tt)*) => {};
}

macro_rules! recorded_cudnn {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        #[allow(non_snake_case, reason = "the names are the library's")]
        impl Backend for Recorder {
            $(methods!($class $name ($($argument: $type),*) -> cudnn::Result<($($($of,)*)?)>);)*
        }
    };
}

macro_rules! recorded_cublas {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        #[allow(non_snake_case, reason = "the names are the library's")]
        impl Blas for Recorder {
            $(recorded_cublas!(@ $class $name ($($argument: $type),*));)*
        }
    };
    (@ $class:ident $name:ident ($($handle:ident: $of:ty $(, $argument:ident: $type:ty)*)?)) => {
        $(methods!($class $name (state: State $(, $argument: $type)*) -> Result<Option<f64>>);)?
    };
}

cudnn_functions!(recorded_cudnn);
cublas_functions!(recorded_cublas);

/// Runs a program with its libraries in this mode: what it says, what the worker was asked to do for it, and what it has
/// counted.
pub fn recorded(program: &Path, libraries: &Path, reuse: &str) -> (String, Vec<String>, Counts) {
    let (socket, notes) = (libraries.join("recorder"), Arc::<Mutex<Vec<String>>>::default());
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let theirs = Arc::clone(&notes);
    let worker = std::thread::spawn(move || {
        let channel = Channel::accept(listener.accept().unwrap().0, ADDRESSES).unwrap();
        let cpu = Cpu::new(Memory::new(ADDRESSES, &Budget::new(64 << 20)).unwrap());
        let recorder = Recorder { cpu, notes: theirs };
        serve(&channel, &mut Worker::new(channel.contents(), recorder).staging(channel.staging())).unwrap();
        Totals::read(channel.counters()).counts
    });
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", libraries).env("VGPU_WORKER", &socket).env("VGPU_REUSE", reuse);
    let (out, err) = said(&command.output().unwrap());
    assert!(!err.contains("vgpu:"), "{err}");
    let counts = worker.join().unwrap();
    std::fs::remove_file(socket).unwrap();
    let notes = notes.lock().unwrap().clone();
    (out, notes, counts)
}
