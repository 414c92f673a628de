//! Messages: payload, kind and disposition.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::ids::{CallId, Digest, ListenerName, MessageId, PayloadName, ThreadId};

/// The bytes of one XML element, exactly as they were checked, with their digest.
///
/// Serialized, a payload is its digest and length: the bytes stand beside the record, so that
/// they can be redacted without breaking the chain.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    pub digest: Digest,
    pub bytes: Arc<str>,
    /// Length in bytes as recorded; known before the bytes themselves are read.
    len: usize,
}

impl Payload {
    pub fn new(bytes: impl Into<Arc<str>>) -> Self {
        let bytes = bytes.into();
        Self { digest: Digest::of(bytes.as_bytes()), len: bytes.len(), bytes }
    }

    /// Restores a payload from the record: `bytes` must match `digest`, or be redacted.
    pub fn recorded(digest: Digest, bytes: &str) -> Option<Self> {
        let right = Digest::of(bytes.as_bytes()) == digest || is_blank(bytes);
        right.then(|| Self { digest, bytes: bytes.into(), len: bytes.len() })
    }

    pub fn as_str(&self) -> &str {
        &self.bytes
    }

    /// Length in bytes; correct even before the bytes are restored.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Restores the recorded bytes. Returns false and changes nothing if they neither match the
    /// digest nor are redacted.
    pub fn restore(&mut self, bytes: &str) -> bool {
        let right = bytes.len() == self.len
            && (Digest::of(bytes.as_bytes()) == self.digest || is_blank(bytes));
        if right {
            self.bytes = bytes.into();
        }
        right
    }

    /// Whether the bytes were redacted: replaced by NULs, which XML cannot contain.
    pub fn is_redacted(&self) -> bool {
        is_blank(&self.bytes)
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

/// Reads only digest and length; the reader of the record adds the bytes.
impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let mark = PayloadMark::deserialize(d)?;
        Ok(Self { digest: mark.digest, bytes: "".into(), len: mark.len })
    }
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Opens a call; the receiver owes exactly one result.
    #[serde(rename = "call")]
    Call,
    /// Part of the result, in the caller's own call.
    #[serde(rename = "reply")]
    Reply,
    /// Continues an agent's own call.
    #[serde(rename = "self")]
    Own,
    /// Recorded, but not delivered.
    #[serde(rename = "note")]
    Note,
    /// Written by the core.
    #[serde(rename = "system")]
    System,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Reply => "reply",
            Self::Own => "self",
            Self::Note => "note",
            Self::System => "system",
        }
    }
}

/// How a message ended. Each message has exactly one disposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Disposition {
    /// Delivered, and the outcome of that delivery is on record.
    #[serde(rename = "handled")]
    Handled,
    /// Needs no handling: notes, and results to a client.
    #[serde(rename = "recorded")]
    Recorded,
    /// Its attempts are exhausted.
    #[serde(rename = "failed")]
    Failed,
    /// Its attempt timed out.
    #[serde(rename = "expired")]
    Expired,
    /// Its call was closed before it was handled.
    #[serde(rename = "cancelled")]
    Cancelled,
    /// Came after its call had a result.
    #[serde(rename = "late")]
    Late,
}

impl Disposition {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Recorded => "recorded",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Late => "late",
        }
    }
}

/// A payload with its stamped envelope. Only the pump makes messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    #[serde(rename = "id")]
    pub id: MessageId,
    #[serde(rename = "kind")]
    pub kind: Kind,
    #[serde(rename = "from")]
    pub from: ListenerName,
    #[serde(rename = "to")]
    pub to: ListenerName,
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    /// Dense number in its thread, from 1.
    #[serde(rename = "seq")]
    pub seq: u64,
    /// The message this one answers or was caused by.
    #[serde(rename = "cause", default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<MessageId>,
    /// The call in which the receiver gets it. A message that opens a call names itself.
    #[serde(rename = "call", default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    #[serde(rename = "time")]
    pub time: Time,
    #[serde(rename = "name")]
    pub name: PayloadName,
    #[serde(rename = "payload")]
    pub payload: Payload,
}
