//! Consistent copies of a journal, made while a pump writes.

use std::path::{Path, PathBuf};

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

/// A copy of a journal that is complete but has no name yet, so that no command takes it for a
/// journal. Dropping this value deletes the copy.
#[derive(Debug)]
#[must_use]
pub struct UnnamedCopy {
    copied: BackedUp,
    /// Directory of the copy.
    data: PathBuf,
}

/// Path of a copy in `data` that has no name yet.
fn unfinished_in(data: &Path) -> PathBuf {
    data.join("journal.new")
}

/// Copies the journal in `data` with its blobs into `to_data`, while a pump may continue to write.
/// The copy ends with a whole commit, and gets its name from [`UnnamedCopy::finish`]. Also copies
/// checkpoints from `state` to `to_state`, but only those that the copied journal contains. Never
/// copies the signing key.
///
/// Overwrites nothing: an existing journal in `to_data` is an error. But replaces the unnamed copy
/// of an attempt that was killed.
pub fn back_up(
    data: &Path,
    state: &Path,
    to_data: &Path,
    to_state: &Path,
) -> Result<UnnamedCopy, Error> {
    let file = to_data.join(DATABASE);
    make(to_data)?;
    make(to_state)?;
    if file.exists() {
        let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        return Err(Error::io(file.display().to_string())(exists));
    }

    let unfinished = unfinished_in(to_data);
    let failed = || Error::io(unfinished.display().to_string());
    durable_file::remove(&unfinished).map_err(failed())?;
    durable_file::create_private(&unfinished).map_err(failed())?;
    let copied = JournalReader::open(data)?
        .copy_to(&unfinished)
        .and_then(|()| std::fs::File::open(&unfinished).map_err(failed()))
        .and_then(|copy| copy.sync_all().map_err(failed()))
        .and_then(|()| copy_checkpoints(&JournalReader::open_copy(&unfinished)?, state, to_state));
    match copied {
        Ok(copied) => Ok(UnnamedCopy { copied, data: to_data.to_owned() }),
        Err(error) => {
            // A part of a copy is useless, and takes room that the next attempt needs.
            durable_file::remove(&unfinished).ok();
            Err(error)
        }
    }
}

/// Copies the checkpoints that are in the journal `copy` from `state` to `to_state`, except those
/// that an earlier attempt has copied. Returns the description of the copy.
fn copy_checkpoints(
    copy: &JournalReader,
    state: &Path,
    to_state: &Path,
) -> Result<BackedUp, Error> {
    let journal = copy.about()?.journal;
    let last = copy.last()?;
    let noted = CheckpointFile::new(state, journal);
    let (mut lines, damage) = noted.read_intact()?;
    if let Some(damage) = damage {
        let noted = noted.path().display();
        tracing::warn!("the backup lacks some of the checkpoints in {noted}: {damage}");
    }
    // A newer checkpoint may cover records of the copy without being in it.
    let inside = copy.checkpoints()?;
    lines.retain(|line| inside.binary_search_by_key(&line.position, |it| it.position).is_ok());
    let copied = BackedUp { journal, last, blobs: copy.blobs()?.len(), checkpoints: lines.len() };

    let outside = CheckpointFile::new(to_state, journal);
    if let Some(earlier) = outside.last_intact()?.checkpoints.last() {
        lines.retain(|line| line.position > earlier.position);
    }
    if !lines.is_empty() {
        outside.append(&lines).map_err(Error::io(outside.path().display().to_string()))?;
    }

    Ok(copied)
}

impl UnnamedCopy {
    /// Gives the copy its name, under which commands find it.
    pub fn finish(self) -> Result<BackedUp, Error> {
        // Ordering rule: the log is renamed before the copy gets its name. Otherwise SQLite would
        // take the pages of a lost journal in this log for pages of the copy.
        if let Some(log) = set_logs_aside(&self.data)? {
            let log = log.display();
            tracing::warn!(
                "set aside the write-ahead log of a journal whose file is gone, as {log}"
            );
        }

        let file = self.data.join(DATABASE);
        let renamed = std::fs::rename(unfinished_in(&self.data), &file)
            .and_then(|()| durable_file::sync_parent(&file));
        renamed.map_err(Error::io(file.display().to_string()))?;
        Ok(self.copied.clone())
    }
}

impl Drop for UnnamedCopy {
    fn drop(&mut self) {
        // A finished copy has another name. An unfinished one takes room that the next attempt
        // needs, and that attempt also deletes it.
        durable_file::remove(&unfinished_in(&self.data)).ok();
    }
}
