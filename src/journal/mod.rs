//! The journal: one append-only sequence of records, durable before anything else happens.
//!
//! **Invariant:** nothing here decides; a record goes in and comes out as it was.

pub mod checkpoint;
mod heads;
mod merkle;
pub mod sqlite;

use crate::clock::Time;
use crate::ids::{Digest, Position};
use crate::thread::Record;

pub use checkpoint::Checkpoint;
pub use heads::{Head, Heads};

/// The layout of journals this program writes and reads.
pub const FORMAT: u32 = 2;

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
    #[error("the journal {path} has format {found}; this program writes format {ours}")]
    Format { path: String, found: String, ours: u32 },
    /// What stands in the journal is not what was written there, or is gone.
    #[error("the journal is broken at position {position}: {detail}")]
    Broken { position: u64, detail: String },
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

/// A record made durable, with the hash it got.
#[derive(Debug, Clone)]
pub struct Sealed {
    pub record: Record,
    pub hash: Digest,
}

/// Where a record stands: what its row holds beside its text.
#[derive(Debug, Clone, Copy)]
pub struct Place<'r> {
    pub position: Position,
    pub tree: &'r str,
    pub previous: Position,
    pub previous_hash: Digest,
    pub time: Time,
}

impl<'r> From<&'r Record> for Place<'r> {
    fn from(record: &'r Record) -> Self {
        Self {
            position: record.position,
            tree: record.tree.as_str(),
            previous: record.previous,
            previous_hash: record.previous_hash,
            time: record.time,
        }
    }
}

/// The hash of a record: what came before it in its tree, its own place, its text. A tree's name
/// has no brace, and the text begins with one.
pub fn chained(place: &Place<'_>, text: &[u8]) -> Digest {
    Digest::of_parts(&[
        &place.previous_hash.0,
        &place.position.0.to_be_bytes(),
        &place.previous.0.to_be_bytes(),
        &place.time.0.to_be_bytes(),
        place.tree.as_bytes(),
        text,
    ])
}
