//! The journal: one append-only sequence of records, durable before anything else happens.
//!
//! **Invariant:** nothing here decides; a record goes in and comes out as it was.

pub mod sqlite;

use crate::ids::Digest;
use crate::thread::Record;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the journal {path} is in use by {holder}")]
    Held { path: String, holder: String },
    #[error("another pump took over this journal (epoch {theirs}, ours was {ours})")]
    Fenced { ours: u32, theirs: u32 },
    #[error("the disk is full: {detail}")]
    Full { detail: String },
    #[error("the journal {path} has format {found}; this program writes format {ours}")]
    Format { path: String, found: String, ours: u32 },
    #[error("the journal is broken at position {position}: {detail}")]
    Broken { position: u64, detail: String },
    #[error("{context}")]
    Sqlite { context: String, source: rusqlite::Error },
    #[error("{context}")]
    Io { context: String, source: std::io::Error },
}

/// A record made durable, with the hash it got.
#[derive(Debug, Clone)]
pub struct Sealed {
    pub record: Record,
    pub hash: Digest,
}
