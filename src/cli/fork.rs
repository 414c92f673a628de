//! `organism fork`: continues a recorded thread in a new thread, from one of the recorded messages.
//! A fork repeats no effects: it takes the recorded results of calls. Only agents and workflows run
//! again.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::audit::{
    ForkObstacle, ForkPoint, MessageView, answered_listeners, is_answered_from_record,
};
use crate::config::{Config, nearest};
use crate::envelope::MessageKind;
use crate::ids::{CallId, ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::organism::operator;
use crate::service::signing::OperatorSigner;
use crate::service::{BearerSecret, ForkRequest, OpenedFork};
use crate::thread::{Allotment, DecisionOrigin};

use super::action_text::ActionText;
use super::command_organism::{CommandOrganism, remaining_work};
use super::decision;
use super::exit::{CommandExit, CommandFailure};
use super::journal_target::{self, JournalTarget};
use super::message_lookup;
use super::money;
use super::permitted_names::{permitted_names, refused_payload};
use super::startup::{self, ConfigArg};
use super::submit_output::{exit_of, print_json, print_plain, worse};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Id of the message at which the fork begins, or at least its first 8 digits. If the message
    /// is a client's request, the fork sends this request again. If it is a turn of an agent, the
    /// agent takes this turn again. If it is a result, the fork waits for a new request.
    #[arg(value_name = "MESSAGE")]
    message: String,
    /// File with a payload to send, or `-` for standard input. If the fork begins at a client's
    /// request, the payload replaces this request. If the fork begins at an agent's turn, the
    /// payload replaces everything that the agent sent in this turn.
    #[arg(long, value_name = "FILE")]
    edit: Option<PathBuf>,
    /// Client that gets the results of the fork. Default: the client of the forked thread.
    #[arg(long = "as", value_name = "CLIENT")]
    client: Option<String>,
    /// Deliver a call to this listener if the record of the forked thread contains no result for
    /// the call. Without this option, an operator must approve each such call.
    #[arg(long, value_name = "LISTENER")]
    live: Vec<String>,
    /// Maximum tokens of the fork.
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// Maximum money of the fork, in the currency of the config.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    money: Option<f64>,
    /// Note on the fork, which goes on record.
    #[arg(long, default_value = "")]
    note: ActionText,
    /// Sign the fork with this operator's key, made by `organism operator key`.
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// Return as soon as the fork is on record.
    #[arg(long)]
    no_wait: bool,
    /// Write JSON lines: the fork, then the results.
    #[arg(long)]
    json: bool,
}

/// Facts about the config that the advice to the user depends on.
struct ForkAdvice {
    /// Names of the payloads with which the fork may begin.
    permitted: Vec<PayloadName>,
    /// Whether the fork may make a call that waits for an approval, because the source has no
    /// result for it.
    may_hold_calls: bool,
}

/// The JSON line in which `organism fork` describes the new fork.
#[derive(Serialize)]
struct ForkOutput<'a> {
    #[serde(rename = "fork")]
    thread: &'a ThreadId,
    #[serde(rename = "source")]
    source: &'a ThreadId,
    /// Message at which the fork begins. It may be earlier than the message that the command line
    /// names.
    #[serde(rename = "message")]
    message: MessageId,
    #[serde(rename = "position")]
    position: Position,
    #[serde(rename = "calls")]
    calls: &'a [CallId],
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = args.config.load_without_keys()?;
    let point = fork_point(&config, &args)?;
    let payload = payload(&args, &point)?;
    let signer = args.sign.as_deref().map(decision::signer_of).transpose()?;
    // The client of the organism chooses the id of the fork's thread.
    let request = ForkRequest {
        client: client(&config, &args, &point)?,
        payload,
        live: live(&config, &args.live)?,
        unpinned: args.config.config.is_some(),
        allotment: allotment(&config, &args)?,
        origin: Some(DecisionOrigin {
            who: operator::this_user(),
            note: args.note.as_str().to_owned(),
            signature: None,
        }),
        ..ForkRequest::at(&point, point.source.thread.clone())
    };
    let turn = point.turn.as_ref().map(|turn| &turn.agent);
    let advice = ForkAdvice {
        permitted: permitted_names(&config.contracts, turn.unwrap_or(&request.client)),
        may_hold_calls: may_hold_calls(&config, &request.live),
    };
    let forking = fork(config, request, signer.as_ref(), &advice, &args);
    startup::runtime()?.block_on(forking)
}

/// Returns the client that gets the results of the fork.
fn client(config: &Config, args: &Args, point: &ForkPoint) -> anyhow::Result<ListenerName> {
    match &args.client {
        Some(name) => startup::client(config, Some(name)),
        None => Ok(point.client.clone()),
    }
}

/// Parses the listener names that `--live` gives. Fails if a name is unknown. Also fails for an
/// agent or a workflow, because agents and workflows run again in every fork.
fn live(config: &Config, given: &[String]) -> anyhow::Result<Vec<ListenerName>> {
    let names: Vec<_> = answered_listeners(&config.contracts).collect();
    let named = given.iter().map(|text| {
        let found = names.iter().find(|name| name.as_str() == text);
        found.map(|name| (*name).clone()).ok_or_else(|| {
            let near = nearest(text, names.iter().map(|name| name.as_str()));
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let text = format!(
                "`{text}` is no listener of this config whose calls a fork answers from the \
                 record: agents and workflows run anew in any case{near}"
            );
            CommandFailure::usage(text).into()
        })
    });
    named.collect()
}

/// Whether the config has a listener whose calls a fork answers from the record, and that is not in
/// `live`. The source may lack the result of any call to such a listener, also of the request with
/// which the fork begins.
fn may_hold_calls(config: &Config, live: &[ListenerName]) -> bool {
    answered_listeners(&config.contracts).any(|name| !live.contains(name))
}

/// Finds the message of the recorded thread at which the fork begins. This is the message that the
/// command line names or, if no fork can begin there, the last possible message before it. A fork
/// can begin at a client's request, at an agent's turn, or at a result after which no call is open.
fn fork_point(config: &Config, args: &Args) -> anyhow::Result<ForkPoint> {
    let place = JournalTarget { config: args.config.config.clone(), data: None, state: None };
    let report = message_lookup::find(&place, &args.message, 0)?;
    let id = report.message.id;
    let thread = &report.message.thread;
    let is_answered = |name: &ListenerName| is_answered_from_record(&config.contracts, name);
    let mut found = None;
    for reader in journal_target::readers_of(&place, &thread.root())? {
        let point = ForkPoint::find(&reader, report.record.position, id, is_answered);
        found = found.or(point.map_err(|error| journal_target::failed_in(&reader, error))?);
    }

    let Some(point) = found else {
        let text =
            format!("no fork can begin at {id}: {thread} has no request of a client up to there");
        return Err(CommandFailure::usage(text).into());
    };
    let is_of_turn = point.turn.as_ref().is_some_and(|turn| {
        let MessageView { from, kind, position, .. } = &report.message;
        *position == point.source.record && *from == turn.agent && *kind != MessageKind::Note
    });
    // A copied request at the beginning of a fork stands for the request of the fork's source.
    let is_copy = point.source.thread != thread.root() && report.record.previous == Position(0);
    let is_request = is_copy && point.request.is_some() && report.message.kind == MessageKind::Call;
    let is_edit = point.obstacle == Some(ForkObstacle::EditedTurn);
    let is_editable = is_of_turn || is_request || is_edit;
    if point.source.message != id && !(is_editable && args.edit.is_some()) {
        let what = kind_of(&point);
        let taken = point.source.message;
        let why = match &point.obstacle {
            Some(obstacle) => format!("{id} {obstacle}"),
            None if is_copy => format!("{id} is in the first record of a fork"),
            None => format!("calls are open at {id}"),
        };
        if args.edit.is_some() {
            let text = format!(
                "{id} cannot be edited, because {why}: a fork can begin at {what} {taken} before it, and \
                 --edit replaces a client's request, or what an agent sent in a turn"
            );
            return Err(CommandFailure::usage(text).into());
        }
        note!("{why}, so the fork begins at {what} {taken} before it");
    }
    Ok(point)
}

fn kind_of(point: &ForkPoint) -> &'static str {
    match (&point.request, &point.turn) {
        (Some(_), _) => "the request",
        (None, Some(_)) => "the turn",
        (None, None) => "the result",
    }
}

/// Reads the payload with which the fork begins; `None` for a fork that begins without a payload.
fn payload(args: &Args, point: &ForkPoint) -> anyhow::Result<Option<String>> {
    if args.edit.is_some() && point.request.is_none() && point.turn.is_none() {
        let text = format!(
            "{} is a result, and --edit replaces a client's request, or what an agent sent in a turn; \
             name such a request, or the `model-turn` of such a turn, or fork there without --edit \
             and continue the fork with `organism send --thread`",
            point.source.message
        );
        return Err(CommandFailure::usage(text).into());
    }
    if let Some(path) = &args.edit {
        let text = String::from_utf8(startup::bytes(path)?).map_err(|_| {
            let text = format!("{} is not UTF-8", path.display());
            CommandFailure::new(CommandExit::InvalidData, text)
        })?;
        return Ok(Some(text));
    }

    let Some(request) = &point.request else { return Ok(None) };
    match &request.payload {
        Some(payload) => Ok(Some(payload.as_str().to_owned())),
        None => {
            let text = format!(
                "the payload of {} is redacted and cannot be sent again; name another one with \
                 --edit",
                point.source.message
            );
            Err(CommandFailure::new(CommandExit::Unavailable, text).into())
        }
    }
}

fn allotment(config: &Config, args: &Args) -> anyhow::Result<Allotment> {
    let models = config.agents.iter().map(|agent| agent.model.as_str());
    let money = money::amount(args.money, models, config)?;
    Ok(Allotment { tokens: args.tokens, money, until: None })
}

async fn fork(
    config: Config,
    mut request: ForkRequest,
    signer: Option<&OperatorSigner>,
    advice: &ForkAdvice,
    args: &Args,
) -> anyhow::Result<ExitCode> {
    let secret = config.secret_of(&request.client).as_ref().map(BearerSecret::of);
    let organism = CommandOrganism::open(config).await?;
    let thread = organism.fork_id(&request.source);
    request.thread = thread.clone();
    let source = request.source.clone();
    let message = request.message;
    let position = request.record;

    let mut exit = CommandExit::Done;
    let forking = async {
        let forked = organism.fork(request, signer).await;
        let forked = forked.map(|ruled| ruled.map(|forked| OpenedFork { secret, ..forked }));
        let waited = match &forked {
            Ok(Ok(forked)) => {
                print_fork(forked, &source, (message, position), args.json)?;
                if advice.may_hold_calls && !args.json && !forked.calls.is_empty() {
                    note_held_calls(&forked.thread);
                }
                let is_group = forked.calls.len() > 1;
                let wait = !args.no_wait && !forked.calls.is_empty();
                let waiting = organism.fork_results(forked, |update| {
                    exit = worse(exit, exit_of(&update, true));
                    if args.json {
                        print_json(None, &update);
                    } else {
                        print_plain(&update, true, is_group);
                    }
                });
                if wait { waiting.await } else { Ok(()) }
            }
            _ => Ok(()),
        };
        anyhow::Ok((forked, waited))
    };
    let ended = organism.until_stopped(forking).await;

    let is_own = organism.is_own();
    let closed = organism.close(&remaining_work(Some(&thread))).await;
    let (forked, waited) = match ended {
        Ok(ended) => ended?,
        Err(signal) => {
            // The error about the stop names the work that remains.
            closed?;
            return Err(signal.into());
        }
    };
    let forked = forked?;
    waited?;
    if let Some(refusal) = forked.as_ref().err().filter(|_| !args.json) {
        return Err(refused_payload(refusal, &advice.permitted));
    }
    decision::ruled(forked.as_ref().err().cloned())?;
    if is_own && args.no_wait {
        note!("no organism was running; the work of the fork goes on with `organism run`");
    }
    // A signal that came after the fork.
    closed?;
    Ok(exit.into())
}

fn print_fork(
    forked: &OpenedFork,
    source: &ThreadId,
    (message, position): (MessageId, Position),
    is_json: bool,
) -> anyhow::Result<()> {
    let OpenedFork { thread, calls, .. } = forked;
    if is_json {
        put_line!(
            "{}",
            serde_json::to_string(&ForkOutput { thread, source, message, position, calls })?
        );
    } else {
        note!("thread {thread}, a fork of {source} at {message}");
        if calls.is_empty() {
            note!("continue it with `organism send --thread {thread} FILE`");
        }
    }
    Ok(())
}

fn note_held_calls(thread: &ThreadId) {
    note!(
        "a call without a result in the source waits for an approval, unless --live names its \
         listener: `organism approvals --all-from {thread}`"
    );
}
