//! `organism pause`: stops the hand-over of work in a thread, to a listener, or in the whole
//! organism.

use std::process::ExitCode;

use crate::thread::PauseVerb;

use super::pause_action::{self, PauseArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pause: PauseArgs,
    /// Also cancel the calls that are in flight, that is, already handed over to a listener.
    #[arg(long)]
    cancel: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let verb = if args.cancel { PauseVerb::PauseAndCancel } else { PauseVerb::Pause };
    pause_action::run(verb, args.pause)
}
