//! Writing XML: what a parser reads back is exactly the value that was given.

use std::fmt::Write as _;

use super::element::{Element, Value, Verbatim};
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

fn write_element(out: &mut String, element: &Element, default: &str) {
    let namespace = element.name.namespace.as_deref().unwrap_or_default();
    match &element.content {
        Value::Verbatim(inner) => write_verbatim(out, element, inner, default),
        Value::Text(text) => {
            open_tag(out, element, default);
            let _ = write!(out, ">{}</{}>", escape_text(text), element.name.local);
        }
        Value::Elements(children) => {
            open_tag(out, element, default);
            if children.is_empty() {
                out.push_str("/>");
                return;
            }
            out.push('>');
            for child in children {
                write_element(out, child, namespace);
            }
            let _ = write!(out, "</{}>", element.name.local);
        }
    }
}

/// Everything of the open tag but its end.
fn open_tag(out: &mut String, element: &Element, default: &str) {
    let namespace = element.name.namespace.as_deref().unwrap_or_default();
    let _ = write!(out, "<{}", element.name.local);
    if namespace != default {
        let _ = write!(out, " xmlns=\"{}\"", escape_attribute(namespace));
    }
    write_attributes(out, &element.attributes, &[]);
}

/// Attributes without a namespace as they are; others under a prefix that is not `taken`.
fn write_attributes(out: &mut String, attributes: &[(QName, String)], taken: &[(String, String)]) {
    let mut bound = 0;
    for (name, value) in attributes {
        let value = escape_attribute(value);
        let local = &name.local;
        let _ = match name.namespace.as_deref() {
            None => write!(out, " {local}=\"{value}\""),
            Some(XML_NAMESPACE) => write!(out, " xml:{local}=\"{value}\""),
            Some(namespace) => {
                let prefix = free_prefix(&mut bound, taken);
                let namespace = escape_attribute(namespace);
                write!(out, " xmlns:{prefix}=\"{namespace}\" {prefix}:{local}=\"{value}\"")
            }
        };
    }
}

fn free_prefix(bound: &mut usize, taken: &[(String, String)]) -> String {
    loop {
        let prefix = format!("a{bound}");
        *bound += 1;
        if taken.iter().all(|(other, _)| *other != prefix) {
            return prefix;
        }
    }
}

/// Repeats the bindings the content was written under, so that it means the same here.
fn write_verbatim(out: &mut String, element: &Element, inner: &Verbatim, default: &str) {
    let namespace = element.name.namespace.as_deref().unwrap_or_default();
    let name = inner.written.as_deref().unwrap_or(&element.name.local);
    let _ = write!(out, "<{name}");
    let within = inner.bindings.iter().find(|(prefix, _)| prefix.is_empty());
    let within = match within {
        Some((_, uri)) => uri.as_str(),
        None if inner.written.is_some() => "",
        None => namespace,
    };
    if within != default {
        let _ = write!(out, " xmlns=\"{}\"", escape_attribute(within));
    }
    for (prefix, uri) in inner.bindings.iter().filter(|(prefix, _)| !prefix.is_empty()) {
        let _ = write!(out, " xmlns:{prefix}=\"{}\"", escape_attribute(uri));
    }
    write_attributes(out, &element.attributes, &inner.bindings);
    let _ = write!(out, ">{}</{name}>", inner.xml);
}
