//! Types with `isolation = "remote"`: what a container has in place of a GPU (row A8). A worker process on the host
//! computes for it alone; in the container are the worker's socket and a client that answers under the names of
//! NVIDIA's libraries (docs/reuse.md). Both are installed with this program, in `lib/vgpu` beside its own directory.
//! Finds them here, and opens them; [`worker`] starts one.

mod cgroups;
pub mod status;
pub mod worker;

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::fstat;

use crate::driver::{DriverFile, Found, Kind};
use crate::error::{Error, Exit, OrExit, Result};
use crate::trust::open_trusted;

/// The client, which all the others jump into.
pub const CLIENT: &str = "libvgpu_client.so";

/// The libraries, by SONAME, and under which other name programs load them. The first of two that have a function is
/// the one that is found: version 9 of cuDNN.
const LIBRARIES: [(&str, Option<&str>); 6] = [
    (CLIENT, None),
    ("libcuda.so.1", Some("libcuda.so")),
    ("libcudart.so.12", Some("libcudart.so")),
    ("libcublas.so.12", Some("libcublas.so")),
    ("libcudnn.so.9", Some("libcudnn.so")),
    ("libcudnn.so.8", None),
];

/// The program that computes for a container.
const WORKER: &str = "vgpu-worker";

/// What is installed for containers of such types.
#[derive(Debug)]
pub struct Installed {
    /// The libraries; each is as one of the driver's.
    pub libraries: Found,
    /// The worker.
    pub worker: OwnedFd,
}

/// Opens what is installed beside this program.
///
/// # Errors
/// [`Exit::Gpu`] where something is missing; [`Exit::Untrusted`] where others than root could have written it.
pub fn find() -> Result<Installed> {
    let program = std::env::current_exe().or_exit(Exit::Io, || "cannot tell where vgpu is installed")?;
    let above = program.ancestors().nth(2).unwrap_or(Path::new("/"));
    let directory = above.join("lib/vgpu");
    let mut libraries = Found::default();
    for (name, link) in LIBRARIES {
        let path = directory.join(name);
        let names = [Some(name), link].into_iter().flatten().map(str::to_owned).collect();
        let (fd, path) = (open(&path)?, path.to_string_lossy().into_owned());
        libraries.files.push(DriverFile { fd, kind: Kind::Library, names, path, link_at: None });
    }
    let path = directory.join(WORKER);
    let worker = open(&path)?;
    let mode = fstat(&worker).or_exit(Exit::Io, || format!("cannot examine {}", path.display()))?.st_mode;
    if mode & 0o100 == 0 {
        let message = format!("{} cannot be executed", path.display());
        return Err(Error::new(Exit::Gpu, message).remedy(&format!("`chmod 755 {}`", path.display())));
    }
    Ok(Installed { libraries, worker })
}

fn open(path: &Path) -> Result<OwnedFd> {
    let missing = || {
        let message = format!("there is no {}, which isolation = \"remote\" needs", path.display());
        Error::new(Exit::Gpu, message).remedy("install all of vgpu: `make install`")
    };
    Ok(open_trusted(path)?.ok_or_else(missing)?.into())
}
