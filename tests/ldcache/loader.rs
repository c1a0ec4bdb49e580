//! What glibc's dynamic loader does with a linker cache, written after its own sources and not after vgpu's: the model
//! that merged caches are tested against. It looks names up one at a time, in the bytes as they are.

use std::cell::LazyCell;
use std::cmp::Ordering;
use std::ffi::c_char;

/// Loaders that differ in how they choose among the entries of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glibc {
    /// 2.3 to 2.32: the first entry whose processor bits are all there.
    Before2_33,
    /// 2.33 to 2.35: the best of the glibc-hwcaps entries at the head, else as before.
    From2_33,
    /// 2.37 to 2.44: no processor bits any more, no kernels. (2.36 has the bits.)
    From2_37,
}

pub const EVERY_GLIBC: [Glibc; 3] = [Glibc::Before2_33, Glibc::From2_33, Glibc::From2_37];

/// A loader on some machine.
#[derive(Clone, Debug)]
pub struct Loader {
    pub glibc: Glibc,
    /// The flags of its own libraries.
    pub flags: i32,
    /// The glibc-hwcaps directories of this processor, best first.
    pub hwcaps: &'static [&'static str],
    /// The processor bits of this machine, for loaders before 2.37.
    pub bits: u64,
    /// Its kernel, for loaders before 2.36: three numbers of a byte each.
    pub kernel: usize,
}

const NEW: &[u8] = b"glibc-ld.so.cache1.1";
const OLD: &[u8] = b"ld.so-1.7.0";

/// Where the entries of a cache are, and what their offsets count from.
struct Table<'a> {
    file: &'a [u8],
    base: usize,
    rows: usize,
    row: usize,
    count: usize,
}

impl<'a> Table<'a> {
    fn of(file: &'a [u8]) -> Option<Self> {
        let new = |base: usize| {
            let count = word(file, base + 20)?;
            let end = (base + 48).checked_add(count.checked_mul(24)?)?;
            let order = *file.get(base + 28)?;
            let taken = end <= file.len() && (order == 0 || order & 3 == 2);
            taken.then_some(Self { file, base, rows: base + 48, row: 24, count })
        };
        if file.starts_with(NEW) {
            return new(0);
        }
        if !file.starts_with(OLD) {
            return None;
        }
        let count = word(file, 12)?;
        let end = 16 + count.checked_mul(12)?;
        let embedded = end.div_ceil(8) * 8;
        if file.get(embedded..).is_some_and(|rest| rest.starts_with(NEW)) {
            return new(embedded);
        }
        (end <= file.len()).then_some(Self { file, base: end, rows: 16, row: 12, count })
    }

    fn field(&self, row: usize, at: usize) -> usize {
        word(self.file, self.rows + row * self.row + at).unwrap()
    }

    fn string(&self, row: usize, at: usize) -> Option<&'a [u8]> {
        string(self.file, self.base + self.field(row, at))
    }

    fn flags(&self, row: usize) -> i32 {
        u32::try_from(self.field(row, 0)).unwrap().cast_signed()
    }

    fn osversion(&self, row: usize) -> usize {
        if self.row == 12 { 0 } else { self.field(row, 12) }
    }

    fn hwcap(&self, row: usize) -> u64 {
        if self.row == 12 { 0 } else { self.field(row, 16) as u64 | (self.field(row, 20) as u64) << 32 }
    }

    /// The glibc-hwcaps names, by index.
    fn names(&self) -> Vec<&'a [u8]> {
        self.section(1)
            .map(|data| {
                data.chunks_exact(4).map(|at| string(self.file, word(at, 0).unwrap()).unwrap()).collect()
            })
            .unwrap_or_default()
    }

    fn section(&self, tag: usize) -> Option<&'a [u8]> {
        let at = word(self.file, self.base + 32).filter(|at| self.row == 24 && *at != 0)?;
        assert_eq!(word(self.file, at), Some(0xeaa4_2174));
        let sections = (0..word(self.file, at + 4)?).map(|i| at + 8 + i * 16);
        let section = sections.into_iter().find(|section| word(self.file, *section) == Some(tag))?;
        let (offset, size) = (word(self.file, section + 8)?, word(self.file, section + 12)?);
        self.file.get(offset..offset + size)
    }
}

impl Loader {
    /// The path that `dlopen(name)` tries.
    pub fn lookup<'a>(&self, file: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
        let table = Table::of(file)?;
        let (mut left, mut right) = (0, table.count);
        while left < right {
            // The middle of the first and the last one that are left; `right` is one behind.
            let middle = (left + right - 1) / 2;
            match libcmp(name, table.string(middle, 4)?) {
                Ordering::Less => left = middle + 1,
                Ordering::Greater => right = middle,
                Ordering::Equal => return self.choose(&table, middle, right, name),
            }
        }
        None
    }

    fn choose<'a>(&self, table: &Table<'a>, found: usize, end: usize, name: &[u8]) -> Option<&'a [u8]> {
        let named = |row: usize| table.string(row, 4).is_some_and(|key| libcmp(name, key) == Ordering::Equal);
        let first = (0..found).rev().take_while(|row| named(*row)).last().unwrap_or(found);
        let names = LazyCell::new(|| table.names());
        let mut best: Option<(usize, &[u8])> = None;
        for row in (first..end).take_while(|row| named(*row)) {
            let wants_newer_kernel = self.glibc != Glibc::From2_37 && table.osversion(row) > self.kernel;
            if table.flags(row) != self.flags || wants_newer_kernel {
                continue;
            }
            let hwcap = table.hwcap(row);
            let path = table.string(row, 8)?;
            // Bit 62, and of the upper half besides only the ten bits of an ISA level.
            let index = ((hwcap >> 32) & !0x3ff == 1 << 30).then_some(hwcap as u32 as usize);
            match (self.glibc, index) {
                (Glibc::From2_33 | Glibc::From2_37, Some(index)) => {
                    let Some(priority) = names.get(index).and_then(|name| self.priority(name)) else {
                        continue;
                    };
                    if best.is_none_or(|(other, _)| priority < other) {
                        best = Some((priority, path));
                    }
                }
                _ if best.is_some() => break,
                (Glibc::From2_37, None) if hwcap != 0 => {}
                _ if hwcap & !self.bits != 0 => {}
                _ => return Some(path),
            }
        }
        best.map(|(_, path)| path)
    }

    fn priority(&self, name: &[u8]) -> Option<usize> {
        self.hwcaps.iter().position(|have| have.as_bytes() == name)
    }
}

/// All names of a cache, in its order.
pub fn names(file: &[u8]) -> Vec<&[u8]> {
    let table = Table::of(file).unwrap();
    (0..table.count).map(|row| table.string(row, 4).unwrap()).collect()
}

/// Flags, number, name, value, program, value as a number.
pub type Tunable<'a> = (usize, usize, &'a [u8], &'a [u8], &'a [u8], usize);

/// The tunables of a cache.
pub fn tunables(file: &[u8]) -> Vec<Tunable<'_>> {
    let table = Table::of(file).unwrap();
    let Some(data) = table.section(2) else { return Vec::new() };
    let address = data.as_ptr().addr() - file.as_ptr().addr();
    assert_eq!(address % 8, 0);
    assert_eq!([word(data, 0), word(data, 4)], [Some(0x7c3b_a94f), Some(0x0100_0000)]);
    assert_eq!(data.len(), 16 + 32 * word(data, 8).unwrap());
    // The loader wants their strings in the string table.
    let start = table.rows + table.count * table.row;
    let strings = start..start + word(file, table.base + 24).unwrap();
    let text = |at: usize| {
        assert!(strings.contains(&(table.base + at)));
        string(file, table.base + at).unwrap()
    };
    data[16..]
        .chunks_exact(32)
        .map(|row| {
            let [flags, number, name, value, program] = [0, 4, 8, 12, 16].map(|at| word(row, at).unwrap());
            let program = if program == 0 { b"" } else { text(program) };
            (flags, number, text(name), text(value), program, word(row, 24).unwrap())
        })
        .collect()
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word) as usize)
}

fn string(file: &[u8], at: usize) -> Option<&[u8]> {
    file.get(at..)?.split(|byte| *byte == 0).next()
}

/// The loader's comparison, byte by byte, with C's `int` and `char`.
pub fn libcmp(mut a: &[u8], mut b: &[u8]) -> Ordering {
    let head = |s: &[u8]| s.first().copied().unwrap_or(0);
    loop {
        let (x, y) = (head(a), head(b));
        match (x.is_ascii_digit(), y.is_ascii_digit()) {
            (true, true) => match take_number(&mut a).wrapping_sub(take_number(&mut b)) {
                0 => continue,
                difference => return difference.cmp(&0),
            },
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) if x != y => return (x as c_char).cmp(&(y as c_char)),
            (false, false) if x == 0 => return Ordering::Equal,
            (false, false) => (a, b) = (&a[1..], &b[1..]),
        }
    }
}

fn take_number(s: &mut &[u8]) -> i32 {
    let digits = s.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = s.split_at(digits);
    *s = rest;
    number.iter().fold(0_i32, |sum, digit| sum.wrapping_mul(10).wrapping_add(i32::from(digit - b'0')))
}
