//! An agent's memory, a pure function of the journal's records up to a position.
//!
//! A prompt shows the thread in the order in which the agent saw it. Records that existed when the
//! prompt of a turn was rendered come before this turn, and all later records come after it. So
//! each prompt continues the previous one, even if messages are recorded while a model is
//! answering.

mod action_order;
mod agent_memories;
mod memory_items;
mod native_results;
mod source_turns;
mod thread_fold;
pub mod transfer;
mod unseen;

use std::sync::Arc;

use crate::envelope::{Message, Payload};
use crate::ids::{CallId, ListenerName, PayloadName, Position, ThreadId};
use crate::model::{OwnBlock, ToolCall};
use crate::system;
use crate::thread::{Fact, Record};

use super::{MemoryScope, RendererVersion};
pub use agent_memories::{AgentMemories, ThreadMemory};
pub(super) use source_turns::{SourceTurn, SourceTurns, TimerNames};
pub use thread_fold::ThreadFold;
pub use unseen::{UnseenMessage, UnseenReason, unseen};

/// The agent, thread, call and position for which a memory is computed.
#[derive(Debug, Clone)]
pub struct Viewpoint<'a> {
    pub agent: &'a ListenerName,
    pub thread: &'a ThreadId,
    pub call: CallId,
    /// Journal position of the delivery.
    pub position: Position,
    pub memory: MemoryScope,
    pub version: RendererVersion,
}

/// One item of an agent's memory: a turn of the agent, another message of the thread, or a mark
/// where items are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryItem {
    /// Text of one of the agent's own turns.
    ModelText(Arc<ModelText>),
    ThreadMessage(Arc<ThreadMessage>),
    /// Mark in place of items that are missing because they are outside the agent's window.
    Cleared,
}

/// The text and the native calls (tool calls) of the model in one turn, verbatim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelText {
    /// The `seq` of the turn's record. A native call is identified by its turn and its id, because
    /// a provider may use the same id in several turns.
    pub turn: u64,
    pub raw: String,
    /// Provider that answered. No other provider can read the turn's opaque blocks, which are data
    /// in the provider's own format.
    pub provider: String,
    pub calls: Vec<RecordedToolCall>,
    pub own: Vec<OwnBlock>,
}

/// A native call (tool call) of the model, and the recorded payload that was made from this call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedToolCall {
    pub call: ToolCall,
    /// The recorded payload; `None` if the native call was refused.
    pub payload: Option<String>,
    /// Whether the payload opened a call, so that the agent gets a result from the call's receiver.
    /// False for notes, for replies, and for messages of the agent to itself.
    pub is_owed: bool,
}

/// A message of the thread. If the message answers a call of the agent, this call is included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadMessage {
    pub message: Arc<Message>,
    pub answers: Option<AnsweredCall>,
    /// Whether the message answers a call that the agent opened in this thread while it handled a
    /// call in another thread.
    pub answers_call_from_other_thread: bool,
    /// Whether the message is a request that opened a call to the agent, and this call ended before
    /// the agent took a turn in it.
    pub ended_without_turn: bool,
    /// Whether the prompt shows a placeholder in place of the message, because the message does not
    /// fit into the context window.
    pub left_out: bool,
    /// Whether the message is a result of an action of the agent, or reports that an action was
    /// refused, and the turn of this action is outside the agent's window.
    pub is_of_cleared_turn: bool,
    /// Native call whose result is this message: the `seq` of the call's turn, and the index of the
    /// call among the native calls of that turn. `None` if the message is no result of a native
    /// call, or if the turn is outside the agent's window.
    pub native: Option<(u64, usize)>,
    /// Action whose result is this message: the `seq` of the action's turn, and the index of the
    /// action among all actions of that turn, including refused ones. `None` if the message is no
    /// result of an action, or if the turn is outside the agent's window.
    pub action: Option<(u64, usize)>,
}

/// A call that the agent has made, and that a message of the thread answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweredCall {
    pub name: PayloadName,
    /// Whether the call went to a group of peers.
    pub group: bool,
    /// Whether the turn that opened the call is still in the agent's window.
    pub in_window: bool,
}

/// An agent's memory, with counts of the agent's turns. Also contains facts about the call that is
/// being delivered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentMemory {
    pub items: Arc<Vec<MemoryItem>>,
    /// Number of the agent's turns in the thread, including those outside the window.
    pub turns: u32,
    /// Number of turns that the agent has taken in the call that is being delivered.
    pub iterations: u32,
    /// Whether any action of the agent was accepted in the call that is being delivered.
    pub acted: bool,
    /// Number of further requests to the agent in the thread. Their calls have not been delivered
    /// yet.
    pub waiting: u32,
    /// Payload name of the request that opened the call that is being delivered; `None` if the
    /// memory does not contain this request.
    pub request: Option<PayloadName>,
    /// Name of the only payload with which the agent may answer the request, if the request is a
    /// goal that declares the type of its answer. `None` for any other request.
    pub answer: Option<PayloadName>,
    /// Name of the payload with which the agent may delegate parts of the request to other agents,
    /// if the request is a goal that permits delegation. `None` for any other request.
    pub delegate: Option<PayloadName>,
    /// Time of the first message of the thread; `None` if there is no message yet. Prompts show the
    /// date of this time as today's date.
    pub began: Option<crate::clock::Time>,
}

/// Computes the memory of `view.agent` in `view.thread`. `records` are all records of the thread.
pub fn of(records: &[Record], view: &Viewpoint<'_>) -> AgentMemory {
    let mut fold = ThreadFold::of(view);
    for record in records.iter().filter(|record| record.position <= view.position) {
        fold.read(record);
    }
    fold.memory(view.call, view.position)
}

/// Whether `message` is the note in which the core states that the message's thread is a fork.
/// `record` is the record of `message`; only the first record of a fork contains this note. Agents
/// do not see the note, so that it causes no difference between the prompts of a fork and of its
/// source.
pub(super) fn states_fork(message: &Message, record: &Record) -> bool {
    let is_fork = |fact: &Fact| matches!(fact, Fact::Forked { .. });
    message.from.is_core() && message.to.is_core() && record.facts.iter().any(is_fork)
}

/// Text that prompts show in place of a redacted payload.
const REDACTED: &str = "[redacted]";

/// Returns the text of a payload as prompts show it. A redacted payload contains only NULs, which
/// must not reach a model. All renderer versions show a placeholder in its place.
fn shown_text(payload: &Payload) -> &str {
    if payload.is_redacted() { REDACTED } else { payload.as_str() }
}

/// Returns the message as prompts show it: with a placeholder in place of a redacted payload.
fn shown_message(message: &Arc<Message>) -> Arc<Message> {
    if !message.payload.is_redacted() {
        return Arc::clone(message);
    }
    Arc::new(Message { payload: Payload::new(REDACTED), ..Message::clone(message) })
}

pub(super) fn is_core(name: &PayloadName, local: &str) -> bool {
    &*name.namespace == system::NAMESPACE && &*name.local == local
}
