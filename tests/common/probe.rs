//! What a container sees, as told by `probe.sh` inside it.

use std::collections::BTreeMap;

use rustix::io::Errno;

/// How opening a device node for reading and writing ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The device cgroup allows it: ENXIO, since no driver is behind it.
    Allowed,
    /// The device cgroup forbids it: EPERM.
    Forbidden,
    /// It is not there.
    Absent,
    /// Anything else, as the shell says it.
    Other(String),
}

/// What a container sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// The device nodes of NVIDIA's below `/dev`: path, then major and minor number.
    pub nodes: BTreeMap<String, (u32, u32)>,
    /// How opening the paths that were asked for ended.
    pub opened: BTreeMap<String, Opened>,
    /// `/dev/vgpu/lease.json`
    pub lease: Option<serde_json::Value>,
}

/// The command line of the probe in a container.
pub fn argv<'a>(paths: &[&'a str]) -> Vec<&'a str> {
    [&["sh", "/bin/probe"], paths].concat()
}

/// Reads what the probe printed.
pub fn parse(output: &str) -> Probe {
    let mut probe = Probe::default();
    let mut lease = String::new();
    for line in output.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or_else(|| panic!("not of the probe: {line:?}"));
        match kind {
            "node" => probe.nodes.extend(node(rest)),
            "open" => probe.opened.extend([opened(rest)]),
            "lease" => lease += rest,
            _ => panic!("not of the probe: {line:?}"),
        }
    }
    if !lease.is_empty() {
        probe.lease =
            Some(serde_json::from_str(&lease).unwrap_or_else(|e| panic!("lease.json: {e}: {lease}")));
    }
    probe
}

/// `/dev/nvidia0 c3 0`; the nodes every container has are of no interest.
fn node(line: &str) -> Option<(String, (u32, u32))> {
    let [path, major, minor] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
    let number = |hex| u32::from_str_radix(hex, 16).expect("a hexadecimal number");
    path.starts_with("/dev/nvidia").then(|| (path.to_owned(), (number(major), number(minor))))
}

/// `/dev/nvidia0 No such device or address`
fn opened(line: &str) -> (String, Opened) {
    let (path, message) = line.split_once(' ').unwrap_or((line, ""));
    let is = |errno: Errno| message == std::io::Error::from(errno).to_string().split(" (os").next().unwrap();
    let opened = match message {
        _ if is(Errno::NXIO) => Opened::Allowed,
        _ if is(Errno::PERM) => Opened::Forbidden,
        _ if is(Errno::NOENT) => Opened::Absent,
        other => Opened::Other(other.to_owned()),
    };
    (path.to_owned(), opened)
}
