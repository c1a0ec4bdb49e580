//! A rule of a device cgroup, as the runtime-spec's `linux.resources.devices` and cgroup v1's
//! `devices.list` write it, and what a list of them lets through. Pure.

use std::fmt;
use std::ops::BitOr;
use std::str::FromStr;

use crate::types::{DeviceNumber, Invalid};

/// Which devices a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `a`: every device. The kernel ignores major, minor and access of such a rule
    /// (cgroup-v1/devices.rst), and the runtime-spec follows it.
    All,
    /// `c`
    Char,
    /// `b`
    Block,
}

/// A set of `r`, `w` and `m`; the bits are those of `BPF_DEVCG_ACC_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// `m`: create a node.
    pub const MKNOD: Self = Self(1);
    /// `r`: open for reading.
    pub const READ: Self = Self(2);
    /// `w`: open for writing.
    pub const WRITE: Self = Self(4);
    /// `rw`: what a GPU needs.
    pub const READ_WRITE: Self = Self(6);
    /// `rwm`
    pub const ALL: Self = Self(7);

    /// The bits of `BPF_DEVCG_ACC_*`.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// What is in `self` and not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Is all of `other` in `self`?
    pub const fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Have the two anything in common?
    pub const fn intersects(self, other: Self) -> bool {
        other.0 & self.0 != 0
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

const LETTERS: [(char, Access); 3] = [('r', Access::READ), ('w', Access::WRITE), ('m', Access::MKNOD)];

impl FromStr for Access {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = Invalid("device access is one or more of r, w and m");
        let letter = |c| LETTERS.iter().find(|(letter, _)| *letter == c).map(|(_, access)| *access);
        let all = text.chars().try_fold(Self::NONE, |all, c| Some(all | letter(c)?));
        all.filter(|access| *access != Self::NONE).ok_or(invalid)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LETTERS.iter().filter(|(_, access)| self.contains(*access)).try_for_each(|(c, _)| write!(f, "{c}"))
    }
}

/// One rule of a device cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRule {
    /// Does it allow, or deny?
    pub allow: bool,
    /// Which devices.
    pub kind: Kind,
    /// The driver; `None` stands for every one.
    pub major: Option<u32>,
    /// The device of that driver; `None` stands for every one.
    pub minor: Option<u32>,
    /// What is allowed or denied.
    pub access: Access,
}

impl DeviceRule {
    /// Allows `access` to one character device.
    pub const fn allow_char(device: DeviceNumber, access: Access) -> Self {
        let DeviceNumber { major, minor } = device;
        Self { allow: true, kind: Kind::Char, major: Some(major), minor: Some(minor), access }
    }

    /// Is the rule about this device?
    pub fn matches(&self, kind: Kind, device: DeviceNumber) -> bool {
        let one = self.kind == kind
            && self.major.is_none_or(|major| major == device.major)
            && self.minor.is_none_or(|minor| minor == device.minor);
        self.kind == Kind::All || one
    }

    /// What the rule is about; all of it where the kind is [`Kind::All`].
    pub fn effective_access(&self) -> Access {
        if self.kind == Kind::All { Access::ALL } else { self.access }
    }

    /// Does the rule alone allow `access` to the character device? The kernel asks cgroup v1's list so:
    /// one entry must cover all that is wanted.
    pub fn covers(&self, device: DeviceNumber, access: Access) -> bool {
        self.allow && self.matches(Kind::Char, device) && self.effective_access().contains(access)
    }
}

/// What `rules` let through; of the rules that are about a device, the last one decides each of
/// `r`, `w` and `m`. Nothing is let through unless a rule says so.
pub fn granted(rules: &[DeviceRule], kind: Kind, device: DeviceNumber) -> Access {
    let about = rules.iter().filter(|rule| rule.matches(kind, device));
    about.fold(Access::NONE, |granted, rule| match rule.allow {
        true => granted | rule.effective_access(),
        false => granted.without(rule.effective_access()),
    })
}

/// Do `rules` let a process open the character device at all, for reading or for writing?
pub fn allows(rules: &[DeviceRule], device: DeviceNumber) -> bool {
    granted(rules, Kind::Char, device).intersects(Access::READ_WRITE)
}

/// As `devices.allow`, `devices.deny` and `devices.list` write it, without allow or deny: `c 195:0 rw`.
impl fmt::Display for DeviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::All => 'a',
            Kind::Char => 'c',
            Kind::Block => 'b',
        };
        let number = |n: Option<u32>| n.map_or_else(|| String::from("*"), |n| n.to_string());
        write!(f, "{kind} {}:{} {}", number(self.major), number(self.minor), self.access)
    }
}

/// Reads a line of `devices.list`, which holds what is allowed.
impl FromStr for DeviceRule {
    type Err = Invalid;
    fn from_str(line: &str) -> Result<Self, Invalid> {
        parse_line(line).ok_or(Invalid("a device rule looks like \"c 195:0 rwm\""))
    }
}

fn parse_line(line: &str) -> Option<DeviceRule> {
    let mut words = line.split(' ');
    let kind = match words.next()? {
        "a" => Kind::All,
        "b" => Kind::Block,
        "c" => Kind::Char,
        _ => return None,
    };
    let (major, minor) = words.next()?.split_once(':')?;
    let number = |text: &str| if text == "*" { Some(None) } else { text.parse().ok().map(Some) };
    let (major, minor, access) = (number(major)?, number(minor)?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(DeviceRule { allow: true, kind, major, minor, access })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU0: DeviceNumber = DeviceNumber { major: 195, minor: 0 };

    fn rule(allow: bool, line: &str) -> DeviceRule {
        DeviceRule { allow, ..line.parse().unwrap() }
    }

    #[test]
    fn lines_round_trip() {
        for line in ["a *:* rwm", "c 195:0 rw", "b *:* m", "c 136:* rwm"] {
            assert_eq!(line.parse::<DeviceRule>().unwrap().to_string(), line);
        }
        for bad in ["", "c", "c 195:0", "c 195 rw", "u 1:1 r", "c 195:0 rwx", "c 195:0 rw x", "c -1:0 r"] {
            assert!(bad.parse::<DeviceRule>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_last_rule_about_a_device_decides() {
        let deny_all = rule(false, "a *:* rwm");
        assert!(!allows(&[], GPU0));
        assert!(allows(&[deny_all, rule(true, "c 195:* r")], GPU0));
        assert!(!allows(&[rule(true, "c 195:* rw"), deny_all], GPU0));
        assert!(!allows(&[rule(true, "c 195:* rw"), rule(false, "c 195:0 rw")], GPU0));
        assert!(allows(&[rule(true, "c 195:* rw"), rule(false, "c 195:0 w")], GPU0), "still readable");
        assert!(!allows(&[rule(true, "b *:* rwm"), rule(true, "c 195:1 rw"), rule(true, "c *:* m")], GPU0));
    }

    #[test]
    fn a_rule_of_kind_a_is_about_everything() {
        assert!(allows(&[rule(true, "a 1:3 m")], GPU0));
        assert!(!allows(&[rule(true, "c 195:0 rw"), rule(false, "a 1:3 m")], GPU0));
    }

    #[test]
    fn one_entry_must_cover_all() {
        assert!(rule(true, "a *:* rwm").covers(GPU0, Access::READ_WRITE));
        assert!(rule(true, "c 195:* rwm").covers(GPU0, Access::READ_WRITE));
        for not in ["c 195:0 r", "c 195:1 rwm", "b 195:0 rwm", "c *:* m"] {
            assert!(!rule(true, not).covers(GPU0, Access::READ_WRITE), "{not}");
        }
        assert!(!rule(false, "c 195:0 rwm").covers(GPU0, Access::READ));
    }
}
