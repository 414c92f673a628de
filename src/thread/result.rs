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

/// Whether the result of a call contains a reply. `messages` are the messages of the result.
pub fn has_reply(messages: &[&Message]) -> bool {
    messages.iter().any(|message| message.kind == MessageKind::Reply)
}

impl Closing {
    /// Returns how a request to several peers has ended so far, after one more of its calls has
    /// ended. `self` states how this call has ended. `earlier` is the result of this function for
    /// the calls that ended before, and `None` for the first call. `has_reply` states whether the
    /// result of this call contains a reply.
    ///
    /// - If `gather` makes the first reply the result of the request, and this call has replied,
    ///   the request ends as this call has ended.
    /// - Otherwise, the request has failed if any call has failed. If no call has failed, but one
    ///   was cancelled, the request is cancelled. If all calls have completed, the request has
    ///   completed.
    #[must_use]
    pub fn of_group(self, earlier: Option<Self>, gather: Gather, has_reply: bool) -> Self {
        if gather == Gather::First && has_reply {
            return self;
        }
        match (self, earlier) {
            (Self::Failed, _) | (_, Some(Self::Failed)) => Self::Failed,
            (Self::Cancelled, _) | (_, Some(Self::Cancelled)) => Self::Cancelled,
            (Self::Completed, Some(Self::Completed) | None) => Self::Completed,
        }
    }
}

impl Record {
    /// Returns how a call ended, with the messages of its result. Returns `None` if this record did
    /// not close the call. Notes, and messages that the callee received during the call, do not
    /// belong to the result.
    pub fn result_of(&self, call: CallId) -> Option<(Closing, Vec<&Message>)> {
        let how = self.closing_of(call)?;
        let messages = self.accepted_messages().filter(|message| is_result_part(message, call));
        Some((how, messages.collect()))
    }
}

/// Whether `message` belongs to the result of `call`, if the record of the message closes `call`.
pub(super) fn is_result_part(message: &Message, call: CallId) -> bool {
    let is_result = matches!(message.kind, MessageKind::Reply | MessageKind::System);
    let is_last = is_result && message.call.is_none();
    message.cause == Some(call.0) && (is_last || mutant("repeat-what-led-there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_request_to_several_peers_does_not_depend_on_the_order_of_their_ends() {
        let done = (Closing::Completed, true);
        let acknowledged = (Closing::Completed, false);
        let failed = (Closing::Failed, false);
        let cancelled = (Closing::Cancelled, false);
        let cases = [
            (Gather::All, done, failed, Closing::Failed),
            (Gather::All, acknowledged, failed, Closing::Failed),
            (Gather::All, cancelled, failed, Closing::Failed),
            (Gather::All, done, cancelled, Closing::Cancelled),
            (Gather::All, done, acknowledged, Closing::Completed),
            (Gather::First, acknowledged, failed, Closing::Failed),
            (Gather::First, acknowledged, cancelled, Closing::Cancelled),
        ];
        let end = |gather, calls: [(Closing, bool); 2]| {
            calls.into_iter().fold(None, |earlier, (how, has_reply): (Closing, bool)| {
                Some(how.of_group(earlier, gather, has_reply))
            })
        };
        for (gather, one, other, expected) in cases {
            assert_eq!(end(gather, [one, other]), Some(expected), "{gather:?} {one:?} {other:?}");
            assert_eq!(end(gather, [other, one]), Some(expected), "{gather:?} {other:?} {one:?}");
        }

        // The first reply ends the other calls, and its own call ends last.
        for other in [acknowledged, failed, cancelled] {
            assert_eq!(end(Gather::First, [other, done]), Some(Closing::Completed), "{other:?}");
        }
    }
}
