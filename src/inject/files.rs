//! The driver's files brought into a container: one tmpfs at `/usr/local/nvidia`, in it a bind mount for each
//! file, and links for its other names. CUDA images have that place in PATH and LD_LIBRARY_PATH.
//!
//! Part of [`live`](super::live), and by its rules: what was opened and checked on the host is cloned there; the
//! child in the container's mount namespace attaches it beneath the root. What stays in the root file system is in
//! docs/files.md.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, mknodat, statat, symlinkat};
use rustix::io::Errno;

use super::compat::{self, Library};
use super::detached::{self, Use};
use super::etc::New;
use super::place::{Id, Place, id, is_of_container, lost, meddled, mount_id, shown};
use super::{cache, musl, preload};
use crate::container::RootIds;
use crate::driver::DriverFile;
use crate::error::{Error, Exit, OrExit, Result};
use crate::resolve::{self, Dir, File};

/// Where they are, relative to the container's root.
const PLACE: &str = resolve::PLACE.split_at(1).1;

/// What tells each loader of the driver: the image's own file with these files' libraries in it; none where the image has
/// no such loader. `proc` is the host's `/proc`.
type Merged = fn(&Place, &[&File], proc: &OwnedFd) -> Result<Option<New>>;
const LOADERS: [Merged; 2] = [cache::merged, musl::merged];

/// A file of a plan, opened.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub file: File,
    pub fd: OwnedFd,
    id: Id,
}

/// Joins each file of a plan with the descriptor that was opened when it was found.
pub(super) fn open(planned: Vec<File>, found: &mut Vec<DriverFile>) -> Result<Vec<OpenFile>> {
    let join = |file: File| {
        let fd = take(found, &file.source)?;
        let id = id(&fd).or_exit(Exit::Io, || format!("cannot look at {}", file.source))?;
        Ok(OpenFile { file, fd, id })
    };
    planned.into_iter().map(join).collect()
}

/// The descriptor that was opened when this file was found.
pub(super) fn take(found: &mut Vec<DriverFile>, source: &str) -> Result<OwnedFd> {
    let at = found.iter().position(|found| found.path == source);
    let gone = || Error::new(Exit::Io, format!("{source} was planned and not found"));
    Ok(found.remove(at.ok_or_else(gone)?).fd)
}

/// What becomes `/usr/local/nvidia`, still mounted nowhere. Without any file there is no such thing.
pub(super) struct Detached<'a> {
    files: &'a [OpenFile],
    /// One for each file.
    clones: Vec<OwnedFd>,
    tmpfs: Option<OwnedFd>,
    /// The host's `/proc`.
    proc: OwnedFd,
}

impl<'a> Detached<'a> {
    /// Clones the mounts of the files, and makes the tmpfs, empty.
    pub fn new(files: &'a [OpenFile], ids: RootIds, label: Option<&str>) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty());
        let make = || detached::tmpfs("/usr/local/nvidia", ids, label);
        let clone = |file: &OpenFile| detached::clone(&file.fd, Use::File, &file.file.source);
        Ok(Self {
            proc: proc.or_exit(Exit::Io, || "cannot open /proc")?,
            files,
            clones: files.iter().map(clone).collect::<Result<_>>()?,
            tmpfs: (!files.is_empty()).then(make).transpose()?,
        })
    }

    /// The image's own libraries that come before the host's; none where the container gets no CUDA of the host's.
    pub fn compat(&self, container: &Place) -> Result<Vec<Library>> {
        // Its name has the loaded driver's version.
        let host = self.files.iter().find_map(|file| crate::compat::version(&file.file.name));
        let libraries = host.map(|host| compat::find(container, &self.proc, host)).transpose()?;
        let mut libraries = libraries.unwrap_or_default();
        let of_host = self.kept(&libraries).filter(|file| file.file.dir == Dir::Lib64);
        let names: Vec<&str> = of_host.map(|file| file.file.name.as_str()).collect();
        libraries.retain(|library| !names.contains(&library.file.name.as_str()));
        Ok(libraries)
    }

    /// The host's files that the image has none for.
    fn kept(&self, compat: &[Library]) -> impl Iterator<Item = &'a OpenFile> {
        self.files.iter().filter(|file| !file.is_replaced(compat))
    }

    /// Mounts all of it.
    pub fn attach(&self, container: &Place, compat: &[Library]) -> Result<()> {
        let Some(tmpfs) = &self.tmpfs else { return Ok(()) };
        let of_image = compat.iter().map(|library| &library.file);
        let planned: Vec<&File> = self.kept(compat).map(|file| &file.file).chain(of_image).collect();
        let [of_glibc, of_musl] = LOADERS.map(|merged| merged(container, &planned, &self.proc));
        let merged = [of_glibc?, of_musl?, preload::merged(container, self.files, &self.proc)?];
        container
            .ids
            .create(|| self.furnish(tmpfs, compat))
            .or_exit(Exit::Io, || "cannot fill the tmpfs for /usr/local/nvidia")?;
        let caches: Vec<&New> = merged.iter().flatten().collect();
        caches.iter().try_for_each(|cache| cache.stage(tmpfs, container.ids))?;
        detached::seal(tmpfs, "/usr/local/nvidia")?;
        let (local, name) = container.target(PLACE, FileType::Directory)?;
        local.make(name, FileType::Directory)?;
        local.mount(name, FileType::Directory, tmpfs)?;
        self.attach_files(tmpfs, compat)?;
        if caches.iter().any(|cache| cache.own) {
            cache::write_drop_in(container, &planned)?;
        }
        caches.iter().try_for_each(|cache| cache.attach(container, tmpfs))?;
        self.kept(compat).try_for_each(|file| link_to(file, container))?;
        // What was not there when it was looked for is not there now: else a loader would find it that was not told.
        for (merge, _) in LOADERS.iter().zip(&merged).filter(|(_, merged)| merged.is_none()) {
            if let Some(new) = merge(container, &planned, &self.proc)? {
                return Err(meddled(&new.path(), "was not to be found a moment ago"));
            }
        }
        Ok(())
    }

    fn attach_files(&self, tmpfs: &OwnedFd, compat: &[Library]) -> Result<()> {
        let clones = self.files.iter().zip(&self.clones);
        for (file, clone) in clones.filter(|(file, _)| !file.is_replaced(compat)) {
            let path = file.path(&file.file.name);
            detached::move_into(clone, tmpfs, &path)
                .or_exit(Exit::Io, || format!("cannot mount the container's /usr/local/nvidia/{path}"))?;
        }
        Ok(())
    }

    /// Puts in directories, files to mount on, and links.
    fn furnish(&self, tmpfs: &OwnedFd, compat: &[Library]) -> Result<(), Errno> {
        for dir in Dir::ALL {
            let always = matches!(dir, Dir::Bin | Dir::Lib64);
            if always || self.files.iter().any(|file| file.file.dir == dir) {
                mkdirat(tmpfs, dir.as_str(), Mode::from_raw_mode(0o755))?;
            }
        }
        symlinkat(Dir::Lib64.as_str(), tmpfs, "lib")?;
        for Library { file, .. } in compat {
            symlinkat(format!("/{}", file.source), tmpfs, format!("{}/{}", file.dir.as_str(), file.name))?;
        }
        for file in self.kept(compat) {
            let mode = Mode::from_raw_mode(0o444);
            mknodat(tmpfs, file.path(&file.file.name), FileType::RegularFile, mode, 0)?;
            for link in &file.file.links {
                symlinkat(&file.file.name, tmpfs, file.path(link))?;
            }
        }
        Ok(())
    }

    /// Looks again, through the root: each name leads to the very file that was opened on the host, or looked at in
    /// the image.
    pub fn read_back(&self, container: &Place, compat: &[Library]) -> Result<()> {
        let Some(tmpfs) = &self.tmpfs else { return Ok(()) };
        compat.iter().try_for_each(|library| library.read_back(container, PLACE))?;
        let place = container.find(PLACE, OFlags::PATH | OFlags::DIRECTORY)?.ok_or_else(|| lost(PLACE))?;
        // In what was mounted just now, sealed, every link is known. It is another one where an earlier call did that.
        let is_ours = mount_id(&place)? == mount_id(tmpfs)?;
        for file in self.kept(compat) {
            for name in [&file.file.name].into_iter().chain(&file.file.links) {
                let path = file.path(name);
                let there = if is_ours {
                    statat(&place, &path, AtFlags::empty()).map(|stat| (stat.st_dev, stat.st_ino))
                } else {
                    container.open(&format!("{PLACE}/{path}"), OFlags::PATH).and_then(id)
                };
                compare(there, file.id, &format!("{PLACE}/{path}"), &file.file.source)?;
            }
        }
        Ok(())
    }
}

/// A path beneath the container's root leads to this file of the host's.
pub(super) fn read_back(container: &Place, path: &str, on_host: Id, source: &str) -> Result<()> {
    compare(container.open(path, OFlags::PATH).and_then(id), on_host, path, source)
}

fn compare(there: Result<Id, Errno>, on_host: Id, path: &str, source: &str) -> Result<()> {
    match there {
        Ok(there) if there == on_host => Ok(()),
        Err(e) if !is_of_container(e) => {
            Err(e).or_exit(Exit::Io, || format!("cannot look at the container's {}", shown(path)))
        }
        _ => Err(meddled(path, &format!("is not the host's {source}"))),
    }
}

/// The link by which a file is found that is looked for elsewhere. An image that brings a file of its own there keeps
/// it.
fn link_to(file: &OpenFile, container: &Place) -> Result<()> {
    let Some(path) = &file.file.link_at else { return Ok(()) };
    if container.find(path, OFlags::PATH)?.is_some() {
        return Ok(());
    }
    let (holder, name) = container.target(path, FileType::Symlink)?;
    if holder.make_link(name, &format!("/{PLACE}/{}", file.path(&file.file.name)))? {
        return read_back(container, path, file.id, &file.file.source);
    }
    let message = format!("the container's /{path} is a link to nowhere; remove it from the image");
    Err(Error::new(Exit::Request, message))
}

impl OpenFile {
    /// Relative to `/usr/local/nvidia`.
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.file.dir.as_str())
    }

    /// Is it left out, since the image's own library has one of its names? With a file of the same SONAME beside a link
    /// of that name, `ldconfig` inside would take the file.
    fn is_replaced(&self, compat: &[Library]) -> bool {
        self.file.dir == Dir::Lib64
            && self.file.links.iter().any(|link| compat.iter().any(|library| library.file.name == *link))
    }
}
