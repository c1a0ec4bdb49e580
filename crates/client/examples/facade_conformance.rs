//! Compares a facade with a real cuDNN, both loaded into this process: `facade_conformance REAL CALLS SEED`. Random calls
//! go to both; the first one that they answer differently ends it. `make conformance` has the real ones.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../../remoting/tests/conformance/mod.rs"]
#[allow(dead_code, reason = "the rules are for their own example")]
mod conformance;
#[path = "../../remoting/tests/conformance/real.rs"]
mod real;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use conformance::{Answer, Call, Calls};
use real::Real;
use vgpu_remoting::cudnn::Version;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [real, calls, seed] = &arguments[..] else {
        return Err("usage: facade_conformance REAL CALLS SEED".into());
    };
    let (calls, seed): (usize, u64) = (calls.parse()?, seed.parse()?);
    let mut real = Real::load(Path::new(real))?;
    let (version, soname) = match real.version() {
        ..9000 => (Version::V8, "libcudnn.so.8"),
        _ => (Version::V9, "libcudnn.so.9"),
    };
    let directory = common::installed();
    let mut facade = Real::load(&directory.path().join(soname))?;
    if real.version() != facade.version() {
        return Err(format!("{} is compared with {}", real.version(), facade.version()).into());
    }
    let mut random = Calls::new(version, seed);
    let mut failed = 0;
    for number in 0..calls {
        let call = random.next_call();
        let (wanted, got) = (real.answer(&call), facade.answer(&call));
        failed += usize::from(wanted.status != 0);
        if wanted != got {
            return Err(format!("call {number}: {call}\n  real   {wanted}\n  facade {got}").into());
        }
    }
    println!(
        "cuDNN {} and {soname}: {calls} calls, of which {failed} fail, all answered alike",
        real.version()
    );
    Ok(())
}
