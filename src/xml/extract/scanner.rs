//! The scanner of the text around actions. It finds the next piece of markup and the end of that
//! piece.

use std::ops::Range;

use super::close_tags::TurnWalk;
use super::codes::{ExtractCode, RawFinding};
use super::grammar::{RootMeaning, near_miss};
use super::markdown_code::TickRun;
use super::namespace_scope::{PrefixScope, WrittenName};
use super::tag::{OpenTag, TagOpening};
use super::turn_bytes::{
    CDATA_START, COMMENT_START, NeedMoreBytes, is_name_start, is_space, lossy,
};
use crate::limits;
use crate::xml::element::Element;
use crate::xml::shape::QName;

/// The result of parsing one piece of markup: its end, and the item that it becomes.
pub(super) struct WalkStep {
    /// Offset after the piece of markup.
    pub end: usize,
    /// The item that the piece of markup becomes; `None` if it is only text.
    pub item: Option<DraftItem>,
    pub notes: Vec<RawFinding>,
}

pub(super) enum DraftItem {
    Reasoning {
        name: String,
        text: String,
        complete: bool,
    },
    Action(Element),
    Broken(RawFinding),
    Unknown(QName),
    /// A closed element that is no action of the agent. Its name has no namespace: the name has no
    /// prefix, or its prefix is not bound. The element is reported to the agent, and is not
    /// executed.
    UnknownElement {
        name: String,
        note: RawFinding,
        holds_action: bool,
    },
}

impl WalkStep {
    pub fn text(end: usize) -> Self {
        Self { end, item: None, notes: Vec::new() }
    }

    pub fn item(end: usize, item: DraftItem) -> Self {
        Self { end, item: Some(item), notes: Vec::new() }
    }

    pub fn note(mut self, note: RawFinding) -> Self {
        self.notes.push(note);
        self
    }
}

/// Names of root elements that are no actions. Each name occurs once, in the order of the text.
#[derive(Debug, Clone, Default)]
pub(super) struct UnknownRoots(pub Vec<String>);

impl UnknownRoots {
    /// Adds `name` to the list, and returns the name as text. Returns `None` if the list is full or
    /// already contains the name.
    fn add(&mut self, name: &[u8]) -> Option<&str> {
        let is_known = |name: &[u8]| self.0.iter().any(|known| known.as_bytes() == name);
        if self.0.len() >= limits::UNKNOWN_ROOTS_MAX || is_known(name) {
            return None;
        }

        let name = lossy(name);
        if is_known(name.as_bytes()) {
            return None;
        }

        self.0.push(name.into_owned());
        self.0.last().map(String::as_str)
    }
}

impl TurnWalk<'_> {
    /// Decides which construct begins with the `<`, backtick or tilde at offset `at`. `floor` is
    /// the offset at which the current text outside of actions begins.
    pub fn step(
        &mut self,
        at: usize,
        floor: usize,
        unknown: &mut UnknownRoots,
    ) -> Result<WalkStep, NeedMoreBytes> {
        let source = self.source;
        if source.byte(at) != Some(b'<') {
            return Ok(match self.ticks(at, floor)? {
                TickRun::Text(end) => WalkStep::text(end),
                TickRun::Fence(end) => {
                    self.hidden(at, end, ExtractCode::ActionInCodeFence, "a code fence")
                }
                TickRun::Inline(end) => {
                    self.hidden(at, end, ExtractCode::ActionInInlineCode, "inline code")
                }
            });
        }

        if let Some(end) = self.quote_block_end(at, floor)? {
            return Ok(self.quotation(at, end));
        }

        match source.byte(at + 1) {
            Some(b'!') if source.starts(at, COMMENT_START)? => {
                let end = source.comment_end(at + 4)?.unwrap_or(source.len());
                Ok(self.hidden(at, end, ExtractCode::ActionInComment, "a comment"))
            }
            Some(b'!') if source.starts(at, CDATA_START)? => {
                let end = source.cdata_end(at + 9)?.unwrap_or(source.len());
                Ok(self.hidden(at, end, ExtractCode::ActionInCdata, "a CDATA section"))
            }
            Some(b'/') => Ok(match source.closing(at)? {
                Some((name, end)) => self.orphan(at, name, end),
                None => WalkStep::text(at + 1),
            }),
            _ => {
                let name = at + 1..source.name_end(at + 1);
                if self.is_plain(&name)? && !self.search_element_close(&name) {
                    return Ok(self.unknown_text(at, name, unknown));
                }
                self.open_tag(at, name, floor, unknown)
            }
        }
    }

    fn open_tag(
        &mut self,
        at: usize,
        name: Range<usize>,
        floor: usize,
        unknown: &mut UnknownRoots,
    ) -> Result<WalkStep, NeedMoreBytes> {
        match self.source.opening_of(at, name)? {
            TagOpening::Text => Ok(WalkStep::text(at + 1)),
            TagOpening::Cut(name) => Ok(self.cut_short(at, &self.source.lossy(name))),
            TagOpening::Interrupted(name) => self.interrupted(at, name),
            TagOpening::Tag(tag) => self.tag(&tag, floor, unknown),
        }
    }

    pub fn hidden(&self, at: usize, end: usize, code: ExtractCode, place: &str) -> WalkStep {
        let step = WalkStep::text(end);
        if !self.holds_action(at, end, b"") {
            return step;
        }
        step.note(RawFinding::new(code, at, format!("an action's tag in {place} is not acted on")))
    }

    pub fn quotation(&self, at: usize, end: usize) -> WalkStep {
        self.hidden(at, end, ExtractCode::ActionInQuotes, "a quotation")
    }

    fn orphan(&self, at: usize, name: Range<usize>, end: usize) -> WalkStep {
        let bytes = self.source.slice(name.clone());
        if !bytes.contains(&b':') && !self.grammar.may_mean(bytes) {
            return WalkStep::text(end);
        }

        let name = &*self.source.lossy(name);
        let local = name.rsplit(':').next().unwrap_or(name);
        let grammar = self.grammar;
        let known = grammar.means(name) || (local != name && grammar.means(local));
        let step = WalkStep::text(end);
        if !known {
            return step;
        }

        step.note(RawFinding::new(
            ExtractCode::OrphanCloseTag,
            at,
            format!("`</{name}>` closes nothing"),
        ))
    }

    /// Handles a turn that ends inside a tag. The tag may be the open tag of an action.
    fn cut_short(&self, at: usize, name: &str) -> WalkStep {
        let local = name.rsplit(':').next().unwrap_or(name);
        if !self.grammar.may_become(name) && !self.grammar.may_become(local) {
            return WalkStep::text(at + 1);
        }

        let message = format!("the text ends inside the tag `<{name}`");
        let note = RawFinding::new(ExtractCode::TruncatedOpenTag, at, message);
        WalkStep::item(self.source.len(), DraftItem::Broken(note))
    }

    /// Handles an open tag that has another `<` before its `>`. If the tag names an action, and a
    /// close tag of the same name follows, the action is broken and extends to this close tag.
    /// Otherwise, the tag is text.
    fn interrupted(&mut self, at: usize, name: Range<usize>) -> Result<WalkStep, NeedMoreBytes> {
        let shown = self.source.lossy(name.clone());
        let local = shown.rsplit(':').next().unwrap_or(&shown);
        if !self.grammar.has_root_called(local) {
            return Ok(WalkStep::text(at + 1));
        }

        let message = format!("the tag `<{shown}` has no `>`");
        let bytes = self.source.slice(name.clone());
        Ok(match self.next_close(bytes, name.end)? {
            Some(close) => {
                let note = RawFinding::new(ExtractCode::MalformedTag, at, message);
                WalkStep::item(close.next, DraftItem::Broken(note))
            }
            None => {
                WalkStep::text(name.end).note(RawFinding::new(ExtractCode::TagMention, at, message))
            }
        })
    }

    /// Returns the meaning of a root tag, the namespaces of the tag, and whether the name of the
    /// tag was written without a namespace.
    pub fn meaning(&self, tag: &OpenTag) -> (RootMeaning, PrefixScope, bool) {
        let mut scope = PrefixScope::default();
        scope.enter(self.source, tag);
        let name = self.source.lossy(tag.name.clone());
        let written = scope.element(&name);
        let bare = matches!(written, WrittenName::Bare(_));
        let root = self.grammar.root(&name, &written);
        (root, scope, bare)
    }

    fn tag(
        &mut self,
        tag: &OpenTag,
        floor: usize,
        unknown: &mut UnknownRoots,
    ) -> Result<WalkStep, NeedMoreBytes> {
        let (root, scope, bare) = self.meaning(tag);
        let step = match root {
            RootMeaning::Action(id) => self.root(tag, id, scope, bare)?,
            RootMeaning::Reasoning if self.is_quoted(tag.start, tag.end, floor)? => {
                return Ok(WalkStep::text(tag.end));
            }
            RootMeaning::Reasoning => return self.reasoning(tag),
            RootMeaning::Reserved => return self.forged(tag, floor),
            RootMeaning::Unknown => self.unknown(tag, &scope, floor, unknown)?,
        };

        if !matches!(step.item, Some(DraftItem::Action(_) | DraftItem::Unknown(_))) {
            return Ok(step);
        }

        Ok(match self.quotation_end(tag.start, step.end, floor)? {
            Some(end) => self.quotation(tag.start, end),
            None => step,
        })
    }

    /// Handles a tag with a reserved name, which only the system may write. Neither the tag nor its
    /// content is executed.
    fn forged(&mut self, tag: &OpenTag, floor: usize) -> Result<WalkStep, NeedMoreBytes> {
        let name = self.source.slice(tag.name.clone());
        let shown = self.source.lossy(tag.name.clone());
        let end = if tag.empty {
            tag.end
        } else {
            self.unknown_end(name, tag.end, floor)?.unwrap_or(self.source.len())
        };

        let message = format!("only the system writes `<{shown}>`; nothing in it is acted on");
        let note = RawFinding::new(ExtractCode::ForgedSystemTag, tag.start, message);
        Ok(WalkStep::item(end, DraftItem::Broken(note)))
    }

    /// Handles a root element that is no action. If its name has no namespace, the element becomes
    /// an unknown element, which is reported to the agent as refused. If its name has a namespace,
    /// the element becomes a payload, which the pump refuses later.
    fn unknown(
        &mut self,
        tag: &OpenTag,
        scope: &PrefixScope,
        floor: usize,
        unknown: &mut UnknownRoots,
    ) -> Result<WalkStep, NeedMoreBytes> {
        let shown = self.source.lossy(tag.name.clone());

        match scope.element(&shown) {
            WrittenName::Bare(_) => self.unknown_element(tag, floor, unknown),
            WrittenName::Bound(namespace, _) if namespace.is_empty() => {
                self.unknown_element(tag, floor, unknown)
            }
            WrittenName::Bound(namespace, local) => {
                let name = self.source.slice(tag.name.clone());
                let note = near_miss(local, self.grammar).map_or_else(
                    || unknown_root(tag.start, local, &namespace),
                    |known| missed(tag.start, &format!("{{{namespace}}}{local}"), known),
                );

                let close = if tag.empty { None } else { self.unknown_end(name, tag.end, floor)? };
                let end = close.unwrap_or(tag.end);
                let mut step = WalkStep::text(end).note(note);
                if tag.empty || close.is_some() {
                    step.item = Some(DraftItem::Unknown(QName::new(Some(&namespace), local)));
                }
                Ok(step)
            }
            WrittenName::Unbound(name) => self.unbound(tag, name, floor, unknown),
        }
    }

    fn unbound(
        &mut self,
        tag: &OpenTag,
        name: &str,
        floor: usize,
        unknown: &mut UnknownRoots,
    ) -> Result<WalkStep, NeedMoreBytes> {
        let local = name.split_once(':').map_or(name, |(_, local)| local);
        if self.grammar.has_namespaced_root(local) {
            let bytes = self.source.slice(tag.name.clone());
            let close = if tag.empty { None } else { self.unknown_end(bytes, tag.end, floor)? };
            let message = format!("the prefix of `<{name}>` is not bound; declare its namespace");
            let note = RawFinding::new(ExtractCode::UnboundPrefix, tag.start, message);
            let end = close.unwrap_or(tag.end);
            return Ok(WalkStep::item(end, DraftItem::Broken(note)));
        }

        self.unknown_element(tag, floor, unknown)
    }

    fn means(&self, name: &[u8]) -> bool {
        self.grammar.may_mean(name) && self.grammar.means(&lossy(name))
    }

    /// Whether a quick check shows that the tag with the name `name` begins no root element with a
    /// meaning. True only if the name has no prefix and no meaning, and if no attribute declares a
    /// namespace. The attributes are not parsed, so the result may be false although these
    /// conditions are met.
    fn is_plain(&self, name: &Range<usize>) -> Result<bool, NeedMoreBytes> {
        let source = self.source;
        let bytes = source.slice(name.clone());
        let ends = source.byte(name.end).is_some_and(|b| is_space(b) || matches!(b, b'/' | b'>'));
        if !ends || !bytes.first().copied().is_some_and(is_name_start) {
            return Ok(false);
        }

        if bytes.contains(&b':') || self.means(bytes) {
            return Ok(false);
        }

        if source.byte(name.end) == Some(b'>') {
            return Ok(true);
        }

        let end = source.find_either(b'<', b'>', name.end)?;
        let Some(end) = end.filter(|end| source.byte(*end) == Some(b'>')) else { return Ok(false) };
        let inside = source.slice(name.end..end);
        let mut declarations = memchr::memchr_iter(b'x', inside)
            .filter(|at| inside.get(*at..).is_some_and(|rest| rest.starts_with(b"xmlns")));
        let is_plain = declarations.next().is_none() || !inside.contains(&b'=');
        let quotes = inside.iter().filter(|byte| **byte == b'"').count();
        Ok(is_plain && quotes.is_multiple_of(2))
    }

    /// Whether the element with the name `name` may be closed. True if its tag is self-closing, or
    /// if its close tag may come later in the text.
    fn search_element_close(&mut self, name: &Range<usize>) -> bool {
        let source = self.source;
        let end = memchr::memchr(b'>', source.rest(name.end));
        let is_empty = end.is_some_and(|end| source.byte(name.end + end - 1) == Some(b'/'));
        is_empty || self.search_close(source.slice(name.clone()), name.end)
    }

    pub fn unknown_text(
        &self,
        at: usize,
        name: Range<usize>,
        unknown: &mut UnknownRoots,
    ) -> WalkStep {
        let step = WalkStep::text(name.end);
        let near = unknown
            .add(self.source.slice(name.clone()))
            .and_then(|name| Some((name, near_miss(name, self.grammar)?)));
        match near {
            Some((name, known)) => step.note(missed(at, name, known)),
            None => step,
        }
    }
}

fn missed(at: usize, found: &str, known: &str) -> RawFinding {
    let message = format!("`{found}` is not known; did you mean `<{known}>`?");
    RawFinding::new(ExtractCode::NearMissTag, at, message)
}

fn unknown_root(at: usize, local: &str, namespace: &str) -> RawFinding {
    let message = format!("`{local}` in `{namespace}` is not known here");
    RawFinding::new(ExtractCode::UnknownRoot, at, message)
}
