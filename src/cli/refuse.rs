//! `organism refuse`: refuses a held call or a question.

use std::process::ExitCode;

use clap::ArgGroup;

use crate::thread::{Decision, Hold};

use super::action_text::ActionText;
use super::all_from::CallsOfThread;
use super::decision::{self, DecisionArgs};
use super::exit::CommandExit;
use super::startup::ConfigArg;
use super::waiting_message;

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("calls").required(true))]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    decision: DecisionArgs,
    /// The held call, as listed by `organism approvals` or `organism answer`, or the beginning of
    /// its id.
    #[arg(group = "calls")]
    message: Option<String>,
    /// Refuse all calls of this thread and its subthreads that wait for an approval.
    #[arg(long, value_name = "THREAD", group = "calls")]
    all_from: Option<String>,
    /// Reason for the refusal, which the caller receives.
    #[arg(long, default_value = "")]
    reason: ActionText,
    /// Write one line of JSON for each decision.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reach = args.config.reach(&args.decision)?;
    if let Some(thread) = &args.all_from {
        let reason = args.reason.as_str();
        let refuse = |_: &_| Decision::Refuse { reason: reason.to_owned() };
        let calls = CallsOfThread::waiting(reach.data(), thread)?;
        calls.decide(reach, refuse, &args.decision, "refused", args.json)?;
        return Ok(CommandExit::Done.into());
    }

    let id = args.message.as_deref().unwrap_or_default();
    let message = waiting_message::find(reach.data(), id, &[Hold::Approval, Hold::Answer])?;
    let refuse = Decision::Refuse { reason: args.reason.into_string() };
    decision::decide(reach, message, refuse, &args.decision, args.json)?;
    note!("{message}: refused");
    Ok(CommandExit::Done.into())
}
