//! `vgpu discover`: reads what the host has, for the hooks, and prints it for people and for programs.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::cli::printed;
use crate::config::{self, PoolFile};
use crate::error::Result;
use crate::gpu::{self, DriverRoot, Found, Gpu, MigDevice, Probe};
use crate::pool::store::StateDir;
use crate::types::MigInstance;

/// Reads the host's GPUs anew and prints them. There need not be a pool file yet.
pub fn run(pool_file: &Path, json: bool) -> Result<()> {
    let pool = if pool_file.exists() { config::read(pool_file)? } else { PoolFile::default() };
    let state_dir = StateDir::create(&pool.state_dir)?;
    let driver = DriverRoot::open(&pool.driver_root)?;
    let found = gpu::refresh(state_dir.fd(), state_dir.path(), &driver, &Probe::default())?;
    let mut out = io::stdout().lock();
    printed(if json { print_json(&found, &mut out) } else { print_table(&found, &mut out) })
}

/// Prints a table and, below it, what was left out.
pub fn print_table(found: &Found, out: &mut impl Write) -> io::Result<()> {
    let rows: Vec<[String; 5]> = found.inventory.gpus.iter().flat_map(rows).collect();
    let head = ["UUID", "PCI", "MINOR", "NAME", "MEMORY"].map(str::to_owned);
    let width = |column: usize| {
        let cells = rows.iter().chain([&head]).map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths = [width(0), width(1), width(2), width(3)];
    writeln!(out, "driver {}", found.inventory.driver)?;
    for [uuid, pci, minor, name, memory] in [&head].into_iter().chain(&rows) {
        let [a, b, c, d] = widths;
        writeln!(out, "{uuid:a$}  {pci:b$}  {minor:>c$}  {name:d$}  {memory}")?;
    }
    for warning in &found.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}

/// The GPU and, below it, its MIG devices.
fn rows(gpu: &Gpu) -> Vec<[String; 5]> {
    let memory = gpu.memory.map_or("unknown".to_owned(), |memory| memory.to_string());
    let gpu_itself =
        [gpu.uuid.to_string(), gpu.pci.to_string(), gpu.minor.to_string(), gpu.name.clone(), memory];
    let mig = |device: &MigDevice| {
        let MigDevice { uuid, instance: MigInstance { gi, ci }, profile, memory } = device;
        let (place, name) = (format!("GI {gi} CI {ci}"), format!("MIG {profile}"));
        [format!("  {uuid}"), place, String::new(), name, memory.to_string()]
    };
    std::iter::once(gpu_itself).chain(gpu.mig.iter().flatten().map(mig)).collect()
}

/// The stable JSON of `--json`; `memory` is in bytes, or null when unknown.
#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    driver: &'a str,
    gpus: &'a [Gpu],
    warnings: &'a [String],
}

/// Prints one JSON document.
pub fn print_json(found: &Found, out: &mut impl Write) -> io::Result<()> {
    let Found { inventory, warnings } = found;
    let report = Report { version: 1, driver: &inventory.driver, gpus: &inventory.gpus, warnings };
    serde_json::to_writer_pretty(&mut *out, &report)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Inventory;
    use crate::types::Bytes;

    fn found() -> Found {
        let gpu = |uuid: &str, pci: &str, minor, memory| Gpu {
            uuid: uuid.parse().unwrap(),
            pci: pci.parse().unwrap(),
            minor,
            name: format!("NVIDIA A{}", "1".repeat(minor as usize)),
            memory,
            mig: None,
            drm: Vec::new(),
        };
        let mut gpus = vec![
            gpu("GPU-aaaaaaaa-0000-1111-2222-333344445555", "0000:3b:00.0", 10, Some(Bytes(40 << 30))),
            gpu("GPU-bbbbbbbb-0000-1111-2222-333344445555", "0000:af:00.0", 2, None),
        ];
        gpus[1].mig = Some(vec![MigDevice {
            uuid: "MIG-cccccccc-0000-1111-2222-333344445555".parse().unwrap(),
            instance: MigInstance { gi: 7, ci: 0 },
            profile: "1g.5gb".parse().unwrap(),
            memory: Bytes(4864 << 20),
        }]);
        let inventory = Inventory { driver: "550.54.15".into(), gpus, ..Inventory::default() };
        Found { inventory, warnings: vec!["GPU 0000:d8:00.0 is left out: x".into()] }
    }

    fn printed(print: impl FnOnce(&Found, &mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&found(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_for_people() {
        let table = [
            "driver 550.54.15",
            "UUID                                        PCI           MINOR  NAME                MEMORY",
            "GPU-aaaaaaaa-0000-1111-2222-333344445555    0000:3b:00.0     10  NVIDIA A1111111111  40GiB",
            "GPU-bbbbbbbb-0000-1111-2222-333344445555    0000:af:00.0      2  NVIDIA A11          unknown",
            "  MIG-cccccccc-0000-1111-2222-333344445555  GI 7 CI 0            MIG 1g.5gb          4864MiB",
            "warning: GPU 0000:d8:00.0 is left out: x",
        ];
        assert_eq!(printed(print_table).lines().collect::<Vec<_>>(), table);
    }

    #[test]
    fn json_for_programs() {
        let json: serde_json::Value = serde_json::from_str(&printed(print_json)).unwrap();
        assert_eq!(json["version"], 1);
        assert_eq!(json["driver"], "550.54.15");
        assert_eq!(json["gpus"][0]["memory"], 40u64 << 30);
        assert_eq!(json["gpus"][0]["pci"], "0000:3b:00.0");
        assert_eq!(json["gpus"][1]["memory"], serde_json::Value::Null);
        let mig = serde_json::json!({
            "uuid": "MIG-cccccccc-0000-1111-2222-333344445555", "gi": 7, "ci": 0, "profile": "1g.5gb",
            "memory": 4864_u64 << 20,
        });
        assert_eq!(json["gpus"][1]["mig"], serde_json::json!([mig]));
        assert_eq!(json["gpus"][0].get("mig"), None);
        assert_eq!(json["warnings"][0], "GPU 0000:d8:00.0 is left out: x");
    }
}
