//! Moves an embedded journal into a stream: every record as it is, so that the hash chain continues
//! unbroken.
//!
//! A move first compares the stream with the journal to find what is still missing, so that an
//! interrupted move can resume. The journal stays unchanged until everything was read back from the
//! stream and is identical byte for byte; then one commit makes it the projection. No pump
//! continues the stream before it states that it is complete.

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

/// The phase of a move; each phase goes through all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromotionPhase {
    Proving,
    Publishing,
    Comparing,
}

/// Callback for progress: phase, records done, records in total.
pub type PromotionProgress<'p> = &'p mut dyn FnMut(PromotionPhase, u64, u64);

/// A journal that was moved, now or before.
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
    /// Hash of the last record.
    #[serde(rename = "last_hash")]
    pub last_hash: Digest,
    /// Merkle root over the heads of all trees.
    #[serde(rename = "merkle_root")]
    pub merkle_root: Digest,
    /// Number of records that this run published; the others were already in the stream.
    #[serde(rename = "published")]
    pub published: u64,
    /// Number of messages of the stream that hold the journal.
    #[serde(rename = "messages")]
    pub messages: u64,
}

/// The embedded journal while it is published and compared.
struct PromotionSource {
    reader: JournalReader,
    journal: Uuid,
    epoch: u32,
    last: Position,
    blobs: Vec<Digest>,
    checkpoints: Vec<Checkpoint>,
}

/// Moves the embedded journal in `data` into the stream of `options`. Returns `None` if `data`
/// already follows a stream.
///
/// Returns [`Error::Held`] while a pump runs, and [`Error::Strange`] if the stream holds anything
/// else. After any other error, run it again to resume.
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

    // A file is one partition and stays one, because its hashes fix the order of its records.
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

/// Compares the final stream with the journal: it must hold everything and nothing else. Returns the
/// position of its last message.
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

/// Publishes the part of the journal that the stream lacks, and finally the statement that it is
/// complete.
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
