//! The order of a turn's actions, read from the record of the turn: results are shown in it,
//! whatever order they arrived in, and a refusal stands where its action stood.

use std::collections::HashMap;

use crate::envelope::Kind;
use crate::ids::{ListenerName, MessageId};
use crate::thread::Fact;

/// Where the actions of one turn stand, counted over accepted and refused ones.
#[derive(Debug, Default)]
pub(super) struct ActionPlaces {
    accepted: HashMap<MessageId, usize>,
    /// By the message that reports the refusal.
    refused: HashMap<MessageId, usize>,
}

impl ActionPlaces {
    /// `facts` are those of the turn's record.
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

    /// The place of the action that a message of the agent is.
    pub fn of_action(&self, message: MessageId) -> Option<usize> {
        self.accepted.get(&message).copied()
    }

    /// The place of the action whose refusal a message reports.
    pub fn of_refusal(&self, message: MessageId) -> Option<usize> {
        self.refused.get(&message).copied()
    }
}
