//! `organism workflow`: shows, runs, compares and tests workflows.

mod case_from_run;
mod diff;
mod progress;
mod recorded;
mod retry;
mod run;
mod run_drawing;
mod shown_run;
mod terminal;
mod test;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

use crate::config::{self, Config};
use crate::workflow::{self, WorkflowDefinition};

use super::exit::{CommandExit, CommandFailure};
use super::output::put;
use super::startup::ConfigArg;
use diff::DiffArgs;
use retry::RetryArgs;
use run::RunArgs;
use test::CaseArgs;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: WorkflowVerb,
}

#[derive(Debug, Subcommand)]
enum WorkflowVerb {
    /// Draw the goals of a workflow.
    Show(WorkflowShowArgs),
    /// Run a workflow.
    Run(RunArgs),
    /// Show what differs between two definitions, and what that means for runs under way.
    Diff(DiffArgs),
    /// Continue an ended run, and keep the results that this run already has.
    Retry(RetryArgs),
    /// Run test cases, with answers from their files in place of models, programs and people.
    Test(CaseArgs),
}

#[derive(Debug, clap::Args)]
struct WorkflowShowArgs {
    /// Name of the workflow.
    name: String,
    #[command(flatten)]
    config: ConfigArg,
    #[arg(long, value_enum, default_value_t = DrawingFormat::Text)]
    format: DrawingFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DrawingFormat {
    Text,
    Mermaid,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.verb {
        WorkflowVerb::Show(args) => show(&args),
        WorkflowVerb::Run(args) => run::run(&args),
        WorkflowVerb::Diff(args) => diff::run(&args),
        WorkflowVerb::Retry(args) => retry::run(&args),
        WorkflowVerb::Test(args) => test::run(&args),
    }
}

fn show(args: &WorkflowShowArgs) -> anyhow::Result<ExitCode> {
    let config = args.config.load_to_read()?;
    let definition = named(&config, &args.name)?;
    let drawing = match args.format {
        DrawingFormat::Text => workflow::drawing(definition),
        DrawingFormat::Mermaid => workflow::mermaid(definition),
    };
    put(&drawing)?;
    Ok(CommandExit::Done.into())
}

fn named<'c>(config: &'c Config, name: &str) -> anyhow::Result<&'c WorkflowDefinition> {
    let workflows = || config.workflows.iter().map(|workflow| &workflow.definition);
    if let Some(found) = workflows().find(|definition| definition.name.value.as_str() == name) {
        return Ok(found);
    }

    let names: Vec<_> = workflows().map(|definition| definition.name.value.as_str()).collect();
    let help = match config::nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => "the config has none".to_owned(),
        None => format!("the workflows are {}", names.join(", ")),
    };
    let message = format!("no workflow `{name}`; {help}");
    Err(CommandFailure::new(CommandExit::Usage, message).into())
}
