//! Elements inside an element, cut out so that each stands on its own.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

use super::markup::{Kind, Markup, open_tag};
use super::reference::attribute_value;

/// An element cut out of its parents, meaning alone what it meant inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nested {
    /// Its bytes where it stood.
    pub range: Range<usize>,
    /// Its text, with the namespace declarations it relied on added to its start tag.
    pub text: String,
}

/// The unprefixed attributes of the root of `text`, decoded, in order. `text` must have
/// passed the scan.
pub fn attributes(text: &str) -> Vec<(&str, Cow<'_, str>)> {
    let Some(Ok(piece)) = Markup::new(text, 0).next() else {
        return Vec::new();
    };
    let Kind::Start { empty, .. } = piece.kind else {
        return Vec::new();
    };
    let tag = text.get(piece.range).unwrap_or_default();
    let (_, attributes) = open_tag(tag, empty, 0);
    let plain = attributes.map_while(Result::ok);
    let plain = plain.filter(|a| a.declares().is_none() && !a.name.contains(':'));
    plain.map(|a| (a.name, attribute_value(a.value))).collect()
}

/// Every element `levels` below the root of `text`, which must have passed the scan.
pub fn nested(text: &str, levels: usize) -> Vec<Nested> {
    let mut found = Vec::new();
    // Declarations of the elements around, outermost first; the raw values, as they stand.
    let mut scope: Vec<Vec<(&str, &str)>> = Vec::new();
    let mut depth = 0_usize;
    let mut inner: Option<(Range<usize>, bool)> = None;
    for piece in Markup::new(text, 0).map_while(Result::ok) {
        match piece.kind {
            Kind::Start { empty, .. } => {
                if depth == levels {
                    inner = Some((piece.range.clone(), empty));
                } else if depth < levels && !empty {
                    scope.push(declarations(text, piece.range.clone(), empty));
                }
                depth += usize::from(!empty);
            }
            Kind::End => {
                depth = depth.saturating_sub(1);
                if depth < levels {
                    scope.pop();
                }
            }
            Kind::Comment | Kind::Cdata | Kind::Instruction => continue,
        }
        if depth == levels
            && let Some((tag, empty)) = inner.take()
        {
            let range = tag.start..piece.range.end;
            let text = cut_out(text, range.clone(), (tag, empty), &scope);
            found.push(Nested { range, text });
        }
    }
    found
}

fn declarations(text: &str, tag: Range<usize>, empty: bool) -> Vec<(&str, &str)> {
    let (_, attributes) = open_tag(text.get(tag).unwrap_or_default(), empty, 0);
    let attributes = attributes.map_while(Result::ok);
    attributes.filter_map(|a| Some((a.declares()?, a.value))).collect()
}

/// Copies an element and adds what it needs: the default namespace, which its unprefixed names
/// have, and every prefix that occurs in it, in a name or in a value that may hold one.
fn cut_out(
    text: &str,
    range: Range<usize>,
    (tag, empty): (Range<usize>, bool),
    scope: &[Vec<(&str, &str)>],
) -> String {
    let element = text.get(range.clone()).unwrap_or_default();
    let own = declarations(text, tag.clone(), empty);
    let (name, _) = open_tag(text.get(tag).unwrap_or_default(), empty, 0);
    let mut known: Vec<&str> = own.iter().map(|(prefix, _)| *prefix).collect();
    let mut added = String::new();
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
            added.push_str(value);
            added.push(quote);
        }
    }
    let (head, rest) = element.split_at_checked(1 + name.len()).unwrap_or((element, ""));
    [head, &added, rest].concat()
}

/// Whether `prefix:` occurs anywhere in the element; once too often does no harm.
fn uses(element: &str, prefix: &str) -> bool {
    memmem::find(element.as_bytes(), format!("{prefix}:").as_bytes()).is_some()
}
