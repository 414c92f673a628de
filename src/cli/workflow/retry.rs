//! `organism workflow retry`: runs goals of an ended run again, and keeps its other results.

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;

use crate::config::Config;
use crate::ids::CallId;
use crate::organism::JournalRuns;
use crate::service::{BearerSecret, SubmitRequest};
use crate::workflow::{
    GoalGraph, GoalId, RepeatedCalls, RunRetry, UndoRules, UndoSource, WorkflowDefinition,
    called_once, repeated_calls,
};

use super::super::exit::{CommandExit, CommandFailure};
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
    /// retry runs only those goals that have not ended. Such a goal begins anew with all its calls.
    /// An `each` counts as one goal with all its items, and a loop or a choice as one goal with all
    /// goals in it.
    #[arg(long, value_name = "GOAL")]
    from: Option<String>,
    /// Confirm that completed calls may be made a second time. Needed if a goal that begins anew has
    /// made calls to listeners with `attempts = 1`, and these calls were not undone. The retry then
    /// also runs if another retry of the same run was sent at the same time.
    #[arg(long)]
    again: bool,
    /// A key of your choice. Retrying with the same key again returns the recorded output and runs
    /// nothing twice. If the client has `keys_for`, a second retry with the same key is
    /// refused, because the key may have expired.
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
    let mut recorded = run_on_record(&place, &thread)?;
    // A workflow that the config no longer has accepts no call.
    named(&config, recorded.request.to.as_str())?;

    // The same key gets the recorded result only with the same payload. So the retry on record
    // decides which run is named, and not the latest run, which may be that retry itself. A key that
    // can expire names the latest run: if it has expired, the retry must not run again.
    let client = config.contracts.get(&recorded.request.from);
    let keys_expire = client.is_some_and(|client| client.keys_for.is_some());
    let key = args.key.as_deref().filter(|_| !keys_expire);
    let earlier = key.and_then(|key| recorded.go_back_to_retry(key, args.from.as_deref()));
    let definition = recorded.definition()?;
    let retry = match earlier {
        Some(retry) => retry,
        None => {
            let run = CallId(recorded.request.id);
            let retry = RunRetry { run, from: goal(args, &definition)?, again: args.again };
            retry.check_unredacted(u64::MAX, &recorded.messages).map_err(|failure| {
                CommandFailure::usage(format!("nothing was sent: {}", failure.reason))
            })?;
            if !args.again {
                refuse_repeated(&config, &recorded, &definition, &retry)?;
            }
            retry
        }
    };

    let client = startup::client(&config, Some(recorded.request.from.as_str()))?;
    let secret = config.secret_of(&client).as_ref().map(BearerSecret::of);
    let submission = SubmitRequest {
        client,
        thread: Some(recorded.request.thread.to_string()),
        suggested: None,
        key: args.key.clone(),
        payload: retry.write(&recorded.request.to).to_xml().into_bytes(),
        wait: !args.no_wait,
        trace: None,
        secret,
    };
    let output = RunOutputForm { quiet: args.quiet, json: args.json, no_wait: args.no_wait };
    let shown = show_run(config, &definition, Some(recorded), submission, output);
    startup::runtime()?.block_on(shown)
}

/// Fails if the retry would repeat completed calls to listeners with `attempts = 1`. Calls that
/// were undone do not count.
fn refuse_repeated(
    config: &Config,
    recorded: &RecordedRun,
    definition: &WorkflowDefinition,
    retry: &RunRetry,
) -> anyhow::Result<()> {
    let once = called_once(&config.contracts);
    let rules = UndoRules::new(&config.contracts, &config.schemas);
    let archive = JournalRuns::new(recorded.data().to_owned());
    let undo = UndoSource { rules: &rules, archive: &archive, up_to: recorded.last };
    let RecordedRun { request, messages, .. } = recorded;
    let repeated = repeated_calls(retry, (definition, &once), (request, messages), undo);
    let repeated = repeated.map_err(|reason| {
        let message = format!("the calls of the run {} cannot be read: {reason}", request.thread);
        CommandFailure::new(CommandExit::InvalidData, message)
    })?;
    if repeated.is_empty() {
        return Ok(());
    }

    let named = repeated.iter().map(|RepeatedCalls { goal, listener, count }| {
        let calls = if *count == 1 { "call" } else { "calls" };
        let goal = goal.as_ref().map_or("an earlier run", GoalId::as_str);
        format!("{goal} ({count} {calls} to {listener})")
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let message = format!(
        "nothing was sent: goals that begin anew, or an earlier run whose request was sent again, \
         have completed calls to listeners with `attempts = 1`, which were not undone: {named}; \
         pass --again to have them made again"
    );
    Err(CommandFailure::usage(message).into())
}

/// Returns the goal of `--from`; `None` without the option. Fails if the run's definition has no
/// such goal.
fn goal(args: &RetryArgs, definition: &WorkflowDefinition) -> anyhow::Result<Option<GoalId>> {
    let Some(text) = &args.from else { return Ok(None) };
    let (graph, _) = GoalGraph::new(definition);
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
