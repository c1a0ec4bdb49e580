//! The one error type: an exit code and one line for the user. Touches nothing.

use std::fmt;

/// Exit codes of `vgpu`. The numbers are those of `sysexits.h(3)`, so that an engine's
/// "exit code: 75" can be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command line is wrong.
    Usage = 64,
    /// The request, or the bundle it came in, is wrong.
    Request = 65,
    /// A GPU, or the driver, cannot be used.
    Gpu = 69,
    /// The kernel refused something, or vgpu itself failed.
    Io = 74,
    /// No free vGPU of that type, or the lock was not to be had in time.
    NoneFree = 75,
    /// A file that vgpu must trust is not to be trusted.
    Untrusted = 77,
    /// pool.toml is wrong.
    PoolFile = 78,
}

impl Exit {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Usage, Self::Request, Self::Gpu, Self::Io, Self::NoneFree, Self::Untrusted, Self::PoolFile];
}

/// What went wrong, where, and what to do, in one line, with the exit code it ends in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// How the process ends.
    pub exit: Exit,
    message: String,
}

/// `std::result::Result` with vgpu's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with this line. Whatever came from a container must have gone through [`quoted`].
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// The same error, with what was being done in front: `starting: <line>`.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The same error, with what to do about it after the cause.
    #[must_use]
    pub fn remedy(mut self, what: &str) -> Self {
        self.message = format!("{}; {what}", self.message);
        self
    }

    /// The same error, with what went wrong while undoing added.
    #[must_use]
    pub fn also(mut self, undone: Result<()>) -> Self {
        if let Err(e) = undone {
            self.message = format!("{}; while undoing: {e}", self.message);
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Turns any error into vgpu's, with what was tried in front of it.
pub trait OrExit<T> {
    /// `what` reads like "cannot read /etc/vgpu/pool.toml"; the cause is put after it.
    fn or_exit<W: fmt::Display>(self, exit: Exit, what: impl FnOnce() -> W) -> Result<T>;
}

impl<T, E: fmt::Display> OrExit<T> for std::result::Result<T, E> {
    fn or_exit<W: fmt::Display>(self, exit: Exit, what: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|cause| Error::new(exit, format!("{}: {cause}", what())))
    }
}

/// The longest piece of foreign text that is shown, in characters: the path of a bundle or a cgroup has its
/// engine's id of 64 in it.
const SHOWN: usize = 256;

/// Text from a container or a file, safe for a terminal and a log: quoted, control and
/// non-ASCII characters escaped, cut after 256 characters.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars().take(SHOWN) {
        out.extend(c.escape_default());
    }
    out.push('"');
    if text.chars().nth(SHOWN).is_some() {
        out.push_str(&format!("… ({} bytes)", text.len()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_escapes_and_cuts() {
        assert_eq!(quoted("a\n\x1b[31m\u{202e}"), r#""a\n\u{1b}[31m\u{202e}""#);
        assert_eq!(quoted(&"x".repeat(256)), format!("\"{}\"", "x".repeat(256)));
        assert_eq!(quoted(&"x".repeat(4096)), format!("\"{}\"… (4096 bytes)", "x".repeat(256)));
    }

    #[test]
    fn context_goes_in_front() {
        let e = Error::new(Exit::Io, "no space left").context("writing state");
        assert_eq!(e.to_string(), "writing state: no space left");
    }
}
