//! Checks that the disk has room for the shared memory of a write-ahead log before SQLite maps it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::ffi;
use rustix::fs::statvfs;

/// Bytes between the places of the shared memory to which SQLite writes when it allocates the
/// file. In a file system with smaller blocks, the blocks between these places remain holes.
const ALLOCATION_STEP: u64 = 4096;
/// Size of the first part of the shared memory, which every connection maps.
const FIRST_PART_BYTES: u64 = 32 << 10;
/// Free bytes that suffice for the first part, with the blocks that refer to its blocks.
const FREE_BYTES_MIN: u64 = 64 << 10;

/// Fails as on a full disk if SQLite could not fill the shared memory of the write-ahead log of
/// `database`. Without this check, the system ends the process with SIGBUS when SQLite writes to a
/// hole of the mapped file. Costs one system call unless the file system has small blocks and is
/// nearly full.
pub fn require_room(database: &Path) -> rusqlite::Result<()> {
    let parent = database.parent().filter(|parent| !parent.as_os_str().is_empty());
    // If the call fails, SQLite finds the reason.
    let Ok(disk) = statvfs(parent.unwrap_or(Path::new("."))) else { return Ok(()) };
    // Also as root: the blocks beyond these may be reserved for the file system itself.
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if disk.f_frsize >= ALLOCATION_STEP || free >= FREE_BYTES_MIN {
        return Ok(());
    }

    let mut memory = database.as_os_str().to_owned();
    memory.push("-shm");
    let memory = Path::new(&memory).metadata();
    if memory.is_ok_and(|memory| is_whole(memory.len(), memory.blocks() * 512)) {
        return Ok(());
    }
    let full = ffi::Error::new(ffi::SQLITE_IOERR_SHMSIZE);
    let detail = "the disk has too little room for the shared memory of the write-ahead log";
    Err(rusqlite::Error::SqliteFailure(full, Some(detail.to_owned())))
}

/// Whether a shared memory of `bytes` bytes, of which `allocated` are on the disk, has its first
/// part and no holes.
fn is_whole(bytes: u64, allocated: u64) -> bool {
    bytes >= FIRST_PART_BYTES && allocated >= bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_memory_with_holes_is_not_whole() {
        assert!(is_whole(32 << 10, 32 << 10));
        assert!(is_whole(64 << 10, 66 << 10));
        assert!(!is_whole(32 << 10, 8 << 10), "three of four blocks of 1 KiB are holes");
        assert!(!is_whole(3, 1024), "SQLite has shortened it");
    }

    #[test]
    fn a_disk_with_room_takes_a_connection() {
        let directory = tempfile::tempdir().unwrap();
        require_room(&directory.path().join("journal.db")).unwrap();
        require_room(&directory.path().join("missing/journal.db")).unwrap();
    }
}
