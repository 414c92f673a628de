//! Notes when the copy of a stream was last complete. The process that pumps the partition, or
//! stands by for it, renews this note beside the copy. If the note is old, the process cannot keep
//! the copy up to date, for example because it reaches no server, or because it is frozen. Readers
//! of the copy learn this without an answer of the process.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::SystemTime;

use super::sqlite::require_free;
use crate::limits;
use crate::locks::locked;

/// Empty file beside a copy of a stream. It was last modified when the copy was last complete.
const FOLLOWED: &str = "followed";

/// Notes that the copy in `data` had every record of its stream at the time `at`. Only the holder
/// of the lock on `data` may call this function.
pub fn note_complete(data: &Path, at: SystemTime) {
    let path = data.join(FOLLOWED);
    let note = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    if let Err(error) = note.and_then(|note| note.set_modified(at)) {
        // Without the note, the copy counts as out of date, which is safe.
        tracing::debug!("{} cannot be written: {error}", path.display());
    }
}

/// Notes that a process of this version begins to follow the stream of the copy in `data`, if there
/// is no note yet. The copy then counts as out of date until it is complete.
pub fn note_begun(data: &Path) {
    if completed_at(data).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        note_complete(data, SystemTime::UNIX_EPOCH);
    }
}

/// The copy of a stream to which this process writes as the pump. While no other pump can have
/// written to the stream, the copy is complete.
#[derive(Debug, Default)]
pub struct PumpedCopy {
    /// Directory of the copy, once the copy has every record.
    data: OnceLock<PathBuf>,
    /// Time until which no other pump can have written; `None` if the lease was not renewed yet.
    exclusive_until: Mutex<Option<SystemTime>>,
}

impl PumpedCopy {
    /// Notes that the copy in `data` had every record at the time `at`.
    pub fn complete(&self, data: &Path, at: SystemTime) {
        note_complete(data, at);
        self.data.get_or_init(|| data.to_owned());
    }

    /// Sets the time until which no other pump can have written. Does not use the disk, because
    /// the renewal of a lease must not wait for it.
    pub fn set_exclusive_until(&self, at: SystemTime) {
        *locked(&self.exclusive_until) = Some(at);
    }

    /// Renews the note, if the copy is complete.
    pub fn renew_note(&self) {
        let at = *locked(&self.exclusive_until);
        if let Some((data, at)) = self.data.get().zip(at) {
            note_complete(data, at);
        }
    }
}

/// Whether a process on this host keeps the copy in `data` up to date: the process holds the lock
/// on `data`, and the copy was complete within the last [`limits::COPY_AGE_MAX`]. A holder that
/// has left no note is a process of an earlier version, which counts as up to date.
pub fn is_followed(data: &Path) -> bool {
    let is_fresh = match completed_at(data) {
        Ok(complete) => is_fresh(complete, SystemTime::now()),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    is_fresh && require_free(data).is_err()
}

/// Whether a process has ever noted that the journal in `data` was complete. Only copies of streams
/// have such a note.
pub fn has_followed_note(data: &Path) -> bool {
    completed_at(data).is_ok()
}

fn completed_at(data: &Path) -> io::Result<SystemTime> {
    std::fs::metadata(data.join(FOLLOWED))?.modified()
}

/// Whether a copy that was complete at the time `complete` counts as up to date at the time `now`.
/// A time in the future says nothing: the system clock was set back since.
fn is_fresh(complete: SystemTime, now: SystemTime) -> bool {
    now.duration_since(complete).is_ok_and(|age| age < limits::COPY_AGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::sqlite::DirectoryLock;

    #[test]
    fn a_copy_is_followed_while_its_note_is_new_and_its_lock_is_held() {
        let [running, stopped] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let data = running.path();
        let _lock = DirectoryLock::take(data).unwrap();
        assert!(!has_followed_note(data) && is_followed(data), "a version that writes no notes");
        note_begun(data);
        assert!(has_followed_note(data) && !is_followed(data), "the copy is not complete yet");

        note_complete(data, SystemTime::now() - limits::COPY_AGE_MAX);
        assert!(has_followed_note(data) && !is_followed(data), "the note is old");
        note_complete(data, SystemTime::now());
        assert!(is_followed(data));
        note_begun(data);
        assert!(is_followed(data), "it begins again, and the note is kept");
        note_complete(stopped.path(), SystemTime::now());
        assert!(!is_followed(stopped.path()), "no process holds the lock");
    }

    #[test]
    fn the_note_of_a_pumped_copy_is_renewed_once_the_copy_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let copy = PumpedCopy::default();
        copy.set_exclusive_until(SystemTime::now());
        copy.renew_note();
        assert!(!has_followed_note(data), "the copy may lack records");

        copy.complete(data, SystemTime::UNIX_EPOCH);
        copy.renew_note();
        assert!(completed_at(data).unwrap() > SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn a_note_from_the_future_says_nothing() {
        let now = SystemTime::now();
        assert!(is_fresh(now, now));
        assert!(is_fresh(now - limits::COPY_AGE_MAX / 2, now));
        assert!(!is_fresh(now - limits::COPY_AGE_MAX, now));
        assert!(!is_fresh(now + limits::COPY_AGE_MAX / 2, now));
    }
}
