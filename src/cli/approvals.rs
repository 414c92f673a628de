//! `organism approvals`: what waits for an approval, byte for byte.

use std::process::ExitCode;

use crate::thread::Hold;

use super::exit::Exit;
use super::opened;
use super::place::{self, Place};
use super::render::{Paper, held, put, put_visible_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// A line of JSON per held call.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let waiting = opened::waiting_on_record(&place::data_dir(&args.place)?, Hold::Approval)?;
    if args.json {
        waiting.iter().try_for_each(put_visible_json)?;
        return Ok(Exit::Done.into());
    }
    if waiting.is_empty() {
        note!("nothing waits for an approval");
    }
    for call in &waiting {
        let digest = call.sha256.to_string();
        let short: String = digest.chars().take(HASH_CHARS).collect();
        let approve = format!("organism approve {} --hash {short}", call.message);
        put(&format!("{}  {approve}\n\n", held(&Paper::stdout(true), call)))?;
    }
    Ok(Exit::Done.into())
}

/// Of the hash in what is offered to be typed: enough that no other payload has them.
const HASH_CHARS: usize = 16;
