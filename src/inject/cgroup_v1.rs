//! Device access on cgroup v1: rules written to `devices.allow` and `devices.deny` of the container's cgroup,
//! and read back from `devices.list`. Changes the rules of the one cgroup it is given.
//!
//! The kernel (cgroup-v1/devices.rst): a cgroup either denies all but its list, or allows all but a list
//! that it does not show; then `devices.list` is the one line `a *:* rwm`. An entry is added only where the
//! parent has it too, is taken away only by its very own numbers, and what is taken away is taken from all
//! cgroups beneath.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::fs::OFlags;

use crate::cgroup::{self, CgroupPath, Dir, Hierarchy};
use crate::device_rule::{Access, DeviceRule, Kind};
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::types::DeviceNumber;

/// Takes back what [`allow`] did.
#[derive(Debug)]
#[must_use = "dropping it leaves the devices allowed"]
pub struct Undo<'d> {
    dir: &'d Dir,
    added: Vec<DeviceRule>,
    /// Does the cgroup deny what its list does not have? Where not, it may open nearly everything.
    pub ruled: bool,
}

/// Lets the cgroup open `devices` for reading and writing, and has read back that it may. What it may
/// already is left alone.
///
/// # Errors
/// [`Exit::Io`]; then whatever was added is taken back. It names the ancestor that does not have the device.
pub fn allow<'d>(dir: &'d Dir, devices: &[DeviceNumber]) -> Result<Undo<'d>> {
    let mut undo = Undo { dir, added: vec![], ruled: false };
    let Err(e) = add(&mut undo, devices) else { return Ok(undo) };
    Err(e.also(undo.undo()))
}

fn add(undo: &mut Undo<'_>, devices: &[DeviceNumber]) -> Result<()> {
    let dir = undo.dir;
    let before = list(dir)?;
    undo.ruled = before.iter().all(|rule| rule.kind != Kind::All);
    for device in missing(&before, devices) {
        let rule = DeviceRule::allow_char(device, Access::READ_WRITE);
        write(dir, "devices.allow", &rule).map_err(|e| explain(dir, &rule, &e))?;
        // An entry of the same numbers grows: what it had before stays.
        let had = before.iter().filter(|had| had.major == rule.major && had.minor == rule.minor);
        let had = had.filter(|had| had.kind == Kind::Char).fold(Access::NONE, |had, rule| had | rule.access);
        undo.added.push(DeviceRule { access: rule.access.without(had), ..rule });
    }
    if undo.added.is_empty() {
        return Ok(());
    }
    let after = list(dir)?;
    match missing(&after, devices).next() {
        None => Ok(()),
        Some(device) => {
            let path = dir.path();
            let message = format!(
                "device {device} was allowed to cgroup {path}, but its devices.list does not have it: \
                 something else changes its rules"
            );
            Err(Error::new(Exit::Io, message))
        }
    }
}

/// The devices that no entry lets a process open for reading and writing.
fn missing(list: &[DeviceRule], devices: &[DeviceNumber]) -> impl Iterator<Item = DeviceNumber> {
    devices.iter().copied().filter(|device| !list.iter().any(|rule| rule.covers(*device, Access::READ_WRITE)))
}

/// EPERM: an ancestor does not have the device. The one nearest to the root must be given it first; an
/// ancestor that allows all but a list does not show that it is the one.
fn explain(dir: &Dir, rule: &DeviceRule, e: &io::Error) -> Error {
    let path = dir.path();
    let failed = format!("cannot allow device \"{rule}\" to cgroup {path}: {e}");
    if e.kind() != io::ErrorKind::PermissionDenied {
        return Error::new(Exit::Io, failed);
    }
    let lacks = |path: &CgroupPath| {
        let list = Dir::open(Hierarchy::V1Devices, path).and_then(|dir| list(&dir));
        list.is_ok_and(|list| !list.iter().any(|had| had.covers(number(rule), rule.access)))
    };
    let which = match path.ancestors().rev().find(lacks) {
        Some(ancestor) => format!("its ancestor {ancestor} denies it"),
        None => String::from("one of its ancestors denies it"),
    };
    let message = format!(
        "{failed}; {which}: write \"{rule}\" to that cgroup's devices.allow, or start the container beneath \
         another cgroup"
    );
    Error::new(Exit::Io, message)
}

fn number(rule: &DeviceRule) -> DeviceNumber {
    DeviceNumber { major: rule.major.unwrap_or(0), minor: rule.minor.unwrap_or(0) }
}

impl Undo<'_> {
    /// Denies what was added. Goes on after an error.
    ///
    /// # Errors
    /// [`Exit::Io`]: all of them in one line.
    pub fn undo(self) -> Result<()> {
        let failed: Vec<_> =
            self.added.iter().filter_map(|rule| write(self.dir, "devices.deny", rule).err()).collect();
        let Some(first) = failed.first() else { return Ok(()) };
        let (count, path) = (failed.len(), self.dir.path());
        Err(Error::new(Exit::Io, format!("cannot take back {count} device rules of cgroup {path}: {first}")))
    }
}

/// One of `devices` that the cgroup may open for reading or writing, if its list says so of any.
///
/// # Errors
/// [`Exit::Io`]
pub fn open_one(dir: &Dir, devices: &[DeviceNumber]) -> Result<Option<DeviceNumber>> {
    let list = list(dir)?;
    Ok(devices.iter().copied().find(|device| list.iter().any(|rule| opens(rule, *device))))
}

/// Closes `devices` to the cgroup and all beneath it. An entry for all devices of a driver is closed with
/// them. What is open already stays open.
///
/// # Errors
/// [`Exit::Io`], also where an entry for the devices of every driver keeps one open.
pub fn deny(dir: &Dir, devices: &[DeviceNumber]) -> Result<()> {
    let what = |rule: &DeviceRule| format!("cannot deny device \"{rule}\" to cgroup {}", dir.path());
    let mut file = cgroup::open(dir.as_fd(), "devices.deny", OFlags::WRONLY)
        .or_exit(Exit::Io, || format!("cannot open devices.deny of cgroup {}", dir.path()))?;
    // The kernel takes one rule a write.
    let mut deny =
        |rule: &DeviceRule| file.write_all(rule.to_string().as_bytes()).or_exit(Exit::Io, || what(rule));
    for device in devices {
        deny(&DeviceRule::allow_char(*device, Access::ALL))?;
    }
    // In a list of what is denied these rules are in force now, though they are not shown.
    let open = |rule: &DeviceRule| devices.iter().copied().find(|device| opens(rule, *device));
    for rule in list(dir)?.into_iter().filter(|rule| rule.kind != Kind::All) {
        let Some(device) = open(&rule) else { continue };
        if rule.major.is_none() {
            let path = dir.path();
            let message = format!(
                "cgroup {path} may open device {device} by the rule \"{rule}\", which cannot be closed \
                 for it alone; stop the container instead"
            );
            return Err(Error::new(Exit::Io, message));
        }
        deny(&rule)?;
    }
    Ok(())
}

fn opens(rule: &DeviceRule, device: DeviceNumber) -> bool {
    rule.covers(device, Access::READ) || rule.covers(device, Access::WRITE)
}

fn list(dir: &Dir) -> Result<Vec<DeviceRule>> {
    let path = dir.path();
    let text = cgroup::read(dir.as_fd(), "devices.list");
    let text = text.or_exit(Exit::Io, || format!("cannot read devices.list of cgroup {path}"))?;
    let what = |line| format!("devices.list of cgroup {path}, {}", quoted(line));
    text.lines().map(|line| line.parse().or_exit(Exit::Io, || what(line))).collect()
}

/// The kernel takes one rule a write.
fn write(dir: &Dir, file: &str, rule: &DeviceRule) -> io::Result<()> {
    cgroup::open(dir.as_fd(), file, OFlags::WRONLY)?.write_all(rule.to_string().as_bytes())
}
