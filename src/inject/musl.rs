//! The driver's libraries in the search path of a musl image, so that programs find them by name: musl has no linker
//! cache, but a file of directories in `/etc` (musl's ldso/dynlink.c). Read as data; nothing is run.
//!
//! Part of [`live`](super::live), and by its rules.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags, fstat};

use super::cache::directories;
use super::etc::{New, Old};
use super::place::Place;
use crate::error::{Exit, OrExit, Result};
use crate::resolve::File as Planned;

/// The processor, which musl calls as Rust does.
const ARCH: &str = std::env::consts::ARCH;

/// Where musl looks when it has no such file.
const USUAL: &str = "/lib:/usr/local/lib:/usr/lib\n";

/// The largest file that is read, in bytes: thousands of directories.
const LARGEST: u64 = 64 << 10;

/// The image's search path with the driver's directories in front; none where the image has no loader of musl's, or
/// a path of that size. `proc` is the host's `/proc`.
pub(super) fn merged(container: &Place, files: &[&Planned], proc: &OwnedFd) -> Result<Option<New>> {
    let path = format!("lib/ld-musl-{ARCH}.so.1");
    let Some(loader) = container.find(&path, OFlags::PATH)? else { return Ok(None) };
    let stat = fstat(&loader).or_exit(Exit::Io, || format!("cannot look at the container's /{path}"))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let name = format!("ld-musl-{ARCH}.path");
    let Some(old) = Old::find_or_make(container, &name, USUAL)? else { return Ok(None) };
    let image = old.read(proc, LARGEST)?;
    if image.len() as u64 > LARGEST {
        return Ok(None);
    }
    Ok(Some(old.replaced_by(with_driver(&image, &directories(files)), container)))
}

/// An earlier start has left its directories on a layer of the container's own.
fn with_driver(image: &[u8], driver: &str) -> Vec<u8> {
    let is_ours = |dir: &&[u8]| driver.lines().any(|line| line.as_bytes() == *dir);
    let theirs =
        image.split(|byte| matches!(byte, b':' | b'\n')).filter(|dir| !dir.is_empty() && !is_ours(dir));
    let lines = theirs.flat_map(|dir| [dir, b"\n"]).flatten();
    driver.bytes().chain(lines.copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_directories_come_first_and_once() {
        let driver = "/usr/local/nvidia/lib64\n";
        let merged = |image: &str| String::from_utf8(with_driver(image.as_bytes(), driver)).unwrap();
        let all = "/usr/local/nvidia/lib64\n/lib\n/usr/local/lib\n/usr/lib\n";
        assert_eq!(merged(USUAL), all);
        assert_eq!(merged(all), all);
        assert_eq!(merged("/a:/b\n\n/c"), "/usr/local/nvidia/lib64\n/a\n/b\n/c\n");
        assert_eq!(merged(""), driver);
    }
}
