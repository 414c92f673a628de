//! Checks the complexity of a text: the depth, the number of elements, and the lengths of its
//! parts. The check reads only tags, and leaves malformed text to the next stage of the scan.

use memchr::memchr;

use super::markup::{MarkupKind, MarkupLexer, MarkupPiece};
use super::tag::StartTag;
use super::{BrokenRule, ScanViolation};
use crate::limits;

/// Counts of the elements, the depth and the namespaces of the text that has been scanned so far.
#[derive(Default)]
pub(super) struct ComplexityBounds {
    elements: usize,
    /// Number of namespace declarations on each open element. The length of the list is the current
    /// depth.
    declared: Vec<usize>,
    in_scope: usize,
}

impl ComplexityBounds {
    /// Checks the text from `start` to its end against the limits.
    pub fn rest(&mut self, text: &str, start: usize) -> Result<(), ScanViolation> {
        let mut tag = StartTag::default();
        for piece in MarkupLexer::new(text, start) {
            match piece {
                Ok(piece) => {
                    if piece.opens() && !piece.plain {
                        tag.read(text, &piece);
                    }
                    self.see(&piece, &tag)?;
                }
                Err(violation) if violation.breach == BrokenRule::Complexity => {
                    return Err(violation);
                }
                Err(_) => return Ok(()),
            }
        }

        Ok(())
    }

    /// Counts a piece of markup. For a start tag that is not [`MarkupPiece::plain`], `tag` must
    /// contain the parts of the start tag.
    pub fn see(&mut self, piece: &MarkupPiece, tag: &StartTag<'_>) -> Result<(), ScanViolation> {
        match piece.kind {
            MarkupKind::Start | MarkupKind::Empty => {
                let declared = if piece.plain { 0 } else { tag_bounds(piece, tag)? };
                self.open(piece, declared)
            }
            MarkupKind::End => {
                self.in_scope -= self.declared.pop().unwrap_or_default();
                Ok(())
            }
            MarkupKind::Comment | MarkupKind::Cdata | MarkupKind::Instruction => Ok(()),
        }
    }

    fn open(&mut self, piece: &MarkupPiece, declared: usize) -> Result<(), ScanViolation> {
        self.elements += 1;
        let in_scope = self.in_scope + declared;
        if self.declared.len() >= limits::XML_DEPTH_MAX {
            return over(piece, "elements nested deeper", limits::XML_DEPTH_MAX);
        }

        if self.elements > limits::XML_ELEMENTS_MAX {
            return over(piece, "more elements", limits::XML_ELEMENTS_MAX);
        }

        if in_scope > limits::XML_NAMESPACES_MAX {
            return over(piece, "more namespace declarations in scope", limits::XML_NAMESPACES_MAX);
        }

        if piece.kind == MarkupKind::Start {
            self.declared.push(declared);
            self.in_scope = in_scope;
        }

        Ok(())
    }
}

#[cold]
fn over(piece: &MarkupPiece, what: &str, max: usize) -> Result<(), ScanViolation> {
    Err(ScanViolation::complexity(piece.start, format!("{what}, where {max} is the most")))
}

/// Checks a start tag against the limits. Returns the number of namespaces that it declares.
fn tag_bounds(piece: &MarkupPiece, tag: &StartTag<'_>) -> Result<usize, ScanViolation> {
    let length = piece.end - piece.start;
    if piece.values == 0 && length <= limits::XML_NAME_BYTES_MAX {
        return Ok(0);
    }

    // Without this check, an unescaped `<` or a missing quote would be reported as a long name or
    // tag, because the tag then extends far into the text.
    let is_long = length > limits::XML_NAME_BYTES_MAX;
    if is_long && is_malformed(tag) {
        return Ok(0);
    }

    name_bounds(tag.name, piece.start)?;
    if length > limits::XML_TAG_BYTES_MAX {
        let max = limits::XML_TAG_BYTES_MAX;
        let message = format!("a start tag of {length} bytes, where {max} is the most");
        return Err(ScanViolation::complexity(piece.start, message));
    }

    let mut declared = 0;
    for attribute in &tag.attributes {
        name_bounds(attribute.name, attribute.offset)?;
        declared += usize::from(attribute.declares().is_some());
    }

    Ok(declared)
}

/// Whether the next stage of the scan refuses the tag because of its syntax: an attribute cannot be
/// read, or the tag contains a `<`.
fn is_malformed(tag: &StartTag<'_>) -> bool {
    let has_markup = |text: &str| memchr(b'<', text.as_bytes()).is_some();
    tag.broken.is_some()
        || has_markup(tag.name)
        || tag.attributes.iter().any(|found| has_markup(found.name) || has_markup(found.value))
}

fn name_bounds(name: &str, offset: usize) -> Result<(), ScanViolation> {
    if name.len() <= limits::XML_NAME_BYTES_MAX {
        return Ok(());
    }
    let max = limits::XML_NAME_BYTES_MAX;
    let message = format!("a name of {} bytes, where {max} is the most", name.len());
    Err(ScanViolation::complexity(offset, message))
}
