//! A payload as a person reads it: names and values, without the angle brackets.

use crate::xml::tree::{self, Element};

/// Levels of elements beyond which a payload is shown as it is written.
const DEPTH_MAX: usize = 32;

/// An element, as far as it is shown.
#[derive(Default)]
pub(super) struct Node {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
    children: Vec<Node>,
}

/// Lines, not yet wrapped. What is not made of names and values comes as it is.
pub fn lines(payload: &str) -> Vec<String> {
    parse(payload).and_then(|root| root.lines()).unwrap_or_else(|| raw(payload))
}

fn raw(payload: &str) -> Vec<String> {
    payload.lines().map(str::to_owned).collect()
}

/// Without blank lines before and after.
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

impl Node {
    fn of(element: Element, depth: usize) -> Option<Self> {
        let Element { name, attributes, content } = element;
        let mut node = Self { name, attributes, ..Self::default() };
        for part in content {
            match part {
                tree::Node::Text(text) => node.text.push_str(&text),
                tree::Node::Element(_) if depth >= DEPTH_MAX => return None,
                tree::Node::Element(child) => node.children.push(Self::of(child, depth + 1)?),
            }
        }
        Some(node)
    }

    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(called, _)| called == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn leave_out(&mut self, attributes: &[&str]) {
        self.attributes.retain(|(name, _)| !attributes.contains(&name.as_str()));
    }

    /// Takes out the children of a name.
    pub fn take_children(&mut self, name: &str) -> Vec<Node> {
        self.children.extract_if(.., |child| child.name == name).collect()
    }

    /// None where text stands between elements: that is shown as it is written.
    pub fn lines(&self) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        for (name, value) in &self.attributes {
            entry(name, value, 0, &mut lines);
        }
        if self.children.is_empty() {
            lines.extend(trimmed(&self.text).map(str::to_owned));
        } else if self.is_mixed() {
            return None;
        } else {
            self.children.iter().for_each(|child| child.show(0, &mut lines));
        }
        Some(lines)
    }

    fn is_mixed(&self) -> bool {
        !self.children.is_empty()
            && (!self.text.trim().is_empty() || self.children.iter().any(Self::is_mixed))
    }

    fn show(&self, depth: usize, lines: &mut Vec<String>) {
        let attributes: Vec<String> =
            self.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let name = match attributes.is_empty() {
            true => self.name.clone(),
            false => format!("{} ({})", self.name, attributes.join(", ")),
        };
        entry(&name, &self.text, depth, lines);
        self.children.iter().for_each(|child| child.show(depth + 1, lines));
    }
}

/// None where it is not a well-formed element, or deeper than anyone would read.
pub(super) fn parse(payload: &str) -> Option<Node> {
    Node::of(Element::read(payload)?, 1)
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
