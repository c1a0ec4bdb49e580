//! Writes a linker cache in the new format. Pure.

use std::ffi::CStr;

use super::Row;
use super::extension::{self, Extension};
use super::read::{LITTLE_ENDIAN, NEW_HEADER, NEW_MAGIC, NEW_ROW};

/// The file: header, rows in the order given, strings, extension.
pub(super) fn write(rows: &[Row], extension: &Extension) -> Vec<u8> {
    let start = NEW_HEADER + rows.len() * NEW_ROW;
    let mut strings = StringTable { start, bytes: Vec::new() };
    let mut file = vec![0; NEW_HEADER];
    for row in rows {
        let (key, value) = strings.add_entry(row.entry.soname, row.entry.path);
        put(&mut file, &[row.entry.flags.cast_unsigned(), key, value, row.osversion]);
        file.extend_from_slice(&row.hwcap.to_le_bytes());
    }
    let sections = extension.sections(&mut strings);
    file.extend(&strings.bytes);
    let header = header(rows.len(), strings.bytes.len(), file.len().next_multiple_of(4));
    file[..header.len()].copy_from_slice(&header);
    extension::append(&mut file, &sections);
    file
}

/// All of the header that is not zero; `strings` is their length, `extension` an offset.
fn header(rows: usize, strings: usize, extension: usize) -> Vec<u8> {
    let mut header = NEW_MAGIC.to_vec();
    put(&mut header, &[to_u32(rows), to_u32(strings), u32::from(LITTLE_ENDIAN), to_u32(extension)]);
    header
}

/// Appends numbers as they are in the file.
pub(super) fn put(file: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        file.extend_from_slice(&word.to_le_bytes());
    }
}

/// The strings of a file that is being written.
pub(super) struct StringTable {
    /// Where in the file it begins.
    start: usize,
    bytes: Vec<u8>,
}

impl StringTable {
    /// Adds a string; its offset in the file.
    pub(super) fn add(&mut self, string: &CStr) -> u32 {
        let offset = to_u32(self.start + self.bytes.len());
        self.bytes.extend_from_slice(string.to_bytes_with_nul());
        offset
    }

    /// Adds a name and its path; their offsets. Most often the name is the tail of the path, and shares its bytes.
    fn add_entry(&mut self, name: &CStr, path: &CStr) -> (u32, u32) {
        let value = self.add(path);
        let key = match path.to_bytes().strip_suffix(name.to_bytes()) {
            Some(directory) => value + to_u32(directory.len()),
            None => self.add(name),
        };
        (key, value)
    }
}

/// A number of the file. What is read is at most [`super::LARGEST`], what is written a small multiple of it.
pub(super) fn to_u32(number: usize) -> u32 {
    u32::try_from(number).expect("a linker cache is far below 4 GiB")
}
