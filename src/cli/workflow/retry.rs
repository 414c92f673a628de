//! `organism workflow retry`: runs goals of an ended run again, and keeps its other results.

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;

use crate::ids::CallId;
use crate::service::{BearerSecret, SubmitRequest};
use crate::workflow::{GoalGraph, GoalId, RunRetry};

use super::super::exit::CommandFailure;
use super::super::journal_target::{JournalTarget, known};
use super::super::startup::{self, ConfigArg};
use super::named;
use super::recorded::{RecordedRun, run_on_record};
use super::shown_run::{RunOutputForm, show_run};

#[derive(Debug, clap::Args)]
pub struct RetryArgs {
    /// The thread of the run.
    run: String,
    #[command(flatten)]
    config: ConfigArg,
    /// Goal to run again, together with every goal that needs this goal. Without this option, the
    /// retry runs only those goals that have not ended.
    #[arg(long, value_name = "GOAL")]
    from: Option<String>,
    /// A key of your choice. Retrying with the same key again returns the recorded output and runs
    /// nothing twice.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// Return as soon as the retry is on record.
    #[arg(long)]
    no_wait: bool,
    /// Show nothing but the output.
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
    /// Write goals and output as JSON lines.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &RetryArgs) -> anyhow::Result<ExitCode> {
    let thread = known(&args.run)?;
    let config = args.config.load_without_keys()?;
    let place = JournalTarget { config: args.config.config.clone(), data: None, state: None };
    let recorded = run_on_record(&place, &thread)?;
    let workflow = &recorded.request.to;
    // A workflow that the config no longer has accepts no call.
    named(&config, workflow.as_str())?;
    let retry = RunRetry { run: CallId(recorded.request.id), from: goal(args, &recorded)? };

    let client = recorded.request.from.clone();
    let client = startup::client(&config, Some(client.as_str()))?;
    let secret = config.secret_of(&client).as_ref().map(BearerSecret::of);
    let submission = SubmitRequest {
        client,
        thread: Some(thread.to_string()),
        suggested: None,
        key: args.key.clone(),
        payload: retry.write(workflow).to_xml().into_bytes(),
        wait: !args.no_wait,
        trace: None,
        secret,
    };
    let definition = recorded.definition()?;
    let output = RunOutputForm { quiet: args.quiet, json: args.json, no_wait: args.no_wait };
    let shown = show_run(config, &definition, Some(recorded), submission, output);
    startup::runtime()?.block_on(shown)
}

/// Returns the goal of `--from`; `None` without the option. Fails if the run's definition has no
/// such goal.
fn goal(args: &RetryArgs, recorded: &RecordedRun) -> anyhow::Result<Option<GoalId>> {
    let Some(text) = &args.from else { return Ok(None) };
    let definition = recorded.definition()?;
    let (graph, _) = GoalGraph::new(&definition);
    let goal = GoalId::parse(text).filter(|goal| graph.number(goal).is_some());
    if goal.is_some() {
        return Ok(goal);
    }

    let names = definition.goals.iter().map(|goal| goal.id.value.as_str());
    let names: Vec<_> = names.collect();
    let help = match crate::config::nearest(text, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", names.join(", ")),
    };
    let message = format!("the definition of the run has no goal `{text}`; {help}");
    Err(CommandFailure::usage(message).into())
}
