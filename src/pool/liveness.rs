//! Is a lease's holder still there? Reads the cgroup file system, changes nothing.
//!
//! A container lives as long as a process is in its cgroup. Its init's pid does not tell: without a pid
//! namespace of its own a container outlives its init, a zombie keeps pid and start time, and a thread can
//! outlive its leader.

use crate::cgroup::Dir;
use crate::error::Result;
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
    let alive = leases.iter().map(is_alive).collect::<Result<Vec<bool>>>()?;
    let mut alive = alive.into_iter();
    Ok(leases.extract_if(.., |_| !alive.next().unwrap_or(true)).collect())
}
