//! The linker cache of an image with the driver's libraries merged in: against `ldconfig`, which makes and reads such
//! caches, against the dynamic loader itself, and against a model of every loader since glibc 2.3.

#[cfg(target_arch = "x86_64")]
#[path = "ldcache/ldconfig.rs"]
mod ldconfig;
#[cfg(target_arch = "x86_64")]
#[path = "ldcache/library.rs"]
mod library;
#[path = "ldcache/loader.rs"]
mod loader;

use std::ffi::CString;

use loader::{EVERY_GLIBC, Glibc, Loader};
use proptest::prelude::*;
use vgpu::ldcache::{self, Cache, Damaged, Entry, LARGEST, Table, flags};

/// A machine's kernel, as an entry would say it.
const KERNEL: usize = 0x06_01_00;

const ABIS: [i32; 3] = [flags::X86_64, flags::I386, flags::AARCH64];

/// Loaders of every generation, for every ABI, on a plain machine and on one that has everything.
fn loaders() -> Vec<Loader> {
    let machines: [(&'static [&'static str], u64); 3] =
        [(&[], 0), (&["x86-64-v2"], 1 << 2), (&["x86-64-v4", "x86-64-v3", "x86-64-v2"], !(1 << 62))];
    let mut loaders = Vec::new();
    for glibc in EVERY_GLIBC {
        for flags in ABIS {
            loaders.extend(machines.iter().map(|&(hwcaps, bits)| Loader {
                glibc,
                flags,
                hwcaps,
                bits,
                kernel: KERNEL,
            }));
        }
    }
    loaders
}

/// The driver's libraries, in no particular order; some names an image may have too.
fn drivers() -> Vec<Entry<'static>> {
    let entry = |soname, path, flags| Entry { soname, path, flags };
    vec![
        entry(c"libnvidia-ml.so.1", c"/usr/local/nvidia/lib64/libnvidia-ml.so.1", flags::X86_64),
        entry(c"libcuda.so.1", c"/usr/local/nvidia/lib/libcuda.so.1", flags::I386),
        entry(c"libcuda.so.1", c"/usr/local/nvidia/lib64/libcuda.so.1", flags::X86_64),
        entry(c"libcuda.so", c"/usr/local/nvidia/lib64/libcuda.so.535.129.03", flags::X86_64),
        entry(
            c"libnvidia-glcore.so.535.129.03",
            c"/usr/local/nvidia/lib64/libnvidia-glcore.so.535.129.03",
            flags::X86_64,
        ),
    ]
}

/// Every loader finds the first driver of a name and of its own flags, and all else as in `before`.
fn assert_drivers_win(before: &[u8], merged: &[u8], drivers: &[Entry]) {
    let mut names = loader::names(before);
    names.extend(drivers.iter().map(|driver| driver.soname.to_bytes()));
    names.sort();
    names.dedup();
    for loader in loaders() {
        for name in &names {
            let named = |driver: &&Entry| loader::libcmp(driver.soname.to_bytes(), name).is_eq();
            let driver = drivers.iter().filter(named).find(|driver| driver.flags == loader.flags);
            let expected =
                driver.map(|driver| driver.path.to_bytes()).or_else(|| loader.lookup(before, name));
            let found = loader.lookup(merged, name);
            assert!(
                found == expected,
                "{} for {loader:?}: {:?}, not {:?}",
                name.escape_ascii(),
                text(found),
                text(expected)
            );
        }
    }
}

fn text(path: Option<&[u8]>) -> Option<String> {
    path.map(|path| path.escape_ascii().to_string())
}

fn merge(before: &[u8], drivers: &[Entry]) -> Vec<u8> {
    ldcache::parse(before).unwrap().merge(drivers)
}

/// A cache as some program writes it: every string whole, in the order given, nothing sorted.
#[derive(Default)]
struct Handmade {
    rows: Vec<(i32, &'static [u8], &'static [u8], u64)>,
    /// The byte of the header that tells the order of bytes.
    order: u8,
}

impl Handmade {
    fn new(rows: &[(i32, &'static [u8], &'static [u8], u64)]) -> Self {
        Self { rows: rows.to_vec(), order: 2 }
    }

    fn header(&self, strings: usize) -> Vec<u8> {
        let mut file = b"glibc-ld.so.cache1.1".to_vec();
        file.extend((self.rows.len() as u32).to_le_bytes());
        file.extend((strings as u32).to_le_bytes());
        file.push(self.order);
        file.resize(48, 0);
        file
    }

    fn strings(&self, rows: &mut Vec<u8>, wide: bool, start: usize) -> Vec<u8> {
        let mut strings = Vec::new();
        for (flags, key, value, hwcap) in &self.rows {
            let key_at = (start + strings.len()) as u32;
            strings.extend([key, b"\0".as_slice(), value, b"\0"].concat());
            rows.extend(flags.to_le_bytes());
            rows.extend(key_at.to_le_bytes());
            rows.extend((key_at + key.len() as u32 + 1).to_le_bytes());
            if wide {
                rows.extend(0_u32.to_le_bytes());
                rows.extend(hwcap.to_le_bytes());
            }
        }
        strings
    }

    fn new_format(&self) -> Vec<u8> {
        let mut rows = Vec::new();
        let strings = self.strings(&mut rows, true, 48 + 24 * self.rows.len());
        [self.header(strings.len()), rows, strings].concat()
    }

    fn old_format(&self) -> Vec<u8> {
        let mut rows = Vec::new();
        let strings = self.strings(&mut rows, false, 0);
        [self.old_header(), rows, strings].concat()
    }

    fn old_header(&self) -> Vec<u8> {
        [b"ld.so-1.7.0\0".as_slice(), &(self.rows.len() as u32).to_le_bytes()].concat()
    }

    /// The new format behind the old rows, at a multiple of `align`. The old ones lead nowhere.
    fn compat(&self, align: usize) -> Vec<u8> {
        let mut file = self.old_header();
        file.resize((16 + 12 * self.rows.len()).next_multiple_of(align), 0xff);
        file.extend(self.new_format());
        file
    }
}

const SORTED: [(i32, &[u8], &[u8], u64); 5] = [
    (flags::X86_64, b"libz.so.1", b"/usr/lib/libz.so.1", 0),
    (flags::X86_64, b"libcuda.so.1", b"/usr/lib/x86_64/libcuda.so.1", 1 << 2),
    (flags::X86_64, b"libcuda.so.1", b"/usr/lib/stubs/libcuda.so.1", 0),
    (flags::I386, b"libcuda.so.1", b"/usr/lib32/libcuda.so.1", 0),
    (flags::X86_64, b"lib\xc3\xa9.so.1", b"/usr/lib/lib\xc3\xa9.so.1", 0),
];

#[test]
fn every_format_is_read() {
    // The last name is not ASCII: where C's char has no sign, it goes first.
    let mut sorted = SORTED;
    sorted.sort_by(|a, b| loader::libcmp(b.1, a.1));
    let image = Handmade::new(&sorted);
    for (format, before) in [
        ("new", image.new_format()),
        ("old", image.old_format()),
        ("new in old, for 64-bit loaders", image.compat(8)),
        ("before 2.33, without byte order", Handmade { order: 0, ..Handmade::new(&sorted) }.new_format()),
    ] {
        println!("{format}");
        assert_drivers_win(&before, &merge(&before, &[]), &[]);
        assert_drivers_win(&before, &merge(&before, &drivers()), &drivers());
    }
    // A 32-bit loader finds the new one at a multiple of 4, where the model, a 64-bit one, does not look.
    assert_drivers_win(&image.new_format(), &merge(&image.compat(4), &drivers()), &drivers());
}

#[test]
fn what_is_no_cache_is_refused() {
    let image = Handmade::new(&SORTED);
    let new = image.new_format();
    let entries = 48 + 24 * SORTED.len();
    for (bytes, expected) in [
        (b"".to_vec(), Damaged::NotACache),
        (b"glibc-ld.so.cache1.2".to_vec(), Damaged::NotACache),
        (new[..20].to_vec(), Damaged::Truncated),
        (new[..entries - 1].to_vec(), Damaged::Truncated),
        (image.old_format()[..15].to_vec(), Damaged::Truncated),
        (image.compat(8)[..16 + 11].to_vec(), Damaged::Truncated),
        (Handmade { order: 3, ..Handmade::new(&SORTED) }.new_format(), Damaged::ByteOrder),
        (Handmade { order: 1, ..Handmade::new(&SORTED) }.new_format(), Damaged::ByteOrder),
        (Handmade { order: 4, ..Handmade::new(&SORTED) }.new_format(), Damaged::ByteOrder),
        (vec![0; LARGEST + 1], Damaged::TooLarge),
    ] {
        assert_eq!(
            ldcache::parse(&bytes).unwrap_err(),
            expected,
            "{}",
            bytes[..bytes.len().min(60)].escape_ascii()
        );
    }
    assert!(ldcache::parse(&new[..entries]).is_ok(), "entries without strings are left out");
}

/// Many entries with the same long string would fill many times the file when each has its own.
#[test]
fn a_small_file_does_not_become_a_large_one() {
    const LONG: usize = 100_000;
    let rows = 2_000;
    let mut file = Handmade::default().header(LONG);
    file[20..24].copy_from_slice(&2_000_u32.to_le_bytes());
    for row in 0..rows {
        let start = (48 + 24 * rows + row) as u32;
        file.extend(
            [flags::X86_64.cast_unsigned(), start, start, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()),
        );
    }
    file.extend([b'a'; LONG]);
    assert!(ldcache::parse(&file).is_ok(), "no string ends in it, so it has none");
    file.push(0);
    assert_eq!(ldcache::parse(&file).unwrap_err(), Damaged::Overlapping);
}

/// apko wrote caches sorted upwards and by bytes in 2023. The loader found little in them by name, and went on to its
/// default directories.
#[test]
fn a_cache_in_another_order_is_sorted() {
    let mut upwards = SORTED.to_vec();
    upwards.sort_by_key(|row| row.1);
    let merged = merge(&Handmade { order: 0, ..Handmade::new(&upwards) }.new_format(), &drivers());
    let plain = Loader { glibc: Glibc::From2_33, flags: flags::X86_64, hwcaps: &[], bits: 0, kernel: KERNEL };
    assert_eq!(
        plain.lookup(&merged, b"libcuda.so.1"),
        Some(b"/usr/local/nvidia/lib64/libcuda.so.1".as_slice())
    );
    for (flags, name, path, _) in SORTED.into_iter().filter(|row| row.1 != b"libcuda.so.1") {
        assert_eq!(Loader { flags, ..plain.clone() }.lookup(&merged, name), Some(path));
    }
}

/// What an image had comes back when the driver's goes: after an upgrade nothing of the old one is left, and a cache
/// merged at every start does not grow.
#[test]
fn merging_again_without_the_driver_starts_anew() {
    let image = Handmade::new(&SORTED[..4]).new_format();
    let first = merge(&image, &drivers());
    let again = ldcache::parse(&first).unwrap().without("/usr/local/nvidia");
    assert_eq!(again.merge(&[]), merge(&image, &[]));
    assert_eq!(again.merge(&drivers()), first);
    let beside = ldcache::parse(&first).unwrap().without("/usr/local/nvid").without("/usr/local/nvidia/");
    assert_eq!(beside.merge(&[]), first);
}

#[test]
fn an_empty_cache_takes_the_driver() {
    let empty = Cache::default().merge(&[]);
    assert_eq!(loader::names(&empty), [b""; 0]);
    assert_drivers_win(&empty, &Cache::default().merge(&drivers()), &drivers());
}

#[test]
fn find_wants_the_kind_and_any_processor() {
    let image = Handmade::new(&SORTED).new_format();
    let cache = ldcache::parse(&image).unwrap();
    assert_eq!(cache.find(c"libcuda.so.1", flags::X86_64), Some(c"/usr/lib/stubs/libcuda.so.1"));
    assert_eq!(cache.find(c"libcuda.so.1", flags::I386), Some(c"/usr/lib32/libcuda.so.1"));
    assert_eq!(cache.find(c"libcuda.so.1", flags::AARCH64), None);
    assert_eq!(cache.find(c"libcuda.so.2", flags::X86_64), None);
    assert_eq!(cache.find(c"libz.so.1", flags::X86_64), Some(c"/usr/lib/libz.so.1"));
}

/// glibc 2.44 keeps `/etc/tunables.conf` in the cache, and takes it only where every offset is in the string table.
#[test]
fn tunables_survive() {
    let tunables =
        [(1, 7, "glibc.malloc.check", "3", "", 3), (0x104, 9, "glibc.malloc.perturb", "42", "cudaprog", 42)];
    let before = with_tunables(&Handmade::new(&SORTED).new_format(), &tunables, 0x0100_0000);
    let expected: Vec<_> = tunables
        .iter()
        .map(|(flags, number, name, value, program, parsed)| {
            (*flags, *number, name.as_bytes(), value.as_bytes(), program.as_bytes(), *parsed)
        })
        .collect();
    assert_eq!(loader::tunables(&before), expected);
    let merged = merge(&before, &drivers());
    assert_eq!(loader::tunables(&merged), expected);
    assert_drivers_win(&before, &merged, &drivers());

    // Where its place is no multiple of 8, the loader does not take it.
    let mut moved = before.clone();
    let directory = u32::from_le_bytes(*before[32..].first_chunk().unwrap()) as usize;
    let section = before[directory + 24..].to_vec();
    moved.resize(moved.len().next_multiple_of(8) + 4, 0);
    let place = moved.len() as u32;
    moved[directory + 16..][..4].copy_from_slice(&place.to_le_bytes());
    moved.extend(section);
    assert_eq!(loader::tunables(&merge(&moved, &drivers())), []);

    // Of another layout nothing is known: the section is left out, and all else stays.
    let unknown = with_tunables(&Handmade::new(&SORTED).new_format(), &tunables, 0x0200_0000);
    let merged = merge(&unknown, &drivers());
    assert_eq!(loader::tunables(&merged), []);
    assert_drivers_win(&unknown, &merged, &drivers());
}

/// The file with a section of tunables, as `ldconfig` of glibc 2.44 lays it out.
fn with_tunables(new: &[u8], tunables: &[(usize, usize, &str, &str, &str, usize)], version: u32) -> Vec<u8> {
    let mut file = new.to_vec();
    let mut rows = Vec::new();
    for (flags, number, name, value, program, parsed) in tunables {
        let mut string = |text: &str| {
            let at = if text.is_empty() { 0 } else { file.len() };
            if at != 0 {
                file.extend(text.bytes().chain([0]));
            }
            at
        };
        let [name, value, program] = [name, value, program].map(|text| string(text));
        rows.extend([*flags, *number, name, value, program, 0, *parsed, 0]);
    }
    let words =
        |words: &[usize]| words.iter().flat_map(|word| (*word as u32).to_le_bytes()).collect::<Vec<_>>();
    let strings = file.len() - 48 - 24 * SORTED.len();
    file[24..28].copy_from_slice(&(strings as u32).to_le_bytes());
    file.resize(file.len().next_multiple_of(8), 0);
    let directory = file.len();
    file[32..36].copy_from_slice(&(directory as u32).to_le_bytes());
    file.extend(words(&[0xeaa4_2174, 1, 2, 0, directory + 24, 16 + rows.len() * 4]));
    file.extend(words(&[0x7c3b_a94f, version as usize, tunables.len(), 0]));
    file.extend(words(&rows));
    file
}

#[test]
fn what_a_library_needs_of_the_kernel_survives() {
    let mut before = Handmade::new(&SORTED).new_format();
    let loader =
        Loader { glibc: Glibc::Before2_33, flags: flags::X86_64, hwcaps: &[], bits: 0, kernel: KERNEL };
    for (kernel, expected) in [(KERNEL, Some(SORTED[0].2)), (KERNEL + 1, None)] {
        before[48 + 12..][..4].copy_from_slice(&(kernel as u32).to_le_bytes());
        assert_eq!(loader.lookup(&before, b"libz.so.1"), expected);
        assert_eq!(loader.lookup(&merge(&before, &drivers()), b"libz.so.1"), expected);
    }
}

/// The loader does without glibc-hwcaps where their names are not to be had, and so does the merged cache.
#[test]
fn a_damaged_extension_is_left_out() {
    let hwcaps = (flags::X86_64, b"libz.so.1".as_slice(), b"/usr/lib/v3/libz.so.1".as_slice(), 1 << 62);
    let mut rows = SORTED.to_vec();
    rows.insert(0, hwcaps);
    let mut file = Handmade::new(&rows).new_format();
    let [end, strings] = [file.len().next_multiple_of(4), 48 + 24 * rows.len()];
    file.resize(end, 0);
    file[32..36].copy_from_slice(&(end as u32).to_le_bytes());
    let directory = |words: [u32; 7]| {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        // Behind the name's offset there is room for offsets that are not aligned.
        file.iter().copied().chain(words).chain([0; 8]).collect::<Vec<u8>>()
    };
    let (magic, end, name) = (0xeaa4_2174, end as u32, strings as u32 + 10);
    let names = |bytes: &[u8]| {
        let merged = merge(bytes, &[]);
        // Bit 62 set, index 0: found only by its name, here that of the first path.
        let v3 = Loader {
            glibc: Glibc::From2_33,
            flags: flags::X86_64,
            hwcaps: &["/usr/lib/v3/libz.so.1"],
            bits: 0,
            kernel: KERNEL,
        };
        v3.lookup(&merged, b"libz.so.1").map(<[u8]>::to_vec)
    };
    let (special, plain) = (Some(hwcaps.2.to_vec()), Some(SORTED[0].2.to_vec()));
    assert_eq!(names(&directory([magic, 1, 1, 0, end + 24, 4, name])), special);
    for damaged in [
        [magic ^ 1, 1, 1, 0, end + 24, 4, name],
        [magic, 2, 1, 0, end + 24, 4, name],
        [magic, u32::MAX, 1, 0, end + 24, 4, name],
        [magic, 1, 1, 0, end + 25, 4, name << 8],
        [magic, 1, 1, 0, end + 24, 5, name],
        [magic, 1, 1, 0, end + 24, 3, name],
        [magic, 1, 1, 0, u32::MAX, 4, name],
        [magic, 1, 1, 0, end + 24, 4, u32::MAX],
        [magic, 1, 3, 0, end + 24, 4, name],
    ] {
        assert_eq!(names(&directory(damaged)), plain, "{damaged:x?}");
    }
}

/// Names that are alike: shared beginnings, digits, leading zeros, bytes above ASCII.
fn name() -> impl Strategy<Value = CString> {
    let piece = prop::sample::select(vec![
        "a",
        "b",
        ".so.",
        "-",
        "0",
        "1",
        "2",
        "10",
        "01",
        "x86",
        "\u{e9}",
        "99999999999",
    ]);
    prop::collection::vec(piece, 1..5)
        .prop_map(|pieces| CString::new(format!("lib{}", pieces.concat())).unwrap())
}

fn library() -> impl Strategy<Value = (CString, CString, i32)> {
    let directory = prop::sample::select(vec!["/lib/", "/usr/lib/a/", "/opt/b.so/", ""]);
    let flags = prop::sample::select(vec![ABIS[0], ABIS[1], ABIS[2], 1, -1]);
    (name(), directory, name(), flags).prop_map(|(soname, directory, file, flags)| {
        // Half of them have the name they are asked for by.
        let file = if flags % 2 == 1 { soname.to_bytes() } else { file.to_bytes() };
        let path = CString::new([directory.as_bytes(), file].concat()).unwrap();
        (soname, path, flags)
    })
}

fn entries(libraries: &[(CString, CString, i32)]) -> Vec<Entry<'_>> {
    libraries.iter().map(|(soname, path, flags)| Entry { soname, path, flags: *flags }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Names whose numbers run over are left to the test below: in glibc's own order they are in no order.
    #[test]
    fn every_loader_finds_every_driver(
        image in prop::collection::vec(library(), 0..40),
        drivers in prop::collection::vec(library(), 0..12),
    ) {
        let [image, drivers] = [&image, &drivers].map(|libraries| {
            let mut entries = entries(libraries);
            entries.retain(|entry| !entry.soname.to_bytes().escape_ascii().to_string().contains("99999999999"));
            entries
        });
        let before = Cache::default().merge(&image);
        prop_assert!(loader::names(&before).is_sorted_by(|a, b| loader::libcmp(a, b).is_ge()));
        assert_drivers_win(&before, &merge(&before, &drivers), &drivers);
        assert_drivers_win(&before, &merge(&before, &[]), &[]);
    }

    #[test]
    fn any_names_at_all_are_merged(
        image in prop::collection::vec(library(), 0..40),
        drivers in prop::collection::vec(library(), 0..12),
    ) {
        let before = Cache::default().merge(&entries(&image));
        let merged = merge(&before, &entries(&drivers));
        prop_assert_eq!(loader::names(&merged).len(), image.len() + drivers.len());
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..600), magic in 0..3) {
        let magic: &[u8] = [b"glibc-ld.so.cache1.1".as_slice(), b"ld.so-1.7.0\0\x02\0\0\0", b""][magic as usize];
        bytes.splice(0..0, magic.iter().copied());
        check_any(&bytes);
    }

    #[test]
    fn a_changed_cache_is_read_or_refused(
        format in 0..4_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), 0..3), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let image = Handmade::new(&SORTED);
        let new = with_tunables(&image.new_format(), &[(1, 2, "name", "value", "program", 3)], 0x0100_0000);
        let mut bytes = [new, image.old_format(), image.compat(8), merge(&image.new_format(), &drivers())][format].clone();
        for (place, number, how) in changes {
            let at = place.index(bytes.len() - 4);
            match how {
                0 => bytes[at] ^= 1 << (number % 8),
                1 => bytes[at & !3..][..4].copy_from_slice(&number.to_le_bytes()),
                _ => bytes[at & !3..][..4].copy_from_slice(&(number % 1000).to_le_bytes()),
            }
        }
        bytes.truncate(cut.map_or(usize::MAX, |cut| cut.index(bytes.len())));
        check_any(&bytes);
    }
}

/// Whatever the bytes: no panic, and if they are a cache, the merged one is one, not much larger, and has the driver.
fn check_any(bytes: &[u8]) {
    let paths = |flags| Table::find(bytes).map(|table| table.paths("lib", flags).collect::<Vec<_>>());
    let named = ABIS.map(|flags| paths(flags).unwrap_or_default());
    let Ok(cache) = ldcache::parse(bytes) else { return };
    for driver in drivers() {
        let named = &named[ABIS.iter().position(|flags| *flags == driver.flags).unwrap()];
        assert!(cache.find(driver.soname, driver.flags).is_none_or(|path| named.contains(&path)));
    }
    let merged = cache.merge(&drivers());
    assert!(merged.len() <= 1_000 + 10 * bytes.len(), "{} bytes became {}", bytes.len(), merged.len());
    for driver in drivers() {
        let loader = Loader {
            glibc: Glibc::From2_37,
            flags: driver.flags,
            hwcaps: &["x86-64-v3"],
            bits: 0,
            kernel: KERNEL,
        };
        assert_eq!(
            text(loader.lookup(&merged, driver.soname.to_bytes())),
            text(Some(driver.path.to_bytes()))
        );
    }
    let again = ldcache::parse(&merged).unwrap();
    assert_eq!(again.merge(&[]), merged);
    assert!(again.without("/usr/local/nvidia").merge(&[]).len() <= cache.merge(&[]).len());
}
