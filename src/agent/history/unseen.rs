//! Finds the messages of a thread that the prompt of a turn does not show, and states the reason
//! for each of these messages.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::agent::MemoryScope;
use crate::agent::turn_note::PastTurn;
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, MessageId};
use crate::system::MODEL_TURN;
use crate::thread::{Fact, Record};

use super::thread_fold::ThreadFold;
use super::{MemoryItem, Viewpoint, is_core, states_fork};

/// A message of a thread that a turn's prompt does not show, although the message was recorded
/// before the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnseenMessage {
    pub message: Arc<Message>,
    pub reason: UnseenReason,
}

/// Why a prompt does not show a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnseenReason {
    /// The agent cleared its window with `clear-context`.
    Cleared,
    /// A placeholder replaces the message, because the message did not fit into the context window
    /// of the model.
    DidNotFit,
    /// The message went between other listeners, and this agent remembers only messages that it
    /// sent or received.
    AmongOthers,
    /// The message is the request of another call to the agent. Prompts show such a request only
    /// after its call has been delivered or has ended.
    Waiting,
    /// The message is the text of another agent's turn. Payloads in that text are separate
    /// messages.
    TextOfAnother,
    /// The message is the fault or the late reply of a peer in a `first` group, and has no effect,
    /// because another peer of the group has replied.
    Cancelled,
    /// The message is a turn of the agent itself. The text of this turn was redacted.
    Redacted,
}

impl UnseenReason {
    pub const ALL: [Self; 7] = [
        Self::Cleared,
        Self::DidNotFit,
        Self::AmongOthers,
        Self::Waiting,
        Self::TextOfAnother,
        Self::Cancelled,
        Self::Redacted,
    ];
}

/// The messages and turns that a prompt shows.
struct ShownItems {
    /// The shown messages. The value is true if the prompt shows a placeholder instead of the
    /// message's text.
    messages: HashMap<MessageId, bool>,
    /// The `seq` of each shown turn of the agent.
    turns: HashSet<u64>,
}

impl ShownItems {
    fn of(items: &[MemoryItem], left_out: &[MessageId]) -> Self {
        let mut shown = Self { messages: HashMap::new(), turns: HashSet::new() };
        for item in items {
            match item {
                MemoryItem::ModelText(text) => {
                    shown.turns.insert(text.turn);
                }
                MemoryItem::ThreadMessage(seen) => {
                    let id = seen.message.id;
                    let is_stub = seen.left_out || left_out.contains(&id);
                    shown.messages.insert(id, is_stub);
                }
                MemoryItem::Cleared => {}
            }
        }
        shown
    }
}

/// Returns the messages of a thread that the prompt of a turn does not show, oldest first. `view`
/// identifies the turn. Messages after the position in `view` are ignored. `left_out` lists the
/// messages that placeholders replace in this prompt.
pub fn unseen(
    records: &[Record],
    view: &Viewpoint<'_>,
    left_out: &[MessageId],
) -> Vec<UnseenMessage> {
    let mut fold = ThreadFold::of(view);
    fold.extend(records, view.position);
    let memory = fold.memory(view.call, view.position);
    let shown = ShownItems::of(&memory.items, left_out);

    let before = records.iter().filter(|record| record.position <= view.position);
    let messages = before.flat_map(|record| {
        record.facts.iter().filter_map(move |fact| match fact {
            Fact::Accepted { message, .. } if !states_fork(message, record) => Some(message),
            _ => None,
        })
    });
    let own = messages.filter(|message| message.thread == *view.thread);
    let unseen = own.filter_map(|message| {
        let reason = reason(&fold, view, &shown, message)?;
        Some(UnseenMessage { message: Arc::clone(message), reason })
    });
    unseen.collect()
}

/// Returns why the prompt does not show the message. Returns `None` if the prompt shows it.
fn reason(
    fold: &ThreadFold,
    view: &Viewpoint<'_>,
    shown: &ShownItems,
    message: &Message,
) -> Option<UnseenReason> {
    if is_core(&message.name, MODEL_TURN) {
        if message.payload.is_redacted() && message.to == *view.agent {
            return Some(UnseenReason::Redacted);
        }
        let agent = PastTurn::read(message.payload.as_str()).map(|turn| turn.agent);
        let is_own = agent.is_some_and(|agent| agent == *view.agent);
        if !is_own {
            return Some(UnseenReason::TextOfAnother);
        }
        return (!shown.turns.contains(&message.seq)).then_some(UnseenReason::Cleared);
    }
    // A message of the agent itself is shown by the text of the turn that wrote it.
    let is_own = message.kind != MessageKind::Own && message.from == *view.agent;
    if let Some(call) = fold.calls.get(&message.id).filter(|_| is_own) {
        return (!shown.turns.contains(&call.turn)).then_some(UnseenReason::Cleared);
    }

    match shown.messages.get(&message.id) {
        Some(false) => return None,
        Some(true) => return Some(UnseenReason::DidNotFit),
        None if fold.void_faults.contains(&message.id) => return Some(UnseenReason::Cancelled),
        None if fold.void_replies.contains(&message.id) => return Some(UnseenReason::Cancelled),
        None => {}
    }
    let is_of_agent = message.from == *view.agent || message.to == *view.agent;
    if !is_of_agent && view.memory != MemoryScope::Thread {
        return Some(UnseenReason::AmongOthers);
    }
    let is_request = message.kind == MessageKind::Call && message.to == *view.agent;
    let has_turn = || fold.turn_calls().any(|call| call.0 == message.id);
    let was_shown = has_turn() || fold.ends.contains_key(&CallId(message.id));
    if is_request && message.id != view.call.0 && !was_shown {
        return Some(UnseenReason::Waiting);
    }
    Some(UnseenReason::Cleared)
}
