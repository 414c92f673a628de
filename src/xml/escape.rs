//! Escaping and unescaping of element content and attribute values. No other module escapes XML.

use std::borrow::Cow;

/// Whether XML 1.0 allows the character `c`.
pub const fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// Escapes text for element content. A carriage return becomes a reference, because a parser would
/// turn it into a line feed, or drop it before a line feed. A character that XML does not allow
/// becomes U+FFFD.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    escape(text, |c| match c {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '\r' => Some("&#13;"),
        _ => None,
    })
}

/// Escapes text for an attribute value in double quotes. Tabs and line ends become references,
/// because a parser would turn them into spaces. A character that XML does not allow becomes
/// U+FFFD.
pub fn escape_attribute(text: &str) -> Cow<'_, str> {
    escape(text, |c| match c {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '"' => Some("&quot;"),
        '\t' => Some("&#9;"),
        '\n' => Some("&#10;"),
        '\r' => Some("&#13;"),
        _ => None,
    })
}

fn escape(text: &str, reference: fn(char) -> Option<&'static str>) -> Cow<'_, str> {
    let replacement = |c: char| match reference(c) {
        None if !is_xml_char(c) => Some("\u{FFFD}"),
        found => found,
    };

    let mut out = String::new();
    // `rest` is the part of `text` that is not yet in `out`. Its bytes before `from` are searched
    // and need no replacement.
    let mut rest = text;
    let mut from = 0;

    while let Some(at) = next_special(rest, from) {
        let Some((plain, special)) = rest.split_at_checked(at) else { break };
        let mut chars = special.chars();
        match chars.next().and_then(replacement) {
            Some(reference) => {
                if out.is_empty() {
                    out.reserve(text.len() + 16);
                }
                out.push_str(plain);
                out.push_str(reference);
                rest = chars.as_str();
                from = 0;
            }
            None => from = rest.len() - chars.as_str().len(),
        }
    }

    if rest.len() == text.len() {
        return Cow::Borrowed(text);
    }

    out.push_str(rest);
    Cow::Owned(out)
}

/// Returns the offset of the first character, at or after `from`, that may need a replacement.
/// Returns `None` if there is no such character.
fn next_special(text: &str, from: usize) -> Option<usize> {
    // U+FFFE and U+FFFF begin with 0xEF; XML does not allow them either.
    let is_special = |b: &u8| matches!(b, 0..=0x1F | b'&' | b'<' | b'>' | b'"' | 0xEF);
    let found = text.as_bytes().get(from..)?.iter().position(is_special)?;
    Some(from + found)
}

/// Parses the character reference at the beginning of `text`. Returns the character, and the length
/// of the reference in bytes. Accepts numeric references and the five named references that XML has
/// without a DTD. Returns `None` if `text` begins with no such reference.
pub fn reference(text: &str) -> Option<(char, usize)> {
    let known = match text.as_bytes() {
        [b'&', b'a', b'm', b'p', b';', ..] => ('&', 5),
        [b'&', b'l', b't', b';', ..] => ('<', 4),
        [b'&', b'g', b't', b';', ..] => ('>', 4),
        [b'&', b'q', b'u', b'o', b't', b';', ..] => ('"', 6),
        [b'&', b'a', b'p', b'o', b's', b';', ..] => ('\'', 6),
        _ => {
            let text = text.strip_prefix("&#")?;
            // The search ends at the first character that no reference contains, so that a text of
            // many `&#` takes linear time.
            let end = text.bytes().position(|byte| !byte.is_ascii_alphanumeric())?;
            let (number, behind) = text.split_at_checked(end)?;
            if !behind.starts_with(';') {
                return None;
            }
            (numbered_character(number)?, number.len() + "&#;".len())
        }
    };

    Some(known)
}

fn numbered_character(number: &str) -> Option<char> {
    let (digits, radix) = match number.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };

    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }

    let code = u32::from_str_radix(digits, radix).ok()?;
    char::from_u32(code).filter(|c| is_xml_char(*c))
}

/// Decodes element content. Returns `None` if an `&` begins no reference.
pub fn unescape_text(raw: &str) -> Option<Cow<'_, str>> {
    unescape(raw, false)
}

/// Decodes an attribute value: resolves references, and turns tabs and line ends into spaces.
/// Returns `None` if an `&` begins no reference.
pub fn unescape_attribute(raw: &str) -> Option<Cow<'_, str>> {
    unescape(raw, true)
}

fn unescape(raw: &str, blanks: bool) -> Option<Cow<'_, str>> {
    let bytes = raw.as_bytes();
    let has_blanks = blanks && memchr::memchr3(b'\t', b'\n', b'\r', bytes).is_some();
    if !has_blanks && memchr::memchr(b'&', bytes).is_none() {
        return Some(Cow::Borrowed(raw));
    }

    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;

    while let Some(first) = rest.chars().next() {
        let (c, length) = match first {
            '&' => reference(rest)?,
            // A line end of two characters becomes one space.
            '\r' if blanks && rest.starts_with("\r\n") => (' ', 2),
            '\t' | '\n' | '\r' if blanks => (' ', 1),
            c => (c, c.len_utf8()),
        };
        out.push(c);
        rest = rest.get(length..).unwrap_or_default();
    }

    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_one_of_five_names_or_a_character_that_xml_allows() {
        assert_eq!(reference("&quot;x"), Some(('"', 6)));
        assert_eq!(reference("&#65;"), Some(('A', 5)));
        assert_eq!(reference("&#x0000000000041;"), Some(('A', 17)));
        for none in ["&", "&amp", "&nbsp;", "&#;", "&#x;", "&#+65;", "&#X41;", "&#0;", "&#xFFFE;"] {
            assert_eq!(reference(none), None, "{none}");
        }
    }

    #[test]
    fn what_was_escaped_is_the_same_after_unescaping() {
        let text = "a & b < c > d \" e ' f\t\n\r\u{E9}";
        assert_eq!(unescape_text(&escape_text(text)).as_deref(), Some(text));
        assert_eq!(unescape_attribute(&escape_attribute(text)).as_deref(), Some(text));
    }

    #[test]
    fn white_space_in_an_attribute_is_read_as_spaces_unless_escaped() {
        assert_eq!(unescape_attribute("a\tb\r\nc\rd&#10;e").as_deref(), Some("a b c d\ne"));
        assert_eq!(unescape_text("a\tb\r\nc").as_deref(), Some("a\tb\r\nc"));
    }

    #[test]
    fn an_ampersand_that_begins_no_reference_cannot_be_unescaped() {
        assert_eq!(unescape_text("a & b"), None);
        assert_eq!(unescape_attribute("a&nbsp;b"), None);
    }
}
