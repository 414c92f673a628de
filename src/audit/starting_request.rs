//! Finds the request with which a client started the work that led to a message.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ids::MessageId;
use crate::index::{Error, IndexReader, IndexedMessage};
use crate::system;
use crate::thread::Fact;

/// The request that started the work in which a message was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartingRequest {
    pub message: IndexedMessage,
    /// The payload of the request; `None` if it was redacted.
    pub payload: Option<Arc<str>>,
    /// Id of the note about the operator's action that caused the request, such as a retry. `None`
    /// if a client sent the request.
    pub action: Option<MessageId>,
}

/// Returns the request that started the work in which `message` was sent. The result may be
/// `message` itself. Returns `None` if the index lacks the message, or if its chain of causes is
/// too long to follow.
///
/// `payloads` keeps payloads of requests for later calls, because one request may have started the
/// work of many messages.
///
/// # Errors
///
/// Returns errors of the index and of its journal.
pub fn starting_request(
    index: &IndexReader,
    message: MessageId,
    payloads: &mut HashMap<MessageId, Option<Arc<str>>>,
) -> Result<Option<StartingRequest>, Error> {
    let Some(first) = index.first_call_of(message)? else { return Ok(None) };
    let action = system::name("operator-action").to_string();
    let action = index.first_cause_named(first.id, &action)?.map(|action| action.id);
    let payload = match payloads.get(&first.id) {
        Some(payload) => payload.clone(),
        None => {
            let payload = payload_of(index, &first)?;
            payloads.insert(first.id, payload.clone());
            payload
        }
    };
    Ok(Some(StartingRequest { message: first, payload, action }))
}

fn payload_of(index: &IndexReader, request: &IndexedMessage) -> Result<Option<Arc<str>>, Error> {
    let record = index.journal().existing_record(request.position)?.record;
    let payload = record.facts.iter().find_map(|fact| match fact {
        Fact::Accepted { message, .. } if message.id == request.id => Some(&message.payload),
        _ => None,
    });
    let payload = payload.filter(|payload| !payload.is_redacted());
    Ok(payload.map(|payload| Arc::from(payload.as_str())))
}
