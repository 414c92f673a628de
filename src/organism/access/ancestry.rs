//! Finds the listener that a process descends from. Follows the parents of the process, as the
//! operating system reports them.
//!
//! A process that detached itself has this program as its parent (see [`crate::children`]), so its
//! listener is unknown. The environment and the process group of a process are no evidence of its
//! listener, because the process can change them.

use std::fs::File;
use std::io;

use rustix::io::Errno;
use uuid::Uuid;

use super::host_presence::is_host;
use crate::bus::process::{PUMP_VARIABLE, PumpMark};
use crate::children::{self, ProcessStatus};
use crate::ids::ListenerName;
use crate::mutant::mutant;

/// Maximum number of parents to follow.
const GENERATIONS_MAX: usize = 64;

/// Maximum number of walks up the parents of one process. A walk is repeated if the parents change
/// during the walk.
const LOOKS_MAX: usize = 8;

/// Ancestry of a process: whether this organism or another program started the process, as far as
/// the operating system shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessAncestry {
    /// Another program started the process.
    Foreign,
    /// The process descends from a process that hosts listeners of the organism. That process is
    /// this program, an earlier pump, or another host. Contains the listener to which the process
    /// belongs. `None` if this listener is unknown, for example because the process has detached
    /// itself, or because another host runs the listener.
    Hosted(Option<ListenerName>),
    /// The process has ended, so its origin is unknown. The process may have been a command that a
    /// person interrupted, or a hosted process.
    Exited,
    /// The origin is unknown: the process is in another PID namespace, or processes cannot be read.
    Unknown,
    /// This program could not look at the process, because this program has no free file descriptor
    /// or memory. A later attempt may succeed.
    NotExamined,
}

/// Reason why a walk up the parents of a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WalkEnd {
    /// The walk reached this program. The value is the id of the process before this program on
    /// the walk. That process is a child of this program.
    Here(u32),
    /// The walk reached the first process of the system, or left the PID namespace.
    Elsewhere,
    /// The walk reached a process that has exited, so the parents of that process are unknown.
    Gone,
    Hidden,
    /// The walk reached a process that this program could not look at, because this program has no
    /// free file descriptor or memory.
    NotExamined,
}

/// Determines the ancestry of the process `pid`, which is at the other end of a connection.
/// `is_own` returns whether the journal with a given id belongs to this organism. `names` returns
/// the names by which other processes show that they host listeners of this organism. Special
/// cases:
///
/// - If `pid` is `None` or 0, returns [`ProcessAncestry::Unknown`]. The operating system then does
///   not show the process, for example because the process is in another PID namespace.
/// - If this program has no free file descriptor or memory to look at a process, returns
///   [`ProcessAncestry::NotExamined`].
/// - If the process has exited, returns [`ProcessAncestry::Exited`].
/// - If the parents of the process keep changing, or one of them has exited, returns
///   [`ProcessAncestry::Hosted`], because a hosted process has the fewest rights.
pub fn of(
    pid: Option<i32>,
    is_own: impl Fn(Uuid) -> bool,
    names: impl Fn() -> Vec<String>,
) -> ProcessAncestry {
    traced(pid, is_own, names).unwrap_or_else(|| match pid {
        Some(pid) if !exists(i64::from(pid)) => ProcessAncestry::Exited,
        _ => ProcessAncestry::Hosted(None),
    })
}

/// Determines the ancestry as [`of`] does. Returns `None` for a process that has exited or whose
/// parents keep changing.
fn traced(
    pid: Option<i32>,
    is_own: impl Fn(Uuid) -> bool,
    names: impl Fn() -> Vec<String>,
) -> Option<ProcessAncestry> {
    let Some(pid) = pid.filter(|pid| *pid > 0) else { return Some(ProcessAncestry::Unknown) };
    if !processes_are_ours() || mutant("hide-the-caller") {
        return Some(ProcessAncestry::Unknown);
    }

    let own = std::process::id();
    let mut seen = walk(pid, own);

    for _ in 0..LOOKS_MAX {
        let again = walk(pid, own);
        if again == seen {
            let (parents, end) = &seen;
            return match end {
                WalkEnd::Here(child) => {
                    Some(ProcessAncestry::Hosted(children::listener_of(*child)))
                }
                WalkEnd::Gone => None,
                WalkEnd::Hidden => Some(ProcessAncestry::Unknown),
                WalkEnd::NotExamined => Some(ProcessAncestry::NotExamined),
                WalkEnd::Elsewhere => Some(of_others(parents, is_own, &names())),
            };
        }
        // A parent ended during the walk, so its process id may have been reused. Walk again.
        seen = again;
    }

    None
}

/// Determines the ancestry of a process that this program has not started. `parents` contains the
/// process itself, and then its ancestors.
fn of_others(
    parents: &[(i64, ProcessStatus)],
    is_own: impl Fn(Uuid) -> bool,
    names: &[String],
) -> ProcessAncestry {
    for (pid, _) in parents {
        // A command may hide its own environment, but one of its parents may show the pump's mark.
        match is_marked(*pid, &is_own) {
            Ok(true) => return ProcessAncestry::Hosted(None),
            Ok(false) => {}
            Err(_) => return ProcessAncestry::NotExamined,
        }
    }

    match has_host(parents, names) {
        Ok(true) => return ProcessAncestry::Hosted(None),
        Ok(false) => {}
        Err(_) => return ProcessAncestry::NotExamined,
    }
    // Without a free descriptor, neither the marks nor the hosts could be read.
    match File::open("/dev/null") {
        Err(error) if is_exhausted(&error) => ProcessAncestry::NotExamined,
        _ => ProcessAncestry::Foreign,
    }
}

/// Whether an operation failed because the process, or the system, has no free file descriptor or
/// memory.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Whether the process `pid` was started, directly or through other processes, by a process that
/// hosts listeners of this organism. `pumps` are the process ids of the running pumps; `is_own` and
/// `names` identify the organism, as for [`of`]. Returns false for a process of unknown origin.
/// Returns `None` in these cases:
///
/// - The process has exited.
/// - The parents of the process keep changing.
/// - This program could not look at the process.
pub fn is_hosted(
    pid: i32,
    pumps: &[u32],
    is_own: impl Fn(Uuid) -> bool,
    names: impl Fn() -> Vec<String>,
) -> Option<bool> {
    if !processes_are_ours() {
        return Some(false);
    }
    let is_beneath = |pump: &u32| matches!(walk(pid, *pump).1, WalkEnd::Here(_));
    if pumps.iter().any(is_beneath) {
        return Some(true);
    }
    match traced(Some(pid), is_own, names)? {
        ProcessAncestry::NotExamined => None,
        ancestry => Some(matches!(ancestry, ProcessAncestry::Hosted(_))),
    }
}

/// Whether at least one ancestor of a process hosts listeners of this organism. `passed` contains
/// the process itself, which is not checked, and then its ancestors.
fn has_host(passed: &[(i64, ProcessStatus)], names: &[String]) -> io::Result<bool> {
    for (pid, _) in passed.iter().skip(1) {
        if is_host(*pid, names)? {
            return Ok(true);
        }
    }

    Ok(false)
}

/// Whether `/proc` shows the PID namespace of this process.
fn processes_are_ours() -> bool {
    if !cfg!(target_os = "linux") {
        return true;
    }
    let shown = std::fs::read_link("/proc/self").ok();
    let shown = shown.and_then(|path| path.to_str()?.parse::<u32>().ok());
    shown == Some(std::process::id())
}

/// Follows the parents of the process `pid` upwards. Returns the process and its parents with their
/// status, and the reason why the walk ended.
fn walk(pid: i32, own: u32) -> (Vec<(i64, ProcessStatus)>, WalkEnd) {
    let mut passed = Vec::new();
    let mut next = i64::from(pid);
    for _ in 0..GENERATIONS_MAX {
        let status = match children::read_status(next) {
            Ok(status) => status,
            Err(error) if is_exhausted(&error) => return (passed, WalkEnd::NotExamined),
            Err(_) if exists(next) => return (passed, WalkEnd::Hidden),
            Err(_) => return (passed, WalkEnd::Gone),
        };
        let child = passed.last().map(|(_, child): &(i64, ProcessStatus)| child.started);
        if child.is_some_and(|started| started < status.started) {
            // A parent that is younger than its child is another process that got the same id.
            return (passed, WalkEnd::Gone);
        }
        passed.push((next, status));
        let parent = status.parent;
        if parent == i64::from(own) {
            let child = u32::try_from(next).unwrap_or_default();
            return (passed, WalkEnd::Here(child));
        }
        if parent <= 1 {
            return (passed, WalkEnd::Elsewhere);
        }
        next = parent;
    }

    (passed, WalkEnd::Gone)
}

/// Whether the process exists. Also true for a process whose status cannot be read.
pub fn exists(pid: i64) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let tried = pid.map(rustix::process::test_kill_process);
    matches!(tried, Some(Ok(()) | Err(rustix::io::Errno::PERM)))
}

/// Whether the environment of the process `pid` contains the mark of a pump of this organism. Each
/// pump gives a mark, which names its journal, to every process that it starts. A listener's name
/// in the environment is no evidence, because people set it for processes that they start
/// themselves. Returns an error only if this program has no free file descriptor or memory.
fn is_marked(pid: i64, is_own: impl Fn(Uuid) -> bool) -> io::Result<bool> {
    let environment = match std::fs::read(format!("/proc/{pid}/environ")) {
        Err(error) if is_exhausted(&error) => return Err(error),
        environment => environment.unwrap_or_default(),
    };
    let is_marked = environment.split(|byte| *byte == 0).any(|entry| {
        let mark = entry.strip_prefix(PUMP_VARIABLE.as_bytes());
        let mark = mark.and_then(|mark| mark.strip_prefix(b"="));
        let mark = mark.and_then(|mark| std::str::from_utf8(mark).ok()?.parse::<PumpMark>().ok());
        mark.is_some_and(|mark| is_own(mark.journal()))
    });
    Ok(is_marked)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn ancestry(pid: i32) -> ProcessAncestry {
        of(Some(pid), |_| false, Vec::new)
    }

    #[test]
    fn children_and_their_children_are_hosted_and_others_are_foreign() {
        let listener = ListenerName::parse("echo").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped()).process_group(0);
        let start = || command.spawn();
        let (mut child, owned) =
            children::spawn(Some(&listener), start, |child| Some(child.id())).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let grandchild: i32 = line.trim().parse().unwrap();

        let hosted = ProcessAncestry::Hosted(Some(listener));
        assert_eq!(ancestry(i32::try_from(child.id()).unwrap()), hosted);
        assert_eq!(ancestry(grandchild), hosted);

        Command::new("kill").arg(grandchild.to_string()).status().unwrap();
        child.wait().unwrap();
        drop(owned);
        assert_eq!(ancestry(grandchild), ProcessAncestry::Exited);
        let parent = children::status(i64::from(std::process::id())).unwrap().parent;
        assert_eq!(ancestry(i32::try_from(parent).unwrap()), ProcessAncestry::Foreign);
    }

    fn wait_for_program(pid: i32, name: &str) {
        let runs = || {
            let shown = Command::new("ps").args(["-o", "comm=", "-p", &pid.to_string()]).output();
            shown.is_ok_and(|ps| String::from_utf8_lossy(&ps.stdout).trim().ends_with(name))
        };
        let waited = std::time::Instant::now();
        while !runs() {
            assert!(waited.elapsed().as_secs() < 30, "{pid} does not run {name}");
        }
    }

    #[test]
    fn a_detached_process_is_hosted_by_the_mark_of_its_pump_and_not_by_the_name_of_a_listener() {
        let journal = Uuid::from_u128(7);
        let mark = PumpMark::of_this_process(journal, 1).to_string();
        for (variable, value, is_hosted) in
            [(PUMP_VARIABLE, mark.as_str(), true), ("ORGANISM_LISTENER", "echo", false)]
        {
            let mut command = Command::new("sh");
            command.args(["-c", "sleep 60 >/dev/null 2>&1 & echo $!"]).env_remove(PUMP_VARIABLE);
            let started = command.env(variable, value).output().unwrap();
            let detached: i32 = String::from_utf8(started.stdout).unwrap().trim().parse().unwrap();
            // While the process changes from the shell to `sleep`, its variables cannot be read.
            wait_for_program(detached, "sleep");

            let expected =
                if is_hosted { ProcessAncestry::Hosted(None) } else { ProcessAncestry::Foreign };
            let is_own = |own: Uuid| own == journal;
            assert_eq!(of(Some(detached), is_own, Vec::new), expected, "{variable}");
            assert_eq!(
                of(Some(detached), |_| false, Vec::new),
                ProcessAncestry::Foreign,
                "another's journal"
            );
            Command::new("kill").arg(detached.to_string()).status().unwrap();
        }
    }

    #[test]
    fn only_a_lack_of_descriptors_or_memory_means_that_a_process_was_not_examined() {
        let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        assert!(lacks.into_iter().all(|errno| is_exhausted(&errno.into())));
        let others = [Errno::NOENT, Errno::SRCH, Errno::ACCESS];
        assert!(!others.into_iter().any(|errno| is_exhausted(&errno.into())));
    }

    #[test]
    fn a_process_of_another_namespace_is_unknown() {
        assert_eq!(ancestry(0), ProcessAncestry::Unknown);
        assert_eq!(of(None, |_| false, Vec::new), ProcessAncestry::Unknown);
    }
}
