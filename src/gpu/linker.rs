//! The linker cache of the driver's root: where its programs find the libraries that are in none of the usual
//! directories. Reads that one file, as data.
//!
//! It comes second: where the directories have a library, the cache is not even opened. One of 34 kB takes 25 µs
//! to read, one of 140 kB 80 µs; a library in a usual directory is open in 6 µs.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::DriverRoot;
use crate::ldcache::{self, Table};
use crate::trust::check_file;

/// Relative to the driver's root.
const PATH: &str = "etc/ld.so.cache";

/// What most caches fit in, in bytes: some 1,500 libraries. More is asked of the allocator only where it is needed.
const USUAL: usize = 160 << 10;

/// The linker cache of a driver's root, read when it is first asked.
///
/// It is no error that there is none, or one that is damaged or that others than root could have written: then
/// it names no library, and [`unusable`](Self::unusable) says why.
#[derive(Debug)]
pub struct LinkerCache<'r> {
    root: &'r DriverRoot,
    read: OnceCell<Result<Vec<u8>, String>>,
}

impl<'r> LinkerCache<'r> {
    /// The cache below this root, not read yet.
    pub fn of(root: &'r DriverRoot) -> Self {
        Self { root, read: OnceCell::new() }
    }

    /// Where a linker would find the libraries whose names begin so, its first choice first, relative to the root.
    /// `flags` is one of [`ldcache::flags`]. What is there may be a link, or of another version, or gone.
    pub fn paths(&self, begins: &str, flags: i32) -> Vec<String> {
        let Ok(bytes) = self.read.get_or_init(|| read(self.root)) else { return Vec::new() };
        let Ok(table) = Table::find(bytes) else { return Vec::new() };
        let paths = table.paths(begins, flags).filter_map(|path| path.to_str().ok());
        paths.map(|path| path.trim_start_matches('/').to_owned()).collect()
    }

    /// Why it names no library, where it has been asked for one and is there.
    pub fn unusable(&self) -> Option<&str> {
        self.read.get()?.as_ref().err().map(String::as_str)
    }
}

/// The bytes of a cache that has a table; none at all where there is no file. The error is the reason with the
/// file's name in front.
fn read(root: &DriverRoot) -> Result<Vec<u8>, String> {
    let shown = root.shown(PATH);
    // A FIFO must not hold the hook up; for a regular file O_NONBLOCK means nothing.
    let file = match root.open_below(PATH, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
        file => File::from(file.map_err(|e| format!("cannot open {shown}: {e}"))?),
    };
    check_file(&file, &root.path().join(PATH)).map_err(|e| e.to_string())?;
    let bytes = all(file).map_err(|e| format!("cannot read {shown}: {e}"))?;
    match Table::find(&bytes) {
        Ok(_) => Ok(bytes),
        Err(damaged) => Err(format!("{shown} is not used: {damaged}")),
    }
}

/// At most one byte more than a cache may have.
fn all(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(USUAL);
    file.take(ldcache::LARGEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
