//! The one writer of standard output, and the one of standard error. A reader that goes away ends
//! the output and never the work: nothing here stops a command.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::CommandExit;
use crate::mutant::mutant;

/// The reader of standard output has gone.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Why a line could not be written, where its reader was still there.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Writes to standard output. A closed pipe is no error: what follows goes nowhere.
pub fn put(text: &str) -> anyhow::Result<()> {
    Ok(write(text)?)
}

/// Writes a line to standard output, in the middle of work that goes on whatever becomes of it:
/// [`finish`] reports an error.
pub fn put_line(line: Arguments<'_>) {
    if let Err(error) = write(&format!("{line}\n")) {
        // The first one says enough.
        FAILURE.set(error.to_string()).ok();
    }
}

/// Writes text for people to standard error. An error has no place where it could be reported.
pub fn note(text: Arguments<'_>) {
    std::io::stderr().lock().write_fmt(text).ok();
}

/// Whether the reader of standard output has gone.
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// How a command ends that was to end with `code`.
pub fn finish(code: ExitCode) -> ExitCode {
    let Some(failure) = FAILURE.get() else { return code };
    note(format_args!("organism: standard output does not hold everything: {failure}\n"));
    if code == ExitCode::SUCCESS { CommandExit::Unavailable.into() } else { code }
}

/// Standard output for a command whose whole work is its output: it may end at a closed pipe, which
/// is an error of this writer.
pub struct StdoutWriter;

impl Write for StdoutWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stdout().lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().lock().flush()
    }
}

fn write(text: &str) -> std::io::Result<()> {
    if is_closed() {
        return Ok(());
    }
    match StdoutWriter.write_all(text.as_bytes()).and_then(|()| StdoutWriter.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            if mutant("end-with-the-reader") {
                std::process::exit(0);
            }
            CLOSED.store(true, Ordering::Relaxed);
            Ok(())
        }
        other => other,
    }
}
