//! The messages that a retry names, by their ids or by the reason of their failure.

use std::path::Path;

use crate::ids::{CallId, MessageId, Position, ThreadId};
use crate::index::{self, IndexReader, MessageSelector, RetryCandidate, RetryFilter};
use crate::journal::partitions_in;
use crate::limits;
use crate::thread::Input;
use crate::xml::scan::attributes;

use super::super::exit::{CommandExit, CommandFailure};
use super::super::indexed;
use super::super::journal_target::JournalTarget;
use super::super::render::{RenderOutput, clean, table};
use super::attempts::EarlierAttempt;

/// A message that a command retries or lists.
#[derive(Debug, Clone)]
pub struct NamedMessage {
    pub id: MessageId,
    pub record: Position,
    /// Root of the tree of the record.
    pub tree: ThreadId,
    pub partition: u32,
    pub sender: String,
    pub listener: Option<String>,
    pub reason: String,
    pub time: String,
    pub attempts: Vec<EarlierAttempt>,
}

/// The message whose id begins with `digits`.
pub fn named(data: &Path, digits: &str) -> anyhow::Result<NamedMessage> {
    let usage = |text: String| CommandFailure::new(CommandExit::Usage, text);
    let prefix = MessageSelector::parse(digits).ok_or_else(|| {
        usage(format!(
            "`{digits}` is no id of a message: write at least its first {} hexadecimal digits; \
             `organism retry` lists what can be retried",
            MessageSelector::DIGITS_MIN
        ))
    })?;

    let mut found = read_each(data, &mut |index, partition| {
        let mut found = Vec::new();
        for message in index.messages_with_id(&prefix, limits::CANDIDATES_MAX)? {
            let candidate = RetryCandidate {
                message: message.id,
                position: message.position,
                sender: message.from.clone(),
                listener: Some(message.to.clone()),
                reason: String::new(),
                time: message.time.clone(),
                failed: None,
            };
            found.extend(named_of(index, partition, candidate)?);
        }
        for candidate in index.refused_with_id(&prefix)? {
            found.extend(named_of(index, partition, candidate)?);
        }
        Ok(found)
    })?;
    if found.len() > 1 {
        let rows = draw(&found);
        let text =
            format!("several messages begin with {digits}; write more digits of one:\n{rows}");
        return Err(usage(text).into());
    }
    found.pop().ok_or_else(|| {
        let text = format!(
            "no message {digits} is on record; `organism search` and `organism thread --ids` show \
             ids, and `organism retry` lists what can be retried"
        );
        usage(text).into()
    })
}

/// The requests of clients that failed or were refused, with this listener and for this reason.
pub fn matching(
    data: &Path,
    listener: Option<&str>,
    reason: Option<&str>,
) -> anyhow::Result<Vec<NamedMessage>> {
    let filter = RetryFilter { listener: listener.map(str::to_owned) };
    let mut found = read_each(data, &mut |index, partition| {
        let mut found = Vec::new();
        for candidate in index.retry_candidates(&filter)? {
            found.extend(named_of(index, partition, candidate)?);
        }
        Ok(found)
    })?;
    found.retain(|message| reason.is_none_or(|reason| message.reason == reason));
    Ok(found)
}

/// A table of messages.
pub fn draw(named: &[NamedMessage]) -> String {
    if named.is_empty() {
        return String::new();
    }
    let row = |message: &NamedMessage| {
        vec![
            message.id.to_string(),
            message.record.to_string(),
            message.time.clone(),
            clean(&message.sender),
            message.listener.as_deref().map_or_else(|| "-".to_owned(), clean),
            clean(&message.reason),
        ]
    };
    let rows: Vec<_> = named.iter().map(row).collect();
    let headers = ["id", ">record", "time", "from", "to", "reason"];
    table(&RenderOutput::stdout(false), &headers, &rows)
}

type NamedQuery<'q> =
    &'q mut dyn FnMut(&mut IndexReader, u32) -> Result<Vec<NamedMessage>, index::Error>;

fn read_each(data: &Path, query: NamedQuery<'_>) -> anyhow::Result<Vec<NamedMessage>> {
    let place = JournalTarget { config: None, data: Some(data.to_owned()), state: None };
    let mut found = Vec::new();
    for (partition, journal) in partitions_in(data) {
        let partition = partition.unwrap_or_default();
        found.extend(indexed::read(&place, &journal, &mut |index| query(index, partition))?);
    }
    Ok(found)
}

fn named_of(
    index: &IndexReader,
    partition: u32,
    candidate: RetryCandidate,
) -> Result<Option<NamedMessage>, index::Error> {
    let Some(sealed) = index.journal().record(candidate.position)? else { return Ok(None) };
    let code = match candidate.failed {
        Some(position) => failure_code(index, position, candidate.message)?,
        None => None,
    };
    Ok(Some(NamedMessage {
        id: candidate.message,
        record: candidate.position,
        tree: sealed.record.tree,
        partition,
        sender: candidate.sender,
        listener: candidate.listener,
        reason: code.unwrap_or(candidate.reason),
        time: candidate.time,
        attempts: attempts(index, candidate.message)?,
    }))
}

/// The code with which the record at this position ends the call.
fn failure_code(
    index: &IndexReader,
    position: Position,
    message: MessageId,
) -> Result<Option<String>, index::Error> {
    let Some(sealed) = index.journal().record(position)? else { return Ok(None) };
    let Some((_, result)) = sealed.record.result_of(CallId(message)) else { return Ok(None) };
    let codes = result.iter().flat_map(|message| {
        let attributes = attributes(message.payload.as_str());
        let codes = attributes.into_iter().filter(|(name, _)| *name == "code");
        codes.map(|(_, value)| value.to_string()).collect::<Vec<_>>()
    });
    Ok(codes.last())
}

/// The attempts of a message, and before them those of the messages that it retries.
fn attempts(index: &IndexReader, message: MessageId) -> Result<Vec<EarlierAttempt>, index::Error> {
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
