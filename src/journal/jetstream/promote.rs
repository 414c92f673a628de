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
use crate::journal::sqlite::{self, DATABASE, Opening, Reader};
use crate::journal::{Checkpoint, Error};
use crate::limits;
use crate::nats;

use super::Options;
use super::api::Api;
use super::bounds::Bounds;
use super::count;
use super::group::Group;
use super::identity::{self, Member};
use super::lease::{Holder, Lease};
use super::open::{connect, stream};
use super::stream_copier::StreamCopier;
use super::watch::Renewal;

mod compare;

use compare::Found;

/// What a move is doing; each goes through all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Proving,
    Publishing,
    Comparing,
}

/// Hears of so many records done, out of how many.
pub type Progress<'p> = &'p mut dyn FnMut(Phase, u64, u64);

/// A journal that was moved, or had been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Promoted {
    pub journal: Uuid,
    pub stream: String,
    pub records: u64,
    pub trees: usize,
    pub checkpoints: usize,
    pub blobs: usize,
    /// Of the last record.
    pub last_hash: Digest,
    /// Over the heads of all trees.
    pub merkle_root: Digest,
    /// Records that this run put into the stream; the others were there.
    pub published: u64,
    /// Messages of the stream that hold it.
    pub messages: u64,
}

/// The embedded journal, as it is sent and compared.
struct Source {
    reader: Reader,
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
    progress: Progress<'_>,
) -> Result<Option<Promoted>, Error> {
    if !data.join(DATABASE).exists() {
        return Err(Error::Missing { path: data.display().to_string() });
    }

    let opening = Opening::begin(data, state)?.with_copies(options.checkpoints.as_deref());
    if opening.found()?.1.is_some() {
        return Ok(None);
    }

    // A file is one partition, and stays one: what follows what is in its hashes.
    count::compare(options, 1)?;
    let api = connect(servers, options)?;
    let mut journal = prove(opening, progress)?;
    let source = Source::open(data)?;
    let member = Member { accepts: Some(source.journal), ..Member::new(data, state) };
    let lease = Lease::of(&api, options, Holder::here(data), &member)?;
    identity::note(state, options, source.journal)?;
    lease.take(lease.wait_until_free(options)?, options)?;
    let info = stream(&api, options, &Bounds::default(), 0)?;
    let renewal = Renewal::start(options, Arc::new(lease))?;
    let copier = StreamCopier::start(&api, options, renewal, info, &source.reader, source.epoch)?;

    let found = Found::read(&api, options, &source, copier.publisher.last(), &mut |_| {})?;
    let published = source.last.0 - found.records;
    publish_rest(&copier, &source, &found, progress)?;
    failpoint("before-comparing");
    let found = compare(&api, options, &source, copier.publisher.last(), progress)?;
    failpoint("compared");
    copier.watch.check(source.epoch)?;
    journal.follow_from(found.mark)?;
    failpoint("promoted");
    let promoted = Promoted {
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

fn prove(opening: Opening, progress: Progress<'_>) -> Result<sqlite::Journal, Error> {
    let all = Reader::open(opening.data())?.last()?.0;
    opening.prove_to_move(&mut |sealed| {
        let done = sealed.record.position.0;
        if done.is_multiple_of(limits::SCAN_RECORDS) || done == all {
            progress(Phase::Proving, done, all);
        }
        Ok(())
    })
}

/// What stands in the stream now, which must be everything and nothing else.
fn compare(
    api: &Api,
    options: &Options,
    source: &Source,
    last_seq: u64,
    progress: Progress<'_>,
) -> Result<Found, Error> {
    let mut compared = |done| progress(Phase::Comparing, done, source.last.0);
    let found = Found::read(api, options, source, last_seq, &mut compared)?;
    let missing = found.missing(source, last_seq);

    match missing {
        None => Ok(found),
        Some(detail) => Err(Error::broken(
            0,
            format!("the stream {} does not hold all of the journal: {detail}", options.stream()),
        )),
    }
}

impl Source {
    fn open(data: &Path) -> Result<Self, Error> {
        let reader = Reader::open(data)?;
        let about = reader.about()?;
        let (last, blobs) = (reader.last()?, reader.blobs()?);
        let checkpoints = reader.checkpoints()?;
        Ok(Self { journal: about.journal, epoch: about.epoch, last, blobs, checkpoints, reader })
    }
}

/// Publishes what of the journal is not in the stream, and at last that all of it is there.
fn publish_rest(
    copier: &StreamCopier<'_>,
    source: &Source,
    found: &Found,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let Source { journal, epoch, last, .. } = *source;
    if !found.begun {
        copier.begin(journal)?;
    }

    copier.publish_blobs(&found.blobs)?;

    let checkpoints = source.checkpoints.get(found.checkpoints..).unwrap_or_default();
    let mut published = |position: Position| progress(Phase::Publishing, position.0, last.0);
    copier.publish_records(Position(found.records), last, checkpoints, &mut published)?;
    published(last);

    match found.moved {
        Some(records) if records == last.0 && found.is_whole(source) => Ok(()),
        _ => copier.publish(&Group::moved(last.0, epoch)),
    }
}
