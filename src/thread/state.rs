//! The current state: trees of threads, open calls, timers and usage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Closing, Hold, Opening, Renewal};
use crate::clock::Time;
use crate::contract::Gather;
use crate::envelope::{Kind, Message, Money, Spending};
use crate::ids::{Attempt, CallId, Digest, ListenerName, MessageId, Position, ThreadId, TimerId};
use crate::system::WaitFor;
use crate::trace::TraceParent;

/// With a hasher for short keys, as ids are looked up several times for every fact; seeded anew in
/// every process, so that nobody can choose ids that collide.
pub type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// Everything that outlives a restart. Changes by [`super::Fact`]s alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub journal: Uuid,
    pub epoch: u32,
    /// Of the step that decides since the last boot.
    pub core_version: u32,
    pub config: Digest,
    pub trees: Map<ThreadId, Tree>,
    /// The tree each open call works in.
    pub calls: Map<CallId, ThreadId>,
    /// What each client's keys were used for.
    pub keys: Map<(ListenerName, String), KeyUse>,
    /// Nonces of operators' signatures that could still hold, with the time of each signature.
    pub nonces: BTreeMap<Uuid, Time>,
    /// Accepted messages without a disposition, over all trees.
    pub in_flight: usize,
    /// Of the latest record. No later record is of an earlier time.
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

/// A root thread with everything beneath it: the unit of budgets, chains and partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Boxed: most trees have one thread, and a node of the map has room for eleven.
    pub threads: BTreeMap<ThreadId, Box<Thread>>,
    /// Open calls only.
    pub calls: Map<CallId, Call>,
    /// Messages without a disposition, with the call they wait in, if any.
    pub in_flight: Map<MessageId, Option<CallId>>,
    pub timers: BTreeMap<TimerId, Timer>,
    pub usage: Usage,
    /// Where its counts last started again. Boxed: most trees have one request.
    pub renewal: Option<Box<Renewal>>,
    /// What each agent's model calls took of it.
    pub by_agent: ByListener<Spending>,
    /// What model calls under way have reserved of it.
    pub reserved: Vec<Reserved>,
    pub warned: BTreeSet<String>,
    /// Faults that openers have not been given, in order.
    pub kept_faults: Vec<KeptFault>,
    /// When its wall time last started.
    pub started: Time,
    /// Calls that wait for a person.
    pub held: u64,
    /// Since when there are any.
    pub held_since: Time,
    /// Its latest record.
    pub head: Position,
    /// Boxed: most trees have none.
    pub trace: Option<Box<TraceParent>>,
}

impl Tree {
    /// What an attempt has reserved, if its model call is under way.
    pub fn reservation(&self, call: CallId, attempt: Attempt) -> Option<&Reserved> {
        self.reserved.iter().find(|reserved| (reserved.call, reserved.attempt) == (call, attempt))
    }

    /// How long it has been at work. While it waits for a person its time stands still.
    pub fn worked(&self, now: Time) -> Duration {
        let until = if self.held > 0 { self.held_since } else { now };
        until.since(self.started)
    }
}

/// The reservation of a model call, until it is known what the call took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    pub call: CallId,
    pub attempt: Attempt,
    pub agent: ListenerName,
    pub spending: Spending,
    /// Number of its latest request in the attempt.
    pub request: u32,
}

/// The result of a leg of a `first` group that is no reply: kept from the opener while another leg may
/// still reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFault {
    /// The first leg names the group.
    pub group: CallId,
    pub leg: CallId,
    /// How the leg ended; none until its call is closed.
    pub how: Option<Closing>,
    /// One, unless the leg passed on what a group of its own gave it.
    pub faults: Vec<Arc<Message>>,
}

/// What a tree has spent.
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
    /// Of model calls.
    pub const fn spending(&self) -> Spending {
        Spending { tokens: self.tokens, money: self.money }
    }
}

/// What a client's key was used for.
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
    /// The last `seq` given out.
    pub seq: u64,
    /// Labels that children have, or once had.
    pub children: BTreeSet<String>,
    /// How many of them there were when the counts of the tree last started again.
    pub earlier_children: usize,
    pub open_calls: usize,
    /// How the latest closed call of another opener than this thread ended.
    pub result: Option<Closing>,
    /// Items each agent would be shown: own turns and messages delivered to it.
    pub shown: ByListener<u32>,
}

impl Thread {
    pub(super) fn new(by: ListenerName) -> Self {
        let (children, shown) = (BTreeSet::new(), ByListener::default());
        Self { by, seq: 0, children, earlier_children: 0, open_calls: 0, result: None, shown }
    }
}

/// Something for each of a few listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByListener<T>(Vec<(ListenerName, T)>);

impl<T: Default> ByListener<T> {
    pub fn get(&self, listener: &ListenerName) -> Option<&T> {
        self.0.iter().find(|(name, _)| name == listener).map(|(_, own)| own)
    }

    /// That of `listener`, from the default.
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
    /// It fires at a time of the clock, and not after a time.
    pub at: bool,
}

/// A request whose result is still owed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub id: CallId,
    pub thread: ThreadId,
    pub callee: ListenerName,
    pub opening: Opening,
    /// What was delivered and heard, oldest first.
    pub heard: Vec<Arc<Message>>,
    /// What is yet to be heard, in the order in which it will be delivered.
    pub pending: Vec<Pending>,
    /// What the last outcome asked for and has not got.
    pub awaiting: Vec<Awaited>,
    /// Place for the next answer to the last outcome.
    pub next_slot: u32,
    /// Calls it opened in other threads that are still open.
    pub away: BTreeSet<CallId>,
    /// Threads that are cancelled when it closes.
    pub bound: Vec<ThreadId>,
    pub waiting: Option<WaitFor>,
    /// Its timers that are running.
    pub timers: usize,
    /// Outcomes heard so far.
    pub turns: u32,
    /// Attempts failed since the last outcome.
    pub failures: u32,
    /// Rounds in a row, up to the last outcome, in which every result was a failure.
    pub failed_rounds: u32,
    /// The attempt that its listener has, also where the pump that handed it over has ended.
    pub handed_over: Option<Attempt>,
    /// Requests of model calls since the last outcome, by route.
    pub requests: Vec<(String, u32)>,
    /// When it was first handed over since the last attempt that a listener took.
    pub offered_since: Option<Time>,
    pub held: Option<Held>,
    /// An operator has approved it: whatever becomes of it, it needs no other approval.
    pub approved: bool,
}

/// What a call waits for, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub hold: Hold,
    pub until: Option<Time>,
}

/// A message that waits to be delivered in a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    pub slot: Slot,
    /// It is the result of a call in the same thread.
    pub answers_call: bool,
    pub message: Arc<Message>,
}

/// Where an answer stands among the answers to one outcome: by action, then by leg. What was not
/// asked for by the last outcome comes after everything that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    pub action: u32,
    pub leg: u32,
}

impl Slot {
    pub const UNASKED: Self = Self { action: u32::MAX, leg: 0 };
}

/// An action of the last outcome whose answer is still out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Awaited {
    pub slot: u32,
    /// The first leg names the group.
    pub group: CallId,
    pub gather: Gather,
    /// Open legs, each with its place.
    pub open: Vec<(CallId, u32)>,
    pub legs: u32,
}

impl Call {
    /// Whether everything the last outcome asked for is there, so that the listener can go on.
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

    /// Whether threads or timers of this call are still to end.
    pub fn has_open(&self) -> bool {
        !self.away.is_empty() || self.timers > 0
    }

    /// Whether a thread of this call ended, or a timer fired, and its listener has not heard.
    pub fn has_news(&self) -> bool {
        let news = |p: &Pending| matches!(&*p.message.name.local, "thread-result" | "timer-fired");
        self.pending.iter().any(|p| p.message.kind == Kind::System && news(p))
    }

    /// The request that opened it.
    pub fn request(&self) -> Option<&Arc<Message>> {
        self.heard.first().or_else(|| self.pending.first().map(|p| &p.message))
    }
}
