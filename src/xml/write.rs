//! Writes XML so that a parser reads back exactly the given value.

use std::fmt::Write as _;

use super::element::{Element, Node, Verbatim};
use super::escape::{escape_attribute, escape_text};
use super::shape::QName;

/// The namespace that XML always binds to the prefix `xml`.
pub const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";

/// The namespace of attributes such as `xsi:type`, with which a payload refers to its schema.
pub const XSI_NAMESPACE: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// Writes an element as canonical XML. The start tag makes the namespace of the element the default
/// namespace. A child with another namespace, or without one, changes the default namespace. An
/// attribute with a namespace gets a prefix of its own.
pub fn payload(element: &Element) -> String {
    let mut writer = ElementWriter::new(PrefixNumbers::OfPrefixes);
    writer.write_element(element, "");
    writer.out
}

/// Writes only the content of an element. The surrounding text must declare `default` as the
/// default namespace.
pub fn content(element: &Element, default: &str) -> String {
    let mut writer = ElementWriter::new(PrefixNumbers::OfAttributes);
    writer.write_content(element, default);
    writer.out
}

/// How the prefixes of attributes are numbered. Neither of the two rules may ever change, because
/// payloads and prompts are compared byte for byte with recorded ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PrefixNumbers {
    /// Numbers only the attributes that get a prefix.
    OfPrefixes,
    /// Numbers all attributes of the element, so an attribute without a prefix also takes a number.
    OfAttributes,
}

struct ElementWriter {
    out: String,
    numbers: PrefixNumbers,
}

impl ElementWriter {
    fn new(numbers: PrefixNumbers) -> Self {
        Self { out: String::new(), numbers }
    }

    fn write_element(&mut self, element: &Element, default: &str) {
        if let Some(inner) = &element.verbatim {
            return self.write_verbatim(element, inner, default);
        }

        let local = &element.name.local;
        let _ = write!(self.out, "<{local}");
        self.declare_default(element.name.namespace(), default);
        self.write_attributes(&element.attributes, &[]);
        if element.content.is_empty() {
            self.out.push_str("/>");
            return;
        }

        self.out.push('>');
        self.write_content(element, element.name.namespace());
        let _ = write!(self.out, "</{local}>");
    }

    /// Writes the content of an element. `default` is the default namespace that is in force.
    fn write_content(&mut self, element: &Element, default: &str) {
        for node in &element.content {
            match node {
                Node::Text(text) => self.out.push_str(&escape_text(text)),
                Node::Element(child) => self.write_element(child, default),
            }
        }
    }

    /// Declares `namespace` as the default namespace. Does nothing if it equals `default`, the
    /// default namespace that is already in force.
    fn declare_default(&mut self, namespace: &str, default: &str) {
        if namespace != default {
            let _ = write!(self.out, " xmlns=\"{}\"", escape_attribute(namespace));
        }
    }

    /// Writes each attribute. An attribute with a namespace gets a prefix that is not in `taken`.
    fn write_attributes(&mut self, attributes: &[(QName, String)], taken: &[(String, String)]) {
        let mut next = 0;
        for (index, (name, value)) in attributes.iter().enumerate() {
            let value = escape_attribute(value);
            let local = &name.local;
            let _ = match name.namespace() {
                "" => write!(self.out, " {local}=\"{value}\""),
                XML_NAMESPACE => write!(self.out, " xml:{local}=\"{value}\""),
                namespace => {
                    if self.numbers == PrefixNumbers::OfAttributes {
                        next = index.max(next);
                    }
                    let prefix = free_prefix(&mut next, taken);
                    let namespace = escape_attribute(namespace);
                    write!(self.out, " xmlns:{prefix}=\"{namespace}\" {prefix}:{local}=\"{value}\"")
                }
            };
        }
    }

    /// Writes an element with verbatim content. Declares on this element every namespace binding on
    /// which the content depends, so that the content keeps its meaning.
    fn write_verbatim(&mut self, element: &Element, inner: &Verbatim, default: &str) {
        let name = inner.written.as_deref().unwrap_or(&element.name.local);
        let _ = write!(self.out, "<{name}");
        let within = inner.bindings.iter().find(|(prefix, _)| prefix.is_empty());
        let within = match within {
            Some((_, uri)) => uri.as_str(),
            None if inner.written.is_some() => "",
            None => element.name.namespace(),
        };

        self.declare_default(within, default);
        for (prefix, uri) in inner.bindings.iter().filter(|(prefix, _)| !prefix.is_empty()) {
            let _ = write!(self.out, " xmlns:{prefix}=\"{}\"", escape_attribute(uri));
        }

        self.write_attributes(&element.attributes, &inner.bindings);
        let _ = write!(self.out, ">{}</{name}>", inner.xml);
    }
}

fn free_prefix(next: &mut usize, taken: &[(String, String)]) -> String {
    loop {
        let prefix = format!("a{next}");
        *next += 1;
        if taken.iter().all(|(other, _)| *other != prefix) {
            return prefix;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_attributes_keep_the_numbers_that_each_form_has_on_record() {
        let mut inner = Element::new(QName::new(Some("urn:t"), "t"));
        inner.attributes.push((QName::new(None, "k"), "1".to_owned()));
        inner.attributes.push((QName::new(Some("urn:x"), "y"), "2".to_owned()));
        let written = payload(&inner);
        assert_eq!(written, "<t xmlns=\"urn:t\" k=\"1\" xmlns:a0=\"urn:x\" a0:y=\"2\"/>");

        let mut outer = Element::new(QName::new(Some("urn:t"), "o"));
        outer.content.push(Node::Element(inner));
        let written = content(&outer, "urn:t");
        assert_eq!(written, "<t k=\"1\" xmlns:a1=\"urn:x\" a1:y=\"2\"/>");
    }
}
