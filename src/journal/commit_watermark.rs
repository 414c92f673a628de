//! The watermark: a file outside the journal that names the journal's last acknowledged record.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::durable_file;
use crate::ids::{Digest, Position};

use super::Error;

const WATERMARK: &str = "watermark";

/// The last acknowledged record of a journal, noted in a file outside the journal. The file reveals
/// the loss of records if an older copy replaces the journal. It is written after the record's
/// commit is durable, but is not synced. So after a power cut, it may name an earlier record than
/// the last acknowledged one, but never a later one.
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
    /// acknowledged record. Returns `None` if no record was acknowledged yet.
    pub fn read(state: &Path, journal: Uuid) -> Result<Option<(Position, Digest)>, Error> {
        Self::read_at(Self::path(state, journal))
    }

    /// Reads the watermark that earlier versions of this program kept beside the journal, in the
    /// directory `data`. Returns `None` if `data` contains no watermark.
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
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        let parsed =
            parse(&bytes).filter(|(position, hash)| mark(*position, *hash).as_slice() == bytes);
        let damaged = || Error::broken(0, format!("{} is damaged", path.display()));
        parsed.map(Some).ok_or_else(damaged)
    }
}

fn parse(bytes: &[u8]) -> Option<(Position, Digest)> {
    let (position, rest) = bytes.split_first_chunk()?;
    let (hash, _) = rest.split_first_chunk()?;
    Some((Position(u64::from_be_bytes(*position)), Digest(*hash)))
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
/// `state`. Returns zeros if no record was acknowledged.
pub fn acknowledged(state: &Path, journal: Uuid) -> Result<(Position, Digest), Error> {
    Ok(CommitWatermark::read(state, journal)?.unwrap_or_default())
}
