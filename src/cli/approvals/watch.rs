//! `organism approvals --watch`: shows one held call after another, and asks for each decision.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::termios::{QueueSelector, tcflush};

use crate::audit::{CallPreviewView, HeldCall};
use crate::envelope::Refusal;
use crate::ids::{MessageId, ThreadId};
use crate::service::SubmittedAnswer;
use crate::service::signing::OperatorSigner;
use crate::thread::{Decision, Hold, check_action_text};

use super::super::all_from::{is_from, show_result};
use super::super::confirmation;
use super::super::decision::{self, DecisionArgs};
use super::super::exit::{CommandExit, CommandFailure};
use super::super::render::{RenderOutput, held};
use super::super::startup::ConfigArg;

/// A person's choice about one call.
enum WatchChoice {
    Decide(Decision<SubmittedAnswer>),
    /// Makes no decision. The call still waits, but the command does not show it again.
    Skip,
    Quit,
}

/// Calls that the command has shown and must not show again.
#[derive(Debug, Default)]
struct ShownCalls(BTreeSet<MessageId>);

impl ShownCalls {
    /// Records that the command shows a call. Returns false if the command has already shown the
    /// call.
    fn note(&mut self, call: MessageId) -> bool {
        self.0.insert(call)
    }

    /// Whether a call still waits after a decision. `refusal` is `None` if the decision was
    /// accepted. True if the decision was refused for a temporary reason, such as a busy organism.
    /// The command then shows the call again.
    fn waits_on(&mut self, call: MessageId, refusal: Option<&Refusal>) -> bool {
        let is_passing = |refusal| decision::exit_of_refusal(refusal) == CommandExit::TryAgain;
        refusal.is_some_and(is_passing) && self.0.remove(&call)
    }
}

/// Pause after a temporary refusal of a decision.
const PAUSE: Duration = Duration::from_secs(1);

/// Shows the waiting calls, oldest first. Then shows each further call when it begins to wait.
/// Returns when the person quits or the organism ends. If `within` is given, shows only calls of
/// that thread and its subthreads.
pub fn watch(
    data: &Path,
    within: Option<&ThreadId>,
    config: &ConfigArg,
    args: &DecisionArgs,
) -> anyhow::Result<ExitCode> {
    if !confirmation::has_terminal() {
        let text = "--watch asks a person, and there is no terminal; `organism approvals` lists \
                    the calls, with a command for each";
        return Err(CommandFailure::usage(text).into());
    }

    let signer = args.signer()?;
    let mut shown = ShownCalls::default();
    let mut positions = BTreeMap::new();
    loop {
        let found = decision::waiting_on_record(data, Hold::Approval, usize::MAX)?;
        let is_answered = found.is_answered;
        let mut waiting = found.page.calls;
        waiting.retain(|call| within.is_none_or(|thread| is_from(call, thread)));
        // Shows one call at a time, because the others may end while the person decides. A call
        // without its requested preview is not shown yet: the preview comes with a later record.
        let is_whole = |call: &HeldCall| call.preview != Some(CallPreviewView::Requested);
        let next = waiting.into_iter().find(|call| is_whole(call) && shown.note(call.message));
        let Some(call) = next else {
            if decision::wait_for_records(data, &mut positions, is_answered)? {
                continue;
            }
            note!("no organism runs here, so no further call begins to wait");
            return Ok(CommandExit::Done.into());
        };

        match ask(&call)? {
            WatchChoice::Decide(what) => {
                let refusal = decide(config, call.message, what, args, signer.as_ref())?;
                if shown.waits_on(call.message, refusal.as_ref()) {
                    note!("{}: it waits on, and is shown again", call.message);
                    std::thread::sleep(PAUSE);
                }
            }
            WatchChoice::Skip => note!("{}: it waits on", call.message),
            WatchChoice::Quit => return Ok(CommandExit::Done.into()),
        }
    }
}

fn ask(call: &HeldCall) -> anyhow::Result<WatchChoice> {
    discard_input()?;
    note_part!("{}", held(&RenderOutput::stderr(true), call));
    note_part!("approve, refuse, skip or quit? ");
    loop {
        let Some(answer) = line()? else { return Ok(WatchChoice::Quit) };
        match answer.trim() {
            // Only the whole word approves, so that a key hit by accident releases nothing.
            "approve" => {
                return Ok(WatchChoice::Decide(decision::approval_of(call)));
            }
            "refuse" | "r" => {
                discard_input()?;
                note_part!("reason, which the caller receives (may be left out): ");
                return Ok(match read_reason()? {
                    Some(reason) => WatchChoice::Decide(Decision::Refuse { reason }),
                    None => WatchChoice::Quit,
                });
            }
            "skip" | "s" => return Ok(WatchChoice::Skip),
            "quit" | "q" => return Ok(WatchChoice::Quit),
            _ => note_part!("say approve, refuse, skip or quit: "),
        }
    }
}

/// Reads the reason for a refusal, and asks again for a shorter one if it is longer than the journal
/// records. Returns `None` at the end of the input.
fn read_reason() -> anyhow::Result<Option<String>> {
    loop {
        let Some(reason) = line()? else { return Ok(None) };
        let reason = reason.trim();
        match check_action_text(reason) {
            Ok(()) => return Ok(Some(reason.to_owned())),
            Err(problem) => note_part!("{problem}: "),
        }
    }
}

/// Discards input that the person typed before a question appeared. Such input does not answer the
/// question.
fn discard_input() -> anyhow::Result<()> {
    Ok(tcflush(std::io::stdin(), QueueSelector::IFlush)?)
}

/// Reads a line from the person. Returns `None` at the end of the input. Reads no text beyond the
/// line into a buffer, because [`discard_input`] could not discard that text.
fn line() -> anyhow::Result<Option<String>> {
    std::io::stderr().flush()?;
    let mut line = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        // A terminal gives at most one line at a time.
        let read = match rustix::io::read(std::io::stdin(), &mut bytes) {
            Err(rustix::io::Errno::INTR) => continue,
            read => read?,
        };
        line.extend_from_slice(bytes.get(..read).unwrap_or_default());
        if read == 0 || line.ends_with(b"\n") {
            break;
        }
    }

    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
}

/// Sends a decision, and prints its result. Returns `None` if the decision was accepted. Otherwise
/// returns the refusal, for example because another operator has decided meanwhile.
fn decide(
    config: &ConfigArg,
    message: MessageId,
    what: Decision<SubmittedAnswer>,
    args: &DecisionArgs,
    signer: Option<&OperatorSigner>,
) -> anyhow::Result<Option<Refusal>> {
    let done = match what {
        Decision::Approve { .. } => "approved",
        _ => "refused",
    };
    let reach = config.reach(args)?;
    let mut refused = None;
    decision::decide_all(reach, vec![(message, what)], args, signer, &mut |id, ruled| {
        refused = show_result(id, ruled, done);
    })?;
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::RefusalRule;

    #[test]
    fn a_call_whose_decision_was_refused_only_for_now_is_shown_again() {
        let call = MessageId(uuid::Uuid::nil());
        let refusal = |rule| Refusal::new(rule, "text", b"");
        let mut shown = ShownCalls::default();
        assert!(shown.note(call));
        assert!(!shown.note(call));
        for rule in [RefusalRule::Busy, RefusalRule::Draining, RefusalRule::StorageFull] {
            assert!(shown.waits_on(call, Some(&refusal(rule))));
            assert!(shown.note(call));
        }

        assert!(!shown.waits_on(call, Some(&refusal(RefusalRule::NotWaiting))));
        assert!(!shown.waits_on(call, None));
        assert!(!shown.note(call));
    }
}
