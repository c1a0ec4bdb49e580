//! ELF read as data: what kind of file it is, its SONAME, its notes. Nothing is mapped, loaded or run, and
//! no number in the file is believed: an image may bring any bytes under the name of a library. Reads the
//! file it is given, a few kilobytes of it at most; little-endian files of both classes.
//!
//! Own code, since the question is small and the well-kept readers ask for more than it is worth: the whole
//! file in memory, or mapped, where a file that shrinks meanwhile ends the process with SIGBUS.
//!
//! The layouts are those of elf(5); names of fields are the field's own there.

use std::io;
use std::os::fd::OwnedFd;

mod note;

pub use note::Note;

/// The largest table that is read (program headers, dynamic section, notes), in bytes. Those of the driver's
/// libraries have less than a hundredth of it.
const TABLE_LIMIT: usize = 64 << 10;

/// The longest SONAME, in bytes: that of a file name (`NAME_MAX`).
const NAME_LIMIT: u64 = 255;

/// What is read first, in bytes: in real files the headers, and often the notes, lie in it.
const HEAD: usize = 4096;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;

/// A file of which any part can be read.
pub trait ReadAt {
    /// Reads some bytes from `offset` on into `buffer` and says how many; none at the end of the file.
    ///
    /// # Errors
    /// The kernel's.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for OwnedFd {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::pread(self, &mut *buffer, offset))?)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// 32-bit or 64-bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `ELFCLASS32`
    Bits32,
    /// `ELFCLASS64`
    Bits64,
}

/// The processor that a file is for (`e_machine`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine(pub u16);

impl Machine {
    /// `EM_386`
    pub const I386: Self = Self(3);
    /// `EM_ARM`
    pub const ARM: Self = Self(40);
    /// `EM_X86_64`
    pub const X86_64: Self = Self(62);
    /// `EM_AARCH64`
    pub const AARCH64: Self = Self(183);
    /// That of this host: vgpu runs on two.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") { Self::AARCH64 } else { Self::X86_64 };
}

/// An ELF file whose headers could be read.
#[derive(Debug)]
pub struct Elf<'f, F: ?Sized> {
    bytes: Bytes<'f, F>,
    machine: Machine,
    segments: Vec<Segment>,
    sections: Sections,
}

/// A program header (`Elf64_Phdr`) of a kind that is looked at here.
#[derive(Debug)]
struct Segment {
    kind: u32,
    address: u64,
    place: Place,
}

/// Where the section headers are said to be.
#[derive(Debug)]
struct Sections {
    offset: u64,
    count: u16,
    entry_size: u16,
    /// Which of them has their names (`e_shstrndx`).
    names: u16,
}

/// A piece of the file, as the file says.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    size: u64,
    align: u64,
}

impl<'f, F: ReadAt + ?Sized> Elf<'f, F> {
    /// Reads the headers.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`], with a text that reads on after the file's name, where it is not a
    /// little-endian ELF file or is damaged; the kernel's where it cannot be read.
    pub fn read(file: &'f F) -> io::Result<Self> {
        let head = read_some(file, 0, HEAD)?;
        let class = class(&head)?;
        let bytes = Bytes { file, head, class };
        let mut header = bytes.fields(&bytes.head);
        header.skip(16 + 2)?; // e_ident, e_type
        let machine = Machine(header.half()?);
        header.skip(4)?; // e_version
        let _entry = header.address()?;
        let segments = header.address()?;
        let sections = header.address()?;
        header.skip(6)?; // e_flags, e_ehsize
        let (segment_size, segment_count) = (header.half()?, header.half()?);
        let (entry_size, count, names) = (header.half()?, header.half()?, header.half()?);

        let table = bytes.table(segments, u64::from(segment_size) * u64::from(segment_count))?;
        let segments = entries(&table, segment_size).map(|entry| Segment::read(bytes.fields(entry)));
        Ok(Self {
            machine,
            segments: segments.collect::<io::Result<_>>()?,
            sections: Sections { offset: sections, count, entry_size, names },
            bytes,
        })
    }

    /// 32-bit or 64-bit.
    pub fn class(&self) -> Class {
        self.bytes.class
    }

    /// The processor that it is for.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The name under which a linker looks for it (`DT_SONAME`), where it has one.
    ///
    /// # Errors
    /// As [`Elf::read`]; also where the name has more than 255 bytes or is not UTF-8.
    pub fn soname(&self) -> io::Result<Option<String>> {
        match self.dynamic([DT_SONAME, DT_STRTAB])? {
            [None, _] => Ok(None),
            [Some(_), None] => Err(damaged("has a SONAME and no strings")),
            [Some(offset), Some(strings)] => self.string(strings, offset).map(Some),
        }
    }

    /// What the dynamic section says of these; the last that it says.
    fn dynamic<const N: usize>(&self, tags: [u64; N]) -> io::Result<[Option<u64>; N]> {
        let mut found = [None; N];
        let Some(dynamic) = self.segments.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
            return Ok(found);
        };
        let table = self.bytes.table(dynamic.place.offset, dynamic.place.size)?;
        let mut fields = self.bytes.fields(&table);
        while !fields.bytes.is_empty() {
            let (tag, value) = (fields.address()?, fields.address()?);
            if tag == DT_NULL {
                break;
            }
            if let Some(at) = tags.iter().position(|wanted| *wanted == tag) {
                found[at] = Some(value);
            }
        }
        Ok(found)
    }

    /// Every string that a linker may need of it: names of symbols, of their versions, of libraries. Each ends with a NUL.
    /// None of a file that is not linked dynamically.
    ///
    /// # Errors
    /// As [`Elf::read`].
    pub fn strings(&self) -> io::Result<Vec<u8>> {
        let [strings, size] = self.dynamic([DT_STRTAB, DT_STRSZ])?;
        let (Some(strings), Some(size)) = (strings, size) else { return Ok(Vec::new()) };
        let place = self.loaded(strings)?;
        self.bytes.table(place.offset, size.min(place.size))
    }

    /// The string at this offset of the string table that is loaded at `strings`.
    fn string(&self, strings: u64, offset: u64) -> io::Result<String> {
        let address = strings.checked_add(offset).ok_or_else(outside)?;
        let Place { offset, size, .. } = self.loaded(address)?;
        let longest = size.min(NAME_LIMIT + 1);
        let bytes = read_some(self.bytes.file, offset, longest as usize)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| damaged("has a SONAME without an end"))?;
        let name = std::str::from_utf8(&bytes[..end]);
        Ok(name.map_err(|_| damaged("has a SONAME that is not UTF-8"))?.to_owned())
    }

    /// What of the file is loaded at this address, up to the end of its segment.
    fn loaded(&self, address: u64) -> io::Result<Place> {
        let loads = self.segments.iter().filter(|segment| segment.kind == PT_LOAD);
        let within = loads.filter_map(|Segment { address: start, place, .. }| {
            let skipped = address.checked_sub(*start)?;
            let size = place.size.checked_sub(skipped).filter(|left| *left > 0)?;
            Some(Place { offset: place.offset.checked_add(skipped)?, size, ..*place })
        });
        within.into_iter().next().ok_or_else(outside)
    }
}

impl Segment {
    fn read(mut fields: Fields<'_>) -> io::Result<Self> {
        let kind = fields.word()?;
        if fields.class == Class::Bits64 {
            fields.skip(4)?; // p_flags, which 32-bit files have further behind
        }
        let (offset, address) = (fields.address()?, fields.address()?);
        let _physical = fields.address()?;
        let (size, _in_memory) = (fields.address()?, fields.address()?);
        if fields.class == Class::Bits32 {
            fields.skip(4)?;
        }
        let align = fields.address()?;
        Ok(Self { kind, address, place: Place { offset, size, align } })
    }
}

/// The entries of a table; none where their size is said to be 0.
fn entries(table: &[u8], size: u16) -> impl Iterator<Item = &[u8]> {
    table.chunks_exact(usize::from(size).max(1))
}

/// The file, what has been read of it already, and how its numbers are written.
#[derive(Debug)]
struct Bytes<'f, F: ?Sized> {
    file: &'f F,
    head: Vec<u8>,
    class: Class,
}

impl<F: ReadAt + ?Sized> Bytes<'_, F> {
    /// All of a table, wherever the file says that it is.
    fn table(&self, offset: u64, size: u64) -> io::Result<Vec<u8>> {
        let size = usize::try_from(size).ok().filter(|size| *size <= TABLE_LIMIT).ok_or_else(too_large)?;
        let start = usize::try_from(offset).map_err(|_| outside())?;
        if let Some(read) = start.checked_add(size).and_then(|end| self.head.get(start..end)) {
            return Ok(read.to_vec());
        }
        let bytes = read_some(self.file, offset, size)?;
        if bytes.len() < size { Err(outside()) } else { Ok(bytes) }
    }

    fn fields<'b>(&self, bytes: &'b [u8]) -> Fields<'b> {
        Fields { bytes, class: self.class }
    }
}

/// Up to `size` bytes: fewer only where the file ends.
fn read_some(file: &(impl ReadAt + ?Sized), offset: u64, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    let mut filled = 0;
    while filled < size {
        let offset = offset.checked_add(filled as u64).filter(|offset| *offset <= i64::MAX as u64);
        match file.read_at(offset.ok_or_else(outside)?, &mut bytes[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// `e_ident`: magic number, class, byte order.
fn class(head: &[u8]) -> io::Result<Class> {
    const LITTLE_ENDIAN: u8 = 1;
    match head {
        [0x7f, b'E', b'L', b'F', 1, LITTLE_ENDIAN, ..] => Ok(Class::Bits32),
        [0x7f, b'E', b'L', b'F', 2, LITTLE_ENDIAN, ..] => Ok(Class::Bits64),
        _ => Err(damaged("is not a little-endian ELF file")),
    }
}

/// Fields of a structure, one after the other.
struct Fields<'b> {
    bytes: &'b [u8],
    class: Class,
}

impl<'b> Fields<'b> {
    fn take(&mut self, size: usize) -> io::Result<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(size).ok_or_else(outside)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or_else(outside)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn skip(&mut self, size: usize) -> io::Result<()> {
        self.take(size).map(|_| ())
    }

    fn skip_at_most(&mut self, size: usize) {
        self.bytes = &self.bytes[size.min(self.bytes.len())..];
    }

    fn half(&mut self) -> io::Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn word(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// An address, offset or size: as wide as the class says.
    fn address(&mut self) -> io::Result<u64> {
        match self.class {
            Class::Bits32 => self.word().map(u64::from),
            Class::Bits64 => self.array().map(u64::from_le_bytes),
        }
    }
}

fn damaged(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn outside() -> io::Error {
    damaged("is damaged: it refers to what is not in it")
}

fn too_large() -> io::Error {
    damaged("is damaged: it says that a table in it has more than 64 KiB")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    const OWNER: &str = "NVIDIA Corporation";
    const SECTION: &str = ".note.test";

    /// Two notes of the owner, another one between them, none of them of a round size.
    const NOTES: &str = r#"
        .long 19, 3, 1
        .asciz "NVIDIA Corporation"
        .balign ALIGN
        .ascii "abc"
        .balign ALIGN
        .long 4, 5, 1
        .asciz "GNU"
        .balign ALIGN
        .ascii "other"
        .balign ALIGN
        .long 19, 1, 2
        .asciz "NVIDIA Corporation"
        .balign ALIGN
        .ascii "z"
    "#;

    /// A shared object, by the compiler and linker of this machine.
    fn shared_object(options: &[&str], assembly: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("object");
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-nostdlib", "-x", "assembler", "-", "-o"]).arg(&path).args(options);
        let mut gcc = gcc.stdin(Stdio::piped()).spawn().unwrap();
        gcc.stdin.take().unwrap().write_all(assembly.as_bytes()).unwrap();
        assert!(gcc.wait().unwrap().success());
        std::fs::read(path).unwrap()
    }

    fn with_notes(flags: &str, align: u32) -> Vec<u8> {
        let section = format!(".section .note.test,\"{flags}\",%note\n.balign ALIGN\n{NOTES}");
        let assembly = section.replace("ALIGN", &align.to_string());
        shared_object(&["-Wl,-soname,libcuda.so.1", "-Wl,--build-id=sha1"], &assembly)
    }

    fn soname(file: &[u8]) -> io::Result<Option<String>> {
        Elf::read(file)?.soname()
    }

    fn notes(file: &[u8], owner: &str) -> io::Result<Vec<(u32, String)>> {
        let notes = Elf::read(file)?.notes(SECTION, owner)?;
        Ok(notes.into_iter().map(|n| (n.kind, String::from_utf8(n.description).unwrap())).collect())
    }

    #[test]
    fn a_library_of_this_machine() {
        let file = shared_object(&["-Wl,-soname,libcuda.so.1"], "");
        let elf = Elf::read(&file[..]).unwrap();
        let machine = if cfg!(target_arch = "aarch64") { Machine::AARCH64 } else { Machine::X86_64 };
        assert_eq!((elf.class(), elf.machine()), (Class::Bits64, machine));
        assert_eq!(elf.soname().unwrap().unwrap(), "libcuda.so.1");
        assert_eq!(soname(&shared_object(&[], "")).unwrap(), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_32_bit_library() {
        let notes_of_it = format!(".section .note.test,\"a\",%note\n{}", NOTES.replace("ALIGN", "4"));
        let file = shared_object(&["-m32", "-Wl,-soname,libcuda.so.1"], &notes_of_it);
        let elf = Elf::read(&file[..]).unwrap();
        assert_eq!((elf.class(), elf.machine()), (Class::Bits32, Machine::I386));
        assert_eq!(elf.soname().unwrap().unwrap(), "libcuda.so.1");
        assert_eq!(notes(&file, OWNER).unwrap().len(), 2);
    }

    #[test]
    fn a_library_and_a_program_of_this_host() {
        let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        assert_eq!(Elf::read(&file).unwrap().soname().unwrap(), None);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().filter_map(|line| line.split(' ').next_back());
        let libc = libc.into_iter().find(|path| path.ends_with("/libc.so.6")).expect("glibc");
        let file: OwnedFd = std::fs::File::open(libc).unwrap().into();
        let libc = Elf::read(&file).unwrap();
        assert_eq!(libc.soname().unwrap().unwrap(), "libc.so.6");
        const NT_GNU_BUILD_ID: u32 = 3;
        assert!(
            libc.notes(".note.gnu.build-id", "GNU").unwrap().iter().any(|note| note.kind == NT_GNU_BUILD_ID)
        );
    }

    #[test]
    fn notes_of_an_owner_loaded_or_not() {
        let both = Ok(vec![(1, "abc".to_owned()), (2, "z".to_owned())]);
        for (flags, align) in [("a", 4), ("a", 8), ("", 4), ("", 8)] {
            let file = with_notes(flags, align);
            let found = notes(&file, OWNER).map_err(|e| e.to_string());
            assert_eq!(found, both, "flags {flags:?}, align {align}");
            assert_eq!(notes(&file, "NVIDIA").unwrap(), []);
            let elf = Elf::read(&file[..]).unwrap();
            for other in [".note", ".note.test2", "note.test", "", ".text"] {
                assert_eq!(elf.notes(other, OWNER).unwrap(), [], "{other}");
            }
        }
    }

    /// What is of no kind of notes is none, whatever its name; of two sections of one name it is the first.
    #[test]
    fn notes_are_in_the_first_section_of_notes() {
        let section = |kind: &str, n: u32, text: &str| {
            let note = format!(".long 19, 1, 1\n.asciz \"{OWNER}\"\n.balign 4\n.ascii \"{text}\"\n");
            format!(".section {SECTION},\"\",{kind},unique,{n}\n.balign 4\n{note}")
        };
        let sections = [section("%progbits", 1, "a"), section("%note", 2, "b"), section("%note", 3, "c")];
        let file = shared_object(&["-Wl,--unique=.note.test"], &sections.concat());
        assert_eq!(notes(&file, OWNER).unwrap(), [(1, "b".to_owned())]);
    }

    #[test]
    fn what_is_no_elf_file() {
        let real = shared_object(&["-Wl,-soname,libcuda.so.1"], "");
        let big_endian = [&real[..5], &[2], &real[6..]].concat();
        for other in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &real[..63], &real[..200], &big_endian] {
            let error = soname(other).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }

    /// A 64-bit file of nothing but program headers, (kind, offset, address, size), and what is put behind.
    fn handmade(segments: &[(u32, u64, u64, u64)], behind: &[u8]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        let mut words = |words: &[u64]| words.iter().for_each(|word| file.extend(word.to_le_bytes()));
        words(&[u64::from(Machine::X86_64.0) << 16 | 3, 0, 64, 0]); // type and machine, entry, phoff, shoff
        let count = segments.len() as u64;
        words(&[(64 << 32) | (56 << 48), count]); // flags, ehsize and phentsize; phnum, and no sections
        for (kind, offset, address, size) in segments {
            words(&[u64::from(*kind), *offset, *address, *address, *size, *size, 4]);
        }
        file.resize(BEHIND as usize, 0);
        file.extend(behind);
        file
    }

    /// Where [`handmade`] puts what is behind the headers.
    const BEHIND: u64 = 0x1000;

    /// A dynamic section with these entries, and a string behind it.
    fn dynamic(entries: &[(u64, u64)], string: &[u8]) -> Vec<u8> {
        let entries = entries.iter().flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()]);
        entries.flatten().chain(string.iter().copied()).collect()
    }

    #[test]
    fn a_name_lies_where_it_is_loaded() {
        let entries = [(DT_STRTAB, 0x5000), (DT_SONAME, 32), (DT_NULL, 0)];
        let behind = dynamic(&entries[..2], b"name.so\0");
        let segment = (PT_DYNAMIC, BEHIND, 0x9000, 32);
        let load = (PT_LOAD, BEHIND, 0x5000, 40);
        let read = |segments: &[_], behind: &[u8]| soname(&handmade(segments, behind));
        let lower = (PT_LOAD, 0, 0x4000, 0x1000);
        assert_eq!(read(&[lower, load, segment], &behind).unwrap().unwrap(), "name.so");
        let wrong = |segments: &[_], what| {
            let error = read(segments, &behind).unwrap_err();
            assert_eq!(
                (error.kind(), error.to_string().contains(what)),
                (io::ErrorKind::InvalidData, true),
                "{error}"
            );
        };
        wrong(&[segment], "not in it");
        wrong(&[(PT_LOAD, BEHIND, 0x5000, 39), segment], "without an end");
        wrong(&[(PT_LOAD, u64::MAX, 0x5000, 40), segment], "not in it");
        wrong(&[(PT_LOAD, u64::MAX - 40, 0x5000, 40), segment], "not in it");
        wrong(&[(PT_LOAD, BEHIND, 0x5021, 40), segment], "not in it");
        wrong(&[load, (PT_DYNAMIC, BEHIND, 0x9000, 31)], "not in it");
        // What is behind the end of the section is not of it.
        let ended = dynamic(&[(DT_NULL, 0), (DT_SONAME, 32), (DT_STRTAB, 0x5000)], b"");
        assert_eq!(read(&[load, (PT_DYNAMIC, BEHIND, 0x9000, 48)], &ended).unwrap(), None);
        let without = dynamic(&[(DT_SONAME, 32), (DT_NULL, 0)], b"");
        assert!(read(&[load, segment], &without).unwrap_err().to_string().contains("no strings"));
    }

    #[test]
    fn a_name_is_as_long_as_that_of_a_file() {
        for (length, fits) in [(255, true), (256, false)] {
            let name = "x".repeat(length);
            let found = soname(&shared_object(&[&format!("-Wl,-soname,{name}")], ""));
            assert_eq!(found.ok(), fits.then_some(Some(name)));
        }
    }

    #[test]
    fn sizes_are_not_believed() {
        let read = |segment| soname(&handmade(&[segment], b"")).unwrap_err().kind();
        for (offset, size) in [
            (0, u64::MAX),
            (0, 1 << 40),
            (0, TABLE_LIMIT as u64 + 1),
            (u64::MAX, 16),
            (u64::MAX - 15, 16),
            (1 << 40, 16),
            (BEHIND - 8, 16),
        ] {
            assert_eq!(
                read((PT_DYNAMIC, offset, 0, size)),
                io::ErrorKind::InvalidData,
                "{offset:x} {size:x}"
            );
        }
        // The kernel takes no offset beyond that of the largest file: it is not asked.
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&handmade(&[(PT_DYNAMIC, u64::MAX - 15, 0, 16)], b"")).unwrap();
        let file = OwnedFd::from(file);
        assert_eq!(Elf::read(&file).unwrap().soname().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    /// A file that counts what is read of it.
    struct Counted<'f> {
        bytes: &'f [u8],
        read: Cell<usize>,
    }

    impl ReadAt for Counted<'_> {
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.bytes.read_at(offset, buffer)?;
            self.read.set(self.read.get() + n);
            Ok(n)
        }
    }

    /// Real files, and where in them the fields are that something depends on.
    static REAL: LazyLock<Vec<(Vec<u8>, Vec<usize>)>> = LazyLock::new(|| {
        let files = [with_notes("a", 4), with_notes("", 8), shared_object(&["-Wl,-soname,x"], "")];
        files
            .into_iter()
            .map(|file| {
                let fields = fields(&file);
                (file, fields)
            })
            .collect()
    });

    fn fields(file: &[u8]) -> Vec<usize> {
        let elf = Elf::read(file).unwrap();
        let Sections { offset, count, entry_size, .. } = elf.sections;
        let headers = Place { offset: 0, size: 64 + 56 * elf.segments.len() as u64, align: 0 };
        let sections = Place { offset, size: u64::from(count) * u64::from(entry_size), align: 0 };
        let segments = elf.segments.iter().filter(|segment| segment.kind != PT_LOAD);
        let places = segments.map(|segment| segment.place).chain(elf.note_section(SECTION).unwrap());
        let all = places.chain([headers, sections]).flat_map(|place| place.offset..place.offset + place.size);
        all.map(|at| at as usize & !3).filter(|at| at + 4 <= file.len()).collect()
    }

    /// Numbers at which sums overflow and limits end, and any other.
    fn numbers() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            Just(u64::MAX),
            Just(i64::MAX as u64),
            Just(u64::from(u32::MAX)),
            any::<u64>(),
            0..0x4000u64,
        ]
    }

    /// Changes: of a field, or anywhere; how many bytes; to what.
    fn changes() -> impl Strategy<Value = Vec<(bool, prop::sample::Index, usize, u64)>> {
        let size = prop_oneof![Just(4usize), Just(8), 1..8usize];
        prop::collection::vec(
            (prop::bool::weighted(0.8), any::<prop::sample::Index>(), size, numbers()),
            1..6,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn no_bytes_make_it_panic_or_read_much(
            which in 0usize..3,
            changes in changes(),
            end in prop_oneof![4 => Just(usize::MAX), 1 => 0usize..0x4000],
        ) {
            let (mut bytes, fields) = REAL[which].clone();
            for (of_field, index, size, number) in changes {
                let at = if of_field { *index.get(&fields) } else { index.index(bytes.len()) };
                let size = size.min(bytes.len() - at);
                bytes[at..at + size].copy_from_slice(&number.to_le_bytes()[..size]);
            }
            bytes.truncate(end);
            let file = Counted { bytes: &bytes, read: Cell::new(0) };
            if let Ok(elf) = Elf::read(&file) {
                if let Ok(Some(name)) = elf.soname() {
                    prop_assert!(name.len() <= 255 && !name.contains('\0'));
                }
                if let Ok(notes) = elf.notes(SECTION, OWNER) {
                    prop_assert!(notes.iter().map(|note| note.description.len()).sum::<usize>() <= TABLE_LIMIT);
                }
            }
            prop_assert!(file.read.get() <= 6 * TABLE_LIMIT, "{} bytes read", file.read.get());
        }
    }
}
