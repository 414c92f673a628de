//! The scan: checks a text before a full parser sees a byte of it.
//!
//! Its stages are linear with bounded memory: size, UTF-8, forbidden markup, complexity,
//! well-formedness with namespaces, and one root. The order is that of the gate: the first stage
//! with a violation decides. From the third stage on, one pass covers all stages; they run
//! separately only after that pass found something.
//!
//! Must not know envelopes, vocabularies or schemas.

mod bounds;
mod content;
mod forbidden;
mod locate;
mod markup;
mod names;
mod namespaces;
mod nested;
mod prolog;
mod reference;
mod split;
mod tag;
mod wellformed;

use std::ops::Range;

use crate::ids::PayloadName;
use crate::limits;

pub use locate::{excess, locate};
pub use nested::{NestedElement, attributes, nested};
pub use split::split;

/// The kind of rule that a text broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenRule {
    /// The text is longer than a payload may be.
    Size,
    /// The text is not UTF-8, or declares another encoding.
    Encoding,
    /// The text has a DOCTYPE, an entity declaration or a processing instruction.
    Forbidden,
    /// The text exceeds a limit on depth, elements, attributes, namespaces or names.
    Complexity,
    /// The text is not well-formed or not namespace-well-formed.
    Form,
    /// The text has no root element, or something beside it.
    Roots,
}

/// The first violation in a text, and its offset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScanViolation {
    pub breach: BrokenRule,
    /// Byte offset from the start of the scanned text.
    pub offset: usize,
    /// What was found and what was expected: lower case, no full stop.
    pub message: String,
}

impl ScanViolation {
    fn new(breach: BrokenRule, offset: usize, message: impl Into<String>) -> Self {
        Self { breach, offset, message: message.into() }
    }

    fn form(offset: usize, message: impl Into<String>) -> Self {
        Self::new(BrokenRule::Form, offset, message)
    }

    fn complexity(offset: usize, message: impl Into<String>) -> Self {
        Self::new(BrokenRule::Complexity, offset, message)
    }
}

/// A text that is exactly one well-formed element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedElement {
    /// Byte range of the root element, without BOM, declaration, and space or comments around it.
    pub root: Range<usize>,
    /// The root's expanded name.
    pub name: PayloadName,
}

/// Scans the text of one payload; returns its element or the first violation.
pub fn scan(text: &[u8]) -> Result<ScannedElement, ScanViolation> {
    scan_within(text, limits::PAYLOAD_BYTES_MAX)
}

/// As [`scan`], with another limit on the number of bytes.
pub fn scan_within(text: &[u8], bytes_max: usize) -> Result<ScannedElement, ScanViolation> {
    size(text, bytes_max)?;
    let text = utf8(text)?;
    let prolog = prolog::read(text);
    if let Some(violation) = prolog.encoding {
        return Err(violation);
    }

    if let Some(violation) = prolog.form {
        forbidden::check(text, prolog.end)?;
        bounds::ComplexityBounds::default().rest(text, prolog.end)?;
        return Err(violation);
    }

    wellformed::check(text, prolog.end)?.one(text)
}

/// Checks the size. A BOM and white space around the payload do not count, up to a limit.
fn size(text: &[u8], max: usize) -> Result<(), ScanViolation> {
    let (length, unit) = match text.len() {
        long if long > max.saturating_add(limits::ENVELOPE_BYTES_MAX) => (long, "text"),
        _ => (prolog::without_bom(text).trim_ascii().len(), "payload"),
    };

    if length <= max {
        return Ok(());
    }

    let message = format!("a {unit} of {length} bytes, where {max} is the most");
    Err(ScanViolation::new(BrokenRule::Size, 0, message))
}

fn utf8(text: &[u8]) -> Result<&str, ScanViolation> {
    std::str::from_utf8(text).map_err(|error| {
        let offset = error.valid_up_to();
        let byte = text.get(offset).copied().unwrap_or_default();
        let message = format!("byte 0x{byte:02X} is not UTF-8, the only encoding accepted");
        ScanViolation::new(BrokenRule::Encoding, offset, message)
    })
}

/// A name or value of the text, shortened for a message.
fn quoted(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(limits::ID_ECHO_CHARS_MAX).collect();
    if chars.next().is_some() { format!("{head}…") } else { head }
}
