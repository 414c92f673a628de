//! Names and characters of XML 1.0 (fifth edition) and of Namespaces in XML.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::xml::escape::is_xml_char;

/// Searcher for the first two bytes of U+FFFE and U+FFFF. It is created once, because its creation
/// costs more than a search in a short text.
static NONCHARACTER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\xEF\xBF"));

/// Splits a qualified name into prefix and local part. Returns `None` if `name` is no qualified
/// name.
pub(super) fn qualified(name: &str) -> Option<(&str, &str)> {
    match name.bytes().position(|byte| byte == b':').and_then(|at| name.split_at_checked(at)) {
        Some((prefix, rest)) => {
            let local = rest.get(1..).unwrap_or_default();
            (is_ncname(prefix) && is_ncname(local)).then_some((prefix, local))
        }
        None => is_ncname(name).then_some(("", name)),
    }
}

/// Whether an ASCII byte may occur in an XML name. The first byte of a name must be alphabetic or
/// `_`.
pub(super) fn is_ascii_name(byte: u8) -> bool {
    ASCII_NAME.get(usize::from(byte)).is_some_and(|is_name| *is_name)
}

pub(super) fn is_ascii_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

#[expect(clippy::indexing_slicing, reason = "computed by the compiler, which checks the bounds")]
const ASCII_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let name = (byte as u8).is_ascii_alphanumeric();
        table[byte] = name || matches!(byte as u8, b'_' | b'-' | b'.');
        byte += 1;
    }
    table
};

/// Whether `name` is an XML name without a colon.
pub fn is_ncname(name: &str) -> bool {
    let plain = name.bytes().all(is_ascii_name) && name.bytes().next().is_some_and(is_ascii_start);
    plain || {
        let mut chars = name.chars();
        chars.next().is_some_and(is_start) && chars.all(|c| is_start(c) || is_further(c))
    }
}

fn is_start(c: char) -> bool {
    matches!(c,
        'a'..='z' | 'A'..='Z' | '_'
        | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}'
        | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}'
        | '\u{2070}'..='\u{218F}' | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}' | '\u{10000}'..='\u{EFFFF}')
}

fn is_further(c: char) -> bool {
    matches!(c,
        '0'..='9' | '-' | '.' | '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}')
}

/// Returns the offset of the first character that XML 1.0 does not allow; `None` if there is no
/// such character.
pub(super) fn illegal_char(text: &str) -> Option<usize> {
    let control = |b: u8| (b < b' ') & (b != b'\t') & (b != b'\n') & (b != b'\r');
    let controls = text.as_bytes().chunks(64).any(|chunk| {
        // No early exit, so that the compiler can vectorise the loop.
        chunk.iter().fold(false, |found, byte| found | control(*byte))
    });
    let high = || {
        let mut found = NONCHARACTER.find_iter(text.as_bytes());
        found.any(|at| matches!(text.as_bytes().get(at + 2), Some(0xBE | 0xBF)))
    };

    if !controls && !high() {
        return None;
    }

    text.char_indices().find(|(_, c)| !is_xml_char(*c)).map(|(at, _)| at)
}
