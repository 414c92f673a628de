//! Forks: root threads that share, by reference, the history of another root thread up to one of
//! that thread's records.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::record::{Record, Verdict};
use super::small_map::SmallSet;
use super::state::{ByListener, State, Thread, Tree};
use super::{
    ActionDetail, Allotment, AllotmentUsage, Closing, DecisionOrigin, Fact, InheritedAllotment,
    ReopenedCall, ReopenedNames, reopened_id,
};
use crate::clock::Time;
use crate::envelope::Spending;
use crate::ids::{CallId, Digest, ListenerName, MessageId, Position, ThreadId};

/// First core version that does not count the threads of the source against a fork's limits of
/// threads and children. Earlier versions counted these threads. Only the limit on the children of
/// the root thread left them out.
const OWN_COUNTS_SINCE: u32 = 61;

/// The origin of a fork: a message in another tree, with the record that contains the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkSource {
    /// Root thread of the tree from which the fork begins.
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    /// The message at which the fork begins.
    #[serde(rename = "message")]
    pub message: MessageId,
    /// `seq` of the message at which the fork begins.
    #[serde(rename = "seq")]
    pub seq: u64,
    /// Position of the record with the message at which the fork begins.
    #[serde(rename = "record")]
    pub record: Position,
    /// Hash of the record with the message at which the fork begins. The hash covers all earlier
    /// records of the source.
    #[serde(rename = "hash")]
    pub hash: Digest,
    /// Position of the last record of the source that belongs to the history of the fork. 0 if the
    /// fork begins with the first message of the source.
    #[serde(rename = "history")]
    pub history: Position,
    /// Whether new workflow runs in the fork use the definitions of the present config. If false,
    /// each run uses a definition that the source of the fork recorded for its own runs. If the
    /// source recorded none for the workflow, the run uses the present config.
    #[serde(rename = "unpinned", default, skip_serializing_if = "std::ops::Not::not")]
    pub unpinned: bool,
    /// Id of the source's journal; `None` if the fork is in the same journal. A fork in another
    /// journal is a trial: no person decides about its calls.
    #[serde(rename = "journal", default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<Uuid>,
}

/// A thread that a fork takes over from its source, as the fork's root thread or beneath it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedThread {
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "by")]
    pub by: ListenerName,
    /// The last `seq` that the thread has in the history of the fork.
    #[serde(rename = "seq")]
    pub seq: u64,
    #[serde(rename = "result", default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Closing>,
    /// Id, in the fork, of the call to which the thread is bound; `None` if the thread is not
    /// bound. A bound thread is cancelled when its call closes. If the fork does not reopen this
    /// call, the thread has ended in the fork.
    #[serde(rename = "bound", default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<CallId>,
    /// Number of items in each agent's prompt. The items are the agent's own turns, and the
    /// messages that were delivered to the agent.
    #[serde(rename = "shown", default, skip_serializing_if = "ByListener::is_empty")]
    pub shown: ByListener<u32>,
    /// Limits of the thread. `None` if the thread has no allotment. Also `None` for the root
    /// thread, which gets its limits from the config or the operator.
    #[serde(rename = "allotment", default, skip_serializing_if = "Option::is_none")]
    pub allotment: Option<InheritedAllotment>,
}

/// Payload with which a fork begins: the request of a client, or a payload with which the operator
/// replaces an agent's turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedRequest {
    /// Id of the message that contains the payload in the fork.
    #[serde(rename = "id")]
    pub id: MessageId,
    /// The sender of the payload: the client whose request the fork takes from its source, or the
    /// agent whose turn is replaced.
    #[serde(rename = "sender")]
    pub sender: ListenerName,
    #[serde(rename = "verdict")]
    pub verdict: Verdict,
    /// Id, in the fork, of the call in which the operator replaces an agent's turn. `None` if the
    /// payload is a client's request.
    #[serde(rename = "call", default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// An operator's request to fork a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkAction {
    /// Root thread of the fork.
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "source")]
    pub source: ForkSource,
    /// The client that receives the results of the fork.
    #[serde(rename = "client")]
    pub client: ListenerName,
    /// Listeners that the operator permits to handle calls of the fork. They handle only calls that
    /// have no result in the source of the fork.
    #[serde(rename = "live", default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<ListenerName>,
    #[serde(rename = "allotment", default, skip_serializing_if = "Option::is_none")]
    pub allotment: Option<Allotment>,
    /// The payload with which the fork begins. It is a client's request, or a payload with which
    /// the operator replaces an agent's turn. `None` for a fork that only continues its source.
    #[serde(rename = "request", default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ForkedRequest>,
    /// The operator who signed the action; the anonymous operator if the action is not signed.
    #[serde(rename = "by")]
    pub by: ListenerName,
    #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
}

impl ForkAction {
    /// Returns the text that an operator signs for this fork. The text contains everything that the
    /// operator decides.
    pub fn text(&self) -> String {
        let payload = self.request.as_ref().map(|request| match &request.verdict {
            Verdict::Passed(digest) | Verdict::Refused(digest) => *digest,
        });
        let allotment = self.allotment.unwrap_or_default();
        let place = (self.source.message, self.source.unpinned);
        fork_text(place, &self.client, payload, &self.live, &allotment)
    }

    /// Returns what the operator permits to the fork: the listeners that may handle its calls, and
    /// its limits of tokens and money.
    pub fn permissions(&self) -> Vec<ActionDetail> {
        let allotment = self.allotment.unwrap_or_default();
        let live = self.live.iter().map(|listener| ActionDetail::new("live", listener));
        let tokens = allotment.tokens.map(|tokens| ActionDetail::new("tokens", tokens));
        let money = allotment.money.map(|money| ActionDetail::new("money", money));
        live.chain(tokens).chain(money).collect()
    }
}

/// Returns the text that an operator signs for a fork. For the meaning of `unpinned`, see
/// [`ForkSource::unpinned`].
pub fn fork_text(
    (message, unpinned): (MessageId, bool),
    client: &ListenerName,
    payload: Option<Digest>,
    live: &[ListenerName],
    allotment: &Allotment,
) -> String {
    let mut text = format!("message {message} for {client}");
    if let Some(payload) = payload {
        text.push_str(&format!(", payload {payload}"));
    }
    if unpinned {
        text.push_str(", workflows of the config");
    }
    for listener in live {
        text.push_str(&format!(", live {listener}"));
    }
    if let Some(tokens) = allotment.tokens {
        text.push_str(&format!(", tokens {tokens}"));
    }
    if let Some(money) = allotment.money {
        text.push_str(&format!(", money {money}"));
    }
    text
}

/// The source of a forked tree, and the listeners that the operator permits to handle calls of the
/// fork. They handle only calls that have no result in the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeLineage {
    #[serde(rename = "source")]
    pub source: ForkSource,
    #[serde(rename = "live", default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<ListenerName>,
}

impl State {
    /// Returns the threads that a fork takes over from the tree `source`, in sorted order. `fork`
    /// is the root of the fork, and `at` is the time at which the fork's history ends.
    pub fn inherited_threads(
        &self,
        (source, fork): (&ThreadId, &ThreadId),
        at: Time,
    ) -> Vec<InheritedThread> {
        // The limits of a fork's root come from the config or the operator, never from the source.
        let allotment = |id: &ThreadId, thread: &Thread| {
            let allotted = thread.allotted.as_deref().filter(|_| !id.is_root());
            Some(InheritedAllotment::of(allotted?, at))
        };
        let threads = self.trees.get(source).into_iter().flat_map(|tree| tree.threads.iter());
        let inherited = threads.filter_map(|(id, thread)| {
            Some(InheritedThread {
                thread: id.under(fork)?,
                by: thread.by.clone(),
                seq: thread.seq,
                result: thread.result,
                bound: thread.bound.map(|call| CallId(reopened_id(fork, call.0))),
                shown: thread.shown.clone(),
                allotment: allotment(id, thread),
            })
        });
        inherited.collect()
    }
}

impl Tree {
    /// Makes this tree the fork that `fact` describes. The fork begins at `time`, and its root
    /// thread belongs to the client that `fact` names. Does nothing if `fact` does not begin a
    /// fork. `core_version` is the version of the core that recorded the fork.
    pub(super) fn fork(&mut self, time: Time, core_version: u32, fact: &Fact) {
        let Fact::Forked { thread: root, by: client, source, live, allotment, threads } = fact
        else {
            return;
        };

        for inherited in threads {
            let InheritedThread { thread, by, seq, result, bound, shown, allotment } = inherited;
            let mut own = Thread::new(by.clone());
            own.seq = *seq;
            own.result = *result;
            own.bound = *bound;
            own.shown = shown.clone();
            own.allotted = allotment.map(|own| Box::new(own.begun(time)));
            own.children = labels_beneath(thread, threads);
            self.threads.insert(thread.clone(), own);
        }

        if !self.threads.contains_key(root) {
            self.threads.insert(root.clone(), Thread::new(client.clone()));
        }
        let Some(own) = self.threads.get_mut(root) else { return };
        own.by = client.clone();
        own.earlier_children = own.children.len();
        own.allotted = allotment.map(|limits| {
            Box::new(AllotmentUsage { limits, spent: Spending::default(), still_since: None })
        });
        let lineage = TreeLineage { source: source.clone(), live: live.clone() };
        self.lineage = Some(Box::new(lineage));
        if core_version >= OWN_COUNTS_SINCE {
            self.renew(time);
        }
    }
}

/// Returns the labels of the threads directly beneath `parent`.
fn labels_beneath(parent: &ThreadId, threads: &[InheritedThread]) -> SmallSet<String> {
    let children = threads.iter().filter(|own| own.thread.parent().as_ref() == Some(parent));
    children.map(|own| own.thread.label().to_owned()).collect()
}

impl Record {
    /// Returns the source of the fork that begins with this record. Returns `None` if the record
    /// begins no fork.
    pub fn fork_source(&self) -> Option<&ForkSource> {
        self.facts.iter().find_map(|fact| match fact {
            Fact::Forked { source, .. } => Some(source),
            _ => None,
        })
    }

    /// If this record begins a fork, returns the ids that the fork gives to reopened messages and
    /// calls of its source. Otherwise, returns no ids.
    pub fn reopened_names(&self) -> ReopenedNames {
        ReopenedNames::of(self.facts.iter().filter_map(|fact| match fact {
            Fact::Reopened(call) => Some(&**call),
            _ => None,
        }))
    }

    /// Converts a record of the source into a record of the fork's history:
    /// - In thread ids, `root` replaces the root of the source.
    /// - The ids of reopened messages and calls are replaced as `names` states.
    #[must_use]
    pub fn under(mut self, root: &ThreadId, names: &ReopenedNames) -> Self {
        let rename = |thread: &mut ThreadId| {
            if let Some(renamed) = thread.under(root) {
                *thread = renamed;
            }
        };

        rename(&mut self.tree);
        for fact in &mut self.facts {
            match fact {
                Fact::Accepted { message, opening, .. } => {
                    *message = Arc::new(names.message(message, root));
                    if let Some(opening) = opening {
                        names.rename_opening(opening, root);
                    }
                }
                Fact::ThreadOpened { thread, bound, .. } => {
                    rename(thread);
                    *bound = bound.map(|call| names.call(call));
                }
                Fact::Window { thread, .. } => rename(thread),
                _ => {
                    if let Some(call) = call_of(fact) {
                        *call = names.call(*call);
                    }
                }
            }
        }
        self
    }

    /// Removes the messages of reopened calls from the record. Only the first record of a fork
    /// contains such messages. The fork's history, which is read from the source, already contains
    /// them.
    #[must_use]
    pub fn without_reopened(mut self) -> Self {
        let calls = self.facts.iter().filter_map(|fact| match fact {
            Fact::Reopened(call) => Some(&**call),
            _ => None,
        });
        let again: BTreeSet<_> =
            calls.flat_map(ReopenedCall::messages).map(|(own, _)| own).collect();
        if !again.is_empty() {
            self.facts.retain(|fact| match fact {
                Fact::Accepted { message, .. } => !again.contains(&message.id),
                _ => true,
            });
        }
        self
    }
}

/// Returns the call id of `fact`, if `fact` contains a call id, but no id of a message or of a
/// thread. Returns `None` for any other fact.
fn call_of(fact: &mut Fact) -> Option<&mut CallId> {
    match fact {
        Fact::OutcomeReceived { call, .. }
        | Fact::AttemptFailed { call, .. }
        | Fact::HandedOver { call, .. }
        | Fact::NotTaken { call, .. }
        | Fact::CallClosed { call, .. }
        | Fact::Waiting { call, .. }
        | Fact::WaitEnded { call }
        | Fact::TimerSet { call, .. }
        | Fact::Charged { call, .. }
        | Fact::Used { call, .. }
        | Fact::Held { call, .. }
        | Fact::Released { call, .. } => Some(call),
        _ => None,
    }
}
