//! Notes: what whoever made a file wrote into it for programs to read (elf(5), "Notes (Nhdr)"). Found by the name of
//! their section, since not all of them are loaded, and a linker leaves those that are not out of the segments.

use std::io;

use super::{Elf, Fields, Place, ReadAt, entries};

const SHT_STRTAB: u32 = 3;
const SHT_NOTE: u32 = 7;

/// One note; its section and owner are what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The owner's own numbering (`n_type`).
    pub kind: u32,
    /// The content, without padding.
    pub description: Vec<u8>,
}

/// A section header (`Elf64_Shdr`), as far as it is looked at here.
struct Section {
    /// Where its name begins in the section of names.
    name: u32,
    kind: u32,
    place: Place,
}

impl<F: ReadAt + ?Sized> Elf<'_, F> {
    /// The notes of this owner (`GNU`, `NVIDIA Corporation`) in the first section of notes that has this name; none
    /// where there is no such section.
    ///
    /// # Errors
    /// As [`Elf::read`]; also where the section, or all names of sections, have more than 64 KiB.
    pub fn notes(&self, section: &str, owner: &str) -> io::Result<Vec<Note>> {
        let Some(place) = self.note_section(section)? else { return Ok(Vec::new()) };
        let bytes = self.bytes.table(place.offset, place.size)?;
        let align = if place.align == 8 { 8 } else { 4 };
        read_notes(self.bytes.fields(&bytes), align, owner.as_bytes())
    }

    pub(super) fn note_section(&self, wanted: &str) -> io::Result<Option<Place>> {
        let sections = self.read_sections()?;
        let names = sections.get(usize::from(self.sections.names));
        let Some(names) = names.filter(|section| section.kind == SHT_STRTAB) else { return Ok(None) };
        let names = self.bytes.table(names.place.offset, names.place.size)?;
        let of_notes = sections.iter().filter(|section| section.kind == SHT_NOTE);
        let found =
            of_notes.into_iter().find(|section| name(&names, section.name) == Some(wanted.as_bytes()));
        Ok(found.map(|section| section.place))
    }

    fn read_sections(&self) -> io::Result<Vec<Section>> {
        let super::Sections { offset, count, entry_size, .. } = self.sections;
        let table = self.bytes.table(offset, u64::from(entry_size) * u64::from(count))?;
        entries(&table, entry_size).map(|entry| Section::read(self.bytes.fields(entry))).collect()
    }
}

impl Section {
    fn read(mut fields: Fields<'_>) -> io::Result<Self> {
        let (name, kind) = (fields.word()?, fields.word()?);
        let (_flags, _address) = (fields.address()?, fields.address()?);
        let (offset, size) = (fields.address()?, fields.address()?);
        fields.skip(8)?; // sh_link, sh_info
        let align = fields.address()?;
        Ok(Self { name, kind, place: Place { offset, size, align } })
    }
}

/// The name that begins here, without its NUL.
fn name(names: &[u8], at: u32) -> Option<&[u8]> {
    names.get(at as usize..)?.split(|byte| *byte == 0).next()
}

/// Header, owner, padding, description, padding; again until fewer bytes are left than a header has.
fn read_notes(mut rest: Fields<'_>, align: usize, owner: &[u8]) -> io::Result<Vec<Note>> {
    const HEADER: usize = 12;
    let mut found = Vec::new();
    while rest.bytes.len() >= HEADER {
        let (name_size, size, kind) = (rest.word()? as usize, rest.word()? as usize, rest.word()?);
        let name = rest.take(name_size)?;
        // What follows begins at a multiple of `align` from the note's start; the last note of a file may
        // lack its padding.
        rest.skip_at_most((HEADER + name_size).next_multiple_of(align) - HEADER - name_size);
        let description = rest.take(size)?;
        rest.skip_at_most(size.next_multiple_of(align) - size);
        if name.strip_suffix(b"\0").unwrap_or(name) == owner {
            found.push(Note { kind, description: description.to_vec() });
        }
    }
    Ok(found)
}
