//! Joins the pieces in which a provider streams a text.
//!
//! In JSON's `\u` escapes, a character beyond U+FFFF is a pair of surrogates. A server that cuts
//! its texts by UTF-16 units may send the two surrogates of a pair in two events.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde_json::value::RawValue;

/// Text in place of a surrogate that has no other half.
const REPLACEMENT: &str = "\u{fffd}";

/// A JSON string of a stream. It may contain surrogates that have no other half in the string.
#[derive(Debug)]
pub(in crate::model) enum TextPiece<'a> {
    /// A string without such surrogates, borrowed if it contains no escapes.
    Whole(Cow<'a, str>),
    Cut(Vec<TextUnit>),
}

/// A part of a string that contains surrogates without their other half.
#[derive(Debug)]
pub(in crate::model) enum TextUnit {
    Text(String),
    Surrogate(u16),
}

impl<'a> TextPiece<'a> {
    /// Reads a JSON string. Fails for any other value.
    pub fn of_json(json: &'a RawValue) -> serde_json::Result<Self> {
        // A string that is read as bytes may contain surrogates.
        serde_json::Deserializer::from_str(json.get()).deserialize_bytes(TextPieceVisitor)
    }

    /// Decodes a string in the form in which the JSON reader returns bytes: UTF-8, and surrogates
    /// in the same scheme (WTF-8). Fails if the bytes are neither.
    fn of_bytes<E: Error>(bytes: Cow<'a, [u8]>) -> Result<Self, E> {
        match bytes {
            Cow::Borrowed(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Self::Whole(Cow::Borrowed(text))),
                Err(_) => Self::cut(bytes),
            },
            Cow::Owned(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Self::Whole(Cow::Owned(text))),
                Err(error) => Self::cut(error.as_bytes()),
            },
        }
    }

    fn cut<E: Error>(mut bytes: &[u8]) -> Result<Self, E> {
        let mut units = Vec::new();
        while !bytes.is_empty() {
            let valid = match std::str::from_utf8(bytes) {
                Ok(_) => bytes.len(),
                Err(error) => error.valid_up_to(),
            };
            let (text, rest) = bytes.split_at(valid);
            if !text.is_empty() {
                units.push(TextUnit::Text(String::from_utf8_lossy(text).into_owned()));
            }

            bytes = match rest {
                [] => &[],
                [0xED, middle @ 0xA0..=0xBF, last @ 0x80..=0xBF, rest @ ..] => {
                    let bits = |byte: u8| u16::from(byte & 0x3F);
                    units.push(TextUnit::Surrogate(0xD000 | (bits(*middle) << 6) | bits(*last)));
                    rest
                }
                _ => return Err(E::invalid_value(Unexpected::Bytes(bytes), &"UTF-8")),
            };
        }

        Ok(Self::Cut(units))
    }

    /// Returns the size of the text in bytes, with three bytes for each surrogate.
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(text) => text.len(),
            Self::Cut(units) => units.iter().map(TextUnit::len).sum(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the text contains nothing but white space.
    pub fn is_blank(&self) -> bool {
        match self {
            Self::Whole(text) => text.trim().is_empty(),
            Self::Cut(_) => false,
        }
    }
}

impl TextUnit {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Surrogate(_) => REPLACEMENT.len(),
        }
    }
}

impl Default for TextPiece<'_> {
    fn default() -> Self {
        Self::Whole(Cow::Borrowed(""))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextPiece<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // Only the raw value is checked for control characters, which JSON forbids in a string.
        let json = <&RawValue>::deserialize(d)?;
        Self::of_json(json).map_err(Error::custom)
    }
}

struct TextPieceVisitor;

impl<'de> Visitor<'de> for TextPieceVisitor {
    type Value = TextPiece<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
        TextPiece::of_bytes(Cow::Borrowed(bytes))
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        TextPiece::of_bytes(Cow::Owned(bytes.to_owned()))
    }
}

/// Joiner of the pieces of one text. Keeps a leading surrogate at the end of a piece until the next
/// piece. A surrogate without its other half becomes U+FFFD.
#[derive(Debug, Default)]
pub(in crate::model) struct TextJoiner {
    leading: Option<u16>,
}

impl TextJoiner {
    /// Returns the text that the piece adds.
    pub fn push<'p>(&mut self, piece: &'p TextPiece<'_>) -> Cow<'p, str> {
        match piece {
            TextPiece::Whole(text) if text.is_empty() || self.leading.is_none() => {
                Cow::Borrowed(text)
            }
            TextPiece::Whole(text) => Cow::Owned(format!("{}{text}", self.finish())),
            TextPiece::Cut(units) => {
                let mut joined = String::new();
                for unit in units {
                    self.add(unit, &mut joined);
                }
                Cow::Owned(joined)
            }
        }
    }

    /// Must be called at the end of the text. Returns the rest of the text.
    pub fn finish(&mut self) -> &'static str {
        if self.leading.take().is_some() { REPLACEMENT } else { "" }
    }

    fn add(&mut self, unit: &TextUnit, joined: &mut String) {
        match unit {
            TextUnit::Text(text) => {
                joined.push_str(self.finish());
                joined.push_str(text);
            }
            TextUnit::Surrogate(unit @ 0xD800..=0xDBFF) => {
                joined.push_str(self.finish());
                self.leading = Some(*unit);
            }
            TextUnit::Surrogate(unit) => {
                let pair = self.leading.take().into_iter().chain([*unit]);
                joined.extend(char::decode_utf16(pair).map(|c| c.unwrap_or('\u{fffd}')));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joins JSON strings.
    fn joined(strings: &[&str]) -> String {
        let mut joiner = TextJoiner::default();
        let mut text = String::new();
        for string in strings {
            let piece: TextPiece<'_> = serde_json::from_str(string).unwrap();
            text.push_str(&joiner.push(&piece));
        }
        text + joiner.finish()
    }

    #[test]
    fn a_pair_of_surrogates_is_one_character_wherever_it_is_cut() {
        assert_eq!(joined(&[r#""a\ud83e\udd80b""#]), "a🦀b");
        assert_eq!(joined(&[r#""a\ud83e""#, r#""\udd80b""#]), "a🦀b");
        assert_eq!(joined(&[r#""a\ud83e""#, r#""""#, r#""\udd80\ud83e""#, r#""\udd80""#]), "a🦀🦀");
        assert_eq!(joined(&[r#""grü\n""#, r#""ße""#]), "grü\nße");
    }

    #[test]
    fn a_surrogate_without_its_other_half_is_replaced_at_its_place() {
        assert_eq!(joined(&[r#""a\ud83e""#]), "a\u{fffd}");
        assert_eq!(joined(&[r#""a\ud83e""#, r#""b""#]), "a\u{fffd}b");
        assert_eq!(joined(&[r#""a\udd80b""#]), "a\u{fffd}b");
        assert_eq!(joined(&[r#""\ud83ea\ud83e\n""#, r#""\udd80""#]), "\u{fffd}a\u{fffd}\n\u{fffd}");
        assert_eq!(joined(&[r#""\ud83e""#, r#""\ud83e""#, r#""\udd80""#]), "\u{fffd}🦀");
    }

    #[test]
    fn other_values_and_bytes_that_are_not_utf_8_are_errors() {
        for bad in
            [&b"\"\xff\""[..], b"\"\xed\xa0\"", b"\"\n\"", b"7", b"null", b"[1]", b"\"\\ud8\""]
        {
            assert!(serde_json::from_slice::<TextPiece<'_>>(bad).is_err(), "{bad:?}");
        }
    }
}
