//! The files of a simulated driver, as Debian's packages install them below a driver's root: real shared objects
//! with SONAMEs, and programs that a container can run.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use vgpu::driver::{ITEMS, Item, Kind};

use super::host::make_dir;
use super::library::{Machine, shared_object};
use super::sonames;

/// Where its libraries are.
pub const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Where those for 32-bit programs are.
pub const LIBRARIES32: &str = "usr/lib/i386-linux-gnu";

/// Where its programs are.
pub const PROGRAMS: &str = "usr/bin";

/// The libraries that no driver is without.
pub fn install_required(root: &Path, version: &str) {
    install(root, version, |item| item.required);
}

/// A file or two of each kind that containers get: whoever counts steps does not want all.
pub fn install_some(root: &Path, version: &str) {
    let named = |name| ["nvidia-smi", "etc/OpenCL/vendors/nvidia.icd"].contains(&name);
    install(root, version, |item| item.required || item.kind == Kind::Socket || named(item.name));
}

/// All libraries, for 32 bits too, all programs and configuration; its daemons run.
pub fn install_all(root: &Path, version: &str) {
    install(root, version, |_| true);
    for item in ITEMS.iter().filter(|item| item.kind == Kind::Library) {
        library(&root.join(LIBRARIES32), item, version, Machine::I386);
    }
}

/// Removes all of them.
pub fn uninstall(root: &Path) {
    for dir in [LIBRARIES, LIBRARIES32, PROGRAMS] {
        if root.join(dir).exists() {
            fs::remove_dir_all(root.join(dir)).expect("removing");
        }
    }
}

fn install(root: &Path, version: &str, wanted: impl Fn(&Item) -> bool) {
    for item in ITEMS.iter().filter(|item| wanted(item)) {
        match item.kind {
            Kind::Library => library(&root.join(LIBRARIES), item, version, Machine::X86_64),
            Kind::Binary => program(&root.join(PROGRAMS), item, version),
            Kind::Config => config(&root.join(item.name)),
            Kind::Socket => socket(&root.join(item.name)),
            Kind::Library32 => unreachable!("no item is for 32 bits alone"),
        }
    }
}

/// Not under its SONAME, too, as ldconfig would have it: where the SONAME of libnvidia-ml is there, vgpu loads it.
fn library(dir: &Path, item: &Item, version: &str, machine: Machine) {
    make_dir(dir);
    let name = format!("lib{}.so.{}", item.name, item.version.unwrap_or(version));
    let file = dir.join(&name);
    let (_, soname) =
        sonames::LIBRARIES.iter().find(|(library, _)| *library == item.name).expect("in the table");
    fs::write(&file, shared_object(machine, soname.unwrap_or(&name).as_bytes())).expect("a library");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("chmod");
}

/// Says its name and version.
fn program(dir: &Path, item: &Item, version: &str) {
    make_dir(dir);
    let file = dir.join(item.name);
    fs::write(&file, format!("#!/bin/sh\necho {} {version}\n", item.name)).expect("a program");
    fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("chmod");
}

/// Names a library, as every loader's does.
fn config(file: &Path) {
    make_dir(file.parent().expect("a directory"));
    fs::write(file, "libnvidia-opencl.so.1\n").expect("configuration");
    fs::set_permissions(file, Permissions::from_mode(0o644)).expect("chmod");
}

/// Nobody listens there.
fn socket(path: &Path) {
    make_dir(path.parent().expect("a directory"));
    let _ = fs::remove_file(path);
    UnixListener::bind(path).expect("a socket");
}

/// What an image must have where nothing can be made in it: a place for each socket, and a link to each program and
/// each file of configuration.
pub fn make_places(image: &Path) {
    for item in ITEMS {
        let path = image.join(if item.kind == Kind::Binary { "usr/bin" } else { "" }).join(item.name);
        match item.kind {
            Kind::Socket => {
                make_dir(path.parent().expect("a directory"));
                fs::write(path, "").expect("a place");
            }
            Kind::Config | Kind::Binary => {
                make_dir(path.parent().expect("a directory"));
                let dir = if item.kind == Kind::Binary { "bin" } else { "share" };
                let file = path.file_name().expect("a name");
                symlink(Path::new("/usr/local/nvidia").join(dir).join(file), &path).expect("a link");
            }
            _ => {}
        }
    }
}
