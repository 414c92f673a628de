//! Shows the XML of a payload to people, as names and values without angle brackets.

use crate::xml::element::{Element, Node};
use crate::xml::shape::QName;

/// Maximum depth of elements. A deeper payload is shown unformatted.
const DEPTH_MAX: usize = 32;

/// Returns the lines that show a payload, without wrapping long lines. A payload that does not
/// consist of names and values is shown as XML.
pub fn lines(payload: &str) -> Vec<String> {
    parse(payload).and_then(|root| element_lines(&root)).unwrap_or_else(|| raw(payload))
}

fn raw(payload: &str) -> Vec<String> {
    payload.lines().map(str::to_owned).collect()
}

/// Returns the lines of a text, without blank lines at the beginning and the end.
fn trimmed(text: &str) -> impl Iterator<Item = &str> {
    text.trim_matches(['\n', '\r']).trim_end().lines()
}

fn entry(name: &str, value: &str, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    if value.trim().contains('\n') {
        lines.push(format!("{indent}{name}:"));
        lines.extend(trimmed(value).map(|line| format!("{indent}  {line}")));
    } else {
        lines.push(format!("{indent}{name}: {}", value.trim()).trim_end().to_owned());
    }
}

/// Parses a payload. Returns `None` if the payload is not well-formed or too deep, or if it has text
/// before it, such as the reason of its refusal.
pub fn parse(payload: &str) -> Option<Element> {
    // The parser skips such a text.
    let element = Element::read(payload).filter(|_| payload.trim_start().starts_with('<'))?;
    is_within(&element, DEPTH_MAX).then_some(element)
}

fn is_within(element: &Element, levels: usize) -> bool {
    levels > 0 && element.children().all(|child| is_within(child, levels - 1))
}

pub fn leave_out(element: &mut Element, attributes: &[&str]) {
    element.attributes.retain(|(name, _)| !attributes.contains(&&*name.local));
}

/// Removes and returns the children with the name `name`.
pub fn take_children(element: &mut Element, name: &str) -> Vec<Element> {
    let is_taken =
        |node: &mut Node| matches!(node, Node::Element(child) if child.local_name() == name);
    let taken = element.content.extract_if(.., is_taken).filter_map(|node| match node {
        Node::Element(child) => Some(child),
        Node::Text(_) => None,
    });
    taken.collect()
}

/// Returns the lines that show an element. Returns `None` if the element contains text between its
/// child elements, so that it must be shown as XML.
pub fn element_lines(element: &Element) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    for (name, value) in &element.attributes {
        entry(&name.local, value, 0, &mut lines);
    }

    if element.children().next().is_none() {
        lines.extend(trimmed(&element.own_text()).map(str::to_owned));
    } else if is_mixed(element) {
        return None;
    } else {
        element.children().for_each(|child| show(child, 0, &mut lines));
    }

    Some(lines)
}

fn is_mixed(element: &Element) -> bool {
    element.children().next().is_some()
        && (!element.own_text().trim().is_empty() || element.children().any(is_mixed))
}

fn show(element: &Element, depth: usize, lines: &mut Vec<String>) {
    let written = |(name, value): &(QName, String)| format!("{}={value}", name.local);
    let attributes: Vec<String> = element.attributes.iter().map(written).collect();
    let name = if attributes.is_empty() {
        element.local_name().to_owned()
    } else {
        format!("{} ({})", element.local_name(), attributes.join(", "))
    };

    entry(&name, &element.own_text(), depth, lines);
    element.children().for_each(|child| show(child, depth + 1, lines));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_read_as_names_and_values() {
        let cases = [
            ("<q xmlns=\"urn:x\">Where &amp; how?</q>", "Where & how?"),
            ("<s><query>login</query><path/></s>", "query: login|path:"),
            ("<s max=\"3\"><a k=\"v\"><b>1</b></a></s>", "max: 3|a (k=v):|  b: 1"),
            ("<c>\n  let a = 1;\n    if x &lt; y {}\n</c>", "  let a = 1;|    if x < y {}"),
            ("<m>some <b>bold</b> text</m>", "<m>some <b>bold</b> text</m>"),
            ("<d><![CDATA[a < b]]></d>", "a < b"),
            ("not xml at all <", "not xml at all <"),
        ];
        for (payload, expected) in cases {
            assert_eq!(lines(payload).join("|"), expected, "{payload}");
        }
    }
}
