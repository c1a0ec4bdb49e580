//! Reads a linker cache as the loader would: what the loader refuses is refused, what it does not follow is left out,
//! and what `ldconfig` never writes cannot make the reader slow or large. Pure.

use std::ffi::CStr;

use super::extension::Extension;
use super::{Cache, Damaged, Entry, LARGEST, Row, order};

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
pub(super) const NEW_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_HEADER: usize = 16;
pub(super) const NEW_HEADER: usize = 48;
const OLD_ROW: usize = 12;
pub(super) const NEW_ROW: usize = 24;
/// The order of bytes in the new header's flags.
pub(super) const LITTLE_ENDIAN: u8 = 2;

/// How many times the size of the file its strings may fill when taken apart. `ldconfig` lets a name be the tail of
/// its path, so that twice is usual.
const APART: usize = 4;

/// Reads a cache of any format glibc has written since 2.2. Needs memory and time of a small multiple of `bytes`,
/// whatever is in them.
pub fn parse(bytes: &[u8]) -> Result<Cache<'_>, Damaged> {
    let table = Table::find(bytes)?;
    let mut strings = Strings::of(bytes, table.base);
    let mut cache = Cache::default();
    for row in table.rows() {
        let entry = strings.entry(row)?;
        let new = table.row == NEW_ROW;
        let (osversion, hwcap) = if new { (u32_at(row, 12), u64_at(row, 16)) } else { (0, 0) };
        cache.rows.extend(entry.map(|entry| Row { entry, osversion, hwcap }));
    }
    if let Some(extensions) = table.extensions {
        cache.extension = Extension::read(bytes, extensions, &mut strings)?;
    }
    // Caches written by other programs than ldconfig can be sorted otherwise, upwards and by bytes for example
    // (apko did so in 2023). In them the loader finds by luck; sorted it finds all. What ldconfig wrote stays as it is.
    if !cache.rows.is_sorted_by(|a, b| order::libcmp(a.entry.soname, b.entry.soname).is_ge()) {
        cache.rows.sort_by(|a, b| order::total(b.entry.soname, a.entry.soname));
    }
    Ok(cache)
}

/// Where the rows of a cache are: all that its headers say. For a few names in a large cache it need not be [`parse`]d.
#[derive(Debug)]
pub struct Table<'a> {
    bytes: &'a [u8],
    /// As many as the header says, whole.
    rows: &'a [u8],
    /// The size of one.
    row: usize,
    /// Where the offsets of strings count from.
    base: usize,
    /// Where extensions are said to be; the new format alone has any.
    extensions: Option<u32>,
}

impl<'a> Table<'a> {
    /// The table of the newest format in a file; no string of it has been looked at.
    pub fn find(bytes: &'a [u8]) -> Result<Self, Damaged> {
        if bytes.len() > LARGEST {
            return Err(Damaged::TooLarge);
        }
        if bytes.starts_with(NEW_MAGIC) {
            Self::new(bytes, 0)
        } else if bytes.starts_with(OLD_MAGIC) {
            Self::old(bytes)
        } else {
            Err(Damaged::NotACache)
        }
    }

    /// The old format, or the new one within it. The new one begins at the next address where its header can,
    /// which is a multiple of 8; for a 32-bit loader of 4.
    fn old(bytes: &'a [u8]) -> Result<Self, Damaged> {
        let (rows, base) = table(bytes, OLD_HEADER, 12, OLD_ROW)?;
        for start in [base.next_multiple_of(8), base.next_multiple_of(4)] {
            if bytes.get(start..).is_some_and(|rest| rest.starts_with(NEW_MAGIC)) {
                return Self::new(bytes, start);
            }
        }
        Ok(Self { bytes, rows, row: OLD_ROW, base, extensions: None })
    }

    /// The new format, whose header is at `base`. Its string offsets count from there.
    fn new(bytes: &'a [u8], base: usize) -> Result<Self, Damaged> {
        let file = &bytes[base..];
        let (rows, _) = table(file, NEW_HEADER, 20, NEW_ROW)?;
        // Flags: 0 from an ldconfig before 2.33, else the order of bytes in the two low bits.
        if file[28] != 0 && file[28] & 3 != LITTLE_ENDIAN {
            return Err(Damaged::ByteOrder);
        }
        Ok(Self { bytes, rows, row: NEW_ROW, base, extensions: Some(u32_at(file, 32)) })
    }

    /// The paths of the libraries with these [`Entry::flags`] whose names begin so, in the file's order.
    pub fn paths(&self, begins: &str, flags: i32) -> impl Iterator<Item = &'a CStr> {
        let string = |offset: u32| self.bytes.get(self.base + offset as usize..).unwrap_or_default();
        let wanted = move |row: &&[u8]| {
            let name = string(u32_at(row, 4));
            u32_at(row, 0).cast_signed() == flags && name.starts_with(begins.as_bytes())
        };
        let path = move |row| CStr::from_bytes_until_nul(string(u32_at(row, 8))).ok();
        self.rows().filter(wanted).filter_map(path)
    }

    fn rows(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.rows.chunks_exact(self.row)
    }
}

/// The rows of `size` bytes after a header, as many as the number at `count` says, and where they end.
fn table(file: &[u8], header: usize, count: usize, size: usize) -> Result<(&[u8], usize), Damaged> {
    let rest = file.get(header..).ok_or(Damaged::Truncated)?;
    let length = usize::try_from(u32_at(file, count)).ok().and_then(|count| count.checked_mul(size));
    let rows = length.and_then(|length| rest.get(..length)).ok_or(Damaged::Truncated)?;
    Ok((rows, header + rows.len()))
}

/// The strings of a file. Each is looked at where it lies, so that none is copied; how much they come to is counted,
/// since many offsets can point into one long string.
pub(super) struct Strings<'a> {
    /// The file as far as its last NUL, so that whatever begins in it ends in it.
    text: &'a [u8],
    /// Where the offsets of entries count from.
    base: usize,
    /// Bytes that may still come.
    left: usize,
}

impl<'a> Strings<'a> {
    fn of(file: &'a [u8], base: usize) -> Self {
        let end = file.iter().rposition(|byte| *byte == 0).map_or(0, |last| last + 1);
        Self { text: &file[..end], base, left: file.len() * APART }
    }

    /// The string at this offset from the start of the file; `None` if that is outside.
    pub(super) fn at(&mut self, offset: usize) -> Result<Option<&'a CStr>, Damaged> {
        let string = self.text.get(offset..).and_then(|rest| CStr::from_bytes_until_nul(rest).ok());
        let length = string.map_or(0, |string| string.count_bytes() + 1);
        self.left = self.left.checked_sub(length).ok_or(Damaged::Overlapping)?;
        Ok(string)
    }

    /// The string at this offset from where those of entries count.
    pub(super) fn at_base(&mut self, offset: u32) -> Result<Option<&'a CStr>, Damaged> {
        // Both are far below usize::MAX: the base is in the file, which is not larger than LARGEST.
        self.at(self.base + offset as usize)
    }

    /// The entry in a row of either format; `None` if its strings are not in the file.
    fn entry(&mut self, row: &[u8]) -> Result<Option<Entry<'a>>, Damaged> {
        let (soname, path) = (self.at_base(u32_at(row, 4))?, self.at_base(u32_at(row, 8))?);
        let flags = u32_at(row, 0).cast_signed();
        Ok(soname.zip(path).map(|(soname, path)| Entry { soname, path, flags }))
    }
}

/// The number at this place of a row or header, which is there.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}
