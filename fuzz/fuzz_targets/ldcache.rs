//! Whatever is in an image's linker cache: reading it does not panic, and what is made of it is a cache, not much
//! larger, in which the driver is found.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vgpu::ldcache::{self, Entry, flags};

const DRIVER: Entry = Entry {
    soname: c"libcuda.so.1",
    path: c"/usr/local/nvidia/lib64/libcuda.so.1",
    flags: flags::X86_64,
};

fuzz_target!(|bytes: &[u8]| {
    let Ok(cache) = ldcache::parse(bytes) else { return };
    let merged = cache.merge(&[DRIVER]);
    assert!(merged.len() <= 1_000 + 10 * bytes.len());
    let again = ldcache::parse(&merged).expect("a cache");
    assert_eq!(again.merge(&[]), merged);
    assert!(again.without("/usr/local/nvidia").merge(&[]).len() <= cache.merge(&[]).len());
    // Numbers that run over are in no order, in glibc's neither.
    if !bytes.windows(9).any(|window| window.iter().all(u8::is_ascii_digit)) {
        assert_eq!(again.find(DRIVER.soname, DRIVER.flags), Some(DRIVER.path));
    }
});
