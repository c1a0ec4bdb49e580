//! Any bytes as a library: its headers and its SONAME.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vgpu::elf::Elf;
use vgpu_fuzz::{Counted, TABLE};

fuzz_target!(|bytes: &[u8]| {
    let file = Counted::new(bytes);
    if let Ok(elf) = Elf::read(&file)
        && let Ok(Some(name)) = elf.soname()
    {
        assert!(name.len() <= 255 && !name.contains('\0'), "{name:?}");
    }
    assert!(file.asked() <= 3 * TABLE, "{} bytes were read", file.asked());
});
