//! The config as a tree of values that know their places, with variables filled in.
//!
//! Knows TOML; does not know what any key means.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::is_private;
use super::problem::Problems;
use super::source::{Place, Source};
use super::surroundings::Surroundings;
use super::{mask, syntax, variables};

/// A value with the place it was written at.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub value: T,
    pub place: Place,
}

impl<T> At<T> {
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> At<U> {
        At { value: f(self.value), place: self.place }
    }
}

/// A string after its variables are filled in. Messages quote `written`: what a variable held
/// is nobody's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    pub value: String,
    pub written: String,
    /// A variable in it could not be filled in.
    pub failed: bool,
}

impl Text {
    /// A string without variables.
    pub fn plain(text: &str) -> Self {
        Self { value: text.to_owned(), written: text.to_owned(), failed: false }
    }
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
    Number(f64),
    Flag(bool),
    List(Vec<Node>),
    Table(Table),
    /// A date, or a number that is none, which no key takes.
    Other,
}

impl Node {
    /// What kind of value it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Number(_) => "a number with a point",
            Value::Flag(_) => "true or false",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Other => "a date or no number",
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
        return Err(syntax::problems(&source, text, &errors));
    }
    let mut private = Vec::new();
    mask::by_table(table.get_ref(), &mut private);
    let source = Source::masking(name, text, &private);
    let mut reading = Reading { source: &source, around, problems };
    let table = reading.table(table.get_ref(), false);
    Ok((table, source))
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
            DeValue::Float(float) => {
                let number = float.as_str().replace('_', "").parse().ok();
                number.filter(|n: &f64| n.is_finite()).map_or(Value::Other, Value::Number)
            }
            DeValue::Datetime(_) => Value::Other,
        };
        Node { place, private, value }
    }
}
