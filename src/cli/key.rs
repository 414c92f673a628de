//! `organism key`: shows the key that signs this host's checkpoints, and trusts keys of other
//! hosts.

use std::process::ExitCode;

use serde_json::json;

use crate::config::is_public_key;
use crate::journal::{KeyId, host_key};
use crate::organism::repair::trust_key;
use crate::organism::{self, project};

use super::action_text::ActionText;
use super::exit::{CommandExit, CommandFailure};
use super::journal_target;
use super::render::{put, put_json};
use super::startup::ConfigArg;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: KeyVerb,
}

#[derive(Debug, clap::Subcommand)]
enum KeyVerb {
    /// Print the public key of this host. Makes the key if there is none yet.
    Show {
        #[command(flatten)]
        config: ConfigArg,
        /// Write one JSON value.
        #[arg(long)]
        json: bool,
    },
    /// Trust the key of another host. The trust goes on record, signed by this host. This is
    /// possible only for a journal on JetStream, and only while the organism does not run.
    Trust {
        #[command(flatten)]
        config: ConfigArg,
        /// Public key of the other host: the 64 hexadecimal digits that `organism key show` prints
        /// on that host.
        #[arg(value_name = "KEY")]
        key: String,
        /// Reason for the trust, which goes on record.
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: ActionText,
    },
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.verb {
        KeyVerb::Show { config, json } => show(&config, json)?,
        KeyVerb::Trust { config, key, note } => trust(&config, &key, note.as_str())?,
    }
    Ok(CommandExit::Done.into())
}

fn trust(config: &ConfigArg, key: &str, note: &str) -> anyhow::Result<()> {
    if !is_public_key(key) {
        let text = format!(
            "`{key}` is not the public key of a host: give the 64 hexadecimal digits that \
             `organism key show` prints on that host"
        );
        return Err(CommandFailure::usage(text).into());
    }

    trust_key(&config.load_without_keys()?, key, note)?;
    note!("the key {} is trusted; it is on record in sess-organism, and signed", KeyId::of(key));
    Ok(())
}

fn show(config: &ConfigArg, json: bool) -> anyhow::Result<()> {
    let config = config.load_unbound()?;
    project::check_to_make_key(&config.directories()).map_err(organism::Error::from)?;
    let key = host_key(&config.state).map_err(journal_target::failed)?;
    if json {
        put_json(&json!({ "key": key.public, "id": key.id, "file": key.file }))?
    } else {
        put(&format!("{}\n", key.public))?;
        note!("messages name this key by its id {}", key.id);
    }

    Ok(())
}
