//! Files that root acts on: only what root alone can have written is trusted, and that is decided
//! on the opened descriptor, never on a name that can change its meaning meanwhile. Opens and
//! reads metadata; never writes.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use crate::error::{Error, Exit, OrExit, Result};

/// Opens a file for reading that root alone can have written; `None` where there is none.
///
/// The directory that holds the name is checked too: whoever can write there could put an older
/// file of root's in its place. The name may be a symbolic link, as configuration managers make
/// them: in a checked directory only root can have made the link, and what it leads to is checked
/// like any other file, so at worst it is other words of root's. `O_NONBLOCK` keeps a FIFO from
/// blocking the open and means nothing to a regular file.
///
/// # Errors
/// [`Exit::Untrusted`] when it, or its directory, is not to be trusted; [`Exit::Io`] when it cannot
/// be opened.
pub fn open_trusted(path: &Path) -> Result<Option<File>> {
    let Some(name) = path.file_name() else {
        return Err(Fault::NotA("file").at(path));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Some(directory) = found(openat(CWD, parent, directory, Mode::empty()), parent)? else {
        return Ok(None);
    };
    check_directory(&directory, parent)?;
    let file = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Some(file) = found(openat(&directory, name, file, Mode::empty()), path)? else {
        return Ok(None);
    };
    check_file(&file, path)?;
    Ok(Some(file.into()))
}

/// Is the opened descriptor a regular file that belongs to root and that only its owner may write?
/// `path` is for the message.
///
/// # Errors
/// [`Exit::Untrusted`] when it is not.
pub fn check_file(file: impl AsFd, path: &Path) -> Result<()> {
    check(file, FileType::RegularFile, path)
}

/// Is the opened descriptor (`O_PATH` will do) a directory that belongs to root and that only its
/// owner may write? `path` is for the message.
///
/// # Errors
/// [`Exit::Untrusted`] when it is not.
pub fn check_directory(directory: impl AsFd, path: &Path) -> Result<()> {
    check(directory, FileType::Directory, path)
}

fn check(fd: impl AsFd, wanted: FileType, path: &Path) -> Result<()> {
    let stat = fstat(fd).or_exit(Exit::Io, || format!("cannot examine {}", path.display()))?;
    fault(stat.st_mode, stat.st_uid, wanted).map_or(Ok(()), |fault| Err(fault.at(path)))
}

/// `None` where there is no such file.
fn found(opened: rustix::io::Result<OwnedFd>, path: &Path) -> Result<Option<OwnedFd>> {
    match opened {
        Err(Errno::NOENT) => Ok(None),
        opened => opened.map(Some).or_exit(Exit::Io, || format!("cannot open {}", path.display())),
    }
}

/// Why a file is not to be trusted.
#[derive(Debug, PartialEq)]
enum Fault {
    NotA(&'static str),
    Owner { uid: u32 },
    Writable { mode: u32 },
}

/// The rule. The group bits also stand for an access list: its mask shows there (acl(5)).
fn fault(mode: u32, uid: u32, wanted: FileType) -> Option<Fault> {
    let kind = if wanted == FileType::Directory { "directory" } else { "regular file" };
    if FileType::from_raw_mode(mode) != wanted {
        return Some(Fault::NotA(kind));
    }
    if uid != 0 {
        return Some(Fault::Owner { uid });
    }
    (mode & 0o022 != 0).then_some(Fault::Writable { mode: mode & 0o7777 })
}

impl Fault {
    fn at(self, path: &Path) -> Error {
        let path = path.display();
        let line = match self {
            Self::NotA(kind) => format!("{path} is not trusted: it is not a {kind}; put one there"),
            Self::Owner { uid } => format!(
                "{path} is not trusted: it belongs to uid {uid}; look through it, then `chown root: {path} && chmod go-w {path}`"
            ),
            Self::Writable { mode } => format!(
                "{path} is not trusted: others than root may write it (mode {mode:04o}); look through it, then `chmod go-w {path}`"
            ),
        };
        Error::new(Exit::Untrusted, line)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    const FILE: u32 = 0o100_000;
    const DIRECTORY: u32 = 0o040_000;

    #[test]
    fn only_root_may_have_written_it() {
        let file = |mode, uid| fault(mode, uid, FileType::RegularFile);
        for mode in [0o644, 0o600, 0o444, 0o755] {
            assert_eq!(file(FILE | mode, 0), None, "{mode:o}");
        }
        for mode in [0o664, 0o646, 0o620, 0o602] {
            assert_eq!(file(FILE | mode, 0), Some(Fault::Writable { mode }));
        }
        assert_eq!(file(FILE | 0o600, 1000), Some(Fault::Owner { uid: 1000 }));
        for kind in [DIRECTORY, 0o010_000, 0o120_000, 0o140_000, 0o020_000] {
            assert_eq!(file(kind | 0o644, 0), Some(Fault::NotA("regular file")), "{kind:o}");
        }
        let directory = |mode, uid| fault(mode, uid, FileType::Directory);
        assert_eq!(directory(DIRECTORY | 0o755, 0), None);
        assert_eq!(directory(FILE | 0o755, 0), Some(Fault::NotA("directory")));
        // The sticky bit keeps others from taking a file away, not from putting one there first.
        let sticky = Some(Fault::Writable { mode: 0o1777 });
        assert_eq!(directory(DIRECTORY | 0o1777, 0), sticky);
    }

    #[test]
    fn a_file_of_the_system_is_trusted_and_a_missing_one_is_none() {
        assert!(open_trusted(Path::new("/etc/passwd")).unwrap().is_some());
        assert!(open_trusted(Path::new("/etc/no-such-file")).unwrap().is_none());
        assert!(open_trusted(Path::new("/etc/no-such-directory/pool.toml")).unwrap().is_none());
        for odd in ["/", "/etc/..", "/etc", "/etc/passwd/pool.toml"] {
            assert!(open_trusted(Path::new(odd)).is_err(), "{odd}");
        }
    }

    fn refused(path: &Path) -> String {
        let error = open_trusted(path).unwrap_err();
        assert_eq!(error.exit, Exit::Untrusted, "{error}");
        error.to_string()
    }

    #[test]
    #[ignore = "needs root: gives a file to another user"]
    fn foreign_and_writable_files_are_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.toml");
        fs::write(&path, "").unwrap();
        let shown = path.display();
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        assert!(refused(&path).ends_with(&format!("then `chmod go-w {shown}`")));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(open_trusted(&path).unwrap().is_some());
        chown(&path, Some(65534), None).unwrap();
        assert!(refused(&path).contains(&format!("`chown root: {shown} && chmod go-w {shown}`")));
    }

    #[test]
    #[ignore = "needs root: makes a directory that others may write"]
    fn a_directory_that_others_may_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("pool.toml"), "").unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o775)).unwrap();
        let line = refused(&directory.path().join("pool.toml"));
        assert!(line.contains("others than root may write it (mode 0775)"), "{line}");
        assert!(line.ends_with(&format!("`chmod go-w {}`", directory.path().display())), "{line}");
    }

    #[test]
    #[ignore = "needs root: a link of root's to a file of another user"]
    fn a_link_is_followed_and_what_it_leads_to_is_judged() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("pool.toml"));
        fs::write(&target, "").unwrap();
        symlink(&target, &link).unwrap();
        assert!(open_trusted(&link).unwrap().is_some());
        chown(&target, Some(65534), None).unwrap();
        refused(&link);
    }

    #[test]
    #[ignore = "needs root: the FIFO must be root's, so that only its kind is wrong"]
    fn a_fifo_does_not_hang() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.toml");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        assert!(refused(&path).contains("not a regular file"));
    }
}
