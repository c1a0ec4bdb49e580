//! The words of the domain as types, each checked once, where it enters. Touches nothing.

use std::fmt;
use std::num::{NonZeroU8, NonZeroU32};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a value that does not fit its type says: what is allowed. The caller adds value and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub &'static str);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Invalid {}

/// Serialises through `Display`, deserialises through `FromStr`: one spelling everywhere.
macro_rules! as_text {
    ($name:ty) => {
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Checked text that is kept as it was written.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $allowed:literal, $ok:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                let ok: fn(&str) -> bool = $ok;
                if ok(text) { Ok(Self(text.to_owned())) } else { Err(Invalid($allowed)) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        as_text!($name);
    };
}

checked_text!(
    /// A physical GPU's UUID as the driver prints it, for example
    /// `GPU-5a6b7c8d-0000-1111-2222-333344445555`.
    GpuUuid,
    "a GPU UUID looks like GPU-5a6b7c8d-0000-1111-2222-333344445555 (see `nvidia-smi -L`)",
    |t| t.strip_prefix("GPU-").is_some_and(is_uuid)
);

checked_text!(
    /// A MIG device's UUID as the driver prints it: `MIG-6f6b7c8d-0000-1111-2222-333344445555`, and before r470
    /// `MIG-GPU-<uuid>/<GPU instance>/<compute instance>`.
    MigUuid,
    "a MIG device's UUID looks like MIG-6f6b7c8d-0000-1111-2222-333344445555 (see `nvidia-smi -L`)",
    |t| {
        let Some(rest) = t.strip_prefix("MIG-") else { return false };
        let old = |t: &str| {
            let (uuid, instance) = t.split_once('/')?;
            let (gi, ci) = instance.split_once('/')?;
            decimal(gi).and(decimal(ci)).map(|_| is_uuid(uuid))
        };
        is_uuid(rest) || rest.strip_prefix("GPU-").and_then(old) == Some(true)
    }
);

checked_text!(
    /// The name of a MIG profile as the driver prints it: `1g.10gb`, `1g.10gb+me`, and `1c.3g.40gb` for one of several
    /// compute instances on a GPU instance.
    MigProfile,
    "a MIG profile looks like 1g.10gb (see `nvidia-smi -L`)",
    |t| {
        let counted = |t: &str, unit| t.strip_suffix(unit).and_then(decimal).is_some();
        let (sizes, media) = t.split_at(t.find(['+', '-']).unwrap_or(t.len()));
        let parts: Vec<&str> = sizes.split('.').collect();
        let sized = match parts[..] {
            [g, memory] => counted(g, "g") && counted(memory, "gb"),
            [c, g, memory] => counted(c, "c") && counted(g, "g") && counted(memory, "gb"),
            _ => false,
        };
        sized && t.len() <= 32 && media.bytes().all(|b| b.is_ascii_lowercase() || b"+-.".contains(&b))
    }
);

checked_text!(
    /// The name of a vGPU type.
    TypeName,
    "a type name is 1 to 63 of a-z, A-Z, 0-9, '.', '_' and '-', the first a letter or digit",
    |t| {
        t.len() <= 63
            && t.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
            && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    }
);

checked_text!(
    /// A container's id, as its runtime gives it (runtime-spec, "State"). Unique per runtime only.
    ContainerId,
    "a container id is 1 to 1024 printable ASCII characters without '/' and spaces",
    |t| { (1..=1024).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_graphic() && b != b'/') }
);

impl MigProfile {
    /// The memory that is in the name: `10gb`. A device has a little less.
    pub fn memory(&self) -> Bytes {
        let sizes = self.0.split(['.', '+', '-']).find_map(|part| decimal(part.strip_suffix("gb")?));
        Bytes(u64::from(sizes.unwrap_or_default()) << 30)
    }
}

fn is_uuid(text: &str) -> bool {
    let hex = |b: u8| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && text.bytes().all(hex)
}

/// A PCI address as sysfs and procfs write it: `0000:3b:00.0`. NVML's eight-digit domain is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl FromStr for PciAddress {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse_pci(text).ok_or(Invalid("a PCI address looks like 0000:3b:00.0"))
    }
}

fn parse_pci(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.split(':');
    let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |t: &str, digits: &[usize]| {
        let well_formed = digits.contains(&t.len()) && t.bytes().all(|b| b.is_ascii_hexdigit());
        well_formed.then(|| u32::from_str_radix(t, 16).ok()).flatten()
    };
    let address = PciAddress {
        domain: hex(domain, &[4, 5, 6, 7, 8])?,
        bus: hex(bus, &[2])?.try_into().ok()?,
        device: hex(device, &[2])?.try_into().ok()?,
        function: hex(function, &[1])?.try_into().ok()?,
    };
    (parts.next().is_none() && address.device < 32 && address.function < 8).then_some(address)
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

as_text!(PciAddress);

/// Where a MIG device is on its GPU: `1.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MigInstance {
    /// The GPU instance's id.
    pub gi: u32,
    /// The compute instance's id in it.
    pub ci: u32,
}

impl fmt::Display for MigInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.gi, self.ci)
    }
}

/// One virtual GPU: a share of a GPU, `<gpu uuid>/<type>/<n>`, or a MIG device,
/// `<gpu uuid>/<type>/<GPU instance>.<compute instance>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VgpuId {
    /// The physical GPU it is cut from.
    pub gpu: GpuUuid,
    /// Its type.
    pub kind: TypeName,
    /// Which of that type on that GPU.
    pub part: Part,
}

/// Which one of several on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Its number among those of its type, from 0.
    Share(u32),
    /// Its place, which it shares with no other.
    Mig(MigInstance),
}

impl VgpuId {
    /// What tells it from the others of its GPU: `small/3`, `mig/1.0`.
    pub fn on_its_gpu(&self) -> String {
        format!("{}/{}", self.kind, self.part)
    }
}

impl FromStr for Part {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let part = match text.split_once('.') {
            None => decimal(text).map(Self::Share),
            Some((gi, ci)) => decimal(gi).zip(decimal(ci)).map(|(gi, ci)| Self::Mig(MigInstance { gi, ci })),
        };
        part.ok_or(Invalid("a vGPU id ends in a number, or in <GPU instance>.<compute instance>"))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(n) => write!(f, "{n}"),
            Self::Mig(instance) => write!(f, "{instance}"),
        }
    }
}

impl FromStr for VgpuId {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = Invalid("a vGPU id looks like <gpu uuid>/<type>/<number>");
        let (rest, part) = text.rsplit_once('/').ok_or(invalid.clone())?;
        let (gpu, kind) = rest.split_once('/').ok_or(invalid)?;
        Ok(Self { gpu: gpu.parse()?, kind: kind.parse()?, part: part.parse()? })
    }
}

impl fmt::Display for VgpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.gpu, self.kind, self.part)
    }
}

as_text!(VgpuId);

/// An amount of memory in bytes. Text has a unit: `10GiB`, `512MiB`, `8000000000B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// From the largest down.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

impl FromStr for Bytes {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = Invalid(
            "memory is a whole number above 0 and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, like \"10GiB\"",
        );
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        let number: Option<u64> = number.parse().ok().filter(|n| *n > 0);
        number.zip(scale).and_then(|(n, scale)| n.checked_mul(scale)).map(Self).ok_or(invalid)
    }
}

impl fmt::Display for Bytes {
    /// The largest unit that gives a whole number: `10GiB`, `10GB`, `1500MB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale));
        let (unit, scale) = whole.unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

/// A share of a GPU's SMs, 1 to 100 percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Percent(NonZeroU8);

impl Percent {
    /// The number.
    pub fn get(self) -> u32 {
        u32::from(self.0.get())
    }
}

impl TryFrom<i64> for Percent {
    type Error = Invalid;
    fn try_from(value: i64) -> Result<Self, Invalid> {
        let percent = u8::try_from(value).ok().filter(|p| *p <= 100).and_then(NonZeroU8::new);
        percent.map(Self).ok_or(Invalid("a percentage is a whole number from 1 to 100"))
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::try_from(i64::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// How many vGPUs a container asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(NonZeroU32);

impl Count {
    /// One.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// The number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl FromStr for Count {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let count = decimal(text).and_then(NonZeroU32::new);
        count.map(Self).ok_or(Invalid("a count is a whole number above 0, without sign or spaces"))
    }
}

/// Digits only: what `u32::from_str` would also take ("+1") is not how anybody writes a count.
fn decimal(text: &str) -> Option<u32> {
    let plain = text == "0" || !text.starts_with('0');
    (plain && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// A character device's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device minor: the driver's own number of the GPU, not the NVML or CUDA index.
    pub minor: u32,
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-5a6b7c8d-0000-1111-2222-333344445555";

    #[test]
    fn uuids() {
        assert!(UUID.parse::<GpuUuid>().is_ok());
        for bad in [
            "",
            "GPU-",
            "gpu-5a6b7c8d-0000-1111-2222-333344445555",
            "GPU-????????-????-????-????-????????????",
            "GPU-5a6b7c8d-0000-1111-2222-33334444555/",
            "GPU-5A6B7C8D-0000-1111-2222-333344445555",
        ] {
            assert!(bad.parse::<GpuUuid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn mig_uuids_of_new_and_old_drivers() {
        let new = UUID.replace("GPU", "MIG");
        for good in [new.clone(), format!("MIG-{UUID}/7/0"), format!("MIG-{UUID}/13/7")] {
            assert_eq!(good.parse::<MigUuid>().unwrap().as_str(), good);
        }
        for bad in ["", "MIG-", UUID, &format!("MIG-{UUID}"), &format!("MIG-{UUID}/7"), &format!("{new}/7/0")]
        {
            assert!(bad.parse::<MigUuid>().is_err(), "{bad}");
        }
        for bad in ["7/0/1", "7/x", "/0", "7/", "../0"] {
            assert!(format!("MIG-{UUID}/{bad}").parse::<MigUuid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn mig_profiles() {
        let memory = |name: &str| name.parse::<MigProfile>().unwrap().memory();
        assert_eq!([memory("1c.3g.40gb"), memory("1g.10gb+me")], [Bytes(40 << 30), Bytes(10 << 30)]);
        let names = ["1g.10gb", "7g.80gb", "1c.3g.40gb", "1g.10gb+me", "1g.24gb-me", "1g.24gb+me.all"];
        for name in names {
            assert_eq!(name.parse::<MigProfile>().unwrap().as_str(), name);
        }
        for bad in
            ["", "1g", "10gb", "g.gb", "1g.10GB", "1g.10gb ", "1g.10gbme", "MIG 1g.10gb", "+me", "1g.1g.10gb"]
        {
            assert!(bad.parse::<MigProfile>().is_err(), "{bad}");
        }
    }

    #[test]
    fn pci_addresses_have_one_spelling() {
        for text in ["0000:3b:00.0", "00000000:3B:00.0", "0000:3B:00.0"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), "0000:3b:00.0");
        }
        for bad in ["3b:00.0", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8", "0000:3b:00.0:1", "0000:+b:00.0"]
        {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn vgpu_ids_round_trip() {
        for rest in ["small/3", "1g.10gb/7.0", "a.b/0"] {
            let text = format!("{UUID}/{rest}");
            let id: VgpuId = text.parse().unwrap();
            assert_eq!((id.to_string(), id.on_its_gpu()), (text, rest.to_owned()));
        }
        let mig: VgpuId = format!("{UUID}/small/7.1").parse().unwrap();
        assert_eq!(mig.part, Part::Mig(MigInstance { gi: 7, ci: 1 }));
        assert!("small/3".parse::<VgpuId>().is_err());
        for bad in ["small", "small/+3", "a/b/3", "small/7.", "small/.0", "small/7.0.0", "small/07.0"] {
            assert!(format!("{UUID}/{bad}").parse::<VgpuId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn memory_has_a_unit() {
        for (text, bytes) in [("10GiB", 10 << 30), ("1B", 1), ("3kB", 3000), ("2TB", 2_000_000_000_000)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        for bad in ["", "10", "GiB", "10 GiB", "10gib", "-1GiB", "1.5GiB", "0GiB", "99999999999TiB", "+1GiB"]
        {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
        // As it was written, unless a larger unit would do.
        for text in ["10GiB", "10GB", "1500MB", "40000MiB", "1000GiB", "2TB", "3kB", "7B"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
        assert_eq!(Bytes(0).to_string(), "0B");
    }

    #[test]
    fn counts_are_plain_numbers() {
        assert_eq!("16".parse::<Count>().unwrap().get(), 16);
        for bad in ["", "0", "-1", "+1", "1.5", " 1", "01", "1 ", "99999999999", "١"] {
            assert!(bad.parse::<Count>().is_err(), "{bad}");
        }
    }

    #[test]
    fn container_ids_stay_on_one_line() {
        for bad in ["", "a b", "a/b", "a\nb", "é", &"x".repeat(1025)] {
            assert!(bad.parse::<ContainerId>().is_err(), "{bad}");
        }
    }
}
