//! Any bytes as an image's `libcuda`: the note that says on which drivers it works, and what comes of it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vgpu::compat::{OWNER, SECTION, judge};
use vgpu::elf::Elf;
use vgpu_fuzz::{Counted, TABLE};

fuzz_target!(|bytes: &[u8]| {
    let file = Counted::new(bytes);
    if let Ok(elf) = Elf::read(&file)
        && let Ok(notes) = elf.notes(SECTION, OWNER)
    {
        assert!(notes.iter().map(|note| note.description.len()).sum::<usize>() <= bytes.len().min(TABLE));
        for note in &notes {
            let permits = judge("550.54.15", "575.57.08", Some(&note.description)).is_ok();
            assert!(!permits || note.description.windows(3).any(|digits| digits == b"550"));
        }
    }
    assert!(file.asked() <= 5 * TABLE, "{} bytes were read", file.asked());
});
