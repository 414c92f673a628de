//! Well-formedness, with namespaces: the whole of XML 1.0 that is left once declarations and
//! processing instructions are gone.

use std::collections::HashSet;
use std::ops::Range;

use super::content::{attribute_value, character_data, comment};
use super::markup::{Kind, Markup, Piece};
use super::namespaces::{Namespace, Namespaces};
use super::tag::{Attributes, is_space, open_tag};
use super::{Breach, Scanned, Violation, names, quoted};
use crate::ids::PayloadName;

/// From this many attributes on, duplicates are found by hashing.
const FEW: usize = 8;

/// What stands at the top of a well-formed text.
#[derive(Debug, Default)]
pub(super) struct Roots {
    first: Option<(Range<usize>, PayloadName)>,
    /// Where a second root starts, or text beside one.
    stray: Option<(usize, &'static str)>,
}

impl Roots {
    /// The only root, with nothing beside it.
    pub fn one(self, text: &str) -> Result<Scanned, Violation> {
        let violation = |at: usize, what: &str| {
            Violation::new(Breach::Roots, at, format!("{what}, where one element was expected"))
        };
        match (self.first, self.stray) {
            (_, Some((at, what))) => Err(violation(at, what)),
            (Some((root, name)), None) => Ok(Scanned { root, name }),
            (None, None) => Err(violation(text.len(), "no element")),
        }
    }
}

/// Reads `text` from `start` on to its end.
pub(super) fn check(text: &str, start: usize) -> Result<Roots, Violation> {
    if let Some(at) = names::illegal_char(text) {
        let code = text.get(at..).and_then(|rest| rest.chars().next()).unwrap_or_default();
        let message = format!("U+{:04X} is no character XML allows", u32::from(code));
        return Err(Violation::form(at, message));
    }
    let mut reader = Reader::new(text);
    let mut end = start;
    for piece in Markup::new(text, start) {
        let piece = piece?;
        reader.text(end..piece.start)?;
        end = piece.end;
        reader.piece(&piece)?;
    }
    reader.text(end..text.len())?;
    reader.end()
}

/// An attribute by its name, which is resolved once the whole tag is known.
struct Found<'a> {
    prefix: &'a str,
    namespace: Namespace,
    local: &'a str,
    offset: usize,
}

struct Reader<'a> {
    text: &'a str,
    /// The name and the place of every open element.
    open: Vec<(&'a str, usize)>,
    namespaces: Namespaces<'a>,
    /// Those of the current tag.
    attributes: Vec<Found<'a>>,
    seen: HashSet<(Namespace, &'a str)>,
    roots: Roots,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            open: Vec::new(),
            namespaces: Namespaces::new(),
            attributes: Vec::new(),
            seen: HashSet::new(),
            roots: Roots::default(),
        }
    }

    fn get(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    fn stray(&mut self, at: usize, what: &'static str) {
        self.roots.stray.get_or_insert((at, what));
    }

    fn text(&mut self, range: Range<usize>) -> Result<(), Violation> {
        let text = self.get(range.clone());
        if self.open.is_empty() {
            if let Some(at) = text.bytes().position(|b| !is_space(b)) {
                self.stray(range.start + at, "text outside of any element");
            }
            return Ok(());
        }
        character_data(text, range.start)
    }

    fn piece(&mut self, piece: &Piece) -> Result<(), Violation> {
        let at = piece.start;
        match piece.kind {
            Kind::Start => self.start(piece)?,
            Kind::Empty => {
                self.start(piece)?;
                self.close(piece.end);
            }
            Kind::End => {
                self.end_tag(self.get(piece.range()), at)?;
                self.close(piece.end);
            }
            Kind::Comment => comment(self.get(piece.range()), at)?,
            Kind::Cdata if self.open.is_empty() => self.stray(at, "text outside of any element"),
            Kind::Cdata => {}
            Kind::Instruction => return Err(Violation::form(at, "a processing instruction")),
        }
        Ok(())
    }

    fn start(&mut self, tag: &Piece) -> Result<(), Violation> {
        let at = tag.start;
        let (name, attributes) = open_tag(self.text, tag);
        let Some((prefix, local)) = names::qualified(name) else {
            let name = quoted(name);
            let message = match name.starts_with(|c: char| c.is_alphabetic()) {
                true => format!("`{name}` is no element name"),
                false => format!("`<{name}` begins no tag; write `&lt;` for `<`"),
            };
            return Err(Violation::form(at, message));
        };
        self.namespaces.open();
        self.attributes(attributes)?;
        if prefix == "xmlns" {
            return Err(Violation::form(at, "prefix `xmlns` on an element"));
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

    /// Declarations first, for they bind the prefixes of the attributes before them too.
    fn attributes(&mut self, attributes: Attributes<'a>) -> Result<(), Violation> {
        self.attributes.clear();
        for attribute in attributes {
            let attribute = attribute?;
            let offset = attribute.offset;
            attribute_value(&attribute)?;
            let Some((prefix, local)) = names::qualified(attribute.name) else {
                let message = format!("`{}` is no attribute name", quoted(attribute.name));
                return Err(Violation::form(offset, message));
            };
            if let Some(declared) = attribute.declares() {
                self.namespaces.declare(declared, &attribute)?;
            }
            self.attributes.push(Found { prefix, namespace: Namespace::NONE, local, offset });
        }
        for found in &mut self.attributes {
            found.namespace = self.namespaces.of_attribute(found.prefix, found.offset)?;
        }
        self.duplicates()
    }

    fn duplicates(&mut self) -> Result<(), Violation> {
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
                Err(Violation::form(found.offset, message))
            }
            None => Ok(()),
        }
    }

    fn end_tag(&mut self, tag: &'a str, at: usize) -> Result<(), Violation> {
        let inside = tag.get(2..tag.len() - 1).unwrap_or_default();
        let name = inside.trim_end_matches([' ', '\t', '\r', '\n']);
        match self.open.last() {
            Some((open, _)) if *open == name => Ok(()),
            Some((open, _)) => {
                let (name, open) = (quoted(name), quoted(open));
                let message = format!("`</{name}>`, where `</{open}>` was expected");
                Err(Violation::form(at, message))
            }
            None => {
                let message = format!("`</{}>` closes nothing", quoted(name));
                Err(Violation::form(at, message))
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

    fn end(self) -> Result<Roots, Violation> {
        match self.open.last() {
            Some((name, at)) => {
                Err(Violation::form(*at, format!("`<{}>` is not closed", quoted(name))))
            }
            None => Ok(self.roots),
        }
    }
}
