//! glibc's linker cache, `/etc/ld.so.cache`, as data: read, and written with the driver's libraries in front.
//! Pure: bytes in, bytes out; what is in a container's cache is never run, loaded or trusted.
//!
//! Three formats are read, all that glibc has written since 2.2: the old one of `ld.so-1.7.0` alone, the old one
//! with the new one hidden in its string table (`ldconfig -c compat`, the default before 2.32), the new one alone.
//! Only the new one is written. The loader of every glibc since 2.2 reads it alone, whatever its `ldconfig` writes:
//! that is what its `-c new` was for from the start. (libc5 and glibc 2.0 and 2.1 know only the old one; no NVIDIA driver
//! serves them.)
//!
//! Facts about the format and about what the loader does with it are from glibc's `elf/dl-cache.c`,
//! `elf/cache.c` and `sysdeps/generic/dl-cache.h`, from 2.2 to 2.44.

use std::ffi::CStr;
use std::fmt;

mod extension;
mod order;
mod read;
mod write;

pub use read::{Table, parse};

/// What [`parse`] reads at most, in bytes. A cache of 3,000 libraries has a quarter of a megabyte.
pub const LARGEST: usize = 4 << 20;

/// The [`Entry::flags`] of libraries that a driver has: glibc's word for "a libc6 ELF file of this machine".
pub mod flags {
    /// `EM_X86_64`, 64-bit.
    pub const X86_64: i32 = 0x0303;
    /// `EM_386`; the 32-bit set of an x86-64 driver.
    pub const I386: i32 = 0x0003;
    /// `EM_AARCH64`, 64-bit.
    pub const AARCH64: i32 = 0x0a03;
    /// Those of this machine's own programs.
    pub const NATIVE: i32 = if cfg!(target_arch = "aarch64") { AARCH64 } else { X86_64 };
}

/// A library that programs find by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name that programs ask for, like `libcuda.so.1`.
    pub soname: &'a CStr,
    /// The file, absolute in the container.
    pub path: &'a CStr,
    /// What kind of file that is, one of [`flags`] where it is the driver's. The loader takes an entry only if
    /// it is its own kind.
    pub flags: i32,
}

/// A linker cache. The default is an empty one.
#[derive(Clone, Debug, Default)]
pub struct Cache<'a> {
    /// In the order that the loader's binary search needs.
    rows: Vec<Row<'a>>,
    extension: extension::Extension<'a>,
}

/// An entry as it is in the file.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    entry: Entry<'a>,
    /// The kernel it needs; looked at by glibc before 2.36.
    osversion: u32,
    /// The processor it needs: 0 for any, else bits, or (bit 62 set) an index into the glibc-hwcaps names.
    hwcap: u64,
}

/// Why a file is no linker cache. The loader does without such a file as a whole, except one that is
/// [`Damaged::TooLarge`] or [`Damaged::Overlapping`], which no `ldconfig` writes; an empty cache does in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// It begins like none of the formats.
    NotACache,
    /// It ends before its entries do.
    Truncated,
    /// It was written for, or marked as, another byte order than that of x86-64 and aarch64.
    ByteOrder,
    /// More than [`LARGEST`] bytes.
    TooLarge,
    /// Its strings lie over each other so much that, taken apart, they would fill many times its size.
    Overlapping,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotACache => "it is not a linker cache",
            Self::Truncated => "it is cut off",
            Self::ByteOrder => "it is for a machine of another byte order",
            Self::TooLarge => "it is larger than 4 MiB",
            Self::Overlapping => "its strings lie over each other",
        })
    }
}

impl std::error::Error for Damaged {}

impl<'a> Cache<'a> {
    /// The path that a loader for `flags` finds for `soname` on every processor: that of the first entry which
    /// needs no special one.
    pub fn find(&self, soname: &CStr, flags: i32) -> Option<&'a CStr> {
        let start = self.rows.partition_point(|row| order::libcmp(row.entry.soname, soname).is_gt());
        let named =
            self.rows[start..].iter().take_while(|row| order::libcmp(row.entry.soname, soname).is_eq());
        named.into_iter().find(|row| row.entry.flags == flags && row.hwcap == 0).map(|row| row.entry.path)
    }

    /// The cache without its entries for files beneath `directory`, an absolute path. With vgpu's own directory,
    /// what an earlier merge, or `ldconfig` run in the container, left of another driver is gone.
    #[must_use]
    pub fn without(mut self, directory: &str) -> Self {
        let beneath = |path: &CStr| {
            path.to_bytes().strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
        };
        self.rows.retain(|row| !beneath(row.entry.path));
        self
    }

    /// The bytes of a cache, in the new format, in which a loader of any glibc since 2.2 finds `drivers`, and
    /// everything else as in this one. Where two of `drivers` have the same name and flags, it finds the first.
    ///
    /// A driver's entry goes before every entry of the same name and flags, and none is taken out: merged
    /// again [`without`](Self::without) the driver's, the cache is what it was. It goes before those for
    /// glibc-hwcaps directories too, which `ldconfig` would list first. All loaders stop at the first
    /// entry of their own flags that needs no special processor: those before 2.33 take the first that fits; later
    /// ones go on to compare only while they are among the glibc-hwcaps entries at the head of a name.
    pub fn merge(&self, drivers: &[Entry]) -> Vec<u8> {
        let mut drivers = drivers.to_vec();
        drivers.sort_by(|a, b| order::total(b.soname, a.soname).then(b.flags.cmp(&a.flags)));
        let mut drivers = drivers.into_iter().map(|entry| Row { entry, osversion: 0, hwcap: 0 }).peekable();

        let mut merged = Vec::with_capacity(self.rows.len() + drivers.len());
        for row in &self.rows {
            while let Some(driver) = drivers.next_if(|driver| goes_before(driver.entry, row.entry)) {
                merged.push(driver);
            }
            merged.push(*row);
        }
        merged.extend(drivers);
        write::write(&merged, &self.extension)
    }
}

/// Is the driver's entry before the image's? `ldconfig` lists names downwards, and of one name flags downwards.
fn goes_before(driver: Entry, image: Entry) -> bool {
    order::libcmp(driver.soname, image.soname).then(driver.flags.cmp(&image.flags)).is_ge()
}
