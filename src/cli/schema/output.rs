//! `organism schema output`: prints the JSON Schema of what a command writes with `--json`.

use std::process::ExitCode;

use super::super::exit::{CommandExit, CommandFailure};
use super::super::output::put;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The command, such as `threads` or `config diff`. Without it, the commands are listed.
    command: Vec<String>,
}

macro_rules! outputs {
    ($($command:literal: $file:literal),* $(,)?) => {
        [$(($command, include_str!(concat!("../../../schemas/json/", $file, ".json")))),*]
    };
}

/// Commands, each with the JSON Schema of its JSON output. If a command writes several lines, the
/// schema describes one line.
const OUTPUTS: [(&str, &str); 43] = outputs![
    "answer": "answer",
    "approvals": "approvals",
    "approve": "approve",
    "backup": "backup",
    "cancel": "cancel",
    "check": "check",
    "config": "config",
    "config diff": "config-diff",
    "diff": "diff",
    "export": "export",
    "fork": "fork",
    "key show": "key-show",
    "listener list": "listener-list",
    "listener test": "listener-test",
    "message": "message",
    "models": "models",
    "pause": "pause",
    "promote": "promote",
    "prompt": "prompt",
    "refuse": "refuse",
    "reload": "reload",
    "repair": "repair",
    "replay": "replay",
    "resume": "resume",
    "retry": "retry",
    "schema describe": "schema-describe",
    "schema example": "schema-example",
    "schema json": "schema-json",
    "schema validate": "schema-validate",
    "search": "search",
    "send": "send",
    "sql": "sql",
    "stats": "stats",
    "tail": "tail",
    "thread": "thread",
    "threads": "threads",
    "try": "try",
    "verify": "verify",
    "workflow diff": "workflow-diff",
    "workflow retry": "workflow-retry",
    "workflow run": "workflow-run",
    "workflow show": "workflow-show",
    "workflow test": "workflow-test",
];

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let wanted = args.command.join(" ");
    if wanted.is_empty() {
        OUTPUTS.iter().try_for_each(|(command, _)| put(&format!("{command}\n")))?;
        return Ok(CommandExit::Done.into());
    }

    let found = OUTPUTS.iter().find(|(command, _)| *command == wanted);
    let Some((_, schema)) = found else {
        let known = OUTPUTS.map(|(command, _)| command).join(", ");
        let text = format!("the output of `{wanted}` has no schema; these have one: {known}");
        return Err(CommandFailure::usage(text).into());
    };
    put(schema)?;
    Ok(CommandExit::Done.into())
}
