//! API keys of providers. Error messages may name the source of a key, but never contain the key
//! itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use memchr::memmem;

use crate::limits;
use crate::mutant::mutant;

/// Text that is shown in place of a key.
pub const HIDDEN: &str = "***";

/// API key of a provider. Displayed as `***`; cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderKey {
    value: Arc<str>,
    source: KeySource,
}

/// Where a key was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    Variable(String),
    File(PathBuf),
}

/// Reason why a text is no valid key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("is empty")]
    Empty,
    #[error("is longer than {} bytes", limits::KEY_BYTES_MAX)]
    TooLong,
    #[error("holds a space, a line break or another character that no key has")]
    Characters,
    #[error("begins with a byte order mark; save it without one")]
    ByteOrderMark,
    #[error("stands in quotes")]
    Quoted,
    #[error("begins with the name of a variable and `=`")]
    Assignment,
}

impl ProviderKey {
    /// Makes a key of `value`, without leading and trailing white space.
    pub fn new(value: &str, source: KeySource) -> Result<Self, BadKey> {
        let value = value.trim();
        match value {
            "" => Err(BadKey::Empty),
            long if long.len() > limits::KEY_BYTES_MAX => Err(BadKey::TooLong),
            marked if marked.starts_with('\u{feff}') => Err(BadKey::ByteOrderMark),
            odd if !odd.bytes().all(|b| b.is_ascii_graphic()) => Err(BadKey::Characters),
            quoted if is_quoted(quoted) => Err(BadKey::Quoted),
            assigned if is_assignment(assigned) => Err(BadKey::Assignment),
            good => Ok(Self { value: good.into(), source }),
        }
    }

    pub fn source(&self) -> &KeySource {
        &self.source
    }

    /// Whether two keys are the same text, wherever each was found.
    pub fn is_same_text(&self, other: &Self) -> bool {
        self.value == other.value
    }

    /// Returns the key's value. Must be used for the authorization header only.
    pub(super) fn expose(&self) -> &str {
        &self.value
    }

    /// Replaces the key in `text` by `HIDDEN`, because a server may echo the key. Leaves a very
    /// short key in place, because a text may contain it by chance.
    pub fn hide_in(&self, text: &str) -> String {
        if self.is_too_short_to_hide() || mutant("show-the-key") {
            text.to_owned()
        } else {
            text.replace(&*self.value, HIDDEN)
        }
    }

    /// Whether the key is so short that an error message may contain it by chance.
    fn is_too_short_to_hide(&self) -> bool {
        self.value.len() < limits::KEY_BYTES_HIDDEN_IN_ERRORS
    }

    /// Replaces the key in a text of a server by `HIDDEN`. The text may be JSON, and the end of the
    /// text may have been cut off. If the text ends with a beginning of the key, this beginning is
    /// replaced, too.
    pub(super) fn hide_in_server_text(&self, text: &str) -> String {
        let mut hidden = self.hide_in_json(text);
        let length = length_of_key_at_end(&self.value, &hidden);
        if length >= limits::KEY_BYTES_HIDDEN_IN_ERRORS {
            hidden.truncate(hidden.len() - length);
            hidden.push_str(HIDDEN);
        }
        hidden
    }

    /// Replaces the key in the JSON text `json` by `HIDDEN`. Also finds a key whose characters are
    /// written as escapes, such as `\/` or `\u0041`. Accepts JSON that is cut short.
    pub(super) fn hide_in_json(&self, json: &str) -> String {
        if !json.contains('\\') || self.is_too_short_to_hide() || mutant("show-the-key") {
            return self.hide_in(json);
        }

        let mut hidden = String::with_capacity(json.len());
        let mut rest = json;
        while let Some(first) = rest.chars().next() {
            let key_length = json_length(rest, &self.value);
            // An escape is never split: its second half is no character of its own.
            let escaped = rest.chars().nth(1).filter(|_| first == '\\');
            let next_length = first.len_utf8() + escaped.map_or(0, char::len_utf8);
            let (piece, after) = rest.split_at(key_length.unwrap_or(next_length));
            hidden.push_str(if key_length.is_some() { HIDDEN } else { piece });
            rest = after;
        }

        // A text that is no JSON may contain the key as it is.
        self.hide_in(&hidden)
    }

    /// Returns a filter that hides the key in a streamed answer; `None` if the key is so short that
    /// an answer may contain it by chance.
    pub(super) fn filter(&self) -> Option<KeyFilter> {
        let long = self.value.len() >= limits::KEY_BYTES_HIDDEN_IN_ANSWERS;
        long.then(|| KeyFilter { key: Arc::clone(&self.value), held: String::new() })
    }
}

/// Whether a text has the same quotation mark at both ends.
fn is_quoted(text: &str) -> bool {
    text.len() > 1
        && ['"', '\''].iter().any(|mark| text.starts_with(*mark) && text.ends_with(*mark))
}

/// Whether a text is a line such as `OPENAI_API_KEY=key`, as in a copied file of variables. A key
/// may contain `=` at its end.
fn is_assignment(text: &str) -> bool {
    let Some((name, value)) = text.split_once('=') else { return false };
    let is_name_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let is_name = name.contains('_') && name.chars().all(is_name_part);
    is_name && value.chars().any(|c| c != '=')
}

/// Checks whether `json` begins with `text`. In `json`, any character of `text` may be written as
/// an escape. Returns the number of bytes of `json` that stand for `text`; `None` if `json` does
/// not begin with `text`. `text` must be ASCII.
fn json_length(json: &str, text: &str) -> Option<usize> {
    let mut rest = json;
    for c in text.chars() {
        let written = match rest.strip_prefix('\\') {
            None => rest.starts_with(c).then_some(1),
            Some(escape) if escape.starts_with('u') => {
                let digits = escape.get(1..5)?;
                let code = u32::from_str_radix(digits, 16).ok()?;
                (code == u32::from(c)).then_some(6)
            }
            Some(escape) => (escape.starts_with(c) && matches!(c, '"' | '\\' | '/')).then_some(2),
        };
        rest = rest.get(written?..)?;
    }

    Some(json.len() - rest.len())
}

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "the variable {name}"),
            Self::File(path) => write!(f, "the file {}", path.display()),
        }
    }
}

/// Filter that replaces a key in a text that arrives in pieces, even if the key is split across
/// pieces.
#[derive(Debug)]
pub(super) struct KeyFilter {
    key: Arc<str>,
    /// End of the streamed text. It is held back, because it may be the beginning of the key.
    held: String,
}

impl KeyFilter {
    /// Adds `piece` to the streamed text. Returns the text that can be passed on now, with
    /// [`HIDDEN`] in place of the provider's API key. Returns `None` if the caller can pass on
    /// `piece` itself, unchanged.
    pub fn push(&mut self, piece: &str) -> Option<String> {
        if self.held.is_empty() && !self.may_begin_in(piece) {
            return None;
        }

        let mut text = std::mem::take(&mut self.held);
        text.push_str(piece);
        if memmem::find(text.as_bytes(), self.key.as_bytes()).is_some() {
            text = text.replace(&*self.key, HIDDEN);
        }

        let keep = length_of_key_at_end(&self.key, &text);
        self.held = text.split_off(text.len() - keep);
        Some(text)
    }

    /// Whether `piece` contains the key or ends with a beginning of the key.
    fn may_begin_in(&self, piece: &str) -> bool {
        let key = self.key.as_bytes();
        let piece = piece.as_bytes();
        let first = key.first().copied().unwrap_or_default();
        memchr::memchr_iter(first, piece).any(|at| {
            let tail = piece.get(at..).unwrap_or_default();
            tail.starts_with(key) || key.starts_with(tail)
        })
    }

    /// Must be called at the end of the answer. Returns the text that the filter still holds back
    /// as a possible beginning of the API key. This text may be shown, because no further text can
    /// complete the key.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Returns the number of bytes at the end of `text` that may be the beginning of `key`.
fn length_of_key_at_end(key: &str, text: &str) -> usize {
    let most = text.len().min(key.len().saturating_sub(1));
    let begins = |length: &usize| {
        let end = text.as_bytes().get(text.len() - length..);
        end.is_some() && end == key.as_bytes().get(..*length)
    };
    (1..=most).rev().find(begins).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hidden_in_json_however_it_is_escaped() {
        let source = KeySource::Variable("KEY".to_owned());
        let key = ProviderKey::new("Abc/DEF\\0123456789\"xyz==", source).unwrap();
        let cases = [
            (r#"{"q":"key Abc/DEF\\0123456789\"xyz==."}"#, r#"{"q":"key ***."}"#),
            (r#"{"q":"key Abc\/DEF\\0123456789\"xyz==."}"#, r#"{"q":"key ***."}"#),
            (r#"{"q":"\u0041bc\u002fDEF\u005C0123456789\u0022xyz\u003d="}"#, r#"{"q":"***"}"#),
            (r#"{"q":"\nAbc\/DEF\\0123456789\"xyz=="#, r#"{"q":"\n***"#),
            // These texts do not contain the key.
            (r#"{"q":"\\u0041bc\/DEF\\0123456789\"xyz=="}"#, ""),
            (r#"{"q":"Abc\/DEF\\0123456789\"xy \u00e9 ü \ud800"}"#, ""),
            (r#"{"q":"Abc\"#, ""),
        ];
        for (json, hidden) in cases {
            let hidden = if hidden.is_empty() { json } else { hidden };
            assert_eq!(key.hide_in_json(json), hidden);
        }
    }

    #[test]
    fn a_key_is_hidden_at_the_end_of_a_text_that_was_cut() {
        let source = KeySource::Variable("KEY".to_owned());
        let key = ProviderKey::new("sk-proj-0123456789", source).unwrap();
        assert_eq!(key.hide_in_server_text("wrong: sk-proj-01234567"), "wrong: ***");
        assert_eq!(key.hide_in_server_text("sk-proj-0123456789, sk-proj-0"), "***, ***");
        // These texts may end so by chance.
        assert_eq!(key.hide_in_server_text("your task"), "your task");
        assert_eq!(key.hide_in_server_text(""), "");
    }
}
