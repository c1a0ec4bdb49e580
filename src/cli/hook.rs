//! `vgpu [--config PATH] hook STAGE`: what runtimes call, and how it ends when it fails.

use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use crate::config::{self, DEFAULT_PATH, DEFAULT_STATE_DIR};
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::hook::{self, Stage};
use crate::journal;
use crate::oci::State;

/// The largest state that is read from stdin, in bytes.
const STATE_LIMIT: u64 = 16 << 20;

/// The pool file and stage, if these are a hook's arguments just as `hooks/` writes them. Everything else
/// (help, another order, abbreviations) is the argument parser's.
pub fn asked(arguments: &[OsString]) -> Option<(PathBuf, &str)> {
    let texts: Vec<&str> = arguments.iter().skip(1).map(|a| a.to_str()).collect::<Option<_>>()?;
    let (pool_file, stage) = match texts[..] {
        ["hook", stage] => (DEFAULT_PATH, stage),
        ["--config", path, "hook", stage] | ["hook", "--config", path, stage] => (path, stage),
        _ => return None,
    };
    (!stage.starts_with('-')).then(|| (pool_file.into(), stage))
}

/// Serves one call. An error is one line on stderr, in the log and in syslog.
pub fn main(pool_file: &Path, stage: &str) -> u8 {
    let mut container = None;
    let served = caught(|| {
        let state = read_state();
        container = state.as_ref().ok().map(|state| state.id.to_string());
        hook::run(parse_stage(stage)?, pool_file, &state?)
    });
    match served {
        Ok(()) => 0,
        Err(error) => fail(pool_file, container.as_deref(), &error),
    }
}

/// Says why a hook failed wherever somebody may look: its stderr does not reach everybody.
pub fn fail(pool_file: &Path, container: Option<&str>, error: &Error) -> u8 {
    journal::say(error);
    journal::record(&state_dir(pool_file), container.unwrap_or("-"), error);
    error.exit as u8
}

fn parse_stage(stage: &str) -> Result<Stage> {
    match stage {
        "createRuntime" | "prestart" => Ok(Stage::CreateRuntime),
        "poststop" => Ok(Stage::Poststop),
        _ => {
            let stage = quoted(stage);
            let message =
                format!("there is nothing to do at hook stage {stage}; use createRuntime and poststop");
            Err(Error::new(Exit::Usage, message))
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
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let message = "a container runtime calls `vgpu hook`, with the container's state on stdin; <prefix>/share/vgpu/hooks.json sets it up";
        return Err(Error::new(Exit::Usage, message));
    }
    let mut json = Vec::new();
    stdin
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

    fn ask(arguments: &[&str]) -> Option<(PathBuf, String)> {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        asked(&arguments).map(|(pool_file, stage)| (pool_file, stage.to_owned()))
    }

    #[test]
    fn what_runtimes_call() {
        let with = |pool_file: &str, stage: &str| Some((PathBuf::from(pool_file), stage.to_owned()));
        assert_eq!(ask(&["vgpu", "hook", "createRuntime"]), with(DEFAULT_PATH, "createRuntime"));
        assert_eq!(ask(&["vgpu", "--config", "/p", "hook", "poststop"]), with("/p", "poststop"));
        assert_eq!(ask(&["vgpu", "hook", "--config", "/p", "x"]), with("/p", "x"));
    }

    #[test]
    fn everything_else_is_the_parsers() {
        for arguments in [&["vgpu"][..], &["vgpu", "hook"], &["vgpu", "hook", "--help"], &["vgpu", "status"]]
        {
            assert_eq!(ask(arguments), None);
        }
    }

    #[test]
    fn stages() {
        assert_eq!(parse_stage("prestart"), Ok(Stage::CreateRuntime));
        assert_eq!(parse_stage("poststop"), Ok(Stage::Poststop));
        assert_eq!(parse_stage("createContainer").unwrap_err().exit, Exit::Usage);
    }
}
