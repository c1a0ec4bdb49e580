//! `vgpu why [CONTAINER]`: the lines that hooks left when they failed.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::cli::printed;
use crate::config::{self, DEFAULT_STATE_DIR};
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::journal::{self, LOG, OLD_LOG};
use crate::pool::store::StateDir;

/// Prints the log, or its lines about containers whose id begins so.
pub fn run(pool_file: &Path, container: Option<&str>) -> Result<()> {
    // A pool file that cannot be read is among the reasons to ask.
    let state_dir = config::read(pool_file).map_or(DEFAULT_STATE_DIR.into(), |pool| pool.state_dir);
    let mut lines = Vec::new();
    if let Some(dir) = StateDir::open(&state_dir)? {
        for name in [OLD_LOG, LOG] {
            read_log(&dir, name, &mut lines)?;
        }
    }
    let about = |line: &String| match container {
        Some(id) => journal::container_of(line).is_some_and(|of| of.starts_with(id)),
        None => true,
    };
    let lines: Vec<_> = lines.into_iter().filter(about).collect();
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
            let line =
                format!("{log} tells of no failed hook of container {}; see `vgpu status`", quoted(id));
            Err(Error::new(Exit::Request, line))
        }
        None => printed(writeln!(out, "{log} tells of no failed hook")),
    }
}

fn read_log(dir: &StateDir, name: &str, lines: &mut Vec<String>) -> Result<()> {
    let cannot = || format!("cannot read {}/{name}", dir.path().display());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::openat(dir.fd(), name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        opened => File::from(opened.or_exit(Exit::Io, cannot)?),
    };
    for line in BufReader::new(file).lines() {
        lines.push(line.or_exit(Exit::Io, cannot)?);
    }
    Ok(())
}
