//! The config as a tree of values that know their places, with variables filled in.
//!
//! Knows TOML; does not know what any key means.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::is_private;
use super::problem::{Code, Problem, Problems};
use super::source::{Place, Source};
use super::surroundings::Surroundings;
use super::{mask, variables};

/// A value with the place it was written at.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub value: T,
    pub place: Place,
}

/// A string after its variables are filled in. Messages quote `written`: what a variable held
/// is nobody's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    pub value: String,
    pub written: String,
}

#[derive(Debug)]
pub(super) struct Node {
    pub place: Place,
    /// Its value must not be quoted.
    pub private: bool,
    pub value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Text(Text),
    /// `None` is beyond 64 bits.
    Integer(Option<i64>),
    Flag(bool),
    List(Vec<Node>),
    Table(Table),
    /// A float or a date, which no key takes.
    Other,
}

impl Node {
    /// What kind of value it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Flag(_) => "true or false",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Other => "a number with a point or a date",
        }
    }
}

/// Entries in the order they were written.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub entries: Vec<Entry>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub key: At<String>,
    pub node: Node,
}

impl Table {
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|entry| entry.key.value == key).map(|entry| &entry.node)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let entry = self.entries.iter_mut().find(|entry| entry.key.value == key);
        entry.map(|entry| &mut entry.node)
    }
}

/// Reads a TOML text. `Err` holds every syntax problem there is.
pub(super) fn parse(
    name: &str,
    text: &str,
    around: &Surroundings,
    problems: &mut Problems,
) -> Result<(Table, Arc<Source>), Problems> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mut private = mask::by_lines(text);
        mask::by_table(table.get_ref(), &mut private);
        let source = Source::masking(name, text, &private);
        return Err(syntax(&source, text, &errors));
    }
    let mut private = Vec::new();
    mask::by_table(table.get_ref(), &mut private);
    let source = Source::masking(name, text, &private);
    let mut reading = Reading { source: &source, around, problems };
    let table = reading.table(table.get_ref(), false);
    Ok((table, source))
}

fn syntax(source: &Arc<Source>, text: &str, errors: &[toml::de::Error]) -> Problems {
    let mut problems = Problems::default();
    let mut last = None;
    for error in errors {
        let span = error.span().unwrap_or(text.len()..text.len());
        let place = Place::new(source, span);
        let (line, _) = place.line_and_column();
        let message = error.message().trim().replace('\n', ", ");
        // A line that went wrong once says little more after that.
        if last.replace(line) == Some(line) {
            continue;
        }
        problems.push(if message.starts_with("duplicate key") {
            Problem::new(Code::DuplicateKey, &place, "this key or table was written before")
                .help("keep one of the two")
        } else {
            Problem::new(Code::Syntax, &place, format!("this is not TOML: {message}"))
                .maybe(syntax_help(&message, source.slice(line_around(text, place.span.start))))
        });
    }
    problems
}

fn line_around(text: &str, at: usize) -> Range<usize> {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |i| i + 1);
    let end = text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |i| at + i);
    start..end
}

fn syntax_help(message: &str, line: &str) -> Option<String> {
    let value = line.split_once('=').map(|(_, value)| value.trim()).unwrap_or_default();
    let bare = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '.');
    let help = if bare {
        "strings stand in quotes"
    } else if message.contains("basic string") || message.contains("literal string") {
        "close the quotes on the same line, or use \"\"\" for several lines"
    } else if message.contains("array") {
        "a list is written [\"a\", \"b\"]"
    } else if line.trim_start().starts_with('[') {
        "a section is written [listeners.name]"
    } else {
        "a setting is written key = value, one a line"
    };
    Some(help.to_owned())
}

struct Reading<'a> {
    source: &'a Arc<Source>,
    around: &'a Surroundings,
    problems: &'a mut Problems,
}

impl Reading<'_> {
    fn table(&mut self, table: &DeTable<'_>, private: bool) -> Table {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, value)| (key.span().start, value.span().start));
        let entries = entries.into_iter().map(|(key, value)| {
            let private = is_private(key.get_ref()).unwrap_or(private);
            let place = Place::new(self.source, key.span());
            let key = At { value: key.get_ref().to_string(), place };
            Entry { key, node: self.node(value, private) }
        });
        Table { entries: entries.collect() }
    }

    fn node(&mut self, value: &Spanned<DeValue<'_>>, private: bool) -> Node {
        let place = Place::new(self.source, value.span());
        let value = match value.get_ref() {
            DeValue::String(text) => {
                Value::Text(variables::fill(text, &place, self.around, self.problems))
            }
            DeValue::Integer(i) => {
                let digits = i.as_str().replace('_', "");
                Value::Integer(i64::from_str_radix(&digits, i.radix()).ok())
            }
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Array(items) => {
                Value::List(items.iter().map(|item| self.node(item, private)).collect())
            }
            DeValue::Table(table) => Value::Table(self.table(table, private)),
            DeValue::Float(_) | DeValue::Datetime(_) => Value::Other,
        };
        Node { place, private, value }
    }
}
