//! Markdown code in the text around actions: fenced code blocks and inline code. A tag in code is a
//! quotation and no action.

use std::collections::HashMap;

use memchr::{memchr, memchr2};

use super::close_tags::TurnWalk;
use super::turn_bytes::{NeedMoreBytes, is_space};

/// The meaning of a run of backticks or tildes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TickRun {
    /// A run that is only text. Contains the offset after this run.
    Text(usize),
    Fence(usize),
    Inline(usize),
}

/// Maximum bytes that are searched backwards for the beginning of a line.
const INDENT_BYTES_MAX: usize = 128;
const FENCE_MIN: usize = 3;

impl TurnWalk<'_> {
    /// Classifies the run of backticks or tildes at `at`. `floor` is the offset at which the
    /// current text outside of actions begins.
    pub fn ticks(&mut self, at: usize, floor: usize) -> Result<TickRun, NeedMoreBytes> {
        let source = self.source;
        let Some(tick) = source.byte(at) else { return Ok(TickRun::Text(at + 1)) };
        let end = self.run_end(at, tick)?;
        if end - at >= FENCE_MIN && self.starts_line(at, floor, true) {
            let line_end = source.find_byte(b'\n', end)?.unwrap_or(source.len());
            let info = source.slice(end..line_end);
            if tick == b'~' || memchr(b'`', info).is_none() {
                return Ok(TickRun::Fence(self.fence_end(tick, end - at, line_end)?));
            }
        }

        if tick == b'~' {
            return Ok(TickRun::Text(end));
        }

        let slashes = source.slice(floor..at).iter().rev().take_while(|b| **b == b'\\').count();
        if slashes % 2 == 1 {
            return Ok(TickRun::Text(at + 1));
        }

        Ok(self.inline_end(end, end - at)?.map_or(TickRun::Text(end), TickRun::Inline))
    }

    /// Returns the end of the run of backticks at `at`, and the end of the inline code that the run
    /// opens. The second value is `None` if the run opens no inline code.
    pub fn inline_code(&mut self, at: usize) -> Result<(usize, Option<usize>), NeedMoreBytes> {
        let end = self.run_end(at, b'`')?;
        Ok((end, self.inline_end(end, end - at)?))
    }

    fn run_end(&self, at: usize, tick: u8) -> Result<usize, NeedMoreBytes> {
        let rest = self.source.rest(at);
        match rest.iter().position(|b| *b != tick) {
            Some(length) => Ok(at + length),
            None if self.source.ended => Ok(self.source.len()),
            None => Err(NeedMoreBytes),
        }
    }

    /// Whether only white space and Markdown quote marks stand between the beginning of the line
    /// and the offset `at`. If `item` is true, one marker of a list item may stand there, too.
    fn starts_line(&self, at: usize, floor: usize, item: bool) -> bool {
        let floor = floor.max(at.saturating_sub(INDENT_BYTES_MAX));
        let before = self.source.slice(floor..at);
        let line = memchr::memrchr(b'\n', before)
            .map_or(before, |newline| before.get(newline + 1..).unwrap_or_default());
        let is_margin = |b: &u8| is_space(*b) || *b == b'>';
        let mut words = line.split(is_margin).filter(|word| !word.is_empty());

        match (words.next(), words.next()) {
            (None, _) => true,
            (Some(word), None) => {
                item && is_list_marker(word) && line.last().is_some_and(|b| is_space(*b))
            }
            _ => false,
        }
    }

    /// Returns the offset of the end of a code block whose fence has `length` characters. The block
    /// ends with the first later line that contains nothing but the character `tick`, `length`
    /// times or more. Without such a line, the block ends with the turn.
    fn fence_end(
        &mut self,
        tick: u8,
        length: usize,
        line_end: usize,
    ) -> Result<usize, NeedMoreBytes> {
        // A block that begins inside another one of the same fence has the same end.
        let known = self.fences.get(&(tick, length));
        if let Some((_, end)) = known.filter(|(from, end)| (*from..*end).contains(&line_end)) {
            return Ok(*end);
        }

        let end = self.search_fence_end(tick, length, line_end)?;
        self.fences.insert((tick, length), (line_end, end));
        Ok(end)
    }

    fn search_fence_end(
        &self,
        tick: u8,
        length: usize,
        line_end: usize,
    ) -> Result<usize, NeedMoreBytes> {
        let source = self.source;
        let pattern = [tick; FENCE_MIN];
        let mut from = line_end;

        while let Some(at) = source.find(&pattern, from)? {
            let end = self.run_end(at, tick)?;
            from = end;
            if end - at < length || !self.starts_line(at, line_end, false) {
                continue;
            }
            let rest = source.rest(end);
            let blank = rest.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r')).count();
            match source.byte(end + blank) {
                Some(b'\n') => return Ok(end + blank),
                Some(_) => {}
                None if source.ended => return Ok(source.len()),
                None => return Err(NeedMoreBytes),
            }
        }

        Ok(source.len())
    }

    /// Returns the end of the inline code that begins at `from`, after a run of `length` backticks.
    /// The code ends with the next run of exactly as many backticks in the same paragraph. Returns
    /// `None` if there is no such run.
    fn inline_end(&mut self, from: usize, length: usize) -> Result<Option<usize>, NeedMoreBytes> {
        if self.paragraph.as_ref().is_some_and(|known| known.has_no_run(from, length)) {
            return Ok(None);
        }

        let source = self.source;
        let mut last = HashMap::new();
        let mut at = from;

        while let Some(found) = memchr2(b'`', b'\n', source.rest(at)) {
            at += found;
            if source.byte(at) == Some(b'`') {
                let end = self.run_end(at, b'`')?;
                if end - at == length {
                    return Ok(Some(end));
                }
                last.insert(end - at, at);
                at = end;
                continue;
            }
            let rest = source.rest(at + 1);
            let blank = rest.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r')).count();
            match source.byte(at + 1 + blank) {
                Some(b'\n') => {
                    self.paragraph = Some(TickParagraph { from, to: at, last });
                    return Ok(None);
                }
                None if !source.ended => return Err(NeedMoreBytes),
                _ => at += 1,
            }
        }

        if !source.ended {
            return Err(NeedMoreBytes);
        }

        self.paragraph = Some(TickParagraph { from, to: source.len(), last });
        Ok(None)
    }
}

/// The runs of backticks in a paragraph, from some offset to the end of the paragraph.
pub(super) struct TickParagraph {
    from: usize,
    to: usize,
    /// For each length, the offset of the last run of backticks that has this length.
    last: HashMap<usize, usize>,
}

impl TickParagraph {
    fn has_no_run(&self, from: usize, length: usize) -> bool {
        (self.from..self.to).contains(&from) && self.last.get(&length).is_none_or(|at| *at < from)
    }
}

/// Whether `word` is the marker of an item of a Markdown list, such as `-` or `12.`.
pub fn is_list_marker(word: &[u8]) -> bool {
    match word.split_last() {
        Some((b'-' | b'*' | b'+', [])) => true,
        Some((b'.' | b')', digits)) => !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}
