//! Finds the message that a command names by its id, or by the beginning of its id.

use std::path::Path;

use crate::audit::{self, FoundMessage, MessageReport};
use crate::index::{IndexedMessage, MessageSelector};

use super::exit::{CommandExit, CommandFailure};
use super::indexed;
use super::journal_target::{self, JournalTarget};
use super::missing_partitions::copies_in;
use super::render::{RenderOutput, message_rows};

/// Finds the only message whose id begins with `id`, in the journals of all partitions. The
/// returned report lists at most `limit` of the messages that this message caused.
pub fn find(place: &JournalTarget, id: &str, limit: usize) -> anyhow::Result<MessageReport> {
    let prefix = MessageSelector::parse(id).ok_or_else(|| malformed(id))?;
    let mut is_behind = false;
    let found = indexed::read_all(place, &mut |reader| {
        is_behind |= reader.is_behind();
        audit::message_report(reader, &prefix, limit)
    })?;

    let mut reports = Vec::new();
    let mut candidates = Vec::new();
    for found in found {
        match found {
            FoundMessage::None => {}
            FoundMessage::One(report) => reports.push(report),
            FoundMessage::Several(several) => candidates.extend(several),
        }
    }

    if is_behind {
        check_selection(&prefix, id, candidates.len() + reports.len())?;
    }
    if candidates.is_empty() && reports.len() == 1 {
        return reports.pop().map(|report| *report).ok_or_else(|| unknown(place, id));
    }
    candidates.extend(reports.into_iter().map(|report| report.row));
    match candidates.as_slice() {
        [] => Err(unknown(place, id)),
        several => Err(ambiguous(id, several)),
    }
}

fn malformed(id: &str) -> anyhow::Error {
    let text = format!(
        "`{id}` is no id of a message: write at least its first {} hexadecimal digits; `organism \
         search` and `organism thread --ids` show ids",
        MessageSelector::DIGITS_MIN
    );
    CommandFailure::usage(text).into()
}

fn unknown(place: &JournalTarget, id: &str) -> anyhow::Error {
    let data = journal_target::data_dir(place).ok();
    if let Some(failure) = data.and_then(|data| unavailable(&data, id)) {
        return failure.into();
    }

    let text = format!(
        "no message {id} is on record; `organism search` and `organism thread --ids` show ids, and \
         `organism search --kind refusal` what was refused"
    );
    CommandFailure::usage(text).into()
}

/// Makes the error for a message without a record in the journals in `data`, if partitions are
/// missing there, or if copies there are not kept up to date. Returns `None` if neither is so.
pub fn unavailable(data: &Path, id: &str) -> Option<CommandFailure> {
    // Notes have named these partitions. The id does not tell the partition of its message.
    let copies = copies_in(data);
    if copies.is_complete() {
        return None;
    }

    let place = if copies.missing.is_empty() {
        "among the later records of a copy that no organism on this host follows"
    } else {
        "in a partition of which this host has no copy"
    };
    let text = format!("no message {id} is in the journals here; it may be {place}");
    Some(CommandFailure::new(CommandExit::Unavailable, text))
}

/// Checks that `id` selects its message reliably, although the index lacks the latest records. A
/// missing record may contain the message itself, or another message whose id begins with the same
/// digits. `found` is the number of messages in the index that `id` selects.
///
/// # Errors
///
/// Returns an error with [`CommandExit::TryAgain`] if the missing records may change the selection.
pub fn check_selection(selector: &MessageSelector, id: &str, found: usize) -> anyhow::Result<()> {
    let text = match found {
        0 => format!(
            "the index has no message {id}, but lacks the latest records; try again in a moment"
        ),
        1 if !selector.is_whole() => format!(
            "the index lacks the latest records, and another message may begin with {id}; write the \
             whole id, or try again in a moment"
        ),
        _ => return Ok(()),
    };
    Err(CommandFailure::new(CommandExit::TryAgain, text).into())
}

fn ambiguous(id: &str, candidates: &[IndexedMessage]) -> anyhow::Error {
    let rows = message_rows(&RenderOutput::stderr(false), candidates);
    let text = format!("several messages begin with {id}; write more digits of one:\n{rows}");
    CommandFailure::usage(text).into()
}
