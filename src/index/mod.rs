//! The index of a journal: a SQLite database that answers queries about the past. The index is
//! beside the files of the journal. If the journal is a stream on NATS, the index is beside the
//! stream's local copy.
//!
//! While an organism runs, one of its OS threads keeps the index up to date. Otherwise, the next
//! query first brings the index up to date. All data in the index is derived from the journal, so
//! the index may be deleted at any time. It is made again if it is missing or damaged, or if it has
//! another format or belongs to another journal.
//!
//! **Invariant:** nothing here writes to a journal, and the pump does not depend on an index.

mod actions;
mod branches;
mod call_faults;
mod call_work;
mod called_peers;
mod calls;
mod catch_up;
mod costly_trees;
mod currencies;
mod duration_histogram;
mod events;
mod file;
mod first_build;
mod fold;
mod follow;
mod hours;
mod listener_load;
mod lookup;
mod messages;
mod names;
mod open_alerts;
mod open_work;
mod overview;
mod pauses;
mod reader;
mod reader_pool;
mod record_words;
mod retryable;
mod search;
mod shares;
mod sql;
mod thread_pages;
mod threads;
mod timelines;
mod trees;
mod turns;
mod views;
mod waiting;
mod word_merges;
mod word_thread;
mod words;

pub use branches::ThreadBranch;
pub use call_work::{CallWork, TurnWork, WorkKind, WorkSpan};
pub use called_peers::{CalledPeer, CountedCalls};
pub use duration_histogram::DurationHistogram;
pub use file::{INDEX_DATABASE, INDEX_LOCK, remove_index};
pub use follow::{FollowResult, follow};
pub use hours::{
    AttemptTimes, EventNames, EventTotals, HOUR_MICROS, NO_NAME, TurnUsage, hour_of, hour_span,
    read_hours,
};
pub use listener_load::{ListedRefusal, ListenerLoad};
pub use lookup::{
    IndexedAttempt, IndexedCall, IndexedError, IndexedHold, IndexedMessage, IndexedTurn,
    MessageSelector,
};
pub use open_work::{OpenWorkCounts, WorkFilter};
pub use overview::{ErrorCount, ListedAction, ListedError};
pub use pauses::{IndexedPause, PausedPart};
pub use reader::{IndexReader, read, read_as_is, read_if_current};
pub use reader_pool::IndexReaderPool;
pub use retryable::{RetryCandidate, RetryCursor, RetryFilter};
pub use search::{HitCount, SearchFilter, SearchHit};
pub use sql::{SqlValue, run_sql};
pub use thread_pages::ThreadPageRows;
pub use timelines::{TimelineCounts, TimelineSummary};
pub use trees::{ListedTree, TreeFilter};
pub use views::SCHEMA_VERSION;
pub use waiting::{HoldCount, WaitingMessage, WaitingTree};
pub use words::{MissingSearchWord, check_words};

use std::path::{Path, PathBuf};

use crate::ids::Position;
use crate::journal;
use crate::journal::sqlite;

/// Version of the tables. An index with a different version is rebuilt.
const FORMAT_VERSION: u32 = 21;

const SCHEMA: &str = include_str!("schema.sql");
/// SQL statement that creates the full-text table.
const WORDS_SCHEMA: &str = include_str!("words.sql");

/// Why an index cannot answer a query.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error("the index {}: {}", path.display(), sqlite_text(source))]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("the index {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A payload was redacted after the index had read it.
    #[error("the payloads of record {position} were redacted since the index was made")]
    Redacted { position: Position },
    /// Another process is making the index. `progress` contains the last record that the other
    /// process has read, and the last record that it must read. `progress` is `None` if the other
    /// process does not report it.
    #[error(
        "another process makes the index {} just now{}; try again",
        path.display(), read_so_far(*progress)
    )]
    Building { path: PathBuf, progress: Option<[Position; 2]> },
    /// The process that writes the index is of another version of this program.
    #[error(
        "the index {} has the version {found}, and this program needs {}: the process that writes \
         it just now, such as `organism run`, is of {}",
        path.display(), file::own_version(), version_advice(found)
    )]
    OtherVersion { path: PathBuf, found: String },
    #[error(
        "no permission to write {}, the lock of the index; if another user has created this file, \
         delete it together with the index (docs/AUDIT.md, The index)",
        path.display()
    )]
    LockDenied { path: PathBuf },
    /// A person entered one of these: a wrong or forbidden SQL statement, a wrong search text, or a
    /// wrong number.
    #[error("{detail}")]
    Query { detail: String },
    /// The SQL statement that a person entered took too long.
    #[error("the query was stopped after {seconds} s; narrow it, or pass a longer --timeout")]
    TimedOut { seconds: u64 },
}

/// States whether the version `found` is higher than that of this program, and what to do.
fn version_advice(found: &str) -> &'static str {
    if file::is_higher_version(found) {
        "a later version; run the command with the version of that process"
    } else {
        "an earlier version; restart it with the version of this program"
    }
}

/// Describes an error of SQLite. For some files on a full disk, SQLite itself reports only that it
/// could not write.
fn sqlite_text(error: &rusqlite::Error) -> String {
    if sqlite::is_disk_full(error) { "the disk is full".to_owned() } else { error.to_string() }
}

fn read_so_far(progress: Option<[Position; 2]>) -> String {
    progress.map_or_else(String::new, |[reached, last]| {
        format!(", and has read {reached} of {last} records")
    })
}

impl Error {
    /// Returns the error for an index that another process makes in the directory `data`.
    pub fn building(data: &Path) -> Self {
        let path = data.join(INDEX_DATABASE);
        let progress = file::noted_progress(&path);
        Self::Building { path, progress }
    }

    /// Returns the error for an index in the directory `data` whose lock this process may not take.
    pub(super) fn lock_denied(data: &Path) -> Self {
        Self::LockDenied { path: data.join(INDEX_LOCK) }
    }

    /// Whether this process could not open a file of the index, or may not write it or the
    /// directory.
    fn is_denied(&self) -> bool {
        use rusqlite::ErrorCode;
        match self {
            Self::Sqlite { source, .. } => matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied)
            ),
            Self::Io { source, .. } => file::may_not_write(source),
            _ => false,
        }
    }

    /// Whether a disk is full: that of the index, or that of SQLite's temporary files.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Sqlite { source, .. } if sqlite::is_disk_full(source))
    }

    /// Whether this error shows that the index must be rebuilt: the index is damaged or has another
    /// format, or a payload was redacted after the index had read it.
    pub(super) fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode;
        match self {
            Self::Redacted { .. } => true,
            Self::Sqlite { source, .. } => match source.sqlite_error_code() {
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => true,
                // The tables have another format, or rows contradict each other.
                Some(ErrorCode::Unknown | ErrorCode::ConstraintViolation) => true,
                Some(_) => false,
                // The error is not from SQLite: a value had the wrong type.
                None => true,
            },
            _ => false,
        }
    }
}
