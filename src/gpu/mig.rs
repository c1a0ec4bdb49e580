//! MIG: the devices that GPUs in that mode are cut into, and the driver's capabilities that open them. Reads below the
//! driver's root; the parser is pure.

use std::collections::BTreeMap;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::DriverRoot;
use crate::error::{Exit, OrExit, Result};
use crate::types::{Bytes, MigInstance, MigProfile, MigUuid};

const CAPABILITIES: &str = "proc/driver/nvidia/capabilities";
const MINORS: &str = "proc/driver/nvidia-caps/mig-minors";

/// A MIG device: a compute instance, on a GPU in MIG mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MigDevice {
    /// What identifies it.
    pub uuid: MigUuid,
    /// Where it is on its GPU.
    #[serde(flatten)]
    pub instance: MigInstance,
    /// What it is.
    pub profile: MigProfile,
    /// Its memory, shared with the other compute instances of its GPU instance.
    pub memory: Bytes,
}

/// The driver's capabilities that concern MIG: whoever may open the node of one, `/dev/nvidia-caps/nvidia-cap<minor>`,
/// has it. (So has whoever has CAP_SYS_ADMIN: MIG User Guide, "Device Nodes and Capabilities".)
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The minors of those that there are: `gpu0/gi1` and `gpu0/gi1/ci0`, where the number after `gpu` is the device
    /// minor, and `config` and `monitor`, by which instances are made and watched.
    pub minors: BTreeMap<String, u32>,
    /// The largest minor that an instance can have on a GPU that is in MIG mode, whether or not it is there.
    pub last: u32,
}

impl Capabilities {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The instances that exist, as the driver names their directories: `gpu0/gi1`, `gpu0/gi1/ci0`.
/// (`mig-minors` would list the possible ones.) None where MIG is off.
pub(super) fn instances(root: &DriverRoot) -> Result<Vec<String>> {
    list(root).or_exit(Exit::Io, || format!("cannot list {}", root.shown(CAPABILITIES)))
}

fn list(root: &DriverRoot) -> rustix::io::Result<Vec<String>> {
    let mut devices = Vec::new();
    for gpu in with_prefix("gpu", root.names(CAPABILITIES)?) {
        let mig = format!("{CAPABILITIES}/{gpu}/mig");
        for gi in with_prefix("gi", root.names(&mig)?) {
            devices.push(format!("{gpu}/{gi}"));
            let instances = with_prefix("ci", root.names(format!("{mig}/{gi}"))?);
            devices.extend(instances.map(|ci| format!("{gpu}/{gi}/{ci}")));
        }
    }
    Ok(devices)
}

fn with_prefix(prefix: &'static str, names: Vec<String>) -> impl Iterator<Item = String> {
    names.into_iter().filter(move |name| name.starts_with(prefix))
}

/// The capabilities of MIG on these GPUs, named by device minor. None where there is no list of them (before r450).
pub(super) fn capabilities(root: &DriverRoot, gpus: &[u32]) -> Result<Capabilities> {
    if gpus.is_empty() {
        return Ok(Capabilities::default());
    }
    let text = match root.read(MINORS) {
        Err(Errno::NOENT | Errno::NOTDIR) => String::new(),
        text => text.or_exit(Exit::Io, || format!("cannot read {}", root.shown(MINORS)))?,
    };
    let mut there = instances(root)?;
    there.extend(["config", "monitor"].map(str::to_owned));
    Ok(parse_minors(&text, &there, gpus))
}

/// Lines `config 1`, `gpu0/gi1/access 12`, `gpu0/gi1/ci0/access 13`, for all instances that could be.
fn parse_minors(text: &str, there: &[String], gpus: &[u32]) -> Capabilities {
    let mut capabilities = Capabilities::default();
    let prefixes: Vec<String> = gpus.iter().map(|minor| format!("gpu{minor}/")).collect();
    for line in text.lines() {
        let Some((name, minor)) = line.split_once(' ') else { continue };
        let Ok(minor) = minor.trim().parse() else { continue };
        let name = name.strip_suffix("/access").unwrap_or(name);
        let exists = there.iter().any(|one| one == name);
        if exists || prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            capabilities.last = capabilities.last.max(minor);
        }
        if exists {
            capabilities.minors.insert(name.to_owned(), minor);
        }
    }
    capabilities
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_are_there_and_the_last_that_could_be() {
        let text = "config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\ngpu1/gi0/access 5\n\
            gpu1/gi0/ci0/access 6\ngpu1/gi0/ci1/access 7\ngpu10/gi0/access 8\nx\ngpu1/gi1/access x\n";
        let there = ["config", "monitor", "gpu1/gi0", "gpu1/gi0/ci0"].map(str::to_owned);
        let capabilities = parse_minors(text, &there, &[1]);
        let minors: Vec<_> =
            capabilities.minors.iter().map(|(name, minor)| (name.as_str(), *minor)).collect();
        assert_eq!(minors, [("config", 1), ("gpu1/gi0", 5), ("gpu1/gi0/ci0", 6), ("monitor", 2)]);
        assert_eq!(capabilities.last, 7);
    }
}
