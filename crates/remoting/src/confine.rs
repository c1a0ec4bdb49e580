//! What the worker leaves behind before it serves anybody: all that it has from whoever started it, but for what it was
//! told of; and what its clients, if they should come to rule it, are not to have. To be called in a process that has one
//! thread, before it opens anything.

use std::fs::{self, File};
use std::io;
use std::os::fd::RawFd;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, chdir, geteuid, getrlimit, set_dumpable_behavior,
    setrlimit, setsid, umask,
};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_name,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::{filter, sys};

/// The user and group of whoever is nobody else, by convention of the kernel's.
pub const NOBODY: u32 = 65534;

/// How many descriptors there may be: those of all clients, and of all who would be.
const DESCRIPTORS: u64 = 2048;

/// Leaves the session, the folder, the descriptors but for those to `keep` and stderr, and what is held against or for
/// whoever started it when memory is short.
///
/// # Errors
/// Of the system.
pub fn detach(keep: &[RawFd]) -> io::Result<()> {
    sys::close_all_but(keep)?;
    // It was started by a descriptor's number.
    set_name(c"vgpu-worker")?;
    match setsid() {
        // It leads a group already, as the only process of it.
        Ok(_) | Err(Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    chdir("/")?;
    umask(Mode::from_raw_mode(0o077));
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    spare_nobody();
    Ok(())
}

/// Engines spare themselves when memory is short, and all that they start. The worker has what its container has it
/// allocate: it is to be taken as any other process.
fn spare_nobody() {
    const FILE: &str = "/proc/self/oom_score_adj";
    let spared = fs::read_to_string(FILE).is_ok_and(|score| score.starts_with('-'));
    if spared {
        // Without it, all is as it was.
        let _ = fs::write(FILE, "0");
    }
}

/// The kernel counts the threads of all processes of a user together, and those of others are not to keep clients out. How
/// many this one has is bounded by it.
fn free_threads() -> io::Result<()> {
    let bound = getrlimit(Resource::Nproc);
    let unlimited = Rlimit { current: None, maximum: None };
    // Who may not raise it has all that is within it.
    let within = |_| setrlimit(Resource::Nproc, Rlimit { current: bound.maximum, ..bound });
    Ok(setrlimit(Resource::Nproc, unlimited).or_else(within)?)
}

/// Gives up what privileges there are: no program has any more than it, its memory is nobody else's to look at, and as
/// root it becomes `user`, with no groups.
///
/// # Errors
/// Of the system.
pub fn confine(user: Option<u32>) -> io::Result<()> {
    let descriptors = getrlimit(Resource::Nofile);
    let enough = descriptors.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if descriptors.current.is_some_and(|current| current < enough) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(enough), ..descriptors })?;
    }
    free_threads()?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    if let Some(user) = user.filter(|_| geteuid().is_root()) {
        let (group, user) = (Gid::from_raw(user), Uid::from_raw(user));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    filter::refuse()
}
