//! Moving a journal that was embedded into a stream: every record as it stands, so that its chain
//! goes on unbroken.
//!
//! What stands in the stream is held against the journal first and says what is still to be sent,
//! so a move that was cut short anywhere goes on. The journal stays what it is until everything
//! was read back from the stream and is the same, byte for byte; then one commit makes it the
//! projection. Until the stream says that all of it is there, no pump goes on with it.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use crate::failpoint::failpoint;
use crate::ids::{Digest, Position};
use crate::journal::sqlite::{self, DATABASE, JournalReader, LockedJournalDir};
use crate::journal::{Checkpoint, Error};
use crate::limits;
use crate::nats;

use super::Options;
use super::api::JetStreamApi;
use super::bounds::StreamBounds;
use super::commit_codec::CommitEncoder;
use super::identity::{self, JoiningHost};
use super::lease::{Lease, LeaseEntry};
use super::lease_renewal::LeaseRenewal;
use super::open::{connect, stream};
use super::partition_count;
use super::stream_copier::StreamCopier;

mod compare;

use compare::CopiedPrefix;

/// What a move is doing; each goes through all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromotionPhase {
    Proving,
    Publishing,
    Comparing,
}

/// Hears of so many records done, out of how many.
pub type PromotionProgress<'p> = &'p mut dyn FnMut(PromotionPhase, u64, u64);

/// A journal that was moved, or had been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PromotedJournal {
    #[serde(rename = "journal")]
    pub journal: Uuid,
    #[serde(rename = "stream")]
    pub stream: String,
    #[serde(rename = "records")]
    pub records: u64,
    #[serde(rename = "trees")]
    pub trees: usize,
    #[serde(rename = "checkpoints")]
    pub checkpoints: usize,
    #[serde(rename = "blobs")]
    pub blobs: usize,
    /// Of the last record.
    #[serde(rename = "last_hash")]
    pub last_hash: Digest,
    /// Over the heads of all trees.
    #[serde(rename = "merkle_root")]
    pub merkle_root: Digest,
    /// Records that this run put into the stream; the others were there.
    #[serde(rename = "published")]
    pub published: u64,
    /// Messages of the stream that hold it.
    #[serde(rename = "messages")]
    pub messages: u64,
}

/// The embedded journal, as it is sent and compared.
struct PromotionSource {
    reader: JournalReader,
    journal: Uuid,
    epoch: u32,
    last: Position,
    blobs: Vec<Digest>,
    checkpoints: Vec<Checkpoint>,
}

/// Moves the embedded journal in `data` into the stream of `options`. None where `data` follows a
/// stream already.
///
/// [`Error::Held`] while a pump runs, [`Error::Strange`] where the stream keeps anything else; run
/// again after any other error, it goes on.
pub fn promote(
    servers: &nats::Options,
    options: &Options,
    data: &Path,
    state: &Path,
    progress: PromotionProgress<'_>,
) -> Result<Option<PromotedJournal>, Error> {
    if !data.join(DATABASE).exists() {
        return Err(Error::Missing { path: data.display().to_string() });
    }

    let opening = LockedJournalDir::begin(data, state)?.with_copies(options.checkpoints.as_deref());
    if opening.found()?.1.is_some() {
        return Ok(None);
    }

    // A file is one partition, and stays one: what follows what is in its hashes.
    partition_count::compare(options, 1)?;
    let api = connect(servers, options)?;
    let mut journal = prove(opening, progress)?;
    let source = PromotionSource::open(data)?;
    let member = JoiningHost { accepts: Some(source.journal), ..JoiningHost::new(data, state) };
    let lease = Lease::of(&api, options, LeaseEntry::here(data), &member)?;
    identity::note(state, options, source.journal)?;
    lease.take(lease.wait_until_free(options)?, options)?;
    let info = stream(&api, options, &StreamBounds::default(), 0)?;
    let renewal = LeaseRenewal::start(options, Arc::new(lease))?;
    let copier = StreamCopier::start(&api, options, renewal, info, &source.reader, source.epoch)?;

    let found = CopiedPrefix::read(&api, options, &source, copier.publisher.last(), &mut |_| {})?;
    let published = source.last.0 - found.records;
    publish_rest(&copier, &source, &found, progress)?;
    failpoint("before-comparing");
    let found = compare(&api, options, &source, copier.publisher.last(), progress)?;
    failpoint("compared");
    copier.watch.check(source.epoch)?;
    journal.follow_from(found.mark)?;
    failpoint("promoted");
    let promoted = PromotedJournal {
        journal: source.journal,
        stream: options.stream(),
        records: source.last.0,
        trees: journal.heads().len(),
        checkpoints: source.checkpoints.len(),
        blobs: source.blobs.len(),
        last_hash: journal.heads().last_hash(),
        merkle_root: journal.root(),
        published,
        messages: found.mark.seq,
    };

    drop(copier);
    drop(source);
    journal.let_go()?;
    Ok(Some(promoted))
}

fn prove(
    opening: LockedJournalDir,
    progress: PromotionProgress<'_>,
) -> Result<sqlite::SqliteJournal, Error> {
    let all = JournalReader::open(opening.data())?.last()?.0;
    opening.prove_to_move(&mut |sealed| {
        let done = sealed.record.position.0;
        if done.is_multiple_of(limits::SCAN_RECORDS) || done == all {
            progress(PromotionPhase::Proving, done, all);
        }
        Ok(())
    })
}

/// What stands in the stream now, which must be everything and nothing else.
fn compare(
    api: &JetStreamApi,
    options: &Options,
    source: &PromotionSource,
    last_seq: u64,
    progress: PromotionProgress<'_>,
) -> Result<CopiedPrefix, Error> {
    let mut compared = |done| progress(PromotionPhase::Comparing, done, source.last.0);
    let found = CopiedPrefix::read(api, options, source, last_seq, &mut compared)?;
    let missing = found.missing(source, last_seq);

    match missing {
        None => Ok(found),
        Some(detail) => Err(Error::broken(
            0,
            format!("the stream {} does not hold all of the journal: {detail}", options.stream()),
        )),
    }
}

impl PromotionSource {
    fn open(data: &Path) -> Result<Self, Error> {
        let reader = JournalReader::open(data)?;
        let about = reader.about()?;
        let (last, blobs) = (reader.last()?, reader.blobs()?);
        let checkpoints = reader.checkpoints()?;
        Ok(Self { journal: about.journal, epoch: about.epoch, last, blobs, checkpoints, reader })
    }
}

/// Publishes what of the journal is not in the stream, and at last that all of it is there.
fn publish_rest(
    copier: &StreamCopier<'_>,
    source: &PromotionSource,
    found: &CopiedPrefix,
    progress: PromotionProgress<'_>,
) -> Result<(), Error> {
    let PromotionSource { journal, epoch, last, .. } = *source;
    if !found.begun {
        copier.begin(journal)?;
    }

    copier.publish_blobs(&found.blobs)?;

    let checkpoints = source.checkpoints.get(found.checkpoints..).unwrap_or_default();
    let mut published =
        |position: Position| progress(PromotionPhase::Publishing, position.0, last.0);
    copier.publish_records(Position(found.records), last, checkpoints, &mut published)?;
    published(last);

    match found.moved {
        Some(records) if records == last.0 && found.is_whole(source) => Ok(()),
        _ => copier.publish(&CommitEncoder::moved(last.0, epoch)),
    }
}
