//! Notes when the copy of a stream was last complete. The process that pumps the partition, or
//! stands by for it, renews this note beside the copy. If the note is old, the process cannot keep
//! the copy up to date, for example because it reaches no server, or because it is frozen. Readers
//! of the copy learn this without an answer of the process.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use super::sqlite::require_free;
use crate::limits;

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

/// Whether a process on this host keeps the copy in `data` up to date: the process holds the lock
/// on `data`, and the copy was complete within the last [`limits::COPY_AGE_MAX`].
pub fn is_followed(data: &Path) -> bool {
    let is_fresh = completed_at(data).is_ok_and(|complete| is_fresh(complete, SystemTime::now()));
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
        assert!(!has_followed_note(data) && !is_followed(data), "nothing is noted");

        note_complete(data, SystemTime::now() - limits::COPY_AGE_MAX);
        assert!(has_followed_note(data) && !is_followed(data), "the note is old");
        note_complete(data, SystemTime::now());
        assert!(is_followed(data));
        note_complete(stopped.path(), SystemTime::now());
        assert!(!is_followed(stopped.path()), "no process holds the lock");
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
