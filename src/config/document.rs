//! A TOML document walked by hand, gathering problems: serde would stop at the first. Knows nothing
//! of pools. Touches nothing.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use super::problem::{Lines, Place, Problem};
use crate::error::quoted;
use crate::types::Invalid;

/// What the parser says of a key that is there already.
const DUPLICATE: &str = "duplicate key";

pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// One table of the document, emptied while it is read.
pub(super) struct Section<'t> {
    name: &'static str,
    at: Range<usize>,
    fields: DeTable<'t>,
    /// The keys that were asked for: all that there are.
    known: Vec<&'static str>,
}

impl<'t> Section<'t> {
    fn new(name: &'static str, at: Range<usize>, fields: DeTable<'t>) -> Self {
        Self { name, at, fields, known: Vec::new() }
    }

    /// Where the table begins.
    pub(super) fn at(&self) -> Range<usize> {
        self.at.clone()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.fields.contains_key(key)
    }

    fn take(&mut self, key: &'static str) -> Option<Value<'t>> {
        self.known.push(key);
        self.fields.remove(key)
    }
}

/// Walks sections and gathers what is wrong.
pub(super) struct Reader<'t> {
    lines: Lines<'t>,
    /// Lines that are not TOML. What else seems wrong there is not worth saying, and what is
    /// missing elsewhere may only have been lost with them.
    torn: Vec<usize>,
    problems: Vec<Problem>,
}

impl<'t> Reader<'t> {
    /// A reader, and the whole document as one section.
    pub(super) fn of(text: &'t str) -> (Self, Section<'t>) {
        let (document, errors) = DeTable::parse_recoverable(text);
        let mut reader = Self { lines: Lines::of(text), torn: Vec::new(), problems: Vec::new() };
        // After a torn header the parser says of a list's second entry that it is there already.
        let (again, torn): (Vec<_>, Vec<_>) = errors.iter().partition(|error| error.message() == DUPLICATE);
        for error in if torn.is_empty() { again } else { torn } {
            reader.not_toml(error);
        }
        (reader, Section::new("file", 0..0, document.into_inner()))
    }

    /// Everything that was wrong, in the document's order.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        self.problems.sort();
        self.problems
    }

    pub(super) fn place(&self, at: Range<usize>) -> Place {
        self.lines.place(at)
    }

    /// The value of a key that may be left out.
    pub(super) fn optional<T>(
        &mut self,
        section: &mut Section<'t>,
        key: &'static str,
        read: impl FnOnce(&DeValue<'t>) -> Result<T, Invalid>,
    ) -> Option<Spanned<T>> {
        let value = section.take(key)?;
        self.read(key, &value, read)
    }

    /// The value of a key that must be there; `example` is how it is written.
    pub(super) fn required<T>(
        &mut self,
        section: &mut Section<'t>,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&DeValue<'t>) -> Result<T, Invalid>,
    ) -> Option<Spanned<T>> {
        if !section.has(key) {
            self.missing(section, key, example);
        }
        self.optional(section, key, read)
    }

    /// A value, or the problem that it does not fit its key.
    pub(super) fn read<T>(
        &mut self,
        key: &str,
        value: &Value<'t>,
        read: impl FnOnce(&DeValue<'t>) -> Result<T, Invalid>,
    ) -> Option<Spanned<T>> {
        match read(value.get_ref()) {
            Ok(fit) => Some(Spanned::new(value.span(), fit)),
            Err(Invalid(rule)) => {
                self.wrong(value.span(), format!("{key} cannot be {}", shown(value.get_ref())), rule);
                None
            }
        }
    }

    /// `[key]`
    pub(super) fn table(&mut self, section: &mut Section<'t>, key: &'static str) -> Option<Section<'t>> {
        let value = section.take(key)?;
        self.section(key, value)
    }

    /// Every `[[key]]`
    pub(super) fn list(&mut self, section: &mut Section<'t>, key: &'static str) -> Vec<Section<'t>> {
        let Some(value) = section.take(key) else { return Vec::new() };
        let rule = Invalid("it is a list of tables, and each begins with its name in [[ ]]");
        let is_list = |value: &DeValue<'t>| value.is_array().then_some(()).ok_or(rule);
        self.read(key, &value, is_list);
        let DeValue::Array(entries) = value.into_inner() else { return Vec::new() };
        entries.into_iter().filter_map(|entry| self.section(key, entry)).collect()
    }

    fn section(&mut self, name: &'static str, value: Value<'t>) -> Option<Section<'t>> {
        let rule = Invalid("it is a table, and begins with its name in [ ]");
        let at = self.read(name, &value, |value| value.is_table().then_some(()).ok_or(rule))?.span();
        let DeValue::Table(fields) = value.into_inner() else { return None };
        Some(Section::new(name, at, fields))
    }

    /// To be called when all keys of a section were asked for: the others are problems.
    pub(super) fn no_other_keys(&mut self, section: Section<'t>) {
        for key in section.fields.keys() {
            let message = format!("unknown key {}", quoted(key.get_ref()));
            self.wrong(key.span(), message, format!("the keys here are {}", section.known.join(", ")));
        }
    }

    /// Something is wrong with these bytes.
    pub(super) fn wrong(&mut self, at: Range<usize>, message: String, remedy: impl Into<String>) {
        let at = self.lines.place(at);
        if !self.torn.contains(&at.line) {
            self.problems.push(Problem { at, message, remedy: remedy.into() });
        }
    }

    /// As [`Reader::wrong`], when the cause may be a line that could not be read.
    pub(super) fn absent(&mut self, at: Range<usize>, message: String, remedy: impl Into<String>) {
        if self.torn.is_empty() {
            self.wrong(at, message, remedy);
        }
    }

    /// A section has no such key; `example` is how its value is written.
    pub(super) fn missing(&mut self, section: &Section<'t>, key: &str, example: &str) {
        let message = format!("this {} has no {key}", section.name);
        self.absent(section.at(), message, format!("add {key} = {example}"));
    }

    /// One problem per line: what follows on it is mostly the same slip again.
    fn not_toml(&mut self, error: &Error) {
        let at = error.span().unwrap_or_default();
        let line = self.lines.place(at.clone()).line;
        let (message, remedy) = match error.message() {
            DUPLICATE => ("this key is there already".into(), "keep one of the two"),
            other => (format!("this is not TOML: {other}"), "see https://toml.io"),
        };
        self.wrong(at, message, remedy);
        self.torn.push(line);
    }
}

/// The longest number that is shown, in characters.
const SHOWN: usize = 64;

fn shown(value: &DeValue<'_>) -> String {
    let mut scalar = match value {
        DeValue::String(text) => return quoted(text),
        DeValue::Array(_) => return "an array".into(),
        DeValue::Table(_) => return "a table".into(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(time) => time.to_string(),
    };
    scalar.truncate(scalar.floor_char_boundary(SHOWN));
    scalar
}
