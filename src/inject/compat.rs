//! The CUDA libraries that an image brings in `/usr/local/cuda/compat`, for drivers older than they are: looked at, and
//! chosen or not as [`crate::compat`] says. Changes nothing.
//!
//! Part of [`files`](super::files): in the tmpfs at `/usr/local/nvidia`, names of chosen ones are links to the image's
//! files, so that LD_LIBRARY_PATH, the merged linker cache and `ldconfig` lead to the same.
//!
//! All of this is the image's, who may mean harm. Its files are read as data, a bounded part of each; what is on another
//! mount than the root (a `/proc`, where reading can do things) is not read, and what vgpu is going to cover is not used;
//! whatever is odd, the host's driver is used: no start fails for it. What is loaded in the end is the container's own business.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, RawDir, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::place::{Id, Place, id, is_of_container, meddled, mount_id, shown};
use crate::compat::{self, OWNER, SECTION};
use crate::elf::{Class, Elf, Machine};
use crate::error::{Exit, OrExit, Result};
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
        if container.find(&path, OFlags::PATH)?.is_some_and(|there| id(there) == Ok(self.id)) {
            return Ok(());
        }
        Err(meddled(&path, &format!("is not its /{source} as that was")))
    }
}

/// The image's libraries, if they are used on a host whose loaded driver is of this version; else none. `proc` is the
/// host's `/proc`. [`Exit::Io`] where that cannot be found out for a reason that is not the image's.
pub(super) fn find(container: &Place, proc: &OwnedFd, host: &str) -> Result<Vec<Library>> {
    Ok(chosen(container, proc, host)?.unwrap_or_default())
}

fn chosen(container: &Place, proc: &OwnedFd, host: &str) -> Result<Option<Vec<Library>>> {
    let Some((libcuda, id)) = library(container, SONAME)? else { return Ok(None) };
    let covered = Covered::find(container, proc)?;
    if covered.has(&libcuda)? {
        return Ok(None);
    }
    let Some(names) = names(container)? else { return Ok(None) };
    // Two versions: nobody knows which of them is meant.
    let mut versions = names.iter().filter_map(|name| compat::version(name));
    let (Some(version), None) = (versions.next(), versions.next()) else { return Ok(None) };
    // What is judged is what is loaded.
    let same = library(container, &format!("libcuda.so.{version}"))?;
    if same.is_none_or(|(_, same)| same != id) || !is_fit(proc, &libcuda, host, version)? {
        return Ok(None);
    }
    let mut libraries = Vec::new();
    for name in names.into_iter().filter(|name| compat::is_taken(name)) {
        if let Some((file, id)) = library(container, &name)?
            && !covered.has(&file)?
        {
            libraries.push(Library::new(name, id));
        }
    }
    Ok(Some(libraries))
}

/// The directories in which something of vgpu's is going to be mounted: nobody may find there any more what the image
/// has there.
struct Covered<'a> {
    /// By the paths that the kernel has for them.
    dirs: Vec<CString>,
    proc: &'a OwnedFd,
}

impl<'a> Covered<'a> {
    fn find(container: &Place, proc: &'a OwnedFd) -> Result<Self> {
        let mut covered = Self { dirs: Vec::new(), proc };
        for dir in ["usr/local/nvidia", "dev", "etc", "proc", "run"] {
            if let Some(dir) = container.find(dir, OFlags::PATH | OFlags::DIRECTORY)? {
                covered.dirs.push(covered.path_of(&dir)?);
            }
        }
        Ok(covered)
    }

    /// Is the file beneath one of them?
    fn has(&self, file: &OwnedFd) -> Result<bool> {
        let path = self.path_of(file)?;
        let rest = |dir: &CString| path.as_bytes().strip_prefix(dir.as_bytes());
        Ok(self.dirs.iter().any(|dir| rest(dir).is_some_and(|rest| rest.starts_with(b"/"))))
    }

    fn path_of(&self, file: &OwnedFd) -> Result<CString> {
        readlinkat(self.proc, in_proc(file), Vec::new())
            .or_exit(Exit::Io, || format!("cannot ask where the container's /{DIR} is"))
    }
}

/// What is open, relative to `/proc`.
fn in_proc(file: &OwnedFd) -> String {
    format!("self/fd/{}", file.as_raw_fd())
}

/// A regular file of this name, wherever links lead on the image's own file system. Not opened for reading.
fn library(container: &Place, name: &str) -> Result<Option<(OwnedFd, Id)>> {
    let path = format!("{DIR}/{name}");
    let Some(file) = container.find(&path, OFlags::PATH)? else { return Ok(None) };
    let stat = fstat(&file).or_exit(Exit::Io, || cannot("look at", &path))?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let own = mount_id(&file)? == container.root_mount;
    Ok((regular && own).then_some((file, (stat.st_dev, stat.st_ino))))
}

/// The names in the directory; none where they are too many, or cannot be read.
fn names(container: &Place) -> Result<Option<Vec<String>>> {
    let dir = container.find(DIR, OFlags::RDONLY | OFlags::DIRECTORY)?;
    Ok(dir.and_then(names_in))
}

fn names_in(dir: OwnedFd) -> Option<Vec<String>> {
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
fn is_fit(proc: &OwnedFd, libcuda: &OwnedFd, host: &str, version: &str) -> Result<bool> {
    // The very file that was looked at. One that somebody else holds a lease on is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(proc, in_proc(libcuda), flags, Mode::empty()) {
        Err(e) if e == Errno::AGAIN || is_of_container(e) => return Ok(false),
        file => file.or_exit(Exit::Io, || cannot("open", &format!("{DIR}/{SONAME}")))?,
    };
    Ok(is_note_fit(&file, host, version).unwrap_or(false))
}

/// None where it cannot be read, or is no library.
fn is_note_fit(libcuda: &OwnedFd, host: &str, version: &str) -> Option<bool> {
    let elf = Elf::read(libcuda).ok()?;
    let notes = elf.notes(SECTION, OWNER).ok()?;
    let note = notes.first().map(|note| note.description.as_slice());
    let loads = (elf.class(), elf.machine()) == (Class::Bits64, Machine::HOST);
    Some(loads && compat::judge(host, version, note).is_ok())
}

fn cannot(what: &str, path: &str) -> String {
    format!("cannot {what} the container's {}", shown(path))
}
