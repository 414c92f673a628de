//! `organism refuse`: refuses a held call or a question.

use std::process::ExitCode;

use crate::thread::Decision;

use super::decision::{self, DecisionArgs};
use super::exit::CommandExit;
use super::startup::{self, ConfigArg};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    decision: DecisionArgs,
    /// The held call, as listed by `organism approvals` or `organism answer`.
    message: String,
    /// Reason, which the caller receives.
    #[arg(long, default_value = "")]
    reason: String,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reach = args.config.reach(&args.decision)?;
    let message = startup::message(&args.message)?;
    decision::decide(reach, message, Decision::Refuse { reason: args.reason }, &args.decision)?;
    note!("{message}: refused");
    Ok(CommandExit::Done.into())
}
