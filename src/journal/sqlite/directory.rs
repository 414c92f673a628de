//! The directory of a journal: its lock, and the note of which journal was last written there.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use uuid::Uuid;

use crate::clock::Time;
use crate::ids::{Digest, Position};
use crate::journal::{Error, durable_file};
use crate::limits;
use crate::mutant::mutant;

pub const DATABASE: &str = "journal.db";
const HOLDER: &str = "holder";
const WATERMARK: &str = "watermark";

/// The right to write: a lock on the directory itself. No lock file can be deleted or go stale, and
/// the operating system releases it with the process.
#[derive(Debug)]
pub struct DirectoryLock {
    _directory: File,
}

impl DirectoryLock {
    /// Takes the lock within [`limits::LOCK_TIMEOUT`], or names its holder.
    pub fn take(data: &Path) -> Result<Self, Error> {
        let context = || format!("the data directory {}", data.display());
        let directory = File::open(data).map_err(Error::io(context()))?;
        let until = Instant::now() + limits::LOCK_TIMEOUT;

        loop {
            match directory.try_lock() {
                Ok(()) => break,
                Err(_) if mutant("no-lock") => break,
                // A process that is just being spawned shares every lock until it executes its own
                // program, so a lock that was released may still look held.
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(limits::LOCK_RETRY);
                }
                Err(TryLockError::WouldBlock) => return Err(held(data)),
                Err(TryLockError::Error(error)) => return Err(Error::io(context())(error)),
            }
        }

        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let (pid, now) = (std::process::id(), Time::now());
        let holder = format!("process {pid} on {}, since {now}\n", host.trim());
        std::fs::write(data.join(HOLDER), holder).map_err(Error::io(context()))?;
        Ok(Self { _directory: directory })
    }
}

/// Creates a directory that only its owner may access.
pub fn make(directory: &Path) -> Result<(), Error> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(Error::io(directory.display().to_string()))
}

/// Whether a pump could write the journal in `data` now; [`Error::Held`] if another one does. A
/// missing journal is not held.
pub fn is_free(data: &Path) -> Result<(), Error> {
    let Ok(directory) = File::open(data) else { return Ok(()) };
    match directory.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Err(held(data)),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

fn held(data: &Path) -> Error {
    let holder = std::fs::read_to_string(data.join(HOLDER)).unwrap_or_default();
    let holder = if holder.is_empty() { "another process" } else { holder.trim() };
    Error::Held { path: data.display().to_string(), holder: holder.to_owned() }
}

/// The holder of the lock on a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockHolder {
    Nobody,
    Process(u32),
    /// Held, but the operating system does not show by which process.
    Hidden,
}

/// The holder of the lock in `data`, from the operating system or else from the holder's own note.
pub fn lock_holder(data: &Path) -> LockHolder {
    if is_free(data).is_ok() {
        return LockHolder::Nobody;
    }

    let shown = || {
        let directory = std::fs::metadata(data).ok()?;
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| holder_in(line, directory.dev(), directory.ino()))
    };

    let written = || {
        let text = std::fs::read_to_string(data.join(HOLDER)).ok()?;
        text.strip_prefix("process ")?.split(' ').next()?.parse().ok()
    };

    shown().or_else(written).map_or(LockHolder::Hidden, LockHolder::Process)
}

/// The process in a line of `/proc/locks`, such as `4: FLOCK  ADVISORY  WRITE 1201 08:01:524301 0
/// EOF`, if the lock is on this file.
fn holder_in(line: &str, device: u64, inode: u64) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    if (fields.next()?, fields.nth(1)?) != ("FLOCK", "WRITE") {
        return None;
    }

    let pid = fields.next()?.parse().ok().filter(|pid| *pid > 0)?;
    let mut file = fields.next()?.split(':');
    let mut number = |radix| u64::from_str_radix(file.next()?, radix).ok();
    let (major, minor, found) = (number(16)?, number(16)?, number(10)?);
    ((major, minor) == numbers_of(device) && found == inode).then_some(pid)
}

/// Major and minor number of a device, as Linux encodes them.
fn numbers_of(device: u64) -> (u64, u64) {
    let major = (device >> 8) & 0xfff | (device >> 32) & !0xfff;
    let minor = device & 0xff | (device >> 12) & !0xff & 0xffff_ffff;
    (major, minor)
}

/// The last acknowledged record, noted outside the journal after its commit was durable. With it,
/// an older copy of the journal put in its place shows as lost records. It is not synced itself:
/// after a power cut it may lag behind the journal, but is never ahead of it.
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

    /// Reads the watermark; `None` if nothing was acknowledged yet.
    pub fn read(state: &Path, journal: Uuid) -> Result<Option<(Position, Digest)>, Error> {
        Self::read_at(Self::path(state, journal))
    }

    /// Reads the watermark that earlier versions kept beside the journal.
    pub fn read_beside(data: &Path) -> Result<Option<(Position, Digest)>, Error> {
        Self::read_at(data.join(WATERMARK))
    }

    /// Removes the watermark beside the journal, after it was moved to the state directory.
    pub fn remove_beside(data: &Path) -> Result<(), Error> {
        let path = data.join(WATERMARK);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(path.display().to_string())(error))
            }
            _ => Ok(()),
        }
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

/// Encodes position, hash, and the start of a digest over both.
fn mark(position: Position, hash: Digest) -> [u8; MARK_BYTES] {
    let position = position.0.to_be_bytes();
    let check = Digest::of_parts(&[&position, &hash.0]);
    let mut mark = [0; MARK_BYTES];
    let bytes = position.iter().chain(&hash.0).chain(check.0.iter());
    mark.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    mark
}

/// File in the state directory that notes which journal is in a data directory, so that a lost one
/// is noticed.
fn link(data: &Path, state: &Path) -> PathBuf {
    let data = canonical(data).unwrap_or_else(|| data.to_owned());
    let digest = Digest::of(data.as_os_str().as_encoded_bytes()).to_string();
    state.join(format!("{}.journal", digest.get(..16).unwrap_or(&digest)))
}

/// Canonical path, also for a directory that does not exist any more.
fn canonical(data: &Path) -> Option<PathBuf> {
    let beneath_parent = || Some(data.parent()?.canonicalize().ok()?.join(data.file_name()?));
    data.canonicalize().ok().or_else(beneath_parent)
}

pub fn note_journal(data: &Path, state: &Path, journal: Uuid) -> Result<(), Error> {
    let path = link(data, state);
    std::fs::write(&path, journal.to_string()).map_err(Error::io(path.display().to_string()))
}

/// Id of the journal that was in `data` when it was last written.
pub fn noted_journal(data: &Path, state: &Path) -> Option<Uuid> {
    std::fs::read_to_string(link(data, state)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_read_from_its_line_alone() {
        // Device numbers 8 and 17.
        let device = 0x811;
        let line = "4: FLOCK  ADVISORY  WRITE 1201 08:11:524301 0 EOF";
        assert_eq!(holder_in(line, device, 524_301), Some(1201));
        assert_eq!(holder_in(line, device, 524_302), None);
        assert_eq!(holder_in(line, 0x801, 524_301), None);
        assert_eq!(holder_in(&line.replace("WRITE", "READ"), device, 524_301), None);
        assert_eq!(holder_in(&line.replace("FLOCK", "POSIX"), device, 524_301), None);
        assert_eq!(holder_in(&line.replace("4: FLOCK", "4: -> FLOCK"), device, 524_301), None);
        assert_eq!(holder_in("", device, 524_301), None);
    }

    #[test]
    fn a_lock_of_this_process_is_held_by_it() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(lock_holder(directory.path()), LockHolder::Nobody);
        let lock = DirectoryLock::take(directory.path()).expect("a lock");
        assert_eq!(lock_holder(directory.path()), LockHolder::Process(std::process::id()));
        drop(lock);
        assert_eq!(lock_holder(directory.path()), LockHolder::Nobody);
    }
}
