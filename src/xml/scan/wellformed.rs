//! Well-formedness with namespaces: all rules of XML 1.0 except those about declarations and
//! processing instructions.

use std::collections::HashSet;
use std::ops::Range;

use super::bounds::ComplexityBounds;
use super::content::{attribute_value, character_data, comment};
use super::markup::{MarkupKind, MarkupLexer, MarkupPiece};
use super::namespaces::{NamespaceId, NamespaceTable};
use super::tag::{StartTag, is_space};
use super::{BrokenRule, ScanViolation, ScannedElement, forbidden, names, quoted};
use crate::ids::PayloadName;

/// Maximum number of attributes of a tag for which duplicates are found without hashing.
const FEW: usize = 8;

/// The root elements of a well-formed text.
#[derive(Debug, Default)]
pub(super) struct RootElements {
    first: Option<(Range<usize>, PayloadName)>,
    /// Offset and description of the first content outside the first root element, such as a second
    /// root element or text. `None` if there is no such content.
    stray: Option<(usize, &'static str)>,
}

impl RootElements {
    /// Returns the only root element of `text`. Fails if `text` has no root element, several root
    /// elements, or text outside its root element.
    pub fn into_single(self, text: &str) -> Result<ScannedElement, ScanViolation> {
        let violation = |at: usize, what: &str| {
            ScanViolation::new(
                BrokenRule::Roots,
                at,
                format!("{what}, where one element was expected"),
            )
        };

        match (self.first, self.stray) {
            (_, Some((at, what))) => Err(violation(at, what)),
            (Some((root, name)), None) => Ok(ScannedElement { root, name }),
            (None, None) => Err(violation(text.len(), "no element")),
        }
    }
}

/// Checks `text` from `start` to its end. Of several violations, reports forbidden markup first,
/// then an exceeded limit, and only then malformed XML, in whatever order they are in the text. A
/// valid text needs one pass. After a violation, the remaining text is checked for violations that
/// must be reported first.
pub(super) fn check(text: &str, start: usize) -> Result<RootElements, ScanViolation> {
    let mut checker = WellFormednessChecker::new(text);
    let mut bounds = ComplexityBounds::default();
    let mut tag = StartTag::default();
    let mut end = start;
    let mut markup = MarkupLexer::new(text, start);

    while let Some(piece) = markup.next() {
        let mut piece = piece.map_err(|cut_short| {
            let at = cut_short.offset;
            first(text, &mut bounds, at, at, cut_short)
        })?;
        if !piece.plain && piece.opens() {
            tag.read(text, &piece);
        } else if piece.kind == MarkupKind::Start && !checker.open.is_empty() {
            piece = markup.whole(piece).unwrap_or(piece);
        }
        if let Err(beyond) = bounds.see(&piece, &tag) {
            return Err(forbidden::check(text, piece.start).err().unwrap_or(beyond));
        }
        let between = end..piece.start;
        end = piece.end;
        let read = checker.text(between).and_then(|()| checker.piece(&piece, &mut tag));
        read.map_err(|violation| first(text, &mut bounds, piece.start, end, violation))?;
    }

    let form = |violation| illegal_character(text).err().unwrap_or(violation);
    checker.text(end..text.len()).map_err(form)?;
    let roots = checker.end().map_err(form)?;
    illegal_character(text)?;
    Ok(roots)
}

/// Returns the violation to report when the scan has found `violation`. Searches the text from the
/// offset `at` on for a violation that takes precedence, such as forbidden markup. If there is
/// none, returns `violation`. The limits are checked only from the offset `counted` on, because
/// `bounds` has already counted the elements before it.
#[cold]
fn first(
    text: &str,
    bounds: &mut ComplexityBounds,
    at: usize,
    counted: usize,
    violation: ScanViolation,
) -> ScanViolation {
    let earlier = forbidden::check(text, at).and_then(|()| match violation.breach {
        BrokenRule::Complexity => Ok(()),
        _ => bounds.rest(text, counted).and_then(|()| illegal_character(text)),
    });
    earlier.err().unwrap_or(violation)
}

fn illegal_character(text: &str) -> Result<(), ScanViolation> {
    let Some(at) = names::illegal_char(text) else { return Ok(()) };
    let code = text.get(at..).and_then(|rest| rest.chars().next()).unwrap_or_default();
    let message = format!("U+{:04X} is no character XML allows", u32::from(code));
    Err(ScanViolation::form(at, message))
}

/// An attribute of the current tag. Its prefix is resolved after the whole tag has been read.
struct FoundAttribute<'a> {
    prefix: &'a str,
    namespace: NamespaceId,
    local: &'a str,
    offset: usize,
}

/// Checks the well-formedness of a text, and finds its root elements.
struct WellFormednessChecker<'a> {
    text: &'a str,
    /// Name and offset of every open element.
    open: Vec<(&'a str, usize)>,
    namespaces: NamespaceTable<'a>,
    /// Attributes of the tag that is being checked.
    attributes: Vec<FoundAttribute<'a>>,
    seen: HashSet<(NamespaceId, &'a str)>,
    roots: RootElements,
}

impl<'a> WellFormednessChecker<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            open: Vec::new(),
            namespaces: NamespaceTable::new(),
            attributes: Vec::new(),
            seen: HashSet::new(),
            roots: RootElements::default(),
        }
    }

    fn get(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    fn stray(&mut self, at: usize, what: &'static str) {
        self.roots.stray.get_or_insert((at, what));
    }

    fn text(&mut self, range: Range<usize>) -> Result<(), ScanViolation> {
        if range.is_empty() {
            return Ok(());
        }

        let text = self.get(range.clone());
        if self.open.is_empty() {
            if let Some(at) = text.bytes().position(|b| !is_space(b)) {
                self.stray(range.start + at, "text outside of any element");
            }
            return Ok(());
        }

        character_data(text, range.start)
    }

    /// Checks one piece of markup. For a start tag that is not [`MarkupPiece::plain`], `tag` must
    /// contain the parts of the start tag.
    fn piece(&mut self, piece: &MarkupPiece, tag: &mut StartTag<'a>) -> Result<(), ScanViolation> {
        let at = piece.start;
        match piece.kind {
            // Below the root, the namespace of a plain name does not matter.
            MarkupKind::Empty if piece.plain && !self.open.is_empty() => {}
            MarkupKind::Start if piece.plain && !self.open.is_empty() => {
                self.namespaces.open();
                self.open.push((self.get(at + 1..piece.end - 1), at));
            }
            MarkupKind::Start => self.start(piece, tag)?,
            MarkupKind::Empty => {
                self.start(piece, tag)?;
                self.close(piece.end);
            }
            MarkupKind::End => {
                self.end_tag(self.get(piece.range()), at)?;
                self.close(piece.end);
            }
            MarkupKind::Comment if piece.plain => {}
            MarkupKind::Comment => comment(self.get(piece.range()), at)?,
            MarkupKind::Cdata if self.open.is_empty() => {
                self.stray(at, "text outside of any element")
            }
            MarkupKind::Cdata => {}
            MarkupKind::Instruction => {
                return Err(ScanViolation::form(at, "a processing instruction"));
            }
        }

        Ok(())
    }

    fn start(&mut self, piece: &MarkupPiece, tag: &mut StartTag<'a>) -> Result<(), ScanViolation> {
        let at = piece.start;
        if piece.plain {
            tag.read(self.text, piece);
        }

        let name = tag.name;
        let Some((prefix, local)) = names::qualified(name) else {
            let name = quoted(name);
            let message = if name.starts_with(|c: char| c.is_alphabetic()) {
                format!("`{name}` is no element name")
            } else {
                format!("`<{name}` begins no tag; write `&lt;` for `<`")
            };
            return Err(ScanViolation::form(at, message));
        };

        self.namespaces.open();
        self.attributes(tag)?;
        if prefix == "xmlns" {
            return Err(ScanViolation::form(at, "prefix `xmlns` on an element"));
        }

        let namespace = self.namespaces.of_element(prefix, at)?;
        if self.open.is_empty() {
            if self.roots.first.is_some() {
                self.stray(at, "a second root element");
            } else {
                let name = PayloadName::new(self.namespaces.uri(namespace), local);
                self.roots.first = Some((at..at, name));
            }
        }

        self.open.push((name, at));
        Ok(())
    }

    /// Checks the attributes of a tag. Resolves the namespace declarations first, because they also
    /// apply to attributes that stand before them.
    fn attributes(&mut self, tag: &mut StartTag<'a>) -> Result<(), ScanViolation> {
        self.attributes.clear();
        for attribute in &tag.attributes {
            let offset = attribute.offset;
            attribute_value(attribute)?;
            let Some((prefix, local)) = names::qualified(attribute.name) else {
                let message = format!("`{}` is no attribute name", quoted(attribute.name));
                return Err(ScanViolation::form(offset, message));
            };
            if let Some(declared) = attribute.declares() {
                self.namespaces.declare(declared, attribute)?;
            }
            self.attributes.push(FoundAttribute {
                prefix,
                namespace: NamespaceId::NONE,
                local,
                offset,
            });
        }

        if let Some(violation) = tag.broken.take() {
            return Err(violation);
        }

        for found in &mut self.attributes {
            found.namespace = self.namespaces.of_attribute(found.prefix, found.offset)?;
        }

        self.duplicates()
    }

    fn duplicates(&mut self) -> Result<(), ScanViolation> {
        let twice = if self.attributes.len() <= FEW {
            let mut all = self.attributes.iter().enumerate();
            all.find(|(index, found)| {
                let mut before = self.attributes.iter().take(*index);
                before.any(|b| (b.namespace, b.local) == (found.namespace, found.local))
            })
        } else {
            self.seen.clear();
            let mut all = self.attributes.iter().enumerate();
            all.find(|(_, found)| !self.seen.insert((found.namespace, found.local)))
        };

        match twice {
            Some((_, found)) => {
                let message = format!("attribute `{}` is given twice", quoted(found.local));
                Err(ScanViolation::form(found.offset, message))
            }
            None => Ok(()),
        }
    }

    fn end_tag(&mut self, tag: &'a str, at: usize) -> Result<(), ScanViolation> {
        let inside = tag.get(2..tag.len() - 1).unwrap_or_default();
        if self.open.last().is_some_and(|(open, _)| *open == inside) {
            return Ok(());
        }

        let name = inside.trim_end_matches([' ', '\t', '\r', '\n']);
        match self.open.last() {
            Some((open, _)) if *open == name => Ok(()),
            Some((open, _)) => {
                let name = quoted(name);
                let open = quoted(open);
                let message = format!("`</{name}>`, where `</{open}>` was expected");
                Err(ScanViolation::form(at, message))
            }
            None => {
                let message = format!("`</{}>` closes nothing", quoted(name));
                Err(ScanViolation::form(at, message))
            }
        }
    }

    fn close(&mut self, end: usize) {
        self.namespaces.close();
        self.open.pop();
        if self.open.is_empty()
            && self.roots.stray.is_none()
            && let Some((range, _)) = &mut self.roots.first
        {
            range.end = end;
        }
    }

    fn end(self) -> Result<RootElements, ScanViolation> {
        match self.open.last() {
            Some((name, at)) => {
                Err(ScanViolation::form(*at, format!("`<{}>` is not closed", quoted(name))))
            }
            None => Ok(self.roots),
        }
    }
}
