//! A payload as a person reads it: names and values, without the angle brackets.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

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
    fn of(start: &BytesStart<'_>) -> Option<Self> {
        let mut node = Self { name: start.local_name().as_ref().to_owned(), ..Self::default() };
        for attribute in start.attributes() {
            let attribute = attribute.ok()?;
            let declares = attribute.key.as_namespace_binding().is_some();
            if !declares {
                let value = quick_xml::escape::unescape(&attribute.value).ok()?.into_owned();
                node.attributes.push((attribute.key.local_name().as_ref().to_owned(), value));
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

/// None where it is not one well-formed element, or deeper than anyone would read.
pub(super) fn parse(payload: &str) -> Option<Node> {
    const DEPTH_MAX: usize = 32;
    let mut reader = Reader::from_str(payload);
    let mut open = vec![Node::default()];
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) if open.len() <= DEPTH_MAX => open.push(Node::of(&start)?),
            Event::Empty(start) => open.last_mut()?.children.push(Node::of(&start)?),
            Event::End(_) => {
                let done = open.pop()?;
                open.last_mut()?.children.push(done);
            }
            Event::Text(text) => open.last_mut()?.text.push_str(&text),
            Event::CData(text) => open.last_mut()?.text.push_str(&text),
            Event::GeneralRef(entity) => {
                let entity = format!("&{};", &*entity);
                let text = quick_xml::escape::unescape(&entity).ok()?.into_owned();
                open.last_mut()?.text.push_str(&text);
            }
            Event::Comment(_) => {}
            Event::Eof => break,
            _ => return None,
        }
    }
    let mut document = open.pop().filter(|_| open.is_empty())?;
    let root = document.children.pop()?;
    document.children.is_empty().then_some(root)
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
