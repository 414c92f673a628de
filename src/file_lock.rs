//! Takes the lock of a file that another process may hold for a short time.

use std::fs::{File, TryLockError};
use std::io::Result;
use std::time::{Duration, Instant};

use crate::limits;

/// Takes the exclusive lock of `file`. If another process holds the lock, tries again until `wait`
/// has passed or `is_enough` returns true. Returns whether this process now has the lock.
///
/// A child process shares every lock of its parent until it executes its own program. A lock that
/// was just released may therefore still appear to be held, and callers should wait at least
/// briefly.
pub fn lock_within(
    file: &File,
    wait: Duration,
    is_enough: &mut dyn FnMut() -> bool,
) -> Result<bool> {
    let until = Instant::now() + wait;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if is_enough() || Instant::now() >= until => {
                return Ok(false);
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(limits::LOCK_RETRY),
        }
    }
}
