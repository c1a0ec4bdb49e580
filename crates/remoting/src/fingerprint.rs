//! A number for this crate's source and that of the kernels, by which a client and a worker know that they are of the same build: that they have
//! the same table, records, layouts of shared memory, and rules. For it to be of all of these it is of every byte, which
//! nothing can be forgotten in. The build script has it computed; to the crate it is [`crate::api::FINGERPRINT`].

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the source is, from this crate's folder: its own, and the kernels', where cuBLAS's rules are.
pub const FOLDERS: [&str; 2] = ["src", "../kernels/src"];

/// Files by name, with what is in them.
pub type Files = Vec<(PathBuf, Vec<u8>)>;

/// The source files.
///
/// # Panics
/// Where one cannot be read.
pub fn source() -> Files {
    FOLDERS.into_iter().flat_map(|folder| files(Path::new(folder))).collect()
}

/// Those in a folder and below.
fn files(folder: &Path) -> Files {
    let mut files = Files::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a folder").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path.extension() == Some(OsStr::new("rs")) {
            let content = fs::read(&path).expect("a source file");
            files.push((path, content));
        }
    }
    files.sort();
    files
}

/// Their number (Fowler, Noll and Vo's), by names and contents.
pub fn of(files: &Files) -> u64 {
    let parts = files.iter().flat_map(|(path, content)| [path.as_os_str().as_encoded_bytes(), content]);
    let bytes = parts.flat_map(|part| part.len().to_le_bytes().into_iter().chain(part.iter().copied()));
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_source_that_was_compiled() {
        let files = source();
        for part in [
            "src/api.rs",
            "src/channel.rs",
            "src/contents.rs",
            "src/counters.rs",
            "src/cudnn/tensor.rs",
            "src/reply.rs",
            "src/ring.rs",
            "src/staging.rs",
            "src/wire.rs",
            "src/worker.rs",
            "src/cublas/table.rs",
            "src/cudnn/table.rs",
            "../kernels/src/blas.rs",
        ] {
            assert!(files.iter().any(|(path, _)| path == Path::new(part)), "{part}");
        }
        assert_eq!(of(&files), crate::api::FINGERPRINT);
    }

    #[test]
    fn any_byte_changes_it_and_where_it_is() {
        let files = |one: &str, other: &str| vec![("a.rs".into(), one.into()), ("b.rs".into(), other.into())];
        let number = of(&files("ab", "c"));
        assert_ne!(of(&files("ab", "d")), number);
        assert_ne!(of(&files("a", "bc")), number);
        assert_ne!(of(&files("abc", "")), number);
        let renamed = vec![("a.rs".into(), "ab".into()), ("c.rs".into(), "c".into())];
        assert_ne!(of(&renamed), number);
    }
}
