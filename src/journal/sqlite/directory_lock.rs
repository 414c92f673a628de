//! The lock on the directory of a journal: at most one process writes in the directory. Any other
//! process is refused with the name of the holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use crate::clock::Time;
use crate::file_lock::lock_within;
use crate::journal::Error;
use crate::limits;
use crate::mutant::mutant;

const HOLDER: &str = "holder";

/// The lock on a journal's directory. Its holder alone may write in the directory. The directory
/// itself is locked, so there is no lock file that could be deleted or go stale. The operating
/// system releases the lock when the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _locked: File,
}

impl DirectoryLock {
    /// Takes the lock. Returns an error that names the holder if the lock is not free within
    /// [`limits::LOCK_TIMEOUT`].
    pub fn take(data: &Path) -> Result<Self, Error> {
        let context = || format!("the data directory {}", data.display());
        let directory = File::open(data).map_err(Error::io(context()))?;
        let is_mutant = mutant("no-lock");
        let locked = lock_within(&directory, limits::LOCK_TIMEOUT, &mut || is_mutant);
        let is_locked = locked.map_err(Error::io(context()))?;
        if !is_locked && !is_mutant {
            return Err(held(data));
        }

        std::fs::write(data.join(HOLDER), this_holder()).map_err(Error::io(context()))?;
        Ok(Self { _locked: directory })
    }

    /// Takes the lock on a state directory, as [`DirectoryLock::take`] does on a data directory.
    /// Locks the file that contains the holder's name, instead of the directory, because `state`
    /// may be on a network file system, which locks only files that are open for writing.
    pub fn take_state(state: &Path) -> Result<Self, Error> {
        let path = state.join(HOLDER);
        let context = || path.display().to_string();
        let note = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let note = note.map_err(Error::io(context()))?;
        let locked = lock_within(&note, limits::LOCK_TIMEOUT, &mut || false);
        if !locked.map_err(Error::io(context()))? {
            let holder = noted_holder(state);
            return Err(Error::StateInUse { state: state.display().to_string(), holder });
        }

        // Written through the locked file, so that no other handle of it is closed.
        let written = note.set_len(0);
        let written = written.and_then(|()| note.write_all_at(this_holder().as_bytes(), 0));
        written.map_err(Error::io(context()))?;
        Ok(Self { _locked: note })
    }
}

/// Returns the description of this process for the note beside a lock.
fn this_holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let pid = std::process::id();
    let now = Time::now();
    format!("process {pid} on {}, since {now}\n", host.trim())
}

/// Verifies that no pump writes the journal in `data` now. Returns [`Error::InUse`] if a pump
/// writes it. A missing journal is not in use.
pub fn require_free(data: &Path) -> Result<(), Error> {
    let Ok(directory) = File::open(data) else { return Ok(()) };
    match directory.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Err(held(data)),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

fn held(data: &Path) -> Error {
    Error::InUse { path: data.display().to_string(), holder: noted_holder(data) }
}

/// Returns the holder that the note in a locked directory names.
fn noted_holder(directory: &Path) -> String {
    let holder = std::fs::read_to_string(directory.join(HOLDER)).unwrap_or_default();
    let holder = if holder.is_empty() { "another process" } else { holder.trim() };
    holder.to_owned()
}

/// The holder of the lock on a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockHolder {
    Nobody,
    Process(u32),
    /// The lock is held. The operating system does not show which process holds it.
    Hidden,
}

/// Returns the holder of the lock on `data`, as the operating system states it. If the operating
/// system states no holder, returns the holder that the note in `data` names.
pub fn lock_holder(data: &Path) -> LockHolder {
    if require_free(data).is_ok() {
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

/// `line` is a line of `/proc/locks`, such as `4: FLOCK  ADVISORY  WRITE 1201 08:01:524301 0 EOF`.
/// If it describes a write lock on the file with this `device` and `inode`, returns the id of the
/// process that holds the lock. Otherwise, returns `None`.
fn holder_in(line: &str, device: u64, inode: u64) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    if (fields.next()?, fields.nth(1)?) != ("FLOCK", "WRITE") {
        return None;
    }

    let pid = fields.next()?.parse().ok().filter(|pid| *pid > 0)?;
    let mut file = fields.next()?.split(':');
    let mut number = |radix| u64::from_str_radix(file.next()?, radix).ok();
    let major = number(16)?;
    let minor = number(16)?;
    let found = number(10)?;
    ((major, minor) == numbers_of(device) && found == inode).then_some(pid)
}

/// Returns the major and minor number of a device, as Linux encodes them.
fn numbers_of(device: u64) -> (u64, u64) {
    let major = (device >> 8) & 0xfff | (device >> 32) & !0xfff;
    let minor = device & 0xff | (device >> 12) & !0xff & 0xffff_ffff;
    (major, minor)
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

        // A process that another test spawns just now shares the lock for a moment, so it is taken
        // again instead of looked at.
        drop(lock);
        DirectoryLock::take(directory.path()).expect("a lock that was released");
    }
}
