//! Tables of an agent's turns, messages and calls, computed from the records of one thread. Before
//! each turn, only the new records of the thread are read and added to the tables.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::contract::{Gather, GoalRoles, goal_name, read_goal_answer};
use crate::envelope::{Disposition, Message, MessageKind};
use crate::ids::{CallId, ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::system::MODEL_TURN;
use crate::thread::{Closing, Fact, Opener, Opening, Record};

use super::action_order::ActionIndices;
use super::memory_items::MemoryItems;
use super::native_results::CallOutcomes;
use super::transfer::replied_to;
use super::{AgentMemory, ModelText, TimerNames, Viewpoint, is_core, shown_message, states_fork};
use crate::agent::turn_note::PastTurn;
use crate::agent::{MemoryScope, RendererVersion};

/// A table whose keys are message ids.
type ByMessage<V> = HashMap<MessageId, V, foldhash::fast::RandomState>;

/// Approximate bytes of a message or a turn in memory, not counting its text.
const ITEM_BYTES: usize = 512;

/// Tables of one agent's turns, messages and calls in one thread, up to a position.
pub struct ThreadFold {
    agent: ListenerName,
    thread: ThreadId,
    scope: MemoryScope,
    /// Renderer version of the prompts that are made from the tables.
    version: RendererVersion,
    /// Journal position up to which the tables contain the thread.
    up_to: Position,
    /// Approximate size in memory, in bytes.
    bytes: usize,
    pub(super) turns: Vec<OwnTurn>,
    /// Each turn of the agent, oldest first. Includes turns whose text was redacted.
    pub(super) taken: Vec<TakenTurn>,
    pub(super) seen: Vec<(Position, Arc<Message>)>,
    /// The agent's own calls, by the id of the message that opened the call.
    pub(super) calls: ByMessage<OwnCall>,
    /// Native calls, by the messages that belong to them. A key is a message that the agent sent to
    /// itself by a native call, or a message that reports a refused native call. The value is the
    /// `seq` of the turn that made the native call, and the index of the native call in that turn.
    pub(super) results: ByMessage<(u64, usize)>,
    /// Native calls whose request the core has refused, by the messages that report these refusals.
    /// The value is the `seq` of the turn that made the native call, and the index of the native
    /// call in that turn.
    pub(super) refused_requests: ByMessage<(u64, usize)>,
    /// Listeners, other than the agent, that called a `first` group. The result of a call to a
    /// `first` group is the first reply of any peer in the group. The key is a message that opened
    /// a call to a peer of the group; the value is the sender of this message. Empty if the agent
    /// does not remember messages between other listeners.
    callers_of_first: ByMessage<ListenerName>,
    /// Faults that ended calls to peers of a `first` group. The value is the listener that called
    /// the group.
    leg_faults: ByMessage<ListenerName>,
    /// Faults in `leg_faults` that have no effect, because another peer of the group has replied.
    pub(super) void_faults: HashSet<MessageId>,
    /// Calls to peers of a `first` group that were cancelled because another peer of the group had
    /// replied.
    lost_legs: HashSet<MessageId>,
    /// Replies to the calls in `lost_legs`. These replies have no effect. Empty in renderer
    /// versions before the twelfth, which show them.
    pub(super) void_replies: HashSet<MessageId>,
    /// Calls that the agent opened in this thread from another thread.
    pub(super) calls_from_other_threads: HashSet<MessageId>,
    /// Messages that report the refusal of an action. The value identifies the refused action: the
    /// `seq` of its turn, and its index among the actions of that turn.
    pub(super) refusals: ByMessage<(u64, usize)>,
    /// Messages that a recorded turn replaced by placeholders in its prompt. A redaction of the turn
    /// removes its list, so the next turn may have to replace the same messages anew.
    pub(super) left_out: HashSet<MessageId>,
    /// The agent's window after each `clear-context`, oldest first.
    pub(super) windows: Vec<ClearedWindow>,
    /// The requests to the agent in the thread of these tables.
    requests: ByMessage<Arc<Message>>,
    /// Position of the end of each closed call to the agent in this thread. Empty in renderer
    /// versions before the twelfth, whose prompts do not depend on these ends.
    pub(super) ends: HashMap<CallId, Position>,
    /// Calls in which an action of the agent was accepted.
    acted: HashSet<CallId>,
    began: Option<crate::clock::Time>,
    /// Items of the agent's memory, as they were last computed; `None` if they were never computed.
    items: Option<MemoryItems>,
}

/// The agent's window after a `clear-context`. The window contains all items whose `seq` is at
/// least `before`. Of the older items, it contains the last `kept`.
pub(super) struct ClearedWindow {
    /// Position of the record that contains the `clear-context`.
    pub position: Position,
    pub before: u64,
    pub kept: u32,
}

/// The call of one of the agent's turns, which is known even if the turn was redacted.
pub(super) struct TakenTurn {
    pub call: CallId,
    /// Position at which the request of the call was visible to the turn: the position up to which
    /// the turn's prompt shows the thread. A redaction removes this position, and the position of
    /// the turn's record replaces it. `None` for a redacted turn in renderer versions before the
    /// fifteenth.
    pub request_at: Option<Position>,
}

/// One of the agent's turns, with its text.
pub(super) struct OwnTurn {
    /// Position up to which the turn's prompt shows the thread.
    pub position: Position,
    pub text: Arc<ModelText>,
}

pub(super) struct OwnCall {
    pub name: PayloadName,
    /// How the results of a group of peers are gathered; `None` if the call went to a single peer.
    pub group: Option<Gather>,
    /// `seq` of the turn in which the agent opened the call.
    pub turn: u64,
    /// Index of the native call that opened this call, among the native calls of the turn. `None`
    /// if no native call opened it.
    pub native: Option<usize>,
    /// Index of the action that opened the call, among all actions of its turn; `None` if no action
    /// of the turn opened the call.
    pub place: Option<usize>,
}

/// The turn whose record is being read.
struct TurnRecord {
    past: PastTurn,
    seq: u64,
    outcomes: CallOutcomes,
    places: ActionIndices,
}

impl ThreadFold {
    /// Creates tables that contain no records yet, for prompts of the renderer version `version`.
    pub fn new(
        agent: ListenerName,
        thread: ThreadId,
        scope: MemoryScope,
        version: RendererVersion,
    ) -> Self {
        Self {
            agent,
            thread,
            scope,
            version,
            up_to: Position(0),
            bytes: 0,
            turns: Vec::new(),
            taken: Vec::new(),
            seen: Vec::new(),
            calls: ByMessage::default(),
            results: ByMessage::default(),
            refused_requests: ByMessage::default(),
            callers_of_first: ByMessage::default(),
            leg_faults: ByMessage::default(),
            void_faults: HashSet::new(),
            lost_legs: HashSet::new(),
            void_replies: HashSet::new(),
            calls_from_other_threads: HashSet::new(),
            refusals: ByMessage::default(),
            left_out: HashSet::new(),
            windows: Vec::new(),
            requests: ByMessage::default(),
            ends: HashMap::new(),
            acted: HashSet::new(),
            began: None,
            items: None,
        }
    }

    /// Creates tables that contain no records yet, for the prompts of `view`.
    pub(super) fn of(view: &Viewpoint<'_>) -> Self {
        Self::new(view.agent.clone(), view.thread.clone(), view.memory, view.version)
    }

    /// Returns the journal position up to which the tables contain the thread.
    pub const fn up_to(&self) -> Position {
        self.up_to
    }

    /// Returns the approximate size in memory, in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn agent(&self) -> &ListenerName {
        &self.agent
    }

    pub(super) const fn thread(&self) -> &ThreadId {
        &self.thread
    }

    pub(super) const fn scope(&self) -> MemoryScope {
        self.scope
    }

    pub(super) const fn version(&self) -> RendererVersion {
        self.version
    }

    /// Returns the key under which the memory with these tables is kept: the agent and the thread
    /// of the tables.
    pub(super) fn key(&self) -> (ListenerName, ThreadId) {
        (self.agent.clone(), self.thread.clone())
    }

    /// Adds the records of the thread up to the position `up_to`. Skips each record that the tables
    /// already contain.
    pub fn extend(&mut self, records: &[Record], up_to: Position) {
        for record in records.iter().filter(|record| record.position <= up_to) {
            self.read(record);
        }
        self.up_to = self.up_to.max(up_to);
    }

    /// Adds a record, unless the tables already contain it.
    pub(super) fn read(&mut self, record: &Record) {
        if record.position <= self.up_to {
            return;
        }
        self.up_to = record.position;
        let turn = record.facts.iter().find_map(|fact| self.own_turn(fact, record));

        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, .. } if states_fork(message, record) => {}
                Fact::Accepted { message, opening, .. } if message.thread == self.thread => {
                    self.began.get_or_insert(message.time);
                    if message.kind == MessageKind::Call && message.to == self.agent {
                        self.requests.insert(message.id, Arc::clone(message));
                    }
                    self.note(record.position, message, opening.as_ref(), turn.as_ref());
                }
                Fact::CallClosed { call, how } => self.note_closed(*call, *how, record),
                Fact::Disposed { message, how: Disposition::Cancelled } => {
                    self.note_cancelled(*message, record);
                }
                Fact::Window { agent, thread, before, kept }
                    if *agent == self.agent && *thread == self.thread =>
                {
                    // The turn that requested the clearing is shown, too, and does not count
                    // towards `kept`.
                    let before = turn.as_ref().map_or(*before, |turn| turn.seq.min(*before));
                    let position = record.position;
                    self.windows.push(ClearedWindow { position, before, kept: *kept });
                }
                _ => {}
            }
        }

        if let Some(turn) = turn {
            self.push_turn(turn);
        }
    }

    /// Handles the cancellation of `message` by `record`. Does nothing if `message` is not the
    /// fault of a peer in a `first` group. In such a group, the first reply of any peer is the
    /// result. If `record` also contains a reply to the caller of this group, the fault becomes
    /// void. Otherwise, the fault stays valid: it was cancelled only because a call ended.
    fn note_cancelled(&mut self, message: MessageId, record: &Record) {
        let Some(caller) = self.leg_faults.get(&message) else { return };
        if self.has_reply_to(caller, record) {
            self.void_faults.insert(message);
        }
    }

    /// Handles the end of `call`, which `record` states. For a call to the agent, notes the
    /// position of the end. For a cancelled call to a peer of a `first` group, checks whether
    /// `record` contains a reply to the caller of this group. If so, notes the call as lost: a
    /// later reply to it has no effect.
    fn note_closed(&mut self, call: CallId, how: Closing, record: &Record) {
        if self.version >= RendererVersion::V12 && self.requests.contains_key(&call.0) {
            self.ends.entry(call).or_insert(record.position);
        }

        if how == Closing::Cancelled
            && let Some(caller) = self.caller_of_first(call.0)
            && self.has_reply_to(&caller, record)
        {
            self.lost_legs.insert(call.0);
        }
    }

    /// Whether `record` contains a reply to `caller` in the thread of these tables.
    fn has_reply_to(&self, caller: &ListenerName, record: &Record) -> bool {
        record.facts.iter().any(|fact| replied_to(fact, &self.thread) == Some(caller))
    }

    fn own_turn(&self, fact: &Fact, record: &Record) -> Option<TurnRecord> {
        let Fact::Accepted { message, .. } = fact else { return None };
        if message.thread != self.thread || !is_core(&message.name, MODEL_TURN) {
            return None;
        }

        let past = PastTurn::read(message.payload.as_str())?;
        if past.agent != self.agent {
            return None;
        }

        // Earlier versions of the renderer also read the messages in other threads.
        let thread = Some(&self.thread).filter(|_| self.version >= RendererVersion::V12);
        let outcomes = CallOutcomes::of(&past.calls, &record.facts, &self.agent, thread);
        let places = ActionIndices::of(&record.facts, &self.agent);
        Some(TurnRecord { past, seq: message.seq, outcomes, places })
    }

    fn push_turn(&mut self, turn: TurnRecord) {
        let TurnRecord { past, seq, outcomes, .. } = turn;
        let PastTurn { call, position, provider, raw, calls, own, left_out, .. } = past;
        let calls = outcomes.with_payloads(calls);
        let payloads = calls
            .iter()
            .map(|call| call.call.arguments.len() + call.payload.as_ref().map_or(0, String::len));
        let own_bytes = own.iter().map(|block| block.json.len());
        self.bytes += ITEM_BYTES + raw.len() + payloads.chain(own_bytes).sum::<usize>();
        self.left_out.extend(left_out);
        self.taken.push(TakenTurn { call, request_at: Some(position) });
        let text = Arc::new(ModelText { turn: seq, raw, provider, calls, own });
        self.turns.push(OwnTurn { position, text });
    }

    fn note(
        &mut self,
        position: Position,
        message: &Arc<Message>,
        opening: Option<&Opening>,
        turn: Option<&TurnRecord>,
    ) {
        // Only the agent that took a turn sees its raw text. Other agents see the payloads.
        if is_core(&message.name, MODEL_TURN) {
            let is_redacted = message.payload.is_redacted() && message.to == self.agent;
            let request_at = Some(position).filter(|_| self.version >= RendererVersion::V15);
            let call = message.call.filter(|_| is_redacted);
            self.taken.extend(call.map(|call| TakenTurn { call, request_at }));
            return;
        }

        let group = opening.and_then(|opening| opening.group);
        let group = group.map(|(_, gather)| gather);
        let own = message.from == self.agent;
        if let Some(turn) = turn.filter(|_| own) {
            if message.kind != MessageKind::Note {
                self.acted.insert(turn.past.call);
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
            && let Some(native) = turn.outcomes.refused_request_of(message.id)
        {
            self.refused_requests.insert(message.id, (turn.seq, native));
        }

        if let Some(turn) = turn
            && let Some(place) = turn.places.of_refusal(message.id)
        {
            self.refusals.insert(message.id, (turn.seq, place));
        }

        if own && opening.is_some_and(|opening| self.is_from_other_thread(opening)) {
            self.calls_from_other_threads.insert(message.id);
        }

        if !own && group == Some(Gather::First) && self.scope == MemoryScope::Thread {
            self.callers_of_first.insert(message.id, message.from.clone());
        }

        let caller = message.cause.and_then(|cause| self.caller_of_first(cause));
        if let Some(caller) = caller.filter(|_| message.kind == MessageKind::System) {
            self.leg_faults.insert(message.id, caller);
        }

        let is_reply = message.kind == MessageKind::Reply;
        let is_reply = is_reply && self.version >= RendererVersion::V12;
        if is_reply && message.cause.is_some_and(|cause| self.lost_legs.contains(&cause)) {
            self.void_replies.insert(message.id);
        }

        if own || message.to == self.agent || self.scope == MemoryScope::Thread {
            self.bytes += ITEM_BYTES + message.payload.len();
            self.seen.push((position, shown_message(message)));
        }
    }

    /// Whether `opening` opens a call from another thread than the thread of these tables.
    fn is_from_other_thread(&self, opening: &Opening) -> bool {
        matches!(&opening.opener, Opener::Call { thread, .. } if *thread != self.thread)
    }

    /// Returns the caller of the `first` group to which `call` belongs. `call` is the message that
    /// opened the call to one peer of the group. Returns `None` for any other message.
    fn caller_of_first(&self, call: MessageId) -> Option<ListenerName> {
        let own = self.calls.get(&call).filter(|own| own.group == Some(Gather::First));
        let own = own.map(|_| &self.agent);
        own.or_else(|| self.callers_of_first.get(&call)).cloned()
    }

    /// Returns the call of each turn of the agent, oldest turn first.
    pub fn turn_calls(&self) -> impl Iterator<Item = CallId> {
        self.taken.iter().map(|turn| turn.call)
    }

    /// Returns the timers that the agent set after the position `after`, oldest first.
    pub(in crate::agent) fn timers_set(&self, after: Position) -> Vec<TimerNames> {
        let seen = self.seen.iter().filter(|(position, _)| *position > after);
        seen.filter_map(|(_, message)| TimerNames::read(message, &self.agent)).collect()
    }

    /// Computes the agent's memory for the delivery of `call` at `position`. The tables must not
    /// contain records after `position`.
    pub fn memory(&mut self, call: CallId, position: Position) -> AgentMemory {
        let kept = self.items.take();
        let extended = kept.and_then(|mut items| {
            let is_extended = items.extend(self, call, position);
            is_extended.then_some(items)
        });
        let items = extended.unwrap_or_else(|| MemoryItems::new(self, call, position));

        let mut memory = AgentMemory {
            items: items.items(),
            turns: count(self.taken.len()),
            iterations: count(self.turn_calls().filter(|taken| *taken == call).count()),
            acted: self.acted.contains(&call),
            waiting: count(items.waiting()),
            began: self.began,
            ..AgentMemory::default()
        };
        self.items = Some(items);

        if let Some(request) = self.requests.get(&call.0) {
            memory.request = Some(request.name.clone());
            if request.name == goal_name(&self.agent) {
                let payload = request.payload.as_str();
                memory.answer = read_goal_answer(payload);
                memory.delegate = GoalRoles::read(payload).map(|roles| roles.payload);
            }
        }
        memory
    }
}

fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}
