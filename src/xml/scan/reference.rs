//! References in XML: the five named ones, such as `&amp;`, and characters by number.

use super::names::qualified;
use super::{ScanViolation, quoted};
use crate::xml::escape;

/// Checks the reference at the beginning of `rest`.
pub(super) fn check(rest: &str, offset: usize) -> Result<(), ScanViolation> {
    if escape::reference(rest).is_some() {
        return Ok(());
    }

    let end = memchr::memchr(b';', rest.as_bytes());
    let name = end.and_then(|end| rest.get(1..end)).unwrap_or_default();
    let message = match (name.starts_with('#'), qualified(name)) {
        (true, _) => format!("`&{};` is no character XML allows", quoted(name)),
        (false, Some(_)) => format!("entity `&{};` is not defined", quoted(name)),
        (false, None) => "`&` that begins no reference; write `&amp;`".to_owned(),
    };

    Err(ScanViolation::form(offset, message))
}
