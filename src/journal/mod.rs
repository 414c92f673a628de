//! The journal: one append-only sequence of records, durable before anything else happens.
//!
//! **Invariant:** nothing here decides; a record goes in and comes out as it was.

pub mod checkpoint;
mod checkpoint_signer;
mod copies;
mod copying;
mod hash_chain;
mod heads;
pub mod jetstream;
mod log;
mod mac;
mod merkle;
mod partition_dirs;
mod record_codec;
mod small_file;
pub mod sqlite;
mod writer;

use std::time::Duration;

use uuid::Uuid;

use crate::clock::Time;
use crate::ids::{Digest, Position};
use crate::limits;
use crate::nats;
use crate::thread::Record;

pub use checkpoint::{Checkpoint, HostKey, host_key};
pub use copies::{CheckpointCopies, CopyMetrics, directory_problem};
pub use hash_chain::{HashedRecord, RecordHeader, record_hash};
pub use heads::{TreeHead, TreeHeads};
pub use mac::{HeadMac, KeyId, MacCoverage};
pub use partition_dirs::{partition_in, partitions_in};

/// The layout of journals this program writes and reads.
pub const FORMAT: u32 = 2;

/// The writing end: one owner, on its own thread, as every call waits until things are durable.
pub trait Journal: Send {
    fn id(&self) -> Uuid;

    /// This pump's; every start has a higher one.
    fn epoch(&self) -> u32;

    /// Where the next record will stand.
    fn next(&self) -> Position;

    /// Makes records durable, all or none, and readable: [`Journal::write`], then
    /// [`Journal::show`].
    fn append(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error> {
        let hashes = self.write(records)?;
        self.show(records)?;
        Ok(hashes)
    }

    /// Makes records durable, all or none. `position`, `previous` and `previous_hash` are stamped
    /// here; a position that was already set must be the right one. Returns their hashes once
    /// they are durable.
    ///
    /// After [`Error::Full`], [`Error::Away`] and [`Error::Denied`] whoever calls must try again with the same
    /// records, or call nothing any more; after [`Error::Misplaced`] nothing was appended. After
    /// any other error the journal has stopped for good: whether the records are durable is not
    /// known, and only opening it again can tell.
    fn write(&mut self, records: &mut [Record]) -> Result<Vec<Digest>, Error>;

    /// Makes readable what was written last, should it not be yet. Comes after each
    /// [`Journal::write`], with the same records, and fails as that one does.
    fn show(&mut self, records: &[Record]) -> Result<(), Error> {
        let _ = records;
        Ok(())
    }

    /// Verifies that no other pump has taken the journal over. Where a lock holds for as long as the
    /// process lives, frozen or not, there is nothing to verify.
    fn verify_lead(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Signs and records how far the journal goes, when that is due. A pump with nothing to
    /// append calls this now and then: here it also hears of a journal that was lost meanwhile.
    fn checkpoint_if_due(&mut self, now: Time) -> Result<bool, Error>;

    /// When that was last done, or due to be.
    fn checked_at(&self) -> Option<Time>;

    /// Progress of copying checkpoints; None where the config names no place for copies.
    fn copy_metrics(&self) -> Option<CopyMetrics> {
        None
    }

    /// How often that is.
    fn rest(&self) -> Duration {
        limits::CHECKPOINT_INTERVAL
    }

    /// Keeps bytes the organism ran on (config, prompt file, schema) under their digest.
    fn put_blob(&mut self, bytes: &[u8]) -> Result<Digest, Error>;

    /// A last checkpoint, and everything let go of.
    fn close(self: Box<Self>, now: Time) -> Result<(), Error>;
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was changed; the other pump has to end first.
    #[error("the journal {path} is in use by {holder}")]
    Held { path: String, holder: String },
    /// This pump must stop: its records would stand beside another's.
    #[error("another pump took over this journal (epoch {theirs}, ours was {ours})")]
    Fenced { ours: u32, theirs: u32 },
    /// Nothing was appended; the same records may be tried again.
    #[error("the disk is full: {detail}")]
    Full { detail: String },
    /// Whether the records are durable is not known yet; the same ones are to be tried again.
    #[error("the journal's server is away: {detail}")]
    Away { detail: String },
    /// As [`Error::Away`], and nobody comes back by themselves: a right is missing.
    #[error(transparent)]
    Denied(nats::PermissionError),
    /// What is there belongs to another kind of journal, or to another journal.
    #[error("{path} {detail}")]
    Strange { path: String, detail: String },
    /// The server or the stream would lose records.
    #[error("no journal can be kept on {server}: {detail}")]
    Unfit { server: String, detail: String },
    /// Threads would be looked for where they are not.
    #[error(
        "the journal {journal} has {theirs} partitions and the config says {ours}; their number is \
         fixed for the life of a journal: write `partitions = {theirs}` under [journal]"
    )]
    Partitions { journal: String, ours: u32, theirs: u32 },
    /// The stream is not of this organism, as far as this host knows.
    #[error(
        "the stream {stream} holds the journal {theirs} of another project, and {state} knows {}; \
         nothing was changed. Where it is this organism's, begun on another host or before `state` \
         was lost, `organism adopt` accepts it; otherwise name another `stream` under [journal]",
        known.map_or_else(|| "none of its own there".to_owned(), |known| known.to_string())
    )]
    OtherJournal { stream: String, theirs: Uuid, known: Option<Uuid>, state: String },
    #[error(transparent)]
    Nats(#[from] nats::Error),
    #[error("the journal {path} has format {found}; this program writes format {ours}")]
    Format { path: String, found: String, ours: u32 },
    /// Where the journal should be lies a file that is none.
    #[error("{path} is no journal: {detail}. Restore a backup, or move the file away")]
    Unreadable { path: String, detail: String },
    /// What stands in the journal is not what was written there, or is gone.
    #[error("the journal is broken at position {position}: {detail}")]
    Broken { position: u64, detail: String },
    /// The same, with the name of the journal.
    #[error("{}", damage(journal, *position, detail))]
    Damaged { journal: String, position: u64, detail: String },
    /// Its servers lost acknowledged records, or somebody put an older copy in their place.
    #[error(
        "the stream {stream} {end}, but more was acknowledged: {sources}. No pump leads it \
         (docs/errors/stream-shorter.md). Restore the store of its servers, or run `organism \
         repair` where the projection goes farthest: it publishes the rest again"
    )]
    StreamShorter { stream: String, end: String, sources: String },
    /// Two pumps led different ends of it.
    #[error(
        "the stream {stream} is forked at record {position}: it holds another record there than \
         what was acknowledged, as {sources}. No pump leads it (docs/errors/stream-forked.md). \
         `organism repair` shows both sides and takes the choice"
    )]
    StreamForked { stream: String, position: Position, sources: String },
    /// It was kept before there were MACs.
    #[error(
        "the journal {path} has {records} records and no MAC, as before this version: nobody can \
         tell whether its end was written by an organism. `organism adopt` accepts it as it stands"
    )]
    WithoutMac { path: String, records: Position },
    /// Another host's key made its MACs.
    #[error(
        "the journal {path} ends with a MAC of the key {theirs}, and this host has the key {ours}: \
         put that key back into the state directory, or accept what stands there under this one \
         with `organism repair {}`",
        flags(*lost)
    )]
    OtherKey { path: String, theirs: KeyId, ours: KeyId, lost: bool },
    /// Records at its end that no pump of this host wrote, or that were changed.
    #[error(
        "the records from {first} to {last} of the journal {path} are covered by no MAC: no pump \
         of this host wrote them, or they were changed. {}",
        way_on(*first, *lost)
    )]
    Uncovered { path: String, first: Position, last: Position, lost: bool },
    #[error("the journal stopped after an earlier error ({cause}); start again to recover")]
    Stopped { cause: String },
    /// The pump counted wrongly: a bug, and nothing was appended.
    #[error("a record meant for position {given} came at position {expected}")]
    Misplaced { given: Position, expected: Position },
    #[error("there is no journal at {path}")]
    Missing { path: String },
    #[error("{context}: {source}")]
    Sqlite { context: String, source: rusqlite::Error },
    #[error("{context}: {source}")]
    Io { context: String, source: std::io::Error },
}

impl Error {
    /// The same may be tried again: nothing else is wrong with the journal.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Away { .. } | Self::Denied(_))
    }

    /// The same with the name of the journal: its directory, or its stream.
    pub fn in_journal(self, journal: impl std::fmt::Display) -> Self {
        match self {
            Self::Broken { position, detail } => {
                Self::Damaged { journal: journal.to_string(), position, detail }
            }
            other => other,
        }
    }

    fn broken(position: u64, detail: impl Into<String>) -> Self {
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

/// Which journal is broken, where, how, and what to do, unless the detail says that.
fn damage(journal: &str, position: u64, detail: &str) -> String {
    let at = match position {
        0 => String::new(),
        position => format!(" at position {position}"),
    };

    let way_on = match detail.contains("`organism ") {
        true => "",
        false => {
            "; `organism verify` shows how far it holds. Keep a copy of its directory, and restore \
             a backup (docs/OPERATIONS.md, Restore)"
        }
    };

    format!("the journal {journal} is broken{at}: {detail}{way_on}")
}

/// What accepts another key; where records are `lost` as well, both at once.
fn flags(lost: bool) -> &'static str {
    match lost {
        true => "--accept-loss --accept-key",
        false => "--accept-key",
    }
}

/// What an operator can do about records from `first` on that no MAC covers: behind none that is
/// covered there is nothing to go on from.
fn way_on(first: Position, lost: bool) -> String {
    match first {
        Position(..=1) => format!(
            "Restore a backup, or accept what stands there under this host's key with `organism \
             repair {}`",
            flags(lost)
        ),
        Position(2..) => "`organism repair --accept-loss` takes them out and goes on behind the \
                          last record that is covered"
            .to_owned(),
    }
}
