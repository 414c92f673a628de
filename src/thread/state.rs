//! The current state: trees of threads, open calls, timers and usage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::reservations::TreeReservations;
use super::{Closing, Hold, Opening, Renewal};
use crate::clock::Time;
use crate::contract::Gather;
use crate::envelope::{Kind, Message, Money, Spending};
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId, Position, ThreadId, TimerId};
use crate::system::WaitFor;
use crate::trace::TraceParent;

/// A map with a hasher for short keys, because ids are looked up several times for every fact.
/// Seeded in each process, so that an attacker cannot choose ids that collide.
pub type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// Everything that outlives a restart. Only [`super::Fact`]s change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub journal: Uuid,
    pub epoch: u32,
    /// Version of the step that decides since the last boot.
    pub core_version: u32,
    pub config: Digest,
    pub trees: Map<ThreadId, Tree>,
    /// The tree of each open call.
    pub calls: Map<CallId, ThreadId>,
    /// The submission that each client key was used for.
    pub keys: Map<(ListenerName, String), KeyUse>,
    /// Nonces of signatures that are still valid, with the time of each signature.
    pub nonces: BTreeMap<Uuid, Time>,
    /// Accepted messages without a disposition, over all trees.
    pub in_flight: usize,
    /// Time of the latest record. Times of records never decrease.
    pub time: Time,
}

impl State {
    pub fn tree(&self, thread: &ThreadId) -> Option<&Tree> {
        match thread.is_root() {
            true => self.trees.get(thread),
            false => self.trees.get(&thread.root()),
        }
    }

    pub fn thread(&self, thread: &ThreadId) -> Option<&Thread> {
        self.tree(thread)?.threads.get(thread).map(|thread| &**thread)
    }

    pub fn call(&self, call: CallId) -> Option<&Call> {
        self.trees.get(self.calls.get(&call)?)?.calls.get(&call)
    }
}

/// A root thread with everything beneath it: the unit of budgets, hash chains and partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Boxed: most trees have one thread, and a node of the map has room for eleven.
    pub threads: BTreeMap<ThreadId, Box<Thread>>,
    /// Open calls only.
    pub calls: Map<CallId, Call>,
    /// Messages without a disposition, with the call that they wait in, if any.
    pub in_flight: Map<MessageId, Option<CallId>>,
    pub timers: BTreeMap<TimerId, Timer>,
    pub usage: Usage,
    /// Counts at their last restart. Boxed: most trees have one request.
    pub renewal: Option<Box<Renewal>>,
    /// Use of the tree's budget by each agent's model calls.
    pub by_agent: ByListener<Spending>,
    /// Reservations of model calls in progress. Boxed: most trees have none.
    pub reserved: Option<Box<TreeReservations>>,
    pub warned: BTreeSet<String>,
    /// Faults that their openers have not been given yet, in order.
    pub kept_faults: Vec<KeptFault>,
    /// Time at which its wall time last started.
    pub started: Time,
    /// Number of calls that wait for a person.
    pub held: u64,
    /// Time since when there are any.
    pub held_since: Time,
    /// Position of its latest record.
    pub head: Position,
    /// Boxed: most trees have none.
    pub trace: Option<Box<TraceParent>>,
}

impl Tree {
    /// Working time so far. Waiting for a person does not count.
    pub fn worked(&self, now: Time) -> Duration {
        let until = if self.held > 0 { self.held_since } else { now };
        until.since(self.started)
    }
}

/// A fault of a leg of a `first` group: kept from the opener while another leg may still reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFault {
    /// Id of the group: its first leg.
    pub group: CallId,
    pub leg: CallId,
    /// How the leg ended; `None` until its call is closed.
    pub how: Option<Closing>,
    /// One fault, unless the leg passed on the faults of a group of its own.
    pub faults: Vec<Arc<Message>>,
}

/// Use of a tree's budgets.
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
    /// Use by model calls.
    pub const fn spending(&self) -> Spending {
        Spending { tokens: self.tokens, money: self.money }
    }
}

/// The submission that a client key was used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUse {
    pub calls: Vec<CallId>,
    pub thread: ThreadId,
    pub digest: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The listener or client that opened it.
    pub by: ListenerName,
    /// The last assigned `seq`.
    pub seq: u64,
    /// Labels of all children, present and past.
    pub children: BTreeSet<String>,
    /// Number of children when the tree's counts last restarted.
    pub earlier_children: usize,
    pub open_calls: usize,
    /// How the latest closed call from outside this thread ended.
    pub result: Option<Closing>,
    /// Number of items that each agent would be shown: its own turns and messages delivered to it.
    pub shown: ByListener<u32>,
    /// The call whose close ends it.
    pub bound: Option<CallId>,
}

impl Thread {
    pub(super) fn new(by: ListenerName) -> Self {
        let (children, shown) = (BTreeSet::new(), ByListener::default());
        Self {
            by,
            seq: 0,
            children,
            earlier_children: 0,
            open_calls: 0,
            result: None,
            shown,
            bound: None,
        }
    }
}

/// A value for each of a few listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByListener<T>(Vec<(ListenerName, T)>);

impl<T: Default> ByListener<T> {
    pub fn get(&self, listener: &ListenerName) -> Option<&T> {
        self.0.iter().find(|(name, _)| name == listener).map(|(_, own)| own)
    }

    /// The value of `listener`; inserts the default if there is none.
    pub(super) fn of(&mut self, listener: &ListenerName) -> &mut T {
        let at = self.0.iter().position(|(name, _)| name == listener).unwrap_or_else(|| {
            self.0.reserve_exact(1);
            self.0.push((listener.clone(), T::default()));
            self.0.len() - 1
        });
        let (_, own) = self.0.get_mut(at).expect("it was found or just put there");
        own
    }
}

/// A timer that has neither fired nor been cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    pub call: CallId,
    pub fires_at: Time,
    pub label: Option<String>,
    /// Whether it fires at a time of the clock instead of after a duration.
    pub at: bool,
}

/// A request without a result yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub id: CallId,
    pub thread: ThreadId,
    pub callee: ListenerName,
    pub opening: Opening,
    /// Messages that were delivered and handled, oldest first.
    pub heard: Vec<Arc<Message>>,
    /// Messages that are yet to be delivered, in the order of delivery.
    pub pending: Vec<PendingMessage>,
    /// Actions of the last outcome without an answer.
    pub awaiting: Vec<AwaitedAction>,
    /// Slot for the next answer to the last outcome.
    pub next_slot: u32,
    /// Open calls that it opened in other threads.
    pub away: BTreeSet<CallId>,
    /// Whether it has opened threads that are bound to it.
    pub has_bound: bool,
    pub waiting: Option<WaitFor>,
    /// Number of its running timers.
    pub timers: usize,
    /// Number of recorded outcomes.
    pub turns: u32,
    /// Attempts that failed since the last outcome.
    pub failures: u32,
    /// Rounds in a row, up to the last outcome, in which every result was a failure.
    pub failed_rounds: u32,
    /// The attempt that its listener has, even if the pump that handed it over has ended.
    pub handed_over: Option<Attempt>,
    /// Requests of model calls since the last outcome, by route.
    pub requests: Vec<(String, u32)>,
    /// Time of the first hand-over since the last attempt that a listener took.
    pub offered_since: Option<Time>,
    pub held: Option<Held>,
    /// Whether an operator has approved it. It then needs no other approval.
    pub approved: bool,
}

/// The hold of a call: its reason, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub hold: Hold,
    pub until: Option<Time>,
}

/// A message that waits to be delivered in a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingMessage {
    pub slot: ReplyOrder,
    /// Whether it is the result of a call in the same thread.
    pub answers_call: bool,
    pub message: Arc<Message>,
}

/// Order of an answer among the answers to one outcome: by action, then by leg. Unrequested
/// messages come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyOrder {
    pub action: u32,
    pub leg: u32,
}

impl ReplyOrder {
    pub const UNASKED: Self = Self { action: u32::MAX, leg: 0 };
}

/// An action of the last outcome whose answer is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedAction {
    pub slot: u32,
    /// Id of the group: its first leg.
    pub group: CallId,
    pub gather: Gather,
    /// Open legs with their order.
    pub open: Vec<(CallId, u32)>,
    pub legs: u32,
}

impl Call {
    /// Whether every answer to the last outcome has arrived, so that the listener can be woken.
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

    /// Whether threads or timers of this call have not ended yet.
    pub fn has_open(&self) -> bool {
        !self.away.is_empty() || self.timers > 0
    }

    /// Whether a thread of this call ended or a timer fired without a delivery of that.
    pub fn has_news(&self) -> bool {
        let news =
            |p: &PendingMessage| matches!(&*p.message.name.local, "thread-result" | "timer-fired");
        self.pending.iter().any(|p| p.message.kind == Kind::System && news(p))
    }

    /// The request that opened it.
    pub fn request(&self) -> Option<&Arc<Message>> {
        self.heard.first().or_else(|| self.pending.first().map(|p| &p.message))
    }
}
