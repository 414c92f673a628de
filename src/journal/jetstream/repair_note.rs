//! The note of a repair that has not ended: a file in the state directory. It exists from before
//! the repair changes anything until the repair is recorded in the journal. While it exists, no
//! pump of this host leads the stream.

use std::path::{Path, PathBuf};

use crate::durable_file;
use crate::journal::Error;
use crate::mutant::mutant;

use super::Options;
use super::repair::StreamRepair;

/// Removes the note of a repair from the state directory. Must be called only after the repair was
/// recorded in the journal.
pub fn recorded(options: &Options, state: &Path) -> Result<(), Error> {
    let path = note_path(options, state);
    durable_file::remove(&path).map_err(Error::io(path.display().to_string()))
}

/// Returns [`Error::RepairPending`] if a repair of the stream has not ended. A pump would add
/// records that the repair does not know, and a later command would continue the repair with a
/// choice that is out of date.
pub(super) fn refuse_unfinished(options: &Options, state: &Path) -> Result<(), Error> {
    let note = note_path(options, state);
    let exists = durable_file::exists(&note);
    if exists.map_err(Error::io(note.display().to_string()))? {
        return Err(Error::RepairPending { stream: options.stream(), note });
    }

    Ok(())
}

pub(super) fn read_note(options: &Options, state: &Path) -> Result<Option<StreamRepair>, Error> {
    let path = note_path(options, state);
    let note = durable_file::read(&path).and_then(|bytes| match bytes {
        Some(bytes) => serde_json::from_slice(&bytes).map_err(std::io::Error::other),
        None => Ok(None),
    });
    note.map_err(Error::io(path.display().to_string()))
}

pub(super) fn write_note(
    options: &Options,
    state: &Path,
    note: &StreamRepair,
) -> Result<(), Error> {
    if mutant("forget-the-repair") {
        return Ok(());
    }

    let path = note_path(options, state);
    let bytes = serde_json::to_vec(note).expect("plain data is JSON");
    let written = durable_file::replace(&path, &path.with_extension("repair.new"), &bytes);
    written.map_err(Error::io(path.display().to_string()))
}

fn note_path(options: &Options, state: &Path) -> PathBuf {
    state.join(format!("{}.repair", options.stream()))
}
