//! `organism approve`: approves a held call, which the hash of its payload identifies.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use crate::audit::HeldCall;
use crate::limits;
use crate::thread::{Decision, Hold};

use super::all_from::CallsOfThread;
use super::decision::{self, DecisionArgs};
use super::exit::{CommandExit, CommandFailure};
use super::organism_reach::OrganismReach;
use super::render::{RenderOutput, held};
use super::startup::{self, ConfigArg};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    decision: DecisionArgs,
    /// The held call, as listed by `organism approvals`.
    #[arg(required_unless_present = "all_from")]
    message: Option<String>,
    /// Approve all calls of this thread and its subthreads that wait.
    #[arg(long, value_name = "THREAD", conflicts_with = "message")]
    all_from: Option<String>,
    /// SHA-256 of the payload that you have seen, or at least its first 8 digits. With --all-from,
    /// the hash of all payloads that `organism approvals --all-from` shows.
    #[arg(long)]
    hash: Option<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reach = args.config.reach(&args.decision)?;
    if let Some(thread) = &args.all_from {
        let calls = CallsOfThread::waiting(reach.data(), thread)?;
        return approve_all(&args, reach, &calls);
    }

    let message = startup::message(args.message.as_deref().unwrap_or_default())?;
    let waiting = decision::waiting(reach.data(), Hold::Approval)?;
    let call = waiting.iter().find(|call| call.message == message);
    if let Some(call) = call {
        show(call);
    }

    let hash = match (args.hash, call) {
        (Some(hash), call) => whole(require_long_hash(hash.trim().to_lowercase())?, call),
        (None, Some(call)) => {
            confirm("approve exactly this?")?;
            call.sha256.to_string()
        }
        (None, None) => {
            let text = format!("{message} waits for no approval; `organism approvals` shows all");
            return Err(CommandFailure::new(CommandExit::InvalidData, text).into());
        }
    };

    decision::decide(reach, message, Decision::Approve { hash }, &args.decision)?;
    note!("{message}: approved");
    Ok(CommandExit::Done.into())
}

/// Approves each of these calls, if the given hash or the person's answer is about all of them.
fn approve_all(args: &Args, reach: OrganismReach, all: &CallsOfThread) -> anyhow::Result<ExitCode> {
    all.calls.iter().for_each(show);
    match &args.hash {
        Some(hash) => all.check_hash(&require_long_hash(hash.trim().to_lowercase())?)?,
        None => confirm(&format!("approve exactly these {}?", all.calls.len()))?,
    }

    let approve = |call: &HeldCall| Decision::Approve { hash: call.sha256.to_string() };
    all.decide(reach, approve, &args.decision, "approved")?;
    Ok(CommandExit::Done.into())
}

fn show(call: &HeldCall) {
    note_part!("{}", held(&RenderOutput { colour: false, ..RenderOutput::stdout(true) }, call));
}

/// Refuses a hash that is too short to identify a payload.
fn require_long_hash(hash: String) -> anyhow::Result<String> {
    if hash.len() >= limits::HASH_CHARS_MIN {
        return Ok(hash);
    }

    let digits = limits::HASH_CHARS_MIN;
    let text = format!(
        "`{hash}` is too short for --hash: give at least the first {digits} digits of the payload's \
         SHA-256; `organism approvals` shows the payload and the whole command"
    );
    Err(CommandFailure::new(CommandExit::Usage, text).into())
}

/// Completes an abbreviated hash if this host knows the call, because a signature covers the whole
/// hash.
fn whole(hash: String, call: Option<&HeldCall>) -> String {
    let known = call.map(|call| call.sha256.to_string());
    let is_begun =
        |whole: &String| hash.len() >= limits::HASH_CHARS_MIN && whole.starts_with(&hash);
    known.filter(is_begun).unwrap_or(hash)
}

/// Asks for a confirmation of what was shown. Fails without one.
fn confirm(question: &str) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let text = "no terminal to show the payload: pass --hash, as `organism approvals` prints \
                    it";
        return Err(CommandFailure::new(CommandExit::Usage, text).into());
    }

    note_part!("{question} yes or no: ");
    loop {
        std::io::stderr().flush()?;
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line)?;
        match line.trim() {
            "yes" => return Ok(()),
            answer if answer == "no" || read == 0 => {
                let text = "not approved; it waits on";
                return Err(CommandFailure::new(CommandExit::ApprovalPending, text).into());
            }
            _ => note_part!("say yes or no: "),
        }
    }
}
