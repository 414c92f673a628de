//! Cuts elements out of their parents, so that each element becomes a separate document.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

use super::markup::{MarkupKind, MarkupLexer, MarkupPiece};
use super::tag::open_tag;
use crate::xml::escape::unescape_attribute;

/// An element that was cut out of a larger text, as a separate document. Its names have the same
/// namespaces as in that text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedElement {
    /// Byte range of the element in the original text.
    pub range: Range<usize>,
    /// Text of the element. Its start tag also contains those namespace declarations of the parents
    /// that the element needs.
    pub text: String,
    /// Byte range in `text` of the added namespace declarations.
    pub added: Range<usize>,
    /// Byte range, in `text`, of the URI in the added declaration of the default namespace; `None`
    /// if no such declaration was added.
    inherited: Option<Range<usize>>,
}

impl NestedElement {
    /// Returns a copy of the element with the namespace `uri` in place of the default namespace
    /// that the element inherited from its parents. Returns `None` if the element relies on no
    /// inherited default namespace. `uri` must need no escaping.
    pub fn rebind(&self, uri: &str) -> Option<Self> {
        debug_assert!(!uri.contains(['<', '&', '"', '\'']));
        let default = self.inherited.clone()?;
        let head = self.text.get(..default.start)?;
        let tail = self.text.get(default.end..)?;
        let end = self.added.end - default.len() + uri.len();
        Some(Self {
            range: self.range.clone(),
            text: [head, uri, tail].concat(),
            added: self.added.start..end,
            inherited: Some(default.start..default.start + uri.len()),
        })
    }
}

/// Returns the unprefixed attributes of the root of `text`, decoded and in order. The scan must
/// have accepted `text`.
pub fn attributes(text: &str) -> Vec<(&str, Cow<'_, str>)> {
    let Some(Ok(tag)) = MarkupLexer::new(text, 0).next() else {
        return Vec::new();
    };

    let (_, attributes) = open_tag(text, &tag);
    let plain = attributes.map_while(Result::ok);
    let plain = plain.filter(|a| a.declares().is_none() && !a.name.contains(':'));
    plain.filter_map(|a| Some((a.name, unescape_attribute(a.value)?))).collect()
}

/// Returns every element that lies `levels` below the root of `text`. The scan must have accepted
/// `text`.
pub fn nested(text: &str, levels: usize) -> Vec<NestedElement> {
    let mut found = Vec::new();
    // Declarations of the enclosing elements, outermost first, with their values as written.
    let mut scope: Vec<Vec<(&str, &str)>> = Vec::new();
    let mut depth = 0_usize;
    let mut inner: Option<MarkupPiece> = None;

    for piece in MarkupLexer::new(text, 0).map_while(Result::ok) {
        match piece.kind {
            MarkupKind::Start | MarkupKind::Empty => {
                let opens = piece.kind == MarkupKind::Start;
                if depth == levels {
                    inner = Some(piece);
                } else if depth < levels && opens {
                    scope.push(declarations(text, &piece));
                }
                depth += usize::from(opens);
            }
            MarkupKind::End => {
                depth = depth.saturating_sub(1);
                if depth < levels {
                    scope.pop();
                }
            }
            MarkupKind::Comment | MarkupKind::Cdata | MarkupKind::Instruction => continue,
        }
        if depth == levels
            && let Some(tag) = inner.take()
        {
            let range = tag.start..piece.end;
            found.push(cut_out(text, range, &tag, &scope));
        }
    }

    found
}

fn declarations<'a>(text: &'a str, tag: &MarkupPiece) -> Vec<(&'a str, &'a str)> {
    let (_, attributes) = open_tag(text, tag);
    let attributes = attributes.map_while(Result::ok);
    attributes.filter_map(|a| Some((a.declares()?, a.value))).collect()
}

/// Copies an element, and adds the namespace declarations that it inherits: the default namespace,
/// and each prefix that occurs in a name or in a value of the element.
fn cut_out(
    text: &str,
    range: Range<usize>,
    tag: &MarkupPiece,
    scope: &[Vec<(&str, &str)>],
) -> NestedElement {
    let element = text.get(range.clone()).unwrap_or_default();
    let own = declarations(text, tag);
    let (name, _) = open_tag(text, tag);
    let mut known: Vec<&str> = own.iter().map(|(prefix, _)| *prefix).collect();
    let mut added = String::new();
    let at = 1 + name.len();
    let mut inherited = None;

    for (prefix, value) in scope.iter().rev().flatten() {
        if known.contains(prefix) {
            continue;
        }
        known.push(prefix);
        let occurs = match *prefix {
            "" => !value.is_empty(),
            prefix => uses(element, prefix),
        };
        if occurs {
            let colon = if prefix.is_empty() { "" } else { ":" };
            let quote = if value.contains('"') { '\'' } else { '"' };
            added.extend([" xmlns", colon, prefix, "="]);
            added.push(quote);
            if prefix.is_empty() {
                let start = at + added.len();
                inherited = Some(start..start + value.len());
            }
            added.push_str(value);
            added.push(quote);
        }
    }

    let (head, rest) = element.split_at_checked(at).unwrap_or((element, ""));
    NestedElement {
        range,
        text: [head, &added, rest].concat(),
        added: at..at + added.len(),
        inherited,
    }
}

/// Whether the text `prefix:` occurs in the element. A false positive only adds a needless
/// declaration.
fn uses(element: &str, prefix: &str) -> bool {
    memmem::find(element.as_bytes(), format!("{prefix}:").as_bytes()).is_some()
}
