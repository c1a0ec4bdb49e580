//! Small shared objects, made by hand: enough for `ldconfig` to list and for the loader to map. So there are 32-bit ones
//! without a 32-bit compiler.

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    I386,
}

const DYNAMIC: u64 = 2;
const LOAD: u64 = 1;
const GNU_STACK: u64 = 0x6474_e551;
const READ_WRITE: u64 = 6;

/// A file whose SONAME is this. A 32-bit one says that it needs libc: by that `ldconfig` before 2.37 tells libraries of
/// libc6 from those of libc5.
pub fn shared_object(machine: Machine, soname: &[u8]) -> Vec<u8> {
    let wide = machine == Machine::X86_64;
    let (header, program_header, word) = if wide { (64, 56, 8) } else { (52, 32, 4) };
    let symbols = header + 3 * program_header;
    let hash = symbols + 24;
    let dynamic = hash + 16;
    let strings = dynamic + 8 * 2 * word;
    let text = [b"\0libc.so.6\0", soname, b"\0"].concat();
    let end = strings + text.len() as u64;

    let mut file = Out { wide, bytes: Vec::new() };
    file.bytes.extend(b"\x7fELF");
    file.bytes.extend([if wide { 2 } else { 1 }, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.halves(&[3, if wide { 62 } else { 3 }]);
    file.u32(1);
    file.words(&[0, header, 0]);
    file.u32(0);
    file.halves(&[header, program_header, 3, 0, 0, 0]);

    // Writable, since the loader relocates the dynamic section in place.
    file.program_header(LOAD, 0, end, 0x1000);
    file.program_header(DYNAMIC, dynamic, strings - dynamic, word);
    file.program_header(GNU_STACK, 0, 0, 16);

    file.bytes.extend([0; 24]);
    // One bucket, one symbol, which is none: musl looks into this table whatever it looks for.
    [1, 1, 0, 0].into_iter().for_each(|number| file.u32(number));
    // DT_NEEDED, or DT_DEBUG, which means nothing here; DT_SONAME, STRTAB, STRSZ, SYMTAB, SYMENT, HASH, NULL.
    let needed = if wide { [21, 0] } else { [1, 1] };
    let entries =
        [[14, 11], [5, strings], [10, text.len() as u64], [6, symbols], [11, 24], [4, hash], [0, 0]];
    file.words(&needed);
    file.words(&entries.concat());
    file.bytes.extend(text);
    assert_eq!(file.bytes.len() as u64, end);
    file.bytes
}

struct Out {
    wide: bool,
    bytes: Vec<u8>,
}

impl Out {
    fn halves(&mut self, halves: &[u64]) {
        self.bytes.extend(halves.iter().flat_map(|half| (*half as u16).to_le_bytes()));
    }

    fn u32(&mut self, number: u64) {
        self.bytes.extend((number as u32).to_le_bytes());
    }

    fn words(&mut self, words: &[u64]) {
        for word in words {
            if self.wide { self.bytes.extend(word.to_le_bytes()) } else { self.u32(*word) }
        }
    }

    fn program_header(&mut self, kind: u64, at: u64, size: u64, align: u64) {
        self.u32(kind);
        if self.wide {
            self.u32(READ_WRITE);
            self.words(&[at, at, at, size, size, align]);
        } else {
            self.words(&[at, at, at, size, size, READ_WRITE, align]);
        }
    }
}
