//! The slots of one turn, whose names contain the turn's nonce.

use crate::agent::FinalFormat;
use crate::ids::{CallId, Digest, PayloadName, ThreadId};
use crate::mutant::mutant;

const FINAL: &str = "FINAL";
const PROGRESS: &str = "PROGRESS";
/// Number of digits in a nonce. They follow its first letter.
const NONCE_DIGITS: usize = 8;

/// Slots of one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnSlots {
    nonce: String,
}

/// Reason why a slot is none of this turn's slots.
pub(super) enum SlotMismatch {
    /// The nonce is that of another turn, or invented.
    Nonce,
    /// The nonce is that of this turn, but there is no such slot.
    Slot,
}

impl TurnSlots {
    /// The slots of a turn. Their nonce is the same at each rendering of the turn, and differs
    /// between turns.
    pub fn of(thread: &ThreadId, call: CallId, turn: u32) -> Self {
        let thread = thread.as_str();
        let call = call.to_string();
        let turn = turn.to_string();
        let turn = if mutant("one-nonce-for-all") { String::new() } else { turn };
        let parts = [thread, "\0", &call, "\0", &turn].map(str::as_bytes);
        let digest = Digest::of_parts(&parts).to_string();
        Self { nonce: format!("k{}", digest.chars().take(NONCE_DIGITS).collect::<String>()) }
    }

    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    fn named(&self, slot: &str) -> String {
        format!("{}-{slot}", self.nonce)
    }

    /// Names of the turn's slots.
    pub fn names(&self) -> Vec<String> {
        vec![self.named(FINAL), self.named(PROGRESS)]
    }

    pub(super) fn is_final(&self, name: &PayloadName) -> bool {
        name.namespace.is_empty() && *name.local == *self.named(FINAL)
    }

    pub(super) fn is_progress(&self, name: &PayloadName) -> bool {
        name.namespace.is_empty() && *name.local == *self.named(PROGRESS)
    }

    pub(super) fn opens_final(&self, attempt: &str) -> bool {
        let rest = attempt.strip_prefix('<').and_then(|rest| rest.strip_prefix(&self.named(FINAL)));
        rest.is_some_and(|rest| rest.starts_with(['>', ' ', '\t', '\n', '\r']))
    }

    pub(super) fn final_close(&self) -> String {
        format!("</{}>", self.named(FINAL))
    }

    /// Replaces the slot's name in a text by the general form of such names. The text is read in
    /// the next turn, which would refuse the name of this turn's slot.
    pub fn without_nonce(&self, text: &str) -> String {
        [FINAL, PROGRESS].iter().fold(text.to_owned(), |text, slot| {
            text.replace(&self.named(slot), &format!("NONCE-{slot}"))
        })
    }

    /// General form of the final report without a nonce, which fits any turn.
    pub fn form(format: &FinalFormat) -> String {
        format!("<NONCE-{FINAL} format=\"{}\">...</NONCE-{FINAL}>", format.as_str())
    }

    /// Example of the final report with this turn's slot.
    pub fn example(&self, format: &FinalFormat) -> String {
        let name = self.named(FINAL);
        format!("<{name} format=\"{}\">...</{name}>", format.as_str())
    }

    /// Whether an unknown root element was meant as a slot, by its name.
    pub fn is_meant(&self, name: &str) -> bool {
        self.stranger(name).is_some()
    }

    /// Reason why an unknown root element that resembles a slot is none. `None` if it does not
    /// resemble one.
    pub(super) fn stranger(&self, name: &str) -> Option<SlotMismatch> {
        if name.starts_with(&self.nonce) {
            return Some(SlotMismatch::Slot);
        }
        let slot = name.rsplit('-').next().unwrap_or(name).to_ascii_uppercase();
        [FINAL, PROGRESS].contains(&slot.as_str()).then_some(SlotMismatch::Nonce)
    }
}
