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
//! - It replaces itself by the listener's program, which keeps the process id and the death signal.

use std::ffi::OsString;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::program;
use super::{PUMP_VARIABLE, PumpMark};
use crate::children::{self, OwnedChild};
use crate::ids::ListenerName;

/// Hidden subcommand of the `organism` program, used as
/// `launch-listener PARENT PROGRAM ARGUMENTS…`.
pub const VERB: &str = "launch-listener";

/// Maximum time that [`has_verb`] takes to test a program.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Path of this program; set only if this program has the hidden subcommand [`VERB`].
static OWN: OnceLock<PathBuf> = OnceLock::new();

/// Declares that this program has the hidden subcommand [`VERB`]. The program can then launch its
/// own listeners.
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
    let look = || {
        let usable = program::find("organism").ok().filter(|program| has_verb(program));
        if usable.is_none() {
            tracing::warn!(
                "processes of listeners may survive if this program is killed: found no `organism` \
                 program of this version beside it or on PATH to launch them; install it there, or \
                 name it in `launcher`"
            );
        }
        usable
    };

    FOUND.get_or_init(look).clone()
}

/// Whether `program` has the hidden subcommand [`VERB`], with which it can launch listeners. To
/// test this, makes `program` launch itself with `--version`. If `program` is the running program,
/// returns false without a test.
fn has_verb(program: &Path) -> bool {
    let same = |own: PathBuf| own.canonicalize().ok() == program.canonicalize().ok();
    if std::env::current_exe().is_ok_and(same) {
        return false;
    }

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
    let Ok((mut child, _owned)) = started else { return false };

    let pid = Pid::from_child(&child);
    let (tell, ended) = mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait()));
    let status = ended.recv_timeout(PROBE_TIMEOUT).or_else(|_| {
        // The program did something else. It has not been waited for, so its process id cannot have
        // been reused.
        let _ = kill_process(pid, Signal::KILL);
        ended.recv()
    });

    status.is_ok_and(|status| status.is_ok_and(|status| status.success()))
}

/// Starts a child process with pipes for its standard streams. Dropping the returned child kills
/// its process. `mark` is the pump to which the process belongs. `listener` is the listener that
/// the process runs, if any. The caller must ensure that the child gets a process group of its own.
pub fn spawn_piped(
    command: &mut Command,
    mark: Option<&PumpMark>,
    listener: Option<&ListenerName>,
) -> io::Result<(Child, OwnedChild)> {
    if let Some(mark) = mark {
        command.env(PUMP_VARIABLE, mark.to_string());
    }

    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    children::spawn(listener, || command.spawn(), Child::id)
}

type LaunchJob = Box<dyn FnOnce() + Send>;

/// Runs `start` on the permanent OS thread that starts all children. `start` can use the Tokio
/// runtime of the caller.
///
/// The thread must be permanent, because the kernel kills a child when the *thread* that started it
/// ends. A thread of a runtime may end at any time.
pub(super) async fn on_launch_thread<T: Send + 'static>(
    start: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    static THREAD: OnceLock<Option<mpsc::Sender<LaunchJob>>> = OnceLock::new();
    let jobs = THREAD.get_or_init(|| {
        // Needs no bound: each instance waits for its job, so there are at most as many jobs as
        // instances.
        let (jobs, inbox) = mpsc::channel::<LaunchJob>();
        let run = move || {
            for job in inbox {
                // The thread must outlive every child. So a panic ends only its job, and the caller
                // of the job gets no result.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        };
        let thread = std::thread::Builder::new().name("launch".to_owned()).spawn(run);
        thread.ok().map(|_| jobs)
    });

    let runtime = Handle::current();
    let (result, done) = oneshot::channel();
    let job = move || {
        let _runtime = runtime.enter();
        // If the caller has left, the result is dropped here, which ends the child.
        drop(result.send(start()));
    };

    let failed = || io::Error::other("the thread that starts listeners has failed");
    jobs.as_ref().ok_or_else(failed)?.send(Box::new(job)).map_err(|_| failed())?;
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
    use std::os::unix::process::CommandExt as _;

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

    Err(std::process::Command::new(program).args(arguments).exec())
}
