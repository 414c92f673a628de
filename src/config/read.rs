//! Reads the values of one config table, and reports every problem in it.

use std::sync::Arc;
use std::time::Duration;

use crate::envelope::Money;
use crate::limits;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::duration;
use super::keys::{KnownSection, did_you_mean_value, nearest};
use super::source_text::SourceRange;
use super::tree::{ExpandedText, Located, TomlEntry, TomlNode, TomlTable, TomlValue};

/// Reader of one table of the config.
pub(super) struct TableReader<'a> {
    table: &'a TomlTable,
    /// Range of the table's name in the config's text, for problems about missing keys.
    pub place: SourceRange,
    /// Description of the table in messages, such as "listener `search`" in the message "`peers` of
    /// listener `search`".
    what: String,
    /// Known keys that the author probably meant by misspelled keys in this table. A required key
    /// in this list is not reported as missing.
    mistyped: Vec<&'static str>,
    /// Keys that the table must have.
    required: Vec<String>,
    /// All keys that the table may have.
    known: Vec<&'static str>,
    /// Whether the table has a text with a variable that could not be filled in. Such variables are
    /// reported before the table is read.
    has_failed_text: bool,
    /// Number of problems that were reported before this table was read.
    problems_before: usize,
    pub problems: &'a mut ConfigProblems,
}

impl<'a> TableReader<'a> {
    /// Makes the reader of `table`, and reports the table's unknown keys.
    pub fn new(
        section: &KnownSection,
        table: &'a TomlTable,
        what: String,
        place: SourceRange,
        problems: &'a mut ConfigProblems,
    ) -> Self {
        let problems_before = problems.len();
        let mut mistyped = Vec::new();
        for entry in &table.entries {
            let key = &entry.key;
            if section.kind(&key.value).is_none() {
                let message = format!("{what} has no key `{}`", key.value);
                let help = match meant(&key.value, section) {
                    Some(near) => {
                        mistyped.push(near);
                        format!("did you mean `{near}`?")
                    }
                    None => {
                        let keys: Vec<_> = section.key_names().collect();
                        format!("its keys are {}", keys.join(", "))
                    }
                };
                problems.push(
                    ConfigProblem::new(ProblemCode::UnknownKey, &key.place, message).help(help),
                );
            }
        }

        Self {
            table,
            place,
            what,
            mistyped,
            required: Vec::new(),
            known: section.key_names().collect(),
            has_failed_text: false,
            problems_before,
            problems,
        }
    }

    /// Whether the values read so far have a problem. If true, values that later code derives from
    /// this table may be wrong.
    pub fn has_problem(&self) -> bool {
        self.has_failed_text || self.problems.len() > self.problems_before
    }

    /// Returns the range of the key in the config's text. If the key is missing, returns the range
    /// of the table's name. If an environment variable overrides the key, returns the range of the
    /// value in this variable.
    pub fn place_of(&self, key: &str) -> SourceRange {
        let entry = self.table.entries.iter().find(|entry| entry.key.value == key);
        let Some(TomlEntry { key, node }) = entry else { return self.place.clone() };
        let is_overridden = !Arc::ptr_eq(&key.place.source, &node.place.source);
        if is_overridden { node.place.clone() } else { key.place.clone() }
    }

    /// Returns the range of the key's value in the config's text. If the key is missing, returns the
    /// range of the table's name.
    pub fn place_of_value(&self, key: &str) -> SourceRange {
        self.table.get(key).map_or_else(|| self.place.clone(), |node| node.place.clone())
    }

    pub fn text(&mut self, key: &str) -> Option<Located<ExpandedText>> {
        let node = self.table.get(key)?;
        let text = self.as_text(key, node)?;
        if text.value.value.trim().is_empty() {
            self.empty(key, &text.place);
            return None;
        }

        Some(text)
    }

    pub fn required_text(&mut self, key: &str, example: &str) -> Option<Located<ExpandedText>> {
        self.required(key, example).then(|| self.text(key)).flatten()
    }

    /// Returns whether the table has `key`. If not, reports this as [`Self::required_with`] does,
    /// with `example` as the value in the help text.
    pub fn required(&mut self, key: &str, example: &str) -> bool {
        self.required_with(key, &format!("add {key} = {example}"))
    }

    /// Returns whether the table has `key`. Reports a missing key with the help text `help`, unless
    /// the author probably misspelled the key.
    pub fn required_with(&mut self, key: &str, help: &str) -> bool {
        self.required.push(key.to_owned());
        let is_present = self.table.get(key).is_some();
        if !is_present && !self.mistyped.contains(&key) {
            let message = format!("{} needs `{key}`", self.what);
            let problem = ConfigProblem::new(ProblemCode::MissingKey, &self.place, message);
            self.problems.push(problem.help(help));
        }

        is_present
    }

    pub fn flag(&mut self, key: &str) -> Option<bool> {
        let node = self.table.get(key)?;
        match &node.value {
            TomlValue::Flag(flag) => Some(*flag),
            TomlValue::Text(text) if ["true", "false"].contains(&text.value.as_str()) => {
                self.wrong(key, node, "true or false", Some(text.value.clone()))
            }
            _ => self.wrong(key, node, "true or false", None),
        }
    }

    /// Reads an integer from 1 to `most`. Reports any other value. Returns `None` if the key is
    /// missing or its value was reported.
    pub fn count(&mut self, key: &str, most: u64) -> Option<u64> {
        self.integer(key, 1, most)
    }

    pub fn count32(&mut self, key: &str, most: u32) -> Option<u32> {
        self.count(key, u64::from(most)).and_then(|number| u32::try_from(number).ok())
    }

    /// Reads an integer from 0 to `most`. Reports any other value. Returns 0 if the key is missing
    /// or its value was reported.
    pub fn count32_or_zero(&mut self, key: &str, most: u32) -> u32 {
        let number = self.integer(key, 0, u64::from(most));
        number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
    }

    fn integer(&mut self, key: &str, least: u64, most: u64) -> Option<u64> {
        let node = self.table.get(key)?;
        let number = match &node.value {
            TomlValue::Integer(Some(number)) => *number,
            TomlValue::Integer(None) => i64::MAX,
            TomlValue::Text(text) => {
                let plain = text.value.parse::<u64>().is_ok();
                return self.wrong(key, node, "a whole number", plain.then(|| text.value.clone()));
            }
            _ => return self.wrong(key, node, "a whole number", None),
        };

        let fits = u64::try_from(number).ok().filter(|number| (least..=most).contains(number));
        if fits.is_none() {
            let message = format!("`{key}` of {} is {}", self.what, range_word(number));
            let is_required = self.required.iter().any(|required| required == key);
            let otherwise = if is_required { "" } else { "; without the key the default holds" };
            let help = format!("a whole number from {least} to {most}{otherwise}");
            self.problems
                .push(ConfigProblem::new(ProblemCode::OutOfRange, &node.place, message).help(help));
        }

        fits
    }

    /// Reads a number from `least` to `most`. Reports any other value. Returns `None` if the key is
    /// missing or its value was reported.
    pub fn number(&mut self, key: &str, least: f64, most: f64) -> Option<f64> {
        let node = self.table.get(key)?;
        let number = match &node.value {
            TomlValue::Number(number) => *number,
            TomlValue::Integer(Some(number)) => i32::try_from(*number).map_or(f64::MAX, f64::from),
            TomlValue::Integer(None) => f64::MAX,
            TomlValue::Text(text) => {
                let plain = text.value.parse::<f64>().is_ok();
                return self.wrong(key, node, "a number", plain.then(|| text.value.clone()));
            }
            _ => return self.wrong(key, node, "a number", None),
        };

        let fits = (least..=most).contains(&number);
        if !fits {
            let message = format!("`{key}` of {} is out of range", self.what);
            let help =
                format!("a number from {least} to {most}; without the key the default holds");
            self.problems
                .push(ConfigProblem::new(ProblemCode::OutOfRange, &node.place, message).help(help));
        }

        fits.then_some(number)
    }

    /// Reads an amount of money, in the currency of the prices in the config. Returns `None` if the
    /// key is missing or has an invalid value.
    pub fn money(&mut self, key: &str) -> Option<Money> {
        let units = self.number(key, 0.0, limits::MONEY_CEILING)?;
        Some(Money::of_units(units))
    }

    /// Reports each known key of the table that is not in `keys`. `kind` is the kind of the table,
    /// such as `playback`, for which only `keys` are permitted. The message names the kind.
    pub fn only(&mut self, keys: &[&str], kind: &str) {
        for entry in &self.table.entries {
            let key = entry.key.value.as_str();
            if !keys.contains(&key) && self.known.contains(&key) {
                let message = format!("`{key}` of {} means nothing for {kind}", self.what);
                let help = format!("take it out; {kind} has {}", keys.join(", "));
                let problem =
                    ConfigProblem::new(ProblemCode::UnknownKey, &entry.key.place, message);
                self.problems.push(problem.help(help));
            }
        }
    }

    /// Whether the table contains `key`, even with an invalid value.
    pub fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some() || self.mistyped.contains(&key)
    }

    /// Reads a duration that is above zero and at most `most`. Reports any other value. Returns
    /// `None` if the key is missing or its value was reported.
    pub fn duration(&mut self, key: &str, most: Duration) -> Option<Duration> {
        let node = self.table.get(key)?;
        let text = match &node.value {
            TomlValue::Text(text) if text.failed => {
                self.has_failed_text = true;
                return None;
            }
            TomlValue::Text(text) => text,
            TomlValue::Integer(Some(n)) => {
                let seconds = (*n > 0).then(|| format!("\"{n}s\""));
                return self.wrong(key, node, "a duration such as \"30s\"", seconds);
            }
            _ => return self.wrong(key, node, "a duration such as \"30s\"", None),
        };

        let Some(duration) = duration::parse(&text.value) else {
            let message = format!("`{}` is not a duration", text.written);
            let help = match duration::guess(&text.value) {
                Some(guess) => format!("did you mean \"{guess}\"?"),
                None => "write a number and ms, s, m, h or d, such as \"30s\" or \"1h30m\"".into(),
            };
            self.problems.push(
                ConfigProblem::new(ProblemCode::BadDuration, &node.place, message).help(help),
            );
            return None;
        };

        if duration.is_zero() || duration > most {
            let word = if duration.is_zero() { "zero" } else { "too long" };
            let message = format!("`{key}` of {} is {word}", self.what);
            let help = format!("at most \"{}\", and above zero", duration::show(most));
            self.problems
                .push(ConfigProblem::new(ProblemCode::OutOfRange, &node.place, message).help(help));
            return None;
        }

        Some(duration)
    }

    /// Reads a value that must be one of the words in `words`. Returns the `T` that belongs to this
    /// word. Reports any other value. Returns `None` if the key is missing or its value was
    /// reported.
    pub fn choice<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let found = words.iter().find(|(word, _)| *word == text.value.value);
        if found.is_none() {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.not_a_choice(key, &text, &words);
        }

        found.map(|(_, value)| *value)
    }

    /// Reads a list of strings. Reports and leaves out each string that is not one of `words`.
    /// Returns `None` if the key is missing.
    pub fn choices(&mut self, key: &str, words: &[&str]) -> Option<Vec<String>> {
        if !self.has(key) {
            return None;
        }
        let mut chosen = Vec::new();
        for text in self.list(key) {
            if words.contains(&text.value.value.as_str()) {
                chosen.push(text.value.value);
            } else {
                self.not_a_choice(key, &text, words);
            }
        }
        Some(chosen)
    }

    fn not_a_choice(&mut self, key: &str, text: &Located<ExpandedText>, words: &[&str]) {
        let message = format!("`{key}` of {} cannot be `{}`", self.what, text.value.written);
        let all: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let help = did_you_mean_value(&text.value.value, words.iter().copied(), || {
            format!("one of {}", all.join(", "))
        });
        let problem = ConfigProblem::new(ProblemCode::UnknownChoice, &text.place, message);
        self.problems.push(problem.help(help));
    }

    /// Reads a list of strings. A missing key counts as an empty list.
    pub fn list(&mut self, key: &str) -> Vec<Located<ExpandedText>> {
        let Some(node) = self.table.get(key) else { return Vec::new() };
        match &node.value {
            TomlValue::List(items) => self.items(key, items),
            TomlValue::Text(text) if !node.private => {
                let fixed = format!("[\"{}\"]", text.written);
                self.wrong::<()>(key, node, "a list of strings", Some(fixed));
                Vec::new()
            }
            _ => {
                self.wrong::<()>(key, node, "a list of strings", None);
                Vec::new()
            }
        }
    }

    /// Whether the value of `key` is an empty list. False if the key is missing or its value has
    /// another type; other methods report these problems.
    pub fn is_empty_list(&self, key: &str) -> bool {
        matches!(self.table.get(key).map(|node| &node.value), Some(TomlValue::List(items)) if items.is_empty())
    }

    /// Reads a string, or a list of strings.
    pub fn one_or_more(&mut self, key: &str) -> Vec<Located<ExpandedText>> {
        match self.table.get(key).map(|node| &node.value) {
            Some(TomlValue::Text(_)) => self.text(key).into_iter().collect(),
            Some(TomlValue::List(items)) if items.is_empty() => {
                let place = self.place_of(key);
                self.empty(key, &place);
                Vec::new()
            }
            _ => self.list(key),
        }
    }

    /// Reads a table whose keys the author chooses and whose values are strings.
    pub fn free(&mut self, key: &str) -> Vec<(Located<String>, Located<ExpandedText>)> {
        let Some(node) = self.table.get(key) else { return Vec::new() };
        let TomlValue::Table(table) = &node.value else {
            self.wrong::<()>(key, node, "a table", None);
            return Vec::new();
        };

        let entries = table.entries.iter().filter_map(|entry| {
            let name = format!("{key}.{}", entry.key.value);
            Some((entry.key.clone(), self.as_text(&name, &entry.node)?))
        });
        entries.collect()
    }

    /// Returns the value of `key` with its range in the config's text. The type of the value is not
    /// checked yet. Returns `None` if the table lacks the key.
    pub fn node(&self, key: &str) -> Option<&'a TomlNode> {
        self.table.get(key)
    }

    /// Reports a value that is not of the kind `wanted`.
    pub fn wrong_kind(&mut self, key: &str, node: &TomlNode, wanted: &str) {
        self.wrong::<()>(key, node, wanted, None);
    }

    /// Returns the description of the table in messages, such as "listener `search`".
    pub fn description(&self) -> &str {
        &self.what
    }

    /// Returns a description, for error messages, of the inner table under `key` in this table.
    pub fn what_within(&self, key: &str) -> String {
        let key = if key.contains('`') { key.to_owned() } else { format!("`{key}`") };
        format!("{key} of {}", self.what)
    }

    pub fn problem(&mut self, problem: ConfigProblem) {
        self.problems.push(problem);
    }

    pub fn empty(&mut self, key: &str, place: &SourceRange) {
        let message = format!("`{key}` of {} is empty", self.what);
        let help = "write something there, or leave the key out where it is optional";
        self.problems.push(ConfigProblem::new(ProblemCode::EmptyValue, place, message).help(help));
    }

    fn items(&mut self, key: &str, items: &[TomlNode]) -> Vec<Located<ExpandedText>> {
        let name = format!("an entry of `{key}`");
        items.iter().filter_map(|item| self.as_text(&name, item)).collect()
    }

    fn as_text(&mut self, key: &str, node: &TomlNode) -> Option<Located<ExpandedText>> {
        match &node.value {
            // The variables that could not be filled in were already reported.
            TomlValue::Text(text) if text.failed => {
                self.has_failed_text = true;
                None
            }
            TomlValue::Text(text) => {
                Some(Located { value: text.clone(), place: node.place.clone() })
            }
            TomlValue::Integer(Some(n)) if !node.private => {
                self.wrong(key, node, "a string", Some(format!("\"{n}\"")))
            }
            _ => self.wrong(key, node, "a string", None),
        }
    }

    /// Reports a value whose type does not fit its key. Always returns `None`.
    fn wrong<T>(
        &mut self,
        key: &str,
        node: &TomlNode,
        wanted: &str,
        instead: Option<String>,
    ) -> Option<T> {
        let key = if key.contains('`') { key.to_owned() } else { format!("`{key}`") };
        let message = format!("{key} of {} must be {wanted}, not {}", self.what, node.kind());
        let help = match (instead, wanted) {
            (Some(instead), _) => format!("write {instead}"),
            (None, "a number") => "digits, with a point where needed, such as 0.5".to_owned(),
            (None, "a whole number") => "digits alone, such as 3".to_owned(),
            (None, "a string") => "text in quotes, such as \"text\"".to_owned(),
            (None, "a list of strings") => "such as [\"one\", \"two\"]".to_owned(),
            (None, "a table") => "such as { NAME = \"value\" }".to_owned(),
            (None, wanted) => format!("write {wanted}"),
        };

        self.problems
            .push(ConfigProblem::new(ProblemCode::WrongType, &node.place, message).help(help));
        None
    }
}

/// Returns the known key that the author probably meant by the unknown key `key`: a key with a
/// similar name, or a key whose name begins with `key`. Returns `None` if there is no such key.
fn meant(key: &str, section: &KnownSection) -> Option<&'static str> {
    let longer = || section.key_names().find(|known| key.len() > 3 && known.starts_with(key));
    nearest(key, section.key_names()).or_else(longer)
}

fn range_word(number: i64) -> &'static str {
    match number {
        0 => "zero",
        n if n < 0 => "below zero",
        _ => "too high",
    }
}
