//! A schema document as a tree, with names resolved and places kept.
//!
//! Only for texts libxml2 has already found well-formed; knows nothing of what the elements mean.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::limits;
use crate::xml::escape::{unescape_attribute, unescape_text};
use crate::xml::findings::Place;
use crate::xml::shape::QName;

/// The namespace of schemas themselves.
pub const XSD: &str = "http://www.w3.org/2001/XMLSchema";
pub use crate::xml::write::XML_NAMESPACE as XML;

/// Whether a name is one of the schema language.
pub fn is_xsd(name: &QName) -> bool {
    name.namespace() == XSD
}

type Scope = Arc<HashMap<String, Arc<str>>>;

#[derive(Debug, Clone)]
pub struct Attribute {
    /// As written, prefix included.
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone)]
pub struct Element {
    pub name: QName,
    pub attributes: Vec<Attribute>,
    pub children: Vec<Element>,
    /// The text directly inside, joined.
    pub text: String,
    /// Of the start tag, in bytes.
    pub tag: Range<usize>,
    pub line: u32,
    /// Of everything between the tags, in bytes.
    pub inside: Range<usize>,
    /// Where the whole element ends, in bytes.
    pub end: usize,
    scope: Scope,
}

impl Element {
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|a| a.name == name).map(|a| a.value.as_str())
    }

    /// Whether this is the schema language's `local`.
    pub fn is(&self, local: &str) -> bool {
        is_xsd(&self.name) && &*self.name.local == local
    }

    /// The children of the schema language called `local`.
    pub fn all<'a>(&'a self, local: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.is(local))
    }

    pub fn first<'a>(&'a self, local: &'a str) -> Option<&'a Self> {
        self.all(local).next()
    }

    /// What a `prefix:local` in an attribute of this element means; `None` for an unbound prefix.
    pub fn resolve(&self, text: &str) -> Option<QName> {
        let text = text.trim();
        match text.split_once(':') {
            Some((prefix, local)) => Some(QName::new(Some(self.scope.get(prefix)?), local)),
            None => Some(QName::new(self.scope.get("").map(AsRef::as_ref), text)),
        }
    }
}

/// Reads a whole document. `None` when it is not what libxml2 would call well-formed.
pub fn read(text: &str) -> Option<Element> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let xml = HashMap::from([("xml".to_owned(), Arc::from(XML))]);
    let mut open: Vec<Element> = Vec::new();
    let mut outer: Scope = Arc::new(xml);
    let mut lines = Lines { text: text.as_bytes(), offset: 0, line: 1 };
    loop {
        let before = position(&reader);
        let event = reader.read_event().ok()?;
        let tag = before..position(&reader);
        match event {
            Event::Start(start) => {
                let element = element(&start, &outer, tag, &mut lines)?;
                outer = element.scope.clone();
                open.push(element);
            }
            Event::Empty(start) => {
                let element = element(&start, &outer, tag, &mut lines)?;
                match open.last_mut() {
                    Some(parent) => parent.children.push(element),
                    None => return Some(element),
                }
            }
            Event::End(_) => {
                let mut element = open.pop()?;
                element.inside.end = tag.start;
                element.end = tag.end;
                let Some(parent) = open.last_mut() else { return Some(element) };
                outer = parent.scope.clone();
                parent.children.push(element);
            }
            Event::Text(piece) => push(&mut open, &piece.xml10_content()),
            Event::CData(piece) => push(&mut open, &piece.xml10_content()),
            Event::GeneralRef(name) => push(&mut open, &unescape_text(&format!("&{};", &*name))?),
            Event::Eof => return None,
            _ => {}
        }
    }
}

/// Where a start tag has more attributes, or more namespaces in scope, than a schema needs:
/// libxml2 takes quadratic time over them. Linear, and never fooled by what is not well-formed.
pub fn excess(text: &str) -> Option<usize> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = false;
    reader.config_mut().allow_unmatched_ends = true;
    let mut bound: Vec<usize> = Vec::new();
    let mut in_scope = 0;
    loop {
        let before = position(&reader);
        let event = reader.read_event().ok()?;
        match &event {
            Event::Start(start) | Event::Empty(start) => {
                let (mut attributes, mut own) = (0, 0);
                let mut all = start.attributes();
                for attribute in all.with_checks(false).take(limits::XML_ATTRIBUTES_MAX + 1) {
                    attributes += 1;
                    own +=
                        usize::from(attribute.is_ok_and(|a| a.key.as_ref().starts_with("xmlns")));
                }
                if attributes > limits::XML_ATTRIBUTES_MAX
                    || in_scope + own > limits::XML_NAMESPACES_MAX
                {
                    return Some(before);
                }
                if matches!(event, Event::Start(_)) {
                    in_scope += own;
                    bound.push(own);
                }
            }
            Event::End(_) => in_scope -= bound.pop().unwrap_or(0),
            Event::Eof => return None,
            _ => {}
        }
    }
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

fn push(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

fn element(
    start: &BytesStart<'_>,
    outer: &Scope,
    tag: Range<usize>,
    lines: &mut Lines<'_>,
) -> Option<Element> {
    let mut attributes = Vec::new();
    let mut bound: Vec<(String, Arc<str>)> = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.ok()?;
        let name = attribute.key.as_ref().to_owned();
        let value = unescape_attribute(&attribute.value)?.into_owned();
        if name == "xmlns" {
            bound.push((String::new(), value.into()));
        } else if let Some(prefix) = name.strip_prefix("xmlns:") {
            bound.push((prefix.to_owned(), value.into()));
        } else {
            attributes.push(Attribute { name, value });
        }
    }
    let scope = if bound.is_empty() {
        outer.clone()
    } else {
        let mut scope = HashMap::clone(outer);
        scope.extend(bound);
        Arc::new(scope)
    };
    let written = start.name().as_ref().to_owned();
    let mut element = Element {
        name: QName::new(None, ""),
        attributes,
        children: Vec::new(),
        text: String::new(),
        line: lines.at(tag.start),
        inside: tag.end..tag.end,
        end: tag.end,
        tag,
        scope,
    };
    element.name = element.resolve(&written)?;
    Some(element)
}

/// Counts lines as reading goes on, so that no byte is looked at twice.
struct Lines<'a> {
    text: &'a [u8],
    offset: usize,
    line: u32,
}

impl Lines<'_> {
    fn at(&mut self, offset: usize) -> u32 {
        let passed = self.text.get(self.offset..offset).unwrap_or_default();
        let breaks = memchr::memchr_iter(b'\n', passed).count();
        self.line = self.line.saturating_add(u32::try_from(breaks).unwrap_or(u32::MAX));
        self.offset = offset.max(self.offset);
        self.line
    }
}

/// Where each of `ways` leads in `text`: a way is the position of each element among its
/// siblings, from the root down. Unreachable ones stay `None`.
pub fn locate(text: &[u8], ways: &[Vec<u32>]) -> Vec<Option<Place>> {
    let mut found: Vec<Option<Place>> = vec![None; ways.len()];
    let Ok(text_str) = std::str::from_utf8(text) else { return found };
    let mut reader = Reader::from_str(text_str);
    let mut here: Vec<u32> = vec![0];
    loop {
        let before = position(&reader);
        let Ok(event) = reader.read_event() else { return found };
        match event {
            Event::Start(_) | Event::Empty(_) => {
                for (way, place) in ways.iter().zip(&mut found) {
                    if place.is_none() && *way == here {
                        *place = Some(Place::at(text, before));
                    }
                }
                if matches!(event, Event::Start(_)) {
                    here.push(0);
                } else if let Some(last) = here.last_mut() {
                    *last += 1;
                }
            }
            Event::End(_) => {
                here.pop();
                let Some(last) = here.last_mut() else { return found };
                *last += 1;
            }
            Event::Eof => return found,
            _ => {}
        }
        if found.iter().all(Option::is_some) {
            return found;
        }
    }
}
