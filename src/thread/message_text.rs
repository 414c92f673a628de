//! Serialises messages together with the bytes of their payloads. The ordinary serialised form of a
//! message leaves these bytes out.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::envelope::Message;

#[derive(Serialize)]
struct WrittenMessage<'m> {
    #[serde(rename = "message")]
    message: &'m Message,
    #[serde(rename = "bytes")]
    bytes: &'m str,
}

impl<'m> WrittenMessage<'m> {
    fn new(message: &'m Message) -> Self {
        Self { message, bytes: message.payload.as_str() }
    }
}

#[derive(Deserialize)]
struct ParsedMessage {
    #[serde(rename = "message")]
    message: Message,
    #[serde(rename = "bytes")]
    bytes: String,
}

impl ParsedMessage {
    /// Returns the message with its payload bytes. Returns `None` if the bytes do not match the
    /// digest of the payload.
    fn whole(self) -> Option<Arc<Message>> {
        let Self { mut message, bytes } = self;
        message.payload.restore(&bytes).then(|| Arc::new(message))
    }
}

fn wrong_bytes<E: serde::de::Error>() -> E {
    E::custom("the bytes of a payload do not match its digest")
}

/// Serialises one message with its payload bytes.
pub mod one {
    use super::{Arc, Deserialize, Message, ParsedMessage, Serialize, WrittenMessage, wrong_bytes};

    pub fn serialize<S: serde::Serializer>(
        message: &Arc<Message>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        WrittenMessage::new(message).serialize(s)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Arc<Message>, D::Error> {
        ParsedMessage::deserialize(d)?.whole().ok_or_else(wrong_bytes)
    }
}

/// Serialises a list of messages with their payload bytes.
pub mod many {
    use super::{Arc, Deserialize, Message, ParsedMessage, WrittenMessage, wrong_bytes};

    pub fn serialize<S: serde::Serializer>(
        messages: &[Arc<Message>],
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_seq(messages.iter().map(|message| WrittenMessage::new(message)))
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        d: D,
    ) -> Result<Vec<Arc<Message>>, D::Error> {
        let messages = Vec::<ParsedMessage>::deserialize(d)?;
        messages.into_iter().map(|read| read.whole().ok_or_else(wrong_bytes)).collect()
    }
}
