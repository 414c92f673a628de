//! `organism approve`: approves a held call. The hash of the payload states exactly which payload
//! is approved.

use std::process::ExitCode;

use clap::ArgGroup;

use crate::audit::HeldCall;
use crate::ids::{Digest, MessageId};
use crate::limits;
use crate::thread::{Decision, Hold};

use super::all_from::CallsOfThread;
use super::confirmation;
use super::decision::{self, DecisionArgs, SoughtCalls};
use super::exit::{CommandExit, CommandFailure};
use super::organism_reach::OrganismReach;
use super::render::{RenderOutput, held};
use super::startup::ConfigArg;
use super::waiting_message;

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("calls").required(true))]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    decision: DecisionArgs,
    /// The held call, as listed by `organism approvals`, or the beginning of its id.
    #[arg(group = "calls")]
    message: Option<String>,
    /// Approve all waiting calls of this thread and its subthreads.
    #[arg(long, value_name = "THREAD", group = "calls")]
    all_from: Option<String>,
    /// SHA-256 of the payload that you have seen, or at least its first 8 digits. With --all-from,
    /// the hash of all payloads that `organism approvals --all-from` shows.
    #[arg(long)]
    hash: Option<String>,
    /// SHA-256 of the preview that you have seen, or at least its first 8 digits. Required with
    /// --hash if the call has a preview.
    #[arg(long, value_name = "HASH", requires = "hash", conflicts_with = "all_from")]
    preview: Option<String>,
    /// Write one line of JSON for each decision.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reach = args.config.reach(&args.decision)?;
    if let Some(thread) = &args.all_from {
        let calls = CallsOfThread::waiting(reach.data(), thread)?;
        return approve_all(&args, reach, &calls);
    }

    let id = args.message.as_deref().unwrap_or_default();
    let message = waiting_message::find(reach.data(), id, &[Hold::Approval])?;
    let sought = SoughtCalls::One(message);
    let waiting = match args.hash {
        Some(_) => decision::waiting(reach.data(), Hold::Approval, sought)?,
        None => {
            decision::waiting_with_previews(reach.data(), sought, |call| call.message == message)?
        }
    };
    let call = waiting.page.calls.iter().find(|call| call.message == message);
    if let Some(call) = call {
        show(call);
    }

    let what = match (args.hash, call) {
        (Some(hash), call) => {
            let hash = require_long_hash(hash.trim().to_lowercase(), "--hash")?;
            let preview = args.preview.as_ref();
            let preview =
                preview.map(|hash| require_long_hash(hash.trim().to_lowercase(), "--preview"));
            let preview = preview.transpose()?;
            let is_whole = |hash: &String| Digest::parse(hash).is_ok();
            let are_whole = is_whole(&hash) && preview.as_ref().is_none_or(is_whole);
            let [sha256, preview_sha256] = match call {
                Some(call) => [Some(call.sha256), call.preview_sha256()],
                None if args.decision.sign.is_some() && !are_whole => {
                    let request = waiting_message::recorded_request(reach.data(), message)?;
                    let hashes = request.map(|call| [Some(call.sha256), call.preview_sha256]);
                    hashes.unwrap_or_default()
                }
                None => [None, None],
            };
            Decision::Approve {
                hash: whole(hash, sha256),
                preview: preview.map(|preview| whole(preview, preview_sha256)),
            }
        }
        (None, Some(call)) => {
            let options =
                if call.preview_sha256().is_some() { "--hash and --preview" } else { "--hash" };
            confirm("approve exactly this?", options)?;
            decision::approval_of(call)
        }
        (None, None) => return Err(waiting.not_found(waits_for_none(message))),
    };

    decision::decide(reach, message, what, &args.decision, args.json)?;
    note!("{message}: approved");
    Ok(CommandExit::Done.into())
}

fn waits_for_none(message: MessageId) -> String {
    format!("{message} waits for no approval; `organism approvals --all` shows all")
}

/// Approves all given calls. If the command line has a hash, the hash must be the digest of exactly
/// these calls, or the beginning of this digest. If the command line has no hash, asks the person
/// to confirm.
fn approve_all(args: &Args, reach: OrganismReach, all: &CallsOfThread) -> anyhow::Result<ExitCode> {
    all.calls.iter().for_each(show);
    match &args.hash {
        Some(hash) => all.check_hash(&require_long_hash(hash.trim().to_lowercase(), "--hash")?)?,
        None => confirm(&format!("approve exactly these {}?", all.calls.len()), "--hash")?,
    }

    all.decide(reach, decision::approval_of, &args.decision, "approved", args.json)?;
    Ok(CommandExit::Done.into())
}

fn show(call: &HeldCall) {
    note_part!("{}", held(&RenderOutput::stderr(true), call));
}

/// Returns `hash` unchanged. Fails if `hash` has too few digits to identify a payload. `option` is
/// the name of the option in the error message.
fn require_long_hash(hash: String, option: &str) -> anyhow::Result<String> {
    if hash.len() >= limits::HASH_CHARS_MIN {
        return Ok(hash);
    }

    let digits = limits::HASH_CHARS_MIN;
    let text = format!(
        "`{hash}` is too short for {option}: give at least the first {digits} digits of the SHA-256; \
         `organism approvals --all` shows it, and the whole command"
    );
    Err(CommandFailure::usage(text).into())
}

/// Completes a hash of which the person may have given only the first digits, because a signature
/// needs all digits. Returns `known`, the expected digest, if it begins with `hash`. Returns `hash`
/// unchanged in these cases:
///
/// - `hash` is too short.
/// - `known` is `None`.
/// - `known` does not begin with `hash`.
fn whole(hash: String, known: Option<Digest>) -> String {
    let known = known.map(|digest| digest.to_string());
    let is_begun =
        |whole: &String| hash.len() >= limits::HASH_CHARS_MIN && whole.starts_with(&hash);
    known.filter(is_begun).unwrap_or(hash)
}

/// Asks the person to confirm. Fails if the person does not answer yes, or if there is no terminal.
/// Without a terminal, the error names `options`, the options that make the question unnecessary.
fn confirm(question: &str, options: &str) -> anyhow::Result<()> {
    if !confirmation::has_terminal() {
        let text = format!(
            "no terminal to show the payload: pass {options}, as `organism approvals` prints it"
        );
        return Err(CommandFailure::usage(text).into());
    }

    if confirmation::ask(question)? {
        return Ok(());
    }
    let text = "not approved; it waits on";
    Err(CommandFailure::new(CommandExit::ApprovalPending, text).into())
}
