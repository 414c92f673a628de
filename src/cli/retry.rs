//! `organism retry`: sends a refused or failed message again, as a new message of the same sender.

mod attempts;
mod candidates;
mod skipped;

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use tokio::runtime::Runtime;

use crate::audit::{EarlierAttempt, unknown_filter_values};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{CallId, MessageId, Position, ThreadId};
use crate::index::RetryFilter;
use crate::limits;
use crate::service::signing::OperatorSigner;
use crate::service::{self, RetryReport, RetryRequest};

use self::candidates::{MatchingPages, NamedMessage, OldestMatches};
use self::skipped::SkippedMessages;
use super::action_text::ActionText;
use super::command_organism::CommandOrganism;
use super::confirmation;
use super::decision::{self, DecisionArgs};
use super::exit::{self, CommandExit, CommandFailure};
use super::organism_reach::OrganismReach;
use super::output::put_json_line;
use super::render::{clean, put};
use super::startup::{self, ConfigArg};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Note on the retry, which goes on record. The note is not sent to the caller.
    #[arg(long, default_value = "")]
    note: ActionText,
    /// Sign the retry with this operator's key, made by `organism operator key`.
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// Data directory. Always refused with an explanation, because a retry is new work and needs
    /// the organism's config.
    #[arg(long, value_name = "DIR", hide = true)]
    data: Option<PathBuf>,
    /// Ids of the messages, or their first 8 digits at least: calls that failed or were cancelled,
    /// or submissions that were refused. Without an id, the command lists the messages that --all
    /// would retry.
    #[arg(value_name = "MESSAGE")]
    messages: Vec<String>,
    /// Retry each client request that failed or was refused, unless it was retried before. Leaves
    /// out requests whose work may already be done: each of these needs a confirmation with
    /// --again.
    #[arg(long, conflicts_with_all = ["messages", "again"])]
    all: bool,
    /// Select only requests that ended for this reason: the rule of a refusal, or the code of a
    /// failure.
    #[arg(long, value_name = "REASON", conflicts_with = "messages")]
    reason: Option<String>,
    /// Select only calls to this listener.
    #[arg(long, value_name = "LISTENER", conflicts_with = "messages")]
    listener: Option<String>,
    /// Confirm that the work of a call may be done a second time. Needed in two cases: the listener
    /// has `attempts = 1`, or the call failed with `unknown-outcome`, which means that its work may
    /// be done already.
    #[arg(long, requires = "messages")]
    again: bool,
    /// Write one line of JSON for each message.
    #[arg(long)]
    json: bool,
}

/// The JSON output for one message.
#[derive(Serialize)]
struct RetryOutput<'a> {
    #[serde(rename = "message")]
    message: MessageId,
    #[serde(rename = "position")]
    position: Position,
    #[serde(rename = "result")]
    result: &'static str,
    #[serde(rename = "thread", skip_serializing_if = "Option::is_none")]
    thread: Option<&'a ThreadId>,
    #[serde(rename = "calls", skip_serializing_if = "Option::is_none")]
    calls: Option<&'a [CallId]>,
    #[serde(rename = "retry", skip_serializing_if = "Option::is_none")]
    retry: Option<MessageId>,
    #[serde(rename = "reason", skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(rename = "attempts", skip_serializing_if = "Option::is_none")]
    attempts: Option<&'a [EarlierAttempt]>,
}

/// Result of the request to retry one message. The inner result is the report of the retry, or the
/// refusal of the pump. The outer error is a failure of the service client.
type RetryResult = Result<Result<RetryReport, Refusal>, service::Error>;

impl Args {
    fn decision(&self) -> DecisionArgs {
        DecisionArgs { note: self.note.clone(), sign: self.sign.clone(), data: None }
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.data.is_some() {
        let text = "`retry` takes no --data: a retry is new work, which an organism accepts only \
                    from a command with its config; name the config with --config FILE";
        return Err(CommandFailure::usage(text).into());
    }

    let decision = args.decision();
    let reach = args.config.reach(&decision)?;
    let data = reach.data().to_owned();
    let mut selected = if args.messages.is_empty() {
        let filter = RetryFilter {
            listener: args.listener.clone(),
            reason: args.reason.clone(),
            is_unretriable: false,
        };
        require_known(&reach, &filter)?;
        let unretriable = RetryFilter { is_unretriable: true, ..filter.clone() };
        note_unretriable(&candidates::matching(&data, &unretriable, limits::RETRIES_MAX)?);
        if !args.all {
            let is_filtered = args.listener.is_some() || args.reason.is_some();
            let listed = candidates::matching(&data, &filter, limits::RETRIES_MAX)?;
            return list(&listed, args.json, is_filtered);
        }
        SelectedMessages::Pages(MatchingPages::new(&data, filter, limits::RETRIES_MAX))
    } else {
        let named = args.messages.iter().map(|id| candidates::named(&data, id));
        SelectedMessages::Named(named.collect::<anyhow::Result<Vec<_>>>()?)
    };
    let first = selected.next_page()?;
    if first.is_empty() {
        note!("no request of a client matches that failed or was refused, and was not retried");
        return Ok(CommandExit::Done.into());
    }

    let signer = decision.signer()?;
    let is_own = reach.starts_organism();
    let runtime = startup::runtime()?;
    let organism = runtime.block_on(reach.client())?;
    let mut session = RetrySession::new(&organism, signer.as_ref(), &args);
    let exit = session.retry_pages(&runtime, first, &mut selected);
    let has_retried = session.has_retried;
    let remains = "a retry that is on record goes on at the next start";
    runtime.block_on(organism.close(remains))?;
    let exit = exit?;
    if is_own && has_retried {
        note!("no organism was running; the work goes on with `organism run`");
    }
    Ok(exit.into())
}

/// Fails if the reason of `filter` is no rule of a refusal and no code of a failure, or if the
/// config has no listener with its name. Accepts names that are on record, because an earlier
/// version or config may have had them.
fn require_known(reach: &OrganismReach, filter: &RetryFilter) -> anyhow::Result<()> {
    for unknown in unknown_filter_values(filter, reach.callees().as_deref()) {
        if !candidates::is_on_record(reach.data(), &unknown.value)? {
            let text = format!("--{}: {}", unknown.field, unknown.problem);
            return Err(CommandFailure::usage(text).into());
        }
    }
    Ok(())
}

/// The messages that one command retries.
enum SelectedMessages {
    /// Messages whose ids the command line contains.
    Named(Vec<NamedMessage>),
    /// All messages that match a filter.
    Pages(MatchingPages),
}

impl SelectedMessages {
    /// Returns the next messages to retry. Returns an empty list if no messages are left.
    fn next_page(&mut self) -> anyhow::Result<Vec<NamedMessage>> {
        match self {
            Self::Named(messages) => Ok(std::mem::take(messages)),
            Self::Pages(pages) => pages.next_page(),
        }
    }
}

/// Prints a note for each message that the command leaves out because a retry can never succeed.
/// Messages in a row with the same reason share one note.
fn note_unretriable(unretriable: &OldestMatches) {
    let messages = &unretriable.messages;
    let shown: Vec<_> = messages.iter().take(limits::CANDIDATES_MAX).collect();
    let same =
        |one: &&NamedMessage, other: &&NamedMessage| one.message.obstacle == other.message.obstacle;
    for group in shown.chunk_by(same) {
        let Some(obstacle) = group.first().and_then(|one| one.message.obstacle.as_ref()) else {
            continue;
        };
        let ids: Vec<_> = group.iter().map(|one| one.message.id.to_string()).collect();
        note!("{}: left out: {}", ids.join(", "), clean(&obstacle.to_string()));
    }
    let more = messages.len().saturating_sub(limits::CANDIDATES_MAX);
    if more > 0 {
        let bound = if unretriable.has_more { "at least " } else { "" };
        note!("left out: {bound}{more} more whose retry cannot succeed either");
    }
}

/// Lists the messages that `--all` would retry.
fn list(listed: &OldestMatches, is_json: bool, is_filtered: bool) -> anyhow::Result<ExitCode> {
    let named = &listed.messages;
    if is_json {
        for message in named {
            print_json(message, "listed", |output| {
                output.reason = Some(message.message.reason.clone())
            })?;
        }
    } else {
        put(&candidates::draw(named))?;
    }

    if listed.has_more {
        note!(
            "there are more than these {}; `organism retry --all` with the same options retries \
             them, too, and --reason or --listener list fewer",
            named.len()
        );
        return Ok(CommandExit::Done.into());
    }
    match named.len() {
        _ if is_json => {}
        0 if is_filtered => {
            note!("no request matches these conditions; `organism retry` alone lists all");
        }
        0 => note!("no request of a client that failed or was refused waits for a retry"),
        _ => note!("`organism retry --all` with the same options retries them"),
    }
    Ok(CommandExit::Done.into())
}

/// The means with which one command retries messages: a client of the organism, the operator's key
/// that signs the retries, and the options of the command.
struct RetrySession<'a> {
    organism: &'a CommandOrganism,
    signer: Option<&'a OperatorSigner>,
    args: &'a Args,
    /// Exit code of the first retry that failed; success if no retry has failed.
    exit: CommandExit,
    /// Number of messages that `--all` left out, because an operator must first confirm the retry.
    left_out: u64,
    /// Messages that are not sent, because no pump of their partition gave a result before.
    skipped: SkippedMessages,
    /// Whether the organism has accepted at least one retry.
    has_retried: bool,
    /// Whether a response has shown that the organism runs another program version than this
    /// command, so that every further request would fail. If true, no further retry is sent.
    is_other_program: bool,
}

impl<'a> RetrySession<'a> {
    fn new(
        organism: &'a CommandOrganism,
        signer: Option<&'a OperatorSigner>,
        args: &'a Args,
    ) -> Self {
        Self {
            organism,
            signer,
            args,
            exit: CommandExit::Done,
            left_out: 0,
            skipped: SkippedMessages::default(),
            has_retried: false,
            is_other_program: false,
        }
    }

    /// Retries the messages of the page `first`, and of all pages that follow in `selected`.
    /// Returns the exit code of the first retry that failed, or success if none failed.
    fn retry_pages(
        &mut self,
        runtime: &Runtime,
        first: Vec<NamedMessage>,
        selected: &mut SelectedMessages,
    ) -> anyhow::Result<CommandExit> {
        let organism = self.organism;
        let mut page = first;
        while !page.is_empty() {
            runtime.block_on(organism.until_stopped(self.retry_all(&page)))??;
            if self.is_other_program {
                break;
            }
            // Read outside of the runtime, because the read of an index blocks.
            page = selected.next_page()?;
        }
        if self.left_out > 0 {
            note!(
                "left out: {}, each of which needs `organism retry MESSAGE --again`",
                self.left_out
            );
        }
        for note in self.skipped.notes() {
            note!("{note}");
        }
        Ok(self.exit)
    }

    /// Retries the messages one after another, except those of a partition whose pump gave no
    /// result before: each of them would wait for as long. Ends early if a response shows that the
    /// organism runs another program version than this command.
    async fn retry_all(&mut self, named: &[NamedMessage]) -> anyhow::Result<()> {
        for message in named {
            if self.skipped.count(message.partition) {
                if self.args.json {
                    let reason = Some(skipped::REASON.to_owned());
                    print_json(message, "failed", |output| output.reason = reason)?;
                } else if !self.args.all {
                    note!("{}: {}", message.message.id, skipped::REASON);
                }
                continue;
            }

            let result = self.retry(message).await?;
            if result.as_ref().is_err_and(service::Error::is_without_result) {
                self.skipped.add(message.partition);
            }
            let is_unconfirmed = matches!(&result, Ok(Ok(RetryReport::Unconfirmed { .. })));
            self.left_out += u64::from(self.args.all && is_unconfirmed);
            let is_left_out = self.args.all && (is_unconfirmed || is_sent_again(&result));
            self.has_retried |= matches!(&result, Ok(Ok(RetryReport::Retried { .. })));
            let own = self.print(message, &result)?;
            if self.exit == CommandExit::Done && !is_left_out {
                self.exit = own;
            }
            if result.is_err_and(|error| error.is_of_other_program()) {
                self.is_other_program = true;
                break;
            }
        }
        Ok(())
    }

    /// Retries one message. If the retry needs a confirmation, asks the person at the terminal.
    async fn retry(&self, message: &NamedMessage) -> anyhow::Result<RetryResult> {
        let result = self.request(message, self.args.again).await;
        let Ok(Ok(RetryReport::Unconfirmed { reason })) = &result else { return Ok(result) };
        if self.args.all || self.args.json {
            return Ok(result);
        }

        note!("{}: {}", message.message.id, clean(reason));
        note_part!("{}", attempts::draw(&message.attempts));
        let is_repetition = !message.attempts.is_empty();
        let question = if is_repetition { "do it a second time?" } else { "retry it?" };
        if confirmation::has_terminal() && ask_for_confirmation(question).await? {
            return Ok(self.request(message, true).await);
        }
        Ok(result)
    }

    async fn request(&self, message: &NamedMessage, is_confirmed: bool) -> RetryResult {
        let NamedMessage { message, partition, .. } = message;
        let request = RetryRequest {
            message: message.id,
            record: message.record,
            source: message.tree.clone(),
            thread: self.organism.retry_thread(message.id, *partition),
            partition: *partition,
            is_confirmed,
            origin: Some(self.args.decision().origin()),
        };
        self.organism.retry(request, self.signer).await
    }

    fn print(&self, message: &NamedMessage, result: &RetryResult) -> anyhow::Result<CommandExit> {
        if self.args.json {
            print_result(message, result)?;
        }
        let id = message.message.id;
        let is_text = !self.args.json;
        Ok(match result {
            Ok(Ok(RetryReport::Retried { thread, calls })) => {
                if is_text {
                    let retries: Vec<_> = calls.iter().map(CallId::to_string).collect();
                    note!("{id}: retried as {} in {thread}", retries.join(", "));
                }
                CommandExit::Done
            }
            Ok(Ok(RetryReport::AlreadyRetried { retry })) => {
                note!("{id}: was retried before, as {retry}; retry that one if it failed, too");
                CommandExit::InvalidData
            }
            Ok(Ok(RetryReport::Unconfirmed { reason })) => {
                let is_repetition = !message.attempts.is_empty();
                if is_text && !self.args.all {
                    let purpose =
                        if is_repetition { "to do the work a second time" } else { "to retry it" };
                    note!("{id}: not retried; pass --again {purpose}");
                } else if is_text {
                    let risk =
                        if is_repetition { "; the work may be done a second time" } else { "" };
                    note!("{id}: left out: {}{risk}", clean(reason));
                }
                CommandExit::Usage
            }
            Ok(Err(refusal)) => {
                let left_out =
                    if self.args.all && is_sent_again(result) { "left out: " } else { "" };
                note!("{id}: {left_out}{}", clean(&refusal.to_string()));
                decision::exit_of_refusal(refusal)
            }
            Err(error) => {
                note!("{id}: {}", clean(&error.to_string()));
                match error {
                    service::Error::Failed { .. } => CommandExit::InvalidData,
                    error => exit::of_service(error),
                }
            }
        })
    }
}

/// Whether the pump refused the retry because the submission was sent again with its key, by its
/// client or by another retry. A repetition can succeed only after the key has expired.
fn is_sent_again(result: &RetryResult) -> bool {
    matches!(result, Ok(Err(refusal)) if refusal.rule == RefusalRule::KeyReused)
}

/// Asks the person at the terminal to confirm the retry of a message. Waits on a thread of
/// its own, so that a signal can stop the command meanwhile.
async fn ask_for_confirmation(question: &'static str) -> anyhow::Result<bool> {
    let asking = tokio::task::spawn_blocking(|| confirmation::ask(question));
    Ok(asking.await??)
}

fn print_result(message: &NamedMessage, result: &RetryResult) -> anyhow::Result<()> {
    match result {
        Ok(Ok(RetryReport::Retried { thread, calls })) => {
            print_json(message, "retried", |output| {
                output.thread = Some(thread);
                output.calls = Some(calls);
            })
        }
        Ok(Ok(RetryReport::AlreadyRetried { retry })) => {
            print_json(message, "already-retried", |output| output.retry = Some(*retry))
        }
        Ok(Ok(RetryReport::Unconfirmed { reason })) => {
            print_json(message, "unconfirmed", |output| {
                output.reason = Some(reason.clone());
                output.attempts = Some(&message.attempts);
            })
        }
        Ok(Err(refusal)) => {
            print_json(message, "refused", |output| output.reason = Some(refusal.to_string()))
        }
        Err(service::Error::MaybeRetried { retry }) => {
            print_json(message, "maybe-retried", |output| output.retry = Some(*retry))
        }
        Err(error) => {
            print_json(message, "failed", |output| output.reason = Some(error.to_string()))
        }
    }
}

fn print_json<'a>(
    message: &NamedMessage,
    result: &'static str,
    fill: impl FnOnce(&mut RetryOutput<'a>),
) -> anyhow::Result<()> {
    let mut output = RetryOutput {
        message: message.message.id,
        position: message.message.record,
        result,
        thread: None,
        calls: None,
        retry: None,
        reason: None,
        attempts: None,
    };
    fill(&mut output);
    put_json_line(&serde_json::to_string(&output)?);
    Ok(())
}
