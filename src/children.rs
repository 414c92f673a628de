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

/// Detached processes that [`end_orphans`] found. Each text is the id and the name of a process.
#[derive(Debug, Default)]
pub struct OrphanReport {
    /// Processes that were killed and have ended.
    pub ended: Vec<String>,
    /// Processes that may not be killed, or that have not ended in time.
    pub left: Vec<String>,
    /// Processes that were not killed, because this program had children that it has not started
    /// when it became a subreaper. The processes may come from these children.
    pub spared: Vec<String>,
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
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use rustix::process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process,
        pidfd_open, set_child_subreaper, waitid, waitpid,
    };

    use super::{ListenerName, OWNED, OrphanReport, io, locked, status};
    use crate::limits;

    static IS_SUBREAPER: AtomicBool = AtomicBool::new(false);

    /// Whether this program had running children that it has not started when it became a
    /// subreaper. A shell that starts such children and then becomes this program leaves them to
    /// it.
    static HAS_INHERITED: AtomicBool = AtomicBool::new(false);

    /// Orphans that [`end_orphans`] leaves out: those that this program had when it became a
    /// subreaper, and those that an earlier call has reported and not ended.
    ///
    /// Always locked after [`OWNED`].
    static LEFT_OUT: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

    /// Makes this program the parent of every process that a child detaches. Call this function
    /// only in programs that start all their children through [`super::spawn`].
    pub fn become_subreaper() -> io::Result<()> {
        let owned = locked(&OWNED);
        if !is_subreaper() {
            let mut inherited = orphans(&owned);
            // A process that has ended detaches nothing more.
            inherited.retain(|pid| !collect_if_ended(*pid));
            HAS_INHERITED.store(!inherited.is_empty(), Ordering::Relaxed);
            locked(&LEFT_OUT).extend(inherited);
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
        for pid in orphans(&owned) {
            collect_if_ended(pid);
        }
    }

    /// Kills the detached processes that became children of this program, and everything that they
    /// started. Leaves out the processes that an earlier call has reported as not ended. Call this
    /// function when all organisms of this program have stopped: every such process is then left
    /// over.
    ///
    /// Kills nothing if this program is no subreaper, or if it had children that it has not started
    /// when it became one: what these have detached cannot be distinguished.
    pub fn end_orphans() -> OrphanReport {
        let mut result = OrphanReport::default();
        if !is_subreaper() {
            return result;
        }

        // The lock is held throughout, so that no new child is taken for an orphan.
        let owned = locked(&OWNED);
        let mut left_out = locked(&LEFT_OUT);
        let deadline = Instant::now() + limits::ORPHANS_END_TIMEOUT;

        // Several passes: the children of a killed process become children of this program. A child
        // that has ended also causes another pass, because it may have ended after the look at its
        // own children.
        loop {
            let mut found = orphans(&owned);
            found.retain(|pid| !left_out.contains(pid));
            if found.is_empty() {
                return result;
            }

            found.retain(|pid| !collect_if_ended(*pid));
            if HAS_INHERITED.load(Ordering::Relaxed) {
                result.spared = found.iter().map(|pid| id_and_name(*pid)).collect();
                left_out.extend(found);
                return result;
            }
            if Instant::now() >= deadline {
                result.left.extend(found.iter().map(|pid| id_and_name(*pid)));
                left_out.extend(found);
                return result;
            }
            kill_all(found, &mut result, &mut left_out);
        }
    }

    /// Kills children of this program and collects their exit codes. Waits for at most
    /// [`limits::EXIT_GRACE`], because a process that waits for its disk may never end. Adds the
    /// children that do not end to `left_out`.
    fn kill_all(pids: Vec<Pid>, result: &mut OrphanReport, left_out: &mut Vec<Pid>) {
        // All are killed before any is waited for, because one may trace another and delay its end.
        // No exit code has been collected, so each id still belongs to its process.
        let kill = |pid| (pid, id_and_name(pid), kill_process(pid, Signal::KILL).is_ok());
        let killed: Vec<_> = pids.into_iter().map(kill).collect();
        let until = Instant::now() + limits::EXIT_GRACE;

        for (pid, name, is_killed) in killed {
            // A process of another user, such as one that `sudo` has started, may not be killed.
            if is_killed {
                wait_for_exit(pid, until);
            }
            if is_killed && collect_if_ended(pid) {
                result.ended.push(name);
            } else {
                result.left.push(name);
                left_out.push(pid);
            }
        }
    }

    fn id_and_name(pid: Pid) -> String {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{pid} ({})", name.trim_end())
    }

    /// Returns the children of this program that it has not started.
    fn orphans(owned: &BTreeMap<u32, Option<ListenerName>>) -> Vec<Pid> {
        // A look at all processes of the machine takes far longer than this look.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, look), Err(Errno::CHILD)) {
            return Vec::new();
        }

        let own = i64::from(std::process::id());
        let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let orphans = pids.filter(|pid| !owned.contains_key(pid)).filter_map(|pid| {
            status(i64::from(pid)).filter(|status| status.parent == own)?;
            Pid::from_raw(i32::try_from(pid).ok()?)
        });
        orphans.collect()
    }

    /// Waits until a child has exited, but not longer than `until`.
    fn wait_for_exit(pid: Pid, until: Instant) {
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        loop {
            let mut polled = [PollFd::new(&handle, PollFlags::IN)];
            let rest = until.saturating_duration_since(Instant::now());
            let rest = Timespec::try_from(rest).unwrap_or_default();
            // The exit of another child interrupts the wait.
            if poll(&mut polled, Some(&rest)) != Err(Errno::INTR) {
                return;
            }
        }
    }

    /// Collects the exit code of a child if the child has ended, with all its threads. Returns
    /// whether it has ended. The exit code may have been collected before.
    fn collect_if_ended(pid: Pid) -> bool {
        matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_)) | Err(Errno::CHILD))
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

    pub fn end_orphans() -> super::OrphanReport {
        super::OrphanReport::default()
    }
}

pub use subreaper::{become_subreaper, end_orphans, is_subreaper, reap_orphans};
