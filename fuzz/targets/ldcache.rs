//! Any bytes as an image's linker cache: whatever is read of them, merged and read again has the driver's libraries
//! first, and all that it had before.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vgpu::ldcache::{Entry, flags, parse};

const DRIVER: &str = "/usr/local/nvidia";

/// As the hook merges them in; images have names like these, too.
const LIBRARIES: [Entry; 4] = [
    Entry { soname: c"libcuda.so.1", path: c"/usr/local/nvidia/lib64/libcuda.so.1", flags: flags::X86_64 },
    Entry { soname: c"libcuda.so.1", path: c"/usr/local/nvidia/lib32/libcuda.so.1", flags: flags::I386 },
    Entry { soname: c"libcuda.so", path: c"/usr/local/nvidia/lib64/libcuda.so", flags: flags::X86_64 },
    Entry {
        soname: c"libb.so.550.54",
        path: c"/usr/local/nvidia/lib64/libb.so.550.54",
        flags: flags::AARCH64,
    },
];

fuzz_target!(|bytes: &[u8]| {
    let Ok(cache) = parse(bytes) else { return };
    let cache = cache.without(DRIVER);
    let merged = cache.merge(&LIBRARIES);
    assert!(merged.len() <= 8 * bytes.len() + 4096, "{} bytes became {}", bytes.len(), merged.len());
    let again = parse(&merged).expect("what was written can be read");
    for library in LIBRARIES {
        assert_eq!(again.find(library.soname, library.flags), Some(library.path), "{:?}", library.soname);
    }
    assert_eq!(again.without(DRIVER).merge(&[]), cache.merge(&[]), "what the image had is not what it was");
});
