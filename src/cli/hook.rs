//! `vgpu [--config PATH] hook STAGE`: what runtimes call, and how it ends when it fails.

use std::ffi::OsString;
use std::io::Read;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::config::{self, DEFAULT_PATH, DEFAULT_STATE_DIR};
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::hook::{self, Stage};
use crate::journal;
use crate::oci::State;

/// The largest state that is read from stdin, in bytes.
const STATE_LIMIT: u64 = 16 << 20;

/// The pool file and stage, if these are a hook's arguments just as `hooks/` writes them. Everything else
/// (help, unknown stages, abbreviations) is the argument parser's.
pub fn asked(arguments: &[OsString]) -> Option<(PathBuf, Stage)> {
    let texts: Vec<&str> = arguments.iter().skip(1).map(|a| a.to_str()).collect::<Option<_>>()?;
    let (pool_file, stage) = match texts[..] {
        ["hook", stage] => (DEFAULT_PATH, stage),
        ["--config", path, "hook", stage] | ["hook", "--config", path, stage] => (path, stage),
        _ => return None,
    };
    let stage = match stage {
        "createRuntime" | "prestart" => Stage::CreateRuntime,
        "poststop" => Stage::Poststop,
        _ => return None,
    };
    Some((pool_file.into(), stage))
}

/// What there is to say about any other stage.
pub fn unknown(stage: &str) -> ExitCode {
    let stage = quoted(stage);
    journal::say(format_args!(
        "there is nothing to do at hook stage {stage}; use createRuntime and poststop"
    ));
    ExitCode::from(Exit::Usage as u8)
}

/// Serves one call. An error is one line on stderr, in the log and in syslog.
pub fn main(pool_file: &Path, stage: Stage) -> ExitCode {
    let mut container = String::from("-");
    match caught(|| {
        let state = read_state()?;
        container = state.id.to_string();
        hook::run(stage, pool_file, &state)
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            journal::say(&e);
            journal::record(&state_dir(pool_file), &container, &e);
            ExitCode::from(e.exit as u8)
        }
    }
}

/// A panic unwinds, so that what was done is undone, and ends as an error like any other.
fn caught(work: impl FnOnce() -> Result<()>) -> Result<()> {
    panic::set_hook(Box::new(|_| {}));
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Error::new(Exit::Io, format!("internal error: {}; please report it", quoted(text))))
    })
}

fn read_state() -> Result<State> {
    let mut json = Vec::new();
    std::io::stdin()
        .take(STATE_LIMIT)
        .read_to_end(&mut json)
        .or_exit(Exit::Io, || "cannot read the container's state from stdin")?;
    State::parse(&json)
}

/// Where the log is, even when the pool file cannot be read.
fn state_dir(pool_file: &Path) -> PathBuf {
    config::read(pool_file).map_or_else(|_| DEFAULT_STATE_DIR.into(), |pool| pool.state_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(arguments: &[&str]) -> Option<(PathBuf, Stage)> {
        asked(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_runtimes_call() {
        let create = Some((PathBuf::from(DEFAULT_PATH), Stage::CreateRuntime));
        assert_eq!(ask(&["vgpu", "hook", "createRuntime"]), create);
        assert_eq!(ask(&["vgpu", "hook", "prestart"]), create);
        assert_eq!(
            ask(&["vgpu", "--config", "/p", "hook", "poststop"]),
            Some(("/p".into(), Stage::Poststop))
        );
    }

    #[test]
    fn everything_else_is_the_parsers() {
        for arguments in
            [&["vgpu"][..], &["vgpu", "hook"], &["vgpu", "hook", "createContainer"], &["vgpu", "status"]]
        {
            assert_eq!(ask(arguments), None);
        }
    }
}
