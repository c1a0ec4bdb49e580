//! A process's mount table (`proc_pid_mountinfo(5)`), and the question that matters before anything is
//! mounted into a container: would it reach the host? Pure.

use std::path::{Path, PathBuf};

/// What is mounted in one mount namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountTable(Vec<Mount>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    /// The mount it is mounted on.
    parent: u64,
    /// The file system's device, `major:minor`.
    device: String,
    /// What of it is mounted.
    root: PathBuf,
    /// Where, as the process sees it.
    at: PathBuf,
    shared: bool,
    proc: bool,
    tmpfs: bool,
    writable_overlay: bool,
}

/// Where a path of procfs appears; its paths are relative to the root that was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcPlace {
    /// The mount.
    pub mount: u64,
    /// Where that is mounted.
    pub at: PathBuf,
    /// Where the path is.
    pub path: PathBuf,
}

impl MountTable {
    /// Reads `mountinfo`; none when a line cannot be understood, for it may be the one that matters.
    pub fn parse(text: &str) -> Option<Self> {
        text.lines().map(parse_line).collect::<Option<_>>().map(Self)
    }

    /// Is mount `id` at exactly this path, and shows what is there beneath it, too? Runtimes bind the
    /// container's root onto itself, for pivot_root wants a mount. Hardly any other mount is like that.
    pub fn is_bound_onto_itself(&self, id: u64, path: &Path) -> bool {
        let onto_itself = |mount: &Mount| {
            let parent = self.find(mount.parent)?;
            let beneath = parent.root.join(mount.at.strip_prefix(&parent.at).ok()?);
            Some(mount.at == path && mount.device == parent.device && mount.root == beneath)
        };
        self.find(id).and_then(onto_itself).unwrap_or(false)
    }

    /// May something be mounted on a directory or file of mount `id`, in a container whose root is mount
    /// `root`? The reason, when not.
    ///
    /// Yes on the container's root, and on a tmpfs that the runtime made for this container: one that is
    /// mounted nowhere but beneath that root. Every other mount in there was bound from one that the host
    /// has, and that one is in this table too: the namespace began as a copy of the runtime's, and the kernel
    /// binds nothing from another namespace. (A look at the paths would not do: what the host has mounted
    /// in the root file system's own directory has paths that begin like the runtime's mounts.) No where
    /// the mount is shared, for its peers would get ours too.
    pub fn may_hold(&self, id: u64, root: u64) -> Result<(), &'static str> {
        let Some(mount) = self.find(id) else {
            return Err("is on a mount that cannot be found");
        };
        if mount.shared {
            return Err("is on a mount with shared propagation");
        }
        let elsewhere = |other: &Mount| other.device == mount.device && !self.is_beneath(other, root);
        let own_tmpfs = mount.tmpfs && mount.root == Path::new("/") && !self.0.iter().any(elsewhere);
        if id == root || own_tmpfs { Ok(()) } else { Err("is mounted from the host") }
    }

    /// Would something that is mounted on mount `id` appear at its peers, too?
    pub fn is_shared(&self, id: u64) -> bool {
        self.find(id).is_none_or(|mount| mount.shared)
    }

    /// Where a path of procfs appears beneath mount `root`: once for each procfs that is mounted there, or directory
    /// of one that leads to the path.
    pub fn of_proc(&self, path: &str, root: u64) -> Vec<ProcPlace> {
        let Some(top) = self.find(root) else { return Vec::new() };
        let there = self.0.iter().filter(|mount| mount.proc && self.is_beneath(mount, root));
        let place = |mount: &Mount| {
            let within = Path::new(path).strip_prefix(&mount.root).ok()?;
            let at = mount.at.strip_prefix(&top.at).ok()?;
            Some(ProcPlace { mount: mount.id, path: at.join(within), at: at.to_owned() })
        };
        there.filter_map(place).collect()
    }

    /// Was it there when the table was read?
    pub fn knows(&self, id: u64) -> bool {
        self.find(id).is_some()
    }

    /// Is mount `id` this other one, or mounted on it, or on what is?
    pub fn is_on(&self, id: u64, other: u64) -> bool {
        id == other || self.find(id).is_some_and(|mount| self.is_beneath(mount, other))
    }

    /// Is mount `id` an overlay with a writable layer, as engines give each container one of its own?
    pub fn is_writable_overlay(&self, id: u64) -> bool {
        self.find(id).is_some_and(|mount| mount.writable_overlay)
    }

    fn find(&self, id: u64) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.id == id)
    }

    /// Is `mount` mounted on `root`, or on something that is?
    fn is_beneath(&self, mount: &Mount, root: u64) -> bool {
        let parents = std::iter::successors(Some(mount), |mount| self.find(mount.parent));
        // A table read while it changes may show a loop; none is longer than the table.
        parents.take(self.0.len()).any(|mount| mount.parent == root)
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut fields = front.split(' ');
    let mut number = || fields.next()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let device = fields.next()?.to_owned();
    let (root, at) = (unescape(fields.next()?), unescape(fields.next()?));
    let options = fields.next()?;
    let shared = fields.any(|tag| tag.starts_with("shared:"));
    let mut of_file_system = back.split(' ');
    let (kind, _source, its_options) =
        (of_file_system.next()?, of_file_system.next()?, of_file_system.next()?);
    let is = |options: &str, word: &str| options.split(',').any(|option| option.starts_with(word));
    let writable = is(options, "rw") && is(its_options, "rw") && is(its_options, "upperdir=");
    // A directory bound out of an overlay, on a host whose own file system is one, is no layer of anybody's own.
    let writable_overlay = kind == "overlay" && writable && root == Path::new("/");
    let (proc, tmpfs) = (kind == "proc", kind == "tmpfs");
    Some(Mount { id, parent, device, root, at, shared, proc, tmpfs, writable_overlay })
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(path: &str) -> PathBuf {
    if !path.contains('\\') {
        return path.into();
    }
    let path = path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
    path.replace("\\134", "\\").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host, and in its namespace's copy a container: its root 65 is a bind of a directory in which the host
    /// has mounted 62 itself, which came along as 72.
    const TABLE: &str = "\
44 43 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
60 44 0:23 / /dev/shm rw - tmpfs tmpfs rw
61 44 0:24 / /run rw - tmpfs tmpfs rw
62 44 0:43 / /b/a\\040r/opt rw - tmpfs tmpfs rw
65 44 254:0 /b/r /b/a\\040r rw,relatime master:1 - ext4 /dev/vda rw
67 65 0:41 / /b/a\\040r/dev rw,nosuid - tmpfs tmpfs rw
68 65 0:24 / /b/a\\040r/run rw - tmpfs tmpfs rw
69 67 0:44 /sub /b/a\\040r/dev/sub rw - tmpfs tmpfs rw
70 67 0:42 / /b/a\\040r/dev/shm rw shared:9 - tmpfs shm rw
71 65 0:6 / /b/a\\040r/host rw - devtmpfs devtmpfs rw
72 65 0:43 / /b/a\\040r/opt rw - tmpfs tmpfs rw
73 67 0:45 / /b/a\\040r/dev/a rw - tmpfs tmpfs rw
74 67 0:45 / /b/a\\040r/dev/b rw - tmpfs tmpfs rw";

    fn ask(id: u64) -> Result<(), &'static str> {
        MountTable::parse(TABLE).unwrap().may_hold(id, 65)
    }

    #[test]
    fn the_root_and_the_runtimes_own_tmpfs() {
        for own in [65, 67, 73, 74] {
            assert_eq!(ask(own), Ok(()), "{own}");
        }
    }

    #[test]
    fn nothing_that_reaches_the_host() {
        for hosts in [44, 61, 62, 68, 69, 71, 72] {
            assert!(ask(hosts).is_err(), "{hosts}");
        }
        assert_eq!(ask(68), Err("is mounted from the host"));
        assert_eq!(ask(70), Err("is on a mount with shared propagation"));
        assert_eq!(ask(99), Err("is on a mount that cannot be found"));
    }

    /// crun starts a container whose root is "/". The host's /dev, here a tmpfs, came along.
    #[test]
    fn a_root_that_is_the_hosts() {
        let table = "\
1 0 254:0 / / rw - ext4 /dev/vda rw
2 1 0:5 / /dev rw - tmpfs tmpfs rw
3 1 254:0 / / rw - ext4 /dev/vda rw
4 3 0:5 / /dev rw - tmpfs tmpfs rw
5 3 0:6 / /own rw - tmpfs tmpfs rw";
        let table = MountTable::parse(table).unwrap();
        assert_eq!(table.may_hold(4, 3), Err("is mounted from the host"));
        assert_eq!(table.may_hold(5, 3), Ok(()));
    }

    /// Plain, on a mount of its own, in a part of a file system, and with strange names.
    #[test]
    fn a_root_is_bound_onto_itself() {
        let table = "\
1 0 254:0 / / rw - ext4 /dev/vda rw
2 1 0:50 / /m rw - overlay o rw
3 2 0:50 / /m rw - overlay o rw
4 1 254:1 /sub /v rw - xfs /dev/vdb rw
5 4 254:1 /sub/a\\040b /v/a\\040b rw - xfs /dev/vdb rw
6 1 254:0 /b/r /b/r rw - ext4 /dev/vda rw
7 1 254:0 /b/r /c rw - ext4 /dev/vda rw
8 9 254:0 /d /d rw - ext4 /dev/vda rw
10 1 254:1 /e /e rw - xfs /dev/vdb rw";
        let table = MountTable::parse(table).unwrap();
        for (id, at) in [(3, "/m"), (5, "/v/a b"), (6, "/b/r")] {
            assert!(table.is_bound_onto_itself(id, Path::new(at)), "{at}");
            assert!(!table.is_bound_onto_itself(id, Path::new("/b")), "{at}");
        }
        for (id, at) in [(1, "/"), (2, "/m"), (4, "/v"), (7, "/c"), (8, "/d"), (9, "/d"), (10, "/e")] {
            assert!(!table.is_bound_onto_itself(id, Path::new(at)), "{at}");
        }
    }

    #[test]
    fn an_overlay_with_a_layer_to_write_to() {
        let table = "\
1 0 0:50 / /a rw,relatime master:1 - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
2 0 0:50 / /b ro - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
3 0 0:50 / /c rw - overlay overlay ro,lowerdir=/l,upperdir=/u,workdir=/w
4 0 0:50 / /d rw - overlay overlay rw,lowerdir=/l:/m
5 0 0:50 / /e rw - fuse.fuse-overlayfs fuse-overlayfs rw,user_id=0
6 0 254:0 / /f rw - ext4 /dev/upperdir=x rw
8 0 0:50 /b /g rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w";
        let table = MountTable::parse(table).unwrap();
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 7, 8].map(|id| table.is_writable_overlay(id)),
            [true, false, false, false, false, false, false, false]
        );
    }

    #[test]
    fn where_procfs_shows_a_path() {
        let table = "\
1 0 254:0 / / rw - ext4 /dev/vda rw
2 1 0:5 / /proc rw - proc proc rw
3 1 254:0 /b/r /b/r rw - ext4 /dev/vda rw
4 3 0:6 / /b/r/proc rw - proc proc rw
5 3 0:5 / /b/r/host/proc rw - proc proc rw
6 3 0:5 /driver /b/r/d rw - proc proc rw
7 3 0:5 /driver/nvidia /b/r/n rw - proc proc rw
8 3 0:5 /sys /b/r/s rw - proc proc rw
9 4 0:7 / /b/r/proc/driver rw - tmpfs t rw";
        let table = MountTable::parse(table).unwrap();
        let shown: Vec<_> = table
            .of_proc("/driver/nvidia", 3)
            .into_iter()
            .map(|place| format!("{} {}", place.path.display(), place.mount))
            .collect();
        assert_eq!(shown, ["proc/driver/nvidia 4", "host/proc/driver/nvidia 5", "d/nvidia 6", "n/ 7"]);
        assert!(table.is_on(9, 4) && table.is_on(4, 4) && !table.is_on(4, 9) && !table.is_on(5, 4));
    }

    #[test]
    fn what_cannot_be_understood_is_no_table() {
        assert_eq!(MountTable::parse(&format!("{TABLE}\n75 44 0:46 / /x rw tmpfs tmpfs rw")), None);
        let own_parent =
            MountTable::parse("1 1 0:1 / / rw - tmpfs t rw\n2 3 0:1 / /a rw - tmpfs t rw").unwrap();
        assert_eq!(own_parent.may_hold(1, 2), Err("is mounted from the host"));
    }
}
