//! Kills the processes that earlier pumps of the same journal left behind. When a pump ends, the
//! kernel's death signal ends each listener's own process, but not the processes that the listener
//! started. The next pump kills these processes before it hands over any delivery.
//!
//! The environment variable [`PUMP_VARIABLE`], which every process inherits from its listener,
//! identifies the pump to which a process belongs.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::children;
use crate::mutant::mutant;

/// Environment variable that identifies the pump to which a process belongs. Every process that a
/// listener starts inherits it.
pub const PUMP_VARIABLE: &str = "ORGANISM_PUMP";

/// Identity of one run of a pump: the journal, the epoch (the number of the run), and the
/// operating-system process of the pump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PumpMark {
    journal: Uuid,
    epoch: u32,
    /// Inode of the PID namespace; 0 if the system has none.
    namespace: u64,
    pid: u32,
    /// Start time of the process in clock ticks since the machine's boot; 0 if unknown.
    started: u64,
}

impl PumpMark {
    /// Returns the identity of a pump that runs in this process.
    pub fn of_this_process(journal: Uuid, epoch: u32) -> Self {
        let pid = std::process::id();
        let namespace = linux::namespace().unwrap_or_default();
        let started = children::status(i64::from(pid)).map_or(0, |status| status.started);
        Self { journal, epoch, namespace, pid, started }
    }

    /// Returns the id of the journal that the pump writes.
    pub fn journal(&self) -> Uuid {
        self.journal
    }

    /// Whether this pump may kill a process that has `mark`. True if `mark` names an earlier pump
    /// of the same journal in the same PID namespace, and this earlier pump has ended. An earlier
    /// pump has ended if its operating-system process has ended, or if it ran in the process in
    /// which this pump now runs.
    #[cfg(any(test, target_os = "linux"))]
    fn may_end(&self, mark: &Self, is_running: impl Fn(u32, u64) -> bool) -> bool {
        let is_own_process = (mark.pid, mark.started) == (self.pid, self.started);
        mark.journal == self.journal
            && mark.epoch < self.epoch
            && mark.namespace == self.namespace
            && (is_own_process || !is_running(mark.pid, mark.started))
    }
}

impl fmt::Display for PumpMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { journal, epoch, namespace, pid, started } = self;
        write!(f, "{journal}/{epoch}/{namespace}/{pid}/{started}")
    }
}

/// Error for a string that is not the written form of a [`PumpMark`], the identity of one run of a
/// pump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no mark of a pump")]
pub struct InvalidMark;

impl FromStr for PumpMark {
    type Err = InvalidMark;

    /// Parses a string that [`fmt::Display`] wrote. Any other form is an error.
    fn from_str(text: &str) -> Result<Self, InvalidMark> {
        let mut parts = text.split('/');
        let mut next = || parts.next().ok_or(InvalidMark);
        let mark = Self {
            journal: next()?.parse().map_err(|_| InvalidMark)?,
            epoch: next()?.parse().map_err(|_| InvalidMark)?,
            namespace: next()?.parse().map_err(|_| InvalidMark)?,
            pid: next()?.parse().map_err(|_| InvalidMark)?,
            started: next()?.parse().map_err(|_| InvalidMark)?,
        };

        if mark.to_string() == text { Ok(mark) } else { Err(InvalidMark) }
    }
}

/// Kills the processes that earlier pumps of this journal left behind, and waits for their exit.
/// Returns the id and the name of each killed process. Does nothing without `/proc`.
pub fn end_leftovers(own: &PumpMark) -> Vec<String> {
    // A new journal has epoch 0, in which no pump runs. So the pump of epoch 1 has no earlier one.
    if own.epoch <= 1 || mutant("keep-leftovers") {
        return Vec::new();
    }

    linux::end_leftovers(own)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashSet;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt as _;

    use memchr::memmem;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

    use super::{PUMP_VARIABLE, PumpMark};
    use crate::children;
    use crate::limits;

    pub(super) fn namespace() -> Option<u64> {
        std::fs::metadata("/proc/self/ns/pid").ok().map(|metadata| metadata.ino())
    }

    pub(super) fn end_leftovers(own: &PumpMark) -> Vec<String> {
        let spared = own_line(own.pid);
        let mut ended = Vec::new();

        // Several passes: a process may start another one before it is killed.
        for _ in 0..limits::LEFTOVER_PASSES_MAX {
            let found: Vec<_> = pids()
                .filter(|pid| !spared.contains(pid))
                .filter_map(|pid| find(pid, own))
                .collect();
            if found.is_empty() {
                break;
            }
            for (pid, handle) in found {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                if pidfd_send_signal(&handle, Signal::KILL).is_ok() {
                    wait(&handle);
                    ended.push(format!("{pid} ({})", name.trim_end()));
                }
            }
        }

        ended
    }

    /// Returns the process ids of this process and of all its ancestors.
    fn own_line(pid: u32) -> HashSet<u32> {
        let mut line = HashSet::new();
        let mut next = Some(pid);
        while let Some(pid) = next.filter(|pid| line.insert(*pid)) {
            let parent = children::status(i64::from(pid)).map(|status| status.parent);
            next = parent.and_then(|parent| u32::try_from(parent).ok());
        }

        line
    }

    fn pids() -> impl Iterator<Item = u32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    /// Returns the id and the handle of the process `pid`, or `None` if this pump may not kill it.
    /// Opens the handle before it reads the environment of the process, so that the handle never
    /// refers to a later process with the same id.
    fn find(pid: u32, own: &PumpMark) -> Option<(u32, OwnedFd)> {
        let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let handle = pidfd_open(raw, PidfdFlags::empty()).ok()?;

        let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        if owner != geteuid().as_raw() {
            return None;
        }

        let mark = mark_in(&environment(pid)?)?;
        own.may_end(&mark, is_running).then_some((pid, handle))
    }

    /// Reads the environment of a process. Returns `None` if it cannot be read, or if the process
    /// has ended.
    fn environment(pid: u32) -> Option<Vec<u8>> {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if !environment.is_empty() {
            return Some(environment);
        }
        if !children::status(i64::from(pid))?.is_zombie {
            return None;
        }

        // The main thread has exited and shows no environment. Other threads may still run.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.filter_map(Result::ok);
        let mut environments =
            threads.filter_map(|thread| std::fs::read(thread.path().join("environ")).ok());
        environments.find(|environment| !environment.is_empty())
    }

    /// Returns the [`PumpMark`] in the environment of a process. Returns `None` if the variable
    /// [`PUMP_VARIABLE`] is missing, occurs several times, or does not contain a mark.
    fn mark_in(environment: &[u8]) -> Option<PumpMark> {
        // Most processes do not have the variable, and a start reads the environment of each.
        memmem::find(environment, PUMP_VARIABLE.as_bytes())?;
        let variable = |entry: &[u8]| {
            let value = entry.strip_prefix(PUMP_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(value).ok().map(str::to_owned)
        };

        let mut values = environment.split(|byte| *byte == 0).filter_map(variable);
        let value = values.next().filter(|_| values.next().is_none())?;
        value.parse().ok()
    }

    fn is_running(pid: u32, started: u64) -> bool {
        let status = children::status(i64::from(pid));
        status.is_some_and(|status| status.started == started && !status.is_zombie)
    }

    fn wait(handle: &OwnedFd) {
        let mut polled = [PollFd::new(handle, PollFlags::IN)];
        let seconds = i64::try_from(limits::EXIT_GRACE.as_secs()).unwrap_or(i64::MAX);
        // A killed process that does not exit in time waits for its disk, and executes nothing
        // more.
        let _ = poll(&mut polled, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 }));
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::PumpMark;

    pub(super) fn namespace() -> Option<u64> {
        None
    }

    pub(super) fn end_leftovers(_: &PumpMark) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(epoch: u32) -> PumpMark {
        PumpMark { journal: Uuid::from_u128(7), epoch, namespace: 1, pid: 100, started: 5 }
    }

    #[test]
    fn a_mark_is_read_as_it_was_written_and_in_no_other_form() {
        let text = mark(3).to_string();
        assert_eq!(text.parse(), Ok(mark(3)));
        for wrong in [
            String::new(),
            format!("{text}/"),
            format!(" {text}"),
            text.replace("/3/", "/03/"),
            text.replace("/3/", "/+3/"),
            text.to_uppercase().replace('-', ""),
        ] {
            assert_eq!(wrong.parse::<PumpMark>(), Err(InvalidMark), "{wrong}");
        }
    }

    #[test]
    fn only_an_earlier_epoch_of_the_same_journal_whose_pump_has_ended_is_ended() {
        let own = PumpMark { pid: 200, ..mark(4) };
        let ends = |mark: &PumpMark| own.may_end(mark, |_, _| false);
        assert!(ends(&mark(3)));
        assert!(!ends(&mark(4)));
        assert!(!ends(&mark(5)));
        assert!(!ends(&PumpMark { journal: Uuid::from_u128(8), ..mark(3) }));
        assert!(!ends(&PumpMark { namespace: 2, ..mark(3) }));
        assert!(!own.may_end(&mark(3), |pid, started| (pid, started) == (100, 5)));
        assert!(own.may_end(&mark(3), |pid, started| (pid, started) == (100, 6)));
    }

    #[test]
    fn an_earlier_pump_of_this_process_has_ended() {
        assert!(mark(4).may_end(&mark(3), |_, _| true));
    }
}
