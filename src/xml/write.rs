//! Writing XML: what a parser reads back is exactly the value that was given.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::element::{Element, Value, Verbatim};
use super::shape::QName;

/// The namespace that the prefix `xml` always has.
pub const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";

/// Whether XML 1.0 can hold this character at all.
pub const fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// Text as element content. A carriage return becomes a reference, or parsers would drop it; a
/// character that XML cannot hold becomes U+FFFD.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    escape(text, |c| match c {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '\r' => Some("&#13;"),
        _ => None,
    })
}

/// Text as the value of an attribute in double quotes. White space other than the space becomes
/// a reference, or parsers would turn it into spaces; what XML cannot hold becomes U+FFFD.
pub fn escape_attribute(text: &str) -> Cow<'_, str> {
    escape(text, |c| match c {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '"' => Some("&quot;"),
        '\t' => Some("&#9;"),
        '\n' => Some("&#10;"),
        '\r' => Some("&#13;"),
        _ => None,
    })
}

fn escape(text: &str, reference: fn(char) -> Option<&'static str>) -> Cow<'_, str> {
    let replacement = |c: char| match reference(c) {
        None if !is_xml_char(c) => Some("\u{FFFD}"),
        found => found,
    };
    let mut out = String::new();
    // Of `text`, what is not yet in `out`, and where in it to look.
    let (mut rest, mut from) = (text, 0);
    while let Some(at) = next_special(rest, from) {
        let Some((plain, special)) = rest.split_at_checked(at) else { break };
        let mut chars = special.chars();
        match chars.next().and_then(replacement) {
            Some(reference) => {
                if out.is_empty() {
                    out.reserve(text.len() + 16);
                }
                out.push_str(plain);
                out.push_str(reference);
                (rest, from) = (chars.as_str(), 0);
            }
            None => from = rest.len() - chars.as_str().len(),
        }
    }
    if rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The next character, from `from` on, that may have to be replaced, told by its first byte.
fn next_special(text: &str, from: usize) -> Option<usize> {
    // What XML cannot hold beside control characters, U+FFFE and U+FFFF, begins with 0xEF.
    let is_special = |b: &u8| matches!(b, 0..=0x1F | b'&' | b'<' | b'>' | b'"' | 0xEF);
    let found = text.as_bytes().get(from..)?.iter().position(is_special)?;
    Some(from + found)
}

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
