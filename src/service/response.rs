//! Responses to a [`ServiceRequest`](super::ServiceRequest): one or several for each request.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::TreeWait;
use crate::audit::HeldCall;
use crate::envelope::{Message, Refusal};
use crate::ids::{CallId, Digest, ListenerName, PayloadName, Position, ThreadId};
use crate::thread::Closing;

/// One response to a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ServiceResponse {
    #[serde(rename = "sent")]
    SubmitUpdate(SubmitUpdate),
    /// The cancellation is on record.
    #[serde(rename = "taken")]
    Cancelled,
    /// The ruling on a decision: its refusal, or none.
    #[serde(rename = "ruled")]
    Ruled(Option<Box<Refusal>>),
    #[serde(rename = "where")]
    HeldThread(Option<ThreadId>),
    #[serde(rename = "heldcall")]
    HeldCall(Box<HeldCall>),
    /// Every held call was sent.
    #[serde(rename = "heldend")]
    HeldCallsEnd,
    #[serde(rename = "journal")]
    JournalId(Uuid),
    /// The journal of a partition on this host is readable up to this position.
    #[serde(rename = "recorded")]
    Recorded {
        #[serde(rename = "partition")]
        partition: u32,
        #[serde(rename = "position")]
        position: Position,
    },
    #[serde(rename = "unknown")]
    UnknownThread,
    /// The pump of the partition is unavailable and responses are missing; retry.
    #[serde(rename = "gone")]
    Unavailable(PartitionUnavailable),
    #[serde(rename = "failed")]
    Failed(String),
    /// Every response was sent, and the connection takes another request.
    #[serde(rename = "end")]
    End,
    /// Nothing was done: this organism belongs to another project.
    #[serde(rename = "otherproject")]
    OtherProject(String),
    /// Nothing was done: the organism runs with another config than the command's.
    #[serde(rename = "configchanged")]
    ConfigChanged {
        #[serde(rename = "running")]
        running: Digest,
    },
    #[serde(rename = "status")]
    Status {
        #[serde(rename = "config")]
        config: Digest,
    },
}

/// Why a partition does not respond.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionUnavailable {
    #[serde(rename = "detail")]
    pub detail: String,
    /// Whether a pump existed until now, so that the next one is expected soon.
    #[serde(rename = "soon")]
    pub soon: bool,
    /// Whether the request may have been carried out.
    #[serde(rename = "unsure")]
    pub unsure: bool,
}

impl ServiceResponse {
    pub fn unavailable(detail: impl Into<String>, soon: bool, unsure: bool) -> Self {
        Self::Unavailable(PartitionUnavailable { detail: detail.into(), soon, unsure })
    }

    pub fn failed(detail: impl std::fmt::Display) -> Self {
        Self::Failed(detail.to_string())
    }
}

/// Progress of a submission: first its receipt, then a result for every call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "sent")]
pub enum SubmitUpdate {
    #[serde(rename = "accepted")]
    Accepted {
        #[serde(rename = "thread")]
        thread: ThreadId,
        #[serde(rename = "calls")]
        calls: Vec<CallId>,
        /// Whether its key was used before; this is the recorded answer.
        #[serde(rename = "again")]
        again: bool,
        /// Whether one of its calls waits for an approval.
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
    /// Something in its tree waits while the client waits for the results.
    #[serde(rename = "waits")]
    Waits(TreeWait),
    /// The client may not write to this thread; the payload states so.
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
    /// Whether it is the failure of a call. A leg of a `first` group without payloads, because
    /// another leg replied, is no failure.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Result { how, replies, .. } => *how != Closing::Completed && !replies.is_empty(),
            _ => false,
        }
    }
}

/// One payload of a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReplyPayload {
    #[serde(rename = "from")]
    pub from: ListenerName,
    #[serde(rename = "name")]
    pub name: PayloadName,
    #[serde(rename = "payload")]
    pub payload: String,
}

impl ReplyPayload {
    pub fn of(message: &Message) -> Self {
        let (from, name) = (message.from.clone(), message.name.clone());
        Self { from, name, payload: message.payload.as_str().to_owned() }
    }
}
