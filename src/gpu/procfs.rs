//! What the driver says of itself in `proc/driver/nvidia` and `proc/devices`. Reads below the driver's
//! root; the parsers are pure.

use rustix::io::Errno;

use super::DriverRoot;
use crate::error::{Error, Exit, OrExit, Result, quoted};
use crate::types::{GpuUuid, PciAddress};

const VERSION: &str = "proc/driver/nvidia/version";
const GPUS: &str = "proc/driver/nvidia/gpus";
const DEVICES: &str = "proc/devices";

/// Version of the loaded driver. Its absence is how one sees that there is no driver.
pub(super) fn driver_version(root: &DriverRoot) -> Result<String> {
    let text = match root.read(VERSION) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Err(no_driver(root)),
        text => text.or_exit(Exit::Io, || format!("cannot read {}", root.shown(VERSION)))?,
    };
    parse_version(&text).map(str::to_owned).ok_or_else(|| {
        let what = format!("{} names no driver version: {}", root.shown(VERSION), quoted(&text));
        Error::new(Exit::Gpu, what)
    })
}

fn no_driver(root: &DriverRoot) -> Error {
    let what = format!(
        "no NVIDIA driver is loaded: there is no {} (load it with `modprobe nvidia`, or say where its root is: driver_root in pool.toml, --driver-root of config init)",
        root.shown(VERSION)
    );
    Error::new(Exit::Gpu, what)
}

/// The one word made of digits and dots in the line `NVRM version: …`; "x86_64" before it is none.
fn parse_version(text: &str) -> Option<&str> {
    let line = text.lines().find_map(|line| line.strip_prefix("NVRM version:"))?;
    line.split_whitespace().find(|word| {
        let parts: Vec<&str> = word.split('.').collect();
        let number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        parts.len() >= 2 && parts.iter().all(number)
    })
}

/// The addresses of the GPUs that the driver has, in order.
pub(super) fn addresses(root: &DriverRoot) -> Result<Vec<PciAddress>> {
    let names = root.names(GPUS).or_exit(Exit::Io, || format!("cannot list {}", root.shown(GPUS)))?;
    let mut addresses: Vec<PciAddress> = names.iter().filter_map(|name| name.parse().ok()).collect();
    addresses.sort_unstable();
    Ok(addresses)
}

/// What the driver says of one GPU.
#[derive(Debug, PartialEq)]
pub(super) struct Information {
    pub(super) model: String,
    /// None while the GPU has not been initialised: the driver then prints question marks.
    pub(super) uuid: Option<GpuUuid>,
    pub(super) minor: u32,
    /// Left out by the driver's own parameter (NVreg_ExcludedGpus).
    pub(super) excluded: bool,
}

/// Reads `gpus/<pci>/information`; the inner error is a reason that reads on after `GPU <pci> …: `.
///
/// # Errors
/// [`Exit::Io`] where it cannot be read. That is trouble of this process (descriptors, memory) and says nothing
/// of the GPU: an inventory without it would be kept until the next boot.
pub(super) fn information(root: &DriverRoot, pci: PciAddress) -> Result<Result<Information, String>> {
    let path = format!("{GPUS}/{pci}/information");
    let text = match root.read(&path) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Err("the driver no longer has it".to_owned())),
        text => text.or_exit(Exit::Io, || format!("cannot read {}", root.shown(&path)))?,
    };
    Ok(parse_information(&text).map_err(|e| format!("{} {e}", root.shown(&path))))
}

fn parse_information(text: &str) -> Result<Information, String> {
    let field = |key: &str| {
        let named = |line: &'_ str| line.split_once(':').filter(|(k, _)| *k == key).map(|(_, v)| v.len());
        text.lines().find_map(|line| named(line).map(|len| line[line.len() - len..].trim()))
    };
    let minor = field("Device Minor").ok_or("has no \"Device Minor\"")?;
    Ok(Information {
        model: field("Model").unwrap_or("unknown").to_owned(),
        uuid: field("GPU UUID").map_or(Ok(None), parse_uuid)?,
        minor: minor.parse().map_err(|_| format!("has the device minor {}", quoted(minor)))?,
        excluded: field("GPU Excluded") == Some("Yes"),
    })
}

/// `GPU-????????-????-????-????-????????????` is how the driver says "not initialised yet".
fn parse_uuid(text: &str) -> Result<Option<GpuUuid>, String> {
    if text.contains('?') {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("has the UUID {}", quoted(text)))
}

/// The majors of the driver's nodes. Only that of [`super::NVIDIA_MAJOR`] is fixed; the others are
/// given out when a module is loaded, so they are read fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Majors {
    /// `nvidia<minor>`, `nvidiactl`, `nvidia-modeset`.
    pub nvidia: u32,
    /// `nvidia-uvm`, `nvidia-uvm-tools`; none while that module is not loaded.
    pub uvm: Option<u32>,
    /// `nvidia-caps/nvidia-cap<N>`; none where the driver has no capabilities.
    pub caps: Option<u32>,
}

impl Majors {
    /// Is this the major of any of the driver's nodes?
    pub fn owns(&self, major: u32) -> bool {
        [Some(self.nvidia), self.uvm, self.caps].contains(&Some(major))
    }

    /// Reads `proc/devices`.
    ///
    /// # Errors
    /// [`Exit::Gpu`] where the driver is not in it, [`Exit::Io`].
    pub fn read(root: &DriverRoot) -> Result<Self> {
        let text = root.read(DEVICES).or_exit(Exit::Io, || format!("cannot read {}", root.shown(DEVICES)))?;
        parse_majors(&text).ok_or_else(|| {
            let what = format!(
                "{} has no \"nvidia\": the driver is not loaded (`modprobe nvidia`)",
                root.shown(DEVICES)
            );
            Error::new(Exit::Gpu, what)
        })
    }
}

/// Lines `195 nvidia-frontend` (up to r545) or `195 nvidia`, `510 nvidia-uvm`, …, under the heading of
/// the character devices; block majors are numbers of another kind.
fn parse_majors(text: &str) -> Option<Majors> {
    let characters = text.lines().take_while(|line| !line.starts_with("Block devices"));
    let pairs: Vec<(u32, &str)> = characters
        .filter_map(|line| line.trim().split_once(' '))
        .filter_map(|(major, name)| Some((major.parse().ok()?, name)))
        .collect();
    let major = |name: &str| pairs.iter().find(|(_, n)| *n == name).map(|(major, _)| *major);
    Some(Majors {
        nvidia: major("nvidia").or_else(|| major("nvidia-frontend"))?,
        uvm: major("nvidia-uvm"),
        caps: major("nvidia-caps"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_wordings_of_the_version() {
        for (text, version) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n\
                 GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
                Some("550.54.15"),
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build  (dvs-builder)\n",
                Some("560.35.03"),
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.82  Release Build\n",
                Some("580.82"),
            ),
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module\nGCC version:  12.2.0\n", None),
            ("NVRM version: 1..2 .1 ../../etc 550\n", None),
            ("", None),
        ] {
            assert_eq!(parse_version(text), version, "{text}");
        }
    }

    const INFORMATION: &str = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 200\n\
        GPU UUID: \t GPU-5a6b7c8d-0000-1111-2222-333344445555\nVideo BIOS: \t 92.00.45.00.03\n\
        Bus Type: \t PCIe\nBus Location: \t 0000:3b:00.0\nDevice Minor: \t 3\n\
        GPU Firmware: \t 550.54.15\nGPU Excluded:\t No\n";

    #[test]
    fn information_as_the_driver_prints_it() {
        let known = parse_information(INFORMATION).unwrap();
        assert_eq!(known.model, "NVIDIA A100-SXM4-40GB");
        assert_eq!(known.uuid.unwrap().as_str(), "GPU-5a6b7c8d-0000-1111-2222-333344445555");
        assert_eq!((known.minor, known.excluded), (3, false));
    }

    #[test]
    fn a_gpu_that_is_not_initialised_has_no_uuid() {
        let unknown = INFORMATION
            .replace("GPU-5a6b7c8d-0000-1111-2222-333344445555", "GPU-????????-????-????-????-????????????");
        assert_eq!(parse_information(&unknown).unwrap().uuid, None);
        let without: String =
            INFORMATION.lines().filter(|l| !l.contains("UUID")).fold(String::new(), |t, l| t + l + "\n");
        assert_eq!(parse_information(&without).unwrap().uuid, None);
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        for (was, is, reason) in [
            ("Device Minor", "Device Major", "has no \"Device Minor\""),
            ("Minor: \t 3", "Minor: \t x\u{1b}", "has the device minor \"x\\u{1b}\""),
            ("GPU-5a6b7c8d-", "GPU-", "has the UUID \"GPU-0000-1111-2222-333344445555\""),
        ] {
            assert_eq!(parse_information(&INFORMATION.replace(was, is)), Err(reason.to_owned()));
        }
        assert!(parse_information(&INFORMATION.replace("\t No", "\t Yes")).unwrap().excluded);
    }

    #[test]
    fn majors_of_old_and_new_drivers() {
        let rest = "510 nvidia-uvm\n235 nvidia-caps\n\nBlock devices:\n  8 nvidia\n";
        let all = Majors { nvidia: 195, uvm: Some(510), caps: Some(235) };
        for name in ["nvidia-frontend", "nvidia"] {
            let text = format!("Character devices:\n  1 mem\n195 {name}\n195 nvidia-modeset\n{rest}");
            assert_eq!(parse_majors(&text), Some(all));
        }
        let bare = "Character devices:\n195 nvidia\n";
        assert_eq!(parse_majors(bare), Some(Majors { nvidia: 195, uvm: None, caps: None }));
        assert_eq!(parse_majors("Character devices:\n  1 mem\n\nBlock devices:\n  8 nvidia\n"), None);
    }
}
