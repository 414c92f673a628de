//! Finds the config that was in force at a moment in the past, and the recorded boot or reload that
//! put the config in force. The command line names the moment.

use crate::config::{BootConfig, ConfigHistory};
use crate::ids::{Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::thread::Fact;

use super::super::exit::CommandFailure;
use super::super::indexed::one_journal;
use super::super::journal_target::{JournalTarget, data_dir, failed_in, readers_in, unknown};
use crate::audit::past_time;

/// Minimum digits of a config's digest on the command line.
const DIGITS_MIN: usize = 6;

/// A recorded boot or reload that put a config in force, with a reader of the journal that contains
/// this record.
pub struct BootOnRecord {
    pub boot: BootConfig,
    pub reader: JournalReader,
    /// Partition of the journal; `None` if there is only one partition.
    pub partition: Option<u32>,
}

impl BootOnRecord {
    /// Describes for people which config came into force, at which position, and when.
    pub fn text(&self) -> String {
        let BootConfig { position, time, epoch, config, .. } = &self.boot;
        let partition = self.partition.map(|n| format!(" of partition {n}")).unwrap_or_default();
        format!(
            "config {config}, in force from position {position}{partition}, epoch {epoch}, {time}"
        )
    }
}

/// Whether `word` has the form of a moment in the past: a position, the id of a thread, the first
/// digits of a config's digest, a time, or `last`.
pub fn is_moment(word: &str) -> bool {
    word == "last"
        || word.parse::<u64>().is_ok()
        || ThreadId::parse(word).is_ok()
        || is_digest(word)
        || past_time::parse(word).is_ok()
}

/// Whether a word can be the beginning of a config's digest.
fn is_digest(word: &str) -> bool {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    word.len() >= DIGITS_MIN && word.bytes().all(is_hex)
}

/// Finds the boot or reload that put a config in force. `moment` selects the config: by a position,
/// a thread, the beginning of the config's digest, a time, or `last`.
pub fn boot_at(
    moment: &str,
    partition: Option<u32>,
    place: &JournalTarget,
) -> anyhow::Result<BootOnRecord> {
    if !is_moment(moment) {
        if let Some(reason) = past_time::reason_for_date(moment) {
            return Err(CommandFailure::usage(reason).into());
        }
        let text = format!(
            "`{moment}` is no moment: name a position, a thread, at least {DIGITS_MIN} digits of a \
             config's digest, `last`, or a time: {}",
            past_time::FORMS
        );
        return Err(CommandFailure::usage(text).into());
    }

    let data = data_dir(place)?;
    let mut journals = readers_in(place, &data)?;
    let is_divided = journals.len() > 1;
    if let Some(wanted) = partition {
        journals.retain(|(number, _)| *number == wanted);
        if journals.is_empty() {
            // The error names the partitions that there are.
            one_journal(&data, partition)?;
        }
    }
    let is_position = moment.parse::<u64>().is_ok();
    if is_position && journals.len() > 1 {
        let text = "this organism has several partitions, and each counts its own positions; add \
                    --partition N";
        return Err(CommandFailure::usage(text).into());
    }

    let mut found: Option<BootOnRecord> = None;
    for (number, reader) in journals {
        let boot = boot_in(&reader, moment)?;
        let Some(boot) = boot else { continue };
        // Several partitions may have the config. The last boot counts.
        if found.as_ref().is_none_or(|found| found.boot.time <= boot.time) {
            found = Some(BootOnRecord { boot, reader, partition: is_divided.then_some(number) });
        }
    }

    found.ok_or_else(|| match ThreadId::parse(moment) {
        Ok(thread) => unknown(place, &thread).into(),
        Err(_) => {
            let text = if is_digest(moment) {
                format!("the journal has no start with the config `{moment}`")
            } else {
                format!("the journal has no start up to `{moment}`: its first start was later")
            };
            CommandFailure::usage(text).into()
        }
    })
}

fn boot_in(reader: &JournalReader, moment: &str) -> anyhow::Result<Option<BootConfig>> {
    let history = ConfigHistory::read(reader).map_err(|error| failed_in(reader, error))?;
    if moment == "last" {
        return Ok(history.last().cloned());
    }

    if let Ok(position) = moment.parse::<u64>() {
        let last = reader.last().map_err(|error| failed_in(reader, error))?;
        if position == 0 || position > last.0 {
            let text = format!("position {position} is not on record; the last is {last}");
            return Err(CommandFailure::usage(text).into());
        }
        return Ok(history.at(Position(position)).cloned());
    }

    if let Ok(thread) = ThreadId::parse(moment) {
        let first = first_position(reader, &thread)?;
        return Ok(first.and_then(|first| history.at(first)).cloned());
    }

    if !is_digest(moment)
        && let Ok(time) = past_time::parse(moment)
    {
        return Ok(history.at_time(time).cloned());
    }

    history.with_digest(moment).map(|found| found.cloned()).map_err(|several| {
        let several: Vec<_> = several.iter().map(ToString::to_string).collect();
        let text = format!("`{moment}` may be {}; add digits", several.join(" or "));
        CommandFailure::usage(text).into()
    })
}

/// Finds the position of the record with which a thread begins. Returns `None` if the journal does
/// not contain the thread.
fn first_position(reader: &JournalReader, thread: &ThreadId) -> anyhow::Result<Option<Position>> {
    let records = reader.tree(&thread.root(), None).map_err(|error| failed_in(reader, error))?;
    let has_message = |fact: &Fact| match fact {
        Fact::Accepted { message, .. } => message.thread == *thread,
        Fact::ThreadOpened { thread: opened, .. } | Fact::Forked { thread: opened, .. } => {
            opened == thread
        }
        _ => false,
    };
    let mut records = records.iter().map(|sealed| &sealed.record);
    Ok(records.find(|record| record.facts.iter().any(has_message)).map(|record| record.position))
}
