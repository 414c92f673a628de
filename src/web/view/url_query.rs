//! Reads and writes the URL query, which holds the whole state of a page. HTML forms submit the
//! same parameters.

use std::convert::Infallible;
use std::fmt::Write as _;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::limits;

/// Name of the URL parameter with the number of rows to skip.
const SKIPPED: &str = "skip";

/// The parameters of a URL, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UrlQuery(Vec<(String, String)>);

impl UrlQuery {
    /// Parses `name=value&…`. Keeps malformed parts as literal text.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        };
        Self(pairs.map(pair).collect())
    }

    /// Whether no parameter has a value.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, value)| value.trim().is_empty())
    }

    /// Returns the trimmed value of the first parameter with this name; `None` if the parameter is
    /// missing or its value is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns the number of rows that the parameter `name` selects, or `default` if the parameter
    /// is missing. Fails if the value is no number from 1 to [`limits::WEB_ROWS_MAX`].
    pub fn rows(&self, name: &str, default: usize) -> Result<usize, String> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let rows = text.parse().ok().filter(|rows| (1..=limits::WEB_ROWS_MAX).contains(rows));
        rows.ok_or_else(|| format!("`{text}` is no number from 1 to {}", limits::WEB_ROWS_MAX))
    }

    /// Returns the number of rows before the page: the value of the parameter [`SKIPPED`], 0 if it
    /// is missing, and never more than `most`. Fails if the value is no number.
    pub fn skipped(&self, most: usize) -> Result<usize, String> {
        let Some(text) = self.get(SKIPPED) else { return Ok(0) };
        let skipped: Result<usize, _> = text.parse();
        skipped
            .map(|skipped| skipped.min(most))
            .map_err(|_| format!("`{text}` is no number of rows"))
    }

    /// Sets the number of rows before the page.
    pub fn with_skipped(&self, skipped: usize) -> Self {
        let text = (skipped > 0).then(|| skipped.to_string());
        self.with(SKIPPED, text.as_deref())
    }

    /// Whether the parameter `name` turns a filter on. A missing parameter turns it off. Fails if
    /// the value is neither that of a checkbox nor a truth value.
    pub fn flag(&self, name: &str) -> Result<bool, String> {
        match self.get(name) {
            Some("on" | "true" | "1") => Ok(true),
            None | Some("off" | "false" | "0") => Ok(false),
            Some(text) => Err(format!("`{text}` is neither on nor off")),
        }
    }

    /// Returns the untrimmed value of the first parameter with this name; an empty text if there is
    /// no such parameter. Replaces each line end CR LF, which forms send, by a line feed.
    pub fn written(&self, name: &str) -> String {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.replace("\r\n", "\n")).unwrap_or_default()
    }

    /// Returns the values of all parameters with this name.
    pub fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns all parameters with their values, in their order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns a copy of the query without empty parameters, and with `value` as the only value of
    /// `name`. If `value` is `None`, the copy has no parameter `name`.
    #[must_use]
    pub fn with(&self, name: &str, value: Option<&str>) -> Self {
        let others = self.0.iter().filter(|(known, value)| known != name && !value.is_empty());
        let changed = value.map(|value| (name.to_owned(), value.to_owned()));
        Self(others.cloned().chain(changed).collect())
    }

    /// Returns the path with this query; without a question mark if the query is empty.
    pub fn link(&self, path: &str) -> String {
        let mut link = path.to_owned();
        for (at, (name, value)) in self.0.iter().enumerate() {
            link.push(if at == 0 { '?' } else { '&' });
            encode(name, &mut link);
            link.push('=');
            encode(value, &mut link);
        }
        link
    }
}

/// Reads the query of the request's URL.
impl<S: Send + Sync> FromRequestParts<S> for UrlQuery {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

/// Whether a text with percent-encoded bytes stands for valid UTF-8.
pub(super) fn is_text(encoded: &str) -> bool {
    std::str::from_utf8(&decoded(encoded)).is_ok()
}

fn decode(text: &str) -> String {
    String::from_utf8_lossy(&decoded(text)).into_owned()
}

fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.first_chunk::<2>()).flatten();
        // `from_str_radix` takes a sign, too.
        let escaped = escaped.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let escaped = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    bytes
}

fn encode(text: &str, link: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' | b',' => {
                link.push(char::from(byte));
            }
            // Writing to a string cannot fail.
            _ => write!(link, "%{byte:02X}").unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_the_way_through_a_url() {
        for value in ["a b", "ä=&%+#?", "\u{202e}x", "{urn:x}say", "2026-11-20T10:00:00Z", "%zz"] {
            let query = UrlQuery::default().with("words", Some(value)).with("n", Some("1"));
            let link = query.link("/threads");
            assert!(link.is_ascii() && !link.contains(['"', '<', ' ']), "{link}");
            let (_, text) = link.split_once('?').unwrap();
            assert_eq!(UrlQuery::parse(text), query, "{link}");
        }
    }

    #[test]
    fn a_malformed_query_is_read_as_it_stands() {
        let query = UrlQuery::parse("a=%&b=%4&c=%FF&d&=e&a=2&f=+&g=%+5");
        let read: Vec<_> = ["a", "b", "c", "d", "f", "g"].map(|name| query.get(name)).into();
        assert_eq!(read, [Some("%"), Some("%4"), Some("\u{fffd}"), None, None, Some("% 5")]);
        let query = query.with("a", None).with("c", None);
        assert_eq!(query.link("/"), "/?b=%254&=e&f=%20&g=%25%205");
    }
}
