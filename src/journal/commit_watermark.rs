//! The watermark: a file outside the journal that names the journal's last acknowledged record.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::durable_file;
use crate::ids::{Digest, Position};

use super::Error;

const WATERMARK: &str = "watermark";

/// The last acknowledged record of a journal, noted in a file outside the journal. If the journal
/// is replaced by an older copy, this file reveals that records are lost. The file is written after
/// the record's commit is durable, but is not synced. So after a power cut, it may name an earlier
/// record than the last acknowledged one, but never a later one.
#[derive(Debug)]
pub struct CommitWatermark {
    file: File,
    path: PathBuf,
}

const MARK_BYTES: usize = 48;

impl CommitWatermark {
    pub fn open(state: &Path, journal: Uuid) -> Result<Self, Error> {
        let path = Self::path(state, journal);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(Error::io(path.display().to_string()))?;
        // A longer file is damaged, and would stay so, because a mark is written over its start.
        let is_longer = file.metadata().map(|found| found.len() > MARK_BYTES as u64);
        let is_cut = is_longer.and_then(|longer| if longer { file.set_len(0) } else { Ok(()) });
        is_cut.map_err(Error::io(path.display().to_string()))?;
        Ok(Self { file, path })
    }

    pub fn set(&self, position: Position, hash: Digest) -> Result<(), Error> {
        let mark = mark(position, hash);
        self.file.write_all_at(&mark, 0).map_err(Error::io(self.path.display().to_string()))
    }

    fn path(state: &Path, journal: Uuid) -> PathBuf {
        state.join(format!("{journal}.{WATERMARK}"))
    }

    /// Reads the watermark of `journal` from the directory `state`: position and hash of the last
    /// acknowledged record. Returns `None` if no record was acknowledged yet. If the file is
    /// damaged, both values are zero, which names no record (see [`damaged_watermark`]).
    pub fn read(state: &Path, journal: Uuid) -> Result<Option<(Position, Digest)>, Error> {
        Self::read_at(Self::path(state, journal))
    }

    /// Reads the watermark that earlier versions of this program kept beside the journal, in the
    /// directory `data`. Returns `None` if `data` contains no watermark. If the watermark is
    /// damaged, position and hash are zero.
    pub fn read_beside(data: &Path) -> Result<Option<(Position, Digest)>, Error> {
        Self::read_at(data.join(WATERMARK))
    }

    /// Removes the watermark that earlier versions kept beside the journal, in the directory
    /// `data`. The caller must first move this watermark to the state directory.
    pub fn remove_beside(data: &Path) -> Result<(), Error> {
        let path = data.join(WATERMARK);
        durable_file::remove(&path).map_err(Error::io(path.display().to_string()))
    }

    fn read_at(path: PathBuf) -> Result<Option<(Position, Digest)>, Error> {
        let bytes = durable_file::read(&path).map_err(Error::io(path.display().to_string()))?;
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        Ok(bytes.map(|bytes| parse(&bytes).unwrap_or_default()))
    }
}

/// Decodes a watermark. Returns `None` if it is damaged.
fn parse(bytes: &[u8]) -> Option<(Position, Digest)> {
    let (position, rest) = bytes.split_first_chunk()?;
    let (hash, _) = rest.split_first_chunk()?;
    let noted = (Position(u64::from_be_bytes(*position)), Digest(*hash));
    (mark(noted.0, noted.1).as_slice() == bytes).then_some(noted)
}

/// Encodes the watermark: `position`, `hash`, and the first bytes of a digest over these two
/// values.
fn mark(position: Position, hash: Digest) -> [u8; MARK_BYTES] {
    let position = position.0.to_be_bytes();
    let check = Digest::of_parts(&[&position, &hash.0]);
    let mut mark = [0; MARK_BYTES];
    let bytes = position.iter().chain(&hash.0).chain(check.0.iter());
    mark.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    mark
}

/// Returns the position and the hash of the last acknowledged record, from the watermark in
/// `state`. Both are zero if no record was acknowledged, or if the watermark is damaged.
pub fn acknowledged(state: &Path, journal: Uuid) -> Result<(Position, Digest), Error> {
    Ok(CommitWatermark::read(state, journal)?.unwrap_or_default())
}

/// Returns the path of the watermark of `journal` in the directory `state` if this file is damaged,
/// for example after a power cut. Returns `None` if the file is intact or missing. A damaged
/// watermark is no evidence about the journal. The next start on the journal replaces it.
pub fn damaged_watermark(state: &Path, journal: Uuid) -> Result<Option<PathBuf>, Error> {
    let path = CommitWatermark::path(state, journal);
    let bytes = durable_file::read(&path).map_err(Error::io(path.display().to_string()))?;
    let is_damaged = bytes.is_some_and(|bytes| !bytes.is_empty() && parse(&bytes).is_none());
    Ok(is_damaged.then_some(path))
}

/// Logs a warning if the watermark of `journal` in `state` is damaged.
pub(super) fn warn_of_damaged_watermark(state: &Path, journal: Uuid) -> Result<(), Error> {
    if let Some(file) = damaged_watermark(state, journal)? {
        tracing::warn!(
            "the watermark {} is damaged, so a loss of records after the last checkpoint would not \
             be noticed; the start replaces it",
            file.display()
        );
    }
    Ok(())
}
