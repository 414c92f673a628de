//! Sends a pause or a resume to the running organism, and prints the result of each partition.

use std::process::ExitCode;

use serde::Serialize;

use crate::config::{Config, nearest};
use crate::contract::Role;
use crate::ids::{ListenerName, ThreadId};
use crate::service::{PauseError, PauseReport, failed_partitions};
use crate::thread::{PauseTarget, PauseVerb};

use super::decision::{self, DecisionArgs};
use super::exit::{self, CommandExit, CommandFailure};
use super::organism_reach::{self, OrganismReach};
use super::output::put_json_line;
use super::startup::{self, ConfigArg};

/// Options of `pause` and `resume`.
#[derive(Debug, clap::Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    decision: DecisionArgs,
    /// Target of the action: a thread (with everything beneath it), an agent or other listener, or
    /// `all`.
    #[arg(value_name = "THREAD|AGENT|all")]
    target: String,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// The result of a pause or a resume, as JSON.
#[derive(Serialize)]
struct PauseOutput<'a> {
    #[serde(rename = "action")]
    action: &'static str,
    #[serde(rename = "target")]
    target: TargetOutput<'a>,
    #[serde(rename = "partitions")]
    partitions: Vec<PartitionOutput>,
}

#[derive(Serialize)]
struct TargetOutput<'a> {
    #[serde(rename = "kind")]
    kind: &'static str,
    #[serde(rename = "name", skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

#[derive(Serialize)]
struct PartitionOutput {
    #[serde(rename = "partition")]
    partition: u32,
    #[serde(rename = "result")]
    result: &'static str,
    #[serde(rename = "in_flight", skip_serializing_if = "Option::is_none")]
    in_flight: Option<u32>,
    #[serde(rename = "error", skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

type PartitionResult = (u32, Result<PauseReport, PauseError>);

pub(super) fn run(verb: PauseVerb, args: PauseArgs) -> anyhow::Result<ExitCode> {
    let target = target_of(&args.target)?;
    let reach = reach_running(verb, &args)?;
    let names = reach.callees().unwrap_or_default();

    if let (OrganismReach::Config { config, .. }, PauseTarget::Listener(name)) = (&reach, &target)
        && is_client(config, name)
    {
        let text = format!(
            "`{name}` is a client, to which nothing is handed over; pause its threads, or the \
             listeners that it calls"
        );
        return Err(CommandFailure::usage(text).into());
    }

    let signer = args.decision.signer()?;
    let origin = args.decision.origin();
    let results = startup::runtime()?.block_on(async {
        let Some(organism) = reach.client_of_running().await? else {
            organism_reach::require_no_holder(reach.data())?;
            return Err(not_running(&reach, verb));
        };
        let results = organism.pause(verb, &target, &origin, signer.as_ref()).await;
        organism.close("pauses that are on record stay in force").await?;
        anyhow::Ok(results)
    })?;

    if args.json {
        print_json(verb, &target, &results)?;
    } else {
        results.iter().for_each(|result| print(verb, &target, results.len(), result));
    }
    outcome(verb, &names, results)
}

/// Finds the running organism. Waits for an organism that has announced its start, because it is
/// about to hand over its open work. Fails if no organism runs.
fn reach_running(verb: PauseVerb, args: &PauseArgs) -> anyhow::Result<OrganismReach> {
    let reach = args.config.reach(&args.decision)?;
    if !reach.starts_organism() {
        return Ok(reach);
    }

    let data = reach.data();
    let socket = organism_reach::socket_in(data, organism_reach::handshake_in(data)?);
    if startup::runtime()?.block_on(organism_reach::is_running(&socket))? {
        let reach = args.config.reach(&args.decision)?;
        if !reach.starts_organism() {
            return Ok(reach);
        }
    }

    organism_reach::require_no_holder(reach.data())?;
    Err(not_running(&reach, verb))
}

/// Parses the target of a pause: `all`, the id of a thread, or the name of a listener.
fn target_of(text: &str) -> anyhow::Result<PauseTarget> {
    if text == "all" {
        return Ok(PauseTarget::All);
    }
    if let Ok(thread) = ThreadId::parse(text) {
        return Ok(PauseTarget::Thread(thread));
    }

    ListenerName::parse(text).map(PauseTarget::Listener).map_err(|_| {
        let text = format!(
            "`{text}` is neither a thread (sess-…) nor the name of an agent or listener; `all` \
             stands for everything"
        );
        CommandFailure::usage(text).into()
    })
}

/// Returns the error for a pause or a resume while no organism runs. The command does not start an
/// organism, because a newly started organism would hand over its open work before the pause takes
/// effect.
fn not_running(reach: &OrganismReach, verb: PauseVerb) -> anyhow::Error {
    let data = reach.data().display();
    let verb = if verb == PauseVerb::Resume { "resume" } else { "pause" };

    let text = if reach.is_streamed() {
        format!(
            "no organism runs on {data}, so there is nothing to {verb} on this host. If another \
             host pumps the stream, its work goes on: give the command there"
        )
    } else {
        format!(
            "no organism runs on {data}, so nothing is handed over, and there is nothing to {verb}: \
             start it with `organism run`; a pause that was in force stays in force"
        )
    };
    CommandFailure::new(CommandExit::Unavailable, text).into()
}

fn is_client(config: &Config, name: &ListenerName) -> bool {
    config.contracts.get(name).is_some_and(|contract| contract.role == Role::Client)
}

fn unknown_listener(listener: &ListenerName, names: &[String]) -> anyhow::Error {
    let names = names.iter().map(String::as_str).chain(["all"]);
    let near = nearest(listener.as_str(), names);
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let text = format!(
        "`{listener}` is neither a thread nor an agent or listener of the running organism{near}"
    );
    CommandFailure::usage(text).into()
}

fn print(verb: PauseVerb, target: &PauseTarget, count: usize, result: &PartitionResult) {
    let (partition, result) = result;
    let Ok(PauseReport { is_changed, in_flight }) = result else { return };
    let what = match target {
        PauseTarget::All => "everything",
        PauseTarget::Listener(_) | PauseTarget::Thread(_) => target_name(target),
    };
    let place = if count > 1 { format!(" (partition {partition})") } else { String::new() };
    let text = match (verb, is_changed) {
        (PauseVerb::Pause, true) => {
            let name = target_name(target);
            format!("is paused: nothing more is handed over until `organism resume {name}`")
        }
        (PauseVerb::PauseAndCancel, true) => {
            "is paused, and its work in flight is being cancelled".to_owned()
        }
        (PauseVerb::Pause | PauseVerb::PauseAndCancel, false) => "was paused already".to_owned(),
        (PauseVerb::Resume, true) => "is resumed".to_owned(),
        (PauseVerb::Resume, false) => "was not paused".to_owned(),
    };
    let flight = match (verb, in_flight) {
        (PauseVerb::Resume, _) | (_, 0) => String::new(),
        (PauseVerb::PauseAndCancel, n) => format!("; deliveries cancelled: {n}"),
        (PauseVerb::Pause, n) => format!("; deliveries in flight that end by themselves: {n}"),
    };
    note!("{what}{place} {text}{flight}");
}

/// Returns the name with which the command line selects `target`.
fn target_name(target: &PauseTarget) -> &str {
    match target {
        PauseTarget::All => "all",
        PauseTarget::Listener(listener) => listener.as_str(),
        PauseTarget::Thread(thread) => thread.as_str(),
    }
}

fn print_json(
    verb: PauseVerb,
    target: &PauseTarget,
    results: &[PartitionResult],
) -> anyhow::Result<()> {
    let partitions = results.iter().map(|(partition, result)| {
        let (name, in_flight, error) = match result {
            Ok(PauseReport { is_changed: true, in_flight }) => ("done", Some(*in_flight), None),
            Ok(PauseReport { is_changed: false, in_flight }) => {
                ("unchanged", Some(*in_flight), None)
            }
            Err(error @ PauseError::Refused(_)) => ("refused", None, Some(error.to_string())),
            Err(error) if error.is_result_unknown() => ("unknown", None, Some(error.to_string())),
            Err(error) => ("failed", None, Some(error.to_string())),
        };
        PartitionOutput { partition: *partition, result: name, in_flight, error }
    });
    let name = (*target != PauseTarget::All).then(|| target.name());
    let target = TargetOutput { kind: target.kind(), name };
    let output = PauseOutput { action: verb.as_str(), target, partitions: partitions.collect() };
    put_json_line(&serde_json::to_string_pretty(&output)?);
    Ok(())
}

/// Returns success if the pause or the resume succeeded in every partition. Otherwise, returns an
/// error with the exit code of the first failed partition. With several partitions, also prints the
/// error of each failed one. `names` contains the known listeners, for an error about an unknown
/// listener.
fn outcome(
    verb: PauseVerb,
    names: &[String],
    results: Vec<PartitionResult>,
) -> anyhow::Result<ExitCode> {
    let count = results.len();
    let mut failures = Vec::new();
    for (partition, result) in results {
        let Err(error) = result else { continue };
        if count > 1 {
            note!("partition {partition}: {error}");
        }
        failures.push(error);
    }

    let summary = failed_partitions(verb, failures.iter(), count);
    let Some(first) = failures.into_iter().next() else { return Ok(CommandExit::Done.into()) };
    let exit = match first {
        PauseError::Refused(refusal) if count == 1 => {
            return decision::ruled(Some(*refusal)).map(|()| CommandExit::Done.into());
        }
        PauseError::Refused(refusal) => decision::exit_of_refusal(&refusal),
        PauseError::UnknownListener(listener) => return Err(unknown_listener(&listener, names)),
        PauseError::Service(ref error) => {
            let exit = exit::of_service(error);
            if count == 1 {
                return Err(CommandFailure::new(exit, first.to_string()).into());
            }
            exit
        }
    };

    Err(CommandFailure::new(exit, summary + advice(exit)).into())
}

/// If `exit` states that the failure may be temporary, returns the advice to repeat the command.
/// Otherwise, returns an empty text.
fn advice(exit: CommandExit) -> &'static str {
    if exit == CommandExit::TryAgain { "; the command can be repeated" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_to_be_repeated_only_if_the_reason_may_pass() {
        assert_eq!(advice(CommandExit::TryAgain), "; the command can be repeated");
        assert_eq!(advice(CommandExit::Config), "");
    }
}
