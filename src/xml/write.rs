//! Writing XML: what a parser reads back is exactly the value that was given.

use std::fmt::Write as _;

use super::element::{Element, Node, Verbatim};
use super::escape::{escape_attribute, escape_text};
use super::shape::QName;

/// The namespace that the prefix `xml` always has.
pub const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";

/// The element as canonical XML text: its namespace is the default namespace, children in
/// another namespace (or none) rebind it, attributes in a namespace get prefixes of their own.
pub fn payload(element: &Element) -> String {
    let mut out = String::new();
    write_element(&mut out, element, "");
    out
}

/// The content alone, as XML that means the same where the element's namespace is the default.
pub fn content(element: &Element) -> String {
    let mut out = String::new();
    write_content(&mut out, element);
    out
}

fn write_element(out: &mut String, element: &Element, default: &str) {
    if let Some(inner) = &element.verbatim {
        return write_verbatim(out, element, inner, default);
    }
    let local = &element.name.local;
    let _ = write!(out, "<{local}");
    declare_default(out, element.name.namespace(), default);
    write_attributes(out, &element.attributes, &[]);
    if element.content.is_empty() {
        out.push_str("/>");
        return;
    }
    out.push('>');
    write_content(out, element);
    let _ = write!(out, "</{local}>");
}

fn write_content(out: &mut String, element: &Element) {
    for node in &element.content {
        match node {
            Node::Text(text) => out.push_str(&escape_text(text)),
            Node::Element(child) => write_element(out, child, element.name.namespace()),
        }
    }
}

/// Makes `namespace` the default where `default` is.
fn declare_default(out: &mut String, namespace: &str, default: &str) {
    if namespace != default {
        let _ = write!(out, " xmlns=\"{}\"", escape_attribute(namespace));
    }
}

/// Attributes without a namespace as they are; others under a prefix that is not `taken`.
fn write_attributes(out: &mut String, attributes: &[(QName, String)], taken: &[(String, String)]) {
    let mut next = 0;
    for (index, (name, value)) in attributes.iter().enumerate() {
        let value = escape_attribute(value);
        let local = &name.local;
        let _ = match name.namespace() {
            "" => write!(out, " {local}=\"{value}\""),
            XML_NAMESPACE => write!(out, " xml:{local}=\"{value}\""),
            namespace => {
                next = index.max(next);
                let prefix = free_prefix(&mut next, taken);
                let namespace = escape_attribute(namespace);
                write!(out, " xmlns:{prefix}=\"{namespace}\" {prefix}:{local}=\"{value}\"")
            }
        };
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

/// Repeats the bindings the content was written under, so that it means the same here.
fn write_verbatim(out: &mut String, element: &Element, inner: &Verbatim, default: &str) {
    let name = inner.written.as_deref().unwrap_or(&element.name.local);
    let _ = write!(out, "<{name}");
    let within = inner.bindings.iter().find(|(prefix, _)| prefix.is_empty());
    let within = match within {
        Some((_, uri)) => uri.as_str(),
        None if inner.written.is_some() => "",
        None => element.name.namespace(),
    };
    declare_default(out, within, default);
    for (prefix, uri) in inner.bindings.iter().filter(|(prefix, _)| !prefix.is_empty()) {
        let _ = write!(out, " xmlns:{prefix}=\"{}\"", escape_attribute(uri));
    }
    write_attributes(out, &element.attributes, &inner.bindings);
    let _ = write!(out, ">{}</{name}>", inner.xml);
}
