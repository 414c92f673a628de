//! The contents of a journal's path and file that an opening finds.

use std::path::PathBuf;

use uuid::Uuid;

use crate::ids::Position;
use crate::journal::Error;
use crate::thread::AcceptedLoss;

use super::directory::DATABASE;
use super::repair::TakenOut;

/// Content of a journal's path before the journal is opened.
pub(super) enum JournalPlace {
    /// No journal. `set_aside` is the new path of a file that was renamed; `None` if nothing was
    /// renamed.
    Free { set_aside: Option<PathBuf> },
    /// A journal's file, with the values of [`super::open::LockedJournalDir::found`].
    Taken { journal: Uuid, mark: Option<String> },
}

/// Returns the error for a journal whose metadata cannot be used because of the damage `detail`. If
/// its last position is not legible either, no repair can keep a part of the journal, so the error
/// also names the way on without a backup.
pub(super) fn without_metadata(detail: &str, has_legible_end: bool) -> Error {
    let mut text = format!(
        "{detail}. Keep a copy of its directory, and restore a backup (docs/OPERATIONS.md, Restore)"
    );
    if !has_legible_end {
        text += &format!(
            ". Without a backup, move `{DATABASE}` and the files that begin with its name away, and \
             begin anew with `organism repair --accept-loss`"
        );
    }
    Error::broken(0, text)
}

/// State of a journal when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundJournal {
    /// Public key of the pump that last wrote the journal.
    pub key: String,
    /// Whether all records of the journal lack a MAC.
    pub without_mac: bool,
    /// The last record that a MAC of this host's key covers.
    pub covered: Position,
    /// Position of the last record that the journal keeps. The records in `taken_out` follow this
    /// record.
    pub last: Position,
    /// Loss of records or checkpoints that an operator accepts when the journal is opened. The
    /// watermark and the checkpoints outside the file reveal this loss.
    pub loss: AcceptedLoss,
    /// Records that follow record `last` in the journal's file; `None` if there are none.
    /// [`TakenOut::file`] is a copy of these records. An operator accepts their loss, and the
    /// commit that records this action removes them from the journal's file.
    pub taken_out: Option<TakenOut>,
    /// Number of checkpoints that the journal's file lacks and that the state directory or the
    /// copied checkpoints contain. An operator accepts their loss from the file, and the commit
    /// that records this action writes them back.
    pub put_back: usize,
    /// New path of a file that was moved aside: a file at the journal's path that was no journal,
    /// or a write-ahead log without its journal. `None` if no file was moved.
    pub set_aside: Option<PathBuf>,
}
