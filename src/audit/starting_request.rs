//! The request with which a client started the work that led to a message.

use crate::ids::MessageId;
use crate::index::{Error, IndexReader, IndexedMessage};
use crate::thread::Fact;

/// A client's request, or another call at the beginning of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartingRequest {
    pub message: IndexedMessage,
    /// The payload; `None` if it was redacted.
    pub payload: Option<String>,
}

/// Returns the request that started the work in which `message` was sent. Returns `None` if the
/// message itself began the work, or is not in the index.
///
/// # Errors
///
/// Returns errors of the index and of its journal.
pub fn starting_request(
    index: &IndexReader,
    message: MessageId,
) -> Result<Option<StartingRequest>, Error> {
    let Some(first) = index.first_call_before(message)? else { return Ok(None) };
    let record = index.journal().existing_record(first.position)?.record;
    let payload = record.facts.iter().find_map(|fact| match fact {
        Fact::Accepted { message, .. } if message.id == first.id => Some(&message.payload),
        _ => None,
    });
    let payload = payload.filter(|payload| !payload.is_redacted());
    let payload = payload.map(|payload| payload.as_str().to_owned());
    Ok(Some(StartingRequest { message: first, payload }))
}
