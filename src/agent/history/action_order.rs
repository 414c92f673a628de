//! Order of a turn's actions, read from the turn's record. Prompts show results in this order,
//! whatever the order of their arrival, and a refusal at the index of its action.

use std::collections::HashMap;

use crate::envelope::Kind;
use crate::ids::{ListenerName, MessageId};
use crate::thread::Fact;

/// Indices of one turn's actions, over accepted and refused ones.
#[derive(Debug, Default)]
pub(super) struct ActionPlaces {
    accepted: HashMap<MessageId, usize>,
    /// Index of the refused action, by the message that reports the refusal.
    refused: HashMap<MessageId, usize>,
}

impl ActionPlaces {
    /// Reads the indices from `facts`, those of the turn's record.
    pub fn of(facts: &[Fact], agent: &ListenerName) -> Self {
        let mut places = Self::default();
        let mut next = 0;
        let mut refusal = None;

        for fact in facts {
            match fact {
                Fact::Accepted { message, .. } if message.from == *agent => {
                    if message.kind != Kind::Note {
                        places.accepted.insert(message.id, next);
                        next += 1;
                    }
                    refusal = None;
                }
                Fact::Refused { sender, .. } if sender == agent => {
                    refusal = Some(next);
                    next += 1;
                }
                Fact::Accepted { message, .. }
                    if message.from.is_core() && message.kind == Kind::System =>
                {
                    // The report of a refusal follows it at once.
                    if let Some(place) = refusal.take() {
                        places.refused.insert(message.id, place);
                    }
                }
                _ => {}
            }
        }

        places
    }

    /// Index of the action that made a message of the agent.
    pub fn of_action(&self, message: MessageId) -> Option<usize> {
        self.accepted.get(&message).copied()
    }

    /// Index of the action whose refusal a message reports.
    pub fn of_refusal(&self, message: MessageId) -> Option<usize> {
        self.refused.get(&message).copied()
    }
}
