//! Writes XML so that a parser reads back exactly the given value.

use std::borrow::Cow;
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
/// attribute with a namespace gets a prefix of its own. An element that was parsed from a document
/// keeps the namespaces of the prefixes in its attribute values and texts.
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
    /// The prefixes that the open elements declare, each with its namespace, the innermost last.
    declared: Vec<(String, String)>,
}

impl ElementWriter {
    fn new(numbers: PrefixNumbers) -> Self {
        Self { out: String::new(), numbers, declared: Vec::new() }
    }

    fn write_element(&mut self, element: &Element, default: &str) {
        if let Some(inner) = &element.verbatim {
            return self.write_verbatim(element, inner, default);
        }

        let local = &element.name.local;
        let _ = write!(self.out, "<{local}");
        self.declare_default(element.name.namespace(), default);
        let mut bindings = Vec::new();
        let attributes = self.attributes_of(element, &mut bindings);
        let outer = self.declared.len();
        for (prefix, uri) in &bindings {
            if !self.is_declared(prefix, uri) {
                self.declare_prefix(prefix, uri);
            }
        }
        self.write_attributes(&attributes, &bindings);

        if element.content.is_empty() {
            self.out.push_str("/>");
        } else {
            self.out.push('>');
            self.write_content(element, element.name.namespace());
            let _ = write!(self.out, "</{local}>");
        }
        self.declared.truncate(outer);
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

    fn declare_prefix(&mut self, prefix: &str, uri: &str) {
        let _ = write!(self.out, " xmlns:{prefix}=\"{}\"", escape_attribute(uri));
        self.declared.push((prefix.to_owned(), uri.to_owned()));
    }

    /// Whether the open elements bind `prefix` to the namespace `uri`.
    fn is_declared(&self, prefix: &str, uri: &str) -> bool {
        let mut declared = self.declared.iter().rev();
        declared.find(|(other, _)| other == prefix).is_some_and(|(_, other)| other == uri)
    }

    /// Returns the attributes of an element. Adds to `bindings` the bindings that the element must
    /// declare for the prefixes in its values. The form with [`PrefixNumbers::OfAttributes`]
    /// declares none.
    fn attributes_of<'e>(
        &self,
        element: &'e Element,
        bindings: &mut Vec<(String, String)>,
    ) -> Cow<'e, [(QName, String)]> {
        if self.numbers == PrefixNumbers::OfAttributes {
            return Cow::Borrowed(&element.attributes);
        }

        bindings.extend(element.bindings_of_values());
        with_qualified_type(element, bindings)
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
                    self.declare_prefix(&prefix, namespace);
                    write!(self.out, " {prefix}:{local}=\"{value}\"")
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
        let outer = self.declared.len();
        for (prefix, uri) in inner.bindings.iter().filter(|(prefix, _)| !prefix.is_empty()) {
            self.declare_prefix(prefix, uri);
        }
        self.write_attributes(&element.attributes, &inner.bindings);
        self.declared.truncate(outer);
        let _ = write!(self.out, ">{}</{name}>", inner.xml);
    }
}

/// Returns the attributes of an element. If the element has an `xsi:type` without a prefix, and the
/// default namespace of its source text is not the namespace of the element, the value gets a
/// prefix. Adds this prefix to `bindings`.
fn with_qualified_type<'a>(
    element: &'a Element,
    bindings: &mut Vec<(String, String)>,
) -> Cow<'a, [(QName, String)]> {
    let default = element.origin.scope.as_ref().and_then(|scope| scope.namespace(""));
    let default = default.filter(|uri| !uri.is_empty() && ***uri != *element.name.namespace());
    let has_type = |(name, value): &(QName, String)| {
        name.namespace() == XSI_NAMESPACE && &*name.local == "type" && !value.contains(':')
    };
    let place = element.attributes.iter().position(has_type);
    let mut attributes = Cow::Borrowed(element.attributes.as_slice());
    let (Some(default), Some(place)) = (default, place) else { return attributes };

    let prefix = free_prefix(&mut 0, bindings);
    if let Some((_, value)) = attributes.to_mut().get_mut(place) {
        *value = format!("{prefix}:{}", value.trim());
    }
    bindings.push((prefix, default.to_string()));
    attributes
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
    fn an_element_of_a_document_keeps_the_namespaces_of_prefixes_in_its_values() {
        let xsi = format!("xmlns:x=\"{XSI_NAMESPACE}\"");
        let declared = format!("xmlns:a0=\"{XSI_NAMESPACE}\" a0:type=");
        let declared_next = format!("xmlns:a1=\"{XSI_NAMESPACE}\" a1:type=");
        for (text, expected) in [
            (
                format!("<p:a xmlns:p='urn:p' xmlns:q='urn:q' {xsi}><p:b x:type='p:c'/></p:a>"),
                format!("<a xmlns=\"urn:p\"><b xmlns:p=\"urn:p\" {declared}\"p:c\"/></a>"),
            ),
            (
                "<a xmlns='urn:p' xmlns:q='urn:q'><b>q:c</b><b>aq:c q :d</b></a>".to_owned(),
                "<a xmlns=\"urn:p\"><b xmlns:q=\"urn:q\">q:c</b><b>aq:c q :d</b></a>".to_owned(),
            ),
            (
                format!("<a xmlns='urn:p' xmlns:a0='urn:q' {xsi} x:type='a0:c'/>"),
                format!("<a xmlns=\"urn:p\" xmlns:a0=\"urn:q\" {declared_next}\"a0:c\"/>"),
            ),
            (
                "<a xmlns:q='urn:q' k='q:b'><b><c>q:d</c><c xmlns:q='urn:r'>q:e</c></b>q:f</a>"
                    .to_owned(),
                "<a xmlns:q=\"urn:q\" k=\"q:b\"><b><c>q:d</c><c xmlns:q=\"urn:r\">q:e</c></b>q:f</a>"
                    .to_owned(),
            ),
            (
                format!("<a xmlns:a0='urn:q' {xsi} k='a0:b'><b x:nil='true'><c>a0:d</c></b></a>"),
                format!(
                    "<a xmlns:a0=\"urn:q\" k=\"a0:b\"><b xmlns:a0=\"{XSI_NAMESPACE}\" \
                     a0:nil=\"true\"><c xmlns:a0=\"urn:q\">a0:d</c></b></a>"
                ),
            ),
            (
                format!("<a xmlns='urn:p' {xsi} x:type='c' d='xml:e'/>"),
                format!("<a xmlns=\"urn:p\" {declared}\"c\" d=\"xml:e\"/>"),
            ),
            (
                format!("<q:a xmlns:q='urn:q' xmlns='urn:p' {xsi} x:type='c'/>"),
                format!("<a xmlns=\"urn:q\" xmlns:a0=\"urn:p\" {declared_next}\"a0:c\"/>"),
            ),
        ] {
            let element = Element::read_document(&text).expect("it is one element");
            let written = payload(&element);
            assert_eq!(written, expected, "{text}");
            let again = Element::read_document(&written).expect("it is one element");
            assert_eq!(payload(&again), written, "{text}");
        }
    }

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
