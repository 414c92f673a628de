//! Messages that an operator may retry. Each message is shown with the reason why it failed, and
//! with the earlier attempts to handle it.

use serde::Serialize;

use crate::ids::{MessageId, Position, ThreadId};
use crate::index::{
    Error, IndexReader, IndexedAttempt, MessageSelector, RetryCandidate, RetryCursor, RetryFilter,
};
use crate::limits;
use crate::thread::Input;

use super::retry_source::RetryError;

/// A message in the list from which an operator chooses the messages to retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryMessage {
    pub id: MessageId,
    pub record: Position,
    /// Root of the tree that contains the message's record.
    pub tree: ThreadId,
    pub sender: String,
    /// The recipient of the call; `None` for a refused submission.
    pub listener: Option<String>,
    /// The rule of the refusal, or the code of the failure. Empty if the operator named the message
    /// by its id.
    pub reason: String,
    /// Time of the message, in RFC 3339.
    pub time: String,
    /// Why a retry of the message can never succeed; `None` if a retry can succeed.
    pub obstacle: Option<RetryError>,
}

/// An attempt in the result of [`earlier_attempts`], with the message that the attempt handled.
#[derive(Debug, Clone, Serialize)]
pub struct EarlierAttempt {
    #[serde(rename = "message")]
    pub message: MessageId,
    #[serde(flatten)]
    pub attempt: IndexedAttempt,
}

/// A page of the list of requests that can be retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryMessagePage {
    pub messages: Vec<RetryMessage>,
    /// Cursor of the next page; `None` if this page is the last one.
    pub next: Option<RetryCursor>,
}

/// Returns at most `most` client requests that failed or were refused, and that no operator has
/// retried. The oldest request comes first.
pub fn retry_messages(
    index: &IndexReader,
    filter: &RetryFilter,
    most: usize,
) -> Result<Vec<RetryMessage>, Error> {
    Ok(retry_message_page(index, filter, RetryCursor::first(index), most)?.messages)
}

/// Returns one page of the requests that [`retry_messages`] returns, from `cursor` on. The page has
/// fewer than `rows` requests, perhaps none, if the journal has lost the records of some of them.
/// Even an empty page may have further pages after it.
pub fn retry_message_page(
    index: &IndexReader,
    filter: &RetryFilter,
    cursor: RetryCursor,
    rows: usize,
) -> Result<RetryMessagePage, Error> {
    // One more candidate shows whether there is a next page.
    let mut candidates = index.retry_candidates(filter, cursor, rows.saturating_add(1))?;
    let has_more = candidates.len() > rows;
    candidates.truncate(rows);
    let end = candidates.last().map(|candidate| cursor.after(candidate));
    let next = end.filter(|_| has_more);

    let mut messages = Vec::new();
    for candidate in candidates {
        messages.extend(retry_message(index, candidate)?);
    }
    Ok(RetryMessagePage { messages, next })
}

/// Returns the messages whose ids match `prefix`, even if they cannot be retried.
pub fn retry_messages_with_id(
    index: &IndexReader,
    prefix: &MessageSelector,
) -> Result<Vec<RetryMessage>, Error> {
    let mut found = Vec::new();
    for message in index.messages_with_id(prefix, limits::CANDIDATES_MAX)? {
        let candidate = RetryCandidate {
            n: 0,
            message: message.id,
            position: message.position,
            sender: message.from.clone(),
            listener: Some(message.to.clone()),
            reason: String::new(),
            time: message.time.clone(),
        };
        found.extend(retry_message(index, candidate)?);
    }
    for candidate in index.refused_with_id(prefix)? {
        found.extend(retry_message(index, candidate)?);
    }
    Ok(found)
}

fn retry_message(
    index: &IndexReader,
    candidate: RetryCandidate,
) -> Result<Option<RetryMessage>, Error> {
    let Some(sealed) = index.journal().record(candidate.position)? else { return Ok(None) };
    let obstacle = RetryError::lasting(&sealed.record, candidate.message);
    Ok(Some(RetryMessage {
        id: candidate.message,
        record: candidate.position,
        tree: sealed.record.tree,
        sender: candidate.sender,
        listener: candidate.listener,
        reason: candidate.reason,
        time: candidate.time,
        obstacle,
    }))
}

/// Returns the attempts to handle a message. If the message is a retry, the list begins with the
/// attempts to handle the messages that this retry repeats, oldest message first.
pub fn earlier_attempts(
    index: &IndexReader,
    message: MessageId,
) -> Result<Vec<EarlierAttempt>, Error> {
    let mut attempts = Vec::new();
    let mut next = Some(message);
    while let Some(id) = next.take().filter(|_| attempts.len() < limits::MESSAGE_ROWS_MAX) {
        let Some(prefix) = MessageSelector::parse(&id.to_string()) else { break };
        let Some(row) = index.messages_with_id(&prefix, 1)?.pop() else { break };
        let own = index.attempts(&row)?;
        let own = own.into_iter().map(|attempt| EarlierAttempt { message: id, attempt });
        attempts.splice(0..0, own);

        let record = index.journal().record(row.position)?.map(|sealed| sealed.record.input);
        next = match record {
            Some(Input::OperatorRetry(action)) => Some(action.message),
            _ => None,
        };
    }
    Ok(attempts)
}
