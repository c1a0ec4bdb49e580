//! The client's libraries in `/etc/ld.so.preload`, which the container's loader reads for every program (ld.so(8)): one
//! that has a path to NVIDIA's own libraries built in finds them so all the same.
//!
//! What is named there must load, or no program starts. So the image's C library is looked at first, as data; and
//! the file is mounted, also where it could be written: it must not stay when the libraries are gone.
//!
//! Part of [`live`](super::live), and by its rules.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use super::etc::{New, Old};
use super::files::OpenFile;
use super::place::{Place, is_of_container, meddled, shown};
use crate::elf::{Class, Elf, Machine};
use crate::error::{Error, Exit, OrExit, Result};
use crate::remote::CLIENT;
use crate::resolve::{Dir, PLACE};

/// The file, in `/etc`.
const PRELOAD: &str = "ld.so.preload";

/// The largest one that is read, in bytes.
const LARGEST: u64 = 64 << 10;

/// What a program of the host's own size is loaded with.
const LIBC: &str = "libc.so.6";

/// The image's file with the client's libraries at its end; none for a container that has the driver's, or that has
/// no loader which would read it. `proc` is the host's `/proc`.
pub(super) fn merged(container: &Place, files: &[OpenFile], proc: &OwnedFd) -> Result<Option<New>> {
    let Some(client) = files.iter().find(|file| file.file.name == CLIENT) else { return Ok(None) };
    let Some(libc) = find_libc(container, proc)? else { return Ok(None) };
    if let Some(version) = lacking(&client.fd, &libc)? {
        let message = format!(
            "the image's C library has no {version}, which this host's {CLIENT} needs; use a newer image, or vgpu built \
             for an older one"
        );
        return Err(Error::new(Exit::Request, message));
    }
    let Some(old) = Old::find_or_make(container, PRELOAD, "")? else {
        let message = format!("the container's /etc/{PRELOAD} is no regular file; remove it from the image");
        return Err(Error::new(Exit::Request, message));
    };
    let image = old.read(proc, LARGEST)?;
    if image.len() as u64 > LARGEST {
        let message =
            format!("the container's /etc/{PRELOAD} is larger than {LARGEST} bytes; make it smaller");
        return Err(Error::new(Exit::Request, message));
    }
    Ok(Some(old.covered_by(with_libraries(&image, files))))
}

/// The client itself comes with them.
fn with_libraries(image: &[u8], files: &[OpenFile]) -> Vec<u8> {
    let mut text = image.to_vec();
    if text.last().is_some_and(|byte| *byte != b'\n') {
        text.push(b'\n');
    }
    for file in
        files.iter().map(|file| &file.file).filter(|file| file.dir == Dir::Lib64 && file.name != CLIENT)
    {
        text.extend(format!("{PLACE}/{}/{}\n", file.dir.as_str(), file.name).bytes());
    }
    text
}

/// Where images have the C library of their 64-bit programs.
fn find_libc(container: &Place, proc: &OwnedFd) -> Result<Option<OwnedFd>> {
    let arch = std::env::consts::ARCH;
    let dirs = [
        &format!("lib/{arch}-linux-gnu"),
        &format!("usr/lib/{arch}-linux-gnu"),
        "lib64",
        "usr/lib64",
        "lib",
        "usr/lib",
    ];
    for dir in dirs {
        if let Some(libc) = open(container, proc, &format!("{dir}/{LIBC}"))?
            && Elf::read(&libc)
                .is_ok_and(|elf| (elf.class(), elf.machine()) == (Class::Bits64, Machine::HOST))
        {
            return Ok(Some(libc));
        }
    }
    Ok(None)
}

/// A regular file beneath the root, to be read; of something else nothing is.
fn open(container: &Place, proc: &OwnedFd, path: &str) -> Result<Option<OwnedFd>> {
    let Some(fd) = container.find(path, OFlags::PATH)? else { return Ok(None) };
    let cannot = || format!("cannot open the container's {}", shown(path));
    let stat = fstat(&fd).or_exit(Exit::Io, cannot)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(proc, format!("self/fd/{}", fd.as_raw_fd()), flags, Mode::empty()) {
        Err(Errno::AGAIN) => Err(meddled(path, "is being written by somebody else")),
        Err(e) if is_of_container(e) => Ok(None),
        file => file.map(Some).or_exit(Exit::Io, cannot),
    }
}

/// A version of the C library's that the client asks for and the image's has not; none of either is in anything but the
/// names that a linker needs.
fn lacking(client: &OwnedFd, libc: &OwnedFd) -> Result<Option<String>> {
    let client = Elf::read(client).and_then(|elf| elf.strings());
    let client = client.or_exit(Exit::Gpu, || format!("cannot read {CLIENT}"))?;
    // One that cannot be read is none that a program could be loaded with.
    let libc = Elf::read(libc).and_then(|elf| elf.strings()).unwrap_or_default();
    let has: Vec<&[u8]> = versions(&libc).collect();
    let lacking = versions(&client).find(|version| !has.contains(version));
    Ok(lacking.map(|version| String::from_utf8_lossy(version).into_owned()))
}

fn versions(strings: &[u8]) -> impl Iterator<Item = &[u8]> {
    strings.split(|byte| *byte == 0).filter(|name| name.starts_with(b"GLIBC_"))
}
