//! The current state: thread trees, open calls, timers and usage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::allotments::AllotmentUsage;
use super::awaited_answers::{AwaitedAction, PendingMessage};
use super::message_text;
use super::rare_list::RareList;
use super::request_counts::Renewal;
use super::reservations::TreeReservations;
use super::resident_map::ResidentMap;
use super::small_map::{SmallMap, SmallSet};
use super::uncounted_time::UncountedTime;
use super::{Closing, Hold, Opening, Pauses, PlannedSchedule, TreeLineage};
use crate::clock::Time;
use crate::envelope::{Message, Money, Spending};
use crate::ids::{
    Attempt, CallId, Digest, ListenerName, MessageId, Position, ScheduleName, ThreadId, TimerId,
};
use crate::system::WaitFor;
use crate::trace::TraceParent;

/// A hash map with a fast hasher for short keys, because the pump looks up several ids for every
/// fact. The hasher is seeded in each process, so that an attacker cannot choose ids that collide.
pub type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// All state that survives a restart. Only [`super::Fact`]s change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub journal: Uuid,
    pub epoch: u32,
    /// Core version of the last boot.
    pub core_version: u32,
    pub config: Digest,
    /// The trees in memory. A tree at rest may have left memory.
    pub trees: ResidentMap<ThreadId, Tree>,
    /// The thread tree of each open call.
    pub calls: Map<CallId, ThreadId>,
    /// For each client key in memory, the submission that the client sent with this key. A key
    /// outside memory must be put back before it is looked up.
    pub keys: ResidentMap<ClientKey, KeyUse>,
    /// Nonces of accepted signatures, each with the time of its signature. Nonces of expired
    /// signatures are forgotten only if there are more nonces than
    /// [`crate::limits::USED_SIGNATURES_KEPT`].
    pub nonces: BTreeMap<Uuid, Time>,
    /// The pauses in force.
    pub pauses: Pauses,
    /// The schedules of this partition that have a planned time, and cancelled schedules whose runs
    /// are still open.
    pub schedules: BTreeMap<ScheduleName, PlannedSchedule>,
    /// Number of unsettled messages in all thread trees. An accepted message is unsettled until the
    /// journal records how it ended.
    pub in_flight: usize,
    /// Time of the latest journal record. The times of records never decrease.
    pub time: Time,
    /// Sum of the forward steps of the system clock. A step does not move the times of a tree
    /// outside memory. When the tree returns to memory, its times are moved by the sum of the steps
    /// that it has missed.
    pub stepped: Duration,
    /// Sum of the periods in which the pump did not run or could not continue.
    pub stood: StandstillTime,
}

/// The sum of the periods in which the pump stood still since this process started. A tree outside
/// memory misses such periods. When the tree returns to memory, its deadlines are extended by the
/// sum of the missed periods. All values of this type compare as equal, because they are not part
/// of the recorded state.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandstillTime(pub Duration);

impl PartialEq for StandstillTime {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for StandstillTime {}

/// A client, with a key that this client sent with a submission.
pub type ClientKey = (ListenerName, String);

impl State {
    pub fn tree(&self, thread: &ThreadId) -> Option<&Tree> {
        if thread.is_root() { self.trees.get(thread) } else { self.trees.get(&thread.root()) }
    }

    pub fn thread(&self, thread: &ThreadId) -> Option<&Thread> {
        self.tree(thread)?.threads.get(thread)
    }

    /// Returns the time since a client key was used. Forward steps of the clock do not count.
    pub fn key_age(&self, used: &KeyUse, now: Time) -> Duration {
        let stepped = self.stepped.saturating_sub(used.stepped);
        now.since(used.time).saturating_sub(stepped)
    }

    pub fn call(&self, call: CallId) -> Option<&Call> {
        self.trees.get(self.calls.get(&call)?)?.call(call)
    }

    /// Returns the roots of the trees in memory, in no particular order.
    pub fn roots_in_memory(&self) -> Vec<ThreadId> {
        self.trees.iter().map(|(root, _)| root.clone()).collect()
    }

    /// Returns the open calls of those trees of `roots` that are in memory.
    pub fn open_calls_in(&self, roots: &[ThreadId]) -> impl Iterator<Item = &Call> {
        roots.iter().filter_map(|root| self.trees.resident(root)).flat_map(Tree::open_calls)
    }
}

/// A root thread with all threads beneath it. Budgets, hash chains and partitions belong to trees.
/// The serialised form leaves out empty parts, because a tree at rest has many of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// All threads of the tree.
    #[serde(rename = "threads")]
    pub threads: SmallMap<ThreadId, Thread>,
    /// The open calls of the tree. Each is boxed, because changes of the map move its entries.
    #[serde(rename = "calls", default, skip_serializing_if = "SmallMap::is_empty")]
    pub calls: SmallMap<CallId, Box<Call>>,
    /// Unsettled messages. Each has the open call whose listener must still handle the message, or
    /// `None` if there is no such call. An accepted message is unsettled until the journal records
    /// how it ended.
    #[serde(rename = "in_flight", default, skip_serializing_if = "SmallMap::is_empty")]
    pub in_flight: SmallMap<MessageId, Option<CallId>>,
    #[serde(rename = "timers", default, skip_serializing_if = "SmallMap::is_empty")]
    pub timers: SmallMap<TimerId, Timer>,
    #[serde(rename = "usage", default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// Usage of the tree when its budget counts were last reset; `None` before the first reset. A
    /// further request of a client, or the beginning of a fork, resets the counts. Boxed, because
    /// most trees are never reset.
    #[serde(rename = "renewal", default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<Box<Renewal>>,
    /// Tokens and money that the model calls of each agent have used in this tree.
    #[serde(rename = "by_agent", default, skip_serializing_if = "ByListener::is_empty")]
    pub by_agent: ByListener<Spending>,
    /// Tokens and money that are reserved for running model calls; `None` if nothing is reserved.
    /// Boxed, because most trees have no reservations.
    #[serde(rename = "reserved", default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Box<TreeReservations>>,
    /// The budgets whose warnings are recorded, each with its limit, such as `tokens at 1000`, or
    /// `tokens at 1000 unsent` if no agent has got the warning. Core versions before 69 recorded no
    /// limit.
    #[serde(rename = "warned", default, skip_serializing_if = "SmallSet::is_empty")]
    pub warned: SmallSet<String>,
    /// Faults of calls in `first` groups, in the order of their arrival. The result of a `first`
    /// group is the first reply to any of its calls. So the group's opener does not receive a fault
    /// while another call of the group may still reply.
    #[serde(rename = "kept_faults", default, skip_serializing_if = "RareList::is_empty")]
    pub kept_faults: RareList<KeptFault>,
    /// Time from which the tree's wall time counts. Moved forward by each period in which the wall
    /// time stood still.
    #[serde(rename = "started")]
    pub started: Time,
    /// Number of calls in the tree that wait for a person.
    #[serde(rename = "held", default, skip_serializing_if = "is_default")]
    pub held: u64,
    /// Time at which the wall time of the tree stopped; `None` while the wall time runs.
    #[serde(rename = "still_since", default, skip_serializing_if = "Option::is_none")]
    pub still_since: Option<Time>,
    /// Position of the tree's latest journal record.
    #[serde(rename = "head")]
    pub head: Position,
    /// The source of the tree; `None` if the tree is not a fork. Boxed, because most trees are not
    /// forks.
    #[serde(rename = "lineage", default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Box<TreeLineage>>,
    /// The messages that operators have retried, each with the new message that the retry made.
    #[serde(rename = "retried", default, skip_serializing_if = "SmallMap::is_empty")]
    pub retried: SmallMap<MessageId, MessageId>,
    /// Trace to which the work of the tree belongs; `None` if it belongs to no trace. Boxed,
    /// because most trees have no trace.
    #[serde(rename = "trace", default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<TraceParent>>,
}

impl Tree {
    /// Returns an open call of the tree; `None` if the tree has no open call with this id.
    pub fn call(&self, call: CallId) -> Option<&Call> {
        self.calls.get(&call).map(|call| &**call)
    }

    /// Returns the open calls of the tree, in no particular order.
    pub fn open_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.values().map(|call| &**call)
    }
}

/// The faults of a leg, which is one call of a `first` group. The opener of the group does not
/// receive them while another leg may still reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFault {
    /// Id of the `first` group to which the leg belongs, which is the id of the group's first call.
    #[serde(rename = "group")]
    pub group: CallId,
    #[serde(rename = "leg")]
    pub leg: CallId,
    /// The listener of the leg. `None` in a snapshot of an earlier version of the program, which
    /// did not store the listener.
    #[serde(rename = "listener", default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<ListenerName>,
    /// How the leg ended; `None` until it is closed.
    #[serde(rename = "how", default, skip_serializing_if = "Option::is_none")]
    pub how: Option<Closing>,
    /// The faults with which the leg failed: usually one. If the leg forwarded its call to another
    /// group, these are the faults of all calls of that group.
    #[serde(
        rename = "faults",
        default,
        skip_serializing_if = "Vec::is_empty",
        with = "message_text::many"
    )]
    pub faults: Vec<Arc<Message>>,
}

/// Usage of a tree that counts against its budgets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    #[serde(rename = "messages")]
    pub messages: u64,
    #[serde(rename = "model_calls")]
    pub model_calls: u64,
    #[serde(rename = "tokens")]
    pub tokens: u64,
    #[serde(rename = "money", default)]
    pub money: Money,
}

impl Usage {
    /// Returns the tokens and money that model calls have used.
    pub const fn spending(&self) -> Spending {
        Spending { tokens: self.tokens, money: self.money }
    }
}

/// The use of a client key: the submission that the client sent with the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUse {
    #[serde(rename = "calls")]
    pub calls: Vec<CallId>,
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "digest")]
    pub digest: Digest,
    /// Time of the record that accepted the submission.
    #[serde(rename = "time")]
    pub time: Time,
    /// Value of [`State::stepped`] when the submission was accepted.
    #[serde(rename = "stepped", default, skip_serializing_if = "is_default")]
    pub stepped: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The listener or client that opened the thread.
    #[serde(rename = "by")]
    pub by: ListenerName,
    /// The last assigned `seq` of the thread.
    #[serde(rename = "seq")]
    pub seq: u64,
    /// Labels of all child threads, including closed threads.
    #[serde(rename = "children", default, skip_serializing_if = "SmallSet::is_empty")]
    pub children: SmallSet<String>,
    /// Number of children when the tree's budget counts were last reset.
    #[serde(rename = "earlier_children", default, skip_serializing_if = "is_default")]
    pub earlier_children: usize,
    #[serde(rename = "open_calls", default, skip_serializing_if = "is_default")]
    pub open_calls: usize,
    /// How the latest closed call of the thread ended. Only calls that were opened from outside the
    /// thread count. `None` if no such call has closed.
    #[serde(rename = "result", default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Closing>,
    /// Number of items in each agent's prompt. The items are the agent's own turns, and the
    /// messages that were delivered to the agent.
    #[serde(rename = "shown", default, skip_serializing_if = "ByListener::is_empty")]
    pub shown: ByListener<u32>,
    /// The call to which the thread is bound: when this call closes, the thread is cancelled.
    /// `None` if the thread is not bound.
    #[serde(rename = "bound", default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<CallId>,
    /// The allotment of the thread; `None` if it has no allotment. Boxed, because most threads have
    /// none.
    #[serde(rename = "allotted", default, skip_serializing_if = "Option::is_none")]
    pub allotted: Option<Box<AllotmentUsage>>,
}

impl Thread {
    pub(super) fn new(by: ListenerName) -> Self {
        let children = SmallSet::default();
        let shown = ByListener::default();
        Self {
            by,
            seq: 0,
            children,
            earlier_children: 0,
            open_calls: 0,
            result: None,
            shown,
            bound: None,
            allotted: None,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A map from listeners to values, for few listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByListener<T>(Box<[(ListenerName, T)]>);

impl<T: Default> ByListener<T> {
    pub fn get(&self, listener: &ListenerName) -> Option<&T> {
        self.0.iter().find(|(name, _)| name == listener).map(|(_, own)| own)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ListenerName, &T)> {
        self.0.iter().map(|(name, own)| (name, own))
    }

    /// Returns the value of `listener`. If the map has no value for `listener`, inserts the default
    /// value.
    pub(super) fn of(&mut self, listener: &ListenerName) -> &mut T {
        let at = self.0.iter().position(|(name, _)| name == listener).unwrap_or_else(|| {
            let mut values = std::mem::take(&mut self.0).into_vec();
            values.reserve_exact(1);
            values.push((listener.clone(), T::default()));
            self.0 = values.into_boxed_slice();
            self.0.len() - 1
        });
        let (_, own) = self.0.get_mut(at).expect("it was found or just put there");
        own
    }
}

/// A timer that has neither fired nor been cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    #[serde(rename = "call")]
    pub call: CallId,
    #[serde(rename = "fires_at")]
    pub fires_at: Time,
    #[serde(rename = "label", default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether the timer fires at a clock time instead of after a duration.
    #[serde(rename = "at", default, skip_serializing_if = "is_default")]
    pub at: bool,
}

/// State of an open call: its messages, the answers that it awaits, its attempts and its hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    #[serde(rename = "id")]
    pub id: CallId,
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "callee")]
    pub callee: ListenerName,
    #[serde(rename = "opening")]
    pub opening: Opening,
    /// Messages of the call that were delivered and handled, oldest first.
    #[serde(
        rename = "handled",
        default,
        skip_serializing_if = "Vec::is_empty",
        with = "message_text::many"
    )]
    pub handled: Vec<Arc<Message>>,
    /// Messages of the call that have not been delivered yet, in the order of delivery.
    #[serde(rename = "pending", default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingMessage>,
    /// Actions of the call's latest outcome that still await answers.
    #[serde(rename = "awaiting", default, skip_serializing_if = "Vec::is_empty")]
    pub awaiting: Vec<AwaitedAction>,
    /// The number that the next awaited answer gets. The numbers give the order of the answers, and
    /// begin at 0 with each outcome of the listener. A payload of the outcome takes a number in two
    /// cases:
    /// - It opens calls.
    /// - The core answers it, for example with the confirmation of a new timer.
    #[serde(rename = "next_slot", default, skip_serializing_if = "is_default")]
    pub next_slot: u32,
    /// Numbers of the forwarded actions among the awaited answers of the latest outcome. The
    /// results of these actions become the result of this call. Usually empty.
    #[serde(rename = "forwarded", default, skip_serializing_if = "RareList::is_empty")]
    pub forwarded: RareList<u32>,
    /// Open calls that this call has opened in other threads.
    #[serde(rename = "remote_calls", default, skip_serializing_if = "SmallSet::is_empty")]
    pub remote_calls: SmallSet<CallId>,
    /// Whether a thread is bound to the call. Such a thread is cancelled when the call closes.
    #[serde(rename = "has_bound", default, skip_serializing_if = "is_default")]
    pub has_bound: bool,
    /// Tokens and money that model calls have used in the threads bound to this call, and in their
    /// subthreads. A bound thread is cancelled when this call closes.
    #[serde(rename = "spent_bound", default, skip_serializing_if = "is_default")]
    pub spent_bound: Spending,
    #[serde(rename = "waiting", default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitFor>,
    /// Number of running timers of the call.
    #[serde(rename = "timers", default, skip_serializing_if = "is_default")]
    pub timers: usize,
    /// Number of recorded outcomes of the call.
    #[serde(rename = "turns", default, skip_serializing_if = "is_default")]
    pub turns: u32,
    /// Number of attempts that have failed since the latest outcome of the call's listener. An
    /// outcome is the list of payloads that a listener returned.
    #[serde(rename = "failures", default, skip_serializing_if = "is_default")]
    pub failures: u32,
    /// Number of consecutive rounds, up to the latest outcome, in which every result was a failure.
    /// A round is one delivery of results to the listener.
    #[serde(rename = "failed_rounds", default, skip_serializing_if = "is_default")]
    pub failed_rounds: u32,
    /// Number of delegations of the goal that this call gave to an agent. Includes the further
    /// delegations of delegated tasks.
    #[serde(rename = "delegations", default, skip_serializing_if = "is_default")]
    pub delegations: u32,
    /// The attempt that is handed over to the listener; `None` if no attempt is handed over. If the
    /// pump ends during the attempt, the attempt stays here for the next pump.
    #[serde(rename = "handed_over", default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<Attempt>,
    /// Number of model requests on each route since the latest outcome of the agent. A route is a
    /// provider with one of its models. An outcome is the list of payloads that the agent returned.
    #[serde(rename = "requests", default, skip_serializing_if = "RareList::is_empty")]
    pub requests: RareList<(String, u32)>,
    /// Time of the first hand-over since the call's latest outcome or failed attempt; `None` if
    /// there was no hand-over since then.
    #[serde(rename = "offered_since", default, skip_serializing_if = "Option::is_none")]
    pub offered_since: Option<Time>,
    #[serde(rename = "held", default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Time since which a pause has kept the call from being handed over; `None` if no pause does
    /// so. While a pause keeps the call, the deadlines of the call do not run.
    #[serde(rename = "kept_since", default, skip_serializing_if = "Option::is_none")]
    pub kept_since: Option<Time>,
    /// Time that does not count against the time limit of a workflow run. `None` if all time of the
    /// call counts. Boxed, because most calls have no such time.
    #[serde(rename = "uncounted", default, skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<Box<UncountedTime>>,
    /// The preview of a call that is or was held for an approval, or the reason why no preview
    /// came. `None` while neither is known. Boxed, because most calls have none.
    #[serde(rename = "preview", default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Box<CallPreview>>,
    /// Whether the call belongs to a fork and has no result in the source of the fork.
    #[serde(rename = "unrecorded", default, skip_serializing_if = "is_default")]
    pub unrecorded: bool,
    /// Whether an operator has approved the call. An approved call needs no further approval.
    #[serde(rename = "approved", default, skip_serializing_if = "is_default")]
    pub approved: bool,
}

/// The hold of a call: the kind of decision that the call waits for, and the times at which the
/// hold began and ends if no person decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    #[serde(rename = "hold")]
    pub hold: Hold,
    /// Time of the record with which the hold began. `None` in the snapshot of a version that did
    /// not keep this time.
    #[serde(rename = "since", default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    #[serde(rename = "until", default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The time for which the call is held if no person decides. Time that does not count, such as
    /// that of a pause, moves `until` and leaves this duration as it is.
    #[serde(rename = "limit", default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Duration>,
}

/// The preview of a held call, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallPreview {
    /// The preview came. The message is the note that contains the preview.
    #[serde(rename = "recorded")]
    Recorded(#[serde(with = "message_text::one")] Arc<Message>),
    /// No preview came. The text states the reason.
    #[serde(rename = "missing")]
    Missing(String),
}

impl Call {
    /// Returns the recorded preview of the call; `None` if no preview has been recorded.
    pub fn recorded_preview(&self) -> Option<&Arc<Message>> {
        match self.preview.as_deref() {
            Some(CallPreview::Recorded(note)) => Some(note),
            Some(CallPreview::Missing(_)) | None => None,
        }
    }

    /// Whether the call is held for an approval, and its preview has neither arrived nor failed.
    pub fn awaits_preview(&self) -> bool {
        let is_held = self.held.is_some_and(|held| held.hold == Hold::Approval);
        is_held && self.preview.is_none()
    }

    /// Returns the message that opened the call; `None` if the call has no messages.
    pub fn request(&self) -> Option<&Arc<Message>> {
        self.handled.first().or_else(|| self.pending.first().map(|p| &p.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_of_a_snapshot_without_its_beginning_is_read() {
        let held: Held = serde_json::from_str(r#"{"hold":"answer","until":7}"#).unwrap();
        let until = Some(Time(7));
        let expected = Held { hold: Hold::Answer, since: None, until, limit: None };
        assert_eq!(held, expected);
        let since = Some(Time(5));
        let begun = Held { since, ..held };
        let text = serde_json::to_string(&begun).unwrap();
        assert_eq!(serde_json::from_str::<Held>(&text).unwrap(), begun);
    }
}
