//! Where an error is said, and kept for whoever looks later, since some runtimes throw a hook's stderr away:
//! one line on stderr, one in `state_dir/log` and one in syslog (promise P8). What is no error is in the log alone.
//! Writes nothing else.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::error::Error;
use crate::pool::store::StateDir;

/// The log's name in the state directory, and that of the one before it.
pub const LOG: &str = "log";
/// See [`LOG`].
pub const OLD_LOG: &str = "log.old";

/// The log starts anew at this size, in bytes.
const LOG_LIMIT: u64 = 1 << 20;

/// syslog's facility "daemon" (3) and severity "error" (3), RFC 3164.
const PRIORITY: u32 = 3 * 8 + 3;

/// One line on standard error, in one write: lines of hooks that share it are not mixed. Where it cannot be
/// written (a full disk, a closed pipe) `eprintln!` would panic; an error still ends in its own exit code.
pub fn say(line: impl fmt::Display) {
    let _ = io::stderr().write_all(format!("vgpu: {line}\n").as_bytes());
}

/// Keeps one error. That it cannot be kept is no error of its own: the line was on stderr already.
pub fn record(state_dir: &Path, container: &str, error: &Error) {
    let line = line(Timestamp::now(), container, error.exit as u8, error);
    let _ = StateDir::create(state_dir).map_err(io::Error::other).and_then(|dir| to_log(&dir, &line));
    let _ = to_syslog(container, error);
}

/// Keeps lines that are no errors; for them the exit code is 0. That they cannot be kept is no error either.
pub fn note(state_dir: &StateDir, container: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let now = Timestamp::now();
    let _ = to_log(state_dir, &lines.iter().map(|text| line(now, container, 0, text)).collect::<String>());
}

/// `2026-01-01T00:00:00Z web 75 no free vGPU: …`: time, container, exit code, message.
fn line(now: Timestamp, container: &str, exit: u8, text: impl fmt::Display) -> String {
    format!("{now:.3} {container} {exit} {text}\n")
}

/// When a line of the log was written, as text that sorts.
pub fn time_of(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

/// The container that a line of the log is about.
pub fn container_of(line: &str) -> Option<&str> {
    line.split(' ').nth(1)
}

/// Is a line of the log no error?
pub fn is_note(line: &str) -> bool {
    line.split(' ').nth(2) == Some("0")
}

/// The log, to be written to at its end.
///
/// # Errors
/// The kernel's.
pub fn open(dir: &StateDir) -> io::Result<File> {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::CLOEXEC
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    Ok(File::from(rustix::fs::openat(dir.fd(), LOG, flags, mode)?))
}

fn to_log(dir: &StateDir, lines: &str) -> io::Result<()> {
    let mut log = open(dir)?;
    log.write_all(lines.as_bytes())?;
    if log.metadata()?.len() > LOG_LIMIT { start_anew(dir, &log) } else { Ok(()) }
}

/// Of several that find the log full, only one moves it aside: the lock says who, the inode that nobody
/// did before.
fn start_anew(dir: &StateDir, log: &File) -> io::Result<()> {
    rustix::fs::flock(log.as_fd(), FlockOperation::NonBlockingLockExclusive)?;
    let current = rustix::fs::statat(dir.fd(), LOG, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    if current.st_ino == log.metadata()?.ino() {
        rustix::fs::renameat(dir.fd(), LOG, dir.fd(), OLD_LOG)?;
    }
    Ok(())
}

fn to_syslog(container: &str, error: &Error) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A log daemon that does not read must not hold a container up.
    socket.set_nonblocking(true)?;
    let pid = std::process::id();
    socket.send_to(format!("<{PRIORITY}>vgpu[{pid}]: {container}: {error}").as_bytes(), "/dev/log")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Exit;

    #[test]
    fn a_line_names_its_container() {
        let line = line(Timestamp::UNIX_EPOCH, "web", Exit::NoneFree as u8, "no free vGPU");
        assert_eq!(line, "1970-01-01T00:00:00.000Z web 75 no free vGPU\n");
        assert_eq!((time_of(&line), container_of(&line)), ("1970-01-01T00:00:00.000Z", Some("web")));
        assert!(!is_note(&line) && is_note(&super::line(Timestamp::UNIX_EPOCH, "web", 0, "75 is missing")));
    }

    #[test]
    #[ignore = "needs root: the state directory must be root's"]
    fn a_fifo_does_not_hang() {
        use rustix::fs::{CWD, FileType, mknodat};
        let temporary = tempfile::tempdir_in("/dev/shm").unwrap();
        let dir = StateDir::create(&temporary.path().join("state")).unwrap();
        to_log(&dir, "line\n").unwrap();
        let log = dir.path().join(LOG);
        std::fs::remove_file(&log).unwrap();
        mknodat(CWD, &log, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        // Nobody reads it.
        assert_eq!(to_log(&dir, "line\n").unwrap_err().raw_os_error(), Some(libc::ENXIO));
    }
}
