//! Is a lease's holder still there? Reads the cgroup file system, changes nothing.
//!
//! A container lives as long as a process is in its cgroup. Its init's pid does not tell: without a pid
//! namespace of its own a container outlives its init, a zombie keeps pid and start time, and a thread can
//! outlive its leader.

use crate::cgroup::Dir;
use crate::error::{Error, Exit, Result};
use crate::pool::Lease;

/// Does a process remain in the cgroup that the lease was given to? A cgroup of the same name that was
/// made anew has another inode. An error where it cannot be judged: never "no" for lack of sight.
pub fn is_alive(lease: &Lease) -> Result<bool> {
    match Dir::reopen(&lease.cgroup)? {
        Some(cgroup) => cgroup.populated(),
        None => Ok(false),
    }
}

/// Takes the leases out whose holders are gone.
pub fn remove_dead(leases: &mut Vec<Lease>) -> Result<Vec<Lease>> {
    let mut dead = Vec::new();
    for lease in std::mem::take(leases) {
        if is_alive(&lease)? { leases.push(lease) } else { dead.push(lease) }
    }
    Ok(dead)
}

/// Takes the leases out that earlier runs had in the very cgroup of the one that asks: a runtime may leave the
/// cgroup of a failed start behind and use it again, and then it is not empty for the earlier run's sake.
///
/// # Errors
/// [`Exit::Request`] where any other process is in it than the container's init, which is alone there until its
/// program starts: whoever shares a cgroup shares its devices.
pub fn remove_earlier_runs(leases: &mut Vec<Lease>, asking: &Lease, cgroup: &Dir) -> Result<()> {
    let earlier = |lease: &Lease| lease.cgroup == asking.cgroup && !lease.is_same_run(asking);
    if cgroup.holds_other_than(asking.pid)? {
        let other = leases.iter().find(|lease| earlier(lease));
        let whom =
            other.map_or(String::from("other processes"), |lease| format!("container {}", lease.container));
        let message = format!(
            "the container shares cgroup {} with {whom}, which would have its GPUs too; give it one of its own \
             (linux.cgroupsPath)",
            cgroup.path()
        );
        return Err(Error::new(Exit::Request, message));
    }
    leases.retain(|lease| !earlier(lease));
    Ok(())
}
