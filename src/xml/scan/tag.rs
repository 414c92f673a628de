//! Start tags: a name, and attributes as they stand, nothing decoded.

use super::Violation;
use super::markup::{Kind, Piece};

/// One attribute as it stands in a tag: `name="value"`, nothing decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute<'a> {
    pub name: &'a str,
    pub value: &'a str,
    /// Of the name, and of the value's first byte, in bytes from the start of the text.
    pub offset: usize,
    pub value_offset: usize,
}

impl<'a> Attribute<'a> {
    /// The prefix this attribute declares: none if it declares nothing, empty for the default.
    pub fn declares(&self) -> Option<&'a str> {
        let rest = self.name.strip_prefix("xmlns")?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(':') }
    }
}

/// A start tag's name and its attributes, in order.
pub(super) struct Attributes<'a> {
    rest: &'a str,
    offset: usize,
}

/// Cuts a start tag of `text` into its name and its attributes.
pub(super) fn open_tag<'a>(text: &'a str, tag: &Piece) -> (&'a str, Attributes<'a>) {
    let offset = tag.start;
    let close = if tag.kind == Kind::Empty { 2 } else { 1 };
    let tag = text.get(tag.range()).unwrap_or_default();
    let inside = tag.get(1..tag.len() - close).unwrap_or_default();
    let end = inside.bytes().position(is_space).unwrap_or(inside.len());
    let (name, rest) = inside.split_at_checked(end).unwrap_or((inside, ""));
    (name, Attributes { rest, offset: offset + 1 + end })
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

impl<'a> Attributes<'a> {
    fn skip_space(&mut self) -> usize {
        let length = self.rest.bytes().take_while(|b| is_space(*b)).count();
        self.advance(length);
        length
    }

    fn advance(&mut self, length: usize) {
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.offset += length;
    }

    fn read(&mut self) -> Result<Attribute<'a>, Violation> {
        let offset = self.offset;
        let length = self.rest.bytes().position(|b| is_space(b) || b == b'=');
        let length = length.unwrap_or(self.rest.len());
        let name = self.rest.get(..length).unwrap_or_default();
        self.advance(length);
        self.skip_space();
        if !self.rest.starts_with('=') {
            let message = format!("attribute `{}` without a value", super::quoted(name));
            return Err(Violation::form(offset, message));
        }
        self.advance(1);
        self.skip_space();
        let unquoted = || Violation::form(offset, "an attribute value that is not in quotes");
        let quote = self.rest.bytes().next().filter(|b| matches!(b, b'"' | b'\''));
        let quote = quote.ok_or_else(unquoted)?;
        self.advance(1);
        let value_offset = self.offset;
        let length = memchr::memchr(quote, self.rest.as_bytes()).ok_or_else(unquoted)?;
        let value = self.rest.get(..length).unwrap_or_default();
        self.advance(length + 1);
        Ok(Attribute { name, value, offset, value_offset })
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        let spaced = self.skip_space() > 0;
        if self.rest.is_empty() {
            return None;
        }
        if !spaced {
            let message = "white space is missing between attributes";
            let error = Violation::form(self.offset, message);
            self.rest = "";
            return Some(Err(error));
        }
        let attribute = self.read();
        if attribute.is_err() {
            self.rest = "";
        }
        Some(attribute)
    }
}
