//! The created container as the kernel shows it: everything read through one descriptor of `/proc/<pid>`,
//! which stays with that process even when the pid is used again. Changes nothing but who creates files.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Exit, OrExit, Result};
use crate::files;
use crate::mounts::MountTable;
use crate::sys;

/// The container's first process.
#[derive(Debug)]
pub struct Container {
    proc: OwnedFd,
    /// Its host pid.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
}

/// Host ids that files must be created as so that they belong to the container's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootIds {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl RootIds {
    /// Creates files that belong to the container's root. Only the calling thread does.
    pub fn create<T>(self, create: impl FnOnce() -> T) -> T {
        let host = Self { uid: 0, gid: 0 };
        if self == host {
            return create();
        }
        sys::process::create_files_as(self.uid, self.gid);
        let created = create();
        sys::process::create_files_as(host.uid, host.gid);
        created
    }
}

impl Container {
    /// Looks at the process that the runtime's state names. [`Exit::Io`] when it is gone.
    pub fn open(pid: u32) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty())
            .or_exit(Exit::Io, || format!("cannot open /proc/{pid} of the container's process"))?;
        let mut container = Self { proc, pid, start_time: 0 };
        let stat = container.read("stat")?;
        container.start_time = start_time(&stat)
            .ok_or_else(|| Error::new(Exit::Io, format!("cannot understand /proc/{pid}/stat")))?;
        Ok(container)
    }

    /// Its directory in `/proc`.
    pub fn proc(&self) -> BorrowedFd<'_> {
        self.proc.as_fd()
    }

    /// Its mount namespace. [`Exit::Request`] when that is this process's, too: a runtime starts a
    /// container without one (crun does), and what is mounted there is mounted on the host.
    pub fn mount_namespace(&self) -> Result<OwnedFd> {
        let namespace = self.open_below("ns/mnt")?;
        let cannot = || "cannot look at mount namespaces";
        let its = rustix::fs::fstat(&namespace).or_exit(Exit::Io, cannot)?;
        let ours = rustix::fs::stat("/proc/self/ns/mnt").or_exit(Exit::Io, cannot)?;
        if (its.st_dev, its.st_ino) != (ours.st_dev, ours.st_ino) {
            return Ok(namespace);
        }
        let message =
            "the container has no mount namespace of its own; add one to linux.namespaces in its config.json";
        Err(Error::new(Exit::Request, message))
    }

    /// What is mounted there.
    pub fn mounts(&self) -> Result<MountTable> {
        let cannot = || Error::new(Exit::Io, format!("cannot understand /proc/{}/mountinfo", self.pid));
        MountTable::parse(&self.read("mountinfo")?).ok_or_else(cannot)
    }

    /// Host ids of the container's root. [`Exit::Request`] when it has none.
    pub fn root_ids(&self) -> Result<RootIds> {
        let id = |name| -> Result<u32> {
            let none = || {
                let message =
                    format!("the container's {name} maps no root; give it one (user namespace, id 0)");
                Error::new(Exit::Request, message)
            };
            host_id_of_root(&self.read(name)?).ok_or_else(none)
        };
        Ok(RootIds { uid: id("uid_map")?, gid: id("gid_map")? })
    }

    fn open_below(&self, name: &str) -> Result<OwnedFd> {
        rustix::fs::openat(&self.proc, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .or_exit(Exit::Io, || format!("cannot open /proc/{}/{name} of the container's process", self.pid))
    }

    fn read(&self, name: &str) -> Result<String> {
        let file = std::fs::File::from(self.open_below(name)?);
        let bytes = files::whole(file, files::PAGE)
            .or_exit(Exit::Io, || format!("cannot read /proc/{}/{name}", self.pid))?;
        // Names of processes and mount points may be any bytes; the parts that matter here are ASCII.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Field 22 of `proc_pid_stat(5)`; the name in field 2 may hold spaces and parentheses.
fn start_time(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

/// The line of `user_namespaces(7)`'s map that holds id 0: `inside outside length`.
fn host_id_of_root(map: &str) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (inside, outside) = (fields.next()?, fields.next()?);
        (inside == "0").then(|| outside.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_field_22_whatever_the_name() {
        let stat = "12 (a) b (c)) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0 1844 0";
        assert_eq!(start_time(stat), Some(777));
        assert_eq!(start_time("12 (a"), None);
    }

    #[test]
    fn root_of_a_user_namespace() {
        assert_eq!(host_id_of_root("         0          0 4294967295\n"), Some(0));
        assert_eq!(host_id_of_root("1000 5 1\n 0 100000 65536\n"), Some(100_000));
        assert_eq!(host_id_of_root("1 100000 65536\n"), None);
    }
}
