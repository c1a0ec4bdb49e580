//! `vgpu why [CONTAINER]`: the lines that hooks left when they failed.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::cli::printed;
use crate::config::{self, DEFAULT_STATE_DIR};
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::journal::{self, LOG, OLD_LOG};
use crate::pool::store::StateDir;

/// Prints the log, or its lines about containers whose id begins so: notes, then refusals, the last one at the end.
pub fn run(pool_file: &Path, container: Option<&str>) -> Result<()> {
    let state_dir = config::read(pool_file).map_or(DEFAULT_STATE_DIR.into(), |pool| pool.state_dir);
    // While the pool file could not be read, hooks kept their errors in the default place.
    let mut dirs = vec![PathBuf::from(DEFAULT_STATE_DIR), state_dir.clone()];
    dirs.dedup();
    let mut lines = Vec::new();
    for dir in dirs {
        if let Some(dir) = StateDir::open(&dir)? {
            for name in [OLD_LOG, LOG] {
                read_log(&dir, name, &mut lines)?;
            }
        }
    }
    // Notes first, so that the last line is the last refusal. Those of one time stay in their order.
    let order = |line: &String| (!journal::is_note(line), journal::time_of(line).to_owned());
    lines.sort_by_cached_key(order);
    let whole = container.filter(|id| lines.iter().any(|line| journal::container_of(line) == Some(id)));
    let about = |line: &String| match (whole, container, journal::container_of(line)) {
        (Some(id), _, of) => of == Some(id),
        (None, Some(begins), of) => of.is_some_and(|of| of.starts_with(begins)),
        (None, None, _) => true,
    };
    let lines: Vec<_> = lines.iter().filter(|line| about(line)).collect();
    let mut out = std::io::stdout().lock();
    if lines.is_empty() {
        return nothing(container, &state_dir.join(LOG), &mut out);
    }
    printed(lines.iter().try_for_each(|line| writeln!(out, "{line}")))
}

/// It is an error only where a container was named: then there is something to explain.
fn nothing(container: Option<&str>, log: &Path, out: &mut impl Write) -> Result<()> {
    let log = log.display();
    match container {
        Some(id) => {
            let line = format!(
                "{log} tells of no failed hook of container {}; podman's names are not known here, only ids: `vgpu why | tail -1` shows the last one",
                quoted(id)
            );
            Err(Error::new(Exit::Request, line))
        }
        None => printed(writeln!(out, "{log} tells of no failed hook")),
    }
}

fn read_log(dir: &StateDir, name: &str, lines: &mut Vec<String>) -> Result<()> {
    let cannot = || format!("cannot read {}/{name}", dir.path().display());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(dir.fd(), name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        opened => File::from(opened.or_exit(Exit::Io, cannot)?),
    };
    for line in BufReader::new(file).split(b'\n') {
        // A full disk may have cut one inside of a character.
        lines.push(String::from_utf8_lossy(&line.or_exit(Exit::Io, cannot)?).into_owned());
    }
    Ok(())
}
