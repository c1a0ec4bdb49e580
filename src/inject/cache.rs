//! The driver's libraries in the container's linker cache (`/etc/ld.so.cache`), so that programs find them by name:
//! the image's cache read as data, the driver's entries merged in. Nothing of the container is run, and no
//! `ldconfig`.
//!
//! Part of [`live`](super::live), and by its rules. Where the cache is renamed into place ([`etc`](super::etc)) it comes
//! with a drop-in for `ldconfig`, so that `ldconfig` and `apt-get install` inside go on working.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;

use super::etc::{New, Old, replace};
use super::place::{Place, mount_id};
use crate::error::Result;
use crate::ldcache::{self, Cache, Damaged, Entry, flags};
use crate::resolve::{Dir, File as Planned, PLACE};

/// The cache, in `/etc` and in the driver's tmpfs.
const CACHE: &str = "ld.so.cache";

/// Tells `ldconfig` of the driver's libraries. It is read first, as the driver's entries are found first.
const DROP_IN: &str = "etc/ld.so.conf.d/00-vgpu.conf";
const CONF_DIR: &str = "etc/ld.so.conf.d";

/// The container's cache with the libraries of these files merged in; none where the image has none (musl), or one
/// that a loader might take and that cannot be read here: it stays. `proc` is the host's `/proc`.
pub(super) fn merged(container: &Place, files: &[&Planned], proc: &OwnedFd) -> Result<Option<New>> {
    let Some(old) = Old::find(container, CACHE)? else { return Ok(None) };
    let image = old.read(proc, ldcache::LARGEST as u64)?;
    let cache = match ldcache::parse(&image) {
        Ok(cache) => cache.without(PLACE),
        // A loader does without such a file.
        Err(Damaged::NotACache | Damaged::Truncated | Damaged::ByteOrder) => Cache::default(),
        Err(Damaged::TooLarge | Damaged::Overlapping) => return Ok(None),
    };
    Ok(Some(old.replaced_by(merge(&cache, files), container)))
}

/// Tells the image's `ldconfig`; nothing, where that reads no such directory.
pub(super) fn write_drop_in(container: &Place, files: &[&Planned]) -> Result<()> {
    let Some(dir) = container.find(CONF_DIR, OFlags::PATH | OFlags::DIRECTORY)? else { return Ok(()) };
    if mount_id(&dir)? != container.root_mount {
        return Ok(());
    }
    replace(&dir, DROP_IN, directories(files).as_bytes(), container.ids).map(drop)
}

/// The directories of these files' libraries, a line for each, as loaders' configuration has them.
pub(super) fn directories(files: &[&Planned]) -> String {
    let used = |dir: &Dir| files.iter().any(|file| file.dir == *dir);
    let dirs = [Dir::Lib64, Dir::Lib32].into_iter().filter(used);
    dirs.map(|dir| format!("{PLACE}/{}\n", dir.as_str())).collect()
}

/// The cache with an entry for each name of each library.
fn merge(cache: &Cache, files: &[&Planned]) -> Vec<u8> {
    let mut names = Vec::new();
    for file in files {
        let Some(flags) = flags_of(file.dir) else { continue };
        for name in [&file.name].into_iter().chain(&file.links) {
            let path = CString::new(format!("{PLACE}/{}/{name}", file.dir.as_str()));
            // Names of files have no NUL.
            if let (Ok(soname), Ok(path)) = (CString::new(name.as_str()), path) {
                names.push((soname, path, flags));
            }
        }
    }
    let entries = names.iter().map(|(soname, path, flags)| Entry { soname, path, flags: *flags });
    cache.merge(&entries.collect::<Vec<_>>())
}

/// How a loader for the libraries in a directory marks its entries.
fn flags_of(dir: Dir) -> Option<i32> {
    match dir {
        Dir::Bin | Dir::Share => None,
        Dir::Lib32 => Some(flags::I386),
        Dir::Lib64 if cfg!(target_arch = "aarch64") => Some(flags::AARCH64),
        Dir::Lib64 => Some(flags::X86_64),
    }
}
