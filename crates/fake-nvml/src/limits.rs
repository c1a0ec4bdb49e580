//! The driver's memory limits per cgroup (r615), kept in a file beside the library, as the driver keeps
//! them across processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::state::{Answer, INVALID_ARGUMENT, UNKNOWN, directory};

/// NVML_DEVICE_MEMORY_LIMIT_MAX: no hard limit.
pub(crate) const NO_LIMIT: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

/// Limits by GPU UUID, then by the cgroup's directory.
type Table = BTreeMap<String, BTreeMap<String, Limits>>;

fn file() -> Answer<PathBuf> {
    directory().map(|dir| dir.join("fake-nvml.limits.json")).ok_or(UNKNOWN)
}

fn load() -> Answer<Table> {
    match fs::read(file()?) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|_| UNKNOWN),
        Err(_) => Ok(Table::new()),
    }
}

/// No limits where none were set, or where the cgroup that had them is gone: assumed.
pub(crate) fn get(uuid: &str, cgroup: &str) -> Answer<Limits> {
    check(cgroup)?;
    let limits = load()?.get(uuid).and_then(|of_gpu| of_gpu.get(cgroup)).copied();
    Ok(limits.unwrap_or(Limits { soft: 0, hard: NO_LIMIT }))
}

/// Soft 0 and hard [`NO_LIMIT`] clear. Limits of cgroups that no longer exist go with this call.
pub(crate) fn set(uuid: &str, cgroup: &str, limits: Limits) -> Answer {
    check(cgroup)?;
    if limits.soft > limits.hard {
        return Err(INVALID_ARGUMENT);
    }
    let mut table = load()?;
    let of_gpu = table.entry(uuid.to_owned()).or_default();
    of_gpu.insert(cgroup.to_owned(), limits);
    of_gpu
        .retain(|cgroup, limits| *limits != Limits { soft: 0, hard: NO_LIMIT } && Path::new(cgroup).is_dir());
    save(&table, &file()?).map_err(|_| UNKNOWN)
}

fn save(table: &Table, file: &Path) -> std::io::Result<()> {
    let temporary = file.with_extension(std::process::id().to_string());
    fs::write(&temporary, serde_json::to_vec_pretty(table)?)?;
    fs::rename(&temporary, file)
}

/// A full path of a directory that exists. The code for others is assumed.
fn check(cgroup: &str) -> Answer {
    let path = Path::new(cgroup);
    if path.is_absolute() && path.is_dir() { Ok(()) } else { Err(INVALID_ARGUMENT) }
}
