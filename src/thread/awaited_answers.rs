//! Orders the answers to a listener's outcome, and determines when all of them have arrived. An
//! outcome is the list of payloads that the listener's handler returned. Each payload in it that
//! requests something is an action. The listener gets the answers to all actions in one delivery,
//! in the order of the actions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Opening;
use super::message_text;
use super::state::Call;
use crate::contract::Gather;
use crate::envelope::{Message, MessageKind};
use crate::ids::CallId;
use crate::system::WaitFor;

/// A message that a call has received and that is not delivered yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingMessage {
    #[serde(rename = "slot")]
    pub slot: ReplyOrder,
    /// Whether the message is the result of a call in the same thread.
    #[serde(rename = "answers_call")]
    pub answers_call: bool,
    #[serde(rename = "message", with = "message_text::one")]
    pub message: Arc<Message>,
}

/// Place of a message among the pending messages of a call. Answers have the order of the actions
/// in the latest outcome of the call's listener. Answers to an action that calls a group have the
/// order of the group's calls (legs). Messages that answer no action come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReplyOrder {
    #[serde(rename = "action")]
    pub action: u32,
    #[serde(rename = "leg")]
    pub leg: u32,
}

impl ReplyOrder {
    pub const UNREQUESTED: Self = Self { action: u32::MAX, leg: 0 };
}

/// An action of a listener's latest outcome that still awaits answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedAction {
    #[serde(rename = "slot")]
    pub slot: u32,
    /// Id of the group of calls that the action opened, which is the id of the group's first call.
    #[serde(rename = "group")]
    pub group: CallId,
    #[serde(rename = "gather")]
    pub gather: Gather,
    /// The open calls of this action, each with its number among all calls of the action. An action
    /// that calls a group has several calls, the legs.
    #[serde(rename = "open", default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<(CallId, u32)>,
    #[serde(rename = "legs")]
    pub legs: u32,
}

impl Call {
    /// Whether the call's listener may get a delivery. This is so if the call is not held, no
    /// `wait` is in progress, and all answers to the listener's latest outcome have arrived.
    pub fn is_ready(&self) -> bool {
        self.held.is_none() && self.awaiting.is_empty() && self.wait_is_over()
    }

    fn wait_is_over(&self) -> bool {
        match self.waiting {
            None => true,
            Some(WaitFor::All) => !self.has_open(),
            Some(WaitFor::Any) => !self.has_open() || self.has_news(),
        }
    }

    /// Whether the call has a running timer, or an open call that it has opened in another thread.
    pub fn has_open(&self) -> bool {
        !self.remote_calls.is_empty() || self.timers > 0
    }

    /// Whether a result from another thread, or a fired timer, waits to be delivered to the call.
    pub fn has_news(&self) -> bool {
        let news =
            |p: &PendingMessage| matches!(&*p.message.name.local, "thread-result" | "timer-fired");
        self.pending.iter().any(|p| p.message.kind == MessageKind::System && news(p))
    }

    /// Whether the listener has forwarded the action with the number `action` of its latest
    /// outcome. The actions are numbered as in `ReplyOrder`. The result of a forwarded action
    /// becomes the result of this call.
    pub fn is_forwarded(&self, action: u32) -> bool {
        self.forwarded.contains(&action)
    }

    /// Whether this call waits for the result of an action that its listener has forwarded.
    pub fn awaits_forwarded(&self) -> bool {
        self.awaiting.iter().any(|awaited| self.is_forwarded(awaited.slot))
    }

    pub(super) fn await_leg(&mut self, leg: CallId, opening: &Opening) {
        let (group, gather) = opening.group.unwrap_or((leg, Gather::All));
        if let Some(awaited) = self.awaiting.iter_mut().find(|a| a.group == group) {
            awaited.open.push((leg, awaited.legs));
            awaited.legs += 1;
            return;
        }

        let slot = self.next_slot;
        self.next_slot += 1;
        if opening.forward {
            self.forwarded.push(slot);
        }
        self.awaiting.push(AwaitedAction { slot, group, gather, open: vec![(leg, 0)], legs: 1 });
    }

    pub(super) fn close_awaited_leg(&mut self, leg: CallId) {
        for awaited in &mut self.awaiting {
            awaited.open.retain(|(open, _)| *open != leg);
        }
        self.awaiting.retain(|awaited| !awaited.open.is_empty());
    }

    /// Inserts a message among the pending messages of the call, at the place that [`ReplyOrder`]
    /// determines.
    pub(super) fn expect(&mut self, message: &Arc<Message>) {
        self.pass_to_message(message.time);
        let leg = message.cause.map(CallId).and_then(|cause| self.slot_of(cause));
        let slot = match leg {
            Some(slot) => slot,
            None if is_unrequested(message) => ReplyOrder::UNREQUESTED,
            None => {
                let action = self.next_slot;
                self.next_slot += 1;
                ReplyOrder { action, leg: 0 }
            }
        };

        let after = self.pending.partition_point(|p| p.slot <= slot);
        let answers_call = leg.is_some();
        let message = Arc::clone(message);
        self.pending.insert(after, PendingMessage { slot, answers_call, message });
    }

    fn slot_of(&self, leg: CallId) -> Option<ReplyOrder> {
        self.awaiting.iter().find_map(|awaited| {
            let (_, place) = awaited.open.iter().find(|(open, _)| *open == leg)?;
            Some(ReplyOrder { action: awaited.slot, leg: *place })
        })
    }
}

/// Whether the message is a system payload that may arrive although the listener's latest outcome
/// did not request it.
fn is_unrequested(message: &Message) -> bool {
    matches!(&*message.name.local, "thread-result" | "timer-fired" | "budget-warning")
}
