//! Moves files of a projection into a directory of its own, where nothing opens them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::durable_file;
use crate::journal::Error;
use crate::journal::sqlite::DATABASE;

/// Returns a path in `data` that is not in use.
pub(super) fn unused(data: &Path) -> PathBuf {
    let mut all = (1..).map(|n: u32| data.join(format!("set-aside-{n}")));
    all.find(|path| !path.exists()).unwrap_or_default()
}

pub(super) fn has_database(directory: &Path) -> bool {
    durable_file::may_exist(&directory.join(DATABASE))
}

/// Moves a file, if it exists, also to another file system. After a crash, the file is whole at
/// `from`, at `to`, or at both.
pub(super) fn move_file(from: &Path, to: &Path) -> Result<(), Error> {
    let moved = match durable_file::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => std::fs::read(from)
            .and_then(|bytes| durable_file::replace(to, &to.with_extension("new"), &bytes))
            .and_then(|()| durable_file::remove(from)),
        renamed => renamed,
    };
    let synced = moved.and_then(|()| durable_file::sync_parent(to));
    synced.map_err(Error::io(from.display().to_string()))
}
