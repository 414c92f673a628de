//! Hidden command whose process becomes that of a listener and ends with the pump.

use std::ffi::OsString;
use std::process::ExitCode;

use super::CommandExit;
use super::exit::CommandFailure;
use crate::bus::process::become_listener;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Process id of the pump.
    parent: u32,
    program: OsString,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { parent, program, arguments } = args;
    let failed = |error| {
        let program = program.display();
        CommandFailure::new(CommandExit::Unavailable, format!("cannot start `{program}`: {error}"))
    };

    become_listener(parent, &program, &arguments).map_err(failed)?;
    Ok(CommandExit::Unavailable.into())
}
