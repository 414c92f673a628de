//! Finds close tags in the raw text of a turn. The text may also contain characters that look like
//! a tag but belong to a value or a sentence.

use std::collections::HashMap;
use std::ops::Range;

use memchr::memrchr;

use super::codes::{ExtractCode, RawFinding};
use super::enclosing_elements::EnclosingTags;
use super::grammar::{ActionGrammar, RootMeaning};
use super::markdown_code::TickParagraph;
use super::namespace_scope::PrefixScope;
use super::quotation::QuoteBlocks;
use super::tag::{OpenTag, TagOpening};
use super::turn_bytes::{CDATA_START, NeedMoreBytes, TurnBytes, is_space};
use crate::limits;
use crate::mutant::mutant;
use crate::xml::shape::ShapeId;

/// State of parsing the text of a turn. Each method decides only from the bytes that have arrived.
/// If later bytes could change its decision, the method returns [`NeedMoreBytes`].
pub(super) struct TurnWalk<'a> {
    pub source: TurnBytes<'a>,
    pub grammar: &'a ActionGrammar,
    /// Whether the turn exceeded its size limit. The rest of such a turn is unknown.
    pub cut: bool,
    /// Whether the provider cut the turn off, so that its end is missing.
    pub is_cut_off: bool,
    /// Total number of bytes that were read by searches which found no close tag. If it exceeds
    /// `limits::LOOKAHEAD_BYTES_MAX`, the rest of the turn is not parsed, because parsing would
    /// take too long.
    pub vain: usize,
    last_closes: LastCloses<'a>,
    next_tag: HashMap<Vec<u8>, (usize, Option<OwnTag>)>,
    pub(super) paragraph: Option<TickParagraph>,
    /// Known ends of fenced code blocks. The key is the character and the length of the fence. The
    /// value is the offset at which the search for the end began, and the end itself. A block
    /// inside another block with the same fence has the same end, so this end is searched only
    /// once.
    pub(super) fences: HashMap<(u8, usize), (usize, usize)>,
    /// The last Markdown code that was searched for close tags, and the offset of its last `]]>`.
    code_cdata: Option<(Range<usize>, usize)>,
    pub(super) quotes: &'a QuoteBlocks,
    /// Offset after the last tag. The `>` directly before this offset ends the tag, and so begins
    /// no Markdown quote.
    pub tag_end: usize,
    /// A parsed open tag that is not used yet; `None` if there is no such tag. It is kept because
    /// the tag after a child is often the open tag of the next child.
    opened: Option<OpenTag>,
}

/// Backward search for the last close tag of each name. The search goes only as far back as the
/// queries require.
struct LastCloses<'a> {
    known: HashMap<&'a [u8], usize>,
    /// Beginning of the part of the turn that the backward search has already read. `known`
    /// contains each name with a close tag after this offset, and the offset of the last close tag
    /// with this name.
    from: usize,
}

impl<'a> LastCloses<'a> {
    fn search_after(&mut self, from: usize, name: &[u8], source: TurnBytes<'a>) -> bool {
        while !self.known.contains_key(name) {
            let unknown = source.slice(from..self.from);
            let Some(found) = memrchr(b'<', unknown) else {
                self.from = self.from.min(from);
                return false;
            };
            self.from = from + found;
            if source.byte(self.from + 1) == Some(b'/') {
                let closed = self.from + 2..source.name_end(self.from + 2);
                self.known.entry(source.slice(closed)).or_insert(self.from);
            }
        }

        self.known.get(name).is_some_and(|last| *last >= from)
    }
}

/// An open or close tag that was found by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnTag {
    pub at: usize,
    pub next: usize,
    pub closes: bool,
}

/// The reason why the parser stopped before the end of an action: more bytes must arrive, or the
/// action has a defect.
pub(super) enum WalkStop {
    More,
    Defect(ActionDefect),
}

/// A defect of an action. `resume` is the offset at which parsing continues if the end of the
/// action cannot be found.
pub(super) struct ActionDefect {
    pub note: RawFinding,
    pub resume: Option<usize>,
}

impl From<NeedMoreBytes> for WalkStop {
    fn from(_: NeedMoreBytes) -> Self {
        Self::More
    }
}

impl From<RawFinding> for WalkStop {
    fn from(note: RawFinding) -> Self {
        Self::Defect(ActionDefect { note, resume: None })
    }
}

/// The element that encloses a value.
pub(super) struct ParentElement<'a> {
    /// The element that encloses this element; `None` for a root element.
    pub outer: Option<&'a ParentElement<'a>>,
    pub shape: ShapeId,
    /// Name of the element as written.
    pub name: &'a [u8],
    /// Whether a child that was written without a prefix is looked up by its local name alone.
    pub bare: bool,
    /// Number of namespace bindings that are in scope directly inside the element.
    pub scope_depth: usize,
}

/// The kind of text that follows a close tag.
enum CloseFollower {
    /// A sibling, the close tag of the parent, or the end of the turn follows.
    Fits,
    SameClose,
    OtherClose {
        after: usize,
    },
    Unknown,
    Action {
        at: usize,
    },
    Text,
}

impl<'a> TurnWalk<'a> {
    pub fn new(
        source: TurnBytes<'a>,
        grammar: &'a ActionGrammar,
        quotes: &'a QuoteBlocks,
        cut: bool,
    ) -> Self {
        Self {
            source,
            grammar,
            cut,
            is_cut_off: false,
            vain: 0,
            last_closes: LastCloses { known: HashMap::new(), from: source.len() },
            next_tag: HashMap::new(),
            paragraph: None,
            fences: HashMap::new(),
            code_cdata: None,
            quotes,
            tag_end: 0,
            opened: None,
        }
    }

    /// Returns the tag that [`Self::put_back`] kept, if this tag begins at `at`. Otherwise parses
    /// the tag at `at` as [`TurnBytes::opening`] does.
    pub fn opening(&mut self, at: usize) -> Result<TagOpening, NeedMoreBytes> {
        match self.opened.take_if(|tag| tag.start == at) {
            Some(tag) => Ok(TagOpening::Tag(tag)),
            None => self.source.opening(at),
        }
    }

    /// Keeps a parsed tag for the next call of [`Self::opening`].
    pub fn put_back(&mut self, tag: OpenTag) {
        self.opened = Some(tag);
    }

    pub fn is_tangled(&self) -> bool {
        self.vain > limits::LOOKAHEAD_BYTES_MAX
    }

    /// Whether a close tag with the name `name` may come after the offset `from`. True until the
    /// turn has ended, because the close tag may still arrive.
    pub fn search_close(&mut self, name: &[u8], from: usize) -> bool {
        let source = self.source;
        if !source.ended {
            return true;
        }
        self.last_closes.search_after(from, name, source)
    }

    /// Adds to `vain` the number of bytes from the offset `from` to the end of the received text. A
    /// search for a close tag has read these bytes without finding one.
    pub fn in_vain(&mut self, from: usize) {
        self.vain += self.source.len().saturating_sub(from);
    }

    /// Finds the close tag of the element `name`, whose content begins at `from`. Skips the close
    /// tags of nested elements with the same name. Returns `None` if the element is not closed.
    pub fn matching_close(
        &mut self,
        name: &[u8],
        from: usize,
    ) -> Result<Option<OwnTag>, NeedMoreBytes> {
        if !self.source.is_closed_soon(name, from) && !self.search_close(name, from) {
            return Ok(None);
        }

        let close = balanced_close(self.source, name, from)?;
        if close.is_none() {
            self.in_vain(from);
        }
        Ok(close)
    }

    /// Finds, in Markdown code, the first close tag with the name `name` whose element was opened
    /// before the code. Returns `None` if there is no such tag. Skips elements that begin and end
    /// in the code, because they are only quoted. Reads no byte beyond the code, so that searching
    /// many pieces costs no more than searching one piece of their total length.
    pub fn close_in_code(
        &mut self,
        name: &[u8],
        code: Range<usize>,
    ) -> Result<Option<OwnTag>, NeedMoreBytes> {
        let source = self.source;
        let from = code.start;
        let known = self.code_cdata.as_ref();
        let known = known.filter(|(part, _)| part.end == code.end && part.start <= from);
        let last_cdata_end = match known {
            Some((_, last)) => *last,
            None => source.find_last_cdata_end(code.clone()),
        };

        let part = source.up_to_code_end(code.end, last_cdata_end);
        if known.is_none() {
            self.code_cdata = Some((code, last_cdata_end));
        }
        balanced_close(part, name, from)
    }

    /// Finds the first close tag with the name `name`, even if it closes a nested element. Returns
    /// `None` if there is no such tag.
    pub fn first_close(
        &mut self,
        name: &[u8],
        from: usize,
    ) -> Result<Option<OwnTag>, NeedMoreBytes> {
        let mut at = from;
        while let Some(tag) = own_tag(self.source, name, at, true)? {
            if tag.closes {
                return Ok(Some(tag));
            }
            at = tag.next;
        }

        Ok(None)
    }

    /// Returns the next tag with the name `name` if this tag is a close tag. Returns `None` if it
    /// is an open tag, or if there is no such tag. The parser uses this function to distinguish an
    /// element from a tag that a sentence only mentions.
    pub fn next_close(
        &mut self,
        name: &[u8],
        from: usize,
    ) -> Result<Option<OwnTag>, NeedMoreBytes> {
        let known = self.next_tag.get(name).copied();
        let known = known.filter(|(since, tag)| *since <= from && tag.is_none_or(|t| from <= t.at));
        let tag = match known {
            Some((_, tag)) => tag,
            None => own_tag(self.source, name, from, false)?,
        };

        if known.is_none() {
            self.next_tag.insert(name.to_vec(), (from, tag));
        }

        Ok(tag.filter(|tag| tag.closes))
    }

    /// Finds the close tag of a text-only child. A close tag is possible if a sibling, the close
    /// tag of the parent, or the end of the turn follows it. Returns the first of these that
    /// exists:
    /// - the first possible close tag outside of nested elements with the same name;
    /// - the first possible close tag of a nested element with the same name. This close tag counts
    ///   only if the turn does not exceed its size limit, and no action with another name begins
    ///   between `from` and the close tag.
    ///
    /// Otherwise, returns an error.
    pub fn value_close(
        &mut self,
        name: &[u8],
        from: usize,
        parent: &ParentElement<'_>,
        scope: &mut PrefixScope,
    ) -> Result<OwnTag, WalkStop> {
        if self.is_tangled() {
            return Err(RawFinding::new(ExtractCode::TooTangled, from, TANGLED).into());
        }

        let mut first: Option<(OwnTag, CloseFollower)> = None;
        let mut second_best: Option<OwnTag> = None;
        let mut enclosing = EnclosingTags::new(parent, from);
        let mut depth = 0_usize;
        let mut at = from;
        let mut is_near = self.source.is_closed_soon(name, from);

        while std::mem::take(&mut is_near) || self.search_close(name, at) {
            let Some(tag) = own_tag(self.source, name, at, true)? else {
                at = self.source.len();
                break;
            };
            at = tag.next;
            let is_merged = enclosing.scan_to(self.source, tag.at);
            if enclosing.is_reopened() {
                self.vain += tag.at - from;
                break;
            }
            if !tag.closes {
                depth += 1;
                continue;
            }
            if depth > 0 {
                depth -= 1;
                if second_best.is_none()
                    && !is_merged
                    && self.fits(name, tag.next, parent, scope)?
                {
                    second_best = Some(tag);
                }
                continue;
            }
            match self.follower(name, tag.next, parent, scope)? {
                CloseFollower::Fits if !is_merged => return Ok(tag),
                _ if mutant("first-close-extraction") => return Ok(tag),
                CloseFollower::SameClose => {
                    let again = self.source.skip_space(tag.next);
                    return Err(doubled(name, again));
                }
                other if first.is_none() => first = Some((tag, other)),
                _ => {}
            }
        }

        if let Some(tag) = second_best {
            self.in_vain(from);
            if !self.cut && !self.holds_action(from, tag.at, name) {
                return Ok(tag);
            }
        }

        if enclosing.is_reopened() {
            return Err(unclosed_before(name, parent.name, from));
        }

        if first.is_none() && second_best.is_none() {
            self.vain += at - from;
        }
        Err(self.unclosed_value(name, from, first, parent))
    }

    /// Returns the defect of a value that has no valid end. `first` is the first close tag with the
    /// name of the value's element, and the kind of text that follows this tag.
    fn unclosed_value(
        &mut self,
        name: &[u8],
        from: usize,
        first: Option<(OwnTag, CloseFollower)>,
        parent: &ParentElement<'_>,
    ) -> WalkStop {
        let shown = String::from_utf8_lossy(name);
        let within = String::from_utf8_lossy(parent.name);
        let Some((tag, follower)) = first else {
            let message = format!("`{shown}` in `{within}` has no closing tag `</{shown}>`");
            return RawFinding::new(ExtractCode::UnclosedParam, from, message).into();
        };

        self.in_vain(from);
        let mut resume = None;
        let (code, what) = match follower {
            CloseFollower::OtherClose { after } => {
                resume = Some(after);
                (ExtractCode::MismatchedClose, format!("another closing tag than `</{within}>`"))
            }
            CloseFollower::Unknown => {
                (ExtractCode::UnknownParam, format!("no child that `{within}` has"))
            }
            CloseFollower::Action { at } => {
                resume = Some(at);
                (ExtractCode::UnclosedAction, format!("another action before `</{within}>`"))
            }
            CloseFollower::Text | CloseFollower::Fits | CloseFollower::SameClose => {
                (ExtractCode::UnexpectedText, "text that belongs to no child".to_owned())
            }
        };

        let message = format!("behind `</{shown}>` in `{within}` comes {what}");
        WalkStop::Defect(ActionDefect { note: RawFinding::new(code, tag.at, message), resume })
    }

    fn fits(
        &mut self,
        name: &[u8],
        at: usize,
        parent: &ParentElement<'_>,
        scope: &mut PrefixScope,
    ) -> Result<bool, NeedMoreBytes> {
        Ok(matches!(self.follower(name, at, parent, scope)?, CloseFollower::Fits))
    }

    fn follower(
        &mut self,
        name: &[u8],
        at: usize,
        parent: &ParentElement<'_>,
        scope: &mut PrefixScope,
    ) -> Result<CloseFollower, NeedMoreBytes> {
        let source = self.source;
        let Some(at) = source.skip_blank(at)? else { return Ok(CloseFollower::Text) };
        match source.byte(at) {
            None => return source.end_or_more().map(|fits| fits.unwrap_or(CloseFollower::Fits)),
            Some(b'<') => {}
            Some(_) => return Ok(CloseFollower::Text),
        }

        if source.starts(at, b"</")? {
            if source.closes(at, parent.name)?.is_some() {
                return Ok(CloseFollower::Fits);
            }
            if source.closes(at, name)?.is_some() {
                return Ok(CloseFollower::SameClose);
            }
            if let Some((_, after)) = source.closing(at)? {
                return Ok(CloseFollower::OtherClose { after });
            }
        }

        let tag = match self.opening(at)? {
            TagOpening::Tag(tag) => tag,
            TagOpening::Cut(_) => return Ok(CloseFollower::Fits),
            TagOpening::Text if source.is_cut_tag(at) => return Ok(CloseFollower::Fits),
            _ => return Ok(CloseFollower::Text),
        };

        let depth = scope.depth();
        scope.enter(source, &tag);
        let tag_name = source.lossy(tag.name.clone());
        let written = scope.element(&tag_name);
        let follower = match self.grammar.child(parent.shape, &written, parent.bare) {
            Some(_) => CloseFollower::Fits,
            None => match self.grammar.root(&tag_name, &written) {
                RootMeaning::Action(_) => CloseFollower::Action { at },
                _ => CloseFollower::Unknown,
            },
        };

        scope.leave(depth);
        self.put_back(tag);
        Ok(follower)
    }

    /// Whether an open tag of an action begins between the offsets `from` and `to`. Ignores actions
    /// with the name `except`.
    pub fn holds_action(&self, from: usize, to: usize, except: &[u8]) -> bool {
        let part = self.source.up_to(to);
        let mut at = from;
        while let Ok(Some(found)) = part.find_byte(b'<', at) {
            at = found + 1;
            let end = part.name_end(at);
            let name = part.slice(at..end);
            let behind = part.byte(end).is_some_and(|b| is_space(b) || matches!(b, b'/' | b'>'));
            if !behind || name == except {
                continue;
            }
            let local = name.rsplit(|b| *b == b':').next().unwrap_or(name);
            if !self.grammar.may_mean(local) && !self.grammar.may_mean(name) {
                continue;
            }
            let name = String::from_utf8_lossy(name);
            let local = name.rsplit(':').next().unwrap_or(&name);
            if self.grammar.has_root_called(local) || self.grammar.has_root_called(&name) {
                return true;
            }
        }

        false
    }
}

/// Finds the next open or close tag in `source` with exactly the name `name`; `None` if there is no
/// such tag. Skips CDATA sections if `cdata` is true.
fn own_tag(
    source: TurnBytes<'_>,
    name: &[u8],
    from: usize,
    cdata: bool,
) -> Result<Option<OwnTag>, NeedMoreBytes> {
    let mut from = from;
    let first = name.first();
    let second = name.get(1);

    while let Some(at) = source.find_byte(b'<', from)? {
        // The first two bytes of the name exclude most tags with other names.
        let is_other = match source.rest(at) {
            [_, b'/', one, two, ..] => Some(one) != first || second.is_some_and(|s| s != two),
            [_, b'!', _, _, ..] => !cdata,
            [_, one, two, _, ..] => Some(one) != first || second.is_some_and(|s| s != two),
            _ => false,
        };
        if is_other {
            from = at + 1;
            continue;
        }
        if cdata && source.starts(at, CDATA_START)? {
            from = source.cdata_end(at + 9)?.unwrap_or(at + 9);
            continue;
        }
        if let Some(next) = source.closes(at, name)? {
            return Ok(Some(OwnTag { at, next, closes: true }));
        }
        if let Some(next) = opens(source, at, name)? {
            return Ok(Some(OwnTag { at, next, closes: false }));
        }
        from = at + 1;
    }

    Ok(None)
}

/// Returns the offset after the open tag with the name `name` that begins at `at`. Returns `None`
/// for a self-closing tag or any other text.
fn opens(source: TurnBytes<'_>, at: usize, name: &[u8]) -> Result<Option<usize>, NeedMoreBytes> {
    if !source.starts(at + 1, name)? {
        return Ok(None);
    }

    let behind = at + 1 + name.len();
    match source.byte(behind) {
        Some(b'>') => return Ok(Some(behind + 1)),
        Some(byte) if is_space(byte) => {}
        Some(_) => return Ok(None),
        None => return source.end_or_more(),
    }

    let Some(end) = source.find_either(b'<', b'>', behind)? else { return Ok(None) };
    let is_tag = source.byte(end) == Some(b'>') && source.byte(end - 1) != Some(b'/');
    Ok(is_tag.then_some(end + 1))
}

/// Finds, from the offset `from` on, the first close tag with the name `name` whose open tag comes
/// before `from`. Returns `None` if there is no such tag.
fn balanced_close(
    source: TurnBytes<'_>,
    name: &[u8],
    from: usize,
) -> Result<Option<OwnTag>, NeedMoreBytes> {
    let mut depth = 0_usize;
    let mut at = from;
    while let Some(tag) = own_tag(source, name, at, true)? {
        at = tag.next;
        match (tag.closes, depth) {
            (true, 0) => return Ok(Some(tag)),
            (true, _) => depth -= 1,
            (false, _) => depth += 1,
        }
    }

    Ok(None)
}

fn unclosed_before(name: &[u8], within: &[u8], at: usize) -> WalkStop {
    let shown = String::from_utf8_lossy(name);
    let within = String::from_utf8_lossy(within);
    let message = format!(
        "`{shown}` has no closing tag `</{shown}>` before `{within}` ends and the next begins"
    );
    RawFinding::new(ExtractCode::UnclosedParam, at, message).into()
}

pub(super) const TANGLED: &str = "too many elements are left open; the rest was not read";

/// Returns the defect of an element that is closed twice.
pub(super) fn doubled(name: &[u8], at: usize) -> WalkStop {
    let shown = String::from_utf8_lossy(name);
    let message = format!("`</{shown}>` stands twice; close every element once");
    RawFinding::new(ExtractCode::MismatchedClose, at, message).into()
}
