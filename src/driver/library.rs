//! One library of the driver: exactly of the loaded driver's version, of the right architecture, and the
//! names under which programs and other libraries look for it. Opens and reads headers.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::OFlags;

use super::{DriverFile, FileOrWhy, Item, Kind, dirs, open};
use crate::elf::{Class, Elf, Machine};
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::gpu::{DriverRoot, LinkerCache};
use crate::ldcache::flags;
use crate::trust::check_file;

/// How many libraries of another version an error names.
const SHOWN: usize = 2;

/// The libraries of one architecture below a driver's root.
pub(super) struct Libraries<'r> {
    root: &'r DriverRoot,
    version: &'r str,
    kind: Kind,
    dirs: Vec<String>,
    cache: &'r LinkerCache<'r>,
}

/// What was found in the place of a library.
#[derive(Default)]
struct Others {
    /// Why each file of the right name was passed over.
    passed_over: Vec<String>,
    /// Paths of the same library of other versions, by the linker cache.
    versions: Vec<String>,
}

impl<'r> Libraries<'r> {
    /// `kind` is [`Kind::Library`] or [`Kind::Library32`]; `cache` is that of `root`.
    pub(super) fn new(
        root: &'r DriverRoot,
        version: &'r str,
        kind: Kind,
        cache: &'r LinkerCache<'r>,
    ) -> Result<Self> {
        Ok(Self { root, version, kind, dirs: dirs::of_libraries(root, kind)?, cache })
    }

    /// The first one that is of the right architecture, in the usual directories, then where the linker cache says.
    /// As a linker does, others are passed over: `usr/lib` has 64-bit libraries on one distribution and 32-bit
    /// ones on the next.
    pub(super) fn find(&self, item: &Item) -> Result<FileOrWhy> {
        let file = format!("lib{}.so.{}", item.name, item.version.unwrap_or(self.version));
        let mut others = Others::default();
        for dir in &self.dirs {
            let path = format!("{dir}/{file}");
            let Some(fd) = self.open(&path)? else { continue };
            if let Some(found) = self.take(fd, path, &file, item, &mut others)? {
                return Ok(Ok(found));
            }
        }
        for path in self.cache.paths(&format!("lib{}.so", item.name), cache_flags(self.kind)) {
            let Some(fd) = self.open(&path)? else { continue };
            // Its name in the cache is an interface's; the file that it leads to has the version.
            let leads_to = self.path_of(&fd)?;
            let name = leads_to.rsplit('/').next().unwrap_or_default();
            if name != file {
                others.versions.extend(version_of(name, item.name).map(|_| leads_to.clone()));
            } else if let Some(found) = self.take(fd, path, &file, item, &mut others)? {
                return Ok(Ok(found));
            }
        }
        if item.required && self.kind == Kind::Library {
            return Err(self.absent(item, &file, others));
        }
        let kind = if self.kind == Kind::Library32 { " (32-bit)" } else { "" };
        let not_there = || format!("{file}{kind} is not there");
        Ok(Err(others.passed_over.into_iter().next().unwrap_or_else(not_there)))
    }

    /// Open for reading at once: an `O_PATH` descriptor would have to be opened again by a path. A FIFO must not
    /// hold the hook up; for a regular file `O_NONBLOCK` means nothing.
    fn open(&self, path: &str) -> Result<Option<OwnedFd>> {
        open(self.root, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// The opened file at `path`, under the names that programs know it by; none where it is passed over.
    fn take(
        &self,
        fd: OwnedFd,
        path: String,
        file: &str,
        item: &Item,
        others: &mut Others,
    ) -> Result<Option<DriverFile>> {
        check_file(&fd, &self.root.path().join(&path))?;
        match self.soname(&fd) {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                others.passed_over.push(format!("{} {e}", self.root.shown(&path)));
                Ok(None)
            }
            soname => {
                let shown = || self.root.shown(&path);
                let soname = soname.or_exit(Exit::Io, || format!("cannot read {}", shown()))?;
                let names = names(file, soname, item.links).map_err(|name| no_name(&name, shown()))?;
                Ok(Some(DriverFile { fd, kind: self.kind, names, path, link_at: None }))
            }
        }
    }

    /// Where an opened file is on the host, whatever links led to it.
    fn path_of(&self, fd: &OwnedFd) -> Result<String> {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let path = std::fs::read_link(&link).or_exit(Exit::Io, || format!("cannot read {link}"))?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn soname(&self, file: &OwnedFd) -> io::Result<Option<String>> {
        let elf = Elf::read(file)?;
        if (elf.class(), elf.machine()) != architecture(self.kind) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "is of another architecture"));
        }
        elf.soname()
    }

    /// The error for a library without which there is no sense in going on.
    fn absent(&self, item: &Item, file: &str, others: Others) -> Error {
        let version = self.version;
        let mut versions = self.of_other_versions(item.name);
        if versions.is_empty() {
            versions = others.versions;
            versions.dedup();
        }
        versions.truncate(SHOWN);
        let what = if !versions.is_empty() {
            format!(
                "the loaded driver is {version}, and there is {}: reload the driver's modules or reboot, which an upgrade of the driver needs",
                versions.join(", ")
            )
        } else if let Some(passed) = others.passed_over.first() {
            format!("{passed}; reinstall the libraries of driver {version}")
        } else {
            let dirs: Vec<String> = self.dirs.iter().map(|dir| self.root.shown(dir).to_string()).collect();
            let looked = if dirs.is_empty() {
                format!("no directory of libraries is below {}", self.root.path().display())
            } else {
                format!("it is not in {}", dirs.join(", "))
            };
            let cache = self.cache.unusable().map(|why| format!("; {why}")).unwrap_or_default();
            format!(
                "{looked}{cache}; install the libraries of driver {version}, or set driver_root in pool.toml"
            )
        };
        Error::new(Exit::Gpu, format!("capability {} needs {file}: {what}", item.capabilities))
    }

    /// The same library of other versions in the usual directories, by path. What cannot be listed has none: an error
    /// is on its way.
    fn of_other_versions(&self, library: &str) -> Vec<String> {
        let mut others = Vec::new();
        for dir in &self.dirs {
            let names = self.root.names(dir).unwrap_or_default();
            let of_it =
                names.iter().filter(|name| version_of(name, library).is_some_and(|v| v != self.version));
            others.extend(of_it.map(|name| self.root.shown(format!("{dir}/{name}")).to_string()));
        }
        others
    }
}

/// Class and processor of the libraries of a kind. The driver exists for x86-64 and for aarch64, with
/// libraries for 32-bit programs on x86-64 alone.
fn architecture(kind: Kind) -> (Class, Machine) {
    match kind {
        Kind::Library32 => (Class::Bits32, Machine::I386),
        _ => (Class::Bits64, Machine::HOST),
    }
}

/// How the linker cache marks the libraries of a kind.
fn cache_flags(kind: Kind) -> i32 {
    if kind == Kind::Library32 { flags::I386 } else { flags::NATIVE }
}

/// `550.54.15` for `libcuda.so.550.54.15`; nothing for `libcuda.so.1`.
fn version_of<'n>(name: &'n str, library: &str) -> Option<&'n str> {
    let version = name.strip_prefix("lib")?.strip_prefix(library)?.strip_prefix(".so.")?;
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (version.contains('.') && version.split('.').all(digits)).then_some(version)
}

/// The names of a library, its own first. The error is the one that is no plain file name.
fn names(file: &str, soname: Option<String>, links: &[&str]) -> Result<Vec<String>, String> {
    let mut names = vec![file.to_owned()];
    for name in soname.into_iter().chain(links.iter().map(|link| (*link).to_owned())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.iter().find(|name| !is_file_name(name)) {
        Some(other) => Err(other.clone()),
        None => Ok(names),
    }
}

/// May this be created in a directory, and is it shown as it is?
fn is_file_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    !name.is_empty() && name != "." && name != ".." && name.bytes().all(plain)
}

fn no_name(name: &str, shown: impl std::fmt::Display) -> Error {
    let message =
        format!("{shown} has the name {}, which is no file name; reinstall the driver", quoted(name));
    Error::new(Exit::Gpu, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_its_own_first_and_none_twice() {
        let ask = |file: &str, soname: Option<&str>, links: &[&str]| {
            names(file, soname.map(str::to_owned), links).unwrap().join(" ")
        };
        let cuda = ask("libcuda.so.550.54.15", Some("libcuda.so.1"), &["libcuda.so"]);
        assert_eq!(cuda, "libcuda.so.550.54.15 libcuda.so.1 libcuda.so");
        // Libraries that only the driver itself opens are their own SONAME.
        assert_eq!(ask("libx.so.550.54.15", Some("libx.so.550.54.15"), &[]), "libx.so.550.54.15");
        assert_eq!(ask("libx.so.1.2", Some("libx.so"), &["libx.so"]), "libx.so.1.2 libx.so");
        assert_eq!(ask("libx.so.1.2", None, &[]), "libx.so.1.2");
    }

    #[test]
    fn only_plain_file_names() {
        for odd in
            ["../../etc/passwd", "/libcuda.so.1", "a/b", "", ".", "..", "lib\ncuda.so", "libc\u{fc}da.so"]
        {
            assert_eq!(names("libx.so.1.2", Some(odd.to_owned()), &[]), Err(odd.to_owned()));
        }
        // A version is not made of such characters, but it comes from a file.
        assert_eq!(names("libx.so.1/2", None, &[]), Err("libx.so.1/2".to_owned()));
    }

    #[test]
    fn versions_of_drivers_are_not_those_of_interfaces() {
        for (name, version) in [
            ("libcuda.so.550.54.15", Some("550.54.15")),
            ("libcuda.so.580.82", Some("580.82")),
            ("libcuda.so.1", None),
            ("libcuda.so", None),
            ("libcuda.so.1.x", None),
            ("libcuda.so..1", None),
            ("libcudadebugger.so.550.54.15", None),
            ("cuda.so.550.54.15", None),
        ] {
            assert_eq!(version_of(name, "cuda"), version, "{name}");
        }
    }
}
