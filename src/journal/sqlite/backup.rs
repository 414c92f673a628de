//! Consistent copies of a journal, made while a pump writes.

use std::path::Path;

use crate::durable_file;
use crate::ids::Position;
use crate::journal::Error;
use crate::journal::checkpoint::CheckpointFile;

use super::directory::{DATABASE, make};
use super::reader::JournalReader;
use super::repair::set_logs_aside;

/// Description of a copy of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackedUp {
    pub journal: uuid::Uuid,
    /// Position of the last record in the copy.
    pub last: Position,
    pub blobs: usize,
    /// Number of checkpoints that were copied from the file in the state directory. Only
    /// checkpoints up to `last` are copied.
    pub checkpoints: usize,
}

/// Copies the journal in `data` with its blobs into `to_data`, while a pump may continue to write.
/// The copy ends with a whole commit. Also copies checkpoints from `state` to `to_state`, but only
/// those that the copied journal contains. Never copies the signing key.
///
/// Nothing is overwritten: an existing file is an error.
pub fn back_up(
    data: &Path,
    state: &Path,
    to_data: &Path,
    to_state: &Path,
) -> Result<BackedUp, Error> {
    let file = to_data.join(DATABASE);
    make(to_data)?;
    make(to_state)?;
    if file.exists() {
        let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        return Err(Error::io(file.display().to_string())(exists));
    }

    let unfinished = to_data.join("journal.new");
    durable_file::remove(&unfinished).map_err(Error::io(unfinished.display().to_string()))?;
    let created = durable_file::create_private(&unfinished);
    created.map_err(Error::io(unfinished.display().to_string()))?;
    if let Err(error) = JournalReader::open(data)?.copy_to(&unfinished) {
        // A part of a copy is useless, and takes room that the next attempt needs.
        durable_file::remove(&unfinished).ok();
        return Err(error);
    }
    let synced = std::fs::File::open(&unfinished).and_then(|copy| copy.sync_all());
    synced.map_err(Error::io(unfinished.display().to_string()))?;
    // Ordering rule: the log is renamed before the copy gets its name. Otherwise SQLite would take
    // the pages of a lost journal in this log for pages of the copy.
    if let Some(log) = set_logs_aside(to_data)? {
        let log = log.display();
        tracing::warn!("set aside the write-ahead log of a journal whose file is gone, as {log}");
    }
    let renamed =
        std::fs::rename(&unfinished, &file).and_then(|()| durable_file::sync_parent(&file));
    renamed.map_err(Error::io(file.display().to_string()))?;

    let copy = JournalReader::open(to_data)?;
    let journal = copy.about()?.journal;
    let last = copy.last()?;
    let mut lines = CheckpointFile::new(state, journal).read()?;
    // A newer checkpoint may cover records of the copy without being in it.
    let inside = copy.checkpoints()?;
    lines.retain(|line| inside.binary_search_by_key(&line.position, |it| it.position).is_ok());
    let outside = CheckpointFile::new(to_state, journal);
    if !lines.is_empty() {
        outside.append(&lines).map_err(Error::io(outside.path().display().to_string()))?;
    }

    Ok(BackedUp { journal, last, blobs: copy.blobs()?.len(), checkpoints: lines.len() })
}
