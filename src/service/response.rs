//! Responses to a [`ServiceRequest`](super::ServiceRequest). A request gets one or several
//! responses.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::TreeWait;
use crate::audit::HeldCall;
use crate::bus::live::LiveEvent;
use crate::envelope::{Message, Refusal};
use crate::ids::{CallId, Digest, ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::thread::Closing;
use crate::workflow::failed_name;

/// One response to a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ServiceResponse {
    #[serde(rename = "sent")]
    SubmitUpdate(SubmitUpdate),
    /// The pump has recorded the cancellation.
    #[serde(rename = "taken")]
    Cancelled,
    /// The pump's ruling on a decision: the refusal, or `None` if the pump accepted the decision.
    #[serde(rename = "ruled")]
    Ruled(Option<Box<Refusal>>),
    /// The pump's report on a pause or a resume that the pump accepted.
    #[serde(rename = "paused")]
    Paused(PauseReport),
    /// The pump has recorded the requested fork.
    #[serde(rename = "forked")]
    Forked {
        #[serde(rename = "thread")]
        thread: ThreadId,
        /// The calls that the fork's first request opens; empty if the fork has no first request.
        #[serde(rename = "calls")]
        calls: Vec<CallId>,
    },
    /// Report on an operator's request for a retry, if the pump did not refuse the request.
    #[serde(rename = "retried")]
    Retried(RetryReport),
    /// The config has no listener with the requested name.
    #[serde(rename = "nolistener")]
    UnknownListener,
    #[serde(rename = "where")]
    HeldThread(Option<ThreadId>),
    #[serde(rename = "heldcall")]
    HeldCall(Box<HeldCall>),
    /// All held calls have been sent.
    #[serde(rename = "heldend")]
    HeldCallsEnd,
    #[serde(rename = "journal")]
    JournalId(Uuid),
    /// The journal of `partition`, which is on this machine, can be read up to the record at
    /// `position`.
    #[serde(rename = "recorded")]
    Recorded {
        #[serde(rename = "partition")]
        partition: u32,
        #[serde(rename = "position")]
        position: Position,
    },
    #[serde(rename = "live")]
    Live(LiveEvent),
    #[serde(rename = "unknown")]
    UnknownThread,
    /// The pump of the partition is unavailable, so some or all responses to the request are
    /// missing. The client should repeat the request.
    #[serde(rename = "gone")]
    Unavailable(PartitionUnavailable),
    #[serde(rename = "failed")]
    Failed(String),
    /// All responses have been sent, and the connection accepts another request.
    #[serde(rename = "end")]
    End,
    /// Nothing was done, because the organism belongs to another project.
    #[serde(rename = "otherproject")]
    OtherProject(String),
    /// Nothing was done, because the organism runs with another config than the command.
    #[serde(rename = "configchanged")]
    ConfigChanged {
        #[serde(rename = "running")]
        running: Digest,
    },
    /// Nothing was done, because the config of the command has another number of partitions than
    /// the organism. The command would look for threads in the wrong partitions.
    #[serde(rename = "otherpartitions")]
    OtherPartitions {
        /// Number of partitions of the organism.
        #[serde(rename = "running")]
        running: u32,
    },
    /// Result of a reload.
    #[serde(rename = "reloaded")]
    Reloaded(ReloadReport),
    #[serde(rename = "status")]
    Status {
        #[serde(rename = "config")]
        config: Digest,
        /// Number of partitions of the organism; `None` if the organism has a single pump.
        #[serde(rename = "partitions", default, skip_serializing_if = "Option::is_none")]
        partitions: Option<u32>,
    },
}

/// Report on an operator's request for a retry, if the pump did not refuse the request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RetryReport {
    /// The retry has sent the message again, as a new message that is now on record.
    #[serde(rename = "retried")]
    Retried {
        #[serde(rename = "thread")]
        thread: ThreadId,
        /// The calls that the new message opens: one call for each peer that gets the message.
        #[serde(rename = "calls")]
        calls: Vec<CallId>,
    },
    /// The message was already retried. The response contains the id of that earlier retry.
    #[serde(rename = "already")]
    AlreadyRetried {
        #[serde(rename = "retry")]
        retry: MessageId,
    },
    /// The operator has to confirm the retry, because the listener could do the work a second time.
    #[serde(rename = "unconfirmed")]
    Unconfirmed {
        #[serde(rename = "reason")]
        reason: String,
    },
}

/// Result of a pause or a resume in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseReport {
    /// Whether the action was recorded. False if the target was already in the requested state.
    #[serde(rename = "changed")]
    pub is_changed: bool,
    /// Number of deliveries in flight when the target was paused or resumed. Only deliveries for
    /// calls of the target count.
    #[serde(rename = "in_flight")]
    pub in_flight: u32,
}

/// Result of a reload. The organism continues in every case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result")]
pub enum ReloadReport {
    /// The config in the file is now in force, and the journal has a record of the reload.
    #[serde(rename = "applied")]
    Applied {
        #[serde(rename = "before")]
        before: Digest,
        #[serde(rename = "config")]
        config: Digest,
        /// Keys whose values differ between the new config and the previous one, in the form of
        /// `organism config diff`.
        #[serde(rename = "changes")]
        changes: Vec<String>,
    },
    /// The file has the same meaning as the config in force, so nothing is recorded.
    #[serde(rename = "unchanged")]
    Unchanged {
        #[serde(rename = "config")]
        config: Digest,
    },
    /// The file is no valid config. The previous config stays in force.
    #[serde(rename = "invalid")]
    Invalid {
        #[serde(rename = "problems")]
        problems: Vec<String>,
    },
    /// Some changes in the file take effect only when the organism starts, so none of the changes
    /// is applied.
    #[serde(rename = "needs-restart")]
    NeedsRestart {
        #[serde(rename = "keys")]
        keys: Vec<String>,
        /// Reason why this organism can apply no change at all by a reload. `None` if the reload
        /// was refused because some of the changed keys take effect only at a start.
        #[serde(rename = "reason", default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// Why the pump of a partition does not respond, and whether a pump will respond soon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionUnavailable {
    #[serde(rename = "detail")]
    pub detail: String,
    /// Whether a response can be expected soon. If so, the partition had a pump until now, and this
    /// pump or its successor will respond.
    #[serde(rename = "soon")]
    pub soon: bool,
    /// Whether the pump may have carried out the request.
    #[serde(rename = "unsure")]
    pub unsure: bool,
    /// Whether the request failed inside the organism. A client does not repeat such a request.
    #[serde(rename = "failed", default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

impl PartitionUnavailable {
    /// Creates a report of a short unavailability: the partition had a pump until now, so a
    /// response can be expected soon. The report states that the pump has not carried out the
    /// request.
    pub fn passing(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), soon: true, unsure: false, failed: false }
    }

    /// Creates a report of a long unavailability: no response can be expected soon. The report
    /// states that the pump has not carried out the request.
    pub fn lasting(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), soon: false, unsure: false, failed: false }
    }

    /// Creates a report of a request that failed inside the organism. The report states that the
    /// pump has not carried out the request.
    pub fn failed(detail: impl Into<String>) -> Self {
        Self { failed: true, ..Self::lasting(detail) }
    }

    /// Changes the report to state that the pump may have carried out the request.
    #[must_use]
    pub fn unsure(self) -> Self {
        Self { unsure: true, ..self }
    }
}

impl ServiceResponse {
    pub fn failed(detail: impl std::fmt::Display) -> Self {
        Self::Failed(detail.to_string())
    }
}

/// Progress of a submission: first the receipt, then a result for every call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "sent")]
pub enum SubmitUpdate {
    #[serde(rename = "accepted")]
    Accepted {
        #[serde(rename = "thread")]
        thread: ThreadId,
        #[serde(rename = "calls")]
        calls: Vec<CallId>,
        /// Whether an earlier submission had the same client key. If so, this update repeats the
        /// recorded answer to the earlier submission.
        #[serde(rename = "again")]
        again: bool,
        /// Whether one of the accepted calls waits for an approval.
        #[serde(rename = "held", default, skip_serializing_if = "std::ops::Not::not")]
        held: bool,
    },
    #[serde(rename = "refused")]
    Refused {
        #[serde(rename = "refusal")]
        refusal: Refusal,
        #[serde(rename = "retry_after_ms", default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// A reason why the submission's thread tree makes no progress. Sent only while the client
    /// waits for the results.
    #[serde(rename = "waits")]
    Waits(TreeWait),
    /// The client may not write to the thread that the submission names. The `payload` of this
    /// update states the reason.
    #[serde(rename = "nothread")]
    NoThread {
        #[serde(rename = "payload")]
        payload: String,
    },
    #[serde(rename = "result")]
    Result {
        #[serde(rename = "call")]
        call: CallId,
        #[serde(rename = "how")]
        how: Closing,
        #[serde(rename = "replies")]
        replies: Vec<ReplyPayload>,
    },
}

impl SubmitUpdate {
    /// Whether the update reports a failed call. A call has failed if the core reports a failure,
    /// or if a workflow replies that its run failed. A call that ended without a reply payload,
    /// because another call of its group replied first, has not failed.
    pub fn is_failure(&self) -> bool {
        let Self::Result { how, replies, .. } = self else { return false };
        let is_failed_run = |reply: &ReplyPayload| reply.name == failed_name(&reply.from);

        let has_failed = *how != Closing::Completed && !replies.is_empty();
        has_failed || replies.iter().any(is_failed_run)
    }
}

/// One payload of a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReplyPayload {
    #[serde(rename = "from")]
    pub from: ListenerName,
    #[serde(rename = "name")]
    pub name: PayloadName,
    /// The payload; `None` if it was redacted.
    #[serde(rename = "payload")]
    pub payload: Option<String>,
}

impl ReplyPayload {
    pub fn of(message: &Message) -> Self {
        let from = message.from.clone();
        let name = message.name.clone();
        let payload = &message.payload;
        let payload = (!payload.is_redacted()).then(|| payload.as_str().to_owned());
        Self { from, name, payload }
    }

    /// Returns the payload, or a placeholder for people if it was redacted.
    pub fn text(&self) -> &str {
        self.payload.as_deref().unwrap_or("[redacted]")
    }
}
