//! `organism workflow show THREAD`: lists the calls that an undo of a recorded run would cover.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::config::Config;
use crate::ids::ThreadId;
use crate::organism::JournalRuns;
use crate::workflow::{LeftCall, UndoRules, UndoSource, planned_undo};

use super::super::exit::{CommandExit, CommandFailure};
use super::super::journal_target::JournalTarget;
use super::super::output::put;
use super::super::render::{RenderOutput, clean, put_json, table};
use super::recorded::run_on_record;

/// Lists the calls that an undo of the latest run in `thread` would cover, by the undo rules of
/// `config`. First come the calls whose effects the undo would reverse, in the order of the undo.
/// Then come the calls whose effects the undo could not reverse.
pub fn show(
    config: &Config,
    place: &JournalTarget,
    thread: &ThreadId,
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    let run = run_on_record(place, thread)?;
    let rules = UndoRules::new(&config.contracts, &config.schemas);
    let archive = JournalRuns::new(run.data().to_owned());
    let undo = UndoSource { rules: &rules, archive: &archive, up_to: run.last };
    let plan = planned_undo(&run.request, &run.messages, undo).map_err(|reason| {
        let message = format!("the calls of the run {thread} cannot be read: {reason}");
        CommandFailure::new(CommandExit::InvalidData, message)
    })?;

    let targets = plan.targets.iter();
    let targets = targets.map(|target| (&target.call, Some(target.payload.to_xml())));
    let calls: Vec<_> = targets.chain(plan.left.iter().map(|call| (call, None))).collect();
    if is_json {
        calls.iter().map(json_line).try_for_each(|line| put_json(&line))?;
        return Ok(CommandExit::Done.into());
    }
    if calls.is_empty() {
        note!("an undo of the latest run in {thread} covers no call");
        return Ok(CommandExit::Done.into());
    }

    let rows: Vec<_> = calls.iter().map(row).collect();
    let headers = ["listener", "payload", "thread", "undo"];
    put(&table(&RenderOutput::stdout(false), &headers, &rows))?;
    Ok(CommandExit::Done.into())
}

/// A call, with the payload that undoes the call; `None` if the call cannot be undone.
type CoveredCall<'a> = (&'a LeftCall, Option<String>);

fn row((call, undo): &CoveredCall<'_>) -> Vec<String> {
    let undo = undo.as_ref().map_or_else(|| format!("none: {}", call.reason), |undo| clean(undo));
    let payload = call.payload.clone();
    vec![call.listener.to_string(), payload, call.thread.to_string(), undo]
}

fn json_line((call, undo): &CoveredCall<'_>) -> Value {
    json!({
        "call": call.call.to_string(),
        "listener": call.listener.as_str(),
        "payload": call.payload,
        "thread": call.thread.as_str(),
        "undo": undo,
        "why": undo.is_none().then_some(&call.reason),
    })
}
