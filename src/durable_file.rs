//! Reads, writes, durably replaces and removes small files.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Result, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Reads a file; `None` if it does not exist.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads at most the last `bytes` of a file; `None` if it does not exist.
pub fn read_end(path: &Path, bytes: u64) -> Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };

    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(bytes)))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    Ok(Some(end))
}

/// Removes a file, if it exists.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Renames a file, if it exists.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates an empty file that only its owner may read and write. Leaves an existing file as it is.
/// If the file becomes a database, SQLite gives the same permissions to the files that it puts
/// beside it.
pub fn create_private(path: &Path) -> Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file that only its owner may read and write, even if the file existed with other
/// permissions.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    remove(path)?;
    write_new_private(path, bytes)
}

/// Writes a new file that only its owner may read and write. Fails if the file exists. If a write
/// fails, removes the incomplete file, so that it does not block the next attempt.
pub fn write_new_private(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        // The first error is the one to report.
        remove(path).ok();
    }
    written
}

/// Replaces a file durably. Writes the new content to the file `unfinished` first and then renames
/// that file, so that a crash leaves no half-written file.
pub fn replace(path: &Path, unfinished: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(unfinished, path)?;
    sync_parent(path)
}

/// Makes the directory entry of a file durable.
pub fn sync_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
