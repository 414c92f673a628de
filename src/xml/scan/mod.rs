//! The scan: everything that can be said about a text before a full parser sees a byte of it.
//!
//! Its stages are linear with a bounded memory: size, UTF-8, forbidden markup, complexity,
//! well-formedness with namespaces, and one root. The order is the gate's, so the first stage
//! with a violation is the one that decides. From the third on they go through the text in one
//! pass, and apart only where that pass finds something.
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

/// What kind of rule a text broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenRule {
    /// Longer than a payload may be.
    Size,
    /// Not UTF-8, or declared to be something else.
    Encoding,
    /// A DOCTYPE, an entity declaration or a processing instruction.
    Forbidden,
    /// Beyond the limits on depth, elements, attributes, namespaces or names.
    Complexity,
    /// Not well-formed, or not namespace-well-formed.
    Form,
    /// No root element, or something beside it.
    Roots,
}

/// The first thing wrong with a text, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScanViolation {
    pub breach: BrokenRule,
    /// In bytes from the start of the scanned text.
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

/// A text that is one well-formed element and nothing else of weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedElement {
    /// The root element's bytes: no BOM, no declaration, no space or comment around it.
    pub root: Range<usize>,
    /// The root's expanded name.
    pub name: PayloadName,
}

/// Reads one payload's text; says which element it is, or the first thing wrong with it.
pub fn scan(text: &[u8]) -> Result<ScannedElement, ScanViolation> {
    scan_within(text, limits::PAYLOAD_BYTES_MAX)
}

/// As [`scan`], where the payload may have other than the usual number of bytes.
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

/// A BOM and white space around the payload do not count against it, within reason.
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

/// A name or value of the text, short enough to be quoted in a message.
fn quoted(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(limits::ID_ECHO_CHARS_MAX).collect();
    if chars.next().is_some() { format!("{head}…") } else { head }
}
