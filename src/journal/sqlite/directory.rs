//! The data directory of a journal. It contains the journal's file. A note in another directory,
//! the state directory, names the journal that a pump last wrote in the data directory.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::durable_file;
use crate::ids::Digest;
use crate::journal::Error;

pub const DATABASE: &str = "journal.db";

/// Creates a directory that only its owner may access.
pub fn make(directory: &Path) -> Result<(), Error> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(Error::io(format!(
        "the directory {} cannot be made; name another one (`data` and `state` of [organism] are \
         those of the journal), or check the permissions above it",
        directory.display()
    )))
}

/// Returns the path of a note in the directory `state`. The note names the journal in `data`. If
/// that journal is lost, the note reveals the loss.
fn link(data: &Path, state: &Path) -> PathBuf {
    let data = canonical(data).unwrap_or_else(|| data.to_owned());
    let digest = Digest::of(data.as_os_str().as_encoded_bytes()).to_string();
    state.join(format!("{}.journal", digest.get(..16).unwrap_or(&digest)))
}

/// Returns the canonical path of a directory, even if the directory no longer exists. Returns
/// `None` if the parent of the directory does not exist either.
fn canonical(data: &Path) -> Option<PathBuf> {
    let beneath_parent = || Some(data.parent()?.canonicalize().ok()?.join(data.file_name()?));
    data.canonicalize().ok().or_else(beneath_parent)
}

/// Notes in the state directory that a pump writes `journal` in `data`. If the note already names
/// this journal, writes nothing, because a write could fail on a full disk.
pub fn note_journal(data: &Path, state: &Path, journal: Uuid) -> Result<(), Error> {
    if noted_journal(data, state) == Some(journal) {
        return Ok(());
    }

    let path = link(data, state);
    let unfinished = path.with_extension("journal.new");
    let noted = durable_file::replace(&path, &unfinished, journal.to_string().as_bytes());
    noted.map_err(Error::io(path.display().to_string()))
}

/// Returns the id of the journal that a pump last wrote in `data`, as noted in the state directory.
/// Returns `None` if there is no note.
pub fn noted_journal(data: &Path, state: &Path) -> Option<Uuid> {
    std::fs::read_to_string(link(data, state)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_made_is_named_with_the_keys_that_name_it() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "a file where a directory should be").unwrap();
        let refused = make(&file.join("data")).unwrap_err().to_string();
        let named = format!("the directory {}/data cannot be made", file.display());
        assert!(refused.starts_with(&named), "{refused}");
        assert!(refused.contains("`data` and `state` of [organism]"), "{refused}");
    }
}
