//! `vgpu release CONTAINER` and `vgpu reclaim`: freeing what was not given back.

use std::io::Write;
use std::path::Path;

use crate::cgroup;
use crate::cli::printed;
use crate::config::{self, PoolFile};
use crate::error::{Error, Exit, Result, quoted};
use crate::gpu::{self, DriverRoot, Majors, Probe};
use crate::inject;
use crate::pool::store::StateDir;
use crate::pool::{Lease, liveness};
use crate::types::DeviceNumber;

/// Frees what one container holds. One that is still there is refused, or first loses its devices.
pub fn release(pool_file: &Path, container: &str, force: bool) -> Result<()> {
    let pool = config::read(pool_file)?;
    let none = || {
        let message = format!("no container {} holds a vGPU; see `vgpu status`", quoted(container));
        Error::new(Exit::Request, message)
    };
    let state_dir = StateDir::open(&pool.state_dir)?.ok_or_else(none)?;
    let id = one_container(&state_dir.peek()?, container)?.ok_or_else(none)?;
    if force {
        // Outside the lock: it loads programs into the kernel, and who is forced out has no say meanwhile.
        let leases = state_dir.peek()?;
        let mut of_it = leases.iter().filter(|lease| lease.container.as_str() == id);
        of_it.try_for_each(|lease| close_devices(&pool, &state_dir, lease))?;
    }
    let mut locked = state_dir.lock(pool.policy.lock_timeout)?;
    let of_it = |lease: &Lease| lease.container.as_str() == id;
    if !force {
        for lease in locked.leases.iter().filter(|lease| of_it(lease)) {
            if liveness::is_alive(lease)? {
                let message = format!(
                    "container {id} is running (pid {}); stop it, or `vgpu release --force` takes its GPUs away",
                    lease.pid
                );
                return Err(Error::new(Exit::Request, message));
            }
        }
    }
    let freed: Vec<Lease> = locked.leases.extract_if(.., |lease| of_it(lease)).collect();
    locked.save()?;
    say_freed(&freed, "freed")
}

/// The whole id of the one container whose id begins so; an error where several do.
fn one_container(leases: &[Lease], begins: &str) -> Result<Option<String>> {
    let mut ids: Vec<&str> = leases.iter().map(|lease| lease.container.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    if let Some(exact) = ids.iter().find(|id| **id == begins) {
        return Ok(Some((*exact).to_owned()));
    }
    ids.retain(|id| id.starts_with(begins));
    match ids[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.to_owned())),
        _ => {
            let message = format!("{} containers begin with {}; name one whole", ids.len(), quoted(begins));
            Err(Error::new(Exit::Request, message))
        }
    }
}

/// Takes the lease's devices out of its container's cgroup, if that is still there. What the container has
/// open stays open: only ending its processes closes that.
fn close_devices(pool: &PoolFile, state_dir: &StateDir, lease: &Lease) -> Result<()> {
    let Some(cgroup) = cgroup::Dir::reopen(&lease.cgroup)? else { return Ok(()) };
    let driver = DriverRoot::open(&pool.driver_root)?;
    let inventory =
        gpu::load_or_discover(state_dir.fd(), state_dir.path(), &driver, &Probe::default())?.inventory;
    let majors = Majors::read(&driver)?;
    let held = |minor| DeviceNumber { major: majors.nvidia, minor };
    let gpus = inventory.gpus.iter().filter(|gpu| lease.vgpus.iter().any(|vgpu| vgpu.id.gpu == gpu.uuid));
    let numbers: Vec<_> = gpus.map(|gpu| held(gpu.minor)).collect();
    inject::deny_devices(&cgroup, &numbers)
}

/// Frees what containers hold that are gone.
pub fn reclaim(pool_file: &Path, dry_run: bool) -> Result<()> {
    let pool = config::read(pool_file)?;
    let Some(state_dir) = StateDir::open(&pool.state_dir)? else { return say_freed(&[], "freed") };
    let mut locked = state_dir.lock(pool.policy.lock_timeout)?;
    let dead = liveness::remove_dead(&mut locked.leases)?;
    if dry_run {
        return say_freed(&dead, "would free");
    }
    if !dead.is_empty() {
        locked.save()?;
    }
    say_freed(&dead, "freed")
}

fn say_freed(leases: &[Lease], verb: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let vgpus = leases.iter().flat_map(|lease| lease.vgpus.iter().map(move |vgpu| (vgpu, &lease.container)));
    let print = || {
        let mut none = true;
        for (vgpu, container) in vgpus {
            none = false;
            writeln!(out, "{verb} {} of {container}", vgpu.id)?;
        }
        if none { writeln!(out, "nothing to free") } else { Ok(()) }
    };
    printed(print())
}
