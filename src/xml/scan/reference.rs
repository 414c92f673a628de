//! References: `&amp;` and its four fellows, and characters by number. There are no others.

use std::borrow::Cow;

use super::names::{is_char, qualified};
use super::{Violation, quoted};

/// Reads the reference that `rest` starts with; gives its character and its length in bytes.
pub(super) fn read(rest: &str, offset: usize) -> Result<(char, usize), Violation> {
    let named = match rest.as_bytes() {
        [_, b'a', b'm', b'p', b';', ..] => Some(('&', 5)),
        [_, b'l', b't', b';', ..] => Some(('<', 4)),
        [_, b'g', b't', b';', ..] => Some(('>', 4)),
        [_, b'q', b'u', b'o', b't', b';', ..] => Some(('"', 6)),
        [_, b'a', b'p', b'o', b's', b';', ..] => Some(('\'', 6)),
        _ => None,
    };
    if let Some(known) = named {
        return Ok(known);
    }
    let end = memchr::memchr(b';', rest.as_bytes());
    let name = end.and_then(|end| rest.get(1..end)).unwrap_or_default();
    let length = name.len() + 2;
    let Some(number) = name.strip_prefix('#') else {
        let message = match qualified(name) {
            Some(_) => format!("entity `&{};` is not defined", quoted(name)),
            None => "`&` that begins no reference; write `&amp;`".to_owned(),
        };
        return Err(Violation::form(offset, message));
    };
    match by_number(number) {
        Some(c) => Ok((c, length)),
        None => {
            let message = format!("`&{};` is no character XML allows", quoted(name));
            Err(Violation::form(offset, message))
        }
    }
}

fn by_number(number: &str) -> Option<char> {
    let (digits, radix) = match number.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    if digits.is_empty() {
        return None;
    }
    let code = digits.bytes().try_fold(0_u32, |code, byte| {
        let digit = char::from(byte).to_digit(radix)?;
        code.checked_mul(radix)?.checked_add(digit)
    });
    char::from_u32(code?).filter(|c| is_char(*c))
}

/// An attribute's value as an application sees it: references decoded, white space as spaces.
/// Only for values that were checked; a reference that cannot be read stays as it is.
pub(super) fn attribute_value(raw: &str) -> Cow<'_, str> {
    if !raw.bytes().any(|b| matches!(b, b'&' | b'\t' | b'\n' | b'\r')) {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(c) = rest.chars().next() {
        let decoded = if c == '&' { read(rest, 0).ok() } else { None };
        let (c, length) = match (decoded, c) {
            (Some(reference), _) => reference,
            // A line end of two characters is one.
            (None, '\r') if rest.starts_with("\r\n") => (' ', 2),
            (None, '\t' | '\n' | '\r') => (' ', 1),
            (None, c) => (c, c.len_utf8()),
        };
        out.push(c);
        rest = rest.get(length..).unwrap_or_default();
    }
    Cow::Owned(out)
}
