//! The slots of one turn: the elements into which a model writes its reports. The name of each slot
//! contains the turn's nonce.

use crate::agent::FinalFormat;
use crate::ids::{CallId, Digest, PayloadName, ThreadId};
use crate::mutant::mutant;

const FINAL: &str = "FINAL";
const PROGRESS: &str = "PROGRESS";
/// Number of hexadecimal digits in a nonce. The digits follow the letter `k`, which is the first
/// character of every nonce.
const NONCE_DIGITS: usize = 8;

/// The slots of one turn: two elements that the model can write in its text. One is for the final
/// report. The other is for a progress report, which has no effect except feedback to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnSlots {
    nonce: String,
}

/// Reason why an element is not accepted as a slot of this turn, although the model meant it as
/// one.
pub(super) enum SlotMismatch {
    /// The name of the element does not contain the nonce of the turn.
    Nonce,
    /// The name of the element contains the nonce of the turn, but the turn has no slot of this
    /// name.
    Slot,
}

impl TurnSlots {
    /// Creates the slots of a turn. Their nonce is derived from the thread, the call and the number
    /// of the turn. So two turns have different nonces, but a turn that is rendered again keeps its
    /// nonce.
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

    /// Returns the names of the turn's slots.
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

    /// Replaces this turn's nonce by the word `NONCE` in the names of slots in `text`. The model
    /// reads `text` in its next turn, which has another nonce.
    pub fn without_nonce(&self, text: &str) -> String {
        [FINAL, PROGRESS].iter().fold(text.to_owned(), |text, slot| {
            text.replace(&self.named(slot), &format!("NONCE-{slot}"))
        })
    }

    /// Returns an example of the slot for the final report. The example contains the word `NONCE`
    /// in place of a nonce, and therefore fits any turn.
    pub fn form(format: &FinalFormat) -> String {
        format!("<NONCE-{FINAL} format=\"{}\">...</NONCE-{FINAL}>", format.as_str())
    }

    /// Returns an example of a final report in the slot of this turn.
    pub fn example(&self, format: &FinalFormat) -> String {
        let name = self.named(FINAL);
        format!("<{name} format=\"{}\">...</{name}>", format.as_str())
    }

    /// Whether an unknown root element with this name was probably meant as a slot, an element for
    /// a report.
    pub fn is_meant(&self, name: &str) -> bool {
        self.stranger(name).is_some()
    }

    /// Returns why the unknown root element `name`, which the model apparently meant as a slot, is
    /// no slot of this turn. Returns `None` if the name does not resemble the name of a slot.
    pub(super) fn stranger(&self, name: &str) -> Option<SlotMismatch> {
        if name.starts_with(&self.nonce) {
            return Some(SlotMismatch::Slot);
        }
        let slot = name.rsplit('-').next().unwrap_or(name).to_ascii_uppercase();
        [FINAL, PROGRESS].contains(&slot.as_str()).then_some(SlotMismatch::Nonce)
    }
}
