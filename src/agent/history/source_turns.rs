//! Turns that an agent took in the source of a fork. If a turn of the fork has the same prompt as a
//! turn of the source, the fork's turn gets the answer that the source has recorded, and no model
//! is called.

use std::sync::Arc;

use crate::agent::turn_note::PastTurn;
use crate::envelope::{Message, MessageKind};
use crate::ids::{ListenerName, MessageId, Position, ThreadId};
use crate::system::MODEL_TURN;
use crate::thread::{Fact, Record};
use crate::xml::element::Element;

use super::is_core;

/// Approximate bytes of a turn in memory, not counting the turn's text.
const TURN_BYTES: usize = 1_024;

/// A turn in the source of a fork.
#[derive(Debug, Clone)]
pub(in crate::agent) struct SourceTurn {
    /// Id of the message with the turn's note, in which the core describes the turn.
    pub note: MessageId,
    /// Position of the turn's record.
    pub position: Position,
    pub past: PastTurn,
    /// Payloads of the notes that the agent itself wrote in the turn, in order.
    pub notes: Vec<Arc<str>>,
}

/// The turns of one agent in one thread of a fork's source, oldest first.
#[derive(Debug, Clone, Default)]
pub struct SourceTurns {
    up_to: Position,
    turns: Vec<Arc<SourceTurn>>,
    timers: Vec<TimerNames>,
    bytes: usize,
}

/// Id and time of a timer, as texts. A timer of a fork and the corresponding timer of the source
/// have different ids and times. Therefore, the prompts of fork and source differ in these texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::agent) struct TimerNames {
    pub id: String,
    pub fires_at: String,
}

impl TimerNames {
    /// Parses the core's answer to an agent that has set a timer. Returns `None` for any other
    /// message.
    pub(super) fn read(message: &Message, agent: &ListenerName) -> Option<Self> {
        let is_answer = is_core(&message.name, "timer-set") && message.from.is_core();
        if !is_answer || message.to != *agent {
            return None;
        }
        let payload = Element::read(message.payload.as_str())?;
        let attribute = |name: &str| payload.attribute(name).map(str::to_owned);
        Some(Self { id: attribute("timer_id")?, fires_at: attribute("fires_at")? })
    }
}

impl SourceTurns {
    pub(super) fn after(position: Position) -> Self {
        Self { up_to: position, ..Self::default() }
    }

    pub(super) const fn up_to(&self) -> Position {
        self.up_to
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the turns in `records`. The records must directly follow the records that were added
    /// before.
    pub(super) fn extend(&mut self, records: &[Record], agent: &ListenerName, thread: &ThreadId) {
        let known = self.up_to;
        for record in records.iter().filter(|record| record.position > known) {
            self.up_to = record.position;
            let messages = record.facts.iter().filter_map(|fact| match fact {
                Fact::Accepted { message, .. } if message.thread == *thread => Some(message),
                _ => None,
            });
            let mut notes = Vec::new();
            let mut turn = None;
            for message in messages {
                let payload = message.payload.as_str();
                self.timers.extend(TimerNames::read(message, agent));
                if is_core(&message.name, MODEL_TURN) {
                    let past = PastTurn::read(payload).filter(|past| past.agent == *agent);
                    turn = past.map(|past| (message.id, past));
                } else if message.from == *agent && message.kind == MessageKind::Note {
                    notes.push(Arc::clone(&message.payload.bytes));
                }
            }
            if let Some((note, past)) = turn {
                let notes_bytes = notes.iter().map(|note| note.len());
                self.bytes += TURN_BYTES + past.raw.len() + notes_bytes.sum::<usize>();
                self.turns.push(Arc::new(SourceTurn {
                    note,
                    position: record.position,
                    past,
                    notes,
                }));
            }
        }
    }

    /// Returns the turns in which a model gave an answer or the provider rejected the request. The
    /// turn with the number `turn` comes first, because a fork that repeats its source exactly
    /// needs this turn. All other turns follow, in the order of the source.
    pub(in crate::agent) fn nearest_first(
        &self,
        turn: u32,
    ) -> impl Iterator<Item = &Arc<SourceTurn>> {
        let same = self.turns.iter().filter(move |own| own.past.turn == turn);
        let others = self.turns.iter().filter(move |own| own.past.turn != turn);
        same.chain(others).filter(|own| own.past.stop.is_some())
    }

    /// Returns the timers that the agent set, oldest first.
    pub(in crate::agent) fn timers(&self) -> &[TimerNames] {
        &self.timers
    }

    /// Returns the nonce of a turn, which is a part of the name of the turn's slot. The slot is the
    /// element into which the model writes its final report. Returns `None` if the turn is unknown
    /// or has no slot.
    pub(in crate::agent) fn nonce(&self, turn: u32) -> Option<&str> {
        let found = self.turns.iter().find(|own| own.past.turn == turn);
        found.and_then(|own| own.past.nonce.as_deref())
    }
}
