//! A payload's text as a tree in which text and elements keep their order, names resolved.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::schema::tree::XML;
use crate::xml::escape::{escape_attribute, escape_text, unescape_attribute, unescape_text};
use crate::xml::shape::QName;

#[derive(Debug, Clone)]
pub struct Node {
    pub name: QName,
    pub attributes: Vec<(QName, String)>,
    pub content: Vec<Part>,
    scope: Rc<HashMap<String, String>>,
}

#[derive(Debug, Clone)]
pub enum Part {
    Text(String),
    Node(Node),
}

impl Node {
    /// `None` where the text is not one well-formed element.
    pub fn read(text: &str) -> Option<Self> {
        let mut reader = Reader::from_str(text);
        let outer = Rc::new(HashMap::from([("xml".to_owned(), XML.to_owned())]));
        let mut open: Vec<Self> = Vec::new();
        loop {
            let scope = open.last().map_or(&outer, |node| &node.scope);
            match reader.read_event().ok()? {
                Event::Start(tag) => {
                    let node = Self::opened(&tag, scope)?;
                    open.push(node);
                }
                Event::Empty(tag) => {
                    let node = Self::opened(&tag, scope)?;
                    match open.last_mut() {
                        Some(parent) => parent.content.push(Part::Node(node)),
                        None => return Some(node),
                    }
                }
                Event::End(_) => {
                    let node = open.pop()?;
                    match open.last_mut() {
                        Some(parent) => parent.content.push(Part::Node(node)),
                        None => return Some(node),
                    }
                }
                Event::Text(piece) => say(&mut open, &piece.xml10_content()),
                Event::CData(piece) => say(&mut open, &piece.xml10_content()),
                Event::GeneralRef(name) => {
                    let written = format!("&{};", &*name);
                    say(&mut open, &unescape_text(&written)?);
                }
                Event::Eof => return None,
                _ => {}
            }
        }
    }

    fn opened(tag: &BytesStart<'_>, outer: &Rc<HashMap<String, String>>) -> Option<Self> {
        let mut written: Vec<(String, String)> = Vec::new();
        let mut bound: Vec<(String, String)> = Vec::new();
        for attribute in tag.attributes() {
            let attribute = attribute.ok()?;
            let name: &str = attribute.key.as_ref();
            let value = unescape_attribute(&attribute.value)?.into_owned();
            match name.strip_prefix("xmlns") {
                Some("") => bound.push((String::new(), value)),
                Some(rest) if rest.starts_with(':') => {
                    bound.push((rest.trim_start_matches(':').to_owned(), value));
                }
                _ => written.push((name.to_owned(), value)),
            }
        }
        let scope = if bound.is_empty() {
            Rc::clone(outer)
        } else {
            let mut scope = HashMap::clone(outer);
            scope.extend(bound);
            Rc::new(scope)
        };
        let resolve = |name: &str, default: bool| match name.split_once(':') {
            Some((prefix, local)) => scope.get(prefix).map(|uri| QName::new(Some(uri), local)),
            None if default => Some(QName::new(scope.get("").map(String::as_str), name)),
            None => Some(QName::new(None, name)),
        };
        let name = resolve(tag.name().as_ref(), true)?;
        let attributes = written
            .into_iter()
            .map(|(name, value)| Some((resolve(&name, false)?, value)))
            .collect::<Option<Vec<_>>>()?;
        Some(Self { name, attributes, content: Vec::new(), scope })
    }

    /// All the text directly inside.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Node(_) => None,
        });
        texts.collect()
    }

    /// What stands inside, as XML that means the same beneath this element's own namespace as
    /// default.
    pub fn inside(&self) -> String {
        let mut out = String::new();
        self.content.iter().for_each(|part| put(&mut out, part, self.name.namespace()));
        out
    }
}

fn put(out: &mut String, part: &Part, default: &str) {
    let node = match part {
        Part::Text(text) => {
            out.push_str(&escape_text(text));
            return;
        }
        Part::Node(node) => node,
    };
    let namespace = node.name.namespace();
    let _ = write!(out, "<{}", node.name.local);
    if namespace != default {
        let _ = write!(out, " xmlns=\"{}\"", escape_attribute(namespace));
    }
    for (index, (name, value)) in node.attributes.iter().enumerate() {
        let (local, value) = (&name.local, escape_attribute(value));
        let _ = match name.namespace() {
            "" => write!(out, " {local}=\"{value}\""),
            XML => write!(out, " xml:{local}=\"{value}\""),
            uri => {
                let uri = escape_attribute(uri);
                write!(out, " xmlns:a{index}=\"{uri}\" a{index}:{local}=\"{value}\"")
            }
        };
    }
    if node.content.is_empty() {
        out.push_str("/>");
        return;
    }
    out.push('>');
    node.content.iter().for_each(|part| put(out, part, namespace));
    let _ = write!(out, "</{}>", node.name.local);
}

fn say(open: &mut [Node], text: &str) {
    let Some(node) = open.last_mut() else { return };
    match node.content.last_mut() {
        Some(Part::Text(said)) => said.push_str(text),
        _ => node.content.push(Part::Text(text.to_owned())),
    }
}
