//! The only writer of standard output and standard error. If a reader closes its pipe, or a write
//! fails, the command writes no more output, but still completes its work.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal as _, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{CommandExit, named_config};
use crate::mutant::mutant;
use crate::xml::invisible_characters::{visible, visible_json};

/// Whether the reader of standard output has closed the pipe, or a write to it has failed.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// The first error in writing to standard output. A pipe that its reader has closed is no error.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Writes to standard output, as [`put_line`] does. Always returns `Ok`, so that callers can chain
/// it with functions that can fail.
pub fn put(text: &str) -> anyhow::Result<()> {
    write(text);
    Ok(())
}

/// Writes a line to standard output. Drops the line if an earlier write failed, so that the command
/// can continue its work. [`finish`] reports the error at the end of the command.
pub fn put_line(line: Arguments<'_>) {
    write(&format!("{line}\n"));
}

/// Writes a line of text from a record, such as a payload. For a terminal, each character that a
/// screen would hide or interpret is replaced by its code point. Other programs get the text as
/// recorded.
pub fn put_recorded_line(text: &str) {
    if std::io::stdout().is_terminal() {
        put_line(format_args!("{}", visible(text)));
    } else {
        put_line(format_args!("{text}"));
    }
}

/// Writes a line of JSON. For a terminal, each character that a screen would hide or interpret is
/// replaced by its JSON escape, which has the same meaning. Other programs get the JSON as it is.
pub fn put_json_line(json: &str) {
    if std::io::stdout().is_terminal() {
        put_line(format_args!("{}", visible_json(json)));
    } else {
        put_line(format_args!("{json}"));
    }
}

/// Writes a line for people to standard error. Adds the `--config` of this command to the commands
/// that the line recommends.
pub fn note_line(line: Arguments<'_>) {
    let line = line.to_string();
    note(format_args!("{}\n", named_config::with_option(&line)));
}

/// Writes text for people to standard error. Errors are dropped, because they could not be reported
/// anywhere.
pub fn note(text: Arguments<'_>) {
    std::io::stderr().lock().write_fmt(text).ok();
}

/// Whether the reader of standard output has closed the pipe, or a write to it has failed. A
/// command that only produces output can then end.
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Returns the exit code of the process. If `code` is success but standard output had an error,
/// this is [`CommandExit::Unavailable`]. Otherwise, it is `code`.
pub fn finish(code: ExitCode) -> ExitCode {
    let Some(failure) = FAILURE.get() else { return code };
    note(format_args!("organism: standard output is incomplete: {failure}\n"));
    if code == ExitCode::SUCCESS { CommandExit::Unavailable.into() } else { code }
}

/// Writer to standard output for commands that only produce output. Reports a closed pipe as an
/// error, so that the command can end early.
pub struct StdoutWriter;

impl Write for StdoutWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stdout().lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().lock().flush()
    }
}

fn write(text: &str) {
    if is_closed() {
        return;
    }

    let written = StdoutWriter.write_all(text.as_bytes()).and_then(|()| StdoutWriter.flush());
    let Err(error) = written else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        if mutant("end-with-the-reader") {
            std::process::exit(0);
        }
    } else {
        FAILURE.set(error.to_string()).ok();
    }
    CLOSED.store(true, Ordering::Relaxed);
}
