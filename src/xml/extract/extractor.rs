//! The extractor: takes a turn in chunks, and decides which parts of its text are actions.

use std::sync::Arc;

use memchr::memchr3;

use super::close_tags::{self, TurnWalk};
use super::codes::RawFinding;
use super::quotation::QuoteBlocks;
use super::reasoning::PromptReasoning;
use super::rescan::{LineCounter, RescanLimiter};
use super::scanner::{DraftItem, UnknownRoots, WalkStep};
use super::turn_bytes::{self, TurnBytes};
use super::{
    ActionGrammar, BrokenAction, ExtractCode, ExtractedAction, ExtractedItem, Extraction,
    UnknownAction, UnknownElement,
};
use crate::limits;

/// Extracts the parts of one model turn, such as actions and reasoning, while the text of the turn
/// streams.
#[derive(Debug)]
pub struct Extractor {
    grammar: Arc<ActionGrammar>,
    turn: Vec<u8>,
    /// Number of bytes received, including bytes beyond the size limit.
    received: usize,
    /// Whether bytes beyond the size limit were received.
    is_cut: bool,
    /// Whether the provider cut the turn off, so that its end is missing.
    is_cut_off: bool,
    /// Offset up to which all decisions about the turn are final.
    decided: usize,
    /// Offset after the last tag that ends before `decided`.
    tag_end: usize,
    /// Offset after the last item. The text that begins at this offset is not part of an item yet.
    text_from: usize,
    wait: RescanLimiter,
    lines: LineCounter,
    quotes: QuoteBlocks,
    prompt_reasoning: PromptReasoning,
    unknown: UnknownRoots,
    found: Extraction,
}

impl Extractor {
    pub fn new(grammar: Arc<ActionGrammar>) -> Self {
        Self {
            grammar,
            turn: Vec::new(),
            received: 0,
            is_cut: false,
            is_cut_off: false,
            decided: 0,
            tag_end: 0,
            text_from: 0,
            wait: RescanLimiter::default(),
            lines: LineCounter::default(),
            quotes: QuoteBlocks::default(),
            prompt_reasoning: PromptReasoning::default(),
            unknown: UnknownRoots::default(),
            found: Extraction::default(),
        }
    }

    /// Takes the next bytes of the turn. A chunk may end anywhere, even inside a character.
    pub fn push(&mut self, chunk: &[u8]) {
        self.received = self.received.saturating_add(chunk.len());
        let room = self.grammar.limits.max_turn_bytes.saturating_sub(self.turn.len());
        let old = self.turn.len();
        let new = chunk.get(..room).unwrap_or(chunk);
        self.turn.extend_from_slice(new);
        self.is_cut |= new.len() < chunk.len();
        // The usual chunk: all bytes before it are decided, and it contains no markup.
        let is_plain = self.reached() == old && memchr3(b'<', b'`', b'~', new).is_none();
        if is_plain && self.prompt_reasoning.is_decided {
            self.decided = self.turn.len();
        } else if is_plain {
            self.prompt_reasoning.searched_to = self.turn.len();
        } else if self.wait.is_rescan_due(&self.turn, old, self.reached()) {
            self.advance(false);
        }
    }

    /// Returns the offset before which all bytes have been scanned.
    fn reached(&self) -> usize {
        if self.prompt_reasoning.is_decided {
            self.decided
        } else {
            self.prompt_reasoning.searched_to
        }
    }

    /// Returns the items that are final: later bytes cannot change them.
    pub fn settled(&self) -> &[ExtractedItem] {
        &self.found.items
    }

    /// Ends a turn whose end the provider has cut off, and returns the result. A text-only root
    /// element followed by text counts as broken, because the missing end of the turn may contain a
    /// later close tag of this element.
    pub fn finish_cut_off(mut self) -> Extraction {
        self.is_cut_off = true;
        self.finish()
    }

    /// Ends the turn and returns the result.
    pub fn finish(mut self) -> Extraction {
        self.advance(true);
        self.flush_text(self.turn.len());
        if self.is_cut {
            let limit = self.grammar.limits.max_turn_bytes;
            let message = format!("the turn has {} bytes; at most {limit} are read", self.received);
            self.report(RawFinding::new(ExtractCode::TurnTooLarge, self.turn.len(), message));
        }

        self.found.unknown_roots = self.unknown.0;
        self.found
    }

    /// Extracts the further items that the received bytes determine. `ended` states whether the
    /// turn has ended.
    fn advance(&mut self, ended: bool) {
        let turn = std::mem::take(&mut self.turn);
        let grammar = Arc::clone(&self.grammar);
        let mut quotes = std::mem::take(&mut self.quotes);
        quotes.read(&turn, ended);
        if self.find_prompt_reasoning(&turn, &grammar, &quotes, ended) {
            self.decide(&turn, &grammar, &quotes, ended);
        }

        self.quotes = quotes;
        self.turn = turn;
    }

    /// Decides whether the model turn begins inside a reasoning block whose open tag is in the
    /// prompt. Returns false if the decision needs more bytes, and true after the decision,
    /// whatever its result. No item of the turn is final before the decision.
    fn find_prompt_reasoning(
        &mut self,
        turn: &[u8],
        grammar: &ActionGrammar,
        quotes: &QuoteBlocks,
        ended: bool,
    ) -> bool {
        if self.prompt_reasoning.is_decided {
            return true;
        }

        let source = TurnBytes::new(turn, self.prompt_reasoning.searched_to, ended);
        let mut walk = TurnWalk::new(source, grammar, quotes, self.is_cut);
        walk.is_cut_off = self.is_cut_off;

        match walk.prompt_reasoning(&mut self.prompt_reasoning) {
            Ok(Some(step)) => self.take(step, 0, turn),
            Ok(None) => {}
            Err(turn_bytes::NeedMoreBytes) => {
                self.wait.record_scan(turn.len() - self.prompt_reasoning.searched_to);
                return false;
            }
        }

        true
    }

    fn decide(&mut self, turn: &[u8], grammar: &ActionGrammar, quotes: &QuoteBlocks, ended: bool) {
        let source = TurnBytes::new(turn, self.decided, ended);
        let mut walk = TurnWalk::new(source, grammar, quotes, self.is_cut);
        walk.is_cut_off = self.is_cut_off;

        loop {
            walk.tag_end = self.tag_end;
            let found = memchr3(b'<', b'`', b'~', source.rest(self.decided));
            self.decided = found.map_or(turn.len(), |found| self.decided + found);
            let at = self.decided;
            if found.is_none() {
                break;
            }

            if walk.is_tangled() {
                self.report(RawFinding::new(ExtractCode::TooTangled, at, close_tags::TANGLED));
                break;
            }

            match walk.step(at, self.text_from, &mut self.unknown) {
                Ok(step) => self.take(step, at, turn),
                Err(turn_bytes::NeedMoreBytes) => {
                    self.wait.record_scan(turn.len() - at);
                    break;
                }
            }
        }
    }

    fn take(&mut self, step: WalkStep, at: usize, turn: &[u8]) {
        self.decided = step.end;
        if turn.get(at) == Some(&b'<') {
            self.tag_end = step.end;
        }

        let mut notes = step.notes;
        notes.sort_by_key(|note| note.at);
        let Some(draft) = step.item else {
            notes.into_iter().for_each(|note| self.report_in(turn, note));
            return;
        };

        self.flush(turn, at);
        self.text_from = step.end;
        let range = at..step.end;
        let attempt =
            || turn_bytes::lossy(turn.get(range.clone()).unwrap_or_default()).into_owned();
        let item = match draft {
            DraftItem::Reasoning { name, text, complete } => {
                ExtractedItem::Reasoning { name, text, complete }
            }
            DraftItem::Action(element) => {
                ExtractedItem::Action(ExtractedAction { element, source: range })
            }
            DraftItem::Broken(note) => {
                let attempt = attempt();
                let is_cut_off = note.is_cut_off;
                let finding = self.lines.finding(turn, note);
                let broken = BrokenAction { attempt, finding, is_cut_off, source: range };
                ExtractedItem::Broken(broken)
            }
            DraftItem::Unknown(name) => {
                let attempt = attempt();
                ExtractedItem::Unknown(UnknownAction { name, attempt, source: range })
            }
            DraftItem::UnknownElement { name, note, holds_action } => {
                let attempt = attempt();
                let finding = self.lines.finding(turn, note);
                let unknown =
                    UnknownElement { name, attempt, finding, holds_action, source: range };
                ExtractedItem::UnknownElement(unknown)
            }
        };

        self.found.items.push(item);
        notes.into_iter().for_each(|note| self.report_in(turn, note));
    }

    fn flush_text(&mut self, end: usize) {
        let turn = std::mem::take(&mut self.turn);
        self.flush(&turn, end);
        self.turn = turn;
    }

    fn flush(&mut self, turn: &[u8], end: usize) {
        let text = turn.get(self.text_from..end).unwrap_or_default();
        if !text.is_empty() {
            self.found.items.push(ExtractedItem::Text(turn_bytes::lossy(text).into_owned()));
        }
        self.text_from = end;
    }

    fn report(&mut self, note: RawFinding) {
        let turn = std::mem::take(&mut self.turn);
        self.report_in(&turn, note);
        self.turn = turn;
    }

    fn report_in(&mut self, turn: &[u8], note: RawFinding) {
        let list =
            if note.code.is_error() { &mut self.found.errors } else { &mut self.found.notices };
        if list.len() < limits::FINDINGS_MAX {
            list.push(self.lines.finding(turn, note));
        } else {
            self.found.unreported += 1;
        }
    }
}
