//! Decodes the references in a text that is strict XML, and leaves any other text as written. A
//! text that was escaped twice is decoded only once.

use std::borrow::Cow;

use memchr::{memchr2, memmem};

use crate::xml::escape::{self, is_xml_char};

/// Decodes the content of a text-only element if it is strict XML: text with CDATA, the five named
/// entities and legal character references. Returns any other content unchanged.
pub(super) fn simple_content(raw: &str) -> Cow<'_, str> {
    decode(raw, true).unwrap_or(Cow::Borrowed(raw))
}

/// Decodes an attribute value if the value is strict XML. Returns any other value unchanged.
pub(super) fn attribute(raw: &str) -> Cow<'_, str> {
    decode(raw, false).unwrap_or(Cow::Borrowed(raw))
}

/// Whether `raw` is a valid attribute value in strict XML.
pub(super) fn is_strict_attribute(raw: &str) -> bool {
    decode(raw, false).is_some()
}

/// Whether the content `raw` of an element is kept as written, but contains a reference that strict
/// XML would decode.
pub(super) fn is_half_escaped(raw: &str) -> bool {
    holds_reference(raw) && decode(raw, true).is_none()
}

/// Whether the attribute value `raw` is kept as written, but contains a reference that strict XML
/// would decode.
pub(super) fn is_half_escaped_attribute(raw: &str) -> bool {
    holds_reference(raw) && !is_strict_attribute(raw)
}

fn holds_reference(raw: &str) -> bool {
    if memmem::find(raw.as_bytes(), b";").is_none() {
        return false;
    }
    let mut ampersands = memchr::memchr_iter(b'&', raw.as_bytes());
    ampersands.any(|at| raw.get(at..).is_some_and(|rest| reference(rest).is_some()))
}

/// Decodes `raw`, in which CDATA sections are allowed if `cdata` is set. Returns `None` if `raw` is
/// not strict XML.
fn decode(raw: &str, cdata: bool) -> Option<Cow<'_, str>> {
    let Some(mut at) = memchr2(b'<', b'&', raw.as_bytes()) else { return Some(raw.into()) };
    let mut out = String::new();
    let mut from = 0;

    loop {
        let before = raw.get(from..at)?;
        let rest = raw.get(at..)?;
        let mut c = [0; 4];
        let (decoded, length): (&str, usize) = if rest.starts_with('&') {
            let (found, length) = reference(rest)?;
            (found.encode_utf8(&mut c), length)
        } else {
            let inside = rest.strip_prefix("<![CDATA[").filter(|_| cdata)?;
            let end = memmem::find(inside.as_bytes(), b"]]>")?;
            (inside.get(..end)?, "<![CDATA[".len() + end + "]]>".len())
        };
        // Reserved only now, because many texts turn out not to be strict.
        out.reserve(raw.len() - out.len());
        out.push_str(before);
        out.push_str(decoded);
        from = at + length;
        match memchr2(b'<', b'&', raw.as_bytes().get(from..)?) {
            Some(next) => at = from + next,
            None => break,
        }
    }

    out.push_str(raw.get(from..)?);
    Some(Cow::Owned(out))
}

/// Parses the reference at the beginning of `text` as [`escape::reference`] does. Returns `None`
/// also for a reference that exceeds a maximum length.
pub(super) fn reference(text: &str) -> Option<(char, usize)> {
    const LONGEST: usize = 12;
    let end = text.bytes().take(LONGEST).position(|b| b == b';')?;
    escape::reference(text.get(..=end)?)
}

/// Returns the first character that XML does not allow; `None` if `text` has no such character.
pub(super) fn illegal(text: &str) -> Option<char> {
    // Only control characters, U+FFFE and U+FFFF are illegal, so most text is decided byte by byte.
    let suspect = |b: u8| ((b < b' ') & (b != b'\t') & (b != b'\n') & (b != b'\r')) | (b == 0xEF);
    // No early exit within a chunk, so that the compiler can vectorise the loop.
    let mut chunks = text.as_bytes().chunks(64);
    if !chunks.any(|chunk| chunk.iter().fold(false, |found, byte| found | suspect(*byte))) {
        return None;
    }

    text.chars().find(|c| !is_xml_char(*c))
}
