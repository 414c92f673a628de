//! An agent's memory: a pure function of the journal's records up to a position.
//!
//! A prompt shows the thread in the order in which the agent saw it. For each turn, it shows
//! everything that was recorded up to the position from which that turn was rendered, then the turn
//! itself. So each prompt continues the previous one, although messages may be recorded while a
//! model is answering.

mod action_order;
mod native_results;
pub mod transfer;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::contract::{GoalRoles, goal_name, read_goal_answer};
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::journal;
use crate::system;
use crate::thread::{Fact, Record};

use super::turn_note::{self, PastTurn};
use super::{MemoryScope, RendererVersion};
use crate::model::{OwnBlock, ToolCall};
use action_order::ActionIndices;
use native_results::CallOutcomes;

/// Source of an agent's memory: the journal, read up to a position.
pub trait ThreadHistory: Send + Sync {
    /// Returns every record that concerns `thread`, up to and including the position `up_to`,
    /// oldest first. Records of other threads of the tree may be among them.
    fn records(&self, thread: &ThreadId, up_to: Position) -> Result<Vec<Record>, journal::Error>;
}

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

/// One item of an agent's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryItem {
    /// Text of one of the agent's own turns.
    ModelText(Box<ModelText>),
    ThreadMessage(Box<ThreadMessage>),
    /// Marks a place where items are no longer in the agent's window.
    Cleared,
}

/// The model's text and calls of one turn, verbatim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelText {
    /// `seq` of the turn's record. Identifies the turn of a call, because providers may use the id
    /// of a call again in a later turn.
    pub turn: u64,
    pub raw: String,
    /// Provider that answered. No other provider can read the turn's opaque blocks.
    pub provider: String,
    pub calls: Vec<RecordedToolCall>,
    pub own: Vec<OwnBlock>,
}

/// A native call, and the recorded payload that was made from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedToolCall {
    pub call: ToolCall,
    /// The recorded payload; `None` if the native call was refused.
    pub payload: Option<String>,
}

/// A message of the thread, and the call that it answers, if known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadMessage {
    pub message: Arc<Message>,
    pub answers: Option<AnsweredCall>,
    /// Whether a stub replaces the message, because it does not fit into the context window.
    pub left_out: bool,
    /// The native call whose result this message is: its turn, and its index among the native calls
    /// of the turn. Set only while the turn is in the window.
    pub native: Option<(u64, usize)>,
    /// The action whose result this message is: its turn, and its index among all actions of the
    /// turn, including refused ones. Set only while the turn is in the window.
    pub action: Option<(u64, usize)>,
}

/// A call of the agent that a message answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweredCall {
    pub name: PayloadName,
    /// Whether the call went to a group of peers.
    pub group: bool,
    /// Whether the turn that opened the call is still in the window.
    pub in_window: bool,
}

/// An agent's memory, with the counts that are compared with the limits of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentMemory {
    pub items: Vec<MemoryItem>,
    /// Number of the agent's turns in this thread, including those outside the window.
    pub turns: u32,
    /// Number of the agent's turns in this call.
    pub iterations: u32,
    /// Whether any action of the agent was accepted in this call.
    pub acted: bool,
    /// Name of the request of this call.
    pub request: Option<PayloadName>,
    /// The only payload that answers the request; `None` unless the request is a typed goal.
    pub answer: Option<PayloadName>,
    /// The payload with which the agent may delegate the request; `None` unless the request is a
    /// goal with roles.
    pub delegate: Option<PayloadName>,
    /// Time of the first message of the thread. The prompt uses it as today's date.
    pub began: Option<crate::clock::Time>,
}

/// Computes the memory of `view.agent` in `view.thread`.
pub fn of(records: &[Record], view: &Viewpoint<'_>) -> AgentMemory {
    let mut gathered = ThreadRecords::default();
    for record in records.iter().filter(|record| record.position <= view.position) {
        gathered.read(record, view);
    }

    let mut remembered = AgentMemory {
        turns: count(gathered.turns.iter().map(|_| ())),
        iterations: count(gathered.turns.iter().filter(|turn| turn.past.call == view.call)),
        acted: gathered.acted,
        request: gathered.request.take(),
        answer: gathered.answer.take(),
        delegate: gathered.delegate.take(),
        began: gathered.began,
        ..AgentMemory::default()
    };

    let windows = std::mem::take(&mut gathered.windows);
    let mut places = gathered.in_order(view);
    let before_clearing = places.len();
    let stays = match view.version {
        RendererVersion::V3 => None,
        _ => Some(view.call),
    };

    for (before, kept) in windows {
        clear(&mut places, before, kept, stays);
    }

    let has_gap = stays.is_some() && places.len() < before_clearing;
    remembered.items = shown(places, &gathered);
    if has_gap {
        mark_gap(&mut remembered.items, view.call);
    }

    remembered
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}

/// Records of a thread, sorted into tables.
#[derive(Default)]
struct ThreadRecords {
    turns: Vec<OwnTurn>,
    seen: Vec<(Position, Arc<Message>)>,
    /// The agent's own calls, by the message that opened each of them.
    calls: HashMap<MessageId, OwnCall>,
    /// Native calls as turn and index, by the message that is the result of the call.
    results: HashMap<MessageId, (u64, usize)>,
    /// Refused actions as turn and index, by the message that reports the refusal.
    refusals: HashMap<MessageId, (u64, usize)>,
    /// Messages that an earlier turn replaced by stubs.
    left_out: HashSet<MessageId>,
    /// Each clearing of the window as `(before, kept)`, oldest first.
    windows: Vec<(u64, u32)>,
    acted: bool,
    request: Option<PayloadName>,
    answer: Option<PayloadName>,
    delegate: Option<PayloadName>,
    began: Option<crate::clock::Time>,
}

struct OwnTurn {
    past: PastTurn,
    seq: u64,
    outcomes: CallOutcomes,
    places: ActionIndices,
}

struct OwnCall {
    name: PayloadName,
    group: bool,
    /// `seq` of the turn that opened the call.
    turn: u64,
    /// Index of the native call that opened the call, if it was a native call.
    native: Option<usize>,
    /// Index among the turn's actions of the action that opened the call.
    place: Option<usize>,
}

impl ThreadRecords {
    fn read(&mut self, record: &Record, view: &Viewpoint<'_>) {
        let turn = record.facts.iter().find_map(|fact| own_turn(fact, record, view));
        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, opening, .. } if message.thread == *view.thread => {
                    self.began.get_or_insert(message.time);
                    if message.id == view.call.0 {
                        self.request = Some(message.name.clone());
                        if message.name == goal_name(view.agent) {
                            let payload = message.payload.as_str();
                            self.answer = read_goal_answer(payload);
                            self.delegate = GoalRoles::read(payload).map(|roles| roles.payload);
                        }
                    }
                    let group = opening.as_ref().is_some_and(|opening| opening.group.is_some());
                    self.note(record.position, message, group, turn.as_ref(), view);
                }
                Fact::Window { agent, thread, before, kept }
                    if agent == view.agent && thread == view.thread =>
                {
                    // The turn that requested the clearing is shown, too, and does not count
                    // towards `kept`.
                    let before = turn.as_ref().map_or(*before, |turn| turn.seq.min(*before));
                    self.windows.push((before, *kept));
                }
                _ => {}
            }
        }

        self.left_out.extend(turn.iter().flat_map(|turn| &turn.past.left_out));
        self.turns.extend(turn);
    }

    fn note(
        &mut self,
        position: Position,
        message: &Arc<Message>,
        group: bool,
        turn: Option<&OwnTurn>,
        view: &Viewpoint<'_>,
    ) {
        // Only the agent that took a turn sees its raw text. Other agents see the payloads.
        if is_core(&message.name, turn_note::WORD) {
            return;
        }

        let own = message.from == *view.agent;
        if let Some(turn) = turn.filter(|_| own) {
            if message.kind != MessageKind::Note && turn.past.call == view.call {
                self.acted = true;
            }
            let name = message.name.clone();
            let native = turn.outcomes.call_of(message.id);
            if let (Some(native), MessageKind::Own) = (native, message.kind) {
                self.results.insert(message.id, (turn.seq, native));
            }
            let place = turn.places.of_action(message.id);
            self.calls.insert(message.id, OwnCall { name, group, turn: turn.seq, native, place });
            // The raw text of the turn already shows this message.
            if message.kind != MessageKind::Own {
                return;
            }
        }

        if let Some(turn) = turn
            && let Some(native) = turn.outcomes.refusal_of(message.id)
        {
            self.results.insert(message.id, (turn.seq, native));
        }

        if let Some(turn) = turn
            && let Some(place) = turn.places.of_refusal(message.id)
        {
            self.refusals.insert(message.id, (turn.seq, place));
        }

        if own || message.to == *view.agent || view.memory == MemoryScope::Thread {
            self.seen.push((position, Arc::clone(message)));
        }
    }

    /// All items in the order in which the agent saw them.
    fn in_order(&mut self, view: &Viewpoint<'_>) -> Vec<PlacedItem> {
        let mut met: HashMap<CallId, Position> = HashMap::new();
        for turn in self.turns.iter().rev() {
            met.insert(turn.past.call, turn.past.position);
        }

        met.entry(view.call).or_insert(view.position);
        let mut places = Vec::new();

        for (position, message) in self.seen.drain(..) {
            let mut at = position;
            if message.kind == MessageKind::Call && message.to == *view.agent {
                // A request that had to wait is shown at the first delivery of its call, and not
                // before.
                let Some(first) = met.get(&CallId(message.id)) else { continue };
                at = at.max(*first);
            }
            // A note about one of the agent's calls is shown, but was never delivered.
            let counts = message.to == *view.agent && message.call.is_some();
            let seq = message.seq;
            let item = PlacedContent::ThreadMessage(message);
            places.push(PlacedItem { at, is_model_text: false, seq, counts, item });
        }

        for OwnTurn { past, seq, outcomes, .. } in self.turns.drain(..) {
            let PastTurn { position: at, provider, raw, calls, own, .. } = past;
            let calls = outcomes.with_payloads(calls);
            let item = PlacedContent::ModelText(Box::new(ModelText {
                turn: seq,
                raw,
                provider,
                calls,
                own,
            }));
            places.push(PlacedItem { at, is_model_text: true, seq, counts: true, item });
        }

        places.sort_by_key(|place| (place.at, place.is_model_text, place.seq));
        places
    }
}

fn own_turn(fact: &Fact, record: &Record, view: &Viewpoint<'_>) -> Option<OwnTurn> {
    let Fact::Accepted { message, .. } = fact else { return None };
    if message.thread != *view.thread || !is_core(&message.name, turn_note::WORD) {
        return None;
    }

    let past = PastTurn::read(message.payload.as_str())?;
    if past.agent != *view.agent {
        return None;
    }

    let outcomes = CallOutcomes::of(&past.calls, &record.facts, view.agent);
    let places = ActionIndices::of(&record.facts, view.agent);
    Some(OwnTurn { past, seq: message.seq, outcomes, places })
}

pub(super) fn is_core(name: &PayloadName, local: &str) -> bool {
    &*name.namespace == system::NAMESPACE && &*name.local == local
}

/// An item of the memory, and its place in the order.
struct PlacedItem {
    at: Position,
    is_model_text: bool,
    seq: u64,
    /// Whether the item counts towards the window: it is one of the agent's turns, or a message
    /// that was delivered to the agent.
    counts: bool,
    item: PlacedContent,
}

impl PlacedItem {
    fn is_request_of(&self, call: Option<CallId>) -> bool {
        match &self.item {
            PlacedContent::ThreadMessage(message) => call == Some(CallId(message.id)),
            PlacedContent::ModelText(_) => false,
        }
    }
}

enum PlacedContent {
    ModelText(Box<ModelText>),
    ThreadMessage(Arc<Message>),
}

/// Removes items whose `seq` is less than `before`, except the last `kept` of those that count and
/// the items between them. The request of the call `stays` is never removed.
fn clear(places: &mut Vec<PlacedItem>, before: u64, kept: u32, stays: Option<CallId>) {
    let mut left = kept;
    let mut cut = places.len();
    for (index, place) in places.iter().enumerate().rev() {
        if place.seq >= before {
            cut = index;
        } else if place.counts {
            if left == 0 {
                break;
            }
            left -= 1;
            cut = index;
        }
    }

    let mut index = 0;
    places.retain(|place| {
        let is_kept = index >= cut || place.seq >= before || place.is_request_of(stays);
        index += 1;
        is_kept
    });
}

/// Inserts a mark for the removed items: after the open request if the window begins with that
/// request, otherwise at the beginning.
fn mark_gap(items: &mut Vec<MemoryItem>, call: CallId) {
    let is_request = |item: &MemoryItem| match item {
        MemoryItem::ThreadMessage(seen) => CallId(seen.message.id) == call,
        MemoryItem::ModelText(_) | MemoryItem::Cleared => false,
    };
    let at = usize::from(items.first().is_some_and(is_request));
    items.insert(at, MemoryItem::Cleared);
}

fn shown(places: Vec<PlacedItem>, gathered: &ThreadRecords) -> Vec<MemoryItem> {
    let ThreadRecords { calls, results, refusals, left_out, .. } = gathered;
    let model_text: HashSet<u64> =
        places.iter().filter(|p| p.is_model_text).map(|p| p.seq).collect();
    let answered = |message: &Message| {
        let call = calls.get(&message.cause?)?;
        let in_window = model_text.contains(&call.turn);
        Some(AnsweredCall { name: call.name.clone(), group: call.group, in_window })
    };

    // The message is the result of a native call, or of the call that this native call became.
    let native = |message: &Message| {
        let (turn, call) = match results.get(&message.id) {
            Some(known) => *known,
            None => {
                let call = calls.get(&message.cause?)?;
                (call.turn, call.native?)
            }
        };
        model_text.contains(&turn).then_some((turn, call))
    };

    // A message of the agent to itself is its own result: `recorded`.
    let action = |message: &Message| {
        let (turn, place) = match refusals.get(&message.id) {
            Some(known) => *known,
            None => {
                let own = calls.get(&message.id).filter(|_| message.kind == MessageKind::Own);
                let call = own.or_else(|| calls.get(&message.cause?))?;
                (call.turn, call.place?)
            }
        };
        model_text.contains(&turn).then_some((turn, place))
    };

    let show = |place: PlacedItem| match place.item {
        PlacedContent::ModelText(model_text) => MemoryItem::ModelText(model_text),
        PlacedContent::ThreadMessage(message) => {
            let answers = answered(&message);
            let native = native(&message);
            let left_out = left_out.contains(&message.id);
            let action = action(&message);
            MemoryItem::ThreadMessage(Box::new(ThreadMessage {
                message,
                answers,
                left_out,
                native,
                action,
            }))
        }
    };

    places.into_iter().map(show).collect()
}
