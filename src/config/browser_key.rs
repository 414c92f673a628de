//! Writes the public key of an operator's browser into the text of a config, and preserves every
//! other byte of the text.
//!
//! An operator's section can have many layouts: tables, dotted keys, inline tables. So this module
//! first makes a new text and parses it. It accepts the new text only if the browser key is the
//! only value that differs from the old config.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::thread::OperatorPublicKey;

use super::keys::nearest;

const SECTION: &str = "operators";
const TERMINAL_KEY: &str = "key";
const BROWSER_KEY: &str = "browser_key";

/// Result of writing the public key of an operator's browser into a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrowserKeyChange {
    /// The operator had no browser key before. The contained text is the new config.
    Added(String),
    /// The operator had another browser key before. `text` is the new config, and `earlier` is the
    /// replaced key.
    Replaced { text: String, earlier: String },
    /// The config already contains this key as the operator's browser key.
    Unchanged,
}

/// Why the key of a browser cannot be written into a config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrowserKeyError {
    #[error("the text is not TOML; `organism check` shows where")]
    Syntax,
    #[error(
        "the config names no operators; `organism operator key` makes the first key, and prints the \
         section for the config"
    )]
    NoOperators,
    #[error("the config has no operator `{name}`{}; it has {known}", did_you_mean(.near.as_deref()))]
    UnknownOperator { name: String, near: Option<String>, known: String },
    #[error(
        "`{name}` has the key {earlier} for a browser already; --replace takes the new one in its \
         place, and the browser with the old one can sign no more"
    )]
    OtherKey { name: String, earlier: String },
    #[error(
        "this is the key of `{name}` for the terminal; a browser has a key of its own, which its page \
         shows"
    )]
    TerminalKey { name: String },
    #[error(
        "the layout of [operators.{name}] cannot be edited safely; write this line there by hand: \
         browser_key = \"{key}\""
    )]
    Layout { name: String, key: String },
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default()
}

/// Writes `key` into the section of the operator `name`. If the operator already has another
/// browser key, `is_replacing` decides: if true, that key is replaced; if false, the result is an
/// error.
pub fn with_browser_key(
    text: &str,
    name: &str,
    key: &OperatorPublicKey,
    is_replacing: bool,
) -> Result<BrowserKeyChange, BrowserKeyError> {
    let table = DeTable::parse(text).map_err(|_| BrowserKeyError::Syntax)?;
    let operators =
        entry(table.get_ref(), SECTION).and_then(|(_, value)| value.get_ref().as_table());
    let operators = operators.filter(|operators| !operators.is_empty());
    let operators = operators.ok_or(BrowserKeyError::NoOperators)?;
    let operator = entry(operators, name).and_then(|(_, value)| value.get_ref().as_table());
    let operator = operator.ok_or_else(|| unknown(operators, name))?;

    let key = key.to_string();
    let layout = || BrowserKeyError::Layout { name: name.to_owned(), key: key.clone() };
    if let Some((_, value)) = entry(operator, BROWSER_KEY) {
        let earlier = value.get_ref().as_str().unwrap_or_default().to_owned();
        if earlier == key {
            return Ok(BrowserKeyChange::Unchanged);
        }
        if !is_replacing {
            return Err(BrowserKeyError::OtherKey { name: name.to_owned(), earlier });
        }
        let text = replaced(text, value.span(), &format!("\"{key}\""));
        let text = text.filter(|new| is_that_edit(table.get_ref(), new, name, &key));
        return text.map(|text| BrowserKeyChange::Replaced { text, earlier }).ok_or_else(layout);
    }

    let (own, value) = entry(operator, TERMINAL_KEY).ok_or_else(layout)?;
    if value.get_ref().as_str() == Some(&*key) {
        return Err(BrowserKeyError::TerminalKey { name: name.to_owned() });
    }
    let proposals =
        [on_its_own_line(text, own.span(), value.span(), &key), beside(text, value.span(), &key)];
    let mut sound = proposals.into_iter().flatten();
    let text = sound.find(|new| is_that_edit(table.get_ref(), new, name, &key));
    text.map(BrowserKeyChange::Added).ok_or_else(layout)
}

type TomlKeyValue<'t> = (&'t Spanned<Cow<'t, str>>, &'t Spanned<DeValue<'t>>);

fn entry<'t>(table: &'t DeTable<'t>, key: &str) -> Option<TomlKeyValue<'t>> {
    table.iter().find(|(known, _)| known.get_ref() == key)
}

fn unknown(operators: &DeTable<'_>, name: &str) -> BrowserKeyError {
    let known: Vec<&str> = operators.keys().map(|key| &**key.get_ref()).collect();
    let near = nearest(name, known.iter().copied()).map(str::to_owned);
    let known = known.join(", ");
    BrowserKeyError::UnknownOperator { name: name.to_owned(), near, known }
}

fn replaced(text: &str, range: Range<usize>, by: &str) -> Option<String> {
    let before = text.get(..range.start)?;
    let after = text.get(range.end..)?;
    Some(format!("{before}{by}{after}"))
}

/// Inserts the browser key `key` into `text`, on a new line below another entry of the operator.
/// `own` is the range of the name of this entry, and `value` the range of its value. The new line
/// begins with the same text as the line of the entry, such as its indentation or dotted prefix.
/// Returns `None` if a range is outside of `text`.
fn on_its_own_line(
    text: &str,
    own: Range<usize>,
    value: Range<usize>,
    key: &str,
) -> Option<String> {
    let before = text.get(..own.start)?;
    let prefix = before.rsplit_once('\n').map_or(before, |(_, line)| line);
    let prefix = prefix.trim_start_matches('\u{feff}');
    let rest = text.get(value.end..)?;
    let line_end = rest.find('\n').map(|at| value.end + at + 1);
    let ending =
        if text.get(value.end..)?.split('\n').next()?.ends_with('\r') { "\r\n" } else { "\n" };
    let line = format!("{prefix}{BROWSER_KEY} = \"{key}\"");
    match line_end {
        Some(at) => replaced(text, at..at, &format!("{line}{ending}")),
        None => Some(format!("{text}\n{line}\n")),
    }
}

/// Inserts the browser key `key` into an operator's inline table, directly after the entry whose
/// value is at the range `value` of `text`. Returns `None` if this range is outside of `text`.
fn beside(text: &str, value: Range<usize>, key: &str) -> Option<String> {
    replaced(text, value.end..value.end, &format!(", {BROWSER_KEY} = \"{key}\""))
}

/// Whether the config `new` contains `key` as the browser key of the operator `name`, and otherwise
/// has the same values as the config `old`.
fn is_that_edit(old: &DeTable<'_>, new: &str, name: &str, key: &str) -> bool {
    let Ok(new) = DeTable::parse(new) else { return false };
    let new = new.get_ref();
    let operator = entry(new, SECTION).and_then(|(_, value)| value.get_ref().as_table());
    let operator = operator.and_then(|operators| entry(operators, name));
    let operator = operator.and_then(|(_, value)| value.get_ref().as_table());
    let written = operator.and_then(|operator| entry(operator, BROWSER_KEY));
    let is_there = written.is_some_and(|(_, value)| value.get_ref().as_str() == Some(key));
    is_there && is_same_table(old, new, &[SECTION, name])
}

/// Whether two tables are equal, apart from the browser key in the table at `path`.
fn is_same_table(old: &DeTable<'_>, new: &DeTable<'_>, path: &[&str]) -> bool {
    let is_other = |key: &str| !(path.is_empty() && key == BROWSER_KEY);
    let keys = |table: &DeTable<'_>| -> Vec<String> {
        let keys = table.keys().map(|key| key.get_ref().to_string());
        keys.filter(|key| is_other(key)).collect()
    };
    let is_same_entry = |key: &String| {
        let old = entry(old, key).map(|(_, value)| value.get_ref());
        let new = entry(new, key).map(|(_, value)| value.get_ref());
        let (Some(old), Some(new)) = (old, new) else { return false };
        match path.split_first() {
            Some((first, rest)) if first == key => match (old.as_table(), new.as_table()) {
                (Some(old), Some(new)) => is_same_table(old, new, rest),
                _ => false,
            },
            _ => is_same_value(old, new),
        }
    };
    let known = keys(old);
    known == keys(new) && known.iter().all(is_same_entry)
}

fn is_same_value(old: &DeValue<'_>, new: &DeValue<'_>) -> bool {
    match (old, new) {
        (DeValue::Table(old), DeValue::Table(new)) => is_same_plain_table(old, new),
        (DeValue::Array(old), DeValue::Array(new)) => {
            old.len() == new.len()
                && old
                    .iter()
                    .zip(new.iter())
                    .all(|(old, new)| is_same_value(old.get_ref(), new.get_ref()))
        }
        (old, new) => format!("{old:?}") == format!("{new:?}"),
    }
}

fn is_same_plain_table(old: &DeTable<'_>, new: &DeTable<'_>) -> bool {
    old.len() == new.len()
        && old.iter().zip(new.iter()).all(|((old_key, old), (new_key, new))| {
            old_key.get_ref() == new_key.get_ref() && is_same_value(old.get_ref(), new.get_ref())
        })
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;

    use super::*;

    fn key(seed: u8) -> OperatorPublicKey {
        OperatorPublicKey::of(&SigningKey::from_bytes(&[seed; 32]))
    }

    /// Adds a browser key for the operator `ana` to the config `text`, and returns the new config.
    /// `text` contains the placeholder `ANA` instead of the operator's key. The returned config
    /// contains `ANA` again, and `KEY` instead of the browser key.
    fn added(text: &str) -> String {
        let text = text.replace("ANA", &key(1).to_string());
        match with_browser_key(&text, "ana", &key(2), false) {
            Ok(BrowserKeyChange::Added(new)) => {
                new.replace(&key(1).to_string(), "ANA").replace(&key(2).to_string(), "KEY")
            }
            other => panic!("{other:?} for {text}"),
        }
    }

    #[test]
    fn every_layout_keeps_its_bytes_and_gets_the_key() {
        for (text, expected) in [
            (
                "# a\n[operators.ana] # b\nkey = \"ANA\" # c\n\n# d\n[operators.ben]\nkey = \"x\"\n",
                "# a\n[operators.ana] # b\nkey = \"ANA\" # c\nbrowser_key = \"KEY\"\n\n# d\n\
                 [operators.ben]\nkey = \"x\"\n",
            ),
            (
                "[operators.ana]\nkey = \"ANA\"",
                "[operators.ana]\nkey = \"ANA\"\nbrowser_key = \"KEY\"\n",
            ),
            (
                "[operators.ana]\r\n\tkey=\"ANA\"\r\n",
                "[operators.ana]\r\n\tkey=\"ANA\"\r\n\tbrowser_key = \"KEY\"\r\n",
            ),
            (
                "operators.ana.key = 'ANA'\nx = 1\n",
                "operators.ana.key = 'ANA'\noperators.ana.browser_key = \"KEY\"\nx = 1\n",
            ),
            (
                "[operators]\n\"ana\" . key = \"ANA\"\nben.key = \"x\"\n",
                "[operators]\n\"ana\" . key = \"ANA\"\n\"ana\" . browser_key = \"KEY\"\n\
                 ben.key = \"x\"\n",
            ),
            (
                "[operators]\nana = { key = \"ANA\" } # }\n",
                "[operators]\nana = { key = \"ANA\", browser_key = \"KEY\" } # }\n",
            ),
            (
                "operators = { ben = { key = 'x' }, ana = { key = 'ANA' } }\n",
                "operators = { ben = { key = 'x' }, ana = { key = 'ANA', browser_key = \"KEY\" } }\n",
            ),
            (
                "[operators.ana]\nkey = \"\"\"\nANA\"\"\"\n[x]\ny = 1",
                "[operators.ana]\nkey = \"\"\"\nANA\"\"\"\nbrowser_key = \"KEY\"\n[x]\ny = 1",
            ),
            (
                "\u{feff}operators.ana.key = \"ANA\"\n",
                "\u{feff}operators.ana.key = \"ANA\"\noperators.ana.browser_key = \"KEY\"\n",
            ),
            (
                "x = \"\"\"\n[operators.ana]\nkey = 1\n\"\"\"\n[operators.ana]\nkey = \"ANA\"\n",
                "x = \"\"\"\n[operators.ana]\nkey = 1\n\"\"\"\n[operators.ana]\nkey = \"ANA\"\n\
                 browser_key = \"KEY\"\n",
            ),
        ] {
            assert_eq!(added(text), expected);
        }
    }

    #[test]
    fn another_key_stays_unless_it_is_to_be_replaced() {
        let text = format!(
            "[operators.ana]\nbrowser_key = '{}' # the old laptop\nkey = \"{}\"\n",
            key(3),
            key(1)
        );
        let kept = with_browser_key(&text, "ana", &key(2), false);
        let earlier = key(3).to_string();
        let name = "ana".to_owned();
        assert_eq!(kept, Err(BrowserKeyError::OtherKey { name, earlier: earlier.clone() }));
        let new = text.replace(&format!("'{earlier}'"), &format!("\"{}\"", key(2)));
        let replaced = with_browser_key(&text, "ana", &key(2), true);
        assert_eq!(replaced, Ok(BrowserKeyChange::Replaced { text: new.clone(), earlier }));
        assert_eq!(with_browser_key(&new, "ana", &key(2), false), Ok(BrowserKeyChange::Unchanged));
    }

    #[test]
    fn a_text_without_the_operator_is_refused_with_the_reason() {
        let check = |text: &str, name: &str, expected: &str| {
            let error = with_browser_key(text, name, &key(2), false).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let text = "[operators.ana]\nkey = \"x\"\n[operators.ben]\nkey = \"y\"\n";
        check(text, "anna", "no operator `anna` (did you mean `ana`?); it has ana, ben");
        check(text, "zacharias", "no operator `zacharias`; it has ana, ben");
        check("x = 1\n", "ana", "names no operators");
        check("[operators]\n", "ana", "names no operators");
        check("operators = 1\n", "ana", "names no operators");
        check("[operators.ana\n", "ana", "not TOML");
        let own = format!("[operators.ana]\nkey = \"{}\"\n", key(2));
        check(&own, "ana", "the key of `ana` for the terminal");
        check("[operators.ana]\nnokey = 1\n", "ana", "write this line there by hand");
    }
}
