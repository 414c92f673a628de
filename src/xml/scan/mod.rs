//! The scan: checks a text before any full parser sees it.
//!
//! The stages of the scan are, in this order: size, UTF-8, forbidden markup, complexity,
//! well-formedness with namespaces, and number of roots. All stages take linear time and bounded
//! memory. If a text has several violations, the violation of the earliest stage is reported. A
//! valid text takes one pass for all stages from the third on. These stages run separately only
//! after a violation.
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
use crate::shorten::shorten;

pub use locate::{excess, locate};
pub use names::is_ncname;
pub use nested::{NestedElement, attributes, nested};
pub use split::split;

/// The kind of a violation. Each kind belongs to one stage of the scan, and the kinds are in the
/// order of the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenRule {
    /// The text exceeds the size limit of a payload.
    Size,
    /// The text is not UTF-8, or declares another encoding.
    Encoding,
    /// The text contains a DOCTYPE, an entity declaration or a processing instruction.
    Forbidden,
    /// The text exceeds a limit of depth, elements, attributes, namespaces or names.
    Complexity,
    /// The text is not well-formed or not namespace-well-formed.
    Form,
    /// The text has no root element, or content outside its root element.
    Roots,
}

/// The first violation in a text, with its offset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScanViolation {
    pub breach: BrokenRule,
    /// Byte offset from the beginning of the scanned text.
    pub offset: usize,
    /// Text that states the defect and the expected form, in lower case and without a full stop.
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

/// A text that consists of exactly one well-formed element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedElement {
    /// Byte range of the root element, without BOM, declaration, and surrounding space or comments.
    pub root: Range<usize>,
    /// Name of the root element, with its namespace resolved.
    pub name: PayloadName,
}

/// Scans the text of one payload. Returns its root element, or the first violation.
pub fn scan(text: &[u8]) -> Result<ScannedElement, ScanViolation> {
    scan_within(text, limits::PAYLOAD_BYTES_MAX)
}

/// Scans as [`scan`] does, but with `bytes_max` as the limit of the size.
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

    wellformed::check(text, prolog.end)?.into_single(text)
}

/// Checks the size of a text against `max`. A BOM and white space around the payload do not count,
/// but have a limit of their own.
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

/// Shortens a name or value of the text, for an error message.
fn quoted(text: &str) -> String {
    shorten(text, limits::ID_ECHO_CHARS_MAX)
}
