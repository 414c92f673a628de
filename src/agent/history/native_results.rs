//! Results of a turn's native calls, read from the record of the turn. The record contains a digest
//! of each native call. The message or refusal with the same digest belongs to this call.

use std::collections::{HashMap, HashSet};

use super::{RecordedToolCall, shown_text};
use crate::agent::protocol::ParsedToolCall;
use crate::envelope::MessageKind;
use crate::ids::{CallId, Digest, ListenerName, MessageId, ThreadId};
use crate::thread::Fact;

/// Results of the native calls (tool calls) of one turn.
#[derive(Debug, Default)]
pub(super) struct CallOutcomes {
    /// Payload of each native call, in the order of the calls; `None` if the call was refused.
    payloads: Vec<Option<String>>,
    /// Index of the native call from which a message of the agent was made, by the id of the
    /// message.
    sent: HashMap<MessageId, usize>,
    /// Indices of the native calls whose payload opened a call to a listener.
    owed: HashSet<usize>,
    /// Index of each refused native call, by the id of the message that reports the refusal.
    refused: HashMap<MessageId, usize>,
    /// Index of each native call whose payload was accepted as a request to the core, but was then
    /// refused by the core. The key is the id of the message that reports the refusal.
    refused_requests: HashMap<MessageId, usize>,
}

impl CallOutcomes {
    /// Finds the result of each native call of a turn: either the messages that were made from the
    /// native call, or its refusal. `calls` are the native calls of the turn, and `facts` are the
    /// facts of the turn's record. Reads only the messages in `thread`, the thread of the turn: the
    /// payload inside a `spawn-thread` or `send-to-thread` is a message in another thread. If
    /// `thread` is `None`, reads the messages in all threads.
    pub fn of(
        calls: &[ParsedToolCall],
        facts: &[Fact],
        agent: &ListenerName,
        thread: Option<&ThreadId>,
    ) -> Self {
        let mut outcomes = Self { payloads: vec![None; calls.len()], ..Self::default() };
        if calls.is_empty() {
            return outcomes;
        }

        let mut open: Vec<bool> = vec![true; calls.len()];
        let mut take = |digest: Digest| {
            let fits = |(call, open): (&ParsedToolCall, &bool)| *open && call.digest == digest;
            let at = calls.iter().zip(&open).position(fits)?;
            *open.get_mut(at)? = false;
            Some(at)
        };

        // A group is a single native call that opens calls to several peers.
        let mut group: Option<(CallId, usize)> = None;
        let mut refusal: Option<usize> = None;

        // The last accepted message that was made from a native call, and the refusal of it.
        let mut last_sent: Option<(Digest, usize)> = None;
        let mut refused_request: Option<usize> = None;

        for fact in facts {
            match fact {
                Fact::Accepted { message, .. }
                    if thread.is_some_and(|thread| message.thread != *thread) => {}
                Fact::Accepted { message, opening, .. } if message.from == *agent => {
                    let leg = opening.as_ref().and_then(|opening| Some(opening.group.as_ref()?.0));
                    let known = group.filter(|(first, _)| leg == Some(*first));
                    let at = known.map(|(_, at)| at).or_else(|| take(message.payload.digest));
                    let Some(at) = at else { continue };
                    if let Some(place) = outcomes.payloads.get_mut(at) {
                        *place = Some(shown_text(&message.payload).to_owned());
                    }
                    group = leg.map(|leg| (leg, at));
                    outcomes.sent.insert(message.id, at);
                    last_sent = Some((message.payload.digest, at));
                    if message.kind == MessageKind::Call {
                        outcomes.owed.insert(at);
                    }
                }
                Fact::Refused { sender, refusal: refused, .. }
                    if sender == agent && !refused.is_of_inner_payload() =>
                {
                    refusal = take(refused.digest);
                    let sent = last_sent.filter(|(digest, _)| *digest == refused.digest);
                    refused_request = sent.map(|(_, at)| at).filter(|_| refusal.is_none());
                }
                Fact::Accepted { message, .. }
                    if message.from.is_core() && message.kind == MessageKind::System =>
                {
                    if let Some(at) = refusal.take() {
                        outcomes.refused.insert(message.id, at);
                    }
                    if let Some(at) = refused_request.take() {
                        outcomes.refused_requests.insert(message.id, at);
                    }
                }
                _ => {}
            }
        }

        outcomes
    }

    /// Returns the index of the native call from which the message was made. Returns `None` if the
    /// message was not made from a native call.
    pub fn call_of(&self, message: MessageId) -> Option<usize> {
        self.sent.get(&message).copied()
    }

    /// Returns the index of the native call whose refusal the message reports. Returns `None` for
    /// any other message.
    pub fn refusal_of(&self, message: MessageId) -> Option<usize> {
        self.refused.get(&message).copied()
    }

    /// If the message reports that the core has refused a request, returns the index of the native
    /// call that made the request. Returns `None` for any other message.
    pub fn refused_request_of(&self, message: MessageId) -> Option<usize> {
        self.refused_requests.get(&message).copied()
    }

    pub fn with_payloads(self, calls: Vec<ParsedToolCall>) -> Vec<RecordedToolCall> {
        let Self { payloads, owed, .. } = self;
        let both = calls.into_iter().zip(payloads).enumerate();
        let recorded = both.map(|(at, (made, payload))| {
            let is_owed = owed.contains(&at);
            RecordedToolCall { call: made.call, payload, is_owed }
        });
        recorded.collect()
    }
}
