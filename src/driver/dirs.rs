//! Where distributions put the driver's files, relative to the driver's root. Looks which of these places
//! there are.

use rustix::fs::{OFlags, fstat};

use super::{Kind, open};
use crate::error::{Exit, OrExit, Result};
use crate::gpu::{DriverRoot, library_dirs};

/// Programs: the usual places, and NixOS.
pub(super) const BINARIES: [&str; 6] =
    ["usr/bin", "usr/sbin", "bin", "sbin", "run/current-system/sw/bin", "run/opengl-driver/bin"];

/// Of 32-bit libraries on x86-64: Debian's multiarch, `lib32`, `lib` (where 64-bit ones are in `lib64`), and
/// NixOS. NVIDIA has none for other processors.
const COMPAT: [&str; 7] = [
    "usr/lib/i386-linux-gnu",
    "lib/i386-linux-gnu",
    "usr/lib32",
    "lib32",
    "usr/lib",
    "lib",
    "run/opengl-driver-32/lib",
];

/// Where a host may have a file of configuration that belongs at this path in a container: distributions choose
/// between `/usr/share` and `/etc`, and NixOS has neither.
pub(super) fn of_config(at: &str) -> Vec<String> {
    match at.strip_prefix("usr/share/") {
        Some(name) => vec![at.to_owned(), format!("etc/{name}"), format!("run/opengl-driver/share/{name}")],
        None => vec![at.to_owned(), format!("run/opengl-driver/{at}")],
    }
}

/// The directories of libraries that there are below the root, in the order in which they are searched.
pub(super) fn of_libraries(root: &DriverRoot, kind: Kind) -> Result<Vec<String>> {
    let usual = match kind {
        Kind::Library32 => COMPAT.map(str::to_owned),
        _ => library_dirs(),
    };
    // Debian keeps each version of the driver in a directory of its own; in the multiarch directory there
    // are links to it, by the libraries' SONAMEs alone.
    let own = format!("{}/nvidia/current", usual[0]);
    let mut dirs = existing(root, usual.into_iter().chain([own]))?;
    // Everywhere, VDPAU has a directory for its modules.
    dirs.extend(existing(root, dirs.iter().map(|dir| format!("{dir}/vdpau")))?);
    Ok(dirs)
}

/// Those that there are, each once: `lib64` is `usr/lib64` on most hosts.
pub(super) fn existing(
    root: &DriverRoot,
    candidates: impl IntoIterator<Item = String>,
) -> Result<Vec<String>> {
    let (mut dirs, mut seen) = (Vec::new(), Vec::new());
    for dir in candidates {
        let Some(fd) = open(root, &dir, OFlags::PATH | OFlags::DIRECTORY)? else { continue };
        let stat = fstat(&fd).or_exit(Exit::Io, || format!("cannot examine {}", root.shown(&dir)))?;
        let id = (stat.st_dev, stat.st_ino);
        if !seen.contains(&id) {
            seen.push(id);
            dirs.push(dir);
        }
    }
    Ok(dirs)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_directory_once_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["usr/lib64/vdpau", "usr/lib", "run/opengl-driver/lib"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        symlink("usr/lib64", dir.path().join("lib64")).unwrap();
        symlink("/usr/lib", dir.path().join("lib")).unwrap();
        fs::write(dir.path().join("usr/lib/vdpau"), "a file").unwrap();
        let root = DriverRoot::open(dir.path()).unwrap();
        let dirs = of_libraries(&root, Kind::Library).unwrap();
        assert_eq!(dirs, ["usr/lib64", "usr/lib", "run/opengl-driver/lib", "usr/lib64/vdpau"]);
        assert_eq!(of_libraries(&root, Kind::Library32).unwrap(), ["usr/lib"]);
    }
}
