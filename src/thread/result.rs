//! The result of a call, from the journal record that closed the call.

use crate::contract::Gather;
use crate::envelope::{Message, MessageKind};
use crate::ids::CallId;
use crate::mutant::mutant;

use super::{Closing, Fact, Record};

/// Returns how a client's call ended, and the messages of its result. `records` are the records of
/// the call's tree. Returns `None` while the result is incomplete.
///
/// The calls of a `first` group are its legs. As soon as one leg has replied, the result of every
/// other leg is complete and has no messages. If all legs failed, each leg has its own fault.
pub fn client_result<'r>(
    records: impl Iterator<Item = &'r Record> + Clone,
    call: CallId,
) -> Option<(Closing, Vec<&'r Message>)> {
    let (how, messages) = records.clone().find_map(|record| record.result_of(call))?;
    let openings = records.clone().flat_map(|record| &record.facts).filter_map(|fact| match fact {
        Fact::Accepted { message, opening: Some(opening), .. } => {
            Some((CallId(message.id), opening.group))
        }
        _ => None,
    });
    let own_group = openings.clone().find(|(opened, _)| *opened == call).and_then(|own| own.1);
    let Some(group @ (_, Gather::First)) = own_group else { return Some((how, messages)) };
    if has_reply(&messages) {
        return Some((how, messages));
    }

    let legs: Vec<_> =
        openings.filter(|(_, own)| *own == Some(group)).map(|(leg, _)| leg).collect();
    let mut open = legs.len();
    for record in records {
        for fact in &record.facts {
            let Fact::CallClosed { call: leg, .. } = fact else { continue };
            if !legs.contains(leg) {
                continue;
            }
            open -= 1;
            if record.result_of(*leg).is_some_and(|(_, replies)| has_reply(&replies)) {
                return Some((how, Vec::new()));
            }
        }
    }
    (open == 0).then_some((how, messages))
}

fn has_reply(messages: &[&Message]) -> bool {
    messages.iter().any(|message| message.kind == MessageKind::Reply)
}

impl Record {
    /// Returns how a call ended, with the messages of its result. Returns `None` if this record did
    /// not close the call. Notes, and messages that the callee received during the call, do not
    /// belong to the result.
    pub fn result_of(&self, call: CallId) -> Option<(Closing, Vec<&Message>)> {
        let how = self.facts.iter().find_map(|fact| match fact {
            Fact::CallClosed { call: closed, how } if *closed == call => Some(*how),
            _ => None,
        })?;
        let is_part = |message: &Message| {
            let is_result = matches!(message.kind, MessageKind::Reply | MessageKind::System);
            let is_last = is_result && message.call.is_none();
            message.cause == Some(call.0) && (is_last || mutant("repeat-what-led-there"))
        };

        let messages = self.facts.iter().filter_map(|fact| match fact {
            Fact::Accepted { message, opening: None, .. } if is_part(message) => Some(&**message),
            _ => None,
        });
        Some((how, messages.collect()))
    }
}
