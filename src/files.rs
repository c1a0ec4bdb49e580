//! Small files, whole, in as few system calls as that takes. Reads, and opens nothing but `/proc`.

use std::fs::File;
use std::io::{self, Read};

use crate::error::{Error, Exit, OrExit, Result, quoted};

/// What the files of procfs that are read here mostly fit in, in bytes: it gives no more at a time.
pub const PAGE: usize = 4096;

/// All of a file that mostly has no more than `usual` bytes.
///
/// [`File::read_to_end`] would first ask for the size, which procfs does not know, then read 32 bytes, then
/// 64, and so on. [`Read::take`] is how std is kept from it.
pub fn whole(file: impl Read, usual: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usual);
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file in `/proc`. [`Exit::Io`] when it cannot be read.
pub fn of_proc(path: &str) -> Result<String> {
    let cannot = || format!("cannot read {path}");
    let bytes = File::open(path).and_then(|file| whole(file, PAGE)).or_exit(Exit::Io, cannot)?;
    String::from_utf8(bytes).or_exit(Exit::Io, cannot)
}

/// The kernel's id of this boot. It becomes part of file names, so it is looked at.
pub fn boot_id() -> Result<String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = of_proc(PATH)?;
    let id = text.trim_end();
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        return Err(Error::new(Exit::Io, format!("{PATH} holds no boot id: {}", quoted(id))));
    }
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_to_its_end_whatever_is_usual() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        for usual in [0, 1, PAGE, bytes.len(), 2 * bytes.len()] {
            assert_eq!(whole(&bytes[..], usual).unwrap(), bytes);
        }
    }

    #[test]
    fn procfs_is_read() {
        assert_eq!(boot_id().unwrap().len(), 36);
        let error = of_proc("/proc/self/no-such-file").unwrap_err();
        assert!(error.to_string().starts_with("cannot read /proc/self/no-such-file: "), "{error}");
    }
}
