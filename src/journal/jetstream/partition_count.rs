//! The number of partitions of the organism's journal, and the id of this journal. One entry in the
//! bucket of leases contains both. The first message of each stream also states the number of
//! partitions, which never changes.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::failpoint::failpoint;
use crate::journal::Error;
use crate::locks::locked;
use crate::mutant::mutant;

use super::api::{ApiFailure, JetStreamApi, StoredMessage, code};
use super::identity::JoiningHost;
use super::{Options, first_message, read_failed, unavailable};

/// The entry that states the number of partitions, in the bucket of leases.
#[derive(Debug, Serialize, Deserialize)]
struct PartitionCount {
    #[serde(rename = "partitions")]
    partitions: u32,
    /// Id of the organism's journal; `None` in an entry of an earlier version.
    #[serde(rename = "journal", default, skip_serializing_if = "Option::is_none")]
    journal: Option<Uuid>,
}

/// Maximum attempts to write the entry with the number of partitions. An attempt fails if another
/// pump writes the entry at the same moment.
const TRIES: usize = 3;

/// Lock: in one process, only one partition at a time may begin a journal. So all partitions of the
/// process note the same id of the organism's journal.
static BEGINNING: Mutex<()> = Mutex::new(());

/// Returns the id of the organism's journal. For a new journal, writes the number of partitions and
/// the id permanently. Returns an error if the config states another number of partitions than the
/// journal has, or if the journal belongs to another organism.
pub fn agree(
    api: &JetStreamApi,
    options: &Options,
    bucket: &str,
    member: &JoiningHost<'_>,
) -> Result<Uuid, Error> {
    if let (Some(_), Some(journal)) = look(api, options, bucket, member)? {
        return Ok(journal);
    }

    let _one_at_a_time = locked(&BEGINNING);
    let mut changed = None;

    let mut chosen = None;
    for _ in 0..TRIES {
        let looked = look(api, options, bucket, member);
        if let (Some(ours), Err(Error::OtherJournal { .. })) = (chosen.take(), &looked) {
            // Another host has begun the organism since, and no server has ever had this id.
            member.withdraw(options, ours)?;
            look(api, options, bucket, member)?;
        }
        let (found, journal) = looked?;
        let journal = match (found, journal) {
            (Some(_), Some(journal)) => return Ok(journal),
            (None, Some(journal)) => journal,
            (_, None) => {
                let is_known = member.known(options)?.is_some();
                let journal = member.begin(options)?;
                chosen = (!is_known).then_some(journal);
                failpoint("journal-chosen");
                journal
            }
        };

        let count = PartitionCount { partitions: options.partitions, journal: Some(journal) };
        let value = serde_json::to_vec(&count).expect("plain data is JSON");
        let last = found.unwrap_or_default().to_string();
        let expected = [("Nats-Expected-Last-Subject-Sequence", last.as_str())];
        match api.publish(&options.count(), &expected, value) {
            Ok(_) => return Ok(journal),
            // A pump on another host created the entry at the same moment.
            Err(error) if error.is(code::WRONG_LAST_SEQUENCE) => changed = Some(error),
            Err(error) => return Err(count_unavailable(bucket, &error)),
        }
    }

    let detail = changed.map(|error| error.to_string()).unwrap_or_default();
    Err(Error::Unavailable { detail: format!("the number of partitions in {bucket}: {detail}") })
}

/// Reads the entry with the number of partitions. Returns the entry's sequence number (`None` if
/// there is no entry) and the id of the organism's journal (`None` if the server has no journal of
/// the organism yet). Returns an error if the number differs from the config's, or if this host may
/// not join the journal.
fn look(
    api: &JetStreamApi,
    options: &Options,
    bucket: &str,
    member: &JoiningHost<'_>,
) -> Result<(Option<u64>, Option<Uuid>), Error> {
    let found =
        api.last(bucket, &options.count()).map_err(|failed| count_unavailable(bucket, &failed))?;
    let found = parsed(found);
    let mut journal = journal_of(api, options, found.as_ref())?;
    // The servers lost the entry and the first stream. The other streams have ids of their own.
    if found.is_none() && is_empty(api, &Options { partition: 0, ..options.clone() })? {
        journal = member.known(options)?.or(journal);
    }

    if let Some(journal) = journal {
        member.admit(api, options, journal)?;
    }

    Ok((found.map(|(seq, _)| seq), journal))
}

/// Returns the id of the organism's journal on the server; `None` if the server has no journal of
/// the organism yet. Returns an error if the config states another number of partitions than the
/// journal has.
pub fn begun(api: &JetStreamApi, options: &Options) -> Result<Option<Uuid>, Error> {
    let bucket = format!("KV_{}", options.bucket());
    let found = match api.last(&bucket, &options.count()) {
        Err(failed) if failed.is(code::STREAM_NOT_FOUND) => None,
        found => parsed(found.map_err(|failed| count_unavailable(&bucket, &failed))?),
    };
    journal_of(api, options, found.as_ref())
}

/// Whether `journal` is the id of the organism's journal, and the stream of `options` has content
/// of it. False or [`Error::ForeignJournal`] if another organism has begun its journal in the
/// streams of `options`.
pub fn has_journal(api: &JetStreamApi, options: &Options, journal: Uuid) -> Result<bool, Error> {
    Ok(begun(api, options)? == Some(journal) && !is_empty(api, options)?)
}

/// Returns the id of the organism's journal; `None` if all streams are empty. The id comes from
/// `found`, the entry in the bucket. If this entry is missing or states no id, the id comes from
/// the streams, which outlive the bucket. Returns an error if the config states another number of
/// partitions than the journal has.
fn journal_of(
    api: &JetStreamApi,
    options: &Options,
    found: Option<&(u64, PartitionCount)>,
) -> Result<Option<Uuid>, Error> {
    if let Some((_, count)) = found {
        compare(options, count.partitions)?;
        if count.journal.is_some() {
            return Ok(count.journal);
        }
    }

    for partition in 0..options.partitions {
        let options = Options { partition, ..options.clone() };
        if !is_empty(api, &options)? {
            let first = first_message::first(api, &options)?;
            compare(&options, first.partitions)?;
            return Ok(Some(first.journal));
        }
    }

    Ok(None)
}

/// Whether the stream of `options` is missing or holds no journal yet.
pub fn is_empty(api: &JetStreamApi, options: &Options) -> Result<bool, Error> {
    match api.info(&options.stream()) {
        Ok(info) => Ok(info.state.last_seq == 0),
        Err(failed) if failed.is(code::STREAM_NOT_FOUND) => Ok(true),
        Err(failed) => Err(read_failed(&format!("the stream {}", options.stream()), failed)),
    }
}

/// Refuses a journal whose number of partitions, `theirs`, differs from the config's.
pub fn compare(options: &Options, theirs: u32) -> Result<(), Error> {
    let ours = options.partitions;
    if ours == theirs || mutant("trust-the-count") {
        Ok(())
    } else {
        Err(Error::Partitions { journal: options.stream.clone(), ours, theirs })
    }
}

/// Parses the entry with the number of partitions. Returns the sequence number of the entry in the
/// bucket, and the entry. Returns `None` if the entry is missing or unreadable.
fn parsed(found: Option<StoredMessage>) -> Option<(u64, PartitionCount)> {
    let found = found?;
    Some((found.seq, serde_json::from_slice(&found.body).ok()?))
}

fn count_unavailable(bucket: &str, failed: &ApiFailure) -> Error {
    unavailable(&format!("the number of partitions in {bucket}"), failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../../tests/data/fixtures/count.txt");

    fn entry(form: &str) -> &'static str {
        let mut lines = FIXTURE.lines().filter_map(|line| line.split_once('\t'));
        lines.find(|(found, _)| *found == form).expect("a line of the fixture").1
    }

    #[test]
    fn an_entry_of_an_earlier_version_is_read_and_names_no_journal() {
        let count: PartitionCount = serde_json::from_str(entry("before")).expect("an entry");
        assert_eq!((count.partitions, count.journal), (4, None));
    }

    #[test]
    fn an_entry_is_written_in_the_bytes_of_its_fixture() {
        let journal = Some(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001));
        let count = PartitionCount { partitions: 4, journal };
        assert_eq!(serde_json::to_string(&count).expect("plain data is JSON"), entry("now"));
    }
}
