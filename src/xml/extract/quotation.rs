//! Quotations in the text around actions. An element is a quotation, and no action, if quotation
//! marks are directly on both sides of it, or if it is on Markdown quote lines. Indented code is no
//! quotation.

use std::ops::Range;

use super::close_tags::TurnWalk;
use super::grammar::RootMeaning;
use super::scanner::{DraftItem, WalkStep};
use super::tag::TagOpening;
use super::turn_bytes::{NeedMoreBytes, lossy};
use crate::mutant::mutant;

/// Straight and typographic quotation marks of all languages. Opening and closing marks need not
/// match.
const QUOTATION_MARKS: &str = "\"'“”„‟‘’‚‛«»‹›「」『』＂＇";
/// Maximum spaces before the `>` of a quote line. A line with more spaces is indented code.
const INDENT_SPACES_MAX: usize = 3;
/// Maximum bytes of a character in UTF-8.
const CHARACTER_BYTES_MAX: usize = 4;

/// The blocks of quote lines in the part of the turn that has been read. The blocks are kept
/// between scans, so that each line is read once.
#[derive(Debug, Clone, Default)]
pub(super) struct QuoteBlocks {
    /// Byte ranges of the blocks in rising order. Adjacent quote lines form one block.
    blocks: Vec<Range<usize>>,
    /// Offset of the first line that has not been read.
    read_to: usize,
}

impl QuoteBlocks {
    /// Reads all complete lines, and the last line as well if the turn has `ended`.
    pub fn read(&mut self, turn: &[u8], ended: bool) {
        while let Some(rest) = turn.get(self.read_to..).filter(|rest| !rest.is_empty()) {
            let length = match memchr::memchr(b'\n', rest) {
                Some(newline) => newline + 1,
                None if ended => rest.len(),
                None => return,
            };
            let line = self.read_to..self.read_to + length;
            self.read_to = line.end;
            if !is_quote_line(rest) {
                continue;
            }
            match self.blocks.last_mut() {
                Some(last) if last.end == line.start => last.end = line.end,
                _ => self.blocks.push(line),
            }
        }
    }

    /// Returns the block of quote lines around the offset `at`; `None` if `at` is in no such block.
    /// Returns [`NeedMoreBytes`] if later bytes may extend the block, or make the line of `at` a
    /// quote line.
    fn holding(
        &self,
        at: usize,
        turn: &[u8],
        ended: bool,
    ) -> Result<Option<Range<usize>>, NeedMoreBytes> {
        let after = self.blocks.partition_point(|block| block.end <= at);
        if let Some(block) = self.blocks.get(after).filter(|block| block.start <= at) {
            let is_whole = ended || block.end < self.read_to;
            return if is_whole { Ok(Some(block.clone())) } else { Err(NeedMoreBytes) };
        }

        let is_unread = at >= self.read_to && !ended;
        let line = turn.get(self.read_to..).unwrap_or_default();
        if is_unread && is_quote_line(line) { Err(NeedMoreBytes) } else { Ok(None) }
    }
}

/// Whether `line` is a line of a Markdown block quote, which begins with `>` after at most three
/// spaces.
fn is_quote_line(line: &[u8]) -> bool {
    let indent = line.iter().take_while(|byte| **byte == b' ').count();
    indent <= INDENT_SPACES_MAX && line.get(indent) == Some(&b'>')
}

impl TurnWalk<'_> {
    /// Returns the end of the block of quote lines around `at`. Returns `None` if `at` is in no
    /// such block, or if the line of `at` begins before `floor`.
    pub fn quote_block_end(&self, at: usize, floor: usize) -> Result<Option<usize>, NeedMoreBytes> {
        if mutant("act-on-quotations") {
            return Ok(None);
        }

        let source = self.source;
        let Some(block) = self.quotes.holding(at, source.bytes, source.ended)? else {
            return Ok(None);
        };

        // A tag or an action that ended in the block may have ended within this line.
        let floor = floor.max(self.tag_end.min(at));
        let begins_within = block.start >= floor || {
            let since = source.slice(floor..at);
            memchr::memchr(b'\n', since).is_some()
        };

        Ok(begins_within.then_some(block.end.min(source.len())))
    }

    /// Whether quotation marks enclose the text from `from` to `to`. True if one mark is directly
    /// before `from`, and another mark is directly after `to`. Ignores text before `floor`.
    pub fn is_quoted(&self, from: usize, to: usize, floor: usize) -> Result<bool, NeedMoreBytes> {
        if !self.follows_mark(from, floor) {
            return Ok(false);
        }
        self.precedes_mark(to)
    }

    fn follows_mark(&self, at: usize, floor: usize) -> bool {
        let from = at.saturating_sub(CHARACTER_BYTES_MAX).max(floor);
        let before = lossy(self.source.slice(from..at));
        before.chars().next_back().is_some_and(|mark| QUOTATION_MARKS.contains(mark))
    }

    fn precedes_mark(&self, at: usize) -> Result<bool, NeedMoreBytes> {
        let source = self.source;
        let behind = source.slice(at..source.len().min(at + CHARACTER_BYTES_MAX));
        let is_whole = match behind.first() {
            None => source.ended,
            Some(first) => source.ended || first.is_ascii() || behind.len() == CHARACTER_BYTES_MAX,
        };

        if !is_whole {
            return Err(NeedMoreBytes);
        }

        Ok(lossy(behind).chars().next().is_some_and(|mark| QUOTATION_MARKS.contains(mark)))
    }

    /// Returns the end of the quotation around the element from `at` to `end`. A quotation mark
    /// must be directly before the element. The closing mark may come after further complete
    /// actions. Returns `None` if the element is not quoted.
    pub fn quotation_end(
        &mut self,
        at: usize,
        end: usize,
        floor: usize,
    ) -> Result<Option<usize>, NeedMoreBytes> {
        if !self.follows_mark(at, floor) || mutant("act-on-quotations") {
            return Ok(None);
        }

        let mut end = end;
        loop {
            if self.precedes_mark(end)? {
                return Ok(Some(end));
            }
            let next = self.source.skip_space(end);
            match self.whole_action(next)? {
                Some(step) => end = step.end,
                None => return Ok(None),
            }
        }
    }

    /// Parses the complete action that begins at `at`; `None` if no complete action begins there.
    pub fn whole_action(&mut self, at: usize) -> Result<Option<WalkStep>, NeedMoreBytes> {
        match self.source.byte(at) {
            Some(b'<') => {}
            Some(_) => return Ok(None),
            None => return self.source.end_or_more(),
        }

        let TagOpening::Tag(tag) = self.source.opening(at)? else { return Ok(None) };
        let (RootMeaning::Action(id), scope, bare) = self.meaning(&tag) else { return Ok(None) };
        let step = self.root(&tag, id, scope, bare)?;
        Ok(matches!(step.item, Some(DraftItem::Action(_))).then_some(step))
    }
}
