//! Working files of a pump: SQLite files for data that does not fit into memory.
//!
//! A working file is not part of the journal. Only the process that created it can read it. The
//! process deletes the file's name as soon as the file is open, so the file disappears with the
//! process, and no other process can change it.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use crate::durable_file;
use crate::journal::Error;
use crate::limits;

/// Creates a working file in `directory`, under a name that begins with `kind`. Deletes the name at
/// once, so that the file disappears when it is closed. The name remains only if the process is
/// killed before the deletion.
pub fn create(directory: &Path, kind: &str) -> Result<Connection, Error> {
    let path = directory.join(format!("{kind}-{}", Uuid::now_v7().simple()));
    create_private(&path)?;
    let db = Connection::open(&path).map_err(failed(&path))?;
    std::fs::remove_file(&path).map_err(|source| {
        let detail = format!("it cannot be deleted: {source}");
        Error::Resting { name: path.display().to_string(), detail }
    })?;
    set_up(&db).map_err(failed(&path))?;
    Ok(db)
}

/// Opens `file` with the SQLite settings of a working file, which favour speed over durability.
/// Creates the file if it is missing. In contrast to [`create`], leaves the file in its directory,
/// so that the file can be opened again.
pub fn open(file: &Path) -> Result<Connection, Error> {
    create_private(file)?;
    let db = Connection::open(file).map_err(failed(file))?;
    set_up(&db).map_err(failed(file))?;
    Ok(db)
}

/// Opens the existing file `file` for reading only, with the same SQLite settings as [`open`].
pub fn open_read_only(file: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags).map_err(failed(file))?;
    set_up(&db).map_err(failed(file))?;
    Ok(db)
}

/// Creates a working file in memory, for tests.
pub fn in_memory() -> Result<Connection, Error> {
    let failed = || Error::sqlite("opening a working file in memory");
    let db = Connection::open_in_memory().map_err(failed())?;
    set_up(&db).map_err(failed())?;
    Ok(db)
}

fn set_up(db: &Connection) -> rusqlite::Result<()> {
    // No synchronous writes and no lasting rollback journal: nothing needs the file after a crash.
    db.execute_batch(&format!(
        "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
         PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{};",
        limits::RESTING_CACHE_KIB
    ))
}

/// Creates an empty file that only its owner may read, because a working file contains payloads.
fn create_private(file: &Path) -> Result<(), Error> {
    durable_file::create_private(file).map_err(Error::io(file.display().to_string()))
}

/// Maps an error of a write to the working file `db`. `content` describes what the file contains.
/// The error names the directory of the file, because the file itself may have no name any more.
pub fn unwritable(db: &Connection, content: &str, error: rusqlite::Error) -> Error {
    let directory = db.path().and_then(|path| Path::new(path).parent()).unwrap_or(Path::new(""));
    let context = format!("writing {content} to a file in {}", directory.display());
    Error::sqlite(context)(error)
}

fn failed(file: &Path) -> impl FnOnce(rusqlite::Error) -> Error {
    Error::sqlite(format!("opening the working file {}", file.display()))
}
