//! The inventory of this boot, kept in `state_dir`. A cache, not truth: what cannot be read, or was
//! made under another key, is discovered again. Touches `inventory-*` in `state_dir` alone.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fchmod, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{DriverRoot, Found, drm, mig, procfs};
use crate::error::{Exit, OrExit, Result};
use crate::files;

const PREFIX: &str = "inventory-";

/// What an inventory depends on. As long as it is the same, NVML is not asked again.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Key {
    /// What is known of a GPU differs from version to version.
    vgpu: String,
    /// GPUs do not move within a boot.
    boot: String,
    /// A driver is replaced without a reboot.
    driver: String,
    /// The admin points pool.toml at another driver.
    driver_root: String,
    /// MIG devices come and go at any time.
    mig: Vec<String>,
    /// So do the nodes for graphics, with their module.
    graphics: bool,
}

impl Key {
    /// The key as of now.
    pub(super) fn read(root: &DriverRoot) -> Result<Self> {
        Ok(Self {
            vgpu: env!("CARGO_PKG_VERSION").to_owned(),
            boot: files::boot_id()?,
            driver: procfs::driver_version(root)?,
            driver_root: root.path().to_string_lossy().into_owned(),
            mig: mig::instances(root)?,
            graphics: drm::is_loaded(root)?,
        })
    }

    fn file_name(&self) -> String {
        format!("{PREFIX}{}.json", self.boot)
    }
}

/// The file's content.
#[derive(Serialize, Deserialize)]
struct Cached<K, F> {
    key: K,
    found: F,
}

/// What was found under this key; `None` for everything else, a damaged file included.
pub(super) fn load(state_dir: BorrowedFd<'_>, key: &Key) -> Option<Found> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(state_dir, key.file_name(), flags, Mode::empty()).ok()?);
    let bytes = files::whole(file, files::PAGE).ok()?;
    let cached: Cached<Key, Found> = serde_json::from_slice(&bytes).ok()?;
    (cached.key == *key).then_some(cached.found)
}

/// Puts what was found in the place of whatever is there, and removes inventories of earlier boots.
pub(super) fn store(state_dir: BorrowedFd<'_>, shown: &Path, key: Key, found: &Found) -> Result<()> {
    let name = key.file_name();
    replace(state_dir, &name, &Cached { key, found })
        .or_exit(Exit::Io, || format!("cannot write {}", shown.join(&name).display()))?;
    remove_others(state_dir, &name);
    Ok(())
}

/// Writes a temporary and renames it. Not synced: after a crash the boot id is another one.
fn replace(state_dir: BorrowedFd<'_>, name: &str, content: &impl Serialize) -> std::io::Result<()> {
    let (mut file, temporary) = create_temporary(state_dir, name)?;
    let mut bytes = serde_json::to_vec_pretty(content)?;
    bytes.push(b'\n');
    let written = file.write_all(&bytes).and_then(|()| {
        // Whatever the caller's umask: everybody may read what `nvidia-smi -L` tells everybody.
        fchmod(&file, Mode::from_raw_mode(0o644))?;
        Ok(renameat(state_dir, &temporary, state_dir, name)?)
    });
    if written.is_err() {
        let _ = unlinkat(state_dir, &temporary, AtFlags::empty());
    }
    written
}

/// A new file of a name that nobody else uses: hooks discover at the same time, and a killed one may
/// have left its own behind.
fn create_temporary(state_dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<(File, String)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pid = std::process::id();
    for n in 0.. {
        let temporary = format!("{name}.{pid}.{n}");
        match openat(state_dir, &temporary, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::EXIST) => {}
            file => return Ok((file?.into(), temporary)),
        }
    }
    Err(Errno::EXIST)
}

/// Removes what earlier boots left. It does no harm where it stays, so failing to is no error. Files
/// of this boot, temporaries of others among them, stay.
fn remove_others(state_dir: BorrowedFd<'_>, name: &str) {
    let Ok(entries) = Dir::read_from(state_dir.as_fd()) else { return };
    for entry in entries.flatten() {
        let other = entry.file_name().to_bytes();
        if other.starts_with(PREFIX.as_bytes()) && !other.starts_with(name.as_bytes()) {
            let _ = unlinkat(state_dir, entry.file_name(), AtFlags::empty());
        }
    }
}
