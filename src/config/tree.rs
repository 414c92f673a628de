//! The config as a tree of values with their places, after variables were filled in.
//!
//! This module knows the syntax of TOML, but no key of the config.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::config_problem::ConfigProblems;
use super::environment::ConfigEnvironment;
use super::keys::is_private;
use super::source_text::{ConfigSource, SourceRange};
use super::{mask, syntax, variables};

/// A value with its range in the source text.
#[derive(Debug, Clone)]
pub(super) struct Located<T> {
    pub value: T,
    pub place: SourceRange,
}

impl<T> Located<T> {
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Located<U> {
        Located { value: f(self.value), place: self.place }
    }
}

/// A string of the config in which variables were filled in. `written` is the original string.
/// Error messages quote `written`, because the values of variables may be private.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpandedText {
    pub value: String,
    pub written: String,
    /// Whether a variable of the string could not be filled in.
    pub failed: bool,
}

impl ExpandedText {
    /// Makes a string without variables.
    pub fn plain(text: &str) -> Self {
        Self { value: text.to_owned(), written: text.to_owned(), failed: false }
    }
}

#[derive(Debug)]
pub(super) struct TomlNode {
    pub place: SourceRange,
    /// Whether the value is private and must not be quoted.
    pub private: bool,
    pub value: TomlValue,
}

#[derive(Debug)]
pub(super) enum TomlValue {
    Text(ExpandedText),
    /// An integer; `None` if it exceeds 64 bits.
    Integer(Option<i64>),
    Number(f64),
    Flag(bool),
    List(Vec<TomlNode>),
    Table(TomlTable),
    /// A date or a special number such as `nan`, which no key accepts.
    Other,
}

impl TomlNode {
    /// Returns the noun by which error messages name the type of the value.
    pub fn kind(&self) -> &'static str {
        match self.value {
            TomlValue::Text(_) => "a string",
            TomlValue::Integer(_) => "an integer",
            TomlValue::Number(_) => "a number with a point",
            TomlValue::Flag(_) => "true or false",
            TomlValue::List(_) => "a list",
            TomlValue::Table(_) => "a table",
            TomlValue::Other => "a date or no number",
        }
    }

    /// Returns the items of a list. A value of another type counts as a list with this value as its
    /// only item.
    pub fn items(&self) -> &[Self] {
        match &self.value {
            TomlValue::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }
}

/// A table of the config, with the entries in their written order.
#[derive(Debug, Default)]
pub(super) struct TomlTable {
    pub entries: Vec<TomlEntry>,
}

#[derive(Debug)]
pub(super) struct TomlEntry {
    pub key: Located<String>,
    pub node: TomlNode,
}

impl TomlTable {
    pub fn get(&self, key: &str) -> Option<&TomlNode> {
        self.entries.iter().find(|entry| entry.key.value == key).map(|entry| &entry.node)
    }

    /// Removes the entry `key` from the table and returns it; `None` if the table lacks the key.
    pub fn take(&mut self, key: &str) -> Option<TomlEntry> {
        let at = self.entries.iter().position(|entry| entry.key.value == key)?;
        Some(self.entries.remove(at))
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut TomlNode> {
        let entry = self.entries.iter_mut().find(|entry| entry.key.value == key);
        entry.map(|entry| &mut entry.node)
    }
}

/// Parses a TOML text. `Err` contains every syntax error.
pub(super) fn parse(
    name: &str,
    text: &str,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Result<(TomlTable, Arc<ConfigSource>), ConfigProblems> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mut private = mask::by_lines(text);
        mask::by_table(table.get_ref(), &mut private);
        let source = ConfigSource::masking(name, text, &private);
        return Err(syntax::problems(&source, text, &errors));
    }

    let mut private = Vec::new();
    mask::by_table(table.get_ref(), &mut private);
    let source = ConfigSource::masking(name, text, &private);
    let mut reading = TomlReader { source: &source, around: Some(around), problems };
    let table = reading.table(table.get_ref(), false);
    Ok((table, source))
}

/// Parses a TOML text as [`parse`] does, but keeps every string as written: fills in no variables
/// and masks no private parts.
pub(super) fn parse_verbatim(
    name: &str,
    text: &str,
) -> Result<(TomlTable, Arc<ConfigSource>), ConfigProblems> {
    let source = ConfigSource::new(name, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(syntax::problems(&source, text, &errors));
    }

    let mut problems = ConfigProblems::default();
    let mut reading = TomlReader { source: &source, around: None, problems: &mut problems };
    let table = reading.table(table.get_ref(), false);
    Ok((table, source))
}

struct TomlReader<'a> {
    source: &'a Arc<ConfigSource>,
    /// Environment with the values of variables; `None` if strings are read without filling in
    /// variables.
    around: Option<&'a ConfigEnvironment>,
    problems: &'a mut ConfigProblems,
}

impl TomlReader<'_> {
    fn table(&mut self, table: &DeTable<'_>, private: bool) -> TomlTable {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, value)| (key.span().start, value.span().start));
        let entries = entries.into_iter().map(|(key, value)| {
            let private = match self.around {
                Some(_) => is_private(key.get_ref()).unwrap_or(private),
                None => false,
            };
            let place = SourceRange::new(self.source, key.span());
            let key = Located { value: key.get_ref().to_string(), place };
            TomlEntry { key, node: self.node(value, private) }
        });
        TomlTable { entries: entries.collect() }
    }

    fn node(&mut self, value: &Spanned<DeValue<'_>>, private: bool) -> TomlNode {
        let place = SourceRange::new(self.source, value.span());
        let value = match value.get_ref() {
            DeValue::String(text) => TomlValue::Text(match self.around {
                Some(around) => variables::fill(text, &place, around, self.problems),
                None => ExpandedText::plain(text),
            }),
            DeValue::Integer(i) => {
                let digits = i.as_str().replace('_', "");
                TomlValue::Integer(i64::from_str_radix(&digits, i.radix()).ok())
            }
            DeValue::Boolean(flag) => TomlValue::Flag(*flag),
            DeValue::Array(items) => {
                TomlValue::List(items.iter().map(|item| self.node(item, private)).collect())
            }
            DeValue::Table(table) => TomlValue::Table(self.table(table, private)),
            DeValue::Float(float) => {
                let number = float.as_str().replace('_', "").parse().ok();
                number.filter(|n: &f64| n.is_finite()).map_or(TomlValue::Other, TomlValue::Number)
            }
            DeValue::Datetime(_) => TomlValue::Other,
        };

        TomlNode { place, private, value }
    }
}
