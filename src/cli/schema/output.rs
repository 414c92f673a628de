//! `organism schema output`: prints the JSON Schema of what a command writes with `--json`.

use std::process::ExitCode;

use super::super::exit::{CommandExit, CommandFailure};
use super::super::output::put;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The command, such as `threads`. Without it, the commands with a schema are listed.
    command: Option<String>,
}

macro_rules! outputs {
    ($($command:literal),* $(,)?) => {
        [$(($command, include_str!(concat!("../../../schemas/json/", $command, ".json")))),*]
    };
}

/// Commands and the schemas of their JSON, of each line where a command writes lines.
const OUTPUTS: [(&str, &str); 11] = outputs![
    "answer",
    "approvals",
    "export",
    "message",
    "search",
    "sql",
    "stats",
    "tail",
    "thread",
    "threads",
    "verify",
];

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(wanted) = &args.command else {
        OUTPUTS.iter().try_for_each(|(command, _)| put(&format!("{command}\n")))?;
        return Ok(CommandExit::Done.into());
    };

    let found = OUTPUTS.iter().find(|(command, _)| command == wanted);
    let Some((_, schema)) = found else {
        let known = OUTPUTS.map(|(command, _)| command).join(", ");
        let text = format!("the output of `{wanted}` has no schema; these have one: {known}");
        return Err(CommandFailure::new(CommandExit::Usage, text).into());
    };
    put(schema)?;
    Ok(CommandExit::Done.into())
}
