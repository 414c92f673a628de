//! `organism approvals --watch`: shows one held call after another, and asks for each decision.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use crate::audit::HeldCall;
use crate::ids::{MessageId, Position, ThreadId};
use crate::service::SubmittedAnswer;
use crate::service::signing::OperatorSigner;
use crate::thread::{Decision, Hold};

use super::super::all_from::is_from;
use super::super::decision::{self, DecisionArgs};
use super::super::exit::{CommandExit, CommandFailure};
use super::super::organism_reach;
use super::super::render::{RenderOutput, held};
use super::super::startup::ConfigArg;

/// Choice of a person about one call.
enum WatchChoice {
    Decide(Decision<SubmittedAnswer>),
    /// The call waits on, and is not shown again by this command.
    Skip,
    Quit,
}

/// Shows the calls that wait, oldest first, and then each that begins to wait, until the person
/// quits or the organism ends. `within`: only calls of this thread and its subthreads.
pub fn watch(
    data: &Path,
    within: Option<&ThreadId>,
    config: &ConfigArg,
    args: &DecisionArgs,
) -> anyhow::Result<ExitCode> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let text = "--watch asks a person, and there is no terminal; `organism approvals` lists \
                    the calls, with a command for each";
        return Err(CommandFailure::new(CommandExit::Usage, text).into());
    }

    let signer = args.signer()?;
    let mut shown = BTreeSet::new();
    let mut positions = BTreeMap::new();
    loop {
        let mut waiting = decision::waiting_on_record(data, Hold::Approval)?;
        waiting.retain(|call| within.is_none_or(|thread| is_from(call, thread)));
        waiting.retain(|call| !shown.contains(&call.message));
        let is_idle = waiting.is_empty();

        for call in waiting {
            shown.insert(call.message);
            match ask(&call)? {
                WatchChoice::Decide(what) => {
                    decide(config, call.message, what, args, signer.as_ref())?;
                }
                WatchChoice::Skip => note!("{}: it waits on", call.message),
                WatchChoice::Quit => return Ok(CommandExit::Done.into()),
            }
        }

        if is_idle && !wait_for_records(data, &mut positions)? {
            note!("no organism runs here, so no further call begins to wait");
            return Ok(CommandExit::Done.into());
        }
    }
}

fn ask(call: &HeldCall) -> anyhow::Result<WatchChoice> {
    note_part!("{}", held(&RenderOutput { colour: false, ..RenderOutput::stdout(true) }, call));
    note_part!("approve, refuse, skip or quit? ");
    loop {
        let Some(answer) = line()? else { return Ok(WatchChoice::Quit) };
        match answer.trim() {
            "approve" | "a" => {
                let hash = call.sha256.to_string();
                return Ok(WatchChoice::Decide(Decision::Approve { hash }));
            }
            "refuse" | "r" => {
                note_part!("reason, which the caller receives (may be left out): ");
                let Some(reason) = line()? else { return Ok(WatchChoice::Quit) };
                let reason = reason.trim().to_owned();
                return Ok(WatchChoice::Decide(Decision::Refuse { reason }));
            }
            "skip" | "s" => return Ok(WatchChoice::Skip),
            "quit" | "q" => return Ok(WatchChoice::Quit),
            _ => note_part!("say approve, refuse, skip or quit: "),
        }
    }
}

/// Reads a line from the person. `None` at the end of the input.
fn line() -> anyhow::Result<Option<String>> {
    std::io::stderr().flush()?;
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line)?;
    Ok((read > 0).then_some(line))
}

/// Sends a decision. If it is refused, shows the refusal and goes on: another operator may have
/// decided meanwhile, or the call is over.
fn decide(
    config: &ConfigArg,
    message: MessageId,
    what: Decision<SubmittedAnswer>,
    args: &DecisionArgs,
    signer: Option<&OperatorSigner>,
) -> anyhow::Result<()> {
    let done = match what {
        Decision::Approve { .. } => "approved",
        _ => "refused",
    };
    let reach = config.reach(args)?;
    decision::decide_all(reach, vec![(message, what)], args, signer, &mut |id, ruled| match ruled {
        Some(refusal) => note!("{id}: not {done}: {refusal}"),
        None => note!("{id}: {done}"),
    })
}

/// Waits until the organism has recorded something since the last wait. Returns false if no organism
/// runs any more.
fn wait_for_records(data: &Path, positions: &mut BTreeMap<u32, Position>) -> anyhow::Result<bool> {
    let mut has_grown = false;
    organism_reach::follow(data, |partition, position| {
        // The first position that is reported may be of a record that came after the list was read.
        has_grown = positions.insert(partition, position) != Some(position);
        if has_grown { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(has_grown)
}
