//! Two locks in the data directory, which coordinate starting organisms and commands:
//!
//! - A starting `organism run` holds the first lock until its socket is open. Meanwhile, commands
//!   wait for the socket instead of running an organism of their own.
//! - A command that runs an organism of its own holds the second lock. Meanwhile, a starting
//!   `organism run` waits for the command to end.
//!
//! If a process ends, the operating system releases its locks, so no stale lock remains.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::Error;
use crate::file_lock::lock_within;
use crate::journal;
use crate::limits;
use crate::mutant::mutant;

/// File that a starting `organism run` locks until its socket is open. It contains the name of that
/// process, such as `process 4711`.
const ANNOUNCED: &str = "announced";
/// File that each command locks while it runs an organism of its own. The lock is shared, because
/// several commands can run at the same time.
const COMMANDS: &str = "commands";

/// The lock that announces a starting `organism run`. While it is held, commands wait for the
/// socket of the starting organism, and start no pump of their own.
#[derive(Debug)]
pub struct Announcement {
    _file: File,
}

impl Announcement {
    /// Takes the lock that announces this process. If another process has announced itself, returns
    /// an error with the name of that process.
    pub fn make(data: &Path) -> Result<Self, Error> {
        let path = data.join(ANNOUNCED);
        let failed = || Error::io(path.display().to_string());
        let mut file = open(&path).map_err(failed())?;

        // A command that checks the lock holds it briefly, so the attempt is repeated.
        let locked = lock_within(&file, limits::LOCK_TIMEOUT, &mut || false);
        if !locked.map_err(failed())? {
            let holder = format!("{}, which is starting", announced_process(data));
            let path = data.display().to_string();
            return Err(journal::Error::InUse { path, holder }.into());
        }

        let pid = std::process::id();
        file.set_len(0).map_err(failed())?;
        file.seek(SeekFrom::Start(0)).map_err(failed())?;
        writeln!(file, "process {pid}").map_err(failed())?;
        Ok(Self { _file: file })
    }
}

/// Whether a starting `organism run` holds the announcement lock in the directory `data`.
pub fn is_announced(data: &Path) -> bool {
    let Ok(file) = File::open(data.join(ANNOUNCED)) else { return false };
    let is_locked = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    is_locked && !mutant("ignore-the-announced")
}

/// Returns the name of the starting process for error messages, as that process wrote it into the
/// announcement file. Returns `another process` if the file contains no name.
pub fn announced_process(data: &Path) -> String {
    let text = std::fs::read_to_string(data.join(ANNOUNCED)).unwrap_or_default();
    match text.trim() {
        "" => "another process".to_owned(),
        process => process.to_owned(),
    }
}

/// The lock of a command that runs its own organism. Dropping this value releases the lock.
#[derive(Debug)]
pub struct CommandPresence {
    _file: File,
}

impl CommandPresence {
    /// Takes the lock of a command that runs its own organism, in shared mode: several commands can
    /// hold the lock at the same time. Blocks only while another process tests the lock with
    /// `is_used_by_command`.
    ///
    /// Ordering rule: a command takes this lock before it takes the journal's lock, and releases it
    /// after it has released the journal's lock. So a command that holds the journal's lock always
    /// holds this lock, too. An `organism run` that finds the journal locked can therefore see
    /// whether a command has locked the journal. If so, `organism run` waits for the command.
    pub fn take(data: &Path) -> Result<Self, Error> {
        let path = data.join(COMMANDS);
        let failed = || Error::io(path.display().to_string());
        let file = open(&path).map_err(failed())?;
        // Blocks only while another process is in `is_used_by_command`.
        file.lock_shared().map_err(failed())?;
        Ok(Self { _file: file })
    }
}

/// Whether a command runs an organism of its own on the directory `data`, or is about to start one.
pub fn is_used_by_command(data: &Path) -> bool {
    let Ok(file) = File::open(data.join(COMMANDS)) else { return false };
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}
