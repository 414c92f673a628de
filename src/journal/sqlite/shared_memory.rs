//! Checks that the disk has room for the shared memory of a write-ahead log before SQLite maps it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rusqlite::ffi;
use rustix::fs::{Access, StatVfs, StatVfsMountFlags, access, statvfs};

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
/// nearly full. Without write permission, SQLite only reads the memory, or finds that it cannot
/// create it.
pub fn require_room(database: &Path) -> rusqlite::Result<()> {
    let parent = database.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    // If the call fails, SQLite finds the reason.
    let Ok(disk) = statvfs(parent) else { return Ok(()) };
    if has_room(&disk) {
        return Ok(());
    }

    let mut memory = database.as_os_str().to_owned();
    memory.push("-shm");
    let memory = Path::new(&memory);
    let found = memory.metadata();
    let written = if found.is_ok() { memory } else { parent };
    let is_whole = found.is_ok_and(|found| is_whole(found.len(), found.blocks() * 512));
    if is_whole || access(written, Access::WRITE_OK).is_err() {
        return Ok(());
    }
    let full = ffi::Error::new(ffi::SQLITE_IOERR_SHMSIZE);
    let detail = "the disk has too little room for the shared memory of the write-ahead log";
    Err(rusqlite::Error::SqliteFailure(full, Some(detail.to_owned())))
}

/// Whether `disk` leaves no hole in the shared memory, or has room for its blocks. A file system
/// without blocks does not count them, such as one of FUSE that answers no request about its room.
fn has_room(disk: &StatVfs) -> bool {
    // Also as root: the blocks beyond these may be reserved for the file system itself.
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let is_uncounted = disk.f_blocks == 0;
    is_uncounted
        || disk.f_flag.contains(StatVfsMountFlags::RDONLY)
        || disk.f_frsize >= ALLOCATION_STEP
        || free >= FREE_BYTES_MIN
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
    fn only_a_full_disk_with_small_blocks_has_no_room() {
        let disk = |frsize, blocks, available, flag| {
            let mut disk = statvfs("/").unwrap();
            (disk.f_frsize, disk.f_blocks, disk.f_bavail) = (frsize, blocks, available);
            disk.f_flag = flag;
            disk
        };
        let (write, read) = (StatVfsMountFlags::empty(), StatVfsMountFlags::RDONLY);
        assert!(!has_room(&disk(1024, 16_384, 63, write)));
        assert!(has_room(&disk(1024, 16_384, 64, write)));
        assert!(has_room(&disk(4096, 16_384, 0, write)), "SQLite itself finds that it is full");
        assert!(has_room(&disk(2048, 300_000, 0, read)), "an image of a CD");
        assert!(has_room(&disk(512, 0, 0, write)), "a file system that counts no blocks");
    }

    #[test]
    fn a_disk_with_room_takes_a_connection() {
        let directory = tempfile::tempdir().unwrap();
        require_room(&directory.path().join("journal.db")).unwrap();
        require_room(&directory.path().join("missing/journal.db")).unwrap();
    }
}
