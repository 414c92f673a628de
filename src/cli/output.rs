//! The only writer of standard output and standard error. If a reader closes its pipe, or a write
//! fails, the command writes no more output, but still completes its work.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::render::show_hidden;
use super::{CommandExit, named_config, stderr_queue};
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
    put_line(format_args!("{}", recorded(text)));
}

/// Returns text from a record in the form in which [`put_recorded_line`] writes it.
pub fn recorded(text: &str) -> Cow<'_, str> {
    if std::io::stdout().is_terminal() { Cow::Owned(visible(text)) } else { Cow::Borrowed(text) }
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
/// that the line recommends. The line may contain text from a payload or from the command line.
/// Therefore, each character that a screen would hide or interpret is replaced by its code point.
pub fn note_line(line: Arguments<'_>) {
    let line = line.to_string();
    note(format_args!("{}\n", show_hidden(&named_config::with_option(&line))));
}

/// Writes text for people to standard error without replacing characters. Drops errors, because
/// there is no place to report them.
pub fn note(text: Arguments<'_>) {
    match stderr_queue::started() {
        Some(queue) => queue.write(text.to_string()),
        None => drop(std::io::stderr().lock().write_fmt(text)),
    }
}

/// Whether output to `stream` has colours. True if `stream` is a terminal that can show colours,
/// and `NO_COLOR` is not set.
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    is_wanted && !is_dumb() && stream.is_terminal()
}

/// Whether the variable `TERM` states that the terminal cannot show colours or move its cursor.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

/// Whether the reader of standard output has closed the pipe, or a write to standard output has
/// failed. If true, a command that only produces output can end.
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Returns the exit code of the process. This is [`CommandExit::Unavailable`] if `code` is success,
/// but an error occurred on standard output. Otherwise, it is `code`.
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

/// Writer of records to a terminal. Writes whole lines, and replaces each character that a screen
/// would hide or interpret.
pub struct VisibleWriter {
    /// Function that replaces the hidden characters in the lines of the output. It gets the lines
    /// in their order.
    visible: Box<dyn FnMut(&str) -> String>,
    /// The part of a line that is not written yet.
    line: Vec<u8>,
}

impl VisibleWriter {
    pub fn new(visible: Box<dyn FnMut(&str) -> String>) -> Self {
        Self { visible, line: Vec::new() }
    }
}

impl Write for VisibleWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if bytes.contains(&b'\n') {
            let rest = self.line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines = self.line.drain(..rest).collect::<Vec<_>>();
            let shown = (self.visible)(&String::from_utf8_lossy(&lines));
            StdoutWriter.write_all(shown.as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let rest = std::mem::take(&mut self.line);
        let shown = (self.visible)(&String::from_utf8_lossy(&rest));
        StdoutWriter.write_all(shown.as_bytes())?;
        StdoutWriter.flush()
    }
}

fn write(text: &str) {
    if !is_closed() {
        note_written(StdoutWriter.write_all(text.as_bytes()));
    }
}

/// Flushes standard output. Records an error of the flush, or of the preceding write, whose result
/// is `written`. [`finish`] reports the error at the end of the command.
pub fn note_written(written: std::io::Result<()>) {
    let Err(error) = written.and_then(|()| StdoutWriter.flush()) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        if mutant("end-with-the-reader") {
            std::process::exit(0);
        }
    } else {
        FAILURE.set(error.to_string()).ok();
    }
    CLOSED.store(true, Ordering::Relaxed);
}
