//! The file that keeps the pool, and the lock around it. Touches `state_dir` only.
//!
//! The state is written whole, never in place: lock a file of its own, read, decide, write a temporary,
//! rename. Whoever is killed in between leaves the old state, and the kernel drops the lock with its
//! holder. The boot id is in the state's name: leases of an earlier boot are void without judging anybody,
//! since no container outlives its kernel. Nothing here is synced to disk, for the same reason.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Exit, OrExit, Result};
use crate::pool::Lease;
use crate::remote::worker;
use crate::{files, trust};

/// The directory that holds leases, inventory and log, checked and held open.
#[derive(Debug)]
pub struct StateDir {
    fd: OwnedFd,
    path: PathBuf,
    boot: String,
    namespaces: Namespaces,
}

/// What a state file says besides its leases.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    version: u32,
    namespaces: Namespaces,
}

#[derive(Deserialize)]
struct Document {
    #[serde(flatten)]
    header: Header,
    leases: Vec<Lease>,
}

/// The namespaces in which pids, start times and cgroup paths of a state file mean something, by inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Namespaces {
    pid: u64,
    time: u64,
    cgroup: u64,
}

impl Namespaces {
    /// Those of this process. A kernel without time namespaces has 0 there.
    fn current() -> Result<Self> {
        let inode = |name: &str| match std::fs::metadata(format!("/proc/self/ns/{name}")) {
            Ok(meta) => Ok(meta.ino()),
            Err(e) if e.kind() == io::ErrorKind::NotFound && name == "time" => Ok(0),
            Err(e) => Err(Error::new(Exit::Io, format!("cannot look at /proc/self/ns/{name}: {e}"))),
        };
        Ok(Self { pid: inode("pid")?, time: inode("time")?, cgroup: inode("cgroup")? })
    }
}

const VERSION: u32 = 1;

impl StateDir {
    /// Opens `state_dir`, making it if it is not there. [`Exit::Untrusted`] if others than root may
    /// write there.
    pub fn create(path: &Path) -> Result<Self> {
        if let Some(dir) = Self::open(path)? {
            return Ok(dir);
        }
        let mut builder = std::fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o755).create(path);
        made.or_exit(Exit::Io, || format!("cannot make state_dir {}", path.display()))?;
        Self::open(path)?.ok_or_else(|| {
            Error::new(Exit::Io, format!("state_dir {} vanished while it was opened", path.display()))
        })
    }

    /// Opens `state_dir`; none if it is not there.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.or_exit(Exit::Io, || format!("cannot open state_dir {}", path.display()))?,
        };
        trust::check_directory(&fd, path)?;
        let (boot, namespaces) = (files::boot_id()?, Namespaces::current()?);
        Ok(Some(Self { fd, path: path.to_owned(), boot, namespaces }))
    }

    /// The directory itself.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The boot this is about.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    fn state_name(&self) -> String {
        format!("state-{}.json", self.boot)
    }

    /// Takes the pool's lock, waiting at most `timeout` for it, and loads the leases.
    /// [`Exit::NoneFree`] names who holds the lock when it was not to be had.
    pub fn lock(&self, timeout: Duration) -> Result<Locked<'_>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let cannot = || format!("cannot open {}/lock", self.path.display());
        let lock = match rustix::fs::openat(&self.fd, "lock", flags, Mode::RUSR | Mode::WUSR) {
            Err(e @ Errno::ACCESS) => {
                return Err(Error::new(Exit::Io, format!("{}: {e}; run this as root", cannot())));
            }
            opened => File::from(opened.or_exit(Exit::Io, cannot)?),
        };
        if !flock_within(&lock, timeout)
            .or_exit(Exit::Io, || format!("cannot lock {}/lock", self.path.display()))?
        {
            let holder =
                holder_of(&lock).map_or("another process".to_owned(), |pid| format!("process {pid}"));
            let path = self.path.display();
            let message = format!(
                "the pool's lock {path}/lock is held by {holder} for longer than {timeout:?}; try again, or see what that process waits for"
            );
            return Err(Error::new(Exit::NoneFree, message));
        }
        Ok(Locked { leases: self.peek()?, dir: self, _lock: lock })
    }

    /// The leases as last written, without waiting for anybody.
    pub fn peek(&self) -> Result<Vec<Lease>> {
        let name = self.state_name();
        let at = || format!("{}/{name}", self.path.display());
        // NONBLOCK: a FIFO in its place must not hold anybody up; for a regular file it means nothing.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(&self.fd, &*name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => File::from(opened.or_exit(Exit::Io, || format!("cannot open {}", at()))?),
        };
        let mut text = Vec::new();
        (&file).read_to_end(&mut text).or_exit(Exit::Io, || format!("cannot read {}", at()))?;
        let document: Document = serde_json::from_slice(&text)
            .or_exit(Exit::Io, || format!("{} is damaged", at()))
            .map_err(|e| e.remedy("stop the containers that have a GPU, then remove it"))?;
        let here = Header { version: VERSION, namespaces: self.namespaces };
        if document.header.version != here.version {
            let message = format!("{} was written by another version of vgpu", at());
            return Err(Error::new(Exit::Io, message));
        }
        if document.header.namespaces != here.namespaces {
            let message = format!(
                "{} was written from other pid, time or cgroup namespaces, where process and cgroup mean something else; run vgpu on the host, or remove that file once no container has a GPU",
                at()
            );
            return Err(Error::new(Exit::Io, message));
        }
        Ok(document.leases)
    }

    /// Removes what an earlier boot left. Called when this boot's first state is written.
    fn remove_stale(&self) {
        let Ok(dir) = rustix::fs::Dir::read_from(&self.fd) else { return };
        for entry in dir.flatten() {
            let name = entry.file_name().to_string_lossy();
            if name.starts_with("state-") && !name.starts_with(&self.state_name()) {
                // Void either way; what cannot be removed now is tried again at the next boot.
                let _ = rustix::fs::unlinkat(&self.fd, &*name, AtFlags::empty());
            }
        }
    }
}

/// The pool, locked: the leases belong to whoever holds this, until it is dropped.
///
/// No process may be forked meanwhile: the child would keep the lock.
#[derive(Debug)]
pub struct Locked<'a> {
    /// The leases. A change counts once [`Locked::save`] has succeeded.
    pub leases: Vec<Lease>,
    dir: &'a StateDir,
    _lock: File,
}

impl Locked<'_> {
    /// Writes the leases, whole, kills the workers that are of none of them, and lets the lock go. On an error the old
    /// state stands.
    pub fn save(self) -> Result<()> {
        let dir = self.dir;
        let text = document(&self.leases, dir.namespaces).or_exit(Exit::Io, || "cannot write JSON")?;
        let name = dir.state_name();
        // Only the holder of the lock writes here, so one name will do; a killed one's is overwritten.
        let temporary = format!("{name}.new");
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let first = rustix::fs::statat(&dir.fd, &*name, AtFlags::SYMLINK_NOFOLLOW).is_err();
        let written = rustix::fs::openat(&dir.fd, &*temporary, flags, mode)
            .map_err(io::Error::from)
            .and_then(|fd| File::from(fd).write_all(&text))
            .and_then(|()| Ok(rustix::fs::renameat(&dir.fd, &*temporary, &dir.fd, &*name)?));
        if let Err(e) = written {
            let _ = rustix::fs::unlinkat(&dir.fd, &*temporary, AtFlags::empty());
            let message = format!("cannot write {}/{name}: {e}; make room there", dir.path.display());
            return Err(Error::new(Exit::Io, message));
        }
        if first {
            dir.remove_stale();
        }
        worker::end_others(dir, &self.leases);
        Ok(())
    }
}

/// One lease a line: readable, and short where there are a thousand.
fn document(leases: &[Lease], namespaces: Namespaces) -> serde_json::Result<Vec<u8>> {
    let header = serde_json::to_string(&Header { version: VERSION, namespaces })?;
    let mut text = header.strip_suffix('}').unwrap_or(&header).as_bytes().to_vec();
    text.extend(b",\"leases\":[");
    for (n, lease) in leases.iter().enumerate() {
        text.extend(if n == 0 { &b"\n"[..] } else { b",\n" });
        serde_json::to_writer(&mut text, lease)?;
    }
    text.extend(b"\n]}\n");
    Ok(text)
}

/// flock(2) knows no timeout, and a signal would have to reach the right moment; so it is asked for
/// again and again, at growing distances. Uncontended it costs one call.
fn flock_within(file: &File, timeout: Duration) -> io::Result<bool> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < timeout => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// The pid that holds a lock on this file, as the kernel lists it (`proc_locks(5)`).
fn holder_of(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_in(line, &wanted))
}

/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:56789 0 EOF`; a waiter's line has `->` after the number.
fn holder_in(line: &str, file: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let (kind, pid) = (words.next()?, words.nth(2)?);
    (kind == "FLOCK" && words.next()? == file).then(|| pid.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn holders_are_read_from_proc_locks() {
        assert_eq!(holder_in("1: FLOCK  ADVISORY  WRITE 1234 fe:00:56 0 EOF", "fe:00:56"), Some(1234));
        assert_eq!(holder_in("1: POSIX  ADVISORY  WRITE 1234 fe:00:56 0 EOF", "fe:00:56"), None);
        assert_eq!(holder_in("1: -> FLOCK  ADVISORY  WRITE 99 fe:00:56 0 EOF", "fe:00:56"), None);
        assert_eq!(holder_in("", "fe:00:56"), None);
    }

    fn lease(container: &str) -> Lease {
        let json = format!(
            r#"{{"container":"{container}","bundle":"/b","cgroup":{{"hierarchy":"v2","path":"/c","inode":7}},
                "pid":1,"start_time":2,"since":"2026-01-01T00:00:00Z","vgpus":[]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    /// A state directory with two leases in it.
    fn kept() -> (tempfile::TempDir, StateDir) {
        // Not an overlay, as in a container `/tmp` may be: `/proc/locks` knows its files by other numbers.
        let temporary = tempfile::tempdir_in("/dev/shm").unwrap();
        let dir = StateDir::create(&temporary.path().join("a/b")).unwrap();
        let mut locked = dir.lock(Duration::ZERO).unwrap();
        locked.leases = vec![lease("one"), lease("two")];
        locked.save().unwrap();
        (temporary, dir)
    }

    fn state_file(dir: &StateDir) -> PathBuf {
        dir.path().join(dir.state_name())
    }

    #[test]
    #[ignore = "needs root: the state directory must be root's"]
    fn leases_are_kept_one_a_line() {
        let (_temporary, dir) = kept();
        assert_eq!(dir.peek().unwrap(), [lease("one"), lease("two")]);
        assert_eq!(fs::read_to_string(state_file(&dir)).unwrap().lines().count(), 4);
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}: the lock and the state, no temporary");
    }

    #[test]
    #[ignore = "needs root: the state directory must be root's"]
    fn what_cannot_be_read_is_an_error_and_never_an_empty_pool() {
        let (_temporary, dir) = kept();
        let good = fs::read_to_string(state_file(&dir)).unwrap();
        let namespace = good.find("\"pid\":").unwrap() + 6;
        let elsewhere = format!("{}1{}", &good[..namespace], &good[namespace..]);
        for (text, part) in [
            (&good[..good.len() / 2], "is damaged"),
            ("", "is damaged"),
            (&good.replacen("\"version\":1", "\"version\":2", 1), "another version of vgpu"),
            (&elsewhere, "run vgpu on the host"),
        ] {
            fs::write(state_file(&dir), text).unwrap();
            for error in [dir.peek().unwrap_err(), dir.lock(Duration::ZERO).unwrap_err()] {
                assert_eq!(error.exit, Exit::Io);
                assert!(error.to_string().contains(part), "{error}");
            }
        }
    }

    #[test]
    #[ignore = "needs root: the state directory must be root's"]
    fn leases_of_another_boot_are_void_and_go() {
        let (_temporary, dir) = kept();
        let old = dir.path().join("state-00000000-0000-0000-0000-000000000000.json");
        fs::rename(state_file(&dir), &old).unwrap();
        let locked = dir.lock(Duration::ZERO).unwrap();
        assert_eq!(locked.leases, []);
        locked.save().unwrap();
        assert!(!old.exists());
    }

    #[test]
    #[ignore = "needs root: the state directory must be root's"]
    fn a_failed_write_leaves_the_old_state() {
        let (_temporary, dir) = kept();
        // A directory in the temporary file's place: it cannot be opened for writing.
        fs::create_dir(dir.path().join(format!("{}.new", dir.state_name()))).unwrap();
        let mut locked = dir.lock(Duration::ZERO).unwrap();
        locked.leases.clear();
        assert_eq!(locked.save().unwrap_err().exit, Exit::Io);
        assert_eq!(dir.peek().unwrap().len(), 2);
    }

    #[test]
    #[ignore = "needs root: the state directory must be root's"]
    fn fifos_do_not_hang() {
        use rustix::fs::{CWD, FileType, mknodat};
        let (_temporary, dir) = kept();
        let fifo = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        fifo(&dir.path().join(format!("{}.new", dir.state_name())));
        let save = || dir.lock(Duration::ZERO).unwrap().save();
        assert_eq!(save().unwrap_err().exit, Exit::Io);
        assert_eq!(dir.peek().unwrap().len(), 2, "the old state stands");
        save().expect("what was in the way is gone");

        fs::remove_file(state_file(&dir)).unwrap();
        fifo(&state_file(&dir));
        for error in [dir.peek().unwrap_err(), dir.lock(Duration::ZERO).unwrap_err()] {
            assert!(error.to_string().contains("is damaged"), "{error}");
        }
    }

    #[test]
    #[ignore = "needs root: the state directory must be root's"]
    fn one_holder_at_a_time_and_the_next_is_told_who() {
        let (_temporary, dir) = kept();
        let locked = dir.lock(Duration::ZERO).unwrap();
        let error = dir.lock(Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.exit, Exit::NoneFree);
        assert!(error.to_string().contains(&format!("held by process {}", std::process::id())), "{error}");
        drop(locked);
        dir.lock(Duration::ZERO).unwrap();
    }

    #[test]
    #[ignore = "needs root: the state directory must be root's"]
    fn a_directory_that_others_may_write_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let (_temporary, dir) = kept();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(StateDir::open(dir.path()).unwrap_err().exit, Exit::Untrusted);
    }
}
