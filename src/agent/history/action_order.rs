//! The order in which a turn made its actions, read from the record of the turn. Prompts show the
//! results of the actions in this order, even if the results arrived in another order. For a
//! refused action, prompts show the refusal instead of a result.

use std::collections::HashMap;

use crate::envelope::MessageKind;
use crate::ids::{ListenerName, MessageId};
use crate::thread::Fact;

/// Indices of the actions of one turn, counted from 0 in the order of the turn. Accepted and
/// refused actions are counted together.
#[derive(Debug, Default)]
pub(super) struct ActionIndices {
    accepted: HashMap<MessageId, usize>,
    /// Index of each refused action, by the id of the message that reports the refusal.
    refused: HashMap<MessageId, usize>,
}

impl ActionIndices {
    /// Numbers the actions of a turn from 0, in the order of the facts in the turn's record. Each
    /// accepted or refused payload of `agent` in these facts is an action, except:
    /// - accepted notes,
    /// - refusals that concern only the payload inside an accepted primitive, such as
    ///   `spawn-thread`.
    pub fn of(facts: &[Fact], agent: &ListenerName) -> Self {
        let mut places = Self::default();
        let mut next = 0;
        let mut refusal = None;

        for fact in facts {
            match fact {
                Fact::Accepted { message, .. } if message.from == *agent => {
                    if message.kind != MessageKind::Note {
                        places.accepted.insert(message.id, next);
                        next += 1;
                    }
                    refusal = None;
                }
                Fact::Refused { sender, refusal: refused, .. }
                    if sender == agent && !refused.is_of_inner_payload() =>
                {
                    refusal = Some(next);
                    next += 1;
                }
                Fact::Accepted { message, .. }
                    if message.from.is_core() && message.kind == MessageKind::System =>
                {
                    // The message that reports a refusal comes directly after the refusal.
                    if let Some(place) = refusal.take() {
                        places.refused.insert(message.id, place);
                    }
                }
                _ => {}
            }
        }

        places
    }

    /// Returns the index of the action that produced the message. Returns `None` if no action of
    /// the turn produced the message.
    pub fn of_action(&self, message: MessageId) -> Option<usize> {
        self.accepted.get(&message).copied()
    }

    /// Returns the index of the action whose refusal the message reports. Returns `None` for any
    /// other message.
    pub fn of_refusal(&self, message: MessageId) -> Option<usize> {
        self.refused.get(&message).copied()
    }
}
