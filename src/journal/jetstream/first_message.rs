//! The first message of a stream. The message names the journal that the stream keeps.

use uuid::Uuid;

use crate::journal::Error;

use super::Options;
use super::api::{JetStreamApi, StoredMessage};
use super::commit_codec::{CommitAssembler, CommitContents};
use super::read_failed;
use super::stream_reader::{check_version, damaged, patiently};

/// Returns the bytes of the commit in the message `stored`. Returns an error if the message
/// contains only a part of its commit.
fn whole(options: &Options, stored: &StoredMessage) -> Result<Vec<u8>, Error> {
    check_version(options, stored.seq, &stored.body)?;
    let taken = CommitAssembler::default().take(&stored.body);
    match taken.map_err(|detail| damaged(options, stored.seq, &detail))? {
        Some(whole) => Ok(whole),
        None => Err(damaged(options, stored.seq, "it is only a part")),
    }
}

fn message(api: &JetStreamApi, options: &Options, seq: u64) -> Result<StoredMessage, Error> {
    let stored = patiently(|| api.message(&options.stream(), seq));
    stored.map_err(|f| read_failed(&format!("message {seq} of the stream {}", options.stream()), f))
}

/// Content of the first message of a stream.
pub struct FirstMessage {
    pub journal: Uuid,
    pub partitions: u32,
    /// Whether the journal is being moved into this stream.
    pub moving: bool,
}

/// Reads the first message of the stream, and returns the id of the journal that the stream keeps.
/// Returns an error if the message states another number of partitions than the config.
pub fn journal(api: &JetStreamApi, options: &Options) -> Result<Uuid, Error> {
    let first = first(api, options)?;
    super::partition_count::compare(options, first.partitions)?;
    Ok(first.journal)
}

/// Reads the first message of a stream. The message states the id of the journal, the journal's
/// number of partitions, and whether the journal is being moved into the stream. Returns
/// [`Error::ForeignJournal`] if the stream keeps the journal of another organism or of another
/// partition.
pub fn first(api: &JetStreamApi, options: &Options) -> Result<FirstMessage, Error> {
    let first = message(api, options, 1)?;
    let whole = whole(options, &first)?;
    let contents = CommitContents::read(&whole).map_err(|detail| damaged(options, 1, &detail))?;

    match contents.journal {
        Some(about) if about.name == options.organism && about.partition == options.partition => {
            Ok(FirstMessage {
                journal: about.id,
                partitions: about.partitions,
                moving: about.moving,
            })
        }
        // The stream is intact, so the advice for a damaged one must not lead to its removal.
        Some(about) => Err(Error::ForeignJournal {
            path: format!("the stream {}", options.stream()),
            detail: format!(
                "holds the journal {} of partition {} of the organism `{}`: name another `stream` \
                 under [journal]",
                about.id, about.partition, about.name
            ),
        }),
        None => Err(damaged(options, 1, "it does not state which journal begins here")),
    }
}
