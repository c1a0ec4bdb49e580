//! Merged caches against the programs that made the format: `ldconfig` makes an image's cache and lists the merged one,
//! the dynamic loader itself looks names up in it.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use vgpu::ldcache::{self, Entry, flags};

use crate::library::{Machine, shared_object};
use crate::loader::{self, Loader};
use crate::{KERNEL, assert_drivers_win, merge, text};

const DRIVER: &str = "/usr/local/nvidia/lib64";
const DRIVER_32: &str = "/usr/local/nvidia/lib";
const CONF: &str = "/usr/lib/a\n/usr/lib/b\n/usr/lib/i386\n";

/// A root file system with libraries that are only good for being found.
struct Image {
    root: TempDir,
}

impl Image {
    /// 400 libraries in three directories, some names in two of them, one of the driver's names as a stub.
    fn plain() -> Self {
        let image = Self { root: TempDir::new().unwrap() };
        for i in 0..300_u32 {
            // Digits in many places, so that the order of names is put to the test.
            image.add(
                "/usr/lib/a",
                Machine::X86_64,
                format!("lib{}{}-{}.so.{}", i % 7, i % 11, i * 37 % 101, i % 3),
            );
        }
        for i in 0..50 {
            image.add("/usr/lib/a", Machine::X86_64, format!("libx{}.so.{}", "i".repeat(i % 5), i * 7919));
            image.add("/usr/lib/b", Machine::X86_64, format!("libx{}.so.{}", "i".repeat(i % 5), i * 7919));
            image.add("/usr/lib/i386", Machine::I386, format!("libx{}.so.{}", "i".repeat(i % 5), i * 7919));
        }
        image.add("/usr/lib/a", Machine::X86_64, b"lib\xc3\xa9\xff.so.1");
        image.add("/usr/lib/b", Machine::X86_64, "libcuda.so.1");
        image.add("/usr/lib/i386", Machine::I386, "libcuda.so.1");
        fs::create_dir(image.path("/etc")).unwrap();
        image
    }

    /// The same with variants of some libraries for better processors, a driver's among them.
    fn with_hwcaps() -> Self {
        let image = Self::plain();
        for directory in ["x86-64-v2", "x86-64-v3", "unheard-of"] {
            let directory = format!("/usr/lib/b/glibc-hwcaps/{directory}");
            for name in ["libcuda.so.1", "libx.so.0", "libonly.so.1"] {
                image.add(&directory, Machine::X86_64, name);
            }
        }
        image
    }

    /// The same with numbers past what C's `int` holds: `ldconfig` sorts such names in some way, and the loader finds
    /// some of them, more or fewer with every other library there is.
    fn with_long_numbers() -> Self {
        let image = Self::plain();
        for number in ["2147483647", "2147483648", "3000000000", "4294967296", "99999999999"] {
            image.add("/usr/lib/a", Machine::X86_64, format!("libx{number}.so.1"));
            image.add("/usr/lib/b", Machine::X86_64, format!("libx{number}.so.1"));
        }
        image
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.root.path().join(inside.strip_prefix('/').unwrap())
    }

    fn add(&self, directory: &str, machine: Machine, name: impl AsRef<[u8]>) {
        let directory = self.path(directory);
        fs::create_dir_all(&directory).unwrap();
        let name = name.as_ref();
        fs::write(directory.join(OsStr::from_bytes(name)), shared_object(machine, name)).unwrap();
    }

    /// What `ldconfig` writes for these directories, in a format of its own choice or of ours.
    fn cache(&self, conf: &str, format: &str) -> Vec<u8> {
        fs::write(self.path("/etc/ld.so.conf"), conf).unwrap();
        let ldconfig = Command::new("/sbin/ldconfig")
            .args(["-X", "-f", "/etc/ld.so.conf", "-C", "/etc/ld.so.cache", "-c", format, "-r"])
            .arg(self.root.path())
            .stderr(Stdio::inherit())
            .status();
        assert!(ldconfig.expect("ldconfig").success());
        fs::read(self.path("/etc/ld.so.cache")).unwrap()
    }
}

/// The entries that `ldconfig -p` prints for a cache, in the order in which they are in it.
fn listed(cache: &[u8]) -> Vec<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), cache).unwrap();
    let ldconfig =
        Command::new("/sbin/ldconfig").env("LC_ALL", "C").args(["-p", "-C"]).arg(file.path()).output();
    let output = ldconfig.expect("ldconfig");
    assert!(output.status.success(), "{}", output.stderr.escape_ascii());
    let lines = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"\t"));
    lines.map(|line| line.escape_ascii().to_string()).collect()
}

/// Names that the driver has too, names only it has, and the same name for both word sizes.
const NAMES: [(&str, &CStr, i32); 5] = [
    (DRIVER, c"libcuda.so.1", flags::X86_64),
    (DRIVER, c"libnvidia-ml.so.1", flags::X86_64),
    (DRIVER, c"libnvidia-glcore.so.535.129.03", flags::X86_64),
    (DRIVER_32, c"libcuda.so.1", flags::I386),
    (DRIVER_32, c"libnvidia-ml.so.1", flags::I386),
];

fn paths() -> Vec<CString> {
    NAMES
        .iter()
        .map(|(dir, name, _)| CString::new(format!("{dir}/{}", name.to_str().unwrap())).unwrap())
        .collect()
}

fn drivers(paths: &[CString]) -> Vec<Entry<'_>> {
    NAMES.iter().zip(paths).map(|((_, soname, flags), path)| Entry { soname, path, flags: *flags }).collect()
}

#[test]
fn the_model_finds_what_ldconfig_lists() {
    let cache = Image::with_hwcaps().cache(CONF, "new");
    let v3 = Loader {
        glibc: loader::Glibc::From2_33,
        flags: flags::X86_64,
        hwcaps: &["x86-64-v3", "x86-64-v2"],
        bits: 0,
        kernel: KERNEL,
    };
    let found = |loader: &Loader, name: &[u8]| text(loader.lookup(&cache, name));
    assert_eq!(found(&v3, b"libx.so.0").unwrap(), "/usr/lib/b/glibc-hwcaps/x86-64-v3/libx.so.0");
    assert_eq!(found(&Loader { hwcaps: &[], ..v3.clone() }, b"libx.so.0").unwrap(), "/usr/lib/a/libx.so.0");
    assert_eq!(found(&Loader { flags: flags::I386, ..v3 }, b"libx.so.0").unwrap(), "/usr/lib/i386/libx.so.0");
    assert!(listed(&cache).len() > 450);
}

#[test]
fn merging_nothing_changes_nothing_in_any_format() {
    for image in [Image::with_long_numbers(), Image::with_hwcaps()] {
        for format in ["new", "compat", "old"] {
            let before = image.cache(CONF, format);
            let merged = merge(&before, &[]);
            assert_drivers_win(&before, &merged, &[]);
            assert_eq!(listed(&merged), listed(&before), "{format}");
        }
    }
}

/// Where a driver's directory is the first that `ldconfig` is told of, it writes what merging gives.
#[test]
fn merging_gives_what_ldconfig_would_write() {
    let image = Image::plain();
    let before = image.cache(CONF, "new");
    for (directory, name, flags) in NAMES {
        let machine = if flags == flags::I386 { Machine::I386 } else { Machine::X86_64 };
        image.add(directory, machine, name.to_bytes());
    }
    let expected = listed(&image.cache(&format!("{DRIVER}\n{DRIVER_32}\n{CONF}"), "new"));
    let paths = paths();
    assert_eq!(listed(&merge(&before, &drivers(&paths))), expected);
}

#[test]
fn the_driver_wins_over_stubs_and_processor_variants() {
    let paths = paths();
    let image = Image::with_hwcaps();
    for format in ["new", "compat", "old"] {
        let before = image.cache(CONF, format);
        let merged = merge(&before, &drivers(&paths));
        assert_drivers_win(&before, &merged, &drivers(&paths));
        let driver = |line: &String| line.contains(" => /usr/local/nvidia/");
        let (mut own, others): (Vec<_>, Vec<_>) = listed(&merged).into_iter().partition(driver);
        own.sort();
        assert_eq!(others, listed(&before), "{format}");
        assert_eq!(own.len(), NAMES.len(), "{own:#?}");
    }
}

#[test]
fn the_hosts_own_cache_is_read() {
    let before = fs::read("/etc/ld.so.cache").expect("a Linux host with glibc has a linker cache");
    assert_eq!(listed(&merge(&before, &[])), listed(&before));
    let libc = ldcache::parse(&before).unwrap().find(c"libc.so.6", flags::X86_64).expect("libc");
    assert!(Path::new(OsStr::from_bytes(libc.to_bytes())).exists());
}

/// Every name of the image's cache, and of the driver's, is looked up by the dynamic loader of this machine.
#[test]
#[ignore = "needs root: the loader reads /etc/ld.so.cache of a root of its own"]
fn the_loader_finds_the_driver_and_all_else_as_before() {
    let image = Image::with_hwcaps();
    put_loader(&image);
    let before = image.cache(CONF, "new");
    let (paths, names) = (paths(), loader::names(&before));
    let drivers: Vec<_> =
        drivers(&paths).into_iter().filter(|driver| driver.flags == flags::X86_64).collect();
    for driver in &drivers {
        let name = driver.soname.to_bytes();
        image.add(DRIVER, Machine::X86_64, name);
    }
    let mut expected = load(&image, &names);
    assert!(expected.len() > 300);

    fs::write(image.path("/etc/ld.so.cache"), merge(&before, &drivers)).unwrap();
    for driver in drivers {
        let [name, path] =
            [driver.soname, driver.path].map(|text| text.to_bytes().escape_ascii().to_string());
        expected.insert(name, path);
    }
    let mut wanted = names;
    wanted.extend(NAMES.iter().map(|(_, name, _)| name.to_bytes()));
    let found = load(&image, &wanted);
    assert_eq!(found.len(), expected.len());
    expected.retain(|name, path| found.get(name) != Some(path));
    assert_eq!(expected, BTreeMap::new(), "found otherwise");
    assert!(found.values().any(|path| path.contains("glibc-hwcaps")), "this machine has none of its own");
}

/// Copies /bin/true, the loader and the libraries that it needs.
fn put_loader(image: &Image) {
    let ldd = Command::new("ldd").arg("/bin/true").output().expect("ldd");
    let output = String::from_utf8(ldd.stdout).unwrap();
    let files = output.split_whitespace().filter(|word| word.starts_with('/'));
    for file in files.chain(["/bin/true"]) {
        let to = image.path(file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
}

/// What the loader maps for these names, by name; one that it cannot load is not among them.
fn load(image: &Image, names: &[&[u8]]) -> BTreeMap<String, String> {
    let loader = Command::new("/usr/sbin/chroot")
        .arg(image.root.path())
        .args(["/lib64/ld-linux-x86-64.so.2", "--list", "--preload"])
        .arg(OsStr::from_bytes(&names.join(&b':')))
        .arg("/bin/true")
        .output();
    let output = loader.expect("chroot");
    assert!(output.status.success(), "{}", output.stderr.escape_ascii());
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let split = |line: &[u8]| {
        let line = line.trim_ascii().escape_ascii().to_string();
        let (name, path) = line.split_once(" => ")?;
        Some((name.to_owned(), path.split(' ').next()?.to_owned()))
    };
    lines.filter_map(split).collect()
}
