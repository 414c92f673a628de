//! Collects the words that a record adds to the index: those of its messages and refusals. The
//! words depend only on the record. The OS threads that read records can therefore collect them
//! before the writer of the index receives the record.

use crate::envelope::{Message, Refusal};
use crate::ids::ListenerName;
use crate::journal::HashedRecord;
use crate::thread::Fact;

use super::words::{add_payload_words, add_words};

/// A record with the words of its messages and refusals.
pub struct WordedRecord {
    pub sealed: HashedRecord,
    /// Words of each accepted message and of each refusal, in the order of the record's facts. The
    /// special word for the tree, which the index adds to each text, is not among them.
    pub texts: Vec<String>,
}

impl WordedRecord {
    pub fn new(sealed: HashedRecord) -> Self {
        let words_of = |fact: &Fact| match fact {
            Fact::Accepted { message, .. } => Some(message_words(message)),
            Fact::Refused { sender, refusal, .. } => Some(refusal_words(sender, refusal)),
            _ => None,
        };
        let texts = sealed.record.facts.iter().filter_map(words_of).collect();
        Self { sealed, texts }
    }
}

fn message_words(message: &Message) -> String {
    let payload = message.payload.as_str();
    let mut text = String::with_capacity(payload.len());
    for name in [message.from.as_str(), message.to.as_str(), &message.name.local] {
        add_words(name, &mut text);
    }
    if !message.payload.is_redacted() {
        add_payload_words(payload, &mut text);
    }
    text
}

fn refusal_words(sender: &ListenerName, refusal: &Refusal) -> String {
    let mut text = String::new();
    for part in [sender.as_str(), refusal.rule.as_str(), &refusal.message, &refusal.head] {
        add_words(part, &mut text);
    }
    text
}
