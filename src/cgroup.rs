//! A container's cgroup: finding it, holding on to it, and whether a process is left in it.
//! Reads `/proc/<pid>/cgroup` and the hierarchy that rules devices; writes nothing.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::files;
use crate::types::Invalid;

/// Which kind of cgroup rules devices on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hierarchy {
    /// The v1 controller `devices`; also on hybrid hosts.
    V1Devices,
    /// cgroup v2: BPF programs of type `cgroup_device`.
    V2,
}

impl Hierarchy {
    /// What is mounted decides. `/proc/<pid>/cgroup` does not: it lists hierarchies that are mounted nowhere.
    ///
    /// # Errors
    /// [`Exit::Io`] where neither is mounted in the usual place.
    pub fn of_host() -> Result<Self> {
        let mounted = |root| rustix::fs::statfs(root).ok().map(|fs| fs.f_type);
        if mounted(Self::V2.root()) == Some(libc::CGROUP2_SUPER_MAGIC) {
            return Ok(Self::V2);
        }
        // Follows systemd's link to a directory that several controllers share.
        if mounted(Self::V1Devices.root()) == Some(libc::CGROUP_SUPER_MAGIC) {
            return Ok(Self::V1Devices);
        }
        let message = "neither cgroup v2 at /sys/fs/cgroup nor the v1 controller devices at \
             /sys/fs/cgroup/devices is mounted; mount one of them there";
        Err(Error::new(Exit::Io, message))
    }

    /// Where it is mounted.
    pub const fn root(self) -> &'static str {
        match self {
            Self::V1Devices => "/sys/fs/cgroup/devices",
            Self::V2 => "/sys/fs/cgroup",
        }
    }
}

/// A cgroup's path below the root of its hierarchy, as `/proc/<pid>/cgroup` writes it: `/machine/abc`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CgroupPath(String);

impl CgroupPath {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The cgroups above it, the nearest first, the root last.
    pub fn ancestors(&self) -> impl DoubleEndedIterator<Item = Self> {
        let cuts: Vec<usize> = self.0.match_indices('/').map(|(at, _)| at).collect();
        cuts.into_iter().rev().filter(|_| self.0 != "/").map(|at| Self(self.0[..at.max(1)].to_owned()))
    }

    /// Is `other` this cgroup or beneath it?
    fn holds(&self, other: &Self) -> bool {
        let beneath = other.0.strip_prefix(&self.0).is_some_and(|rest| rest.starts_with('/'));
        self.0 == "/" || self == other || beneath
    }

    /// As openat2(2) wants it: relative to the root of the hierarchy.
    fn relative(&self) -> &str {
        Some(&self.0[1..]).filter(|path| !path.is_empty()).unwrap_or(".")
    }
}

impl FromStr for CgroupPath {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for CgroupPath {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        let plain = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains('\0');
        let whole = text == "/" || text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(plain));
        if whole { Ok(Self(text)) } else { Err(Invalid("a cgroup path begins with '/' and has no '..'")) }
    }
}

impl From<CgroupPath> for String {
    fn from(path: CgroupPath) -> Self {
        path.0
    }
}

/// Quoted and cut, for messages.
impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.0))
    }
}

/// One cgroup, for later: a cgroup of the same name that is made anew has another inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupId {
    /// Which kind of hierarchy it is in.
    pub hierarchy: Hierarchy,
    /// Its path there.
    pub path: CgroupPath,
    /// Its inode.
    pub inode: u64,
}

/// The cgroups that are a container's own, opened, the outermost first. Mostly it is one; under systemd
/// crun puts the container into a cgroup beneath the scope that systemd made for it, and either may have
/// device programs.
#[derive(Debug)]
pub struct OwnCgroups {
    outer: Vec<Dir>,
    innermost: Dir,
}

impl OwnCgroups {
    /// Those of the container whose init's `/proc/<pid>` is `proc_dir`. `cgroups_path` is its
    /// configuration's `linux.cgroupsPath`, which names the scope.
    ///
    /// # Errors
    /// As [`of_process`].
    pub fn open(proc_dir: BorrowedFd<'_>, cgroups_path: Option<&str>) -> Result<Self> {
        let hierarchy = Hierarchy::of_host()?;
        let innermost = of_process(proc_dir, hierarchy)?;
        let scope = cgroups_path.and_then(scope_name);
        let outer = scope.map(|scope| within(&innermost, &scope)).unwrap_or_default();
        let outer = outer.iter().map(|path| Dir::open(hierarchy, path)).collect::<Result<_>>()?;
        Ok(Self { outer, innermost: Dir::open(hierarchy, &innermost)? })
    }

    /// All of them, the outermost first.
    pub fn all(&self) -> impl Iterator<Item = &Dir> {
        self.outer.iter().chain([&self.innermost])
    }

    /// The one that holds the whole container: as long as a process is in it or beneath, it lives.
    pub fn outermost(&self) -> &Dir {
        self.outer.first().unwrap_or(&self.innermost)
    }

    /// The one that the container's init is in.
    pub fn innermost(&self) -> &Dir {
        &self.innermost
    }
}

/// `slice:prefix:name` asks for systemd's scope `prefix-name.scope` (runc's and crun's `--systemd-cgroup`).
fn scope_name(cgroups_path: &str) -> Option<String> {
    let mut parts = cgroups_path.split(':');
    let (_slice, prefix, name) = (parts.next()?, parts.next()?, parts.next()?);
    let scope = if prefix.is_empty() { format!("{name}.scope") } else { format!("{prefix}-{name}.scope") };
    parts.next().is_none().then_some(scope)
}

/// The ancestors of `path` from the scope downwards; none if the scope is not among them.
fn within(path: &CgroupPath, scope: &str) -> Vec<CgroupPath> {
    let ancestors: Vec<CgroupPath> = path.ancestors().collect();
    let top = ancestors.iter().position(|path| path.0.rsplit('/').next() == Some(scope));
    top.map(|top| ancestors.into_iter().take(top + 1).rev().collect()).unwrap_or_default()
}

/// The cgroup of the container whose init's `/proc/<pid>` is `proc_dir`.
///
/// # Errors
/// [`Exit::Request`] where that cgroup is not the container's own (the root, or one that holds this
/// process too): a rule there would be everybody's. [`Exit::Io`] where it cannot be told.
pub fn of_process(proc_dir: BorrowedFd<'_>, hierarchy: Hierarchy) -> Result<CgroupPath> {
    let text =
        read(proc_dir, "cgroup").or_exit(Exit::Io, || "cannot read the container's /proc/<pid>/cgroup")?;
    let path = parse(&text, hierarchy).map_err(|e| e.context("the container's /proc/<pid>/cgroup"))?;
    let own = files::of_proc("/proc/self/cgroup")?;
    let own = parse(&own, hierarchy).map_err(|e| e.context("/proc/self/cgroup"))?;
    if path.holds(&own) {
        let message = format!(
            "the container has no cgroup of its own (it is in {path}, and so is vgpu); \
             let the engine make one (podman: not --cgroups=disabled; runc and crun: linux.cgroupsPath)"
        );
        return Err(Error::new(Exit::Request, message));
    }
    Ok(path)
}

/// Finds a hierarchy's line in the text of `/proc/<pid>/cgroup`: `5:cpu,devices:/path`, for v2 `0::/path`.
/// Only the first two colons separate: a path may hold more, and spaces.
fn parse(text: &str, hierarchy: Hierarchy) -> Result<CgroupPath> {
    let path = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, mut controllers, path) = (fields.next()?, fields.next()?.split(','), fields.next()?);
        let ours = match hierarchy {
            Hierarchy::V1Devices => controllers.any(|name| name == "devices"),
            Hierarchy::V2 => id == "0" && controllers.all(str::is_empty),
        };
        ours.then_some(path)
    });
    let Some(path) = path else {
        let missing = match hierarchy {
            Hierarchy::V1Devices => "has no line for the controller devices",
            Hierarchy::V2 => "has no line for cgroup v2",
        };
        return Err(Error::new(Exit::Io, missing));
    };
    if path.split('/').any(|name| name == "..") {
        let message = format!(
            "{} is outside of this cgroup namespace; run vgpu in the host's cgroup namespace",
            quoted(path)
        );
        return Err(Error::new(Exit::Io, message));
    }
    // The kernel says so of v2 alone.
    if hierarchy == Hierarchy::V2 && path.ends_with(" (deleted)") {
        return Err(Error::new(Exit::Io, format!("{} is gone already", quoted(path))));
    }
    path.parse().or_exit(Exit::Io, || quoted(path))
}

/// An opened cgroup. Everything is done through the descriptor, so that another cgroup that takes the
/// name later is never met.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    hierarchy: Hierarchy,
    path: CgroupPath,
    inode: u64,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    /// Opens the cgroup at `path`.
    ///
    /// # Errors
    /// [`Exit::Io`], also where there is none.
    pub fn open(hierarchy: Hierarchy, path: &CgroupPath) -> Result<Self> {
        let what = || {
            let root = hierarchy.root();
            format!(
                "cannot open cgroup {path} beneath {root} (run vgpu where the host's cgroups are mounted)"
            )
        };
        Self::try_open(hierarchy, path).or_exit(Exit::Io, what)
    }

    /// Opens the cgroup that had this `path` and `inode` once. `None`: it is gone; what has its name now is
    /// another one. On 64-bit hosts the kernel gives no inode number of a cgroup out twice.
    ///
    /// # Errors
    /// [`Exit::Io`] where it cannot be told.
    pub fn reopen(id: &CgroupId) -> Result<Option<Self>> {
        let CgroupId { hierarchy, path, inode } = id;
        if *hierarchy != Hierarchy::of_host()? {
            let message =
                format!("cgroup {path} is in a hierarchy that is not mounted here; run vgpu on the host");
            return Err(Error::new(Exit::Io, message));
        }
        match Self::try_open(*hierarchy, path) {
            Ok(dir) => Ok((dir.inode == *inode).then_some(dir)),
            Err(e) if is_gone(&e) => Ok(None),
            Err(e) => Err(e).or_exit(Exit::Io, || format!("cannot open cgroup {path}")),
        }
    }

    fn try_open(hierarchy: Hierarchy, path: &CgroupPath) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, hierarchy.root(), flags | OFlags::PATH, Mode::empty())?;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let fd =
            rustix::fs::openat2(&root, path.relative(), flags | OFlags::NOFOLLOW, Mode::empty(), beneath)?;
        let inode = rustix::fs::fstat(&fd)?.st_ino;
        Ok(Self { fd, hierarchy, path: path.clone(), inode })
    }

    /// Its path.
    pub fn path(&self) -> &CgroupPath {
        &self.path
    }

    /// Its inode number, which tells it from others of the same path.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// What finds it again.
    pub fn id(&self) -> CgroupId {
        CgroupId { hierarchy: self.hierarchy, path: self.path.clone(), inode: self.inode }
    }

    /// The kind of hierarchy it is in.
    pub fn hierarchy(&self) -> Hierarchy {
        self.hierarchy
    }

    /// Is a living process, or a living thread of a dead one, in it or beneath it? Zombies do not count.
    ///
    /// # Errors
    /// [`Exit::Io`] where it cannot be told; then whatever it holds must count as held.
    pub fn populated(&self) -> Result<bool> {
        self.told(match self.hierarchy {
            Hierarchy::V2 => populated_v2(self.as_fd()),
            Hierarchy::V1Devices => any_process(self.as_fd(), 0, &|_| true),
        })
    }

    /// Is any other process than `pid` in it or beneath it?
    ///
    /// # Errors
    /// As [`Self::populated`].
    pub fn holds_other_than(&self, pid: u32) -> Result<bool> {
        self.told(any_process(self.as_fd(), 0, &|process| process != pid.to_string()))
    }

    fn told(&self, answer: io::Result<bool>) -> Result<bool> {
        match answer {
            Err(e) if is_gone(&e) => Ok(false),
            answer => answer.or_exit(Exit::Io, || format!("cannot tell what is in cgroup {}", self.path)),
        }
    }
}

/// `cgroup.events` counts what is beneath, too (cgroup-v2.rst).
fn populated_v2(dir: BorrowedFd<'_>) -> io::Result<bool> {
    let events = read(dir, "cgroup.events")?;
    let value = events.lines().find_map(|line| line.strip_prefix("populated "));
    value.map(|value| value != "0").ok_or_else(|| io::Error::other("cgroup.events has no line \"populated\""))
}

/// Deeper nesting than this is somebody's attack on the stack or the descriptor table, and counts as a process:
/// whoever made it holds what they hold, and no other lease waits for an answer.
const DEEPEST: u32 = 100;

/// Is a process of which `counts` says so in the cgroup or beneath it? `cgroup.procs` names the process of every
/// living thread; on v1 also where only that thread is here.
fn any_process(dir: BorrowedFd<'_>, depth: u32, counts: &dyn Fn(&str) -> bool) -> io::Result<bool> {
    if depth > DEEPEST {
        return Ok(true);
    }
    if read(dir, "cgroup.procs")?.lines().any(counts) {
        return Ok(true);
    }
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() != FileType::Directory || name == c"." || name == c".." {
            continue;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let beneath = rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(io::Error::from);
        match beneath.and_then(|beneath| any_process(beneath.as_fd(), depth + 1, counts)) {
            Ok(false) => {}
            Err(e) if is_gone(&e) => {}
            other => return other,
        }
    }
    Ok(false)
}

/// A cgroup that was removed: its name is gone, or the files of its descriptor are.
fn is_gone(e: &io::Error) -> bool {
    [libc::ENOENT, libc::ENODEV].map(Some).contains(&e.raw_os_error())
}

/// Opens a file of an opened directory.
pub(crate) fn open(dir: BorrowedFd<'_>, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?.into())
}

/// Reads a file of an opened directory.
pub(crate) fn read(dir: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let bytes = files::whole(open(dir, name, OFlags::RDONLY)?, files::PAGE)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> CgroupPath {
        text.parse().unwrap()
    }

    const HYBRID: &str = "12:name=systemd:/user.slice/a\n11:name=devices:/n\n10:cpu,cpuacct:/c\n\
                          9:memory,devices,x:/d: e:f\n8:pids:/p\n0::/u:n i\n";

    #[test]
    fn finds_the_line_of_the_hierarchy() {
        assert_eq!(parse(HYBRID, Hierarchy::V1Devices), Ok(path("/d: e:f")));
        assert_eq!(parse(HYBRID, Hierarchy::V2), Ok(path("/u:n i")));
        assert_eq!(parse("5:devices:/x (deleted)\n", Hierarchy::V1Devices), Ok(path("/x (deleted)")));
        assert_eq!(parse("0::/\n", Hierarchy::V2), Ok(path("/")));
    }

    #[test]
    fn says_what_is_wrong_with_the_line() {
        for (text, hierarchy, says) in [
            ("0::/a\n3:name=devices:/a\n", Hierarchy::V1Devices, "no line for the controller devices"),
            ("5:devices:/a\n", Hierarchy::V2, "no line for cgroup v2"),
            ("0::/../../a\n", Hierarchy::V2, "run vgpu in the host's cgroup namespace"),
            ("0::/a (deleted)\n", Hierarchy::V2, "is gone already"),
            ("0::a\n", Hierarchy::V2, "begins with '/'"),
        ] {
            let error = parse(text, hierarchy).unwrap_err();
            assert_eq!(error.exit, Exit::Io);
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn paths_are_absolute_and_plain() {
        for good in ["/", "/a", "/a b:c/d..e"] {
            assert_eq!(path(good).as_str(), good);
        }
        for bad in ["", "a", "//", "/a/", "/a//b", "/../a", "/a/./b", "/a\0b"] {
            assert!(bad.parse::<CgroupPath>().is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<CgroupPath>("\"/a/../b\"").is_err());
    }

    #[test]
    fn systemds_scope_is_the_containers_too() {
        assert_eq!(scope_name("machine.slice:libpod:ab").as_deref(), Some("libpod-ab.scope"));
        assert_eq!(scope_name(":ab"), None);
        assert_eq!(scope_name("::ab").as_deref(), Some("ab.scope"));
        assert_eq!(scope_name("/docker/a:b:c:d"), None);
        let outer =
            |text: &str| within(&path(text), "p-n.scope").into_iter().map(String::from).collect::<Vec<_>>();
        assert_eq!(outer("/m.slice/p-n.scope/container"), ["/m.slice/p-n.scope"]);
        assert_eq!(outer("/m.slice/p-n.scope/a/b"), ["/m.slice/p-n.scope", "/m.slice/p-n.scope/a"]);
        assert_eq!(outer("/m.slice/p-n.scope"), [""; 0]);
        assert_eq!(outer("/m.slice/xp-n.scope/a"), [""; 0]);
    }

    #[test]
    fn ancestors_end_at_the_root() {
        let above = |text: &str| path(text).ancestors().map(String::from).collect::<Vec<_>>();
        assert_eq!(above("/a/b/c"), ["/a/b", "/a", "/"]);
        assert_eq!(above("/a"), ["/"]);
        assert_eq!(above("/"), [""; 0]);
    }

    #[test]
    fn a_cgroup_holds_what_is_beneath() {
        for (outer, inner, holds) in [
            ("/", "/a", true),
            ("/", "/", true),
            ("/a", "/a", true),
            ("/a", "/a/b", true),
            ("/a", "/ab", false),
            ("/a/b", "/a", false),
        ] {
            assert_eq!(path(outer).holds(&path(inner)), holds, "{outer} {inner}");
        }
    }
}
