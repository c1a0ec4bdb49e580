//! What a container's cgroup says, read as the kernel tells it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::host::Host;
use super::view::Cgroups;
use super::wait::Process;

/// The cgroup, as seen by this process, whose devices rules hold for the process `pid`.
pub fn of(host: &Host, pid: u32) -> PathBuf {
    let lines = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a living process");
    let (controller, below) = match host.view().cgroups() {
        Cgroups::V2 => ("", "/sys/fs/cgroup"),
        Cgroups::V1 | Cgroups::Hybrid => ("devices", "/sys/fs/cgroup/devices"),
    };
    let path = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        (parts.next() == Some(controller)).then(|| parts.next().expect("a path").to_owned())
    };
    let path = lines.lines().find_map(path).unwrap_or_else(|| panic!("no {controller:?} in:\n{lines}"));
    host.view().path(format!("{below}{path}"))
}

/// What the devices cgroup of the process `pid` allows: on v1 its list, on v2 what identifies its
/// programs (the kernel's hash of their instructions). Equal rules give equal text.
pub fn device_rules(host: &Host, pid: u32) -> Vec<String> {
    let cgroup = of(host, pid);
    match host.view().cgroups() {
        Cgroups::V2 => programs(host, &cgroup),
        Cgroups::V1 | Cgroups::Hybrid => {
            let list = fs::read_to_string(cgroup.join("devices.list")).expect("devices.list");
            list.lines().map(str::to_owned).collect()
        }
    }
}

fn programs(host: &Host, cgroup: &Path) -> Vec<String> {
    let bpftool = |args: &[&str]| -> Value {
        let output = host.view().run(&[&["bpftool", "--json"], args].concat()).ok();
        // It prints nothing at all for a cgroup without programs.
        let printed = if output.stdout.trim().is_empty() { "[]" } else { &output.stdout };
        serde_json::from_str(printed).unwrap_or_else(|e| panic!("{e}: {output}"))
    };
    let attached = bpftool(&["cgroup", "show", cgroup.to_str().expect("UTF-8")]);
    let tag = |program: &Value| {
        let shown = bpftool(&["prog", "show", "id", &program["id"].to_string()]);
        format!("{} {} {}", program["attach_type"], program["attach_flags"], shown["tag"])
    };
    attached.as_array().expect("a list of programs").iter().map(tag).collect()
}

/// The processes in the cgroup.
pub fn processes(cgroup: &Path) -> Vec<u32> {
    let procs = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    procs.lines().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns once the cgroup holds no process.
pub fn empty(cgroup: &Path) {
    loop {
        let pids = processes(cgroup);
        if pids.is_empty() {
            return;
        }
        pids.into_iter().for_each(|pid| Process::of(pid).ended());
    }
}
