//! Messages: payload, kind and disposition.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::ids::{CallId, Digest, ListenerName, MessageId, PayloadName, ThreadId};
use crate::word_enum::word_enum;

/// The checked bytes of one XML element, with their digest.
///
/// A serialized payload contains only the digest and the length. The journal stores the bytes
/// outside the record, so the hash chain stays valid if the bytes are redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    pub digest: Digest,
    pub bytes: Arc<str>,
    /// Length of the recorded payload in bytes; known even if the bytes were not read from the
    /// journal.
    len: usize,
}

impl Payload {
    pub fn new(bytes: impl Into<Arc<str>>) -> Self {
        let bytes = bytes.into();
        Self { digest: Digest::of(bytes.as_bytes()), len: bytes.len(), bytes }
    }

    /// Creates a payload from the `bytes` that the journal stores for `digest`. Redacted bytes,
    /// which are all NUL, are accepted. Returns `None` for any other bytes that do not match the
    /// digest.
    pub fn recorded(digest: Digest, bytes: &str) -> Option<Self> {
        let right = Digest::of(bytes.as_bytes()) == digest || is_blank(bytes);
        right.then(|| Self { digest, bytes: bytes.into(), len: bytes.len() })
    }

    /// Returns a payload of this digest and length whose bytes were not read.
    pub fn unread(digest: Digest, len: usize) -> Self {
        Self { digest, bytes: Arc::default(), len }
    }

    pub fn as_str(&self) -> &str {
        &self.bytes
    }

    /// Returns the length of the payload in bytes; known even if the bytes were not read from the
    /// journal.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets the bytes that the journal stores for this payload. Returns true if the bytes were set,
    /// and false if nothing was changed. The bytes must have the right length. They must also match
    /// the payload's digest, or be all NUL, which means that the payload was redacted.
    pub fn restore(&mut self, bytes: &str) -> bool {
        let right = bytes.len() == self.len
            && (Digest::of(bytes.as_bytes()) == self.digest || is_blank(bytes));
        if right {
            self.bytes = bytes.into();
        }
        right
    }

    /// Whether the payload was redacted. A redaction replaces the bytes of a payload by NULs, which
    /// XML cannot contain.
    pub fn is_redacted(&self) -> bool {
        is_blank(&self.bytes)
    }

    /// Whether the payload has the bytes that were recorded. Checks this by computing the digest of
    /// the payload's bytes. If the bytes were not read from the journal, the payload is neither
    /// intact nor redacted.
    pub fn is_intact(&self) -> bool {
        Digest::of(self.bytes.as_bytes()) == self.digest
    }
}

fn is_blank(bytes: &str) -> bool {
    !bytes.is_empty() && bytes.bytes().all(|b| b == 0)
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bytes)
    }
}

#[derive(Serialize, Deserialize)]
struct PayloadMark {
    #[serde(rename = "digest")]
    digest: Digest,
    #[serde(rename = "len")]
    len: usize,
}

impl Serialize for Payload {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        PayloadMark { digest: self.digest, len: self.len }.serialize(s)
    }
}

/// Deserializes only the digest and the length. The reader of the journal adds the bytes.
impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let mark = PayloadMark::deserialize(d)?;
        Ok(Self::unread(mark.digest, mark.len))
    }
}

word_enum! {
    /// Relation of a message to calls, such as opening a call, or being part of a call's result.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum MessageKind {
        /// The message opens a call; its receiver owes exactly one result.
        #[serde(rename = "call")]
        Call,
        /// The message is a part of a call's result. It is delivered to the caller, as a message of
        /// the caller's own call.
        #[serde(rename = "reply")]
        Reply,
        /// A listener sends the message to itself, to continue the call that it is handling. Agents
        /// send such messages. A workflow sends one in each run, to record the definition of the
        /// run.
        #[serde(rename = "self")]
        Own,
        /// The message is recorded but not delivered.
        #[serde(rename = "note")]
        Note,
        /// The pump's core wrote the message, such as an error message.
        #[serde(rename = "system")]
        System,
    }
}

word_enum! {
    /// How the handling of a message ended. Each message gets exactly one disposition.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum Disposition {
        /// A listener handled the message, and the listener's outcome is recorded.
        #[serde(rename = "handled")]
        Handled,
        /// The message needs no handling, because it is a note or a result that goes to a client.
        #[serde(rename = "recorded")]
        Recorded,
        /// All attempts of the message failed.
        #[serde(rename = "failed")]
        Failed,
        /// An attempt of the message timed out.
        #[serde(rename = "expired")]
        Expired,
        /// The call of the message ended before a listener handled the message.
        #[serde(rename = "cancelled")]
        Cancelled,
        /// The message arrived after its call had a result.
        #[serde(rename = "late")]
        Late,
    }
}

/// A payload with its envelope. Only the pump creates messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    #[serde(rename = "id")]
    pub id: MessageId,
    #[serde(rename = "kind")]
    pub kind: MessageKind,
    #[serde(rename = "from")]
    pub from: ListenerName,
    #[serde(rename = "to")]
    pub to: ListenerName,
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    /// Number of the message in its thread, counted from 1 without gaps.
    #[serde(rename = "seq")]
    pub seq: u64,
    /// Id of the message that this message answers, or that caused this message; `None` if there is
    /// no such message, as for a client's request.
    #[serde(rename = "cause", default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<MessageId>,
    /// The call in which the message is delivered; `None` if the message belongs to no call. For a
    /// message that opens a call, this is the opened call, whose id is the id of the message.
    #[serde(rename = "call", default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    #[serde(rename = "time")]
    pub time: Time,
    #[serde(rename = "name")]
    pub name: PayloadName,
    #[serde(rename = "payload")]
    pub payload: Payload,
}
