//! Moves an embedded journal into a stream. Every record stays as it is, so that the hash chain
//! continues unbroken.
//!
//! A move first determines which part of the journal the stream lacks, so that an interrupted move
//! can resume. The journal stays unchanged until everything was read back from the stream and is
//! identical byte for byte. Then one commit makes the journal the projection of the stream. No pump
//! writes to the stream before the stream states that the move is complete.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use crate::failpoint::failpoint;
use crate::ids::{Digest, Position};
use crate::journal::log::LogMark;
use crate::journal::sqlite::{self, JournalReader, LockedJournalDir};
use crate::journal::{Error, may_have_journal};
use crate::limits;
use crate::nats;
use crate::plural::count;

use super::acknowledged_bounds::StreamBounds;
use super::api::JetStreamApi;
use super::commit_codec::{CommitContents, CommitEncoder};
use super::identity::{self, JoiningHost};
use super::lease::{Lease, LeaseEntry};
use super::lease_renewal::LeaseRenewal;
use super::open::{connect, stream};
use super::partition_count;
use super::projection_alignment::{ComparedProjection, ProjectionAlignment, ProjectionComparison};
use super::stream_copier::StreamCopier;
use super::stream_reader::StreamReader;
use super::{Options, read_failed};

/// A phase of the move that brings a journal into a stream. Each phase processes all records of the
/// journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromotionPhase {
    Proving,
    Publishing,
    Comparing,
}

/// Callback for progress: phase, records done, records in total.
pub type PromotionProgress<'p> = &'p mut dyn FnMut(PromotionPhase, u64, u64);

/// A journal that was moved into a stream, by this run or by an earlier run.
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
    /// Hash of the journal's last record.
    #[serde(rename = "last_hash")]
    pub last_hash: Digest,
    /// Merkle root over the heads of all trees of the journal.
    #[serde(rename = "merkle_root")]
    pub merkle_root: Digest,
    /// Number of records that this run published. All other records were already in the stream.
    #[serde(rename = "published")]
    pub published: u64,
    /// Number of messages in the stream that contain the records of the journal.
    #[serde(rename = "messages")]
    pub messages: u64,
}

/// An embedded journal in a local file. A move publishes the journal into a stream, and then
/// compares the stream with the journal.
struct PromotionSource {
    journal: Uuid,
    epoch: u32,
    content: ComparedProjection,
}

/// The part of the journal that the stream already has.
struct CopiedPrefix {
    compared: ProjectionComparison,
    statements: MoveStatements,
}

/// Statements in a stream about the progress of moving a journal into this stream.
#[derive(Default)]
struct MoveStatements {
    begun: bool,
    /// Number of moved records. `None` if the stream does not state yet that the move is complete.
    moved: Option<u64>,
}

/// Moves the embedded journal in `data` into the stream of `options`. Returns `None` if `data`
/// already follows a stream.
///
/// Returns [`Error::InUse`] while a pump runs, and [`Error::ForeignJournal`] if the stream holds
/// anything that does not belong to this journal. After any other error, the caller may run the
/// move again to resume it.
pub fn promote(
    servers: &nats::Options,
    options: &Options,
    data: &Path,
    state: &Path,
    progress: PromotionProgress<'_>,
) -> Result<Option<PromotedJournal>, Error> {
    if !may_have_journal(data) {
        return Err(Error::Missing { path: data.display().to_string() });
    }

    let opening = LockedJournalDir::lock(data, state)?.with_copies(options.checkpoints.as_deref());
    if opening.found()?.1.is_some() {
        return Ok(None);
    }

    // An embedded journal is one partition and stays one, because its hashes fix the order of its
    // records.
    partition_count::compare(options, 1)?;
    let api = connect(servers, options)?;
    // Ordering rule: checked before the proof, which would report the records that the file lacks
    // as lost, although the stream has them.
    refuse_older_copy(&api, options, data, state)?;
    let mut journal = prove(opening, progress)?;
    let source = PromotionSource::open(data)?;
    let member = JoiningHost { accepts: Some(source.journal), ..JoiningHost::new(data, state) };
    let lease = Lease::of(&api, options, LeaseEntry::here(data), &member)?;
    identity::note(state, options, source.journal)?;
    lease.take(lease.wait_until_free(options)?, options)?;
    let info = stream(&api, options, &StreamBounds::default(), 0)?;
    let renewal = LeaseRenewal::start(options, Arc::new(lease))?;
    let content = &source.content;
    let copier = StreamCopier::start(&api, options, renewal, info, &content.reader, source.epoch)?;

    let found = CopiedPrefix::read(&api, options, &source, copier.publisher.last(), &mut |_| {})?;
    let published = content.last.0 - found.compared.records.0;
    publish_rest(&copier, &source, &found, progress)?;

    failpoint("before-comparing");
    let mark = compare(&api, options, &source, copier.publisher.last(), progress)?;
    failpoint("compared");

    copier.watch.check(source.epoch)?;
    journal.follow_from(mark)?;
    failpoint("promoted");

    let promoted = PromotedJournal {
        journal: source.journal,
        stream: options.stream(),
        records: content.last.0,
        trees: journal.heads().len(),
        checkpoints: content.checkpoints.len(),
        blobs: content.blobs.len(),
        last_hash: journal.heads().last_hash(),
        merkle_root: journal.root(),
        published,
        messages: mark.seq,
    };

    drop(copier);
    drop(source);
    journal.let_go()?;
    Ok(Some(promoted))
}

/// Refuses a journal that is older than its copy in the stream: the stream has all of its records,
/// and a later epoch, or was complete with more records. This is the case if a backup from before
/// the move is restored. Accepts any other journal, because the comparison of the move refuses a
/// journal that has other records than the stream.
fn refuse_older_copy(
    api: &JetStreamApi,
    options: &Options,
    data: &Path,
    state: &Path,
) -> Result<(), Error> {
    let content = ComparedProjection {
        // A payload may be redacted in only one of the two copies.
        is_same: |ours, theirs| ours.has_same_hash(theirs),
        ..ComparedProjection::open(data)?
    };
    let about = content.reader.about()?;
    if !partition_count::has_journal(api, options, about.journal)? {
        return Ok(());
    }

    let stream = options.stream();
    let info = api.info(&stream).map_err(|f| read_failed(&format!("the stream {stream}"), f))?;
    let reader = StreamReader::new(api, options);
    let mut is_ahead = false;
    let compared =
        content.compare_groups(&reader, info.state.last_seq, &mut |_, contents, _| {
            is_ahead |= contents.epoch.is_some_and(|epoch| epoch > about.epoch);
            is_ahead |= contents.moved.is_some_and(|moved| moved > content.last.0);
            Ok(())
        })?;
    // The advice below is safe only if the file has nothing that the stream lacks.
    let has_all = matches!(compared.alignment, ProjectionAlignment::Whole { .. });
    if !is_ahead || !has_all {
        return Ok(());
    }

    // The next start may then copy the journal from the stream.
    sqlite::make_directory(state)?;
    identity::note(state, options, about.journal)?;
    let detail = format!(
        "holds an older copy of the journal that is in the stream {stream}: move `journal.db` and \
         the files that begin with its name away, and start again; the start copies the journal \
         from the stream"
    );
    Err(Error::ForeignJournal { path: data.display().to_string(), detail })
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

/// Compares the complete stream with the journal: the stream must hold everything that the journal
/// holds, and nothing else. Returns the position of the stream's last message.
fn compare(
    api: &JetStreamApi,
    options: &Options,
    source: &PromotionSource,
    last_seq: u64,
    progress: PromotionProgress<'_>,
) -> Result<LogMark, Error> {
    let last = source.content.last;
    let mut compared = |done| progress(PromotionPhase::Comparing, done, last.0);
    let found = CopiedPrefix::read(api, options, source, last_seq, &mut compared)?;

    let detail = match found.compared.alignment {
        _ if !found.is_whole() => {
            let Position(records) = found.compared.records;
            let missing = found.compared.missing_checkpoints.len();
            let records = count(records, "record");
            format!("it has {records}, and lacks {}", count(missing, "checkpoint"))
        }
        ProjectionAlignment::Whole { mark, .. }
            if mark.seq == last_seq && found.statements.moved == Some(last.0) =>
        {
            return Ok(mark);
        }
        _ => "its last message is not the statement that the move is complete".to_owned(),
    };
    let stream = options.stream();
    Err(Error::broken(0, format!("the stream {stream} does not hold all of the journal: {detail}")))
}

impl CopiedPrefix {
    /// Reads the stream up to message `last_seq`. Returns [`Error::ForeignJournal`] if the stream
    /// contains anything that does not belong to the journal.
    fn read(
        api: &JetStreamApi,
        options: &Options,
        source: &PromotionSource,
        last_seq: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, Error> {
        let mut statements = MoveStatements::default();
        let reader = StreamReader { damaged: foreign_message, ..StreamReader::new(api, options) };
        let content = &source.content;
        let compared =
            content.compare_groups(&reader, last_seq, &mut |seq, contents, compared| {
                let taken = statements.take(options, source, contents, compared);
                taken.map_err(|detail| foreign_message(options, seq, &detail))?;
                progress(compared.records.0);
                Ok(())
            })?;
        Ok(Self { compared, statements })
    }

    fn is_whole(&self) -> bool {
        let is_whole = matches!(self.compared.alignment, ProjectionAlignment::Whole { .. });
        self.statements.begun && is_whole && self.compared.missing_checkpoints.is_empty()
    }
}

impl MoveStatements {
    /// Returns an error if `contents`, the next group of the stream, does not belong to the journal
    /// that is being moved. `compared` is the result of comparing the stream, up to the end of this
    /// group, with the journal.
    fn take(
        &mut self,
        options: &Options,
        source: &PromotionSource,
        contents: &CommitContents<'_>,
        compared: &ProjectionComparison,
    ) -> Result<(), String> {
        if let Some(about) = &contents.journal {
            let is_same = (about.id, &*about.name, about.partition, about.partitions)
                == (source.journal, &options.organism, options.partition, options.partitions);
            if !is_same || !about.moving || self.begun {
                return Err(format!("the journal {} of `{}`", about.id, about.name));
            }
            self.begun = true;
        }

        if !self.begun {
            return Err("the stream does not begin with a statement of its journal".to_owned());
        }

        if contents.epoch.is_some_and(|epoch| epoch > source.epoch) {
            return Err("another pump has already written to the stream".to_owned());
        }

        if let Some(foreign) = &compared.foreign {
            return Err(foreign.clone());
        }

        self.moved = contents.moved.or(self.moved);

        match contents.moved {
            Some(records) if records != compared.records.0 => Err(format!(
                "{records} records are stated as moved, but {} precede this message",
                compared.records.0
            )),
            _ => Ok(()),
        }
    }
}

/// Returns the error for a message that does not belong to the journal.
fn foreign_message(options: &Options, seq: u64, detail: &str) -> Error {
    Error::ForeignJournal {
        path: format!("the stream {}", options.stream()),
        detail: format!(
            "keeps something else (message {seq}: {detail}): name another `stream`, or remove that \
             one if it is no longer needed"
        ),
    }
}

impl PromotionSource {
    fn open(data: &Path) -> Result<Self, Error> {
        let content = ComparedProjection::open_with_checkpoints(data)?;
        let about = content.reader.about()?;
        Ok(Self { journal: about.journal, epoch: about.epoch, content })
    }
}

/// Publishes the part of the journal that the stream lacks, and then the statement that the move is
/// complete.
fn publish_rest(
    copier: &StreamCopier<'_>,
    source: &PromotionSource,
    found: &CopiedPrefix,
    progress: PromotionProgress<'_>,
) -> Result<(), Error> {
    let CopiedPrefix { compared, statements } = found;
    let last = source.content.last;
    if !statements.begun {
        copier.begin(source.journal)?;
    }

    copier.publish_blobs(&compared.blobs)?;

    let mut checkpoints: Vec<_> = compared.missing_checkpoints.iter().cloned().collect();
    checkpoints.sort_by_key(|line| line.position);
    let mut published =
        |position: Position| progress(PromotionPhase::Publishing, position.0, last.0);
    copier.publish_records(compared.records, last, &checkpoints, &mut published)?;
    published(last);

    match statements.moved {
        Some(records) if records == last.0 && found.is_whole() => Ok(()),
        _ => copier.publish(&CommitEncoder::moved(last.0, source.epoch)),
    }
}
