//! Driver capabilities: what a container needs the driver for, as `NVIDIA_DRIVER_CAPABILITIES` words it.
//! Pure.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Exit, Result, quoted};
use crate::types::Invalid;

/// What a container needs the driver for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// NVML and `nvidia-smi`.
    Utility,
    /// CUDA and OpenCL.
    Compute,
    /// Video decoding and encoding.
    Video,
    /// OpenGL and Vulkan.
    Graphics,
    /// Showing what was drawn: [`Capability::Graphics`] and the modeset node.
    Display,
    /// Deep learning for graphics (DLSS).
    Ngx,
    /// The libraries of the other capabilities for 32-bit programs, too.
    Compat32,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Utility, Self::Compute, Self::Video, Self::Graphics, Self::Display, Self::Ngx, Self::Compat32];

    /// Its word in `NVIDIA_DRIVER_CAPABILITIES`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Utility => "utility",
            Self::Compute => "compute",
            Self::Video => "video",
            Self::Graphics => "graphics",
            Self::Display => "display",
            Self::Ngx => "ngx",
            Self::Compat32 => "compat32",
        }
    }

    /// What it is of no use without: libnvcuvid and libnvidia-encode work on CUDA contexts, and what is
    /// displayed was drawn.
    fn implied(self) -> Option<Self> {
        match self {
            Self::Video => Some(Self::Compute),
            Self::Display => Some(Self::Graphics),
            _ => None,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of [`Capability`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Capabilities(u8);

impl Capabilities {
    /// The variable in a container's environment that asks for them, as with NVIDIA's own toolkit.
    pub const VARIABLE: &'static str = "NVIDIA_DRIVER_CAPABILITIES";

    /// All of them: the word `all`.
    pub const ALL: Self = Self::of(&Capability::ALL);

    /// These, without what they imply.
    pub const fn of(capabilities: &[Capability]) -> Self {
        let mut set = 0;
        let mut i = 0;
        while i < capabilities.len() {
            set |= 1 << capabilities[i] as u8;
            i += 1;
        }
        Self(set)
    }

    /// Those of both.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those of the first that the second lacks.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// None at all.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Is this one among them?
    pub fn contains(self, capability: Capability) -> bool {
        self.intersects(Self::of(&[capability]))
    }

    /// Is any one in both?
    pub fn intersects(self, other: Self) -> bool {
        !self.and(other).is_empty()
    }

    /// Each, in the order of [`Capability::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(move |capability| self.contains(*capability))
    }
}

impl Default for Capabilities {
    /// `utility,compute`
    fn default() -> Self {
        Self::of(&[Capability::Utility, Capability::Compute])
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(Capability::as_str).collect();
        f.write_str(&words.join(","))
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromStr for Capabilities {
    type Err = Invalid;

    /// Words between commas, or `all`, with what they imply; at least one.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let rule = Invalid(
            "it is words between commas, of utility, compute, video, graphics, display, ngx, compat32; or \"all\"",
        );
        let named = |word| if word == "all" { Some(Self::ALL) } else { named(word) };
        let all = words(text).map(named).reduce(|all, one| Some(all?.or(one?)));
        all.flatten().ok_or(rule)
    }
}

/// Which capabilities containers may have on this host, and which those that name none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Of a container that names none.
    pub default: Capabilities,
    /// The most that any may have.
    pub allow: Capabilities,
}

impl Default for Grant {
    /// `utility,compute`, and all to those that ask, as with NVIDIA's own toolkit.
    fn default() -> Self {
        Self { default: Capabilities::default(), allow: Capabilities::ALL }
    }
}

impl Grant {
    /// What the value of a container's [`VARIABLE`](Capabilities::VARIABLE) gets it, with what that implies: words
    /// between commas. `all` stands for all that is allowed; without a word (not set, empty) it is the default.
    ///
    /// # Errors
    /// [`Exit::Request`] for a word that is none of these, or that is not allowed: a container that names what it
    /// needs does not start without it.
    pub fn asked(self, value: Option<&str>) -> Result<Capabilities> {
        let granted = |word| match word {
            "all" => Ok(self.allow),
            _ => self.allowed(word, named(word).ok_or_else(|| unknown(word))?),
        };
        let asked = words(value.unwrap_or_default()).map(granted).reduce(|all, one| Ok(all?.or(one?)));
        asked.unwrap_or(Ok(self.default))
    }

    fn allowed(self, word: &str, means: Capabilities) -> Result<Capabilities> {
        let beyond = means.without(self.allow);
        if beyond.is_empty() {
            return Ok(means);
        }
        let message = format!(
            "the container needs the driver for {word} ({}), and this host allows {} (allow in [driver] of \
             pool.toml); ask for less, or for all, which is all that is allowed",
            Capabilities::VARIABLE,
            self.allow
        );
        Err(Error::new(Exit::Request, message))
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// What a word stands for, with what it implies.
fn named(word: &str) -> Option<Capabilities> {
    let capability = Capability::ALL.into_iter().find(|capability| capability.as_str() == word)?;
    let implied = capability.implied().unwrap_or(capability);
    Some(Capabilities::of(&[capability, implied]))
}

fn unknown(word: &str) -> Error {
    let message = format!(
        "{} has the word {}; it takes {} or all",
        Capabilities::VARIABLE,
        quoted(word),
        Capabilities::ALL.to_string().replace(',', ", ")
    );
    Error::new(Exit::Request, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let asked = |value: &str| Grant::default().asked(Some(value)).unwrap().to_string();
        for (value, means) in [
            ("utility", "utility"),
            ("compute,utility", "utility,compute"),
            (" compute , utility,,compute", "utility,compute"),
            ("video", "compute,video"),
            ("display", "graphics,display"),
            ("graphics,ngx,compat32", "graphics,ngx,compat32"),
            ("all", "utility,compute,video,graphics,display,ngx,compat32"),
            ("utility,all", "utility,compute,video,graphics,display,ngx,compat32"),
            ("", "utility,compute"),
            (" , ", "utility,compute"),
        ] {
            assert_eq!(asked(value), means, "{value:?}");
        }
        assert_eq!(Grant::default().asked(None).unwrap().to_string(), "utility,compute");
    }

    #[test]
    fn a_host_caps_and_sets_the_default() {
        let set = |text: &str| text.parse::<Capabilities>().unwrap();
        let host = Grant { default: set("utility"), allow: set("utility,video") };
        for (value, means) in [
            (None, "utility"),
            (Some(""), "utility"),
            (Some("compute"), "compute"),
            (Some("all"), "utility,compute,video"),
            (Some("all,video"), "utility,compute,video"),
        ] {
            assert_eq!(host.asked(value).unwrap().to_string(), means, "{value:?}");
        }
        for word in ["display", "all,graphics", "utility,ngx"] {
            let error = host.asked(Some(word)).unwrap_err();
            assert_eq!(error.exit, Exit::Request);
            let word = word.split(',').next_back().unwrap();
            let line = format!(
                "the container needs the driver for {word} (NVIDIA_DRIVER_CAPABILITIES), and this host allows \
                 utility,compute,video (allow in [driver] of pool.toml); ask for less, or for all, which is all that is \
                 allowed"
            );
            assert_eq!(error.to_string(), line);
        }
    }

    #[test]
    fn sets_have_at_least_one_word() {
        for bad in ["", ",", "cuda", "compute,cuda", "All"] {
            assert!(bad.parse::<Capabilities>().is_err(), "{bad:?}");
        }
        assert_eq!(" all ".parse(), Ok(Capabilities::ALL));
    }

    #[test]
    fn other_words_are_quoted() {
        for (value, word) in [
            ("compute,cuda", r#""cuda""#),
            ("Compute", r#""Compute""#),
            ("none", r#""none""#),
            ("compute utility", r#""compute utility""#),
            ("all\u{1b}[2J", r#""all\u{1b}[2J""#),
        ] {
            let error = Grant::default().asked(Some(value)).unwrap_err();
            assert_eq!(error.exit, Exit::Request);
            let line = format!(
                "NVIDIA_DRIVER_CAPABILITIES has the word {word}; it takes utility, compute, video, graphics, \
                 display, ngx, compat32 or all"
            );
            assert_eq!(error.to_string(), line);
        }
    }
}
