//! `vgpu discover`: what the host has, for people and for programs. Pure: prints what it is given.

use std::io::{self, Write};

use serde::Serialize;

use crate::gpu::{Found, Gpu};

/// Prints a table and, below it, what was left out.
pub fn print_table(found: &Found, out: &mut impl Write) -> io::Result<()> {
    let rows: Vec<[String; 5]> = found.inventory.gpus.iter().map(row).collect();
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

fn row(gpu: &Gpu) -> [String; 5] {
    let memory = gpu.memory.map_or("unknown".to_owned(), |memory| memory.to_string());
    [gpu.uuid.to_string(), gpu.pci.to_string(), gpu.minor.to_string(), gpu.name.clone(), memory]
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
