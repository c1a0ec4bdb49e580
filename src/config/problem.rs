//! What is wrong with a pool file, where, and what to do: made, placed and shown. Touches nothing.

use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use crate::config::DEFAULT_PATH;
use crate::error::{Error, Exit};

/// A stretch of one line of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// In characters, at least 1.
    pub width: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub at: Place,
    /// What.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    /// One line: `<path>:<line>:<column>: <message>; <remedy>`.
    pub fn line(&self, path: &Path) -> String {
        let Self { at: Place { line, column, .. }, message, remedy } = self;
        format!("{}:{line}:{column}: {message}; {remedy}", path.display())
    }

    /// Three lines: the message, the line of `text` it is about, and a caret with the remedy.
    pub fn report(&self, path: &Path, text: &str) -> String {
        let Self { at: Place { line, column, width }, message, remedy } = self;
        let source = text.split('\n').nth(line - 1).unwrap_or_default();
        // One column of the terminal for every character, so that the caret stands where it should;
        // only a tab is repeated beneath itself.
        let shown: String = source.trim_end_matches('\r').chars().map(visible).collect();
        let before = source.chars().map(|c| if c == '\t' { '\t' } else { ' ' });
        let indent: String = before.chain(std::iter::repeat(' ')).take(column - 1).collect();
        let carets = "^".repeat(*width);
        let mut out = String::new();
        let _ = writeln!(out, "{}:{line}:{column}: {message}", path.display());
        let _ = writeln!(out, "{line:>5} | {shown}");
        let _ = writeln!(out, "      | {indent}{carets} {remedy}");
        out
    }
}

/// A control character would steer the terminal.
fn visible(c: char) -> char {
    if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }
}

/// The error for a reader who has one line: the first problem, and where to see the others.
pub fn refusal(path: &Path, problems: &[Problem]) -> Error {
    let mut line = problems.first().map(|first| first.line(path)).unwrap_or_default();
    if problems.len() > 1 {
        let _ = write!(line, " (and {} more: `{}`)", problems.len() - 1, command(path, "config check"));
    }
    Error::new(Exit::PoolFile, line)
}

/// The command line that runs this subcommand on this pool file.
pub fn command(path: &Path, subcommand: &str) -> String {
    if path == Path::new(DEFAULT_PATH) {
        return format!("vgpu {subcommand}");
    }
    format!("vgpu --config {} {subcommand}", path.display())
}

/// Finds the places of byte offsets in a text.
pub(super) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let after_newline = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        Self { text, starts: std::iter::once(0).chain(after_newline).collect() }
    }

    /// The part of these bytes that is on their first line.
    pub(super) fn place(&self, bytes: Range<usize>) -> Place {
        let start = self.text.floor_char_boundary(bytes.start);
        let end = self.text.ceil_char_boundary(bytes.end.max(start));
        let line = self.starts.partition_point(|line| *line <= start);
        let before = &self.text[self.starts[line - 1]..start];
        let covered = self.text[start..end].chars().take_while(|c| *c != '\n');
        Place { line, column: before.chars().count() + 1, width: covered.count().max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(at: Place) -> Problem {
        Problem { at, message: "it is wrong".into(), remedy: "make it right".into() }
    }

    #[test]
    fn columns_are_characters_and_lines_end_a_place() {
        let text = "a = 1\nné = \"é\"\r\n";
        let lines = Lines::of(text);
        let value = text.find('"').unwrap();
        assert_eq!(lines.place(0..1), Place { line: 1, column: 1, width: 1 });
        assert_eq!(lines.place(value..value + 4), Place { line: 2, column: 6, width: 3 });
        assert_eq!(lines.place(4..value), Place { line: 1, column: 5, width: 1 });
        assert_eq!(lines.place(text.len()..text.len()), Place { line: 3, column: 1, width: 1 });
        // Not what a parser should say, but nothing to fall over.
        assert_eq!(lines.place(8..8).column, 2);
        assert_eq!(lines.place(900..901).line, 3);
        assert_eq!(Lines::of("").place(0..0), Place { line: 1, column: 1, width: 1 });
    }

    #[test]
    fn the_caret_stands_under_what_is_meant() {
        let text = "\n\té = \"\u{1b}[31m\"\r\n";
        let problem = problem(Place { line: 2, column: 6, width: 7 });
        insta::assert_snapshot!(problem.report(Path::new("pool.toml"), text), @"
        pool.toml:2:6: it is wrong
            2 | 	é = \"\u{fffd}[31m\"
              | 	    ^^^^^^^ make it right
        ");
    }

    #[test]
    fn one_line_says_how_many_more() {
        let first = problem(Place { line: 2, column: 6, width: 7 });
        let line = |path, n| refusal(Path::new(path), &vec![first.clone(); n]).to_string();
        assert_eq!(line("/a", 1), "/a:2:6: it is wrong; make it right");
        assert_eq!(
            line("/a", 3),
            "/a:2:6: it is wrong; make it right (and 2 more: `vgpu --config /a config check`)"
        );
        assert!(line(DEFAULT_PATH, 2).ends_with("(and 1 more: `vgpu config check`)"));
    }
}
