//! `vgpu release CONTAINER` and `vgpu reclaim`: freeing what was not given back.

use std::io::Write;
use std::path::Path;

use crate::cgroup;
use crate::cli::printed;
use crate::config::{self, PoolFile};
use crate::error::{Error, Exit, Result, quoted};
use crate::gpu::{DriverRoot, Majors};
use crate::inject;
use crate::pool::store::StateDir;
use crate::pool::{Lease, liveness};
use crate::types::DeviceNumber;

/// Frees what one container holds. One that is still there is refused, or first loses its devices.
pub fn release(pool_file: &Path, container: &str, force: bool) -> Result<()> {
    let pool = config::read(pool_file)?;
    let none = || {
        let message = format!(
            "no container {} holds a vGPU; podman's names are not known here, only ids: `vgpu status` shows them",
            quoted(container)
        );
        Error::new(Exit::Request, message)
    };
    let state_dir = StateDir::open(&pool.state_dir)?.ok_or_else(none)?;
    let leases = state_dir.peek()?;
    let id = one_container(&leases, container)?.ok_or_else(none)?;
    let of_it = |lease: &Lease| lease.container.as_str() == id;
    // Outside the lock: it loads programs into the kernel. What is given to a new run of the container meanwhile
    // is neither closed nor freed.
    let closed: Vec<Lease> = leases.into_iter().filter(|lease| force && of_it(lease)).collect();
    closed.iter().try_for_each(|lease| close_devices(&pool, lease))?;

    let mut locked = state_dir.lock(pool.policy.lock_timeout)?;
    let mut freed = Vec::new();
    for lease in std::mem::take(&mut locked.leases) {
        let alive = of_it(&lease) && !closed.contains(&lease) && liveness::is_alive(&lease)?;
        if alive && !force {
            let message = format!(
                "container {id} is running (pid {}); stop it, or `vgpu release --force {id}` takes its GPUs away",
                lease.pid
            );
            return Err(Error::new(Exit::Request, message));
        }
        if of_it(&lease) && !alive { freed.push(lease) } else { locked.leases.push(lease) }
    }
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

/// Closes every GPU to the lease's container, if its cgroup is still there: also one that the inventory no longer
/// has. What the container has open stays open: only ending its processes closes that.
fn close_devices(pool: &PoolFile, lease: &Lease) -> Result<()> {
    let Some(cgroup) = cgroup::Dir::reopen(&lease.cgroup)? else { return Ok(()) };
    let major = Majors::read(&DriverRoot::open(&pool.driver_root)?)?.nvidia;
    let gpus: Vec<_> = (0..=254).map(|minor| DeviceNumber { major, minor }).collect();
    inject::deny_devices(&cgroup, &gpus)
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
