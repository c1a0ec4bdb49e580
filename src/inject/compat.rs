//! The CUDA libraries that an image brings in `/usr/local/cuda/compat`, for drivers older than they are: looked at, and
//! chosen or not as [`crate::compat`] says. Changes nothing.
//!
//! Part of [`files`](super::files): in the tmpfs at `/usr/local/nvidia`, names of chosen ones are links to the image's
//! files, so that LD_LIBRARY_PATH, the merged linker cache and `ldconfig` lead to the same.
//!
//! All of this is the image's, who may mean harm. Its files are read as data, a bounded part of each; what is on another
//! mount than the root (a `/proc`, where reading can do things) is not read; whatever is odd, the host's driver is used:
//! no start fails for it. What is loaded in the end is the container's own business.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, RawDir, fstat, openat};

use super::place::{Id, Place, id, mount_id};
use crate::compat::{self, OWNER, SECTION};
use crate::elf::{Class, Elf, Machine};
use crate::error::{Error, Exit, Result};
use crate::resolve::{Dir, File};

/// Where images have them, relative to the root; links on the way are usual (`/usr/local/cuda`).
const DIR: &str = "usr/local/cuda/compat";

/// By this name programs load it.
const SONAME: &str = "libcuda.so.1";

/// NVIDIA's packages have a dozen names in the directory. One of many more is not looked through.
const MOST_NAMES: usize = 100;

/// An image's library that is used.
#[derive(Debug)]
pub(super) struct Library {
    /// Its name in [`DIR`], and in the container's `lib64`; the source is relative to the container's root.
    pub file: File,
    /// Which file that was when it was looked at.
    id: Id,
}

impl Library {
    fn new(name: String, id: Id) -> Self {
        let (source, dir) = (format!("{DIR}/{name}"), Dir::Lib64);
        Self { file: File { source, dir, name, links: Vec::new(), link_at: None }, id }
    }

    /// Its name in the driver's place leads to the file that was looked at.
    pub fn read_back(&self, container: &Place, place: &str) -> Result<()> {
        let File { source, dir, name, .. } = &self.file;
        let path = format!("{place}/{}/{name}", dir.as_str());
        if container.open(&path, OFlags::PATH).and_then(|fd| id(&fd)) == Ok(self.id) {
            return Ok(());
        }
        let message = format!(
            "the container's /{path} is not its /{source} as that was; nobody else may change its files while it starts"
        );
        Err(Error::new(Exit::Request, message))
    }
}

/// The image's libraries, if they are used on a host whose loaded driver is of this version; else none. `proc` is the
/// host's `/proc`.
pub(super) fn find(container: &Place, proc: &OwnedFd, host: &str) -> Vec<Library> {
    let chosen = || -> Option<Vec<Library>> {
        let (libcuda, id) = library(container, SONAME)?;
        let names = names(container)?;
        // Two versions: nobody knows which of them is meant.
        let mut versions = names.iter().filter_map(|name| compat::version(name));
        let (version, None) = (versions.next()?, versions.next()) else { return None };
        // What is judged is what is loaded.
        let (_, same) = library(container, &format!("libcuda.so.{version}"))?;
        if same != id || !is_fit(proc, &libcuda, host, version)? {
            return None;
        }
        let taken = names.into_iter().filter(|name| compat::is_taken(name));
        Some(
            taken
                .filter_map(|name| library(container, &name).map(|(_, id)| Library::new(name, id)))
                .collect(),
        )
    };
    chosen().unwrap_or_default()
}

/// A regular file of this name, wherever links lead on the image's own file system. Not opened for reading.
fn library(container: &Place, name: &str) -> Option<(OwnedFd, Id)> {
    let file = container.open(&format!("{DIR}/{name}"), OFlags::PATH).ok()?;
    let stat = fstat(&file).ok()?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let own = mount_id(&file).ok()? == container.root_mount;
    (regular && own).then_some((file, (stat.st_dev, stat.st_ino)))
}

/// The names in the directory; none where they are too many.
fn names(container: &Place) -> Option<Vec<String>> {
    let dir = container.open(DIR, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
    let mut names = Vec::new();
    let mut buffer = Vec::with_capacity(4096);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        names.extend(entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        if names.len() > MOST_NAMES {
            return None;
        }
    }
    Some(names)
}

/// Does the image's `libcuda` fit this processor and the host's driver?
fn is_fit(proc: &OwnedFd, libcuda: &OwnedFd, host: &str, version: &str) -> Option<bool> {
    // The very file that was looked at. One that somebody else holds a lease on is not waited for.
    let path = format!("self/fd/{}", libcuda.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(proc, path, flags, Mode::empty()).ok()?;
    let elf = Elf::read(&file).ok()?;
    let notes = elf.notes(SECTION, OWNER).ok()?;
    let note = notes.first().map(|note| note.description.as_slice());
    let loads = (elf.class(), elf.machine()) == (Class::Bits64, Machine::HOST);
    Some(loads && compat::judge(host, version, note).is_ok())
}
