//! The journal: one append-only sequence of records. A record is durable before anything acts on
//! it.
//!
//! **Invariant:** this module makes no decisions for the pump. It returns a record exactly as the
//! record was appended.

mod background_proof;
pub mod checkpoint;
mod checkpoint_copies;
mod checkpoint_lines;
mod checkpoint_signer;
mod commit_watermark;
mod copy_directory;
mod earlier_copies;
mod external_marks;
mod followed_copy;
mod hash_chain;
mod heads;
mod host_signature;
mod inner_checkpoints;
pub mod jetstream;
mod judge;
mod log;
mod mac;
mod merkle;
mod merkle_chunks;
mod partition_dirs;
mod record_codec;
mod redactions;
mod signers;
pub mod sqlite;
mod writer;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::Time;
use crate::ids::{Digest, Position};
use crate::limits;
use crate::nats;
use crate::thread::Record;
use sqlite::StoredState;

pub use background_proof::ProofProgress;
pub use checkpoint::{Checkpoint, HostKey, host_key, readable_key_warning};
pub use checkpoint_copies::{CheckpointCopies, CopyMetrics, directory_problem};
pub use commit_watermark::{acknowledged, damaged_watermark};
pub use external_marks::{refuse_lost_file, replaced, replaced_journal, unreadable};
pub use followed_copy::{has_followed_note, is_followed};
pub use hash_chain::{HashedRecord, RecordHeader, record_hash};
pub use heads::{TreeHead, TreeHeads};
pub use host_signature::HostSignature;
pub use inner_checkpoints::InnerCheckpoints;
pub use judge::OperatorAcceptance;
pub use mac::{HeadMac, KeyId, MacCoverage};
pub use partition_dirs::{may_have_journal, may_have_journals, partition_in, partitions_in};
pub use redactions::RedactedRecords;
pub use signers::CheckpointSigners;

/// The journal format that this program writes.
pub const FORMAT: u32 = 4;

/// The oldest journal format that this program reads. If a pump opens a journal of a format older
/// than [`FORMAT`] for writing, the pump converts the journal to [`FORMAT`].
pub const OLDEST_FORMAT: u32 = 2;

/// The writing end of a journal. It has one owner, which runs on an OS thread of its own, because
/// every call blocks until its effect is durable.
pub trait Journal: Send {
    fn id(&self) -> Uuid;

    /// Returns the epoch of this pump. Every start has a higher epoch than all earlier starts.
    fn epoch(&self) -> u32;

    /// Returns the position of the next record.
    fn next(&self) -> Position;

    /// Makes all of `records` durable and readable, or none of them. Calls [`Journal::write`], and
    /// then [`Journal::show`].
    fn append(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error> {
        let hashes = self.write(records)?;
        self.show(records)?;
        Ok(hashes)
    }

    /// Makes all of `records` durable, or none of them, and returns their hashes. Sets `position`,
    /// `previous` and `previous_hash` of each record. If a `position` is already set, it must be
    /// the one that the journal expects.
    ///
    /// After [`Error::Full`], [`Error::Unavailable`] and [`Error::Denied`], the caller must retry
    /// with the same records or stop using the journal. After [`Error::PositionMismatch`], nothing
    /// was appended. After any other error, the journal accepts no more records, and the caller
    /// must reopen it to learn whether the records are durable.
    fn write(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error>;

    /// Makes the records of the last [`Journal::write`] readable, if that call did not do so
    /// already. Must be called after each write, with the same records. Returns the same errors as
    /// [`Journal::write`].
    fn show(&mut self, records: &[Record]) -> Result<(), Error> {
        let _ = records;
        Ok(())
    }

    /// Verifies that no other pump has taken over the journal. For an embedded journal, this needs
    /// no check: the process of the pump holds the journal's lock as long as it lives, even while
    /// it is frozen.
    fn verify_lead(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Signs and records a checkpoint if one is due. Returns true if a checkpoint was recorded. A
    /// pump calls this function at regular intervals, even if there are no new records. In this
    /// way, the pump also notices if its journal is lost.
    fn checkpoint_if_due(&mut self, now: Time) -> Result<bool, Error>;

    /// Returns the time of the last checkpoint that this run of the pump signed. If it has signed
    /// none, returns the time of the run's first record. Returns `None` if the run has written no
    /// record.
    fn checked_at(&self) -> Option<Time>;

    /// Returns the position of the last checkpoint.
    fn last_checkpoint(&self) -> Position {
        Position(0)
    }

    /// Returns the progress of the background verification of the records before a snapshot.
    /// Returns `None` if the journal was opened without a snapshot, so that every record was
    /// verified at the start.
    fn proof(&self) -> Option<Arc<ProofProgress>> {
        None
    }

    /// Returns the metrics of copying checkpoints; `None` if the config names no directory for
    /// copies.
    fn copy_metrics(&self) -> Option<CopyMetrics> {
        None
    }

    /// Returns the interval between calls of [`Journal::checkpoint_if_due`].
    fn rest(&self) -> Duration {
        limits::CHECKPOINT_INTERVAL
    }

    /// Stores the bytes of a file that the organism uses, such as a config, a prompt file or a
    /// schema, under the digest of these bytes. Returns the digest.
    fn put_blob(&mut self, bytes: &[u8]) -> Result<Digest, Error>;

    /// Writes a last checkpoint, and releases the lock of the journal's directory and, on NATS, the
    /// lease.
    fn close(self: Box<Self>, now: Time) -> Result<(), Error>;
}

/// Rebuilds the state of a pump while its journal is opened.
pub trait StateRecovery {
    /// Returns the version of the pump's rules (the core version) that a snapshot must have to be
    /// restored. Returns `None` if no snapshot may be restored, so that every record is replayed.
    fn snapshot_version(&self) -> Option<u32> {
        None
    }

    /// Restores the state of a snapshot, before any record is replayed. An error leaves the state
    /// unchanged.
    fn restore(&mut self, state: StoredState) -> Result<(), Error> {
        drop(state);
        let detail = "this state cannot be restored".to_owned();
        Err(Error::Resting { name: "a snapshot".to_owned(), detail })
    }

    /// Replays the next record.
    fn replay(&mut self, sealed: HashedRecord) -> Result<(), Error>;
}

/// A recovery that passes every record to a function.
struct EveryRecord<'v>(&'v mut dyn FnMut(HashedRecord) -> Result<(), Error>);

impl StateRecovery for EveryRecord<'_> {
    fn replay(&mut self, sealed: HashedRecord) -> Result<(), Error> {
        (self.0)(sealed)
    }
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another pump uses the journal. Nothing was changed.
    #[error("the journal {path} is in use by {holder}")]
    InUse { path: String, holder: String },
    /// Another process uses the state directory for the files that it keeps outside its journals.
    /// Nothing was changed.
    #[error(
        "the state directory {state} is in use by {holder}: each process that pumps partitions \
         needs a `data` and a `state` of its own; name another `state` under [organism], or stop \
         that process"
    )]
    StateInUse { state: String, holder: String },
    /// Another pump took over; this pump must stop.
    #[error("another pump took over this journal (epoch {theirs}, ours was {ours})")]
    Fenced { ours: u32, theirs: u32 },
    /// The disk is full, and nothing was appended. The caller may retry with the same records.
    #[error("the disk is full: {detail}")]
    Full { detail: String },
    /// The server does not answer, so it is unknown whether the records are durable. The caller
    /// must retry with the same records.
    #[error("the journal's server is unavailable: {detail}")]
    Unavailable { detail: String },
    /// The NATS servers deny a permission. A retry does not help.
    #[error(transparent)]
    Denied(nats::PermissionError),
    /// The path or stream holds another journal, or another kind of data.
    #[error("{path} {detail}")]
    ForeignJournal { path: String, detail: String },
    /// The server or the stream could lose records.
    #[error("no journal can be kept on {server}: {detail}")]
    UnsafeServer { server: String, detail: String },
    /// The journal and the config have different numbers of partitions, so the pump would look for
    /// conversation threads in the wrong partition.
    #[error(
        "the journal {journal} has {theirs} partitions and the config says {ours}; their number is \
         fixed for the life of a journal: write `partitions = {theirs}` under [journal]"
    )]
    Partitions { journal: String, ours: u32, theirs: u32 },
    /// The stream belongs to another organism, as far as this host knows.
    #[error(
        "the stream {stream} holds the journal {theirs} of another project, and {state} knows {}; \
         nothing was changed. If it is this organism's, begun on another host or before `state` \
         was lost, copy `{stream}.organism` from the state directory of another host to {state}, also \
         while the organism runs, or stop the organism on every host and run `organism adopt`. \
         Otherwise, these are two organisms: give this one another `name` than the other one has, and \
         another `stream` if [journal] names one; or give it another account of the servers",
        known.map_or_else(|| "none of its own there".to_owned(), |known| known.to_string())
    )]
    OtherJournal { stream: String, theirs: Uuid, known: Option<Uuid>, state: String },
    #[error(transparent)]
    Nats(#[from] nats::Error),
    #[error(
        "the journal {path} has format {found}; this program reads formats {OLDEST_FORMAT} to {ours}: \
         use the version of organism that wrote the journal, or a later one"
    )]
    Format { path: String, found: String, ours: u32 },
    /// The file at the journal's path is not a journal.
    #[error("{path} is not a journal: {detail}. Restore a backup, or move the file away")]
    Unreadable { path: String, detail: String },
    /// A tree or a client key (the key with which a client may repeat a submission) was moved out
    /// of memory and cannot be read back. The journal itself is not affected.
    #[error(
        "{name} cannot be brought back into memory: {detail}. Start again: a start reads it from \
         the journal"
    )]
    Resting { name: String, detail: String },
    /// A record is missing, or differs from the record that was acknowledged at its position. The
    /// position is 0 if the damage concerns the journal as a whole.
    #[error("the journal is broken{}: {detail}", at_position(*position))]
    Broken { position: u64, detail: String },
    /// A record is missing or wrong, as in [`Error::Broken`]; this error also contains the name of
    /// the journal.
    #[error("{}", damage(journal, *position, detail))]
    Damaged { journal: String, position: u64, detail: String },
    /// The stream ends before its last acknowledged record: the servers lost records, or an older
    /// copy of the stream was restored.
    #[error(
        "the stream {stream} {end}, but more was acknowledged: {sources}. No pump leads it \
         (docs/errors/stream-shorter.md). Restore the store of its servers, or run `organism \
         repair` where the projection goes farthest: it publishes the rest again"
    )]
    StreamShorter { stream: String, end: String, sources: String },
    /// A repair on this host was refused, because another host has later records of the stream, or
    /// may have them, or because the stream lacks more than an interrupted repair gives up, or
    /// because an interrupted repair with another choice must end first.
    #[error(
        "the stream {stream} was not repaired on this host: {reason} \
         (docs/errors/stream-shorter.md)"
    )]
    OtherHostAhead { stream: String, reason: String },
    /// The stream's record at `position` is not the record that was acknowledged there: two pumps
    /// have continued the stream differently.
    #[error(
        "the stream {stream} is forked at record {position}: it holds another record there than \
         what was acknowledged, as {sources}. This host does not lead it (docs/errors/stream-forked.md). \
         `organism repair` shows both sides and takes the choice"
    )]
    StreamForked { stream: String, position: Position, sources: String },
    /// This host has a repair of the stream that has not ended: its file `note` is still there.
    #[error(
        "a repair of the stream {stream} has not ended on this host, as {} shows: run `organism \
         repair` first, which continues it and puts it on record. If another host pumps the stream, \
         stop the organism there first, or see docs/errors/stream-forked.md", note.display()
    )]
    RepairPending { stream: String, note: PathBuf },
    /// A payload that is blanked in the projection in `data` is still in the stream.
    #[error(
        "the payload of record {position} is blanked in {}, but not in the stream {stream}, which \
         every host copies; nothing was recorded. Take it out of the stream first: \
         docs/OPERATIONS.md, Taking a payload out", data.display()
    )]
    PayloadInStream { stream: String, position: Position, data: PathBuf },
    /// The journal was written before MACs existed.
    #[error(
        "the journal {path} has {records} records and no MAC, as before this version, so it is \
         unproved that an organism wrote its end. `organism adopt` accepts it as it stands"
    )]
    WithoutMac { path: String, records: Position },
    /// The journal ends with a MAC that was made with the key of another host.
    #[error(
        "the journal {path} ends with a MAC of the key {theirs}, and this host has {}: put that key \
         back into the state directory, or accept what stands there under {} with `organism repair \
         {}`",
        own_key(*ours),
        if ours.is_some() { "this one" } else { "a new one" },
        flags(*lost)
    )]
    OtherKey { path: String, theirs: KeyId, ours: Option<KeyId>, lost: bool },
    /// Records at the end of the journal were changed, or were not written by a pump of this host.
    #[error(
        "the records from {first} to {last} of the journal {path} are covered by no MAC: no pump \
         of this host wrote them, or they were changed. {}",
        way_on(*first, *lost)
    )]
    Uncovered { path: String, first: Position, last: Position, lost: bool },
    /// The last records of the stream are not proved: no MAC of a pump covers them, or a MAC of
    /// this host's key is wrong.
    #[error(
        "the records from {first} to {last} of the stream {stream} are covered by no MAC of a pump, \
         or are not those that a MAC of this host covers; nothing was written. `organism repair \
         --accept-key` keeps them, and records that they are not proved. To take them out, see \
         docs/OPERATIONS.md, Repair"
    )]
    UncoveredStream { stream: String, first: Position, last: Position },
    /// A standby stopped before the end of a stream, because the records at the end are not proved.
    #[error("the stream {stream} is not followed to its end: {detail}")]
    UnprovedStream { stream: String, detail: String },
    /// A later version of the program wrote to the stream.
    #[error(
        "message {seq} of the stream {stream} has version {version} of the encoding, which this \
         program does not read: upgrade this program to the version that wrote the message"
    )]
    StreamVersion { stream: String, seq: u64, version: u32 },
    #[error("the journal stopped after an earlier error ({cause}); start again to recover")]
    Stopped { cause: String },
    /// The pump passed a record with a wrong position, which is a bug. Nothing was appended.
    #[error("a record for position {given} was appended at position {expected}")]
    PositionMismatch { given: Position, expected: Position },
    #[error("there is no journal at {path}")]
    Missing { path: String },
    #[error("{context}: {source}")]
    Sqlite { context: String, source: rusqlite::Error },
    #[error("{context}: {source}")]
    Io { context: String, source: std::io::Error },
}

impl Error {
    /// Whether the caller may repeat the failed call with the same arguments.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Unavailable { .. } | Self::Denied(_))
    }

    /// Whether the disk had no room for the journal, or for a small file beside it.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Io { source, .. } => {
                matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            }
            Self::Sqlite { source, .. } => sqlite::is_disk_full(source),
            _ => false,
        }
    }

    /// Adds the name of the journal to an error about a broken journal. The name is the journal's
    /// directory or stream.
    pub fn in_journal(self, journal: impl std::fmt::Display) -> Self {
        match self {
            Self::Broken { position, detail } => {
                Self::Damaged { journal: journal.to_string(), position, detail }
            }
            other => other,
        }
    }

    pub(crate) fn broken(position: u64, detail: impl Into<String>) -> Self {
        Self::Broken { position, detail: detail.into() }
    }

    fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }

    fn sqlite(context: impl Into<String>) -> impl FnOnce(rusqlite::Error) -> Self {
        let context = context.into();
        move |source| Self::Sqlite { context, source }
    }
}

/// Returns the error message for a broken journal. The message contains the journal's name, the
/// position and the damage. It also contains advice, unless `detail` already does.
fn damage(journal: &str, position: u64, detail: &str) -> String {
    let at = at_position(position);
    let way_on = if detail.contains("`organism ") {
        ""
    } else {
        "; `organism verify` shows how far it holds. Keep a copy of its directory, and restore \
             a backup (docs/OPERATIONS.md, Restore)"
    };

    format!("the journal {journal} is broken{at}: {detail}{way_on}")
}

/// Returns the place of damage in a journal, for an error message. Returns an empty text for the
/// position 0, which stands for the journal as a whole.
pub fn at_position(position: u64) -> String {
    match position {
        0 => String::new(),
        position => format!(" at position {position}"),
    }
}

/// Returns the key of this host for an error message; `None` if this host has no key yet.
fn own_key(ours: Option<KeyId>) -> String {
    ours.map_or_else(|| "no key".to_owned(), |ours| format!("the key {ours}"))
}

/// Returns the flags of `organism repair` that accept another key. If `lost` is set, they also
/// accept a loss of records.
fn flags(lost: bool) -> &'static str {
    if lost { "--accept-loss --accept-key" } else { "--accept-key" }
}

/// Returns advice for a journal in which no MAC covers the records from `first` on.
///
/// - If `first` is the journal's first record, the operator must restore a backup or accept the
///   records. If `lost` is set, the command that accepts them must also accept a loss of records.
/// - If `first` is a later record, the operator can remove these records. The journal then
///   continues after the last covered record.
fn way_on(first: Position, lost: bool) -> String {
    match first {
        Position(..=1) => format!(
            "Restore a backup, or accept what stands there under this host's key with `organism \
             repair {}`",
            flags(lost)
        ),
        Position(2..) => "`organism repair --accept-loss` takes them out and continues after the \
                          last record that is covered"
            .to_owned(),
    }
}
