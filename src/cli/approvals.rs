//! `organism approvals`: lists the calls that wait for an approval, with the exact bytes of each
//! payload.

use std::process::ExitCode;

use crate::thread::Hold;

use super::decision;
use super::exit::CommandExit;
use super::journal_target::{self, JournalTarget};
use super::named_config;
use super::render::{RenderOutput, held, put, put_visible_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Write one line of JSON for each held call.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let waiting =
        decision::waiting_on_record(&journal_target::data_dir(&args.place)?, Hold::Approval)?;
    if args.json {
        waiting.iter().try_for_each(put_visible_json)?;
        return Ok(CommandExit::Done.into());
    }

    if waiting.is_empty() {
        note!("no calls wait for an approval");
    }

    for call in &waiting {
        let digest = call.sha256.to_string();
        let short: String = digest.chars().take(HASH_CHARS).collect();
        let config = named_config::option();
        let approve = format!("organism approve {} --hash {short}{config}", call.message);
        put(&format!("{}  {approve}\n\n", held(&RenderOutput::stdout(true), call)))?;
    }

    Ok(CommandExit::Done.into())
}

/// Number of digits of the hash in a suggested command, which is enough to be unique.
const HASH_CHARS: usize = 16;
