//! Reopened calls: calls that were open in the source at the fork point, and are open again in the
//! fork.
//!
//! The fork has the messages of these calls under its own ids. A [`ReopenedCall`], in a fact of its
//! own, holds the other parts of a call's state, such as the number of turns that the listener has
//! taken.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::awaited_answers::{AwaitedAction, PendingMessage, ReplyOrder};
use super::state::{Call, State, Timer, Tree};
use super::{Opener, Opening};
use crate::envelope::{Message, Payload};
use crate::ids::{CallId, ListenerName, MessageId, ThreadId, TimerId};
use crate::system::{self, WaitFor};

/// How a fork continues a call that was open in its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReopenedKind {
    /// The agent or workflow that handles the call continues its work from the state that the call
    /// had at the fork point.
    #[serde(rename = "continued")]
    Continued,
    /// The fork opens the call again, and the call gets the result that the source recorded. This
    /// applies to calls to listeners other than agents and workflows.
    #[serde(rename = "again")]
    Again,
    /// The call belongs to a spawned thread that was still running at the fork point. In the fork,
    /// the call ends immediately.
    #[serde(rename = "ended")]
    Ended,
}

/// A call of the source that the fork opens again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReopenedCall {
    /// Id of the call in the fork.
    #[serde(rename = "call")]
    pub call: CallId,
    /// Id of the call in the source of the fork.
    #[serde(rename = "source")]
    pub source: CallId,
    #[serde(rename = "how")]
    pub how: ReopenedKind,
    /// Messages that the listener of the call has already handled. Each pair contains the id of a
    /// message in the fork, and then the id of the same message in the source.
    #[serde(rename = "handled", default, skip_serializing_if = "Vec::is_empty")]
    pub handled: Vec<(MessageId, MessageId)>,
    /// Messages of the call that wait for their delivery, in the order of delivery.
    #[serde(rename = "pending", default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<ReopenedMessage>,
    #[serde(rename = "awaiting", default, skip_serializing_if = "Vec::is_empty")]
    pub awaiting: Vec<AwaitedAction>,
    #[serde(rename = "next_slot")]
    pub next_slot: u32,
    /// The actions whose results become the result of the call (see [`Call::forwarded`]). Core
    /// versions before 62 did not record these actions, so the list is always empty in their
    /// records.
    #[serde(rename = "forwarded", default, skip_serializing_if = "Vec::is_empty")]
    pub forwarded: Vec<u32>,
    #[serde(rename = "turns")]
    pub turns: u32,
    #[serde(rename = "failed_rounds")]
    pub failed_rounds: u32,
    #[serde(rename = "delegations")]
    pub delegations: u32,
    /// Number of items in the prompt of the agent that handles the call.
    #[serde(rename = "shown")]
    pub shown: u32,
}

/// A message that a reopened call has received and that is not delivered yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReopenedMessage {
    #[serde(rename = "message")]
    pub message: MessageId,
    #[serde(rename = "source")]
    pub source: MessageId,
    #[serde(rename = "slot")]
    pub slot: ReplyOrder,
    #[serde(rename = "answers_call")]
    pub answers_call: bool,
}

impl ReopenedCall {
    /// Returns the ids of each message of the call: first the id in the fork, then the id in the
    /// source.
    pub fn messages(&self) -> impl Iterator<Item = (MessageId, MessageId)> {
        let pending = self.pending.iter().map(|own| (own.message, own.source));
        self.handled.iter().copied().chain(pending)
    }
}

/// The open calls and messages of the source at the fork point, under the ids that they have in the
/// fork.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReopenedCalls {
    /// The reopened calls, each after the call that opened it.
    pub calls: Vec<ReopenedCall>,
    /// The messages of the reopened calls, in the order of acceptance. Each has the [`Opening`] of
    /// the call that it opens, if any. A message keeps the `seq` and the time that it has in the
    /// source.
    pub messages: Vec<(Message, Option<Opening>)>,
    pub timers: BTreeMap<TimerId, Timer>,
    pub waiting: Vec<(CallId, WaitFor)>,
}

impl ReopenedCalls {
    /// Whether a payload of the reopened calls is redacted.
    pub fn is_redacted(&self) -> bool {
        self.messages.iter().any(|(message, _)| message.payload.is_redacted())
    }
}

/// Returns the id that a message of a reopened call gets in the fork. `source` is the id of the
/// message in the source of the fork.
pub fn reopened_id(fork: &ThreadId, source: MessageId) -> MessageId {
    MessageId(Uuid::new_v5(&source.0, fork.as_str().as_bytes()))
}

/// Ids of reopened messages and calls in a fork, by their ids in the source.
#[derive(Debug, Clone, Default)]
pub struct ReopenedNames(BTreeMap<MessageId, MessageId>);

impl ReopenedNames {
    pub fn of<'c>(calls: impl IntoIterator<Item = &'c ReopenedCall>) -> Self {
        let messages = calls.into_iter().flat_map(ReopenedCall::messages);
        Self(messages.map(|(own, source)| (source, own)).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn rename(&self, id: &mut MessageId) {
        if let Some(own) = self.0.get(id) {
            *id = *own;
        }
    }

    /// Converts the id of a call in the source into the id of this call in the fork. A call that
    /// the fork does not reopen keeps its id.
    pub(super) fn call(&self, call: CallId) -> CallId {
        CallId(self.0.get(&call.0).copied().unwrap_or(call.0))
    }

    /// Returns `text` with the ids of the source replaced by the ids of the fork. Returns `None` if
    /// `text` contains no id of the source.
    fn in_text(&self, text: &str) -> Option<String> {
        let mut renamed: Option<String> = None;
        for (source, own) in &self.0 {
            let known = renamed.as_deref().unwrap_or(text);
            let source = source.to_string();
            if known.contains(&source) {
                renamed = Some(known.replace(&source, &own.to_string()));
            }
        }
        renamed
    }

    /// Converts a message of the fork's source into a message of the fork. `fork` is the root
    /// thread of the fork. If the core wrote the payload, also replaces the ids in the text of the
    /// payload, so that an agent can use the new ids in the fork.
    pub(super) fn message(&self, of_source: &Message, fork: &ThreadId) -> Message {
        let mut message = of_source.clone();
        let source = message.thread.root();
        if let Some(renamed) = message.thread.under(fork) {
            message.thread = renamed;
        }
        for id in [Some(&mut message.id), message.cause.as_mut()].into_iter().flatten() {
            self.rename(id);
        }
        message.call = message.call.map(|call| self.call(call));
        if !message.from.is_core() {
            return message;
        }

        let text = message.payload.as_str();
        let renamed = if message.name == system::name(system::MODEL_TURN) {
            self.in_text(text)
        } else {
            match source.replaced_by(fork, text) {
                Cow::Owned(text) => Some(text),
                Cow::Borrowed(_) => None,
            }
        };
        if let Some(text) = renamed {
            message.payload = Payload::new(text);
        }
        message
    }

    /// Replaces each id of the fork's source in a call's opening by the corresponding id of the
    /// fork.
    pub(super) fn rename_opening(&self, opening: &mut Opening, root: &ThreadId) {
        if let Some((group, _)) = &mut opening.group {
            *group = self.call(*group);
        }
        if let Opener::Call { call, thread, .. } = &mut opening.opener {
            *call = self.call(*call);
            *thread = thread.under(root).unwrap_or_else(|| thread.clone());
        }
    }
}

/// The open calls of the source tree, each with the way in which the fork continues it.
struct ReopenedTree<'s> {
    tree: &'s Tree,
    fork: &'s ThreadId,
    /// The reopened calls: how the fork continues each call, and the state of the call in the
    /// source.
    calls: BTreeMap<CallId, (ReopenedKind, &'s Call)>,
}

impl State {
    /// Returns the open calls and messages of the tree `source`, in the form in which the fork
    /// `fork` continues them. The fork begins at a turn of the agent that handles the call `turn`.
    /// `is_answered` returns true for a listener if its calls get the results that the source
    /// recorded.
    ///
    /// Returns `None` if the fork cannot continue the open work, for one of these reasons:
    /// - `turn` is not open.
    /// - `is_answered` returns true for the listener of `turn` or of a call above it.
    /// - The tree keeps a fault that the opener of a call has not received yet.
    pub fn reopened_work(
        &self,
        (source, fork): (&ThreadId, &ThreadId),
        turn: CallId,
        is_answered: impl Fn(&ListenerName) -> bool,
    ) -> Option<ReopenedCalls> {
        let tree = self.trees.get(source).filter(|tree| tree.kept_faults.is_empty())?;
        let above_turn: BTreeSet<CallId> = tree.openers(turn).map(|call| call.id).collect();
        let is_turn_answered = tree.openers(turn).any(|call| is_answered(&call.callee));
        if is_turn_answered || tree.call(turn).is_none() {
            return None;
        }

        let mut calls = BTreeMap::new();
        for call in tree.open_calls() {
            let ends = |own: &Call| !above_turn.contains(&own.id) && tree.is_spawned(own);
            let mut openers = tree.openers(call.id).skip(1);
            if openers.any(|own| is_answered(&own.callee) || ends(own)) {
                continue;
            }
            let how = if ends(call) {
                ReopenedKind::Ended
            } else if is_answered(&call.callee) {
                ReopenedKind::Again
            } else {
                ReopenedKind::Continued
            };
            calls.insert(call.id, (how, call));
        }
        Some(ReopenedTree { tree, fork, calls }.reopened())
    }
}

impl State {
    /// Searches the call `turn` and the open calls above it, from the innermost outwards, for a
    /// listener for which `is_answered` returns true. Returns the first such listener, or `None` if
    /// there is none. `source` is the root of the tree of these calls.
    pub fn answered_above(
        &self,
        source: &ThreadId,
        turn: CallId,
        is_answered: impl Fn(&ListenerName) -> bool,
    ) -> Option<ListenerName> {
        let mut openers = self.trees.get(source)?.openers(turn);
        openers.find(|call| is_answered(&call.callee)).map(|call| call.callee.clone())
    }
}

impl Tree {
    /// Returns a call and the open calls above it, from the innermost outwards.
    fn openers(&self, call: CallId) -> impl Iterator<Item = &Call> {
        std::iter::successors(self.call(call), |call| match &call.opening.opener {
            Opener::Call { call, .. } => self.call(*call),
            Opener::Client { .. } => None,
        })
    }

    /// Whether the thread of a call runs independently of the call's opener. This is so if a call
    /// in another thread opened the call, and the thread is not bound to any call. A bound thread
    /// is cancelled when its call closes.
    fn is_spawned(&self, call: &Call) -> bool {
        let is_elsewhere = matches!(&call.opening.opener,
            Opener::Call { thread, .. } if *thread != call.thread);
        let thread = self.threads.get(&call.thread);
        is_elsewhere && thread.is_some_and(|thread| thread.bound.is_none())
    }

    /// Restores the parts of a reopened call's state that cannot be derived from the messages of
    /// the call.
    pub(super) fn reopen(&mut self, reopened: &ReopenedCall) {
        let has_bound = self.threads.values().any(|own| own.bound == Some(reopened.call));
        let mut forwarded = reopened.forwarded.clone();
        // Records of earlier core versions do not contain these actions.
        if forwarded.is_empty() {
            let is_forward = |leg: &CallId| self.call(*leg).is_some_and(|leg| leg.opening.forward);
            let actions = reopened.awaiting.iter();
            let open = actions.filter(|action| action.open.iter().any(|(leg, _)| is_forward(leg)));
            forwarded = open.map(|action| action.slot).collect();
        }
        let Some(call) = self.calls.get_mut(&reopened.call) else { return };
        let mut waiting = std::mem::take(&mut call.pending);
        let pending = reopened.pending.iter().filter_map(|own| {
            let at = waiting.iter().position(|waiting| waiting.message.id == own.message)?;
            let message = waiting.swap_remove(at).message;
            Some(PendingMessage { slot: own.slot, answers_call: own.answers_call, message })
        });
        call.pending = pending.collect();
        call.awaiting = reopened.awaiting.clone();
        call.next_slot = reopened.next_slot;
        call.forwarded = forwarded.into();
        call.turns = reopened.turns;
        call.failed_rounds = reopened.failed_rounds;
        call.delegations = reopened.delegations;
        call.has_bound = has_bound;

        let callee = call.callee.clone();
        if let Some(thread) = self.threads.get_mut(&call.thread.clone()) {
            *thread.shown.of(&callee) = reopened.shown;
        }
    }
}

impl ReopenedTree<'_> {
    fn reopened(self) -> ReopenedCalls {
        let mut order: Vec<_> = self.calls.values().collect();
        order.sort_by_key(|(_, call)| {
            let seq = call.request().map_or(0, |request| request.seq);
            (self.tree.openers(call.id).count(), call.thread.clone(), seq)
        });

        let calls: Vec<_> = order.iter().map(|(how, call)| self.call(*how, call)).collect();
        let names = ReopenedNames::of(&calls);
        let continued = order.iter().filter(|(how, _)| *how == ReopenedKind::Continued);
        let waiting =
            continued.clone().filter_map(|(_, call)| Some((names.call(call.id), call.waiting?)));
        let timers = self.tree.timers.iter().filter(|(_, timer)| {
            let call = self.calls.get(&timer.call);
            call.is_some_and(|(how, _)| *how == ReopenedKind::Continued)
        });
        let timers = timers
            .map(|(id, timer)| (*id, Timer { call: names.call(timer.call), ..timer.clone() }));

        let requests = order.iter().filter_map(|(_, call)| Some((*call, call.request()?)));
        let opened = requests.map(|(call, request)| {
            let mut opening = call.opening.clone();
            names.rename_opening(&mut opening, self.fork);
            (names.message(request, self.fork), Some(opening))
        });
        let later = continued.flat_map(|(_, call)| {
            let pending = call.pending.iter().map(|own| &own.message);
            call.handled.iter().chain(pending).filter(|own| own.id != call.id.0)
        });
        let later = later.map(|message| (names.message(message, self.fork), None));
        ReopenedCalls {
            messages: opened.chain(later).collect(),
            timers: timers.collect(),
            waiting: waiting.collect(),
            calls,
        }
    }

    fn id(&self, source: MessageId) -> MessageId {
        reopened_id(self.fork, source)
    }

    fn call(&self, how: ReopenedKind, call: &Call) -> ReopenedCall {
        let shown = self.tree.threads.get(&call.thread).and_then(|own| own.shown.get(&call.callee));
        let shown = shown.copied().unwrap_or_default();
        let begun = ReopenedCall {
            call: CallId(self.id(call.id.0)),
            source: call.id,
            how,
            handled: Vec::new(),
            pending: vec![ReopenedMessage {
                message: self.id(call.id.0),
                source: call.id.0,
                slot: ReplyOrder { action: 0, leg: 0 },
                answers_call: false,
            }],
            awaiting: Vec::new(),
            next_slot: 1,
            forwarded: Vec::new(),
            turns: 0,
            failed_rounds: 0,
            delegations: call.delegations,
            shown,
        };
        if how != ReopenedKind::Continued {
            return begun;
        }

        let pending = call.pending.iter().map(|own| ReopenedMessage {
            message: self.id(own.message.id),
            source: own.message.id,
            slot: own.slot,
            answers_call: own.answers_call,
        });
        let handled = call.handled.iter().map(|own| (self.id(own.id), own.id));
        ReopenedCall {
            handled: handled.collect(),
            pending: pending.collect(),
            awaiting: self.awaiting(call),
            next_slot: call.next_slot,
            forwarded: call.forwarded.to_vec(),
            turns: call.turns,
            failed_rounds: call.failed_rounds,
            ..begun
        }
    }

    fn awaiting(&self, call: &Call) -> Vec<AwaitedAction> {
        let leg = |call: CallId| CallId(self.id(call.0));
        let awaiting = call.awaiting.iter().map(|own| AwaitedAction {
            // The first leg of a group may have ended. Then it keeps the id of the source.
            group: if self.calls.contains_key(&own.group) { leg(own.group) } else { own.group },
            open: own.open.iter().map(|(call, number)| (leg(*call), *number)).collect(),
            ..own.clone()
        });
        awaiting.collect()
    }
}
