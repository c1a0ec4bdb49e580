//! The driver's files that a container needs, found below the driver's root: libraries of exactly the loaded
//! driver's version, programs, sockets of its daemons, configuration. Opens them, reads their headers as data and
//! says under which names they must appear; puts them nowhere, loads and runs nothing, writes nothing.
//!
//! ```text
//!  NVIDIA_DRIVER_CAPABILITIES ──► Grant ──► Capabilities ──► ITEMS ──► find ──► Found: open files, and what is missing
//! ```

mod capability;
mod dirs;
mod library;
mod list;

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;

pub use capability::{Capabilities, Capability, Grant};
pub use list::{ITEMS, Item};

use crate::error::{Exit, OrExit, Result};
use crate::gpu::{DriverRoot, LinkerCache};
use crate::trust::check_file;
use library::Libraries;

/// What kind of file it is, and with that where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A shared object for the host's own programs.
    Library,
    /// The shared object of the same name for 32-bit programs.
    Library32,
    /// A program.
    Binary,
    /// A socket on which one of the driver's daemons listens.
    Socket,
    /// Tells a loader of graphics or OpenCL of the driver's library.
    Config,
}

/// A file of the driver, opened and checked.
#[derive(Debug)]
pub struct DriverFile {
    /// The file itself, close-on-exec: a library is open for reading, all else with `O_PATH`.
    pub fd: OwnedFd,
    /// Where it belongs.
    pub kind: Kind,
    /// The names under which a container must have it, none twice. Libraries and programs: plain file names,
    /// its own first. Sockets: one path, relative to the container's root.
    pub names: Vec<String>,
    /// Where it was found, relative to the driver's root: which of the files it is, and for people; not to be opened
    /// again.
    pub path: String,
    /// Where it is looked for, relative to the container's root: a loader looks nowhere else, and a PATH that has
    /// `/usr/bin` may not have the driver's place.
    pub link_at: Option<String>,
}

impl DriverFile {
    /// Each capability that needs it.
    pub fn capabilities(&self) -> Capabilities {
        let name = self.names.first().map(String::as_str).unwrap_or_default();
        let library = name.strip_prefix("lib").and_then(|name| name.split_once(".so.")).map(|(name, _)| name);
        let is = |item: &&Item| match self.kind {
            Kind::Library | Kind::Library32 => item.kind == Kind::Library && library == Some(item.name),
            Kind::Binary | Kind::Socket => item.kind == self.kind && name == item.name,
            Kind::Config => self.link_at.as_deref() == Some(item.name),
        };
        let item = ITEMS.iter().find(is).map_or(Capabilities::ALL, |item| item.capabilities);
        let wide = if self.kind == Kind::Library32 { &[Capability::Compat32][..] } else { &[] };
        item.or(Capabilities::of(wide))
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The files; of each kind in the order of [`ITEMS`].
    pub files: Vec<DriverFile>,
    /// What was not found, or was found and passed over: a line for each, which names it alone.
    pub missing: Vec<String>,
}

/// One file, or the line that says why there is none.
type FileOrWhy = Result<DriverFile, String>;

impl Found {
    fn add(&mut self, one: FileOrWhy) {
        match one {
            Ok(file) => self.files.push(file),
            Err(why) => self.missing.push(why),
        }
    }
}

/// Finds the files that these capabilities need. `version` is the loaded driver's.
///
/// # Errors
/// [`Exit::Gpu`] where a required library is missing, or the libraries are of another version than the
/// driver, or a library's SONAME is no file name; [`Exit::Untrusted`] where others than root could have
/// written a file; [`Exit::Io`].
pub fn find(root: &DriverRoot, version: &str, capabilities: Capabilities) -> Result<Found> {
    let mut found = Found::default();
    let cache = LinkerCache::of(root);
    let libraries = Libraries::new(root, version, Kind::Library, &cache)?;
    for item in items(Kind::Library, capabilities) {
        found.add(libraries.find(item)?);
    }
    if capabilities.contains(Capability::Compat32) {
        let libraries = Libraries::new(root, version, Kind::Library32, &cache)?;
        for item in items(Kind::Library, capabilities) {
            found.add(libraries.find(item)?);
        }
    }
    found.missing.extend(cache.unusable().map(str::to_owned));
    let binary_dirs = dirs::existing(root, dirs::BINARIES.map(str::to_owned))?;
    for item in items(Kind::Binary, capabilities) {
        found.add(binary(root, &binary_dirs, item.name)?);
    }
    for item in items(Kind::Socket, capabilities) {
        found.add(socket(root, item.name)?);
    }
    for item in items(Kind::Config, capabilities) {
        found.add(config(root, item.name)?);
    }
    Ok(found)
}

/// The items of a kind that any of these capabilities needs.
fn items(kind: Kind, capabilities: Capabilities) -> impl Iterator<Item = &'static Item> {
    ITEMS.iter().filter(move |item| item.kind == kind && item.capabilities.intersects(capabilities))
}

/// Opens a path below the root; `None` where there is nothing.
fn open(root: &DriverRoot, path: &str, flags: OFlags) -> Result<Option<OwnedFd>> {
    match root.open_below(path, flags) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        opened => opened.map(Some).or_exit(Exit::Io, || format!("cannot open {}", root.shown(path))),
    }
}

/// Opens a file that only root can have written, without reading it; `None` where there is nothing.
fn open_trusted(root: &DriverRoot, path: &str) -> Result<Option<OwnedFd>> {
    let opened = open(root, path, OFlags::PATH)?;
    opened.map(|fd| check_file(&fd, &root.path().join(path)).map(|()| fd)).transpose()
}

fn binary(root: &DriverRoot, dirs: &[String], name: &str) -> Result<FileOrWhy> {
    for dir in dirs {
        let path = format!("{dir}/{name}");
        if let Some(fd) = open_trusted(root, &path)? {
            // Where NVIDIA's own packages and toolkit have it: in every usual PATH.
            let (names, link_at) = (vec![name.to_owned()], Some(format!("usr/bin/{name}")));
            return Ok(Ok(DriverFile { fd, kind: Kind::Binary, names, path, link_at }));
        }
    }
    Ok(Err(format!("{name} is not there")))
}

/// The daemon's own user may write to its directory and is not root: a link that it put in place of its
/// socket, to a socket of root's, is not followed.
fn socket(root: &DriverRoot, path: &str) -> Result<FileOrWhy> {
    let shown = root.shown(path);
    let Some(fd) = open(root, path, OFlags::PATH | OFlags::NOFOLLOW)? else {
        return Ok(Err(format!("{shown} is not there")));
    };
    let stat = fstat(&fd).or_exit(Exit::Io, || format!("cannot examine {shown}"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Ok(Err(format!("{shown} is not a socket")));
    }
    let (names, path) = (vec![path.to_owned()], path.to_owned());
    Ok(Ok(DriverFile { fd, kind: Kind::Socket, names, path, link_at: None }))
}

/// `at` is where a loader in the container looks; the host may have it elsewhere.
fn config(root: &DriverRoot, at: &str) -> Result<FileOrWhy> {
    for path in dirs::of_config(at) {
        if let Some(fd) = open_trusted(root, &path)? {
            let name = at.rsplit_once('/').map_or(at, |(_, name)| name);
            let (names, link_at) = (vec![name.to_owned()], Some(at.to_owned()));
            return Ok(Ok(DriverFile { fd, kind: Kind::Config, names, path, link_at }));
        }
    }
    Ok(Err(format!("{at} is not there")))
}
