//! The supervisor: a process between the listener and a command. When the command or the listener
//! has ended, the supervisor kills every process that the command has started, including processes
//! that have left the process group of the command.
//!
//! Only Linux has subreapers and lists the children of a process. On another system, the supervisor
//! kills the process group of the command, and processes that have left the group go on.

use std::io::{self, PipeReader, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group, waitid,
    waitpid,
};

use crate::limits;

/// First argument that makes the program a supervisor. All further arguments are the command.
pub const SUPERVISE: &str = "--supervise";

/// Exit code for a command that cannot be started, as in shells.
const CANNOT_START: u8 = 127;

/// Runs a program and exits with the program's exit code. The supervisor's standard input is a pipe
/// that the listener never writes to. When the listener closes the pipe, the supervisor kills all
/// processes of the program.
pub fn supervise(command: &[std::ffi::OsString]) -> ExitCode {
    let Some((program, arguments)) = command.split_first() else {
        return failed("no command to supervise");
    };

    if let Err(error) = become_subreaper() {
        return failed(&format!("cannot supervise: {error}"));
    }

    let spawned =
        Command::new(program).args(arguments).stdin(Stdio::null()).process_group(0).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return failed(&format!("{}: {error}", program.to_string_lossy())),
    };

    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        until_over(pid);
        // The child has not been waited for, so its process id cannot belong to another process.
        // The signal fails only if the group has already ended.
        let _ = kill_process_group(pid, Signal::KILL);
    }

    let status = child.wait();
    sweep(&[]);
    match status {
        Ok(status) => ended(status),
        Err(error) => failed(&format!("cannot wait for the command: {error}")),
    }
}

/// Waits until the command has ended or the listener has closed the pipe.
fn until_over(pid: Pid) {
    let Ok(over) = end_of(pid) else { return };
    let listener = std::io::stdin();
    loop {
        let mut polled = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&over, PollFlags::IN)];
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// Returns a pipe that closes when the child `pid` has ended. The child is not waited for, so its
/// process id stays its own.
fn end_of(pid: Pid) -> io::Result<PipeReader> {
    let (over, writer) = io::pipe()?;
    let end = move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
        drop(writer);
    };

    std::thread::Builder::new().spawn(end)?;
    Ok(over)
}

/// Makes this process the parent of all its descendants whose parents have ended.
#[cfg(target_os = "linux")]
pub fn become_subreaper() -> io::Result<()> {
    use rustix::process::{getpid, set_child_subreaper};

    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Does nothing, because this system has no subreapers: when a process ends, init becomes the
/// parent of its children.
#[cfg(not(target_os = "linux"))]
pub fn become_subreaper() -> io::Result<()> {
    Ok(())
}

/// Kills the processes that a command has left behind. Their parent processes have ended. So the
/// processes are now children of the supervisor or, if the supervisor was killed, of the listener.
/// The children in `spared` belong to no command and are not killed. If the operating system does
/// not permit this program to kill a process, the process goes on.
pub(crate) fn sweep(spared: &[Pid]) {
    for _ in 0..limits::SWEEPS_MAX {
        let mut children = children();
        // All are killed before any is waited for, because one may trace another and delay its end.
        children
            .retain(|child| !spared.contains(child) && kill_process(*child, Signal::KILL).is_ok());
        if children.is_empty() {
            return;
        }

        // A process in an uninterruptible system call may never end, so no wait blocks.
        let mut has_ended = false;
        for child in children {
            has_ended |= matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(Some(_)));
        }
        if !has_ended {
            std::thread::sleep(limits::SWEEP_PAUSE);
        }
    }
}

/// Returns the child processes of this process.
#[cfg(target_os = "linux")]
pub(crate) fn children() -> Vec<Pid> {
    let me = std::process::id();
    let listed =
        std::fs::read_to_string(format!("/proc/self/task/{me}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Returns no processes, because this system does not list the children of a process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn children() -> Vec<Pid> {
    Vec::new()
}

fn ended(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

fn failed(reason: &str) -> ExitCode {
    // Standard error may be closed. The exit code still shows the failure.
    let _ = writeln!(std::io::stderr(), "{reason}");
    ExitCode::from(CANNOT_START)
}
