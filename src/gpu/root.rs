//! The driver's root: everything of the driver is opened below it, and no symlink leads out of it.
//! Reads only.

use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{Exit, OrExit, Result};
use crate::files;

/// `driver_root` of pool.toml, opened once. With "/" it is the host; with another directory (a driver
/// container's root, a simulated host) absolute symlinks below it mean what they mean inside it.
#[derive(Debug)]
pub struct DriverRoot {
    dir: OwnedFd,
    path: PathBuf,
}

/// `openat2` says EAGAIN when a rename or mount anywhere on the host coincided with a `..` of this
/// path (openat2(2)): common while many containers start, and it means only "again".
const TRIES: usize = 128;

impl DriverRoot {
    /// Opens the directory.
    ///
    /// # Errors
    /// [`Exit::Gpu`] where it is not there or not a directory: a driver container that is not up yet.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, path, flags, Mode::empty()).or_exit(Exit::Gpu, || {
            format!("cannot open driver_root {} (is it right in pool.toml?)", path.display())
        })?;
        Ok(Self { dir, path: path.to_owned() })
    }

    /// Opens `path` below the root, close-on-exec. Symlinks are followed within the root; magic links
    /// (`/proc/self/fd/…`) never. Mounts below the root (`/proc`, `/dev`) are crossed.
    ///
    /// # Errors
    /// The kernel's, as they are: the caller knows whether ENOENT is one.
    pub fn open_below(&self, path: impl AsRef<Path>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        for _ in 0..TRIES {
            match rustix::fs::openat2(&self.dir, path.as_ref(), flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                opened => return opened,
            }
        }
        Err(Errno::AGAIN)
    }

    /// The text of a file below the root; what is not UTF-8 is replaced.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self, path: impl AsRef<Path>) -> rustix::io::Result<String> {
        let file = File::from(self.open_below(path, OFlags::RDONLY)?);
        let read = files::whole(file, files::PAGE);
        let bytes = read.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    /// The names in a directory below the root, sorted; none where there is no such directory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn names(&self, path: impl AsRef<Path>) -> rustix::io::Result<Vec<String>> {
        let dir = match self.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
            dir => dir?,
        };
        let mut names = Vec::new();
        for entry in Dir::new(dir)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The root's own path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How a path below the root is called in messages.
    pub fn shown(&self, path: impl AsRef<Path>) -> impl fmt::Display {
        self.path.join(path).display().to_string()
    }
}

/// Where distributions put a driver's 64-bit libraries, relative to the driver's root: Debian's
/// multiarch first, then `lib64` (before `lib`, which is 32-bit where both exist), and NixOS.
pub fn library_dirs() -> [String; 7] {
    let arch = std::env::consts::ARCH;
    [
        format!("usr/lib/{arch}-linux-gnu"),
        format!("lib/{arch}-linux-gnu"),
        "usr/lib64".into(),
        "lib64".into(),
        "usr/lib".into(),
        "lib".into(),
        "run/opengl-driver/lib".into(),
    ]
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn symlinks_stay_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("root/etc")).unwrap();
        fs::write(dir.path().join("root/etc/inside"), "inside").unwrap();
        fs::write(dir.path().join("outside"), "outside").unwrap();
        symlink("/etc/inside", dir.path().join("root/absolute")).unwrap();
        symlink("../../../etc/inside", dir.path().join("root/etc/up")).unwrap();
        symlink("../outside", dir.path().join("root/out")).unwrap();
        let root = DriverRoot::open(&dir.path().join("root")).unwrap();
        assert_eq!(root.read("absolute").unwrap(), "inside");
        assert_eq!(root.read("etc/up").unwrap(), "inside");
        assert_eq!(root.read("/etc/inside").unwrap(), "inside");
        assert_eq!(root.read("out"), Err(Errno::NOENT));
        assert_eq!(root.names("etc").unwrap(), ["inside", "up"]);
        assert_eq!(root.names("missing").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_host_is_a_root_and_its_proc_a_mount_below_it() {
        let root = DriverRoot::open(Path::new("/")).unwrap();
        assert!(root.read("proc/devices").unwrap().contains("Character devices:"));
        assert_eq!(root.read("proc/self/cwd/etc/passwd"), Err(Errno::LOOP), "a magic link");
    }
}
