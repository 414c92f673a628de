//! One child process of a listener. The child starts in its own process group, its standard error
//! is logged, and every process that the child started ends together with the child.

use std::io;
use std::ops::ControlFlow;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::net::unix::pipe;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::blocking_work;
use crate::bus::nats::endpoint_variables::ENDPOINT_VARIABLES;
use crate::children::{self, OwnedChild};
use crate::ids::ListenerName;
use crate::limits;
use crate::locks::locked;
use crate::trace::TraceParent;
use crate::xml::invisible_characters::visible;

use super::{Options, launch, program};

/// Maximum time to wait for the last lines that an ended child has written to its standard error.
/// The time is limited, because a descendant of the child may keep the standard error open.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(200);

/// Number of bytes that are read from a child's standard error at once.
const STDERR_READ_BYTES: usize = 4 << 10;

/// Number of bytes that a pipe can contain, unless its capacity was changed.
const PIPE_BYTES: usize = 64 << 10;

/// Beginnings of lines that some programs write after the reason of their end: Node.js, Rust, and
/// `env` for a first line that ends in a carriage return.
const TRAILERS: [&str; 4] = [
    "Node.js v",
    "(Use `node --trace-uncaught",
    "note: ",
    "/usr/bin/env: use -[v]S to pass options",
];

#[derive(Debug)]
pub(super) struct Child {
    process: tokio::process::Child,
    /// The child's entry in the register of child processes. While the entry exists,
    /// [`reap_orphans`](crate::children::reap_orphans) does not collect the child's exit code. The
    /// entry must be dropped last, so this field stands after `process`: Rust drops fields in the
    /// order of their declaration.
    _owned: OwnedChild,
    /// Process group of the child; `None` once the group was killed.
    group: Option<Pid>,
    listener: ListenerName,
    instance: usize,
    /// The task that logs what the child writes to its standard error.
    logging: Option<JoinHandle<()>>,
    /// The child's standard error, shared with the task that reads it.
    stderr: Arc<Stderr>,
}

/// The standard error of a child, and the lines that were read from it.
#[derive(Debug)]
struct Stderr {
    pipe: pipe::Receiver,
    lines: Mutex<StderrLines>,
}

/// Lines of a child's standard error.
#[derive(Debug)]
struct StderrLines {
    listener: ListenerName,
    instance: usize,
    /// The line whose end is not read yet, cut to [`limits::STDERR_LINE_BYTES_MAX`].
    unfinished: Vec<u8>,
    /// The last line since the child's latest answer, or since the child's start if there is no
    /// answer yet. A line for which [`is_detail`] is true replaces no other line.
    last: String,
    /// Whether the latest lines are `Caused by:` and the indented causes that programs in Rust
    /// write after it.
    is_in_causes: bool,
    /// Trace context of the child's current delivery; `None` if the delivery has none.
    about: Option<TraceParent>,
}

/// Standard input and output of a child.
pub(super) type Pipes = (ChildStdin, ChildStdout);

/// Returns the number of bytes in the standard input of a child that the child has not read.
/// Returns 0 if the system does not state the number.
pub(super) fn unread_bytes(stdin: &ChildStdin) -> u64 {
    rustix::io::ioctl_fionread(stdin).unwrap_or_default()
}

/// Whether a child has read nothing of its standard input since its start, for example because the
/// start takes long. `sent_bytes` is the number of bytes that were written to this input. False if
/// nothing was written, or if the input is closed.
pub(super) fn has_read_nothing(stdin: Option<&ChildStdin>, sent_bytes: u64) -> bool {
    let unread = stdin.map_or(0, unread_bytes);
    unread > 0 && unread == sent_bytes
}

/// Reason why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error(transparent)]
    NotFound(#[from] program::ProgramNotFound),
    #[error("cannot start `{program}`: {source}")]
    Failed { program: String, source: io::Error },
}

impl Child {
    pub async fn start(
        options: &Arc<Options>,
        instance: usize,
    ) -> Result<(Self, Pipes), SpawnError> {
        let own = Arc::clone(options);
        let started = launch::on_launch_thread(move || Self::spawn(&own, instance)).await;
        started.map_err(|source| {
            let program = options.command.first().cloned().unwrap_or_default();
            SpawnError::Failed { program, source }
        })?
    }

    fn spawn(options: &Options, instance: usize) -> Result<(Self, Pipes), SpawnError> {
        let mut command_line = options.command.iter();
        let program = command_line.next().map_or("", String::as_str);
        let path = program::find(program)?;
        let mut command = match launch::launcher(options.launcher.as_deref()) {
            Some((launcher, arguments)) => {
                let mut command = Command::new(launcher);
                command.args(arguments).arg(path);
                command
            }
            None => {
                let mut command = launch::direct(path);
                // A group of its own keeps the child from the terminal's signals: an interrupt
                // drains the organism and must not kill its processes at once. The launcher makes
                // a session of its own instead.
                command.process_group(0);
                command
            }
        };

        let hidden = options.withheld.iter().map(String::as_str);
        for name in hidden.chain(ENDPOINT_VARIABLES) {
            command.env_remove(name);
        }

        command
            .args(command_line)
            .envs(options.env.iter().map(|(key, value)| (key, value)))
            .env("ORGANISM_LISTENER", options.listener.as_str());
        if let Some(directory) = &options.working_dir {
            command.current_dir(directory);
        }

        let failed = |source| SpawnError::Failed { program: program.to_owned(), source };
        let mark = options.pump.as_ref();
        let started = launch::spawn_piped(&mut command, mark, Some(&options.listener));
        let (mut process, owned) = started.map_err(failed)?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take();
        let stderr = process.stderr.take();
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(failed(io::Error::other("a pipe is missing")));
        };

        let listener = options.listener.clone();
        let lines = Mutex::new(StderrLines {
            listener: listener.clone(),
            instance,
            unfinished: Vec::new(),
            last: String::new(),
            is_in_causes: false,
            about: None,
        });
        let pipe = stderr.into_owned_fd().and_then(pipe::Receiver::from_owned_fd);
        let stderr = Arc::new(Stderr { pipe: pipe.map_err(failed)?, lines });
        let logging = Some(tokio::spawn(log_lines(Arc::clone(&stderr))));
        let group = process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let child = Self { process, _owned: owned, group, listener, instance, logging, stderr };
        Ok((child, (stdin, stdout)))
    }

    /// Sets the trace context with which later lines of the child's standard error are logged.
    pub fn set_log_trace(&self, trace: Option<TraceParent>) {
        locked(&self.stderr.lines).about = trace;
    }

    /// Reads and logs the lines that the child has written so far, and then forgets the last line.
    /// Call this method when the child has answered a delivery: lines about this delivery do not
    /// explain why the child ends later.
    pub fn forget_last_line(&self) {
        // The task that logs the lines finds an end of the pipe itself.
        let _ = self.stderr.read_available();
        let mut lines = locked(&self.stderr.lines);
        lines.end_line();
        lines.last.clear();
    }

    /// Returns when the process has ended, even if another process holds its pipes.
    pub async fn exited(&mut self) {
        // An error of the wait is described by `gone`.
        let _ = self.process.wait().await;
    }

    /// Ends a child whose standard input is closed. Takes these steps:
    /// - Waits at most [`limits::EXIT_GRACE`] for the child's exit.
    /// - If the child still runs, sends SIGTERM to its process group, and waits once more, for at
    ///   most the same time.
    /// - Kills all processes of the group that still run.
    ///
    /// Returns a description of the child's end, as [`Self::gone`] does.
    pub async fn end(&mut self) -> String {
        let listener = &self.listener;
        let instance = self.instance;
        let exited = timeout(limits::EXIT_GRACE, self.process.wait()).await;
        if exited.is_ok() && children::is_subreaper() {
            // Zombies of the group are collected first, because a zombie is no process that is left
            // running.
            blocking_work::start(&Handle::current(), children::reap_orphans).await.ok();
        }
        if exited.is_ok() && self.group.is_some_and(|group| test_kill_process_group(group).is_ok())
        {
            tracing::warn!(
                %listener, instance,
                "the process exited and left processes in its group, which are killed"
            );
        }

        if exited.is_err() {
            let waited = limits::EXIT_GRACE;
            tracing::info!(
                %listener, instance, ?waited,
                "the process did not exit when its input was closed; sending SIGTERM"
            );
            self.signal(Signal::TERM);
            // `gone` finds out whether the child has obeyed the signal.
            let _ = timeout(limits::EXIT_GRACE, self.process.wait()).await;
        }

        self.gone(Duration::ZERO).await
    }

    /// Kills the child and every process that it started.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.gone(limits::EXIT_GRACE).await;
    }

    /// Waits at most `patience` for the child's exit, and then kills all processes of the child's
    /// process group that still run. Returns a description of the child's end, with the last line
    /// of its standard error, if any.
    pub async fn gone(&mut self, patience: Duration) -> String {
        let how = match timeout(patience, self.process.wait()).await {
            Ok(Ok(status)) => describe(status),
            Ok(Err(error)) => format!("its exit was lost: {error}"),
            Err(_) => "it closed its pipes and was killed".to_owned(),
        };

        self.sweep();
        // The child has ended, or has been sent SIGKILL.
        let _ = timeout(limits::EXIT_GRACE, self.process.wait()).await;
        if let Some(logging) = self.logging.take() {
            let abort = logging.abort_handle();
            if timeout(LAST_WORDS_WAIT, logging).await.is_err() {
                abort.abort();
            }
        }

        let last = &locked(&self.stderr.lines).last;
        if last.is_empty() { how } else { format!("{how}; last line on standard error: {last}") }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Signalling fails if the group has no members any more, which is the desired state.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Kills the child's process group. Call this function soon after the child's exit: once the
    /// group has no members, the system may give its id to another group, and this function would
    /// kill that group.
    fn sweep(&mut self) {
        self.signal(Signal::KILL);
        self.group = None;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.sweep();
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Logs the lines that a child writes to its standard error, until the end of this stream.
async fn log_lines(stderr: Arc<Stderr>) {
    while stderr.pipe.readable().await.is_ok() && stderr.read_available().is_continue() {
        // A pipe that is always readable must not keep a thread of the runtime from other tasks.
        tokio::task::yield_now().await;
    }
    locked(&stderr.lines).end_line();
}

impl Stderr {
    /// Reads the bytes that the pipe contains now, and logs the lines that end in them. Never
    /// waits. The number of reads is limited, because the child may write without a pause. Returns
    /// [`ControlFlow::Break`] at the end of the stream.
    fn read_available(&self) -> ControlFlow<()> {
        let mut bytes = [0; STDERR_READ_BYTES];
        // The lock also keeps the reads of two callers in the order of their bytes.
        let mut lines = locked(&self.lines);
        for _ in 0..PIPE_BYTES / STDERR_READ_BYTES {
            match self.pipe.try_read(&mut bytes) {
                Ok(0) => return ControlFlow::Break(()),
                Ok(count) => lines.take(bytes.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }
}

impl StderrLines {
    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = limits::STDERR_LINE_BYTES_MAX.saturating_sub(self.unfinished.len());
            self.unfinished.extend(text.iter().take(room));
            if text.len() < part.len() {
                self.end_line();
            }
        }
    }

    /// Logs the current line, and begins the next one.
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.unfinished);
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return;
        }

        // The log is read on terminals, which must not interpret what a listener writes.
        let line = String::from_utf8_lossy(line);
        let text = visible(&line);
        let Self { listener, instance, .. } = self;

        match self.about {
            None => tracing::info!(target: "listener", %listener, instance, "{text}"),
            Some(about) => {
                let trace = about.trace_id();
                let span = about.span();
                tracing::info!(target: "listener", %listener, instance, trace, %span, "{text}");
            }
        }

        let is_cause = self.is_in_causes && indentation(&line) > 0;
        self.is_in_causes = is_cause || line == "Caused by:";
        if is_cause && !self.last.is_empty() {
            self.last.push_str(": ");
            self.last.push_str(without_number(text.trim_start()));
            self.last = self.last.chars().take(limits::LAST_STDERR_LINE_CHARS_MAX).collect();
            return;
        }
        // Some programs indent every line of their log, and details of a line still further.
        let depth = indentation(&line);
        let is_next = (1..=indentation(&self.last)).contains(&depth);
        let is_next = is_next && !is_detail(line.trim_start());
        if is_detail(&line) && !self.last.is_empty() && !is_next {
            return;
        }
        self.last.clear();
        self.last.extend(text.chars().take(limits::LAST_STDERR_LINE_CHARS_MAX));
    }
}

/// Whether a line of a standard error only adds to another line, and so does not state why a
/// program ends. True for:
/// - an indented line, such as a stack frame. A line that begins with `|` after the indentation may
///   be an exception of a group in Python.
/// - a heading, such as `Traceback (most recent call last):`,
/// - a line without letters and digits,
/// - a line that begins as one of [`TRAILERS`].
fn is_detail(line: &str) -> bool {
    (indentation(line) > 0 && !line.trim_start().starts_with('|'))
        || line.ends_with(':')
        || !line.contains(char::is_alphanumeric)
        || TRAILERS.iter().any(|trailer| line.starts_with(trailer))
}

/// Returns the number of spaces and tabs at the beginning of a line.
fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// Returns one of several causes without its number, such as the text after `1: `.
fn without_number(cause: &str) -> &str {
    let (number, text) = cause.split_once(": ").unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text } else { cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn last(written: &str, expected: &str) {
        let listener = ListenerName::parse("tested").unwrap();
        let mut lines = StderrLines {
            listener,
            instance: 0,
            unfinished: Vec::new(),
            last: String::new(),
            is_in_causes: false,
            about: None,
        };
        lines.take(written.as_bytes());
        lines.end_line();
        assert_eq!(lines.last, expected, "{written}");
    }

    #[test]
    fn the_last_line_is_kept() {
        last("listening\nno database", "no database");
        last("listening\nno database\n\n", "no database");
        last(&"x".repeat(10_000), &"x".repeat(limits::LAST_STDERR_LINE_CHARS_MAX));
        last("", "");
        last(" INFO listening\n WARN no database", " WARN no database");
        last("  ERROR no database\n    at src/main.rs:43\n", "  ERROR no database");
    }

    /// Each text is the end of a real program's log.
    #[test]
    fn lines_that_programs_write_after_an_error_do_not_replace_it() {
        let node = "file:///die.mjs:3\nthrow new Error('boom')\n      ^\n\nError: boom\n    \
                    at file:///die.mjs:3:7\n\nNode.js v20.20.2\n";
        last(node, "Error: boom");
        let of_system = "node:fs:573\n  return binding.open(\n                 ^\n\n\
                         Error: ENOENT: no such file or directory, open 'x'\n    \
                         at Object.openSync (node:fs:573:18) {\n  errno: -2,\n  code: 'ENOENT',\n  \
                         path: 'x'\n}\n\nNode.js v20.20.2\n";
        last(of_system, "Error: ENOENT: no such file or directory, open 'x'");
        let no_error = "die.js:1\nthrow 'boom'\n^\nboom\n(Use `node --trace-uncaught ...` to show \
                        where the exception was thrown)\n\nNode.js v20.20.2\n";
        last(no_error, "boom");
        let panic = "\nthread 'main' (7) panicked at src/main.rs:3:5:\nboom\nnote: run with \
                     `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        last(panic, "boom");
        let backtrace = "thread 'main' (7) panicked at src/main.rs:3:5:\nboom\nstack backtrace:\n   \
                         0: __rustc::rust_begin_unwind\n             \
                         at /rustc/library/std/src/panicking.rs:698:5\nnote: Some details are \
                         omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.\n";
        last(backtrace, "boom");
        let windows = "/usr/bin/env: 'python3\\r': No such file or directory\n/usr/bin/env: use \
                       -[v]S to pass options in shebang lines\n";
        last(windows, "/usr/bin/env: 'python3\\r': No such file or directory");
        let java =
            "Exception in thread \"main\" java.lang.Error: boom\n\tat Die.main(Die.java:3)\n";
        last(java, "Exception in thread \"main\" java.lang.Error: boom");
        let python = "Traceback (most recent call last):\n  File \"die.py\", line 3, in <module>\n    \
                      die()\nValueError: boom\n";
        last(python, "ValueError: boom");
        let rust = "Error: cannot load the index\n\nCaused by:\n    No such file or directory (os \
                    error 2)\n";
        last(rust, "Error: cannot load the index: No such file or directory (os error 2)");
        let of_several =
            "Error: cannot start\n\nCaused by:\n    0: cannot open x\n    1: no file\n";
        last(of_several, "Error: cannot start: cannot open x: no file");
    }

    #[test]
    fn the_last_exception_of_a_group_is_kept() {
        let group = "listening\n  + Exception Group Traceback (most recent call last):\n  |   File \
                     \"die.py\", line 3, in <module>\n  | ExceptionGroup: some (1 sub-exception)\n  \
                     +-+---------------- 1 ----------------\n    | ValueError: boom\n    \
                     +------------------------------------\n";
        last(group, "    | ValueError: boom");
    }

    #[test]
    fn a_detail_is_kept_if_nothing_else_was_written() {
        last("    at main\n}\n", "    at main");
        last("cannot go on:\n", "cannot go on:");
    }
}
