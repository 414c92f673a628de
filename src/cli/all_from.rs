//! `--all-from THREAD`: applies one decision to all calls that wait for an approval in a thread and
//! its subthreads.

use std::path::Path;

use crate::audit::HeldCall;
use crate::envelope::Refusal;
use crate::ids::{Digest, MessageId, ThreadId};
use crate::plural::{count, form};
use crate::service::SubmittedAnswer;
use crate::thread::Decision;

use super::decision::{self, DecisionArgs, DecisionOutput, SoughtCalls};
use super::exit::{CommandExit, CommandFailure};
use super::journal_target;
use super::organism_reach::OrganismReach;

/// The calls that wait for an approval in one thread and its subthreads, oldest first.
pub struct CallsOfThread {
    thread: ThreadId,
    pub calls: Vec<HeldCall>,
}

impl CallsOfThread {
    /// Finds the calls that wait for an approval in `thread` and its subthreads. Fails if no call
    /// waits.
    pub fn waiting(data: &Path, thread: &str) -> anyhow::Result<Self> {
        let thread = journal_target::known(thread)?;
        let is_wanted = |call: &HeldCall| is_from(call, &thread);
        let mut waiting = decision::waiting_with_previews(data, SoughtCalls::ALL, is_wanted)?;
        waiting.page.calls.retain(|call| is_from(call, &thread));
        if waiting.page.calls.is_empty() {
            return Err(waiting.not_found(none_waits(&thread)));
        }

        Ok(Self { thread, calls: waiting.page.calls })
    }

    /// Returns one digest over all these calls. The digest changes when another call begins to
    /// wait.
    pub fn digest(&self) -> Digest {
        digest(&self.calls)
    }

    /// Checks that `hash` is the digest of these calls, or the beginning of the digest.
    pub fn check_hash(&self, hash: &str) -> anyhow::Result<()> {
        if self.digest().to_string().starts_with(hash) {
            return Ok(());
        }

        let calls = self.calls.len();
        let thread = &self.thread;
        let text = format!(
            "wrong-hash: this is not the hash of the {} of {thread} that {} now; look at {} again \
             with `organism approvals --all-from {thread}`",
            count(calls, "call"),
            form(calls, "waits", "wait"),
            form(calls, "it", "them")
        );
        Err(CommandFailure::new(CommandExit::InvalidData, text).into())
    }

    /// Sends a decision on each call in `self`. `decision_on` returns the decision for a call. If a
    /// decision is refused, still sends the others, and returns the first refusal as an error at
    /// the end.
    ///
    /// If `json` is true, writes the result of each decision as a line of JSON, too.
    pub fn decide(
        &self,
        reach: OrganismReach,
        decision_on: impl Fn(&HeldCall) -> Decision<SubmittedAnswer>,
        args: &DecisionArgs,
        done: &str,
        json: bool,
    ) -> anyhow::Result<()> {
        let signer = args.signer()?;
        let decisions = self.calls.iter().map(|call| (call.message, decision_on(call)));
        let mut refused = None;
        decision::decide_all(
            reach,
            decisions.collect(),
            args,
            signer.as_ref(),
            &mut |id, ruled| {
                if json {
                    DecisionOutput::of_message(id, ruled.as_ref()).print();
                }
                if let Some(refusal) = show_result(id, ruled, done) {
                    refused.get_or_insert(refusal);
                }
            },
        )?;
        decision::ruled(refused)
    }
}

/// Prints the result of the decision on the call `message`. If `ruled` contains a refusal of the
/// decision, prints this refusal. Otherwise, prints the word `done`, such as `approved`. Returns
/// `ruled`.
pub fn show_result(message: MessageId, ruled: Option<Refusal>, done: &str) -> Option<Refusal> {
    match &ruled {
        Some(refusal) => note!("{message}: not {done}: {refusal}"),
        None => note!("{message}: {done}"),
    }

    ruled
}

/// Whether `call` was made in `thread` or in one of its subthreads.
pub fn is_from(call: &HeldCall, thread: &ThreadId) -> bool {
    call.thread.is_within(thread)
}

pub fn none_waits(thread: &ThreadId) -> String {
    format!("no call of {thread} waits for an approval; `organism approvals --all` shows all")
}

/// Returns one digest over the ids, the payloads and the previews of several calls.
pub fn digest(calls: &[HeldCall]) -> Digest {
    let preview = |call: &HeldCall| call.preview_sha256().map(|sha256| format!(" {sha256}"));
    let line = |call: &HeldCall| {
        format!("{} {}{}\n", call.message, call.sha256, preview(call).unwrap_or_default())
    };
    let lines = calls.iter().map(line);
    Digest::of(lines.collect::<String>().as_bytes())
}
