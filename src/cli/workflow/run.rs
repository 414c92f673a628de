//! `organism workflow run`: starts a run, shows its goals, and prints its output.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::builder::NonEmptyStringValueParser;
use tokio::sync::watch;

use crate::bus::live::LiveEvent;
use crate::config::Config;
use crate::ids::{ListenerName, ThreadId};
use crate::limits;
use crate::organism::OrganismClient;
use crate::service::{BearerSecret, LiveRequest, SubmitRequest, SubmitUpdate};
use crate::workflow::{
    GoalGraph, WorkflowDefinition, called_once, dry_run, fit_children, input_payload, output_name,
};
use crate::xml::element::Element;

use super::super::decision;
use super::super::exit::{CommandExit, CommandFailure};
use super::super::startup::{self, ConfigArg};
use super::named;
use super::progress::{ProgressForm, RunProgress};

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Name of the workflow.
    name: String,
    #[command(flatten)]
    config: ConfigArg,
    /// One input; `NAME=@FILE` reads its value from a file, and `@@` begins a value with `@`. A list
    /// is given value by value.
    #[arg(long = "input", value_name = "NAME=VALUE")]
    inputs: Vec<String>,
    /// Print each context document, with a stand-in for every output. No model is called.
    #[arg(long)]
    dry_run: bool,
    /// Client to send as. Required if the config has several.
    #[arg(long = "as", value_name = "CLIENT")]
    client: Option<String>,
    /// Id of the run's thread.
    #[arg(long, value_name = "ID")]
    new: Option<String>,
    /// A key of your choice. Running with the same key again returns the recorded output and runs
    /// nothing twice.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// Return as soon as the run is on record.
    #[arg(long)]
    no_wait: bool,
    /// Show nothing but the output.
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
    /// Write goals and output as JSON lines.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let config = match args.dry_run {
        true => args.config.load_to_read()?,
        false => args.config.load_without_keys()?,
    };
    let definition = named(&config, &args.name)?.clone();
    let values = values(&args.inputs)?;
    let input = input_payload(&definition, &values, args.dry_run)
        .map_err(|error| CommandFailure::new(CommandExit::Usage, error.to_string()))?;
    let input = fit_children(&config.schemas, input);
    if args.dry_run {
        for document in dry_run(&definition, &input) {
            put_line!("== {}", document.title);
            put_line!("{}", document.text);
        }
        return Ok(CommandExit::Done.into());
    }

    let client = startup::client(&config, args.client.as_deref())?;
    let secret = config.secret_of(&client).as_ref().map(BearerSecret::of);
    let submission = SubmitRequest {
        client,
        thread: None,
        suggested: args.new.clone(),
        key: args.key.clone(),
        payload: input.to_xml().into_bytes(),
        wait: !args.no_wait,
        trace: None,
        secret,
    };
    startup::runtime()?.block_on(carry_out(config, &definition, submission, args))
}

/// The inputs by name. A value that begins with `@` is read from that file; `@@` stands for `@`.
fn values(inputs: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let mut values = Vec::new();
    for input in inputs {
        let Some((name, value)) = input.split_once('=') else {
            let message = format!("`{input}` is not an input; write NAME=VALUE");
            return Err(CommandFailure::new(CommandExit::Usage, message).into());
        };
        let value = match value.strip_prefix('@') {
            None => value.to_owned(),
            Some(text) if text.starts_with('@') => text.to_owned(),
            Some(path) => {
                let bytes = startup::bytes(path.as_ref())?;
                String::from_utf8(bytes).map_err(|_| {
                    let message = format!("{path} is not UTF-8");
                    CommandFailure::new(CommandExit::InvalidData, message)
                })?
            }
        };
        values.push((name.to_owned(), value));
    }

    Ok(values)
}

async fn carry_out(
    config: Config,
    definition: &WorkflowDefinition,
    submission: SubmitRequest,
    args: &RunArgs,
) -> anyhow::Result<ExitCode> {
    let form = match (args.json, args.quiet || args.no_wait) {
        (true, false) => ProgressForm::Json,
        (_, true) => ProgressForm::Nothing,
        (false, false) if can_draw() => ProgressForm::Tree,
        (false, false) => ProgressForm::Lines,
    };
    let once = called_once(&config.contracts);
    let data = config.data.clone();
    let (graph, _) = GoalGraph::new(definition);
    let priced = config.models.iter().find_map(|model| model.price.as_ref());
    let currency = priced.map(|price| price.currency.clone());
    let progress = RunProgress::new(&data, form, (definition, &graph), &once, currency);
    // Held only while records are read: never across an await.
    let progress = Mutex::new(progress);
    let shown = || progress.lock().unwrap_or_else(PoisonError::into_inner);

    let organism = OrganismClient::open(config).await?;
    let (accepted, run) = watch::channel(None);
    let own = as_its_client(&submission);
    let mut exit = CommandExit::Done;
    let submit = organism.submit(submission, |update| {
        shown().clear();
        if let SubmitUpdate::Accepted { thread, calls, .. } = &update {
            if !args.json && !args.quiet {
                note!("run {thread}");
            }
            if let Some(call) = calls.first() {
                shown().accepted(thread.clone(), *call);
            }
            accepted.send_replace(Some(thread.clone()));
        }
        if let SubmitUpdate::Result { .. } = update {
            shown().show_new();
            shown().finish();
        }
        // The tree shows these waits itself.
        if matches!(update, SubmitUpdate::Waits(_)) && shown().has_tree() {
            return;
        }
        let shown = ShownUpdates { quiet: args.quiet, json: args.json, no_wait: args.no_wait };
        let of_update = shown.show(&definition.name.value, &update);
        if exit == CommandExit::Done {
            exit = of_update;
        }
    });
    let watching = async {
        if form != ProgressForm::Nothing {
            tokio::join!(
                follow_records(&organism, &shown),
                follow_live(&organism, own, run, &shown),
                redraw(form, &shown)
            );
        }
        std::future::pending::<()>().await;
    };
    let sent = tokio::select! {
        sent = submit => sent,
        () = watching => Ok(()),
    };
    let closed = organism.close().await;
    sent?;
    closed?;
    Ok(exit.into())
}

/// A subscription to the live channel by the client that submits.
fn as_its_client(submission: &SubmitRequest) -> LiveRequest {
    let (client, secret) = (Some(submission.client.clone()), submission.secret.clone());
    LiveRequest { client, secret, ..LiveRequest::default() }
}

/// Whether standard error is a terminal that can move its cursor.
fn can_draw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    std::io::stderr().is_terminal() && !is_dumb
}

async fn follow_records<'p>(
    organism: &OrganismClient,
    shown: &impl Fn() -> MutexGuard<'p, RunProgress<'p>>,
) {
    let followed = organism.follow(|_, _| {
        shown().show_new();
        ControlFlow::Continue(())
    });
    // The submission tells what ended.
    followed.await.ok();
}

/// Follows the live channel of the run, as the client that opened it. A client that may not watch
/// gets the states on record alone.
async fn follow_live<'p>(
    organism: &OrganismClient,
    own: LiveRequest,
    mut run: watch::Receiver<Option<ThreadId>>,
    shown: &impl Fn() -> MutexGuard<'p, RunProgress<'p>>,
) {
    let thread = run.wait_for(Option::is_some).await.ok().and_then(|thread| thread.clone());
    let Some(thread) = thread else { return };
    let request = LiveRequest { thread: Some(thread), ..own };

    loop {
        let mut has_responded = false;
        let followed = organism.follow_live(request.clone(), None, |event| {
            has_responded = true;
            shown().take_live(&event);
            ControlFlow::Continue(())
        });
        let ended = followed.await;
        if has_responded {
            // What the models do until the next subscription is not known.
            shown().take_live(&LiveEvent::Lost { events: 0 });
        }
        match ended {
            // The socket closes a connection whose reader stands still for too long.
            Ok(()) if has_responded => tokio::time::sleep(limits::BUSY_RETRY).await,
            Ok(()) => return,
            Err(error) => {
                tracing::info!("what models do now is not shown: {error}");
                return;
            }
        }
    }
}

async fn redraw<'p>(form: ProgressForm, shown: &impl Fn() -> MutexGuard<'p, RunProgress<'p>>) {
    if form != ProgressForm::Tree {
        return;
    }

    let mut tick = tokio::time::interval(limits::RUN_VIEW_INTERVAL);
    loop {
        tick.tick().await;
        shown().draw();
    }
}

/// How updates of a submission to a workflow are printed.
#[derive(Debug, Clone, Copy)]
pub struct ShownUpdates {
    pub quiet: bool,
    pub json: bool,
    pub no_wait: bool,
}

impl ShownUpdates {
    /// Prints an update, and returns the exit code that it asks for.
    pub fn show(self, workflow: &ListenerName, update: &SubmitUpdate) -> CommandExit {
        let args = self;
        if args.json {
            put_line!("{}", serde_json::json!(update));
        }
        match update {
            SubmitUpdate::Accepted { held: true, .. } if args.no_wait => {
                CommandExit::ApprovalPending
            }
            SubmitUpdate::Accepted { .. } => CommandExit::Done,
            SubmitUpdate::Waits(wait) => {
                if !args.json && !args.quiet {
                    note!("{wait}");
                }
                CommandExit::Done
            }
            SubmitUpdate::Refused { refusal, .. } => {
                if !args.json {
                    note!("refused: {refusal}");
                }
                decision::exit_of_refusal(refusal)
            }
            SubmitUpdate::NoThread { payload } => {
                if !args.json {
                    put_line!("{payload}");
                }
                CommandExit::InvalidData
            }
            SubmitUpdate::Result { replies, .. } => {
                let exit = match update.is_failure() {
                    true => CommandExit::WorkflowFailed,
                    false => CommandExit::Done,
                };
                for reply in replies {
                    if args.json {
                        continue;
                    }
                    match readable(reply.name == output_name(workflow), &reply.payload) {
                        Some(text) => put_line!("{text}"),
                        None => put_line!("{}", reply.payload),
                    }
                }
                exit
            }
        }
    }
}

/// The text of an output that holds nothing but text.
fn readable(is_output: bool, payload: &str) -> Option<String> {
    let element = Element::read_document(payload).filter(|_| is_output)?;
    element.children().next().is_none().then(|| element.text())
}
