//! The timeline of one thread: all its events in order. A subthread is one of these events, at the
//! place where it was spawned.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::clock::Time;
use crate::contract::Gather;
use crate::envelope::{AttemptFailure, Disposition, Spending, SpendingTotals};
use crate::ids::{Attempt, CallId, ListenerName, MessageId, Position, ThreadId, TimerId};
use crate::index::{HoldCount, TimelineSummary};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, HashedRecord};
use crate::thread::{
    ActionDetail, DecisionOrigin, Fact, Hold, Input, OperatorPublicKey, PauseAction, PauseTarget,
    Record, TimerEnd,
};
use crate::xml::findings::Finding;

use super::fork_origin::TreeOrigin;
use super::threads::{ThreadPhase, TreeCalls};
use super::timeline_page::TimelineRest;
use super::views::{BusyRefusals, MessageView, RefusalView};

/// The events of one thread in order, and the totals of the thread. `items` may contain only a page
/// of the events.
#[derive(Debug, Clone, Serialize)]
pub struct ThreadTimeline {
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "opened_by")]
    pub opened_by: ListenerName,
    #[serde(rename = "status")]
    pub status: ThreadPhase,
    #[serde(skip)]
    pub opened: Time,
    /// Time of the last event that is neither a refusal nor a decision of a person. If there is no
    /// such event, time of the first event.
    #[serde(skip)]
    pub updated: Time,
    /// Tokens and money that model calls have used in the thread and in its subthreads. If all
    /// money has the same known currency, the JSON form also has a member `currency`.
    #[serde(flatten, serialize_with = "serialize_spent")]
    pub spent: SpendingTotals,
    /// Number of messages in the thread itself. Counts messages outside the page, too.
    #[serde(rename = "messages")]
    pub messages: u64,
    /// The calls in the thread and its subthreads that wait for a person, including calls outside
    /// the page.
    #[serde(rename = "waiting", serialize_with = "serialize_calls")]
    pub waits: HoldCount,
    /// Number of events before the page in `items`; 0 if the page begins with the first event.
    #[serde(rename = "before", skip_serializing_if = "is_zero")]
    pub before: u64,
    #[serde(rename = "items")]
    pub items: Vec<TimelineEntry>,
    /// Summary of the events after the page in `items`; `None` if no events follow.
    #[serde(rename = "rest", skip_serializing_if = "Option::is_none")]
    pub rest: Option<TimelineRest>,
    /// Messages of requests that went to several peers, and whose result is the first reply of any
    /// peer. Empty if the timeline comes from the index.
    #[serde(skip)]
    pub first_requests: HashSet<MessageId>,
    /// Calls of the fork's source whose recorded results became results of calls in this thread.
    /// Empty if the thread belongs to no fork, or if the timeline comes from the index.
    #[serde(skip)]
    pub recalled: HashSet<CallId>,
    /// The origin of the tree that contains the thread. `None` if the tree is no fork, or if the
    /// timeline comes from the index. Also `None` for subthreads in `items`.
    #[serde(skip)]
    pub origin: Option<Arc<TreeOrigin>>,
}

impl ThreadTimeline {
    /// Creates the timeline of a thread that has just been opened.
    pub fn new(thread: ThreadId, opened_by: ListenerName, opened: Time) -> Self {
        Self {
            thread,
            opened_by,
            status: ThreadPhase::Idle,
            opened,
            updated: opened,
            spent: SpendingTotals::default(),
            messages: 0,
            waits: HoldCount::default(),
            before: 0,
            items: Vec::new(),
            rest: None,
            first_requests: HashSet::new(),
            recalled: HashSet::new(),
            origin: None,
        }
    }

    /// Sets the totals of the thread as the index has them.
    pub(super) fn set_totals(&mut self, totals: TimelineSummary) {
        self.messages = totals.messages;
        self.updated = totals.updated;
        self.spent = totals.spent;
        self.waits = totals.waits;
        if let Some(status) = ThreadPhase::parse(&totals.status) {
            self.status = status;
        }
    }

    /// Counts the calls that wait for people, in this thread and in its subthreads. All events must
    /// be in `items`, and `waits` of each subthread must be set.
    fn count_waits(&self) -> HoldCount {
        let waits = self.items.iter().map(|item| match &item.what {
            TimelineEvent::Message(MessageView { disposition: None, hold: Some(hold), .. }) => {
                HoldCount { calls: 1, hold: Some(*hold) }
            }
            TimelineEvent::Subthread(child) => child.waits,
            _ => HoldCount::default(),
        });
        waits.fold(HoldCount::default(), HoldCount::plus)
    }
}

/// One event of a thread.
#[derive(Debug, Clone, Serialize)]
pub struct TimelineEntry {
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(skip)]
    pub at: Time,
    /// The `seq` of the message. For any other event, the `seq` of the last message before it.
    #[serde(skip)]
    pub seq: u64,
    #[serde(flatten)]
    pub what: TimelineEvent,
}

#[derive(Debug, Clone, Serialize)]
pub enum TimelineEvent {
    #[serde(rename = "message")]
    Message(MessageView),
    #[serde(rename = "refused")]
    Refused(RefusalView),
    #[serde(rename = "busy")]
    Busy(BusyRefusals),
    /// Findings about a turn of a model, except those about its refused payloads.
    #[serde(rename = "findings")]
    Findings {
        #[serde(rename = "by")]
        by: ListenerName,
        #[serde(rename = "findings")]
        findings: Vec<Finding>,
    },
    #[serde(rename = "attempt-failed")]
    AttemptFailed {
        #[serde(skip)]
        call: CallId,
        #[serde(rename = "listener")]
        listener: Option<ListenerName>,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "failure")]
        failure: AttemptFailure,
    },
    /// The charge for a model call whose cost was never reported. The charge is the whole amount
    /// that was reserved for the call.
    #[serde(rename = "charged")]
    Charged {
        #[serde(skip)]
        call: CallId,
        #[serde(rename = "listener")]
        listener: ListenerName,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "spending")]
        spending: Spending,
    },
    #[serde(rename = "timer-ended")]
    TimerEnded {
        #[serde(rename = "timer")]
        timer: TimerId,
        #[serde(rename = "how")]
        how: TimerEnd,
    },
    /// A decision of a person, with the recorded name of this person.
    #[serde(rename = "decision")]
    Decision {
        #[serde(rename = "verb")]
        verb: &'static str,
        #[serde(rename = "by")]
        by: ListenerName,
        #[serde(rename = "origin")]
        origin: DecisionOrigin,
        #[serde(rename = "signed", skip_serializing_if = "Option::is_none")]
        signed: Option<SignedBy>,
        /// Message of the call that the decision is about. `None` if the records of the thread have
        /// this call, or if the decision is about no call.
        #[serde(rename = "message", skip_serializing_if = "Option::is_none")]
        message: Option<MessageId>,
        /// Permissions that the operator of a fork gives to the fork; empty for every other decision.
        #[serde(rename = "details", skip_serializing_if = "Vec::is_empty")]
        details: Vec<ActionDetail>,
    },
    #[serde(rename = "cancelled")]
    Cancelled {
        #[serde(rename = "by")]
        by: ListenerName,
        #[serde(rename = "reason")]
        reason: String,
    },
    #[serde(rename = "subthread")]
    Subthread(ThreadTimeline),
}

impl TimelineEvent {
    /// Whether the event extends the time that the thread took. False for a refusal and for a
    /// decision of a person, because these may come long after the thread has settled.
    fn is_work(&self) -> bool {
        !matches!(self, Self::Refused(_) | Self::Busy(_) | Self::Decision { .. })
    }
}

/// The signature of a person's decision, and whether the record shows it to be valid.
#[derive(Debug, Clone, Serialize)]
pub struct SignedBy {
    /// Operator to whom the signing key belonged. `None` for a refused decision, because its record
    /// does not state the owner of the key.
    #[serde(rename = "operator")]
    pub operator: Option<ListenerName>,
    #[serde(rename = "key")]
    pub key: OperatorPublicKey,
    /// Whether the signature was made for exactly the recorded decision.
    #[serde(rename = "holds")]
    pub holds: bool,
}

/// A moment in the past, up to which the records of a thread are read. Later records are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedMoment {
    /// The moment directly after the record at this position.
    Position(Position),
    /// The moment directly after the last record that is not later than this time.
    Time(Time),
}

/// Builds the timeline of a thread from its records up to the moment `up_to`, or from all records
/// if `up_to` is `None`. Returns `None` if there is no record of the thread.
pub fn thread_timeline(
    reader: &JournalReader,
    thread: &ThreadId,
    up_to: Option<RecordedMoment>,
) -> Result<Option<ThreadTimeline>, Error> {
    let position = match up_to {
        Some(RecordedMoment::Position(position)) => Some(position),
        _ => None,
    };
    let is_later =
        |record: &Record| matches!(up_to, Some(RecordedMoment::Time(time)) if record.time > time);

    let mut builder = TimelineBuilder::default();
    let mut origin = None;
    for HashedRecord { record, .. } in reader.tree(&thread.root(), position)? {
        if is_later(&record) {
            break;
        }
        if origin.is_none() {
            origin = TreeOrigin::of(&record).map(Arc::new);
        }
        builder.take(&record);
    }
    Ok(builder.take_timeline(thread).map(|timeline| ThreadTimeline { origin, ..timeline }))
}

#[derive(Default)]
pub(super) struct TimelineBuilder {
    timelines: HashMap<ThreadId, ThreadTimeline>,
    /// For each message, its thread and the index of its event in the thread's timeline.
    places: HashMap<MessageId, (ThreadId, usize)>,
    calls: TreeCalls,
}

impl TimelineBuilder {
    pub(super) fn take(&mut self, record: &Record) {
        // The thread is determined before the facts are applied, because these may close the calls
        // that name it.
        let thread = self.thread_of_record(record);
        self.take_input(record, &thread);
        let mut opened = Vec::new();

        for fact in &record.facts {
            if let Fact::ThreadOpened { thread, by, .. } = fact {
                self.open(thread, by, record.time);
                opened.push(thread.clone());
            }
            if let Fact::Forked { thread, by, threads, .. } = fact {
                // The root comes first, because it belongs to the client of the fork.
                self.open(thread, by, record.time);
                for inherited in threads.iter().filter(|own| !own.thread.is_root()) {
                    self.open(&inherited.thread, &inherited.by, record.time);
                    opened.push(inherited.thread.clone());
                }
            }
            self.take_fact(record, fact, &thread);
            self.calls.take(fact);
        }

        // A subthread comes after the message that opened it. A fork has no such message for the
        // subthreads that it has taken over, so these come where the fork begins.
        for child in opened {
            if let (Some(parent), Some(timeline)) = (child.parent(), self.timelines.get(&child)) {
                let placeholder = TimelineEvent::Subthread(ThreadTimeline {
                    items: Vec::new(),
                    ..timeline.clone()
                });
                self.add(&parent, record, placeholder);
            }
        }
    }

    /// Returns the thread for facts in the record that name no thread themselves. If the input of
    /// the record names a thread, returns this thread. If the input names a call, returns the
    /// thread of the call. Otherwise, returns the root thread of the tree.
    fn thread_of_record(&self, record: &Record) -> ThreadId {
        let named = match &record.input {
            Input::Outcome { call, .. }
            | Input::Failed { call, .. }
            | Input::Lost { call, .. }
            | Input::Unsettled { call, .. }
            | Input::Stop { call, .. }
            | Input::Deadline { call, .. } => self.calls.thread_of(*call),
            Input::Cancel { thread, .. } => Some(thread),
            Input::Pause(PauseAction { target: PauseTarget::Thread(thread), .. }) => Some(thread),
            Input::Decided { message, .. } => self.calls.thread_of(CallId(*message)),
            _ => None,
        };

        named.unwrap_or(&record.tree).clone()
    }

    /// If `input` is a decision about a call that the records so far do not have, returns the
    /// message of the call. Otherwise, returns `None`.
    fn unknown_call_of(&self, input: &Input) -> Option<MessageId> {
        match input {
            Input::Decided { message, .. } => {
                self.calls.thread_of(CallId(*message)).is_none().then_some(*message)
            }
            _ => None,
        }
    }

    fn take_input(&mut self, record: &Record, thread: &ThreadId) {
        if let Some((verb, by, origin)) = decision_of(&record.input) {
            let signed = signed_by(record, origin);
            let by = by.clone();
            let origin = origin.clone();
            let message = self.unknown_call_of(&record.input);
            let details = match &record.input {
                Input::Fork(action) => action.permissions(),
                _ => Vec::new(),
            };
            let event = TimelineEvent::Decision { verb, by, origin, signed, message, details };
            self.add(thread, record, event);
        }

        if let Some(busy) = BusyRefusals::of(record) {
            self.add(thread, record, TimelineEvent::Busy(busy));
        }

        match &record.input {
            Input::Outcome { listener, turn: Some(turn), .. } if !turn.findings.is_empty() => {
                let findings = turn.findings.clone();
                self.add(
                    thread,
                    record,
                    TimelineEvent::Findings { by: listener.clone(), findings },
                );
            }
            Input::Cancel { by, reason, .. } if !record.is_cancel_refused() => {
                let event = TimelineEvent::Cancelled { by: by.clone(), reason: reason.clone() };
                self.add(thread, record, event);
            }
            _ => {}
        }
    }

    fn take_fact(&mut self, record: &Record, fact: &Fact, thread: &ThreadId) {
        match fact {
            Fact::Accepted { message, opening, .. } => {
                let view = MessageView::new(record.position, message);
                let at = self.add(&message.thread, record, TimelineEvent::Message(view));
                self.places.insert(message.id, (message.thread.clone(), at));
                let group = opening.as_ref().and_then(|opening| opening.group);
                if matches!(group, Some((_, Gather::First)))
                    && let Some(timeline) = self.timelines.get_mut(&message.thread)
                {
                    timeline.first_requests.insert(message.id);
                }
            }
            Fact::Disposed { message, how } => self.dispose(*message, *how),
            Fact::Held { call, hold, .. } => self.set_hold(*call, Some(*hold)),
            Fact::Released { call, .. } | Fact::CallClosed { call, .. } => {
                self.set_hold(*call, None)
            }
            Fact::Refused { sender, thread, refusal, .. } => {
                let refused_thread = thread.as_ref().unwrap_or(&record.tree);
                let refused = RefusalView::new(
                    record.position,
                    record.time,
                    sender,
                    Some(refused_thread),
                    refusal,
                );
                let mut facts = record.facts.iter();
                let is_of_preview = facts.any(|fact| matches!(fact, Fact::PreviewMissing { .. }));
                let refused = RefusalView { is_of_preview, ..refused };
                self.add(refused_thread, record, TimelineEvent::Refused(refused));
            }
            Fact::AttemptFailed { call, attempt, failure } => {
                if let Some(spent) = failure.spent() {
                    self.spend(thread, None, spent);
                }
                let listener = match &record.input {
                    Input::Failed { listener, .. } | Input::Lost { listener, .. } => {
                        Some(listener.clone())
                    }
                    _ => None,
                };

                let call = *call;
                let attempt = *attempt;
                let failure = failure.clone();
                let event = TimelineEvent::AttemptFailed { call, listener, attempt, failure };
                self.add(thread, record, event);
            }
            Fact::Recalled { call, source } => self.add_recalled(*call, *source),
            Fact::Used { call, tokens_in, tokens_out, money, .. } => {
                let tokens = tokens_in.saturating_add(*tokens_out);
                let thread = self.calls.thread_of(*call).unwrap_or(thread).clone();
                let currency = record.turn_currency();
                self.spend(&thread, currency.as_deref(), Spending { tokens, money: *money });
            }
            Fact::Charged { call, attempt, agent, spending } => {
                self.spend(thread, None, *spending);
                let call = *call;
                let listener = agent.clone();
                let attempt = *attempt;
                let spending = *spending;
                let event = TimelineEvent::Charged { call, listener, attempt, spending };
                self.add(thread, record, event);
            }
            Fact::TimerEnded { timer, how } => {
                self.add(thread, record, TimelineEvent::TimerEnded { timer: *timer, how: *how });
            }
            _ => {}
        }
    }

    /// Notes that the recorded result of `source`, a call of the fork's source, has become the
    /// result of `call`, a call of the fork.
    fn add_recalled(&mut self, call: CallId, source: CallId) {
        let thread = self.calls.thread_of(call);
        if let Some(timeline) = thread.and_then(|thread| self.timelines.get_mut(thread)) {
            timeline.recalled.insert(source);
        }
    }

    fn spend(&mut self, thread: &ThreadId, currency: Option<&str>, spent: Spending) {
        if let Some(timeline) = self.timelines.get_mut(thread) {
            timeline.spent.add(currency, spent);
        }
    }

    /// Adds a call whose opening is in a record that this builder does not read.
    pub(super) fn know_call(&mut self, call: CallId, thread: ThreadId) {
        self.calls.know(call, thread);
    }

    /// Removes the timeline of a thread from this builder and returns it, without events of
    /// subthreads. Returns `None` if the builder lacks the timeline.
    pub(super) fn take_own_events(&mut self, thread: &ThreadId) -> Option<ThreadTimeline> {
        self.timelines.remove(thread)
    }

    pub(super) fn open(&mut self, thread: &ThreadId, by: &ListenerName, at: Time) {
        let timeline = || ThreadTimeline::new(thread.clone(), by.clone(), at);
        self.timelines.entry(thread.clone()).or_insert_with(timeline);
    }

    /// Adds an event to the timeline of a thread, and returns the index of the event. Creates the
    /// timeline if it does not exist, because no record states that the thread was opened.
    fn add(&mut self, thread: &ThreadId, record: &Record, what: TimelineEvent) -> usize {
        self.open(thread, &ListenerName::core(), record.time);
        let Some(timeline) = self.timelines.get_mut(thread) else { return 0 };
        if what.is_work() || timeline.items.is_empty() {
            timeline.updated = record.time;
        }

        let mut seq = timeline.items.last().map_or(0, |last| last.seq);
        if let TimelineEvent::Message(message) = &what {
            seq = message.seq;
            timeline.messages += 1;
        }

        let position = record.position;
        timeline.items.push(TimelineEntry { position, at: record.time, seq, what });
        timeline.items.len() - 1
    }

    fn dispose(&mut self, message: MessageId, how: Disposition) {
        if let Some(view) = self.message(message) {
            view.disposition = Some(how);
        }
    }

    fn set_hold(&mut self, call: CallId, hold: Option<Hold>) {
        if let Some(view) = self.message(call.0) {
            view.hold = hold;
        }
    }

    fn message(&mut self, id: MessageId) -> Option<&mut MessageView> {
        let (thread, at) = self.places.get(&id)?;
        let item = self.timelines.get_mut(thread)?.items.get_mut(*at)?;
        match &mut item.what {
            TimelineEvent::Message(view) => Some(view),
            _ => None,
        }
    }

    pub(super) fn take_timeline(&mut self, thread: &ThreadId) -> Option<ThreadTimeline> {
        let mut timeline = self.timelines.remove(thread)?;
        timeline.status = self.calls.status(thread);
        for item in &mut timeline.items {
            if let TimelineEvent::Subthread(child) = &mut item.what {
                // The recursion is bounded, because the depth of threads is bounded.
                if let Some(beneath) = self.take_timeline(&child.thread.clone()) {
                    timeline.spent.add_all(&beneath.spent);
                    *child = beneath;
                }
            }
        }

        timeline.waits = timeline.count_waits();
        Some(timeline)
    }
}

/// The totals of a thread's model calls in the JSON of the thread.
#[derive(Serialize)]
struct SpentForm<'t> {
    #[serde(rename = "spent")]
    spent: &'t SpendingTotals,
    #[serde(rename = "currency", skip_serializing_if = "Option::is_none")]
    currency: Option<&'t str>,
}

fn serialize_spent<S: Serializer>(
    spent: &SpendingTotals,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    SpentForm { spent, currency: spent.money.currency() }.serialize(serializer)
}

fn serialize_calls<S: Serializer>(waits: &HoldCount, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(waits.calls)
}

const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Checks the signature of a decision. `record` is the record of the decision. Returns `None` if
/// the decision is not signed.
pub fn signed_by(record: &Record, origin: &DecisionOrigin) -> Option<SignedBy> {
    let signature = origin.signature.as_deref()?;
    let operator = record.facts.iter().find_map(|fact| match fact {
        Fact::Signed { operator, .. } => Some(operator.clone()),
        _ => None,
    });
    let holds = signature.holds_for(&record.input, &origin.note);
    Some(SignedBy { operator, key: signature.key, holds })
}

/// If `input` records a decision of a person with its origin, returns the kind of the decision, the
/// name of the person, and the origin: the user account, a note and the signature. Otherwise,
/// returns `None`.
fn decision_of(input: &Input) -> Option<(&'static str, &ListenerName, &DecisionOrigin)> {
    match input {
        Input::Decided { by, decision, origin: Some(origin), .. } => {
            Some((decision.verb(), by, origin))
        }
        Input::Cancel { by, origin: Some(origin), .. } => Some(("cancel", by, origin)),
        Input::OperatorRetry(action) => Some(("retry", &action.by, action.origin.as_ref()?)),
        Input::Fork(action) => Some(("fork", &action.by, action.origin.as_ref()?)),
        Input::Pause(PauseAction { verb, by, origin: Some(origin), .. }) => {
            Some((verb.as_str(), by, origin))
        }
        _ => None,
    }
}
