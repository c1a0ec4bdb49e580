//! Device access on cgroup v2: every device program attached to the container's cgroup is swapped for one
//! that decides on our devices first and then does what it did before. Programs are ANDed, so adding one
//! can only take away. Changes the programs of the one cgroup it is given.

mod program;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::cgroup::{CgroupPath, Dir, Hierarchy};
use crate::device_rule::DeviceRule;
use crate::error::{Error, Exit, OrExit, Result};
use crate::sys::bpf;
use crate::types::DeviceNumber;
use program::Prefix;

/// How often the attached programs are gone through before somebody else must be changing them, too.
/// The last round only reads back.
const ROUNDS: usize = 4;

/// Takes back what [`allow`] did.
#[derive(Debug)]
#[must_use = "dropping it leaves the devices allowed"]
pub struct Undo<'d> {
    dir: &'d Dir,
    attach_flags: u32,
    swaps: Vec<Swap>,
    /// Did the cgroup have a device program of its own at all? Where not, nothing was changed: it may open
    /// what its ancestors let it open, as a privileged container's may.
    pub ruled: bool,
}

#[derive(Debug)]
struct Swap {
    original: OwnedFd,
    ours: OwnedFd,
}

/// Lets the cgroup open `devices` for reading and writing, and has read back that each program attached to
/// it says so. Programs that do already are left alone.
///
/// `spec` is the container's own device list in its order. A program that the kernel shows nothing of
/// (`net.core.bpf_jit_harden=2` and `kernel.kptr_restrict=2`) is built anew from it and from what runtimes
/// allow every container.
///
/// Programs of ancestors are not touched: see [`ancestors_with_programs`].
///
/// # Errors
/// [`Exit::Io`]; then whatever was swapped is swapped back.
pub fn allow<'d>(dir: &'d Dir, devices: &[DeviceNumber], spec: &[DeviceRule]) -> Result<Undo<'d>> {
    let mut undo = Undo { dir, attach_flags: 0, swaps: vec![], ruled: false };
    let Err(e) = widen(&mut undo, &Prefix::allow(devices), spec) else { return Ok(undo) };
    Err(e.also(undo.undo()))
}

fn widen(undo: &mut Undo<'_>, prefix: &Prefix, spec: &[DeviceRule]) -> Result<()> {
    for _ in 0..ROUNDS {
        let attached = attached(undo.dir)?;
        undo.ruled = !attached.ids.is_empty();
        undo.attach_flags = attached.flags;
        let mut settled = true;
        for id in attached.ids {
            settled &= widen_one(undo, id, prefix, spec)?;
        }
        if settled {
            return Ok(());
        }
    }
    let path = undo.dir.path();
    let message = format!(
        "the device programs of cgroup {path} cannot be swapped: something else keeps changing them or holds \
         them by a bpf link (see `bpftool cgroup show` and `bpftool link`)"
    );
    Err(Error::new(Exit::Io, message))
}

/// `true`: the program has the prefix already.
fn widen_one(undo: &mut Undo<'_>, id: u32, prefix: &Prefix, spec: &[DeviceRule]) -> Result<bool> {
    let path = undo.dir.path();
    let Some(original) = unless_gone(bpf::open(id)).or_exit(Exit::Io, || cannot("open", id, path))? else {
        return Ok(false);
    };
    let shown = bpf::read(original.as_fd()).or_exit(Exit::Io, || cannot("read", id, path))?;
    if shown.name == prefix.name {
        return Ok(true);
    }
    let body = match readable(&shown, path)? {
        Some(insns) => insns,
        None => program::of_rules(spec),
    };
    let ours = load(prefix, &body, path)?;
    let swapped = swap(undo.dir, undo.attach_flags, &ours, &original);
    if unless_gone(swapped).or_exit(Exit::Io, || cannot("swap", id, path))?.is_some() {
        undo.swaps.push(Swap { original, ours });
    }
    Ok(false)
}

/// The instructions of a program, ready to be loaded again. `None`: the kernel does not show them.
fn readable(shown: &bpf::Program, path: &CgroupPath) -> Result<Option<Vec<bpf::Insn>>> {
    let insns = shown.insns.as_deref();
    // Not a runtime's and not systemd's: whatever it is for, it must not be replaced by a guess.
    if shown.maps > 0 || insns.is_some_and(program::refers_elsewhere) {
        let message = format!(
            "device program {} of cgroup {path} uses maps or helpers, so it cannot be widened; \
             let it be attached to an ancestor instead, or detach it (`bpftool cgroup detach`)",
            shown.id
        );
        return Err(Error::new(Exit::Io, message));
    }
    Ok(insns.and_then(program::reloadable))
}

fn load(prefix: &Prefix, body: &[bpf::Insn], path: &CgroupPath) -> Result<OwnedFd> {
    let what = || format!("the kernel does not take a device program for cgroup {path}");
    bpf::load(&prefix.name, &prefix.before(body)).or_exit(Exit::Io, what)
}

fn swap(dir: &Dir, attach_flags: u32, new: &OwnedFd, old: &OwnedFd) -> io::Result<()> {
    match attach_flags & bpf::ALLOW_MULTI {
        0 => bpf::attach(dir.as_fd(), new.as_fd(), attach_flags),
        _ => bpf::replace(dir.as_fd(), new.as_fd(), old.as_fd()),
    }
}

impl Undo<'_> {
    /// Swaps the original programs back. Goes on after an error; a program that somebody else has replaced
    /// meanwhile is left to them.
    ///
    /// # Errors
    /// [`Exit::Io`]: all of them in one line.
    pub fn undo(self) -> Result<()> {
        let back =
            |swap: &Swap| unless_gone(self::swap(self.dir, self.attach_flags, &swap.original, &swap.ours));
        let failed: Vec<_> = self.swaps.iter().filter_map(|swap| back(swap).err()).collect();
        let Some(first) = failed.first() else { return Ok(()) };
        let (count, path) = (failed.len(), self.dir.path());
        let message = format!("cannot take back {count} device programs of cgroup {path}: {first}");
        Err(Error::new(Exit::Io, message))
    }
}

/// Closes `devices` to the cgroup and all beneath it, for whatever may open them now or is allowed them
/// later. What is open already stays open.
///
/// # Errors
/// [`Exit::Io`]
pub fn deny(dir: &Dir, devices: &[DeviceNumber]) -> Result<()> {
    let prefix = Prefix::deny(devices);
    let attached = attached(dir)?;
    if !attached.ids.is_empty() && attached.flags & bpf::ALLOW_MULTI == 0 {
        return deny_in_place(dir, &prefix, &attached);
    }
    // A program of its own: programs are ANDed, and nobody else replaces it.
    let ours = load(&prefix, &program::allow_all(), dir.path())?;
    let what = || format!("cannot attach a device program to cgroup {}", dir.path());
    bpf::attach(dir.as_fd(), ours.as_fd(), bpf::ALLOW_MULTI).or_exit(Exit::Io, what)
}

/// Where only one program may be attached, it is swapped.
fn deny_in_place(dir: &Dir, prefix: &Prefix, attached: &bpf::Attached) -> Result<()> {
    for id in &attached.ids {
        let path = dir.path();
        let original = bpf::open(*id).or_exit(Exit::Io, || cannot("open", *id, path))?;
        let shown = bpf::read(original.as_fd()).or_exit(Exit::Io, || cannot("read", *id, path))?;
        let body = readable(&shown, path)?;
        let hidden = || format!("{}: the kernel does not show its instructions", cannot("read", *id, path));
        let body = body.ok_or_else(|| Error::new(Exit::Io, hidden()))?;
        let ours = load(prefix, &body, path)?;
        swap(dir, attached.flags, &ours, &original).or_exit(Exit::Io, || cannot("swap", *id, path))?;
    }
    Ok(())
}

/// The cgroups above `path` that have device programs, the nearest first: where a device stays closed after
/// [`allow`], one of these closes it.
///
/// # Errors
/// [`Exit::Io`]
pub fn ancestors_with_programs(path: &CgroupPath) -> Result<Vec<CgroupPath>> {
    let mut ruled = vec![];
    for path in path.ancestors() {
        if !attached(&Dir::open(Hierarchy::V2, &path)?)?.ids.is_empty() {
            ruled.push(path);
        }
    }
    Ok(ruled)
}

fn attached(dir: &Dir) -> Result<bpf::Attached> {
    let path = dir.path();
    let what =
        || format!("cannot ask for the device programs of cgroup {path} (vgpu must run as the host's root)");
    bpf::attached(dir.as_fd()).or_exit(Exit::Io, what)
}

fn cannot(what: &str, id: u32, path: &CgroupPath) -> String {
    format!("cannot {what} device program {id} of cgroup {path}")
}

/// ENOENT: the program was detached, or replaced, after the cgroup was asked for its programs.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
