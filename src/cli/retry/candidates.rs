//! Finds the messages to retry. The command line contains the ids of messages, or a filter such as
//! the reason of the failure.

use std::path::Path;

use crate::audit::{
    EarlierAttempt, RetryMessage, earlier_attempts, retry_messages, retry_messages_with_id,
};
use crate::index::{self, IndexReader, MessageSelector, RetryFilter};
use crate::journal::partitions_in;
use crate::limits;

use super::super::exit::{CommandExit, CommandFailure};
use super::super::indexed;
use super::super::journal_target::JournalTarget;
use super::super::message_lookup;
use super::super::render::{RenderOutput, clean, table};

/// A message that the command retries or lists, with its partition and its earlier attempts.
#[derive(Debug, Clone)]
pub struct NamedMessage {
    pub message: RetryMessage,
    pub partition: u32,
    pub attempts: Vec<EarlierAttempt>,
}

/// Finds the only message whose id begins with `digits`. Fails if there is no such message, or if
/// there are several.
pub fn named(data: &Path, digits: &str) -> anyhow::Result<NamedMessage> {
    let usage = |text: String| CommandFailure::new(CommandExit::Usage, text);
    let prefix = MessageSelector::parse(digits).ok_or_else(|| {
        usage(format!(
            "`{digits}` is no id of a message: write at least its first {} hexadecimal digits; \
             `organism retry` lists what can be retried",
            MessageSelector::DIGITS_MIN
        ))
    })?;

    let mut is_behind = false;
    let mut found = read_each(data, &mut |index, partition| {
        is_behind |= index.is_behind();
        named_of(index, partition, retry_messages_with_id(index, &prefix)?)
    })?;
    if is_behind {
        message_lookup::check_selection(&prefix, digits, found.len())?;
    }
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

/// Finds the client requests that failed or were refused, and that match the filter.
pub fn matching(data: &Path, filter: &RetryFilter) -> anyhow::Result<Vec<NamedMessage>> {
    read_each(data, &mut |index, partition| {
        named_of(index, partition, retry_messages(index, filter, limits::RETRIES_MAX)?)
    })
}

/// Draws a table with one row for each of the messages.
pub fn draw(named: &[NamedMessage]) -> String {
    if named.is_empty() {
        return String::new();
    }
    let row = |named: &NamedMessage| {
        let message = &named.message;
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
    found: Vec<RetryMessage>,
) -> Result<Vec<NamedMessage>, index::Error> {
    let named = found.into_iter().map(|message| {
        let attempts = earlier_attempts(index, message.id)?;
        Ok(NamedMessage { message, partition, attempts })
    });
    named.collect()
}
