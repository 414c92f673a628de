//! `organism resume`: ends a pause, so that calls are handed over again.

use std::process::ExitCode;

use crate::thread::PauseVerb;

use super::pause_action::{self, PauseArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pause: PauseArgs,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    pause_action::run(PauseVerb::Resume, args.pause)
}
