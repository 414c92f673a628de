//! `organism key`: the key that signs this host's checkpoints.

use std::process::ExitCode;

use serde_json::json;

use crate::journal::host_key;

use super::exit::Exit;
use super::opened::ConfigArg;
use super::place;
use super::render::{put, put_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the public key of this host; makes the key where there is none yet.
    Show {
        #[command(flatten)]
        config: ConfigArg,
        /// One JSON value.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Verb::Show { config, json } = args.verb;
    let state = config.load_without_keys()?.state;
    let key = host_key(&state).map_err(place::failed)?;
    match json {
        true => put_json(&json!({ "key": key.public, "id": key.id, "file": key.file }))?,
        false => {
            put(&format!("{}\n", key.public))?;
            note!("messages name this key by its id {}", key.id);
        }
    }
    Ok(Exit::Done.into())
}
