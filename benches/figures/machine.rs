//! Where the figures are from.

use std::fs;
use std::process::Command;

use crate::VGPU;
use crate::common::command::program;

/// Prints machine, kernel, runtime, vgpu and its size.
pub fn print() {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus: Vec<String> = read("/proc/cpuinfo").lines().filter_map(model).collect();
    let model = cpus.first().map_or("unknown", String::as_str);
    let size = fs::metadata(VGPU).expect("the binary").len() as f64 / f64::from(1 << 20);
    println!("Machine   {model}, {} CPUs, load {}", cpus.len(), read("/proc/loadavg").trim_end());
    println!("Kernel    {}", read("/proc/sys/kernel/osrelease").trim_end());
    println!("Runtime   {}", version("runc"));
    println!("vgpu      {}, {size:.1} MiB (aim: 5.0)", version(VGPU));
}

fn model(line: &str) -> Option<String> {
    let (key, value) = line.split_once(':')?;
    (key.trim() == "model name").then(|| value.trim().to_owned())
}

/// The first line of what `--version` says.
fn version(name: &str) -> String {
    let said = Command::new(program(name)).arg("--version").output().expect("a version");
    String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned()
}
