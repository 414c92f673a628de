//! Reasoning: reasoning blocks in a turn, and reasoning that began in the prompt.
//!
//! Some chat templates open the reasoning block in the prompt. A turn then begins inside the block,
//! and contains only the close tag of the block. Such a turn is recognised because its first
//! reasoning tag is a close tag.

use std::ops::Range;

use memchr::{memchr2, memchr3};

use super::close_tags::TurnWalk;
use super::codes::{ExtractCode, RawFinding};
use super::scanner::{DraftItem, WalkStep};
use super::tag::OpenTag;
use super::top_level_markup::TopLevelPiece;
use super::turn_bytes::NeedMoreBytes;
use crate::mutant::mutant;

/// Names of reasoning elements. The comparison ignores case. If the agent may write a payload with
/// one of these names, an element with this name is the payload and no reasoning.
pub(super) const REASONING_NAMES: [&str; 4] = ["think", "thinking", "thought", "reasoning"];

/// State of the search for the first reasoning tag of a turn.
#[derive(Debug, Clone, Default)]
pub(super) struct PromptReasoning {
    /// Offset before which no reasoning tag begins.
    pub searched_to: usize,
    /// Offset after the last tag before `searched_to`. The `>` directly before this offset ends the
    /// tag, and so begins no Markdown quote.
    tag_end: usize,
    /// Whether the search has ended, with or without a reasoning tag.
    pub is_decided: bool,
}

impl TurnWalk<'_> {
    /// Returns the reasoning block that the prompt opened and that the turn only closes. Returns
    /// `None` if the turn does not begin inside a reasoning block. Returns [`NeedMoreBytes`] if
    /// this cannot be decided from the received bytes.
    pub fn prompt_reasoning(
        &mut self,
        search: &mut PromptReasoning,
    ) -> Result<Option<WalkStep>, NeedMoreBytes> {
        while !self.is_tangled() && !mutant("act-on-drafts") {
            let rest = self.source.rest(search.searched_to);
            let Some(found) = memchr3(b'<', b'`', b'~', rest) else {
                search.searched_to = self.source.len();
                self.source.end_or_more::<()>()?;
                break;
            };
            let at = search.searched_to + found;
            search.searched_to = at;
            self.tag_end = search.tag_end;

            match self.piece(at, 0)? {
                TopLevelPiece::Reasoning { .. } => break,
                TopLevelPiece::Close { name, next } if self.is_reasoning_name(name.clone()) => {
                    if !self.is_quoted(at, next, 0)? {
                        search.is_decided = true;
                        let name = self.source.lossy(name).into_owned();
                        return Ok(Some(self.begun_in_prompt(name, at, next)));
                    }
                    search.searched_to = next;
                }
                TopLevelPiece::Action { end } if self.holds_draft(at, end) => {
                    search.searched_to = at + 1
                }
                TopLevelPiece::Action { end } | TopLevelPiece::Literal { end } => {
                    search.searched_to = end
                }
                TopLevelPiece::Open { next, .. } | TopLevelPiece::Close { next, .. } => {
                    search.searched_to = next
                }
            }
            if self.source.byte(at) == Some(b'<') {
                search.tag_end = search.searched_to;
            }
        }

        search.is_decided = true;
        Ok(None)
    }

    fn is_reasoning_name(&self, name: Range<usize>) -> bool {
        self.grammar.is_reasoning(&self.source.lossy(name))
    }

    fn begun_in_prompt(&self, name: String, close: usize, end: usize) -> WalkStep {
        let message = format!("`</{name}>` closes reasoning that began before this response");
        let mut step = self
            .hidden(0, end, ExtractCode::ActionInReasoning, "reasoning")
            .note(RawFinding::new(ExtractCode::ReasoningBegunInPrompt, close, message));
        let text = self.source.lossy(0..close).into_owned();
        step.item = Some(DraftItem::Reasoning { name, text, complete: true });
        step
    }

    /// Whether the text from `at` to `end`, which looks like one action, begins with a draft inside
    /// reasoning. True if the text contains a close tag of reasoning and, after it, a second open
    /// tag with the name of the action. The real action then begins with this second tag.
    fn holds_draft(&self, at: usize, end: usize) -> bool {
        let part = self.source.up_to(end);
        let root = part.slice(at + 1..part.name_end(at + 1));
        let mut reasoning_closed = false;
        let mut from = at + 1;

        while let Ok(Some(found)) = part.find_byte(b'<', from) {
            from = found + 1;
            match part.closing(found) {
                Ok(Some((name, _))) => reasoning_closed |= self.is_reasoning_name(name),
                _ if part.slice(from..part.name_end(from)) == root && reasoning_closed => {
                    return true;
                }
                _ => {}
            }
        }

        false
    }

    /// Returns the offset after the close tag of the reasoning block that `tag` opens. A close tag
    /// in inline code counts only if no close tag follows outside of code. Returns `None` if the
    /// turn has ended without any close tag of the block.
    pub fn reasoning_end(&mut self, tag: &OpenTag) -> Result<Option<usize>, NeedMoreBytes> {
        let source = self.source;
        let mut in_code = None;
        let mut at = tag.end;

        while let Some(found) = memchr2(b'<', b'`', source.rest(at)) {
            at += found;
            if source.byte(at) == Some(b'`') && mutant("end-reasoning-in-code") {
                at += 1;
                continue;
            }
            if source.byte(at) == Some(b'`') {
                let (run_end, code_end) = self.inline_code(at)?;
                if let Some(code_end) = code_end {
                    in_code = in_code.or(self.close_within(tag, at, code_end));
                }
                at = code_end.unwrap_or(run_end);
                continue;
            }
            if let Some(next) = self.reasoning_close(tag, at)? {
                return Ok(Some(next));
            }
            at += 1;
        }

        source.end_or_more::<()>()?;
        Ok(in_code)
    }

    /// Searches between the offsets `from` and `to` for a close tag of the reasoning block that
    /// `tag` opens. Returns the offset after the first such tag; `None` if there is none.
    fn close_within(&self, tag: &OpenTag, from: usize, to: usize) -> Option<usize> {
        let closes = memchr::memchr_iter(b'<', self.source.slice(from..to));
        closes.filter_map(|at| self.reasoning_close(tag, from + at).ok().flatten()).next()
    }

    /// Returns the offset after the close tag at `at`, if it ends the reasoning block that `tag`
    /// opens. Returns `None` for any other text.
    fn reasoning_close(&self, tag: &OpenTag, at: usize) -> Result<Option<usize>, NeedMoreBytes> {
        let Some((name, next)) = self.source.closing(at)? else { return Ok(None) };
        let opened = self.source.slice(tag.name.clone());
        let closed = self.source.slice(name);
        let is_known = REASONING_NAMES.iter().any(|n| n.as_bytes().eq_ignore_ascii_case(opened));
        let is_same = closed == opened || (is_known && closed.eq_ignore_ascii_case(opened));
        Ok(is_same.then_some(next))
    }

    pub fn reasoning(&mut self, tag: &OpenTag) -> Result<WalkStep, NeedMoreBytes> {
        let source = self.source;
        let name = source.lossy(tag.name.clone()).into_owned();
        let end = if tag.empty { Some(tag.end) } else { self.reasoning_end(tag)? };
        let complete = end.is_some();
        let end = end.unwrap_or(source.len());
        let inside = source.slice(tag.end..end);
        let length = match memchr::memrchr(b'<', inside) {
            Some(close) if complete => close,
            _ => inside.len(),
        };

        let text = source.lossy(tag.end..tag.end + length).into_owned();

        let mut step = self.hidden(tag.end, end, ExtractCode::ActionInReasoning, "reasoning");
        if !complete {
            let message = format!("`{name}` is not closed; close it before you act");
            step = step.note(RawFinding::new(ExtractCode::UnclosedReasoning, tag.start, message));
        }

        step.item = Some(DraftItem::Reasoning { name, text, complete });
        Ok(step)
    }
}
