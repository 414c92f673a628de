//! Runs one command at a time under a supervisor, with limits of time and output.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::limits;
use crate::output::CommandOutput;
use crate::supervise::{self, SUPERVISE};

/// Runs commands. All commands of one runner get the same environment and the same time limit.
#[derive(Debug, Clone)]
pub struct CommandRunner {
    /// Path of this listener's own program, which also runs as the supervisor.
    pub supervisor: PathBuf,
    pub environment: Vec<(OsString, OsString)>,
    pub time: Duration,
}

/// The reason why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutcome {
    Exited(i32),
    TimedOut,
    TooMuchOutput,
    Cancelled,
}

#[derive(Debug)]
pub struct FinishedCommand {
    pub outcome: CommandOutcome,
    pub stdout: CommandOutput,
    pub stderr: CommandOutput,
    pub duration: Duration,
}

impl CommandRunner {
    /// Runs a program in `directory` until the program ends or must be stopped. `directory` is an
    /// open handle. `path` is the path by which the directory was opened; it may lead to another
    /// directory by now, so only the handle determines where the program runs. Returns `None` if a
    /// signal killed the supervisor, because it is then not known how the program ended.
    pub fn run(
        &self,
        command: &[String],
        directory: &OwnedFd,
        path: &Path,
        cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Option<FinishedCommand>> {
        let begun = Instant::now();
        let earlier = supervise::children();
        let mut supervisor = Command::new(&self.supervisor);
        supervisor
            .arg(SUPERVISE)
            .args(command)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("PWD", path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = spawn_in(directory, &mut supervisor)?;
        let mut run = RunningCommand {
            stdout: OutputStream::new(child.stdout.take())?,
            stderr: OutputStream::new(child.stderr.take())?,
            child,
            earlier,
        };

        let Some(outcome) = run.until_over(begun + self.time, cancelled)? else { return Ok(None) };
        let stdout = run.stdout.output;
        let stderr = run.stderr.output;
        Ok(Some(FinishedCommand { outcome, stdout, stderr, duration: begun.elapsed() }))
    }
}

/// Starts a process in `directory`. Uses the open handle, because the path could lead elsewhere by
/// now.
#[cfg(target_os = "linux")]
fn spawn_in(directory: &OwnedFd, command: &mut Command) -> io::Result<Child> {
    use std::os::fd::AsRawFd as _;

    command.current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd())).spawn()
}

/// Starts a process in `directory`. Uses the open handle, because the path could lead elsewhere by
/// now. No path of this system names an open directory, so this process itself enters the directory
/// until the start.
#[cfg(not(target_os = "linux"))]
fn spawn_in(directory: &OwnedFd, command: &mut Command) -> io::Result<Child> {
    use std::sync::{Mutex, PoisonError};

    use rustix::process::fchdir;

    // The current directory belongs to the process, so no two threads may change it at once.
    static CURRENT_DIRECTORY: Mutex<()> = Mutex::new(());
    let _alone = CURRENT_DIRECTORY.lock().unwrap_or_else(PoisonError::into_inner);
    let earlier = std::fs::File::open(".")?;
    fchdir(directory)?;
    let spawned = command.spawn();
    fchdir(&earlier)?;
    spawned
}

struct RunningCommand {
    /// The supervisor process. When the listener closes the supervisor's standard input, the
    /// supervisor kills all processes of the command.
    child: Child,
    /// Children that the listener had before the supervisor. They do not belong to the command.
    earlier: Vec<Pid>,
    stdout: OutputStream<std::process::ChildStdout>,
    stderr: OutputStream<std::process::ChildStderr>,
}

impl RunningCommand {
    /// Waits for the end of the command. Stops the command if it exceeds a limit of time or output,
    /// or if the call was cancelled. Returns `None` if a signal killed the supervisor.
    fn until_over(
        &mut self,
        deadline: Instant,
        cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Option<CommandOutcome>> {
        let outcome = loop {
            if let Some(status) = self.look(limits::COMMAND_TICK)? {
                break status.code().map(CommandOutcome::Exited);
            }
            let most = limits::OUTPUT_READ_BYTES_MAX;
            if self.stdout.output.total().max(self.stderr.output.total()) > most {
                break Some(CommandOutcome::TooMuchOutput);
            }
            if Instant::now() >= deadline {
                break Some(CommandOutcome::TimedOut);
            }
            if cancelled() {
                break Some(CommandOutcome::Cancelled);
            }
        };

        if outcome.is_some() {
            self.stop()?;
        }
        // If the supervisor was killed, the command's processes are children of the listener.
        supervise::sweep(&self.earlier);
        Ok(outcome)
    }

    /// Closes the supervisor's standard input and reads the rest of the output. The supervisor then
    /// kills all processes of the command, and ends. If it has not ended after `STOP_GRACE`, kills
    /// the supervisor's process group.
    fn stop(&mut self) -> io::Result<()> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + limits::STOP_GRACE;
        while Instant::now() < deadline {
            let ended = self.look(limits::COMMAND_TICK)?.is_some();
            if ended && self.stdout.is_over() && self.stderr.is_over() {
                return Ok(());
            }
        }

        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The signal fails only if the group has already ended.
            let _ = kill_process_group(group, Signal::KILL);
        }

        self.child.wait().map(drop)
    }

    /// Waits at most `patience` for output, and reads the available output. Returns the exit status
    /// if the supervisor has ended, otherwise `None`.
    fn look(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        // When both outputs are closed, only the end of the process remains to be seen.
        let silent = self.stdout.is_over() && self.stderr.is_over();
        let patience = if silent { patience / 10 } else { patience };
        let mut polled: Vec<PollFd<'_>> =
            self.stdout.polled().chain(self.stderr.polled()).collect();
        let wait = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        match poll(&mut polled, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }

        self.stdout.read()?;
        self.stderr.read()?;
        self.child.try_wait()
    }
}

/// The standard output or the standard error of a command.
struct OutputStream<R> {
    from: Option<R>,
    output: CommandOutput,
}

impl<R: Read + AsFd> OutputStream<R> {
    fn new(from: Option<R>) -> io::Result<Self> {
        if let Some(from) = &from {
            fcntl_setfl(from, OFlags::NONBLOCK)?;
        }
        Ok(Self { from, output: CommandOutput::default() })
    }

    fn is_over(&self) -> bool {
        self.from.is_none()
    }

    fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.from.iter().map(|from| PollFd::new(from, PollFlags::IN))
    }

    /// Reads one chunk of the available output.
    fn read(&mut self) -> io::Result<()> {
        let Some(from) = &mut self.from else { return Ok(()) };
        let mut chunk = [0; 32 << 10];
        match from.read(&mut chunk) {
            Ok(0) => self.from = None,
            Ok(count) => self.output.push(chunk.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }

        Ok(())
    }
}
