//! What glibc since 2.33 keeps behind the strings of a cache: the names of glibc-hwcaps directories, which entries refer
//! to by index, and since 2.44 the tunables of `/etc/tunables.conf`. Read, and written again at other offsets. Pure.
//!
//! Each section is taken under the conditions under which the loader takes it. Sections of other kinds are left out:
//! they may hold offsets nobody here knows of, and a wrong one is worse than a missing section.

use std::ffi::CStr;

use super::Damaged;
use super::read::{Strings, u32_at, u64_at};
use super::write::{StringTable, put, to_u32};

const MAGIC: u32 = 0xeaa4_2174;
/// The bytes of the directory's header (magic, count), and of each section in it (tag, flags, offset, size).
const HEADER: usize = 8;
const SECTION: usize = 16;

/// Tags of sections.
const GENERATOR: u32 = 0;
const HWCAPS: u32 = 1;
const TUNABLES: u32 = 2;

/// Who wrote the cache; `ldconfig -p` prints it.
const OURS: &[u8] = concat!("vgpu ", env!("CARGO_PKG_VERSION")).as_bytes();

/// The first words of the tunables, a signature and a version: only this layout is known.
const TUNABLES_LAYOUT: [u32; 2] = [0x7c3b_a94f, 0x0100_0000];
const TUNABLES_HEADER: usize = 16;
const TUNABLE: usize = 32;

/// The sections of a cache; empty where it has none.
#[derive(Clone, Debug, Default)]
pub(super) struct Extension<'a> {
    /// The order is what entries refer to, and sorted, as the loader needs it.
    hwcaps: Vec<&'a CStr>,
    tunables: Vec<Tunable<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Tunable<'a> {
    /// Flags and the number of the tunable.
    kind: [u32; 2],
    name: &'a CStr,
    value: &'a CStr,
    /// For which program; `None` for all.
    program: Option<&'a CStr>,
    /// The value as a number.
    parsed: u64,
}

impl<'a> Extension<'a> {
    /// The sections of the directory at `offset` of `file`. A directory that the loader would not take is none.
    pub(super) fn read(file: &'a [u8], offset: u32, strings: &mut Strings<'a>) -> Result<Self, Damaged> {
        let mut extension = Self::default();
        for (tag, section) in directory(file, offset).unwrap_or_default() {
            match tag {
                HWCAPS => extension.hwcaps = hwcaps(section, strings)?.unwrap_or_default(),
                TUNABLES => extension.tunables = tunables(section, strings)?.unwrap_or_default(),
                _ => {}
            }
        }
        Ok(extension)
    }

    /// The sections to write, their strings put into `strings`.
    pub(super) fn sections(&self, strings: &mut StringTable) -> Vec<Section> {
        let mut sections = vec![Section { tag: GENERATOR, align: 1, data: OURS.to_vec() }];
        if !self.hwcaps.is_empty() {
            let mut data = Vec::new();
            self.hwcaps.iter().for_each(|name| put(&mut data, &[strings.add(name)]));
            sections.push(Section { tag: HWCAPS, align: 4, data });
        }
        if !self.tunables.is_empty() {
            let [signature, version] = TUNABLES_LAYOUT;
            let mut data = Vec::new();
            put(&mut data, &[signature, version, to_u32(self.tunables.len()), 0]);
            for tunable in &self.tunables {
                tunable.put(&mut data, strings);
            }
            sections.push(Section { tag: TUNABLES, align: 8, data });
        }
        sections
    }
}

impl Tunable<'_> {
    fn put(&self, data: &mut Vec<u8>, strings: &mut StringTable) {
        let [flags, number] = self.kind;
        let program = self.program.map_or(0, |program| strings.add(program));
        put(data, &[flags, number, strings.add(self.name), strings.add(self.value), program, 0]);
        data.extend_from_slice(&self.parsed.to_le_bytes());
    }
}

/// A section to be written.
pub(super) struct Section {
    tag: u32,
    /// Its offset in the file is a multiple of this.
    align: usize,
    data: Vec<u8>,
}

/// Appends the directory and its sections to the file, at the next multiple of 4.
pub(super) fn append(file: &mut Vec<u8>, sections: &[Section]) {
    pad(file, 4);
    let mut offset = file.len() + HEADER + SECTION * sections.len();
    put(file, &[MAGIC, to_u32(sections.len())]);
    for section in sections {
        offset = offset.next_multiple_of(section.align);
        put(file, &[section.tag, 0, to_u32(offset), to_u32(section.data.len())]);
        offset += section.data.len();
    }
    for section in sections {
        pad(file, section.align);
        file.extend_from_slice(&section.data);
    }
}

fn pad(file: &mut Vec<u8>, align: usize) {
    file.resize(file.len().next_multiple_of(align), 0);
}

/// Tag and data of every section; `None` if the loader would not take the directory.
fn directory(file: &[u8], offset: u32) -> Option<Vec<(u32, &[u8])>> {
    if offset == 0 || !offset.is_multiple_of(4) {
        return None;
    }
    let directory = file.get(offset as usize..).filter(|rest| rest.len() >= HEADER)?;
    let (magic, count) = (u32_at(directory, 0), u32_at(directory, 4) as usize);
    let sections = directory[HEADER..].get(..count.checked_mul(SECTION)?)?;
    if magic != MAGIC {
        return None;
    }
    sections.chunks_exact(SECTION).map(|section| read_section(file, section)).collect()
}

/// Tag and data of a section; no data where it is not aligned as the loader wants it.
fn read_section<'a>(file: &'a [u8], section: &[u8]) -> Option<(u32, &'a [u8])> {
    let [tag, offset, size] = [0, 8, 12].map(|at| u32_at(section, at));
    let data = file.get(offset as usize..)?.get(..size as usize)?;
    let align = match tag {
        HWCAPS => 4,
        TUNABLES => 8,
        _ => 1,
    };
    let aligned = offset.is_multiple_of(align) && size.is_multiple_of(align);
    Some((tag, if aligned { data } else { &[] }))
}

/// The names, unless one is outside the file.
fn hwcaps<'a>(data: &[u8], strings: &mut Strings<'a>) -> Result<Option<Vec<&'a CStr>>, Damaged> {
    // Offsets from the start of the file, in every format: so the loader reads them. (An `ldconfig -c compat` of
    // glibc 2.33 to 2.44 writes them as if they counted from the new header, and no name is found.)
    data.chunks_exact(4).map(|word| strings.at(u32_at(word, 0) as usize)).collect()
}

/// The tunables, unless their layout is not known or a string is outside the file.
fn tunables<'a>(data: &[u8], strings: &mut Strings<'a>) -> Result<Option<Vec<Tunable<'a>>>, Damaged> {
    let Some((head, rows)) = data.split_at_checked(TUNABLES_HEADER) else {
        return Ok(None);
    };
    let known = [u32_at(head, 0), u32_at(head, 4)] == TUNABLES_LAYOUT;
    if !known || (u32_at(head, 8) as usize).checked_mul(TUNABLE) != Some(rows.len()) {
        return Ok(None);
    }
    rows.chunks_exact(TUNABLE).map(|row| tunable(row, strings)).collect()
}

fn tunable<'a>(row: &[u8], strings: &mut Strings<'a>) -> Result<Option<Tunable<'a>>, Damaged> {
    let [name, value, program] = [8, 12, 16].map(|at| u32_at(row, at));
    let (Some(name), Some(value)) = (strings.at_base(name)?, strings.at_base(value)?) else {
        return Ok(None);
    };
    let program = match program {
        0 => None,
        offset => match strings.at_base(offset)? {
            None => return Ok(None),
            program => program,
        },
    };
    Ok(Some(Tunable {
        kind: [u32_at(row, 0), u32_at(row, 4)],
        name,
        value,
        program,
        parsed: u64_at(row, 24),
    }))
}
