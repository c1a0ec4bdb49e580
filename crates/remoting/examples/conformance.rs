//! Compares the rules with a real cuDNN: `conformance LIBRARY CALLS SEED compare`. Random calls go to both; the first
//! difference ends it, with the calls before it that wrote to the same descriptor. With `wrong` instead one rule is,
//! and it must end so. With `record` it prints the calls and the library's answers: those of
//! `tests/transcript.rs` are of 2500 calls and seed 1.

#[path = "../tests/conformance/mod.rs"]
mod conformance;
#[path = "../tests/conformance/real.rs"]
mod real;

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use conformance::{Answer, Call, Calls, Rules};
use real::Real;
use vgpu_remoting::cudnn::Version;
use vgpu_remoting::cudnn::table::Function;

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
    let [library, calls, seed, what] = &arguments[..] else {
        return Err("usage: conformance LIBRARY CALLS SEED compare|wrong|record".into());
    };
    let (calls, seed) = (calls.parse()?, seed.parse()?);
    let mut real = Real::load(Path::new(library))?;
    let version = if real.version() < 9000 { Version::V8 } else { Version::V9 };
    if what == "record" {
        record(&mut real, version, calls, seed);
        return Ok(());
    }
    let failed = compare(&mut real, version, calls, seed, what == "wrong")?;
    println!("cuDNN {}: {calls} calls, of which {failed} fail, all answered alike", real.version());
    Ok(())
}

fn record(real: &mut Real, version: Version, calls: usize, seed: u64) {
    println!("version {}", real.version());
    let mut random = Calls::new(version, seed);
    for _ in 0..calls {
        let call = random.next_call();
        print!("{call}");
        // So that the call is seen even if the library crashes in it.
        let _ = std::io::stdout().flush();
        println!(" = {}", real.answer(&call));
    }
}

fn compare(real: &mut Real, version: Version, calls: usize, seed: u64, wrong: bool) -> Result<usize, String> {
    let mut rules = Rules::new(version);
    let mut random = Calls::new(version, seed);
    let mut history: Vec<(Call, Answer)> = Vec::new();
    let mut failed = 0;
    for _ in 0..calls {
        let call = random.next_call();
        let (wanted, got) = (real.answer(&call), rules.answer(&call));
        if wrong && call.function == Function::cudnnSetConvolution2dDescriptor {
            // As if it were a whole set.
            let groups = Function::cudnnSetConvolutionGroupCount;
            let arguments = [call.arguments[0], 1].into_iter().collect();
            rules.answer(&Call { function: groups, arguments });
        }
        failed += usize::from(wanted.status != 0);
        if wanted != got {
            return Err(difference(&history, &call, &wanted, &got));
        }
        if history.len() == 100_000 {
            history.drain(..50_000);
        }
        history.push((call, wanted));
    }
    Ok(failed)
}

fn difference(history: &[(Call, Answer)], call: &Call, wanted: &Answer, got: &Answer) -> String {
    let signature = call.function.signature();
    let kind = signature.writes().or_else(|| signature.reads().next());
    let mut lines: Vec<String> = history
        .iter()
        .rev()
        .filter(|(earlier, _)| earlier.function.signature().writes() == kind)
        .filter(|(earlier, _)| earlier.arguments[0] == call.arguments[0])
        .take(6)
        .map(|(call, answer)| format!("\n  {call} = {answer}"))
        .collect();
    lines.reverse();
    format!("{call}\n  real  {wanted}\n  rules {got}\nafter{}", lines.concat())
}
