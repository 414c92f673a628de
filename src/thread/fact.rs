//! The facts that a journal record may contain: a closed list. Each fact is valid from its record
//! on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Allotment, ForkSource, InheritedThread, PauseTarget, ReopenedCall};
use crate::clock::Time;
use crate::contract::Gather;
use crate::envelope::{AttemptFailure, Disposition, Message, Money, Refusal, Spending};
use crate::ids::{
    Attempt, CallId, Digest, ListenerName, MessageId, ScheduleName, ThreadId, TimerId,
};
use crate::system::WaitFor;
use crate::trace::TraceParent;
use crate::word_enum::word_enum;

/// The party that waits for the result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by")]
pub enum Opener {
    /// A client outside the organism opened the call. The result of the call is recorded, and the
    /// client reads it from the record.
    #[serde(rename = "client")]
    Client {
        #[serde(rename = "name")]
        name: ListenerName,
    },
    /// A listener opened the call while it handled another call, whose id is `call`. The two calls
    /// are in different threads if the listener used `spawn-thread` or `send-to-thread`.
    #[serde(rename = "call")]
    Call {
        #[serde(rename = "name")]
        name: ListenerName,
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "thread")]
        thread: ThreadId,
    },
}

impl Opener {
    pub fn name(&self) -> &ListenerName {
        match self {
            Self::Client { name } | Self::Call { name, .. } => name,
        }
    }
}

/// The call that a message of kind `call` opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    #[serde(rename = "opener")]
    pub opener: Opener,
    /// The group to which the call belongs: the id of the group's first call, and the rule for
    /// gathering the results. A group consists of the calls to several peers that got the same
    /// payload. `None` if a single peer got the payload.
    #[serde(rename = "group", default, skip_serializing_if = "Option::is_none")]
    pub group: Option<(CallId, Gather)>,
    /// Whether the result of the call becomes the result of the opener's own call.
    #[serde(rename = "forward", default, skip_serializing_if = "std::ops::Not::not")]
    pub forward: bool,
}

impl Opening {
    /// Whether the call was opened from outside its thread, which is `thread`: by a client, or by a
    /// call in another thread.
    pub fn is_from_outside(&self, thread: &ThreadId) -> bool {
        match &self.opener {
            Opener::Client { .. } => true,
            Opener::Call { thread: of, .. } => of != thread,
        }
    }

    /// Whether `call`, which has this opening, is the first call of a group.
    pub fn begins_group(&self, call: CallId) -> bool {
        self.group.is_some_and(|(first, _)| first == call)
    }
}

/// Whether an agent got the warning of a budget when the warning was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarningStatus {
    /// An agent got the warning. Core versions before 69 recorded no other warnings.
    #[default]
    #[serde(rename = "sent")]
    Sent,
    /// No open call could get the warning, so it is recorded for the alert only.
    #[serde(rename = "unsent")]
    Unsent,
    /// An agent got a warning that an earlier record has as unsent.
    #[serde(rename = "sent-later")]
    SentLater,
}

impl WarningStatus {
    fn is_sent(&self) -> bool {
        *self == Self::Sent
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closing {
    /// The call ended with replies, or with `<ack/>`.
    #[serde(rename = "completed")]
    Completed,
    /// The call ended with a system payload that states the reason.
    #[serde(rename = "failed")]
    Failed,
    #[serde(rename = "cancelled")]
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerEnd {
    #[serde(rename = "fired")]
    Fired,
    #[serde(rename = "cancelled")]
    Cancelled,
}

word_enum! {
    /// The kind of decision for which a held call waits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Hold {
        /// An operator must approve the payload of the call.
        #[serde(rename = "approval")]
        Approval,
        /// The call is a question that a person must answer.
        #[serde(rename = "answer")]
        Answer,
    }
}

impl Hold {
    /// Returns the name of the state in which a held call waits for the decision.
    pub const fn state(self) -> &'static str {
        match self {
            Self::Approval => "waits for an approval",
            Self::Answer => "waits for an answer",
        }
    }

    /// Returns the name of the command that makes the decision.
    pub const fn command(self) -> &'static str {
        match self {
            Self::Approval => "approve",
            Self::Answer => "answer",
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A fact of a journal record. The fact is valid from this record on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// A pump started on the journal that contains this record.
    #[serde(rename = "booted")]
    Booted {
        #[serde(rename = "journal")]
        journal: Uuid,
        #[serde(rename = "epoch")]
        epoch: u32,
        #[serde(rename = "config")]
        config: Digest,
        /// Version of the pump's core. The core version determines the content of this record and
        /// of the later records, until another record states a version. 0 in older journals, whose
        /// boot records state no version.
        #[serde(rename = "core_version", default, skip_serializing_if = "is_zero")]
        core_version: u32,
        /// Digests of the stored texts (blobs) that the organism uses from this record on: config,
        /// prompts and schemas. Empty in older journals, whose boot records list no blobs.
        #[serde(rename = "blobs", default, skip_serializing_if = "Vec::is_empty")]
        blobs: Vec<Digest>,
    },
    /// A running pump put another config in force. Attempts in flight keep the config under which
    /// they were handed over.
    #[serde(rename = "reloaded")]
    Reloaded {
        /// The epoch, which is the number of the pump's start. A reload does not change the epoch.
        #[serde(rename = "epoch")]
        epoch: u32,
        #[serde(rename = "config")]
        config: Digest,
        #[serde(rename = "core_version")]
        core_version: u32,
        /// Digests of the stored texts (blobs) that the organism uses from this record on.
        #[serde(rename = "blobs")]
        blobs: Vec<Digest>,
    },
    #[serde(rename = "thread-opened")]
    ThreadOpened {
        #[serde(rename = "thread")]
        thread: ThreadId,
        #[serde(rename = "by")]
        by: ListenerName,
        /// The call to which the thread is bound: when this call closes, the thread is cancelled.
        /// `None` if the thread is not bound.
        #[serde(rename = "bound", default, skip_serializing_if = "Option::is_none")]
        bound: Option<CallId>,
        /// Limits of the thread together with its subthreads; `None` if it has no such limits.
        #[serde(rename = "allotment", default, skip_serializing_if = "Option::is_none")]
        allotment: Option<Allotment>,
    },
    /// A root thread begins as a fork. The history of the fork consists of the records of its
    /// source up to a position.
    #[serde(rename = "forked")]
    Forked {
        #[serde(rename = "thread")]
        thread: ThreadId,
        /// The client that receives the results of the fork.
        #[serde(rename = "by")]
        by: ListenerName,
        #[serde(rename = "source")]
        source: ForkSource,
        /// Listeners that the operator permits to handle calls of the fork. They handle only calls
        /// that have no result in the source of the fork.
        #[serde(rename = "live", default, skip_serializing_if = "Vec::is_empty")]
        live: Vec<ListenerName>,
        #[serde(rename = "allotment", default, skip_serializing_if = "Option::is_none")]
        allotment: Option<Allotment>,
        /// The threads that the source had at the end of the fork's history. In their ids, the root
        /// of the fork replaces the root of the source.
        #[serde(rename = "threads", default, skip_serializing_if = "Vec::is_empty")]
        threads: Vec<InheritedThread>,
    },
    /// A call that was open in the source of a fork is open again in the fork. The messages of the
    /// call are in earlier facts of the same record, under the ids that they have in the fork.
    #[serde(rename = "reopened")]
    Reopened(Box<ReopenedCall>),
    /// A call of a fork gets its result from the source of the fork, so no listener handles the
    /// call.
    #[serde(rename = "recalled")]
    Recalled {
        #[serde(rename = "call")]
        call: CallId,
        /// Id of the call in the source. The result of this call becomes the result of the call in
        /// the fork.
        #[serde(rename = "source")]
        source: CallId,
    },
    /// The source of a fork has no result for a call that the fork has opened.
    #[serde(rename = "not-on-record")]
    NotOnRecord {
        #[serde(rename = "call")]
        call: CallId,
    },
    /// An operator retried a message of this tree or a refused submission. The retry sent a new
    /// message.
    #[serde(rename = "retried")]
    Retried {
        #[serde(rename = "message")]
        message: MessageId,
        /// Id of the new message. If several peers get the payload, the id of the first new
        /// message.
        #[serde(rename = "retry")]
        retry: MessageId,
    },
    /// A message was accepted. `opening` is present if the message opens a call.
    #[serde(rename = "accepted")]
    Accepted {
        #[serde(rename = "message")]
        message: Arc<Message>,
        #[serde(rename = "opening", default, skip_serializing_if = "Option::is_none")]
        opening: Option<Opening>,
        /// The client key of the submission; `None` if the client sent no key.
        #[serde(rename = "key", default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    #[serde(rename = "disposed")]
    Disposed {
        #[serde(rename = "message")]
        message: MessageId,
        #[serde(rename = "how")]
        how: Disposition,
    },
    /// A payload was refused. A refusal is not a message, so it has no `seq` number in the thread.
    #[serde(rename = "refused")]
    Refused {
        #[serde(rename = "sender")]
        sender: ListenerName,
        #[serde(rename = "thread", default, skip_serializing_if = "Option::is_none")]
        thread: Option<ThreadId>,
        #[serde(rename = "call", default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        #[serde(rename = "refusal")]
        refusal: Refusal,
    },
    /// The outcome of an attempt is recorded. The listener has handled the messages of the
    /// attempt's delivery.
    #[serde(rename = "heard")]
    OutcomeReceived {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    #[serde(rename = "attempt-failed")]
    AttemptFailed {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "failure")]
        failure: AttemptFailure,
    },
    /// An attempt was handed over. The listener has the attempt until the end of the attempt is
    /// recorded. The call of the attempt may belong to another tree than this record.
    #[serde(rename = "handed-over")]
    HandedOver {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    /// No process of the listener took the delivery of an attempt. The attempt does not count as
    /// one of the call's permitted attempts.
    #[serde(rename = "not-taken")]
    NotTaken {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    #[serde(rename = "call-closed")]
    CallClosed {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "how")]
        how: Closing,
    },
    #[serde(rename = "waiting")]
    Waiting {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "until")]
        until: WaitFor,
    },
    /// A wait ended before the condition of the wait was met.
    #[serde(rename = "wait-ended")]
    WaitEnded {
        #[serde(rename = "call")]
        call: CallId,
    },
    #[serde(rename = "timer-set")]
    TimerSet {
        #[serde(rename = "timer")]
        timer: TimerId,
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "fires_at")]
        fires_at: Time,
        #[serde(rename = "label")]
        label: Option<String>,
        /// Whether the timer fires at a clock time instead of after a duration.
        #[serde(rename = "at", default, skip_serializing_if = "std::ops::Not::not")]
        at: bool,
    },
    #[serde(rename = "timer-ended")]
    TimerEnded {
        #[serde(rename = "timer")]
        timer: TimerId,
        #[serde(rename = "how")]
        how: TimerEnd,
    },
    /// The window of an agent has changed. The window is the part of a thread that the agent's
    /// prompt shows. It now starts `kept` items before the message whose `seq` is `before`.
    #[serde(rename = "window")]
    Window {
        #[serde(rename = "agent")]
        agent: ListenerName,
        #[serde(rename = "thread")]
        thread: ThreadId,
        #[serde(rename = "before")]
        before: u64,
        #[serde(rename = "kept")]
        kept: u32,
    },
    /// A model call reserved tokens and money for a request. The reservation covers this request
    /// and all earlier requests of the same attempt. It lasts until the actual use is recorded. The
    /// pump permits the request only after this fact is durable.
    #[serde(rename = "reserved")]
    Reserved {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "agent")]
        agent: ListenerName,
        #[serde(rename = "spending")]
        spending: Spending,
        /// Ordinal number of the request within its attempt.
        #[serde(rename = "request")]
        request: u32,
        #[serde(rename = "route", default, skip_serializing_if = "Option::is_none")]
        route: Option<String>,
        /// Thread of the call. Recorded only by core versions before 69, and only if this thread or
        /// a thread above it had an allotment. Since then, the open call gives the thread.
        #[serde(rename = "thread", default, skip_serializing_if = "Option::is_none")]
        thread: Option<ThreadId>,
    },
    /// The result of a model call with a reservation is lost, so the whole reservation is charged.
    #[serde(rename = "charged")]
    Charged {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
        #[serde(rename = "agent")]
        agent: ListenerName,
        #[serde(rename = "spending")]
        spending: Spending,
    },
    /// A model call of an agent used tokens and money.
    #[serde(rename = "used")]
    Used {
        #[serde(rename = "call")]
        call: CallId,
        /// The agent that made the model call; `None` in older journals, from the time when agents
        /// had no budgets.
        #[serde(rename = "agent", default, skip_serializing_if = "Option::is_none")]
        agent: Option<ListenerName>,
        #[serde(rename = "tokens_in")]
        tokens_in: u64,
        #[serde(rename = "tokens_out")]
        tokens_out: u64,
        #[serde(rename = "money", default, skip_serializing_if = "Money::is_zero")]
        money: Money,
        /// Attempt that made the model call. Recorded only if the attempt's call was closed before
        /// the turn was recorded; otherwise `None`.
        #[serde(rename = "attempt", default, skip_serializing_if = "Option::is_none")]
        attempt: Option<Attempt>,
    },
    /// A call is held: it waits until a person has decided. Meanwhile, the call cannot time out.
    #[serde(rename = "held")]
    Held {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "hold")]
        hold: Hold,
        #[serde(rename = "until", default, skip_serializing_if = "Option::is_none")]
        until: Option<Time>,
    },
    /// The pump requested the preview of a held call from the call's listener. This request does
    /// not count as an attempt. The held call may belong to another tree than this record.
    #[serde(rename = "preview-requested")]
    PreviewRequested {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "attempt")]
        attempt: Attempt,
    },
    /// A held call gets no preview, because its listener failed, returned no valid preview, or did
    /// not return one in time.
    #[serde(rename = "preview-missing")]
    PreviewMissing {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "reason")]
        reason: String,
    },
    /// The hold of a call ended, and the call continues.
    #[serde(rename = "released")]
    Released {
        #[serde(rename = "call")]
        call: CallId,
        /// Whether the hold ended without a decision, because the config had changed.
        #[serde(rename = "lapsed", default, skip_serializing_if = "std::ops::Not::not")]
        lapsed: bool,
    },
    /// A client sent a further request into the thread tree. The request resets the tree's budget
    /// counts and wall time.
    #[serde(rename = "renewed")]
    Renewed {
        #[serde(rename = "by")]
        by: ListenerName,
    },
    /// A client used a key again after the key's retention time. From this record on, the key
    /// counts as new.
    #[serde(rename = "key-expired")]
    KeyExpired {
        #[serde(rename = "client")]
        client: ListenerName,
        #[serde(rename = "key")]
        key: String,
    },
    /// From this record on, the work of the thread tree belongs to the trace `trace`.
    #[serde(rename = "traced")]
    Traced {
        #[serde(rename = "trace")]
        trace: TraceParent,
    },
    /// A period of time does not count for time-outs. Either the pump was stopped and could receive
    /// no answer, or the system clock was set forward.
    #[serde(rename = "stood-still")]
    StoodStill {
        #[serde(rename = "stood_micros")]
        stood_micros: u64,
        #[serde(rename = "stepped_micros")]
        stepped_micros: u64,
    },
    /// From this record on, no call that `target` covers is handed over.
    #[serde(rename = "paused")]
    Paused {
        #[serde(rename = "target")]
        target: PauseTarget,
        #[serde(rename = "by")]
        by: ListenerName,
        #[serde(rename = "note", default, skip_serializing_if = "String::is_empty")]
        note: String,
    },
    /// The pause of `target` has ended. Other pauses may still cover the same calls.
    #[serde(rename = "resumed")]
    Resumed {
        #[serde(rename = "target")]
        target: PauseTarget,
    },
    /// The signature of a decision was verified. The same signature cannot be used again.
    #[serde(rename = "signed")]
    Signed {
        #[serde(rename = "operator")]
        operator: ListenerName,
        #[serde(rename = "nonce")]
        nonce: Uuid,
        /// Time at which the operator signed.
        #[serde(rename = "time")]
        time: Time,
    },
    /// The use of one of the tree's budgets passed the threshold for a warning, or an agent got a
    /// warning that was unsent.
    #[serde(rename = "warned")]
    Warned {
        #[serde(rename = "budget")]
        budget: String,
        /// The limit of the budget. `None` in records of core versions before 69.
        #[serde(rename = "limit", default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
        #[serde(rename = "status", default, skip_serializing_if = "WarningStatus::is_sent")]
        status: WarningStatus,
    },
    /// A new time of a schedule is planned. This time replaces the previous planned time of the
    /// schedule, if there was one.
    #[serde(rename = "schedule-planned")]
    SchedulePlanned {
        #[serde(rename = "schedule")]
        schedule: ScheduleName,
        #[serde(rename = "timer")]
        timer: TimerId,
        #[serde(rename = "due")]
        due: Time,
        /// The times of the schedule, as the config states them in text.
        #[serde(rename = "times")]
        times: String,
    },
    /// A planned time of a schedule has come, so a run of the schedule begins. A later step sends
    /// the request of this run into `thread`.
    #[serde(rename = "schedule-due")]
    ScheduleDue {
        #[serde(rename = "schedule")]
        schedule: ScheduleName,
        #[serde(rename = "due")]
        due: Time,
        #[serde(rename = "request")]
        request: MessageId,
        #[serde(rename = "thread")]
        thread: ThreadId,
    },
    /// The request of a schedule's run was refused, so this run does not take place.
    #[serde(rename = "schedule-refused")]
    ScheduleRefused {
        #[serde(rename = "schedule")]
        schedule: ScheduleName,
        #[serde(rename = "request")]
        request: MessageId,
    },
    /// The config no longer has the schedule, so its planned time is cancelled. Open runs of the
    /// schedule continue.
    #[serde(rename = "schedule-cancelled")]
    ScheduleCancelled {
        #[serde(rename = "schedule")]
        schedule: ScheduleName,
    },
}
