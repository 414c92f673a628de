//! Elements whose name the agent does not know. A closed unknown element is a refused action, and
//! nothing inside it is executed. An unclosed unknown element is text.

use memchr::{memchr3, memmem};

use super::close_tags::TurnWalk;
use super::codes::{ExtractCode, RawFinding};
use super::grammar::{RootMeaning, near_miss};
use super::scanner::{DraftItem, UnknownRoots, WalkStep};
use super::tag::{OpenTag, TagOpening};
use super::top_level_markup::TopLevelPiece;
use super::turn_bytes::{NeedMoreBytes, is_name_byte};
use crate::mutant::mutant;

/// Names of the elements in which some model vendors write native calls.
const VENDOR_CALLS: [&str; 7] = [
    "tool_call",
    "tool_calls",
    "function_call",
    "function_calls",
    "tool_use",
    "tool_uses",
    "invoke",
];

/// Further names of elements that models write around actions. Unlike [`VENDOR_CALLS`], other XML
/// may have these names, too.
const ACTION_LISTS: [&str; 3] = ["action", "actions", "tools"];

impl TurnWalk<'_> {
    /// Decides how to treat an element whose name has no namespace and is unknown to the agent. A
    /// quoted element and an unclosed element are text. A vendor's wrapper is skipped, so that the
    /// actions inside it are executed. Any other element is a refused action.
    pub fn unknown_element(
        &mut self,
        tag: &OpenTag,
        floor: usize,
        unknown: &mut UnknownRoots,
    ) -> Result<WalkStep, NeedMoreBytes> {
        let name = self.source.slice(tag.name.clone());
        if !tag.empty
            && is_wrapper(name)
            && let Some(end) = self.wrapper_end(tag, 0)?
        {
            return Ok(match self.quotation_end(tag.start, end, floor)? {
                Some(end) => self.quotation(tag.start, end),
                None => WalkStep::text(tag.end),
            });
        }

        let end = if tag.empty { Some(tag.end) } else { self.unknown_end(name, tag.end, floor)? };
        let Some(end) = end else {
            return Ok(self.unknown_text(tag.start, tag.name.clone(), unknown));
        };

        if let Some(end) = self.quotation_end(tag.start, end, floor)? {
            return Ok(self.quotation(tag.start, end));
        }

        Ok(WalkStep::item(end, self.unknown_action(tag, end)))
    }

    fn unknown_action(&self, tag: &OpenTag, end: usize) -> DraftItem {
        let name = self.source.lossy(tag.name.clone()).into_owned();
        let meant = match near_miss(&name, self.grammar) {
            Some(known) => format!("; did you mean `<{known}>`?"),
            None => String::new(),
        };

        let message =
            format!("`{name}` is no action of yours, and nothing in it is acted on{meant}");
        let note = RawFinding::new(ExtractCode::UnknownAction, tag.start, message);
        let holds_action = self.holds_action(tag.end, end, b"");
        DraftItem::UnknownElement { name, note, holds_action }
    }

    /// Returns the offset after the close tag of an unknown element, whose content begins at
    /// `from`. Returns `None` if the element is not closed. A close tag in code, in a quotation, in
    /// reasoning or in the value of an action does not count.
    ///
    /// There is one exception. It applies if all close tags of the element are in code or in
    /// quotations, and an action begins before one of them. The element then extends to the end of
    /// the first code or quotation that contains a close tag and comes after an action. So the
    /// action is inside the element, and is not executed.
    pub fn unknown_end(
        &mut self,
        name: &[u8],
        from: usize,
        floor: usize,
    ) -> Result<Option<usize>, NeedMoreBytes> {
        if !self.search_close(name, from) || mutant("act-inside-unknown-elements") {
            return Ok(None);
        }

        let tag_end = self.tag_end;
        let found = self.unknown_end_from(name, from, floor);
        self.tag_end = tag_end;
        found
    }

    fn unknown_end_from(
        &mut self,
        name: &[u8],
        from: usize,
        floor: usize,
    ) -> Result<Option<usize>, NeedMoreBytes> {
        let source = self.source;
        let mut depth = 0_usize;
        let mut in_code = None;
        let mut at = from;
        self.tag_end = from;

        while let Some(found) = memchr3(b'<', b'`', b'~', source.rest(at)) {
            at += found;
            let is_tag = source.byte(at) == Some(b'<');
            at = match self.piece(at, floor)? {
                TopLevelPiece::Literal { end } => {
                    let is_closed = in_code.is_none() && holds_close(source.slice(at..end), name);
                    if is_closed && self.holds_action(from, at, b"") {
                        in_code = Some(end);
                    }
                    end
                }
                TopLevelPiece::Action { end } | TopLevelPiece::Reasoning { end } => end,
                TopLevelPiece::Open { name: opened, next } => {
                    depth += usize::from(source.slice(opened) == name);
                    next
                }
                TopLevelPiece::Close { name: closed, next }
                    if source.slice(closed.clone()) == name =>
                {
                    if self.is_quoted(at, next, floor)? {
                        if in_code.is_none() && self.holds_action(from, at, b"") {
                            in_code = Some(next);
                        }
                        at = next;
                        continue;
                    }
                    if depth == 0 {
                        return Ok(Some(next));
                    }
                    depth -= 1;
                    next
                }
                TopLevelPiece::Close { next, .. } => next,
            };
            if is_tag {
                self.tag_end = at;
            }
        }

        source.end_or_more::<()>()?;
        self.in_vain(from);
        Ok(in_code)
    }

    /// Returns the offset after the close tag of a wrapper, an element that [`is_wrapper`] names.
    /// Returns `None` if the wrapper is empty, if it contains anything other than whole actions and
    /// wrappers, or if wrappers are nested too deep.
    fn wrapper_end(&mut self, tag: &OpenTag, depth: usize) -> Result<Option<usize>, NeedMoreBytes> {
        const NESTED_MAX: usize = 3;
        let source = self.source;
        let name = source.slice(tag.name.clone());
        let mut holds_any = false;
        let mut at = tag.end;

        loop {
            at = source.skip_space(at);
            if let Some(next) = source.closes(at, name)? {
                return Ok(holds_any.then_some(next));
            }
            if let Some(step) = self.whole_action(at)? {
                holds_any = true;
                at = step.end;
                continue;
            }
            let inner = match source.opening(at)? {
                TagOpening::Tag(inner) if !inner.empty && depth < NESTED_MAX => inner,
                _ => return Ok(None),
            };
            let is_unknown = matches!(self.meaning(&inner).0, RootMeaning::Unknown);
            if !is_unknown || !is_wrapper(source.slice(inner.name.clone())) {
                return Ok(None);
            }
            match self.wrapper_end(&inner, depth + 1)? {
                Some(end) => at = end,
                None => return Ok(None),
            }
            holds_any = true;
        }
    }
}

/// Whether some models write elements of the name `name` around actions. If such a wrapper contains
/// only white space, whole actions and further wrappers, its own tags count as text, and the actions
/// inside it are executed.
fn is_wrapper(name: &[u8]) -> bool {
    is_vendor_call(name) || ACTION_LISTS.iter().any(|list| list.as_bytes() == local(name))
}

/// Whether some model vendors write native calls as elements of the name `name`.
pub fn is_vendor_call(name: &[u8]) -> bool {
    VENDOR_CALLS.iter().any(|call| call.as_bytes() == local(name))
}

/// Returns the name without its prefix. Some call formats write a prefix without binding it.
fn local(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| *byte == b':').next().unwrap_or(name)
}

/// Whether `text` contains a close tag with the name `name`.
fn holds_close(text: &[u8], name: &[u8]) -> bool {
    let pattern = [b"</", name].concat();
    let mut found = memmem::find_iter(text, &pattern);
    found.any(|at| text.get(at + pattern.len()).is_none_or(|byte| !is_name_byte(*byte)))
}
