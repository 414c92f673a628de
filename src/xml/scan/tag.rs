//! Start tags: names and attributes as written, without decoding.

use super::ScanViolation;
use super::markup::{MarkupKind, MarkupPiece};

/// One attribute as written: `name="value"`, without decoding.
#[derive(Debug, Clone, Copy)]
pub(super) struct TagAttribute<'a> {
    pub name: &'a str,
    pub value: &'a str,
    /// Byte offset of the attribute's name in the text.
    pub offset: usize,
    pub value_offset: usize,
}

impl<'a> TagAttribute<'a> {
    /// Returns the prefix that this attribute declares, which is empty for the default namespace.
    /// Returns `None` if the attribute is no namespace declaration.
    pub fn declares(&self) -> Option<&'a str> {
        let rest = self.name.strip_prefix("xmlns")?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(':') }
    }
}

/// The name and the attributes of a start tag. One value of this type is reused for all tags of a
/// text.
#[derive(Default)]
pub(super) struct StartTag<'a> {
    pub name: &'a str,
    pub attributes: Vec<TagAttribute<'a>>,
    /// The violation that ended the parsing of the tag; `None` if the whole tag was parsed.
    pub broken: Option<ScanViolation>,
}

impl<'a> StartTag<'a> {
    pub fn read(&mut self, text: &'a str, piece: &MarkupPiece) {
        let (name, attributes) = open_tag(text, piece);
        self.name = name;
        self.broken = None;
        self.attributes.clear();

        for attribute in attributes {
            match attribute {
                Ok(attribute) => self.attributes.push(attribute),
                Err(violation) => self.broken = Some(violation),
            }
        }
    }
}

/// Iterator over the attributes of a start tag, in order.
pub(super) struct TagAttributes<'a> {
    rest: &'a str,
    offset: usize,
}

/// Splits a start tag of `text` into its name and its attributes.
pub(super) fn open_tag<'a>(text: &'a str, tag: &MarkupPiece) -> (&'a str, TagAttributes<'a>) {
    let offset = tag.start;
    let close = if tag.kind == MarkupKind::Empty { 2 } else { 1 };
    let tag = text.get(tag.range()).unwrap_or_default();
    let inside = tag.get(1..tag.len() - close).unwrap_or_default();
    let end = inside.bytes().position(is_space).unwrap_or(inside.len());
    let (name, rest) = inside.split_at_checked(end).unwrap_or((inside, ""));
    (name, TagAttributes { rest, offset: offset + 1 + end })
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

impl<'a> TagAttributes<'a> {
    fn skip_space(&mut self) -> usize {
        let length = self.rest.bytes().take_while(|b| is_space(*b)).count();
        self.advance(length);
        length
    }

    fn advance(&mut self, length: usize) {
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.offset += length;
    }

    fn read(&mut self) -> Result<TagAttribute<'a>, ScanViolation> {
        let offset = self.offset;
        let bytes = self.rest.as_bytes();
        let past_space = |at: usize| {
            let rest = bytes.get(at..).unwrap_or_default();
            at + rest.iter().position(|b| !is_space(*b)).unwrap_or(rest.len())
        };

        let length = bytes.iter().position(|b| is_space(*b) || *b == b'=');
        let length = length.unwrap_or(bytes.len());
        let name = self.rest.get(..length).unwrap_or_default();
        let equals = past_space(length);
        if bytes.get(equals) != Some(&b'=') {
            let message = format!("attribute `{}` without a value", super::quoted(name));
            return Err(ScanViolation::form(offset, message));
        }

        let open = past_space(equals + 1);
        let unquoted = || ScanViolation::form(offset, "an attribute value that is not in quotes");
        let quote = bytes.get(open).filter(|b| matches!(b, b'"' | b'\'')).ok_or_else(unquoted)?;
        let inside = bytes.get(open + 1..).unwrap_or_default();
        let close = open + 1 + memchr::memchr(*quote, inside).ok_or_else(unquoted)?;
        let value = self.rest.get(open + 1..close).unwrap_or_default();
        self.advance(close + 1);
        Ok(TagAttribute { name, value, offset, value_offset: offset + open + 1 })
    }
}

impl<'a> Iterator for TagAttributes<'a> {
    type Item = Result<TagAttribute<'a>, ScanViolation>;

    fn next(&mut self) -> Option<Self::Item> {
        let spaced = self.skip_space() > 0;
        if self.rest.is_empty() {
            return None;
        }

        if !spaced {
            let message = "white space is missing between attributes";
            let error = ScanViolation::form(self.offset, message);
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
