//! Register of the child processes that this program starts, each with the listener that it runs,
//! if any. The module also reads the status of any process.
//!
//! Every child is started through [`spawn`], and the caller of [`spawn`] collects the child's exit
//! code. As a subreaper, this program also becomes the parent of processes that a listener
//! detached. [`reap_orphans`] collects the exit codes of these detached processes only, and
//! [`end_orphans`] kills them at this program's end. This module must not know the tasks of the
//! children.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use crate::ids::ListenerName;
use crate::locks::locked;

/// Children whose exit codes are not collected yet. The value is the listener that the child runs,
/// if any.
///
/// [`spawn`] holds the lock from before the fork until the child's id is registered. So a child
/// that ends immediately never counts as an orphan.
static OWNED: Mutex<BTreeMap<u32, Option<ListenerName>>> = Mutex::new(BTreeMap::new());

/// Entry of a started child in the register. While it exists, [`reap_orphans`] does not collect the
/// child's exit code. The code that started the child must collect the exit code before it drops
/// this value.
#[derive(Debug)]
pub struct OwnedChild {
    id: Option<u32>,
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            locked(&OWNED).remove(&id);
        }
    }
}

/// Starts a child and registers it. `listener` is the listener that the child runs, if any.
pub fn spawn<C>(
    listener: Option<&ListenerName>,
    start: impl FnOnce() -> io::Result<C>,
    id: impl FnOnce(&C) -> Option<u32>,
) -> io::Result<(C, OwnedChild)> {
    let mut owned = locked(&OWNED);
    let child = start()?;
    let id = id(&child);
    if let Some(id) = id {
        owned.insert(id, listener.cloned());
    }

    Ok((child, OwnedChild { id }))
}

/// Returns the listener that a child runs; `None` if the child is not registered or runs no
/// listener.
pub fn listener_of(pid: u32) -> Option<ListenerName> {
    locked(&OWNED).get(&pid).cloned().flatten()
}

/// Status of a process, from the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStatus {
    pub parent: i64,
    /// Start time in ticks of the system's clock. Distinguishes processes that have the same id at
    /// different times.
    pub started: u64,
    pub is_zombie: bool,
}

/// Reads the status of process `pid`. Returns `None` if there is no such process, or if its status
/// cannot be read.
pub fn status(pid: i64) -> Option<ProcessStatus> {
    read_status(pid).ok()
}

/// Reads the status of process `pid` as [`status`] does. The error states why it cannot be read.
#[cfg(target_os = "linux")]
pub fn read_status(pid: i64) -> io::Result<ProcessStatus> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_status(&stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Parses the status of a process as Linux shows it. Returns `None` if the text is invalid.
#[cfg(target_os = "linux")]
fn parse_status(stat: &str) -> Option<ProcessStatus> {
    // The second field, a name in parentheses, may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let is_zombie = fields.next()? == "Z";
    let parent = fields.next()?.parse().ok()?;
    // The start time is field 22 of the line.
    let started = fields.nth(17)?.parse().ok()?;
    Some(ProcessStatus { parent, started, is_zombie })
}

/// Reads the status of process `pid` as [`status`] does. The error states why it cannot be read.
#[cfg(not(target_os = "linux"))]
pub fn read_status(pid: i64) -> io::Result<ProcessStatus> {
    let mut command = std::process::Command::new("ps");
    let output = command.args(["-o", "ppid=", "-p"]).arg(pid.to_string()).output()?;
    let shown = String::from_utf8_lossy(&output.stdout);
    let parent = shown.trim().parse().map_err(|_| io::ErrorKind::NotFound)?;
    Ok(ProcessStatus { parent, started: 0, is_zombie: false })
}

#[cfg(target_os = "linux")]
mod subreaper {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use rustix::process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process,
        pidfd_open, set_child_subreaper, waitid, waitpid,
    };

    use super::{ListenerName, OWNED, io, locked, status};
    use crate::limits;

    static IS_SUBREAPER: AtomicBool = AtomicBool::new(false);

    /// Whether this program had children that it has not started when it became a subreaper. A
    /// shell that starts such children and then becomes this program leaves them to it.
    static HAS_INHERITED: AtomicBool = AtomicBool::new(false);

    /// Makes this program the parent of every process that a child detaches. Call this function
    /// only in programs that start all their children through [`super::spawn`].
    pub fn become_subreaper() -> io::Result<()> {
        let owned = locked(&OWNED);
        if !is_subreaper() && !orphans(&owned).is_empty() {
            HAS_INHERITED.store(true, Ordering::Relaxed);
        }
        set_child_subreaper(Some(getpid()))?;
        IS_SUBREAPER.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub fn is_subreaper() -> bool {
        IS_SUBREAPER.load(Ordering::Relaxed)
    }

    /// Collects the exit codes of detached processes that became children of this program and have
    /// ended.
    pub fn reap_orphans() {
        // Most calls follow the end of a child whose starter has collected its exit code meanwhile.
        // A look at all processes of the machine takes far longer than this look.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if !matches!(waitid(WaitId::All, look), Ok(Some(_))) {
            return;
        }

        // The lock is held throughout, so that no new child is taken for an orphan.
        let owned = locked(&OWNED);
        for orphan in orphans(&owned).into_iter().filter(|orphan| orphan.is_zombie) {
            // The process may have been collected meanwhile, which is fine.
            waitpid(Some(orphan.pid), WaitOptions::NOHANG).ok();
        }
    }

    /// Kills the detached processes that became children of this program, and everything that they
    /// started. Returns the id and the name of each killed process. Call this function when all
    /// organisms of this program have stopped: every such process is then left over.
    ///
    /// Kills nothing if this program is no subreaper, or if it had children that it has not started
    /// when it became one: what these have detached cannot be distinguished.
    pub fn end_orphans() -> Vec<String> {
        let mut ended = Vec::new();
        if !is_subreaper() || HAS_INHERITED.load(Ordering::Relaxed) {
            return ended;
        }

        // The lock is held throughout, so that no new child is taken for an orphan.
        let owned = locked(&OWNED);
        let mut seen = Vec::new();

        // Several passes: the children of a killed process become children of this program.
        for _ in 0..limits::LEFTOVER_PASSES_MAX {
            let mut found = orphans(&owned);
            found.retain(|orphan| !seen.contains(&orphan.pid));
            if found.is_empty() {
                break;
            }

            // All are killed before any is waited for, because one may trace another and delay its
            // end. No exit code has been collected, so each id still belongs to its process.
            for OrphanedProcess { pid, is_zombie } in &found {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                if !is_zombie && kill_process(*pid, Signal::KILL).is_ok() {
                    ended.push(format!("{pid} ({})", name.trim_end()));
                }
            }
            for OrphanedProcess { pid, .. } in &found {
                collect(*pid);
            }
            seen.extend(found.iter().map(|orphan| orphan.pid));
        }

        ended
    }

    /// A child of this program that the program has not started.
    struct OrphanedProcess {
        pid: Pid,
        is_zombie: bool,
    }

    fn orphans(owned: &BTreeMap<u32, Option<ListenerName>>) -> Vec<OrphanedProcess> {
        // A look at all processes of the machine takes far longer than this look.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, look), Err(Errno::CHILD)) {
            return Vec::new();
        }

        let own = i64::from(std::process::id());
        let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let orphans = pids.filter(|pid| !owned.contains_key(pid)).filter_map(|pid| {
            let status = status(i64::from(pid)).filter(|status| status.parent == own)?;
            let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
            Some(OrphanedProcess { pid, is_zombie: status.is_zombie })
        });
        orphans.collect()
    }

    /// Waits for the exit of a killed child, and collects its exit code. The wait is limited,
    /// because a process that waits for its disk may never end.
    fn collect(pid: Pid) {
        if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) {
            let mut polled = [PollFd::new(&handle, PollFlags::IN)];
            let seconds = i64::try_from(limits::EXIT_GRACE.as_secs()).unwrap_or(i64::MAX);
            let _ = poll(&mut polled, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 }));
        }
        waitpid(Some(pid), WaitOptions::NOHANG).ok();
    }
}

#[cfg(not(target_os = "linux"))]
mod subreaper {
    /// Does nothing, because this system has no subreapers: when a process ends, init becomes the
    /// parent of its children.
    pub fn become_subreaper() -> super::io::Result<()> {
        Ok(())
    }

    pub fn is_subreaper() -> bool {
        false
    }

    pub fn reap_orphans() {}

    pub fn end_orphans() -> Vec<String> {
        Vec::new()
    }
}

pub use subreaper::{become_subreaper, end_orphans, is_subreaper, reap_orphans};
