//! Starts child processes on one permanent OS thread. A launcher program ensures that each child
//! ends when this process ends.
//!
//! The launcher is the `organism` program, run with its hidden subcommand [`VERB`]. It takes these
//! steps:
//!
//! - It leaves the session of the process that started it, and so the terminal of the operator.
//! - It requests a death signal: the kernel will kill the launcher when the thread that started it
//!   ends.
//! - It checks that the process that started it has not ended meanwhile.
//! - It replaces itself by the listener's program, which keeps the process id and the death signal,
//!   and gets the original soft limit of open files ([`file_limit`]).

use std::ffi::{OsStr, OsString};
use std::io;
use std::io::ErrorKind::{OutOfMemory, WouldBlock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::program;
use super::{PUMP_VARIABLE, PumpMark};
use crate::children::{self, OwnedChild};
use crate::file_limit;
use crate::ids::ListenerName;
use crate::locks::locked;

/// Hidden subcommand of the `organism` program, used as
/// `launch-listener PARENT PROGRAM ARGUMENTS…`.
pub const VERB: &str = "launch-listener";

/// Hidden subcommand of the `organism` program, used as `start-program PROGRAM ARGUMENTS…`. It
/// replaces itself by the program, which gets the original soft limit of open files.
pub const START_VERB: &str = "start-program";

/// Beginning of the line that the hidden subcommands print if they cannot execute the program. The
/// program's name follows.
pub const START_FAILURE: &str = "organism: cannot start";

/// Maximum time that [`has_verb`] takes to test a program.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Path of this program; set only if this program has the hidden subcommands [`VERB`] and
/// [`START_VERB`].
static OWN: OnceLock<PathBuf> = OnceLock::new();

/// Declares that this program has the hidden subcommands [`VERB`] and [`START_VERB`]. The program
/// can then launch its own listeners.
pub fn use_this_program() {
    // This path leads to the running program even after an update has replaced its file.
    let running = PathBuf::from("/proc/self/exe");
    let own = if running.exists() { Some(running) } else { std::env::current_exe().ok() };
    if let Some(own) = own {
        OWN.get_or_init(|| own);
    }
}

/// Returns the launcher program with its first arguments. Returns `None` if the system is not Linux
/// or no launcher is found. Children may then survive this process.
///
/// The first call may block, because it may run another program to test whether that program is a
/// launcher.
pub(super) fn launcher(named: Option<&Path>) -> Option<(PathBuf, [OsString; 2])> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let program = named.map(Path::to_owned).or_else(|| OWN.get().cloned()).or_else(found)?;
    Some((program, [VERB.into(), std::process::id().to_string().into()]))
}

/// Returns the `organism` program in the folder of this program. If the folder has none, returns
/// the first `organism` program on `PATH`. Returns `None` if no such program is found, or if the
/// found program cannot launch listeners.
fn found() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    static TESTING: Mutex<()> = Mutex::new(());

    // Lock: held during the test, so that listeners that start at the same time test once.
    let _testing = locked(&TESTING);
    if let Some(found) = FOUND.get() {
        return found.clone();
    }

    let mut usable = program::find("organism").ok();
    if let Some(program) = &usable {
        match has_verb(program, thread::Builder::new()) {
            Ok(true) => {}
            Ok(false) => usable = None,
            // Not stored, so that the next start of a listener tests the program again.
            Err(error) => {
                tracing::warn!(
                    "could not test whether {} can launch listeners, so the process of this one \
                     may survive if this program is killed: {error}",
                    program.display()
                );
                return None;
            }
        }
    }

    if usable.is_none() {
        tracing::warn!(
            "processes of listeners may survive if this program is killed: found no `organism` \
             program of this version beside it or on PATH to launch them; install it there, or \
             name it in `launcher`"
        );
    }
    FOUND.get_or_init(|| usable).clone()
}

/// Whether `program` has the hidden subcommand [`VERB`], with which it can launch listeners. To
/// test this, makes `program` launch itself with `--version`. If `program` is the running program,
/// returns false without a test. `builder` starts the thread that waits for the test's end. Returns
/// an error if this thread cannot be started.
fn has_verb(program: &Path, builder: thread::Builder) -> io::Result<bool> {
    let same = |own: PathBuf| own.canonicalize().ok() == program.canonicalize().ok();
    if std::env::current_exe().is_ok_and(same) {
        return Ok(false);
    }

    // Started before the child, so that no child is left without a thread that waits for it.
    let (started_child, child_to_wait_for) = mpsc::channel::<std::process::Child>();
    let (tell, ended) = mpsc::channel();
    builder.spawn(move || {
        if let Ok(mut child) = child_to_wait_for.recv() {
            tell.send(child.wait()).ok();
        }
    })?;

    let mut command = std::process::Command::new(program);
    command
        .arg(VERB)
        .arg(std::process::id().to_string())
        .arg(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());

    let start = || command.spawn();
    let started = children::spawn(None, start, |child| Some(std::process::Child::id(child)));
    let (child, _owned) = match started {
        Ok(started) => started,
        // The system has no room for a process now. The next listener tests the program again.
        Err(error) if matches!(error.kind(), WouldBlock | OutOfMemory) => return Err(error),
        Err(_) => return Ok(false),
    };

    let pid = Pid::from_child(&child);
    started_child.send(child).ok();
    let status = ended.recv_timeout(PROBE_TIMEOUT).or_else(|_| {
        // The program did something else. It has not been waited for, so its process id cannot have
        // been reused.
        let _ = kill_process(pid, Signal::KILL);
        ended.recv()
    });

    Ok(status.is_ok_and(|status| status.is_ok_and(|status| status.success())))
}

/// Returns a command that runs `program` without the launcher. If this program has raised its soft
/// limit of open files, the command restores the limit first.
pub fn direct(program: impl AsRef<OsStr>) -> Command {
    // On a system other than Linux, an update may have removed the file of this program.
    let own = OWN.get().filter(|own| file_limit::original().is_some() && own.exists());
    match own {
        Some(own) => {
            let mut command = Command::new(own);
            command.arg(START_VERB).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Starts a child process with pipes for its standard streams. Dropping the returned child kills
/// its process. `mark` is the pump to which the process belongs. `listener` is the listener that
/// the process runs, if any. The caller must ensure that the child gets a process group of its own,
/// and that `command` runs the launcher or comes from [`direct`].
pub fn spawn_piped(
    command: &mut Command,
    mark: Option<&PumpMark>,
    listener: Option<&ListenerName>,
) -> io::Result<(Child, OwnedChild)> {
    if let Some(mark) = mark {
        command.env(PUMP_VARIABLE, mark.to_string());
    }
    if let Some(limit) = file_limit::original() {
        command.env(file_limit::VARIABLE, limit.to_string());
    }

    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    children::spawn(listener, || command.spawn(), Child::id)
}

type LaunchJob = Box<dyn FnOnce() + Send>;

/// Sender to the permanent OS thread that starts all children; `None` until this thread runs.
type LaunchThread = Mutex<Option<mpsc::Sender<LaunchJob>>>;

/// Returns the sender to the permanent OS thread. Starts this thread with `builder` if it does not
/// run yet. If the start fails, the next call tries it again.
fn launch_thread(
    launching: &LaunchThread,
    builder: thread::Builder,
) -> io::Result<mpsc::Sender<LaunchJob>> {
    // Lock: held while the thread is started, so that there is only one such thread.
    let mut launching = locked(launching);
    if let Some(jobs) = &*launching {
        return Ok(jobs.clone());
    }

    // Needs no bound: each instance waits for its job, so there are at most as many jobs as
    // instances.
    let (jobs, inbox) = mpsc::channel::<LaunchJob>();
    let run = move || {
        for job in inbox {
            // The thread must outlive every child. So a panic ends only its job, and the caller of
            // the job gets no result.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    };
    builder.spawn(run).map_err(|error| {
        io::Error::new(error.kind(), format!("starting the thread that starts listeners: {error}"))
    })?;
    *launching = Some(jobs.clone());
    Ok(jobs)
}

/// Runs `start` on the permanent OS thread that starts all children. `start` can use the Tokio
/// runtime of the caller.
///
/// The thread must be permanent, because the kernel kills a child when the *thread* that started it
/// ends. A thread of a runtime may end at any time.
pub(super) async fn on_launch_thread<T: Send + 'static>(
    start: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    static LAUNCHING: LaunchThread = Mutex::new(None);
    let jobs = launch_thread(&LAUNCHING, thread::Builder::new().name("launch".to_owned()))?;

    let runtime = Handle::current();
    let (result, done) = oneshot::channel();
    let job = move || {
        let _runtime = runtime.enter();
        // If the caller has left, the result is dropped here, which ends the child.
        drop(result.send(start()));
    };

    let failed = || io::Error::other("the thread that starts listeners has failed");
    jobs.send(Box::new(job)).map_err(|_| failed())?;
    done.await.map_err(|_| failed())
}

/// Carries out the hidden subcommand [`VERB`]: replaces this process by `program`. On Linux, first
/// requests that the kernel kill this process when its parent thread ends. If the process `parent`
/// has already ended, the request comes too late, and the function returns `Ok` without running
/// `program`.
///
/// # Errors
///
/// Returns an error if this process already leads a process group, if the kernel refuses the
/// request, or if the program cannot be executed.
pub fn become_listener(parent: u32, program: &OsString, arguments: &[OsString]) -> io::Result<()> {
    // With the terminal of its parent, a listener could type commands into the operator's shell.
    rustix::process::setsid()?;

    #[cfg(target_os = "linux")]
    {
        use rustix::process::set_parent_process_death_signal;
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }

    // The kernel sends no signal for a parent that ended before the signal was requested.
    let own_parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if own_parent.and_then(|pid| u32::try_from(pid).ok()) != Some(parent) {
        return Ok(());
    }

    Err(become_program(program, arguments))
}

/// Carries out the hidden subcommand [`START_VERB`]: replaces this process by `program`, with the
/// original soft limit of open files. Returns only if the program cannot be executed.
pub fn become_program(program: &OsString, arguments: &[OsString]) -> io::Error {
    use std::os::unix::process::CommandExt as _;

    file_limit::restore();
    let mut command = std::process::Command::new(program);
    command.args(arguments).env_remove(file_limit::VARIABLE).exec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_that_starts_listeners_is_started_again_after_a_failure() {
        let launching = LaunchThread::default();
        // No system has room for this stack.
        let without_room = thread::Builder::new().stack_size(1 << 50);
        let error = launch_thread(&launching, without_room).unwrap_err();
        assert!(error.to_string().contains("starting the thread"), "{error}");

        let (sender, receiver) = mpsc::channel();
        let jobs = launch_thread(&launching, thread::Builder::new()).unwrap();
        jobs.send(Box::new(move || sender.send("done").unwrap())).unwrap();
        assert_eq!(receiver.recv(), Ok("done"));
    }

    #[test]
    fn a_program_whose_test_gets_no_thread_is_tested_again() {
        // No system has room for this stack.
        let without_room = thread::Builder::new().stack_size(1 << 50);
        has_verb(Path::new("true"), without_room).unwrap_err();
        assert!(has_verb(Path::new("true"), thread::Builder::new()).unwrap());
    }
}
