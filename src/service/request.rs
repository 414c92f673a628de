//! Requests to a running organism, from commands, other pumps and programs that embed the organism.

use serde::{Deserialize, Serialize};

use crate::audit::ForkPoint;
use crate::bus::live::LiveFilter;
use crate::config::SecretValue;
use crate::envelope::Refusal;
use crate::ids::{CallId, Digest, ListenerName, MessageId, Position, ThreadId};
use crate::journal::HostSignature;
use crate::pump::driver::{Handle, PumpStopped};
use crate::thread::{
    Allotment, Decision, DecisionOrigin, DecisionSignature, PauseTarget, PauseVerb,
};
use crate::trace::TraceParent;

/// A request to a running organism.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do")]
pub enum ServiceRequest {
    #[serde(rename = "send")]
    Submit(SubmitRequest),
    /// Cancels every open call in a thread and in the threads beneath it.
    #[serde(rename = "cancel")]
    Cancel {
        #[serde(rename = "thread")]
        thread: ThreadId,
        /// Name that the sender claims to have. The pump ignores this name. It records the operator
        /// who signed the request, or the anonymous operator if there is no signature.
        #[serde(rename = "by")]
        by: ListenerName,
        #[serde(rename = "reason")]
        reason: String,
        /// Operating-system user, note and signature of the operator; `None` if the sender states
        /// none of them. The control socket always sets the user to the operating-system user who
        /// sent the request.
        #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
        origin: Option<DecisionOrigin>,
    },
    /// Pauses or resumes a thread, a listener or everything in one partition.
    #[serde(rename = "pause")]
    Pause(PauseRequest),
    /// Forks a thread.
    #[serde(rename = "fork")]
    Fork(Box<ForkRequest>),
    /// Retries a message.
    #[serde(rename = "retry")]
    Retry(Box<RetryRequest>),
    #[serde(rename = "decide")]
    Decide(DecisionRequest),
    /// Requests the results of calls that a pump has already accepted.
    #[serde(rename = "results")]
    AwaitResults(ResultsRequest),
    /// Requests the id of the thread that contains a held call. `message` is the message that
    /// opened the call.
    #[serde(rename = "where")]
    HeldThread {
        #[serde(rename = "message")]
        message: MessageId,
        #[serde(rename = "partition")]
        partition: u32,
    },
    /// Requests all held calls of a partition, or only the held call that `message` opened.
    #[serde(rename = "held")]
    HeldCalls {
        #[serde(rename = "partition")]
        partition: u32,
        #[serde(rename = "message", default, skip_serializing_if = "Option::is_none")]
        message: Option<MessageId>,
    },
    /// Requests the id of a partition's journal. A client needs this id to sign a decision, because
    /// the signature contains the id of the journal.
    #[serde(rename = "journal")]
    JournalId {
        #[serde(rename = "partition")]
        partition: u32,
    },
    /// Requests the position of the last record of each journal on this machine, now and each time
    /// the journal has grown. The responses continue until the client leaves.
    #[serde(rename = "follow")]
    FollowJournals,
    /// Requests the events of the live channel: first the present states of the model calls, then
    /// each event. The responses continue until the client leaves.
    #[serde(rename = "live")]
    FollowLive(LiveRequest),
    /// Requests that the organism loads its config file again and puts the loaded config in force.
    #[serde(rename = "reload")]
    Reload {
        /// The operator who requests the reload, with a note. The control socket adds the
        /// operating-system user who sent the request.
        #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
        origin: Option<DecisionOrigin>,
    },
    /// Requests the digest of the running config.
    #[serde(rename = "status")]
    Status,
}

/// The kind of a request. The kind decides whether a request can be repeated safely, whether it
/// lapses if its sender leaves, and whether it may occupy its connection for a long time.
enum ServiceRequestKind {
    /// Sends messages, and may wait for their results.
    Submission,
    /// Carries out the decision of an operator.
    Decision,
    /// Loads the config again.
    Reload,
    /// Reads a present state.
    Query,
    /// Waits for results, and changes nothing.
    Wait,
    /// Follows the journals or the live channel.
    Follower,
}

impl ServiceRequest {
    const fn kind(&self) -> ServiceRequestKind {
        match self {
            Self::Submit(_) => ServiceRequestKind::Submission,
            Self::Decide(_)
            | Self::Cancel { .. }
            | Self::Pause(_)
            | Self::Fork(_)
            | Self::Retry(_) => ServiceRequestKind::Decision,
            Self::Reload { .. } => ServiceRequestKind::Reload,
            Self::HeldThread { .. }
            | Self::HeldCalls { .. }
            | Self::JournalId { .. }
            | Self::Status => ServiceRequestKind::Query,
            Self::AwaitResults(_) => ServiceRequestKind::Wait,
            Self::FollowJournals | Self::FollowLive(_) => ServiceRequestKind::Follower,
        }
    }

    /// Whether the request changes nothing, so that it can be repeated safely.
    pub const fn is_query(&self) -> bool {
        use ServiceRequestKind::{Follower, Query, Wait};
        matches!(self.kind(), Query | Wait | Follower)
    }

    /// Whether the request follows the journals or the live channel. Its responses continue until
    /// the client leaves or the pump ends.
    pub const fn is_follower(&self) -> bool {
        matches!(self.kind(), ServiceRequestKind::Follower)
    }

    /// Whether the request lapses if its sender leaves before the pump has taken the request. This
    /// prevents a pause or a decision from being carried out after its operator has given up.
    pub const fn lapses_with_sender(&self) -> bool {
        matches!(self.kind(), ServiceRequestKind::Decision)
    }

    /// Whether the responses to the request depend on future work. Such a request may occupy its
    /// connection for a long time.
    pub const fn occupies_connection(&self) -> bool {
        use ServiceRequestKind::{Follower, Submission, Wait};
        matches!(self.kind(), Submission | Wait | Follower)
    }

    /// Returns the operating-system user, the note and the signature of the operator; `None` if the
    /// request has none of them.
    pub fn origin(&self) -> Option<&DecisionOrigin> {
        match self {
            Self::Decide(decision) => decision.origin.as_ref(),
            Self::Cancel { origin, .. } | Self::Reload { origin } => origin.as_ref(),
            Self::Pause(pause) => pause.origin.as_ref(),
            Self::Fork(fork) => fork.origin.as_ref(),
            Self::Retry(retry) => retry.origin.as_ref(),
            Self::FollowLive(live) => live.origin.as_ref(),
            Self::Submit(_)
            | Self::AwaitResults(_)
            | Self::HeldThread { .. }
            | Self::HeldCalls { .. }
            | Self::JournalId { .. }
            | Self::FollowJournals
            | Self::Status => None,
        }
    }

    /// Returns the field in which [`ServiceRequest::origin`] finds its value. The field itself may
    /// be empty. Returns `None` if requests of this kind have no such field.
    pub fn origin_mut(&mut self) -> Option<&mut Option<DecisionOrigin>> {
        match self {
            Self::Decide(decision) => Some(&mut decision.origin),
            Self::Cancel { origin, .. } | Self::Reload { origin } => Some(origin),
            Self::Pause(pause) => Some(&mut pause.origin),
            Self::Fork(fork) => Some(&mut fork.origin),
            Self::Retry(retry) => Some(&mut retry.origin),
            Self::FollowLive(live) => Some(&mut live.origin),
            Self::Submit(_)
            | Self::AwaitResults(_)
            | Self::HeldThread { .. }
            | Self::HeldCalls { .. }
            | Self::JournalId { .. }
            | Self::FollowJournals
            | Self::Status => None,
        }
    }

    /// Returns the thread that a signature of the request must name. Returns `None` for a request
    /// that operators do not sign. Also returns `None` for a decision, because only the pump knows
    /// the thread of the held call.
    pub fn signed_thread(&self) -> Option<ThreadId> {
        match self {
            Self::Cancel { thread, .. } => Some(thread.clone()),
            Self::Pause(pause) => Some(pause.target.home()),
            Self::Fork(fork) => Some(fork.source.clone()),
            Self::Retry(retry) => Some(retry.source.clone()),
            Self::FollowLive(live) => Some(live.signed_thread()),
            Self::Decide(_)
            | Self::Submit(_)
            | Self::AwaitResults(_)
            | Self::HeldThread { .. }
            | Self::HeldCalls { .. }
            | Self::JournalId { .. }
            | Self::FollowJournals
            | Self::Reload { .. }
            | Self::Status => None,
        }
    }
}

/// A subscription to the live channel, which shows what model calls do now.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LiveRequest {
    /// The thread to watch, with everything beneath it; `None` for all threads.
    #[serde(rename = "thread", default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    #[serde(rename = "partition", default)]
    pub partition: u32,
    /// The client that reads the events. A client may read only the events of its own threads.
    /// `None` if an operator reads the events. The entry point checks that no client poses as an
    /// operator.
    #[serde(rename = "client", default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ListenerName>,
    /// The secret with which the client proves its identity. `None` if the client has no secret or
    /// is identified in another way, or if an operator reads the events.
    #[serde(rename = "secret", default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<BearerSecret>,
    /// The identity of the operator who reads the events. Contains the signature of the operator,
    /// unless the operator is identified in another way.
    #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
    /// The kinds of events that the reader may get. The entry point that receives the subscription,
    /// such as the control socket, normally determines them itself and ignores the sender's value.
    /// It keeps the sender's value only if the subscription comes over NATS and is signed by a
    /// machine of the organism.
    #[serde(rename = "granted", default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<LiveGrant>,
    /// Signature of a machine that runs the organism; `None` if no machine has signed. The
    /// signature covers the text [`LiveRequest::judgement`], which includes `granted`.
    #[serde(rename = "host", default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSignature>,
}

/// The kinds of live events that a reader may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LiveGrant {
    /// The reader gets the states of model calls, without texts.
    #[serde(rename = "states")]
    States,
    /// The reader gets the states of model calls, and the texts that models write.
    #[serde(rename = "text")]
    Text,
}

impl LiveGrant {
    fn as_str(self) -> &'static str {
        match self {
            Self::States => "states",
            Self::Text => "text",
        }
    }
}

impl LiveRequest {
    pub fn filter(&self) -> LiveFilter {
        let text = self.granted == Some(LiveGrant::Text);
        LiveFilter { within: self.thread.clone(), text }
    }

    /// Returns the text that a machine of the organism signs to state which live events the reader
    /// may get. The text contains the organism's name, because a machine may use one key in several
    /// organisms.
    pub fn judgement(&self, organism: &str) -> String {
        let thread = self.thread.as_ref().map_or("*", ThreadId::as_str);
        let client = self.client.as_ref().map_or("*", ListenerName::as_str);
        let granted = self.granted.map_or("nothing", LiveGrant::as_str);
        format!("live\n{organism}\n{}\n{thread}\n{client}\n{granted}\n", self.partition)
    }

    /// Returns the thread that a signature of this request names: the watched thread, or
    /// [`ThreadId::organism`] for all threads.
    pub fn signed_thread(&self) -> ThreadId {
        self.thread.clone().unwrap_or_else(ThreadId::organism)
    }
}

/// A payload that a client submits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmitRequest {
    #[serde(rename = "client")]
    pub client: ListenerName,
    /// Id of the thread that the payload continues; `None` if the payload begins a new thread.
    #[serde(rename = "thread", default)]
    pub thread: Option<String>,
    /// Id that the client suggests for a new thread, if any.
    #[serde(rename = "suggested", default)]
    pub suggested: Option<String>,
    #[serde(rename = "key", default)]
    pub key: Option<String>,
    /// The payload, byte for byte as received. The gate, which checks all payloads, can therefore
    /// report every defect.
    #[serde(rename = "payload", with = "in_base64")]
    pub payload: Vec<u8>,
    /// Whether the client waits for the results, and not only for the receipt.
    #[serde(rename = "wait")]
    pub wait: bool,
    /// The trace to which the submission belongs, if any.
    #[serde(rename = "trace", default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
    /// The secret with which the client proves its identity. `None` if the client has no secret or
    /// is identified in another way.
    #[serde(rename = "secret", default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<BearerSecret>,
}

/// A request for the results of calls that a pump has accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResultsRequest {
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "calls")]
    pub calls: Vec<CallId>,
    /// The client that waits for the results. The pump sends a client only the results of the
    /// client's own threads. `None` only in requests of earlier versions of the command.
    #[serde(rename = "client", default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ListenerName>,
    /// The secret with which the client proves its identity. `None` if the client has no secret or
    /// is identified in another way.
    #[serde(rename = "secret", default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<BearerSecret>,
}

/// A request to pause or to resume a target, such as a listener, in one partition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PauseRequest {
    #[serde(rename = "verb")]
    pub verb: PauseVerb,
    #[serde(rename = "target")]
    pub target: PauseTarget,
    #[serde(rename = "partition", default)]
    pub partition: u32,
    /// Operating-system user, note and signature of the operator; `None` if the sender states none
    /// of them. The control socket always sets the user to the operating-system user who sent the
    /// request.
    #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
}

/// A request to fork a thread at one of its fork points.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForkRequest {
    /// Id of the fork's root thread. It belongs to the same partition as `source`. The sender of
    /// the request chooses the id, so that a repeated request makes no second fork.
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    /// Root thread of the tree that is forked.
    #[serde(rename = "source")]
    pub source: ThreadId,
    /// The message at which the fork begins.
    #[serde(rename = "message")]
    pub message: MessageId,
    /// Position of the record that contains the message at which the fork begins.
    #[serde(rename = "record")]
    pub record: Position,
    /// The client that receives the results of the fork.
    #[serde(rename = "client")]
    pub client: ListenerName,
    /// Payload of the fork's first message. It depends on the place at which the fork begins:
    /// - At a client's request: the payload of this request, unchanged or edited.
    /// - At a turn, which is one model call of an agent: a payload that replaces the turn. If this
    ///   field is `None`, the agent takes the turn again.
    /// - At any other place: always `None`.
    #[serde(rename = "payload", default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Listeners that may handle calls of the fork. They get only the calls for which the source of
    /// the fork has no result.
    #[serde(rename = "live", default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<ListenerName>,
    /// Whether new workflow runs in the fork use the workflow definitions of the present config. If
    /// false, they use the definitions that are recorded in the source of the fork.
    #[serde(rename = "unpinned", default, skip_serializing_if = "std::ops::Not::not")]
    pub unpinned: bool,
    #[serde(rename = "allotment", default)]
    pub allotment: Allotment,
    /// Operating-system user, note and signature of the operator; `None` if the sender states none
    /// of them. The control socket always sets the user to the operating-system user who sent the
    /// request.
    #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
}

impl ForkRequest {
    /// Creates a request for a fork at `point`. `thread` becomes the root thread of the fork. The
    /// results go to the client that opened the forked thread. If `point` is a recorded request of
    /// a client, the fork's first message has the payload of that recorded request.
    pub fn at(point: &ForkPoint, thread: ThreadId) -> Self {
        let request = point.request.as_ref().and_then(|request| request.payload.as_ref());
        Self {
            thread,
            source: point.source.thread.clone(),
            message: point.source.message,
            record: point.source.record,
            client: point.client.clone(),
            payload: request.map(|payload| payload.as_str().to_owned()),
            live: Vec::new(),
            unpinned: false,
            allotment: Allotment::default(),
            origin: None,
        }
    }
}

/// A request to retry a message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RetryRequest {
    /// The call that failed, or the submission that was refused.
    #[serde(rename = "message")]
    pub message: MessageId,
    /// Position of the record that contains the failed call or the refused submission.
    #[serde(rename = "record")]
    pub record: Position,
    /// Root thread of the tree in which the failed call or the refused submission is recorded.
    #[serde(rename = "source")]
    pub source: ThreadId,
    /// The new root thread for a submission that was refused before it had a thread. The id of the
    /// thread is derived from the submission, so a repeated request opens no second thread.
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    /// Partition whose journal contains the record of the failed call or the refused submission.
    #[serde(rename = "partition", default)]
    pub partition: u32,
    /// Whether the operator accepts the risk that the retry does the same work a second time.
    #[serde(rename = "again", default)]
    pub is_confirmed: bool,
    /// Operating-system user, note and signature of the operator; `None` if the sender states none
    /// of them. The control socket always sets the user to the operating-system user who sent the
    /// request.
    #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
}

/// A decision about a held call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DecisionRequest {
    #[serde(rename = "message")]
    pub message: MessageId,
    /// Partition of the call's thread; `None` if the organism has a single pump. The client sets
    /// this field.
    #[serde(rename = "partition", default)]
    pub partition: Option<u32>,
    /// Name that the sender claims to have. The pump ignores this name. It records the operator who
    /// signed the request, or the anonymous operator if there is no signature.
    #[serde(rename = "by")]
    pub by: ListenerName,
    #[serde(rename = "what")]
    pub what: Decision<SubmittedAnswer>,
    /// Operating-system user, note and signature of the operator; `None` if the sender states none
    /// of them. The control socket always sets the user to the operating-system user who sent the
    /// request.
    #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<DecisionOrigin>,
}

/// An answer of a human listener, byte for byte as received.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmittedAnswer {
    #[serde(rename = "listener")]
    pub listener: ListenerName,
    #[serde(rename = "payload", with = "in_base64")]
    pub payload: Vec<u8>,
}

impl DecisionRequest {
    /// Returns the signature of the decision; `None` if it has none yet.
    pub fn signature(&self) -> Option<&DecisionSignature> {
        self.origin.as_ref()?.signature.as_deref()
    }

    /// Submits the decision to a pump. Returns the refusal if the pump refuses the decision, and
    /// otherwise `None`.
    pub async fn submit(self, pump: &Handle) -> Result<Option<Refusal>, PumpStopped> {
        let gated = |answer: SubmittedAnswer| pump.gated(answer.listener, &answer.payload);
        let decision = self.what.map_answer(gated);
        let ruling = pump.decide(self.message, decision, self.origin).await?;

        Ok(ruling.err())
    }
}

/// The secret of a client. Its `Debug` form hides the secret.
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

/// Serializes bytes as base64.
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
