//! Compares a facade with a real cuDNN, both loaded into this process: `conformance REAL FACADE CALLS SEED`. Random calls
//! go to both; the first one that they answer differently ends it. `make conformance` has the real ones.

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
    let [real, facade, calls, seed] = &arguments[..] else {
        return Err("usage: conformance REAL FACADE CALLS SEED".into());
    };
    let (calls, seed): (usize, u64) = (calls.parse()?, seed.parse()?);
    let (mut real, mut facade) = (Real::load(Path::new(real))?, Real::load(Path::new(facade))?);
    if real.version() != facade.version() {
        return Err(format!("version {} is compared with {}", real.version(), facade.version()).into());
    }
    let version = if real.version() < 9000 { Version::V8 } else { Version::V9 };
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
    println!("cuDNN {}: {calls} calls, of which {failed} fail, all answered alike", real.version());
    Ok(())
}
