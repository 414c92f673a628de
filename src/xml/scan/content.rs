//! Checks of character data, attribute values and comments.

use super::tag::TagAttribute;
use super::{ScanViolation, reference};

/// Checks the text between two tags: every reference must be valid, and `]]>` must not occur.
pub(super) fn character_data(text: &str, start: usize) -> Result<(), ScanViolation> {
    for at in memchr::memchr2_iter(b'&', b'>', text.as_bytes()) {
        let (before, rest) = text.split_at_checked(at).unwrap_or_default();
        if rest.starts_with('&') {
            reference::check(rest, start + at)?;
        } else if before.ends_with("]]") {
            return Err(ScanViolation::form(start + at - 2, "`]]>` in text; write `]]&gt;`"));
        }
    }

    Ok(())
}

/// Checks an attribute value: every reference must be valid, and `<` must not occur.
pub(super) fn attribute_value(attribute: &TagAttribute<'_>) -> Result<(), ScanViolation> {
    // Most values are short and contain no reference, so setting up a wide search would cost more.
    if !attribute.value.bytes().any(|byte| matches!(byte, b'&' | b'<')) {
        return Ok(());
    }

    for at in memchr::memchr2_iter(b'&', b'<', attribute.value.as_bytes()) {
        let rest = attribute.value.get(at..).unwrap_or_default();
        let offset = attribute.value_offset + at;
        if rest.starts_with('<') {
            return Err(ScanViolation::form(offset, "`<` in an attribute value; write `&lt;`"));
        }
        reference::check(rest, offset)?;
    }

    Ok(())
}

/// Checks a comment with its delimiters. Inside the comment, `--` must not occur.
pub(super) fn comment(comment: &str, start: usize) -> Result<(), ScanViolation> {
    let inside = comment.len().checked_sub(3).and_then(|end| comment.get(4..end));
    let inside = inside.unwrap_or_default();
    let mut dashes = memchr::memchr_iter(b'-', inside.as_bytes());

    match dashes.find(|at| inside.as_bytes().get(at + 1) == Some(&b'-')) {
        Some(at) => Err(ScanViolation::form(start + 4 + at, "`--` inside a comment")),
        None if inside.ends_with('-') => {
            Err(ScanViolation::form(start + comment.len() - 4, "`--` inside a comment"))
        }
        None => Ok(()),
    }
}
