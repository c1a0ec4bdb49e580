//! A process's mount table (`proc_pid_mountinfo(5)`), and the question that matters before anything is
//! mounted into a container: would it reach the host? Pure.

use std::path::{Path, PathBuf};

/// What is mounted in one mount namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountTable(Vec<Mount>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    /// The file system's device, `major:minor`.
    device: String,
    /// What of it is mounted.
    root: String,
    /// Where, as the process sees it.
    at: PathBuf,
    shared: bool,
    kind: String,
}

impl MountTable {
    /// Reads `mountinfo`. Lines that cannot be understood are left out: a mount that is not found is
    /// refused.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(parse_line).collect())
    }

    /// May something be mounted on a directory or file of mount `id`, in a container whose root is at
    /// `root` (before pivot_root) and on mount `root_id`? The reason, when not.
    ///
    /// Yes on the container's root and on a tmpfs the runtime made, which is one that nothing outside the
    /// root shows. No where the mount is shared, for its peers would get ours too.
    pub fn may_hold(&self, id: u64, root: &Path, root_id: u64) -> Result<(), &'static str> {
        let Some(mount) = self.0.iter().find(|mount| mount.id == id) else {
            return Err("is on a mount that cannot be found");
        };
        if mount.shared {
            return Err("is on a mount with shared propagation");
        }
        let elsewhere = |other: &&Mount| other.device == mount.device && !other.at.starts_with(root);
        let own_tmpfs =
            mount.kind == "tmpfs" && mount.root == "/" && !self.0.iter().any(|other| elsewhere(&other));
        if id == root_id || own_tmpfs { Ok(()) } else { Err("is mounted from the host") }
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut fields = front.split(' ');
    let id = fields.next()?.parse().ok()?;
    let device = fields.nth(1)?.to_owned();
    let (root, at) = (fields.next()?.to_owned(), unescape(fields.next()?));
    let shared = fields.skip(1).any(|tag| tag.starts_with("shared:"));
    let kind = back.split(' ').next()?.to_owned();
    Some(Mount { id, device, root, at: PathBuf::from(at), shared, kind })
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
44 43 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
60 44 0:23 / /dev/shm rw - tmpfs tmpfs rw
61 44 0:24 / /run rw - tmpfs tmpfs rw
65 44 254:0 /b/r /b/a\\040r rw,relatime master:1 - ext4 /dev/vda rw
67 65 0:41 / /b/a\\040r/dev rw,nosuid - tmpfs tmpfs rw
68 65 0:24 / /b/a\\040r/run rw - tmpfs tmpfs rw
69 65 0:24 /sub /b/a\\040r/sub rw - tmpfs tmpfs rw
70 67 0:42 / /b/a\\040r/dev/shm rw shared:9 - tmpfs shm rw
71 65 0:6 / /b/a\\040r/host rw - devtmpfs devtmpfs rw";

    fn ask(id: u64) -> Result<(), &'static str> {
        MountTable::parse(TABLE).may_hold(id, Path::new("/b/a r"), 65)
    }

    #[test]
    fn the_root_and_the_runtimes_own_tmpfs() {
        assert_eq!(ask(65), Ok(()));
        assert_eq!(ask(67), Ok(()));
    }

    #[test]
    fn nothing_that_reaches_the_host() {
        assert_eq!(ask(68), Err("is mounted from the host"));
        assert_eq!(ask(69), Err("is mounted from the host"));
        assert_eq!(ask(71), Err("is mounted from the host"));
        assert_eq!(ask(70), Err("is on a mount with shared propagation"));
        assert_eq!(ask(99), Err("is on a mount that cannot be found"));
    }
}
