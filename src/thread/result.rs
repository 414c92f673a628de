//! The result of a call, from the record that closed it.

use crate::envelope::{Kind, Message};
use crate::ids::CallId;
use crate::mutant::mutant;

use super::{Closing, Fact, Record};

impl Record {
    /// How a call ended, with the messages of its result, where this record closed it. Notes, and
    /// messages that its callee was given on the way, are no part of it.
    pub fn result_of(&self, call: CallId) -> Option<(Closing, Vec<&Message>)> {
        let how = self.facts.iter().find_map(|fact| match fact {
            Fact::CallClosed { call: closed, how } if *closed == call => Some(*how),
            _ => None,
        })?;
        let is_part = |message: &Message| {
            let is_result = matches!(message.kind, Kind::Reply | Kind::System);
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
