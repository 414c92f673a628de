//! Parses a root element with a known name: decides whether it is an action, where the action ends,
//! and how far a broken action extends.

use memchr::memchr3;

use super::action::ActionReading;
use super::close_tags::{ActionDefect, OwnTag, TANGLED, TurnWalk, WalkStop, doubled};
use super::codes::{ExtractCode, RawFinding};
use super::grammar::RootMeaning;
use super::markdown_code::TickRun;
use super::namespace_scope::PrefixScope;
use super::scanner::{DraftItem, WalkStep};
use super::tag::{OpenTag, TagOpening};
use super::turn_bytes::NeedMoreBytes;
use crate::mutant::mutant;
use crate::xml::element::Element;
use crate::xml::shape::{ShapeContent, ShapeId};

/// The kind of text that follows a close tag of a text-only root element.
enum RootBoundary {
    SameClose(OwnTag),
    Action,
    End,
    /// The searches for close tags read too many bytes without finding one.
    Tangled,
}

impl TurnWalk<'_> {
    /// Parses the root element that `tag` opens. `scope` contains the namespaces of the tag.
    pub fn root(
        &mut self,
        tag: &OpenTag,
        id: ShapeId,
        scope: PrefixScope,
        bare: bool,
    ) -> Result<WalkStep, NeedMoreBytes> {
        let content = self.grammar.shape(id).map(|shape| &shape.content);
        let is_text = matches!(content, Some(ShapeContent::Text));
        let is_shaped = matches!(content, Some(ShapeContent::Elements(_)));
        if is_shaped && !tag.empty && self.text_follows(tag.end)? {
            return self.mention(tag);
        }

        let mut reading = ActionReading::new(scope, bare);
        let read = if is_text {
            self.root_text(tag, id, &mut reading)
        } else {
            self.root_element(tag, id, &mut reading)
        };

        match read {
            Ok((element, end)) => Ok(match reading.flaw {
                None => {
                    let step = WalkStep::item(end, DraftItem::Action(element));
                    reading.half_escaped.into_iter().fold(step, WalkStep::note)
                }
                Some(flaw) => WalkStep::item(end, DraftItem::Broken(flaw)),
            }),
            Err(WalkStop::More) => Err(NeedMoreBytes),
            Err(WalkStop::Defect(defect)) => self.broken(tag, defect, reading.flaw),
        }
    }

    /// Finds the end of a broken action; nothing before this end is executed. The end is the first
    /// of these offsets that exists:
    /// - the end of the action's close tag;
    /// - `defect.resume`;
    /// - the end of the open tag, but only if this tag is malformed, and the defect is neither an
    ///   unclosed nor an unknown child;
    /// - the end of the turn.
    fn broken(
        &mut self,
        tag: &OpenTag,
        defect: ActionDefect,
        flaw: Option<RawFinding>,
    ) -> Result<WalkStep, NeedMoreBytes> {
        let name = self.source.slice(tag.name.clone());
        let ActionDefect { mut note, resume } = defect;
        let end = match self.matching_close(name, note.at.max(tag.end))? {
            Some(close) => close.next,
            None if matches!(note.code, ExtractCode::UnclosedParam | ExtractCode::UnknownParam) => {
                let name = self.source.lossy(tag.name.clone());
                note.code = ExtractCode::UnclosedAction;
                note.message = format!("`{name}` is not closed: {}", note.message);
                resume.unwrap_or(self.source.len())
            }
            None if tag.fault.is_some() => resume.unwrap_or(tag.end),
            None => resume.unwrap_or(self.source.len()),
        };

        Ok(WalkStep::item(end, DraftItem::Broken(flaw.unwrap_or(note))))
    }

    /// Whether the content at `from` begins with text instead of markup.
    fn text_follows(&mut self, from: usize) -> Result<bool, NeedMoreBytes> {
        let source = self.source;
        let Some(at) = source.skip_blank(from)? else { return Ok(false) };
        match source.byte(at) {
            None => source.end_or_more().map(|text| text.unwrap_or(false)),
            Some(b'<') if source.starts(at, b"</")? => Ok(source.closing(at)?.is_none()),
            Some(b'<') => Ok(match self.opening(at)? {
                TagOpening::Text => true,
                TagOpening::Tag(tag) => {
                    self.put_back(tag);
                    false
                }
                TagOpening::Interrupted(_) | TagOpening::Cut(_) => false,
            }),
            Some(_) => Ok(true),
        }
    }

    /// Handles an open tag that is followed by text, although its action must contain child
    /// elements. If a close tag of the same name comes later, the action is broken and extends to
    /// this close tag. Otherwise, the tag is not an action, but text that mentions the action.
    fn mention(&mut self, tag: &OpenTag) -> Result<WalkStep, NeedMoreBytes> {
        let name = self.source.slice(tag.name.clone());
        let shown = self.source.lossy(tag.name.clone());
        if let Some(close) = self.next_close(name, tag.end)? {
            let message =
                format!("`{shown}` holds elements, not text; write its parameters as tags");
            let note = RawFinding::new(ExtractCode::MalformedAction, tag.start, message);
            return Ok(WalkStep::item(close.next, DraftItem::Broken(note)));
        }

        let message = format!("`<{shown}>` followed by text is taken as a mention");
        Ok(WalkStep::text(tag.end).note(RawFinding::new(
            ExtractCode::TagMention,
            tag.start,
            message,
        )))
    }

    /// Parses a text-only root element. The element ends at its last close tag before another
    /// action. A close tag in Markdown code does not count if its open tag is in the same code.
    fn root_text(
        &mut self,
        tag: &OpenTag,
        id: ShapeId,
        reading: &mut ActionReading,
    ) -> Result<(Element, usize), WalkStop> {
        let source = self.source;
        let name = source.slice(tag.name.clone());
        let shown = source.lossy(tag.name.clone());
        let qname = self.grammar.shape(id).map(|shape| shape.name.clone());
        let mut element = qname.map_or_else(|| Element::local(&shown), Element::new);
        element.attributes = self.attributes(tag, reading);
        if tag.empty {
            return Ok((element.with_text(""), tag.end));
        }

        let balanced = self.matching_close(name, tag.end)?;
        let close = match balanced {
            Some(close) => Some(close),
            None if self.search_close(name, tag.end) => self.first_close(name, tag.end)?,
            None => None,
        };

        let torn = OwnTag { at: source.len(), next: source.len(), closes: true };
        let close = close.or_else(|| mutant("dispatch-the-incomplete").then_some(torn));
        let Some(mut close) = close else {
            let message = format!("the text ends inside `{shown}`; close it with `</{shown}>`");
            return Err(RawFinding::new(ExtractCode::UnclosedAction, tag.start, message).into());
        };

        loop {
            let behind = source.skip_space(close.next);
            if source.closes(behind, name)?.is_some() {
                return Err(doubled(name, behind));
            }
            match self.boundary(name, close.next)? {
                RootBoundary::SameClose(later) => close = later,
                RootBoundary::Action => break,
                RootBoundary::End if self.cut => {
                    let message = format!("the turn is too long to know where `{shown}` ends");
                    return Err(
                        RawFinding::new(ExtractCode::TurnTooLarge, tag.start, message).into()
                    );
                }
                RootBoundary::End if self.is_cut_off && behind < source.len() => {
                    let message =
                        format!("the response was cut off before it is clear where `{shown}` ends");
                    let note = RawFinding::new(ExtractCode::UnclosedAction, tag.start, message);
                    return Err(note.about_cut_off().into());
                }
                RootBoundary::End => break,
                RootBoundary::Tangled => {
                    return Err(RawFinding::new(ExtractCode::TooTangled, tag.start, TANGLED).into());
                }
            }
        }

        let text = self.leaf(tag, tag.end..close.at, reading);
        Ok((element.with_text(text), close.next))
    }

    fn boundary(&mut self, name: &[u8], floor: usize) -> Result<RootBoundary, NeedMoreBytes> {
        let source = self.source;
        let mut at = floor;
        while let Some(found) = memchr3(b'<', b'`', b'~', source.rest(at)) {
            if self.is_tangled() {
                return Ok(RootBoundary::Tangled);
            }
            at += found;
            if source.byte(at) != Some(b'<') {
                at = match self.ticks(at, floor)? {
                    TickRun::Text(end) => end,
                    TickRun::Fence(end) | TickRun::Inline(end) => {
                        match self.close_in_code(name, at..end)? {
                            Some(close) => return Ok(RootBoundary::SameClose(close)),
                            None => end,
                        }
                    }
                };
                continue;
            }
            if let Some(next) = source.closes(at, name)? {
                return Ok(RootBoundary::SameClose(OwnTag { at, next, closes: true }));
            }
            if source.starts(at, b"<!--")? {
                at = source.comment_end(at + 4)?.unwrap_or(at + 4);
                continue;
            }
            let TagOpening::Tag(tag) = source.opening(at)? else {
                at += 1;
                continue;
            };
            let is_quoted = at > floor && source.byte(at - 1) == Some(b'`');
            match self.meaning(&tag).0 {
                RootMeaning::Reasoning if !tag.empty => {
                    let end = self.reasoning_end(&tag)?;
                    if end.is_none() {
                        self.in_vain(tag.end);
                    }
                    at = end.unwrap_or(tag.end);
                }
                RootMeaning::Action(id) if !is_quoted && self.starts_action(&tag, id)? => {
                    return Ok(RootBoundary::Action);
                }
                _ => at = tag.end,
            }
        }

        source.end_or_more().map(|end| end.unwrap_or(RootBoundary::End))
    }

    /// Whether an open tag begins an action. If not, the tag is text that mentions the action.
    fn starts_action(&mut self, tag: &OpenTag, id: ShapeId) -> Result<bool, NeedMoreBytes> {
        let name = self.source.slice(tag.name.clone());
        match self.grammar.shape(id).map(|shape| &shape.content) {
            _ if tag.empty => Ok(true),
            Some(ShapeContent::Elements(_)) => Ok(!self.text_follows(tag.end)?),
            _ if !self.search_close(name, tag.end) => Ok(false),
            _ => {
                let close = self.first_close(name, tag.end)?;
                if close.is_none() {
                    self.in_vain(tag.end);
                }
                Ok(close.is_some())
            }
        }
    }
}
