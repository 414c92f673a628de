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
mod undo_list;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::config::{self, Config};
use crate::ids::ThreadId;
use crate::schema::ShortType;
use crate::workflow::{self, WorkflowDefinition, WorkflowInput};

use super::exit::{CommandExit, CommandFailure};
use super::journal_target::JournalTarget;
use super::output::put;
use super::render::{RenderOutput, clean, put_json, table};
use super::startup::ConfigArg;
use diff::DiffArgs;
use retry::RetryArgs;
use run::RunArgs;
use test::CaseArgs;

pub use terminal::write_above as write_log;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: WorkflowVerb,
}

#[derive(Debug, Subcommand)]
enum WorkflowVerb {
    /// Draw the goals of a workflow, list the workflows, or list what an undo of a run would cover.
    Show(WorkflowShowArgs),
    /// Run a workflow.
    Run(RunArgs),
    /// Show what differs between two definitions, and what that means for runs under way.
    Diff(DiffArgs),
    /// Continue an ended run, and keep the results of the goals that have ended.
    Retry(RetryArgs),
    /// Run test cases, with answers from their files in place of models, programs and people.
    Test(CaseArgs),
}

#[derive(Debug, clap::Args)]
struct WorkflowShowArgs {
    /// Name of the workflow, or the thread of a run. Without it, the workflows of the config are
    /// listed.
    name: Option<String>,
    #[command(flatten)]
    config: ConfigArg,
    /// Form of the drawing. Default: text.
    #[arg(long, value_enum, requires = "name")]
    format: Option<DrawingFormat>,
    /// Write one line of JSON for each workflow or call of the list.
    #[arg(long, conflicts_with = "format")]
    json: bool,
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
    let Some(name) = &args.name else { return list(&config, args.json) };
    let mut names = config.workflows.iter().map(|workflow| &workflow.definition.name.value);
    let is_workflow = names.any(|known| known.as_str() == name);
    let thread = ThreadId::parse(name).ok().filter(|_| !is_workflow && args.format.is_none());
    if let Some(thread) = thread {
        let place = JournalTarget { config: args.config.config.clone(), data: None, state: None };
        return undo_list::show(&config, &place, &thread, args.json);
    }

    let definition = named(&config, name)?;
    if args.json {
        let message = "--json is for lists: of the workflows, or of the calls of a run";
        return Err(CommandFailure::usage(message.to_owned()).into());
    }
    let drawing = match args.format {
        None | Some(DrawingFormat::Text) => workflow::drawing(definition),
        Some(DrawingFormat::Mermaid) => workflow::mermaid(definition),
    };
    put(&drawing)?;
    Ok(CommandExit::Done.into())
}

fn list(config: &Config, is_json: bool) -> anyhow::Result<ExitCode> {
    let workflows = || config.workflows.iter().map(|workflow| &workflow.definition);
    if is_json {
        workflows().map(json_line).try_for_each(|line| put_json(&line))?;
        return Ok(CommandExit::Done.into());
    }
    let rows: Vec<_> = workflows().map(row).collect();
    if rows.is_empty() {
        note!("the config has no workflow; [workflows.NAME] declares one");
        return Ok(CommandExit::Done.into());
    }
    put(&table(
        &RenderOutput::stdout(false),
        &["workflow", ">goals", "input", "description"],
        &rows,
    ))?;
    note!("`organism workflow show NAME` draws one");
    Ok(CommandExit::Done.into())
}

fn row(definition: &WorkflowDefinition) -> Vec<String> {
    let WorkflowDefinition { name, description, goals, .. } = definition;
    let input = inputs(definition)
        .map_or_else(|| workflow::input_name(definition).to_string(), |inputs| inputs.join(", "));
    vec![name.value.to_string(), goals.len().to_string(), input, clean(description)]
}

fn json_line(definition: &WorkflowDefinition) -> Value {
    let WorkflowDefinition { name, description, goals, .. } = definition;
    json!({
        "workflow": name.value.as_str(),
        "goals": goals.len(),
        "payload": workflow::input_name(definition).to_string(),
        "inputs": inputs(definition),
        "description": description,
    })
}

/// Returns the names of a workflow's inputs. Returns `None` if the workflow's input is a payload
/// that a schema declares.
fn inputs(definition: &WorkflowDefinition) -> Option<Vec<&str>> {
    match &definition.input {
        WorkflowInput::Types(ShortType::Fields(fields)) => {
            Some(fields.iter().map(|field| field.name.as_str()).collect())
        }
        WorkflowInput::Types(_) => Some(Vec::new()),
        WorkflowInput::Payload(_) => None,
    }
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
    Err(CommandFailure::usage(message).into())
}
