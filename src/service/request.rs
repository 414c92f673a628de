//! Requests to a running organism, from commands, other pumps and embedding programs.

use serde::{Deserialize, Serialize};

use crate::config::SecretValue;
use crate::envelope::Refusal;
use crate::ids::{CallId, Digest, ListenerName, MessageId, ThreadId};
use crate::pump::driver::{Handle, PumpStopped};
use crate::thread::{Decision, DecisionOrigin};
use crate::trace::TraceParent;

/// One request to a running organism.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do")]
pub enum ServiceRequest {
    #[serde(rename = "send")]
    Submit(SubmitRequest),
    /// Cancels everything open in a thread and beneath it.
    #[serde(rename = "cancel")]
    Cancel {
        #[serde(rename = "thread")]
        thread: ThreadId,
        /// Not trusted: the recorded name comes from a signature.
        #[serde(rename = "by")]
        by: ListenerName,
        #[serde(rename = "reason")]
        reason: String,
        /// The operator and the note. The control socket sets the user that the operating system
        /// reports.
        #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
        origin: Option<DecisionOrigin>,
    },
    #[serde(rename = "decide")]
    Decide(DecisionRequest),
    /// Requests the results of earlier calls.
    #[serde(rename = "results")]
    AwaitResults {
        #[serde(rename = "thread")]
        thread: ThreadId,
        #[serde(rename = "calls")]
        calls: Vec<CallId>,
    },
    /// Requests the thread of the held call that this message opened.
    #[serde(rename = "where")]
    HeldThread {
        #[serde(rename = "message")]
        message: MessageId,
        #[serde(rename = "partition")]
        partition: u32,
    },
    /// Requests every held call of a partition.
    #[serde(rename = "held")]
    HeldCalls {
        #[serde(rename = "partition")]
        partition: u32,
    },
    /// Requests the id of a partition's journal, because decisions are signed for one journal.
    #[serde(rename = "journal")]
    JournalId {
        #[serde(rename = "partition")]
        partition: u32,
    },
    /// Requests the last positions of the journals on this host, at once and whenever one grows.
    /// Never ends by itself.
    #[serde(rename = "follow")]
    FollowJournals,
    /// Requests the running config.
    #[serde(rename = "status")]
    Status,
}

/// A payload that a client submits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmitRequest {
    #[serde(rename = "client")]
    pub client: ListenerName,
    /// Continues this thread.
    #[serde(rename = "thread", default)]
    pub thread: Option<String>,
    /// Opens a new thread with this id.
    #[serde(rename = "suggested", default)]
    pub suggested: Option<String>,
    #[serde(rename = "key", default)]
    pub key: Option<String>,
    /// The payload as received, byte for byte, so that the gate reports any defect.
    #[serde(rename = "payload", with = "in_base64")]
    pub payload: Vec<u8>,
    /// Whether to wait for the results as well.
    #[serde(rename = "wait")]
    pub wait: bool,
    /// Trace that the submission belongs to.
    #[serde(rename = "trace", default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
    /// Proves the identity of a client without another proof.
    #[serde(rename = "secret", default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<BearerSecret>,
}

/// A decision about a held call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DecisionRequest {
    #[serde(rename = "message")]
    pub message: MessageId,
    /// Partition of its thread, if there are several.
    #[serde(rename = "partition", default)]
    pub partition: Option<u32>,
    /// Not trusted: the recorded name comes from a signature.
    #[serde(rename = "by")]
    pub by: ListenerName,
    #[serde(rename = "what")]
    pub what: Decision<SubmittedAnswer>,
    /// The operator and the reason. The control socket sets the user that the operating system
    /// reports.
    #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
}

/// An answer of a human listener as received, byte for byte.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmittedAnswer {
    #[serde(rename = "listener")]
    pub listener: ListenerName,
    #[serde(rename = "payload", with = "in_base64")]
    pub payload: Vec<u8>,
}

impl DecisionRequest {
    /// Hands the decision to a pump. Returns the refusal, if it was refused.
    pub async fn submit(self, pump: &Handle) -> Result<Option<Refusal>, PumpStopped> {
        let gated = |answer: SubmittedAnswer| pump.gated(answer.listener, &answer.payload);
        let decision = self.what.map_answer(gated);
        let ruling = pump.decide(self.message, decision, self.origin).await?;

        Ok(ruling.err())
    }
}

/// A client's secret. Its `Debug` form hides it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BearerSecret(String);

impl BearerSecret {
    pub fn of(secret: &SecretValue) -> Self {
        Self(secret.expose().to_owned())
    }

    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }
}

impl std::fmt::Debug for BearerSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// Serializes binary bytes as base64.
mod in_base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        STANDARD.decode(text.as_bytes()).map_err(serde::de::Error::custom)
    }
}
