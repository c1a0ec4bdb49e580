//! CUDA forward compatibility: is the newer `libcuda` that an image brings used in the place of the host's? Pure.
//!
//! Images bring one in `/usr/local/cuda/compat` (NVIDIA's `cuda-compat` packages), with the libraries that it loads, so
//! that programs built for a newer CUDA run on an older driver. It works on some drivers only, and says on which in an
//! ELF note: the owner is [`OWNER`], the section [`SECTION`], the content JSON, in the libraries of drivers 575 and 590
//!
//! ```json
//! {"Format": 1, "CUDA Version": "12.9", "Driver": [535, 550, 560, 565, 570, 575], "Device": [1, 2, 7]}
//! ```
//!
//! `Driver` has the branches, the first numbers of versions, of the drivers of hosts. What the numbers of `Device` are is
//! not written anywhere; nobody looks at them. Libraries before 575 have no note.
//!
//! Place, note and rules are those of NVIDIA's container toolkit as of July 2026, after 1.19.1
//! (`cmd/nvidia-cdi-hook/cudacompat`); a container's environment cannot switch it off there either.

use serde::Deserialize;

use crate::driver::{Capabilities, Capability, ITEMS, Kind};

/// The section that has the note.
pub const SECTION: &str = ".note.cuda.fwd_compatibility";
/// The note's owner.
pub const OWNER: &str = "NVIDIA Corporation";

/// Why an image's libraries are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// One of the versions is not numbers with dots between.
    Version,
    /// The note is not JSON as above, or of another format than 1.
    Note,
    /// The note does not have the host's driver.
    Driver,
    /// They are not newer than the host's: with a note, of the same version or an older one; without, of the same
    /// branch or an older one.
    NotNewer,
}

/// Are an image's libraries used? `host` is the version of the loaded driver, `image` that of the image's `libcuda`,
/// `note` the content of its note.
pub fn judge(host: &str, image: &str, note: Option<&[u8]>) -> Result<(), Unfit> {
    let (host, image) = (numbers(host).ok_or(Unfit::Version)?, numbers(image).ok_or(Unfit::Version)?);
    let newer = match note {
        None => image[0] > host[0],
        Some(note) if drivers(note).ok_or(Unfit::Note)?.contains(&host[0]) => image > host,
        Some(_) => return Err(Unfit::Driver),
    };
    if newer { Ok(()) } else { Err(Unfit::NotNewer) }
}

/// The version of a driver, where this is the name of its `libcuda`; none for the names by which programs ask for it.
pub fn version(name: &str) -> Option<&str> {
    name.strip_prefix("libcuda.so.").filter(|version| numbers(version).is_some())
}

/// May a container have this file of an image's directory in the place of the host's? A library is meant, and none that
/// the driver has for other capabilities than `compute`: NVML, above all, must be of the loaded driver's own version.
pub fn is_taken(name: &str) -> bool {
    let compute = Capabilities::of(&[Capability::Compute]);
    let of_others = |stem| {
        let mut items = ITEMS.iter().filter(|item| item.kind == Kind::Library);
        items.any(|item| item.name == stem && !item.capabilities.intersects(compute))
    };
    let plain = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    let library = name.strip_prefix("lib").and_then(|rest| rest.split_once(".so"));
    let versioned = |version: &str| version.is_empty() || version.starts_with('.');
    plain && library.is_some_and(|(stem, version)| versioned(version) && !of_others(stem))
}

/// The numbers of a driver's version: two at least.
fn numbers(version: &str) -> Option<Vec<u32>> {
    let number =
        |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
    let numbers = version.split('.').map(number).collect::<Option<Vec<_>>>();
    numbers.filter(|numbers| numbers.len() > 1)
}

#[derive(Deserialize)]
struct Note {
    #[serde(rename = "Format")]
    format: u32,
    #[serde(rename = "Driver", default)]
    drivers: Vec<u32>,
}

/// The branches in a note, which may end in NULs.
fn drivers(note: &[u8]) -> Option<Vec<u32>> {
    let end = note.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let note: Note = serde_json::from_slice(&note[..end]).ok()?;
    (note.format == 1).then_some(note.drivers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str =
        r#"{"Format": 1, "CUDA Version": "12.9", "Driver": [535, 550, 575], "Device": [1, 2]}"#;

    fn with_note(host: &str, image: &str) -> Result<(), Unfit> {
        judge(host, image, Some(NOTE.as_bytes()))
    }

    #[test]
    fn a_note_permits_older_drivers_of_its_branches() {
        for (host, expected) in [
            ("535.54.03", Ok(())),
            ("550.54.15", Ok(())),
            ("575.57.07", Ok(())),
            ("575.9.99", Ok(())),
            ("575.57.08", Err(Unfit::NotNewer)),
            ("575.57.8", Err(Unfit::NotNewer)),
            ("575.57.08.01", Err(Unfit::NotNewer)),
            ("575.100.01", Err(Unfit::NotNewer)),
            // Not in the note, however old or new.
            ("560.35.03", Err(Unfit::Driver)),
            ("55.54.15", Err(Unfit::Driver)),
            ("580.82", Err(Unfit::Driver)),
        ] {
            assert_eq!(with_note(host, "575.57.08"), expected, "{host}");
        }
        // The note decides, and an older library is none whatever it says.
        assert_eq!(with_note("575.57.08", "550.54.15"), Err(Unfit::NotNewer));
    }

    #[test]
    fn without_a_note_it_is_of_a_newer_branch() {
        for (host, image, expected) in [
            ("550.54.15", "575.57.08", Ok(())),
            ("99.55.66", "222.88.99", Ok(())),
            ("575.10.10", "575.57.08", Err(Unfit::NotNewer)),
            ("580.82", "575.57.08", Err(Unfit::NotNewer)),
        ] {
            assert_eq!(judge(host, image, None), expected, "{host} {image}");
        }
    }

    #[test]
    fn what_is_no_version_is_not_used() {
        for odd in
            ["", "1", "575", "575.", ".575", "575.57.x", "575.-1", "+575.57", "575.4294967296", "575 .57"]
        {
            assert_eq!(judge("550.54.15", odd, None), Err(Unfit::Version), "{odd}");
            assert_eq!(with_note(odd, "575.57.08"), Err(Unfit::Version), "{odd}");
        }
    }

    #[test]
    fn a_version_is_in_one_name_alone() {
        assert_eq!(version("libcuda.so.575.57.08"), Some("575.57.08"));
        for other in
            ["libcuda.so", "libcuda.so.1", "libcuda.so.1.old", "libcudart.so.12.9", "xlibcuda.so.1.2"]
        {
            assert_eq!(version(other), None, "{other}");
        }
    }

    #[test]
    fn a_note_that_is_not_understood_permits_nothing() {
        let judge = |note: &str| judge("550.54.15", "575.57.08", Some(note.as_bytes()));
        assert_eq!(judge(&format!("{NOTE}\0\0")), Ok(()));
        assert_eq!(judge(r#"{"Driver":[550],"Format":1}"#), Ok(()));
        for (note, expected) in [
            ("", Unfit::Note),
            ("\0", Unfit::Note),
            ("{", Unfit::Note),
            ("[550]", Unfit::Note),
            (r#"{"Driver": [550]}"#, Unfit::Note),
            (r#"{"Format": 2, "Driver": [550]}"#, Unfit::Note),
            (r#"{"Format": 1, "Driver": ["550"]}"#, Unfit::Note),
            (r#"{"Format": 1, "Driver": 550}"#, Unfit::Note),
            (r#"{"Format": 1, "Driver": [-550]}"#, Unfit::Note),
            // As on Jetson boards, where the driver's version is not that of the library.
            (r#"{"Format": 1, "CUDA Version": "13.2"}"#, Unfit::Driver),
            (r#"{"Format": 1, "Driver": []}"#, Unfit::Driver),
        ] {
            assert_eq!(judge(note), Err(expected), "{note}");
        }
        assert_eq!(judge(&"[".repeat(60_000)), Err(Unfit::Note));
    }

    #[test]
    fn only_libraries_for_compute_are_taken() {
        for name in [
            "libcuda.so",
            "libcuda.so.1",
            "libcuda.so.575.57.08",
            "libnvidia-ptxjitcompiler.so.1",
            "libnvidia-gpucomp.so.575.57.08",
            "libnvidia-unheard-of.so.1",
        ] {
            assert!(is_taken(name), "{name}");
        }
        for name in [
            "libnvidia-ml.so.1",
            "libnvidia-encode.so.1",
            "libGLX_nvidia.so.575.57.08",
            "cuda.so.1",
            "libcuda",
            "libcuda.sos",
            "libcuda.so.1/x",
            "libcu da.so.1",
            "libc\u{fc}da.so.1",
            "",
            "..",
        ] {
            assert!(!is_taken(name), "{name}");
        }
    }
}
