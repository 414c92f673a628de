//! Summaries of threads and of trees.

use std::collections::HashMap;

use serde::Serialize;

use crate::clock::Time;
use crate::contract::{Gather, is_run_failure};
use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, ListenerName, PayloadName, ThreadId};
use crate::index::HoldCount;
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, HashedRecord};
use crate::system::is_thread_cancelled;
use crate::thread::{Closing, Fact, Record};
use crate::word_enum::word_enum;

use super::ledger::{MessageLedger, ThreadCounts};

word_enum! {
    /// Phase of a thread, derived from the calls in the thread and beneath it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    pub enum ThreadPhase {
        /// No call has been opened in the thread yet. In the root thread of a fork, the calls of
        /// the source that have ended do not count.
        #[serde(rename = "idle")]
        Idle,
        #[serde(rename = "running")]
        Running,
        /// The call that opened the thread has its result, but calls beneath the thread still run.
        #[serde(rename = "draining")]
        Draining,
        #[serde(rename = "completed")]
        Completed,
        #[serde(rename = "failed")]
        Failed,
        #[serde(rename = "cancelled")]
        Cancelled,
    }
}

impl From<Closing> for ThreadPhase {
    fn from(how: Closing) -> Self {
        match how {
            Closing::Completed => Self::Completed,
            Closing::Failed => Self::Failed,
            Closing::Cancelled => Self::Cancelled,
        }
    }
}

/// Returns the state of a thread in words. If the thread is open and calls in it wait for people,
/// the state names the kind of decision for which they wait. If the kinds differ, the state is
/// `waits for a person`. In all other cases, the state is the phase of the thread.
pub fn thread_state(phase: &str, waits: HoldCount) -> &str {
    match waits {
        HoldCount { calls: 0, .. } => phase,
        _ if !is_open_phase(phase) => phase,
        HoldCount { hold: Some(hold), .. } => hold.state(),
        HoldCount { hold: None, .. } => "waits for a person",
    }
}

/// Whether a thread in the phase `phase` still has open work.
pub fn is_open_phase(phase: &str) -> bool {
    [ThreadPhase::Running, ThreadPhase::Draining].map(ThreadPhase::as_str).contains(&phase)
}

/// Whether the journal contains a record of the thread.
pub fn is_recorded(reader: &JournalReader, thread: &ThreadId) -> Result<bool, Error> {
    let Some(head) = reader.head(&thread.root())? else { return Ok(false) };
    let opens = |fact: &Fact| match fact {
        Fact::ThreadOpened { thread: opened, .. } => opened == thread,
        Fact::Forked { thread: root, threads, .. } => {
            root == thread || threads.iter().any(|inherited| inherited.thread == *thread)
        }
        _ => false,
    };
    let opened = |sealed: &HashedRecord| sealed.record.facts.iter().any(opens);
    Ok(reader.walk(head)?.iter().any(opened))
}

/// The calls of a tree, from which the phases of its threads follow.
#[derive(Debug, Default)]
pub(super) struct TreeCalls {
    open: HashMap<CallId, OpenTreeCall>,
    /// The thread of each call. Includes closed calls, because their costs may be recorded later.
    threads: HashMap<CallId, ThreadId>,
    ended: HashMap<ThreadId, Closing>,
}

/// An open call of a tree.
#[derive(Debug)]
struct OpenTreeCall {
    thread: ThreadId,
    /// Whether a sender outside the thread opened the call.
    is_outside: bool,
    /// How the results are gathered, if the call belongs to a request to several peers.
    gather: Option<Gather>,
    has_replied: bool,
    /// Whether the call is in a root thread, and the workflow's reply to the call reports a failed
    /// run. The call itself completes, but its thread counts as failed.
    is_failed_run: bool,
}

impl TreeCalls {
    pub(super) fn take(&mut self, fact: &Fact) {
        match fact {
            Fact::Accepted { message, opening: Some(opening), .. } => {
                let thread = message.thread.clone();
                let call = CallId(message.id);
                let is_outside = opening.is_from_outside(&thread);
                if is_outside && opening.begins_group(call) {
                    // The result follows from the calls of this request alone.
                    self.ended.remove(&thread);
                }
                self.threads.insert(call, thread.clone());
                let open = OpenTreeCall {
                    thread,
                    is_outside,
                    gather: opening.group.map(|(_, gather)| gather),
                    has_replied: false,
                    is_failed_run: false,
                };
                self.open.insert(call, open);
            }
            Fact::Accepted { message, .. } if is_thread_cancelled(message) => {
                // A bound thread may end before a call was opened in it.
                self.ended.entry(message.thread.clone()).or_insert(Closing::Cancelled);
            }
            Fact::Accepted { message, .. } => {
                // A reply precedes the end of its call in the record.
                let call = message.cause.map(CallId).and_then(|call| self.open.get_mut(&call));
                if let Some(call) = call.filter(|_| message.call.is_none()) {
                    call.has_replied |= message.kind == MessageKind::Reply;
                    call.is_failed_run |= is_failed_run(message);
                }
            }
            Fact::CallClosed { call, how } => {
                let closed = self.open.remove(call);
                let Some(closed) = closed.filter(|call| call.is_outside) else { return };
                let how = if closed.is_failed_run { Closing::Failed } else { *how };
                let earlier = self.ended.get(&closed.thread).copied();
                let how = match closed.gather {
                    Some(gather) => how.of_group(earlier, gather, closed.has_replied),
                    None => how,
                };
                self.ended.insert(closed.thread, how);
            }
            Fact::Forked { threads, .. } => {
                // Nothing has ended in the fork's root thread yet.
                let beneath = threads.iter().filter(|own| !own.thread.is_root());
                let ended = beneath.filter_map(|own| Some((own.thread.clone(), own.result?)));
                self.ended.extend(ended);
            }
            _ => {}
        }
    }

    pub(super) fn know(&mut self, call: CallId, thread: ThreadId) {
        self.threads.insert(call, thread);
    }

    pub(super) fn thread_of(&self, call: CallId) -> Option<&ThreadId> {
        self.threads.get(&call)
    }

    pub(super) fn status(&self, thread: &ThreadId) -> ThreadPhase {
        if self.open.values().any(|open| open.thread == *thread) {
            return ThreadPhase::Running;
        }
        let Some(how) = self.ended.get(thread) else { return ThreadPhase::Idle };
        let mut open = self.open.values();
        let drains = thread.is_root() && open.any(|open| open.thread.is_beneath(thread));
        if drains { ThreadPhase::Draining } else { ThreadPhase::from(*how) }
    }
}

/// Whether `message` is a workflow's reply in a root thread, and reports that a run of this
/// workflow failed. False for a message that is delivered in a call.
fn is_failed_run(message: &Message) -> bool {
    message.kind == MessageKind::Reply
        && message.call.is_none()
        && message.thread.is_root()
        && is_run_failure(&message.from, &message.name)
}

/// Summary of one tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreeSummary {
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "status")]
    pub status: ThreadPhase,
    /// Number of threads beneath the root thread.
    #[serde(rename = "subthreads")]
    pub subthreads: usize,
    /// Message counts of the whole tree.
    #[serde(rename = "messages")]
    pub messages: ThreadCounts,
    #[serde(rename = "in_flight")]
    pub in_flight: u64,
    #[serde(rename = "records")]
    pub records: u64,
    #[serde(rename = "opened", serialize_with = "text")]
    pub opened: Time,
    #[serde(rename = "updated", serialize_with = "text")]
    pub updated: Time,
    /// Sender of the tree's first call; `None` if the tree has no call.
    #[serde(rename = "asked_by", skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<ListenerName>,
    #[serde(rename = "asked", skip_serializing_if = "Option::is_none")]
    pub request: Option<PayloadName>,
}

fn text<S: serde::Serializer>(time: &Time, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(time)
}

/// Returns summaries of trees, sorted by the time of the last change, oldest first. If `newest` is
/// given, returns at most this number of trees: those that changed last.
pub fn summaries(reader: &JournalReader, newest: Option<usize>) -> Result<Vec<TreeSummary>, Error> {
    let mut trees = reader.trees()?;
    trees.sort_by_key(|tree| tree.head);
    let skipped = newest.map_or(0, |newest| trees.len().saturating_sub(newest));
    trees.into_iter().skip(skipped).map(|tree| Ok(summary(&reader.walk(tree.head)?))).collect()
}

fn summary(records: &[HashedRecord]) -> TreeSummary {
    let records: Vec<&Record> = records.iter().map(|sealed| &sealed.record).collect();
    let root = records.first().map_or_else(ThreadId::organism, |record| record.tree.clone());
    let mut ledger = MessageLedger::default();
    let mut calls = TreeCalls::default();
    let mut subthreads = 0;
    let mut first_call = None;

    for record in &records {
        // A violation is ignored here: this list proves nothing, and `verify` reports violations.
        ledger.take(record).unwrap_or_default();
        for fact in &record.facts {
            calls.take(fact);
            match fact {
                Fact::ThreadOpened { thread, .. } if !thread.is_root() => subthreads += 1,
                Fact::Forked { threads, .. } => {
                    subthreads += threads.iter().filter(|own| !own.thread.is_root()).count();
                }
                Fact::Accepted { message, opening: Some(_), .. } if first_call.is_none() => {
                    first_call = Some((message.from.clone(), message.name.clone()));
                }
                _ => {}
            }
        }
    }

    let messages = ledger.total();
    let (requested_by, request) = first_call.unzip();
    TreeSummary {
        status: calls.status(&root),
        thread: root,
        subthreads,
        messages,
        in_flight: messages.in_flight(),
        records: records.len() as u64,
        opened: records.first().map_or(Time(0), |record| record.time),
        updated: records.last().map_or(Time(0), |record| record.time),
        requested_by,
        request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::Hold;

    #[test]
    fn an_open_thread_says_what_it_waits_for() {
        let waits = |calls, hold| HoldCount { calls, hold };
        let cases = [
            ("running", waits(0, None), "running"),
            ("running", waits(1, Some(Hold::Approval)), "waits for an approval"),
            ("draining", waits(2, Some(Hold::Answer)), "waits for an answer"),
            ("running", waits(2, None), "waits for a person"),
            ("completed", waits(1, Some(Hold::Approval)), "completed"),
        ];
        for (phase, waits, expected) in cases {
            assert_eq!(thread_state(phase, waits), expected);
        }
    }
}
