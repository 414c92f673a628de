//! One element as a small tree, for those who read a payload that has already been checked.
//!
//! Names are local names: what a payload is called was decided before. Not a checker: what is
//! not well-formed gives `None` or less than it says.

use std::borrow::Cow;

use quick_xml::escape::{resolve_predefined_entity, unescape};
use quick_xml::events::{BytesStart, Event};

/// An element with what it holds, in order. Namespace declarations are no attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    pub name: String,
    pub attributes: Vec<(String, String)>,
    pub content: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Text(String),
    Element(Element),
}

impl Element {
    /// The element that opens at the start of `text`, comments and a declaration aside; what
    /// follows its end is not looked at.
    pub fn read(text: &str) -> Option<Self> {
        let mut reader = quick_xml::Reader::from_str(text);
        let mut open: Vec<Self> = Vec::new();
        loop {
            let said: Cow<'_, str> = match reader.read_event().ok()? {
                Event::Start(tag) => {
                    open.push(Self::opened(&tag));
                    continue;
                }
                Event::Empty(tag) => match settle(&mut open, Self::opened(&tag)) {
                    Some(root) => return Some(root),
                    None => continue,
                },
                Event::End(_) => {
                    let element = open.pop()?;
                    match settle(&mut open, element) {
                        Some(root) => return Some(root),
                        None => continue,
                    }
                }
                Event::Text(text) => text.into_inner(),
                Event::CData(text) => text.into_inner(),
                Event::GeneralRef(name) => match resolve_predefined_entity(&name) {
                    Some(known) => known.into(),
                    None => {
                        let reference = format!("&{};", &*name);
                        unescape(&reference).ok()?.into_owned().into()
                    }
                },
                Event::Eof => return None,
                _ => continue,
            };
            if let Some(parent) = open.last_mut() {
                parent.say(&said);
            }
        }
    }

    /// As [`Element::read`], without what it holds, which is not looked at.
    pub fn head(text: &str) -> Option<Self> {
        let mut reader = quick_xml::Reader::from_str(text);
        loop {
            match reader.read_event().ok()? {
                Event::Start(tag) | Event::Empty(tag) => return Some(Self::opened(&tag)),
                Event::Eof => return None,
                _ => {}
            }
        }
    }

    fn opened(tag: &BytesStart<'_>) -> Self {
        // Whether one stands twice was asked when the payload was checked.
        let mut attributes = tag.attributes();
        attributes.with_checks(false);
        let said = attributes.flatten().filter(|found| found.key.as_namespace_binding().is_none());
        let attributes = said.map(|attribute| {
            let value = unescape(&attribute.value);
            let name = attribute.key.local_name().into_inner().to_owned();
            (name, value.unwrap_or_default().into_owned())
        });
        let attributes = attributes.collect();
        let name = tag.local_name().into_inner().to_owned();
        Self { name, attributes, content: Vec::new() }
    }

    fn say(&mut self, text: &str) {
        match self.content.last_mut() {
            Some(Node::Text(said)) => said.push_str(text),
            _ => self.content.push(Node::Text(text.to_owned())),
        }
    }

    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(called, _)| called == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn children(&self) -> impl Iterator<Item = &Element> {
        self.content.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// The first child of that name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children().find(|child| child.name == name)
    }

    /// All its text, that of the elements within included.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.gather(&mut out);
        out
    }

    fn gather(&self, out: &mut String) {
        for node in &self.content {
            match node {
                Node::Text(text) => out.push_str(text),
                Node::Element(element) => element.gather(out),
            }
        }
    }
}

/// Puts a finished element into its parent, or gives it back where it has none.
fn settle(open: &mut [Element], element: Element) -> Option<Element> {
    let Some(parent) = open.last_mut() else {
        return Some(element);
    };
    parent.content.push(Node::Element(element));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_once_and_what_follows_the_root_is_not_read() {
        let read = Element::read("<?xml version='1.0'?><!-- x --><p:a xmlns:p='urn:n' n='&lt;1'>x &amp;amp; <b><![CDATA[<c>]]>&#33;</b></p:a> tail <")
            .expect("it is one element");
        assert_eq!(read.name, "a");
        assert_eq!(read.attributes, [("n".to_owned(), "<1".to_owned())]);
        assert_eq!(read.text(), "x &amp; <c>!");
        assert_eq!(read.child("b").map(Element::text).as_deref(), Some("<c>!"));
    }

    #[test]
    fn a_head_is_what_the_element_is_called_and_no_more() {
        let text = "<!-- <b n='0'/> --><p:a xmlns:p='urn:n' n='&lt;1'><b>text</b></p:a>";
        let head = Element::head(text).expect("it has a head");
        let whole = Element::read(text).expect("it is one element");
        assert_eq!(head, Element { content: Vec::new(), ..whole });
    }

    #[test]
    fn an_element_that_does_not_end_is_no_element() {
        assert_eq!(Element::read("<a><b></a>"), None);
        assert_eq!(Element::read("<a>text"), None);
    }
}
