//! Hidden commands that an organism runs in child processes, for example once for each start of a
//! listener. These commands parse no options and start no logging, because both would take longer
//! than the command itself.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use super::CommandExit;
use super::output::StdoutWriter;
use crate::bus::process::{
    LAUNCH_VERB, START_FAILURE, START_VERB, become_listener, become_program,
};
use crate::config::missing_interpreter;
use crate::schema::{COMPILE_ARGUMENTS, serve_compiler};

/// Runs the hidden command in the arguments of this process. Returns `None` if the arguments
/// contain no hidden command.
pub fn run() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let exit = match arguments.as_slice() {
        [verb, parent, program, arguments @ ..] if verb == LAUNCH_VERB => {
            let parent = parent.to_str()?.parse().ok()?;
            report_start(program, become_listener(parent, program, arguments).err())
        }
        [verb, program, arguments @ ..] if verb == START_VERB => {
            report_start(program, Some(become_program(program, arguments)))
        }
        arguments if arguments == COMPILE_ARGUMENTS => compile(),
        _ => return None,
    };
    Some(exit.into())
}

/// Prints the error for which this process was not replaced by `program`. The error is `None` if
/// the pump that started this process has ended.
fn report_start(program: &OsString, error: Option<std::io::Error>) -> CommandExit {
    let shown = program.display();
    if let Some(error) = error {
        // The kernel reports a missing interpreter as if the program itself were missing.
        let is_missing = error.kind() == ErrorKind::NotFound;
        let current = Path::new(".");
        match missing_interpreter(Path::new(program), current).filter(|_| is_missing) {
            Some(interpreter) => note!(
                "{START_FAILURE} `{shown}`: its first line names {interpreter}, which is \
                 missing"
            ),
            None => note!("{START_FAILURE} `{shown}`: {error}"),
        }
    }
    CommandExit::Unavailable
}

/// Compiles the schemas that the parent process sends on standard input, and writes the results to
/// standard output.
fn compile() -> CommandExit {
    match serve_compiler(std::io::stdin().lock(), StdoutWriter) {
        Ok(()) => CommandExit::Done,
        Err(error) => {
            note!("organism: cannot compile schemas for another process: {error}");
            CommandExit::Unavailable
        }
    }
}
