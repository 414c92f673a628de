//! The slots of one turn, named by its nonce.

use crate::agent::FinalFormat;
use crate::ids::{CallId, Digest, PayloadName, ThreadId};
use crate::mutant::mutant;

const FINAL: &str = "FINAL";
const PROGRESS: &str = "PROGRESS";
/// Digits of a nonce after its first letter.
const NONCE_DIGITS: usize = 8;

/// The slots of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnSlots {
    nonce: String,
}

/// How a slot is none of this turn's.
pub(super) enum SlotMismatch {
    /// Another turn's, or one that was made up.
    Nonce,
    /// This turn's nonce on a slot that there is not.
    Slot,
}

impl TurnSlots {
    /// The nonce of a turn: the same whenever the turn is rendered again, another in every turn.
    pub fn of(thread: &ThreadId, call: CallId, turn: u32) -> Self {
        let (thread, call, turn) = (thread.as_str(), call.to_string(), turn.to_string());
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

    /// The names of its roots.
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

    /// Replaces the slot's name in a text that the next turn reads by the general form of a slot.
    /// The next turn refuses the slot's name.
    pub fn without_nonce(&self, text: &str) -> String {
        [FINAL, PROGRESS].iter().fold(text.to_owned(), |text, slot| {
            text.replace(&self.named(slot), &format!("NONCE-{slot}"))
        })
    }

    /// Form of the final report without a nonce, valid in any turn.
    pub fn form(format: &FinalFormat) -> String {
        format!("<NONCE-{FINAL} format=\"{}\">...</NONCE-{FINAL}>", format.as_str())
    }

    /// How the final report is written in this turn.
    pub fn example(&self, format: &FinalFormat) -> String {
        let name = self.named(FINAL);
        format!("<{name} format=\"{}\">...</{name}>", format.as_str())
    }

    /// Whether an unknown root is meant as a slot.
    pub(super) fn stranger(&self, name: &str) -> Option<SlotMismatch> {
        if name.starts_with(&self.nonce) {
            return Some(SlotMismatch::Slot);
        }
        let slot = name.rsplit('-').next().unwrap_or(name).to_ascii_uppercase();
        [FINAL, PROGRESS].contains(&slot.as_str()).then_some(SlotMismatch::Nonce)
    }
}
