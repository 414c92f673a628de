//! Parses one tag: its name and its attributes.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr_iter;

use super::codes::ExtractCode;
use super::turn_bytes::{NeedMoreBytes, TurnBytes, is_name_byte, is_name_start, is_space};
use crate::limits;

/// An open tag. All ranges are byte ranges of the turn.
#[derive(Debug, Clone)]
pub(super) struct OpenTag {
    pub start: usize,
    pub name: Range<usize>,
    pub attributes: Vec<RawAttribute>,
    /// Offset after the `>` of the tag.
    pub end: usize,
    pub empty: bool,
    /// The reason why the attributes of the tag cannot be parsed; `None` if they can be parsed.
    pub fault: Option<TagFault>,
}

#[derive(Debug, Clone)]
pub(super) struct RawAttribute {
    pub name: Range<usize>,
    pub value: Range<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct TagFault {
    pub code: ExtractCode,
    pub at: usize,
    pub message: Cow<'static, str>,
}

/// The construct that a `<` begins.
#[derive(Debug, Clone)]
pub(super) enum TagOpening {
    Tag(OpenTag),
    /// Plain text, because the `<` begins no tag.
    Text,
    /// A tag in which, after white space, another `<` comes before any `>`. The range is the name
    /// of the tag.
    Interrupted(Range<usize>),
    /// A tag that the end of the turn cuts off. Its name may be incomplete.
    Cut(Range<usize>),
}

impl TurnBytes<'_> {
    /// Returns the offset of the end of the name that begins at `from`.
    pub fn name_end(&self, from: usize) -> usize {
        let rest = self.rest(from);
        from + rest.iter().position(|b| !is_name_byte(*b)).unwrap_or(rest.len())
    }

    /// Whether a close tag with the name `name` comes within the next few hundred bytes. Most
    /// elements are closed so soon, and this check then saves a search of the whole turn.
    pub fn is_closed_soon(&self, name: &[u8], from: usize) -> bool {
        const SOON_BYTES: usize = 256;
        let soon = self.slice(from..self.len().min(from + SOON_BYTES));
        memchr_iter(b'<', soon).any(|at| {
            let closed = soon.get(at + 1..).and_then(|rest| rest.strip_prefix(b"/"));
            let behind = closed.and_then(|rest| rest.strip_prefix(name));
            behind.and_then(<[u8]>::first).is_some_and(|byte| !is_name_byte(*byte))
        })
    }

    /// Whether the turn ends inside or directly after the tag name. The `<` or `</` of the tag is
    /// at `start`.
    pub fn is_cut_tag(&self, start: usize) -> bool {
        let from = start + if self.byte(start + 1) == Some(b'/') { 2 } else { 1 };
        self.skip_space(self.name_end(from)) >= self.len()
    }

    /// Parses the tag whose `<` stands at `start`.
    pub fn opening(&self, start: usize) -> Result<TagOpening, NeedMoreBytes> {
        self.opening_of(start, start + 1..self.name_end(start + 1))
    }

    /// Parses the tag whose `<` stands at `start` and whose name has the known range `name`.
    pub fn opening_of(
        &self,
        start: usize,
        name: Range<usize>,
    ) -> Result<TagOpening, NeedMoreBytes> {
        match self.byte(start + 1) {
            None if !self.ended => return Err(NeedMoreBytes),
            Some(first) if is_name_start(first) => {}
            _ => return Ok(TagOpening::Text),
        }

        match self.byte(name.end) {
            None if self.ended => Ok(TagOpening::Cut(name)),
            None => Err(NeedMoreBytes),
            Some(b'>' | b'/') => self.attributes(start, name),
            Some(next) if is_space(next) => self.attributes(start, name),
            Some(_) => Ok(TagOpening::Text),
        }
    }

    fn attributes(&self, start: usize, name: Range<usize>) -> Result<TagOpening, NeedMoreBytes> {
        let mut tag = OpenTag {
            start,
            end: name.end,
            name,
            attributes: Vec::new(),
            empty: false,
            fault: None,
        };

        loop {
            let at = self.skip_space(tag.end);
            match (self.byte(at), self.byte(at + 1)) {
                (Some(b'>'), _) => {
                    tag.end = at + 1;
                    return Ok(TagOpening::Tag(tag));
                }
                (Some(b'/'), Some(b'>')) => {
                    tag.end = at + 2;
                    tag.empty = true;
                    return Ok(TagOpening::Tag(tag));
                }
                (None, _) | (Some(b'/'), None) => {
                    return match self.end_or_more()? {
                        Some(never) => Ok(never),
                        None => Ok(TagOpening::Cut(tag.name)),
                    };
                }
                (Some(b'<'), _) => return self.interrupted(tag),
                _ => {}
            }
            let spaced = at > tag.end;
            match self.attribute(at, spaced)? {
                Ok(attribute) => {
                    tag.end = attribute.value.end + 1;
                    self.note_attribute(&mut tag, attribute);
                }
                Err(fault) => {
                    tag.fault = Some(fault);
                    return self.faulty(tag);
                }
            }
        }
    }

    fn note_attribute(&self, tag: &mut OpenTag, attribute: RawAttribute) {
        let name = self.slice(attribute.name.clone());
        let at = attribute.name.start;
        let fault = |code, message| TagFault { code, at, message };

        let max = limits::XML_ATTRIBUTES_MAX;
        if tag.attributes.len() >= max {
            tag.fault.get_or_insert_with(|| {
                let message = format!("more than {max} attributes");
                fault(ExtractCode::MalformedTag, message.into())
            });
            return;
        }

        if tag.attributes.iter().any(|other| self.slice(other.name.clone()) == name) {
            let message = "an attribute is given twice".into();
            tag.fault.get_or_insert(fault(ExtractCode::DuplicateAttribute, message));
        }

        let size = attribute.value.len();
        let max = limits::XML_TAG_BYTES_MAX;
        if size > max {
            let message = format!("an attribute has {size} bytes; at most {max} are read");
            tag.fault.get_or_insert(fault(ExtractCode::ParamTooLarge, message.into()));
        }

        tag.attributes.push(attribute);
    }

    /// Parses one `name="value"` at `at`.
    fn attribute(
        &self,
        at: usize,
        spaced: bool,
    ) -> Result<Result<RawAttribute, TagFault>, NeedMoreBytes> {
        let fault = |at, message: &'static str| {
            let message = message.into();
            Ok(Err(TagFault { code: ExtractCode::MalformedTag, at, message }))
        };
        let name = at..self.name_end(at);
        if !spaced || !self.byte(at).is_some_and(is_name_start) {
            return fault(at, "expected white space and an attribute");
        }

        let equals = self.skip_space(name.end);
        match self.byte(equals) {
            Some(b'=') => {}
            None if !self.ended => return Err(NeedMoreBytes),
            _ => return fault(at, "an attribute has no value"),
        }

        let open = self.skip_space(equals + 1);
        let quote = match self.byte(open) {
            Some(quote @ (b'"' | b'\'')) => quote,
            None if !self.ended => return Err(NeedMoreBytes),
            _ => return fault(open, "an attribute's value must stand in quotes"),
        };

        match self.find_byte(quote, open + 1)? {
            Some(close) => Ok(Ok(RawAttribute { name, value: open + 1..close })),
            None => fault(open, "an attribute's value has no closing quote"),
        }
    }

    /// Handles a `<` at the place where the next attribute of the tag could begin. If the value of
    /// an earlier attribute also contains a `<`, its closing quote is probably missing, so the tag
    /// may end inside this value.
    fn interrupted(&self, tag: OpenTag) -> Result<TagOpening, NeedMoreBytes> {
        if self.suspicious_value(&tag).is_none() {
            return Ok(TagOpening::Interrupted(tag.name));
        }
        let message = "an attribute's value has no closing quote".into();
        let fault = TagFault { code: ExtractCode::MalformedTag, at: tag.end, message };
        self.faulty(OpenTag { fault: Some(fault), ..tag })
    }

    fn suspicious_value(&self, tag: &OpenTag) -> Option<usize> {
        let holds =
            |value: &Range<usize>| memchr::memchr(b'<', self.slice(value.clone())).is_some();
        tag.attributes.iter().map(|a| &a.value).find(|value| holds(value)).map(|v| v.start)
    }

    /// Parses the end of a tag whose attributes are faulty: the tag ends at the next `>`.
    fn faulty(&self, mut tag: OpenTag) -> Result<TagOpening, NeedMoreBytes> {
        let fault_at = tag.fault.as_ref().map_or(tag.end, |fault| fault.at);
        let from = self.suspicious_value(&tag).unwrap_or(fault_at);
        match self.find_either(b'<', b'>', from)? {
            Some(at) if self.byte(at) == Some(b'>') => {
                tag.end = at + 1;
                tag.empty = self.byte(at.saturating_sub(1)) == Some(b'/');
                Ok(TagOpening::Tag(tag))
            }
            Some(_) => Ok(TagOpening::Interrupted(tag.name)),
            None => Ok(TagOpening::Cut(tag.name)),
        }
    }

    /// Returns the name of the close tag at `start`, and the offset after the tag. Returns `None`
    /// if no close tag begins at `start`.
    pub fn closing(&self, start: usize) -> Result<Option<(Range<usize>, usize)>, NeedMoreBytes> {
        if !self.starts(start, b"</")? || !self.byte(start + 2).is_some_and(is_name_start) {
            return if self.len() <= start + 2 { self.end_or_more() } else { Ok(None) };
        }

        let name = start + 2..self.name_end(start + 2);
        let at = self.skip_space(name.end);

        match self.byte(at) {
            Some(b'>') => Ok(Some((name, at + 1))),
            Some(_) => Ok(None),
            None => self.end_or_more(),
        }
    }

    /// Returns the offset after the close tag with the name `name` at `start`; `None` if no such
    /// tag begins there.
    pub fn closes(&self, start: usize, name: &[u8]) -> Result<Option<usize>, NeedMoreBytes> {
        match (self.byte(start), self.byte(start + 1)) {
            (Some(b'<'), Some(b'/')) if self.starts(start + 2, name)? => {}
            (Some(b'<'), None) | (None, _) if !self.ended => return Err(NeedMoreBytes),
            _ => return Ok(None),
        }

        let at = self.skip_space(start + 2 + name.len());
        match self.byte(at) {
            Some(b'>') => Ok(Some(at + 1)),
            Some(_) => Ok(None),
            None => self.end_or_more(),
        }
    }
}
