//! `organism secret`: makes a secret for a client.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand_core::RngCore as _;

use crate::durable_file;
use crate::io_reason::io_reason;

use super::exit::{self, CommandExit, CommandFailure};
use super::render::put;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: SecretVerb,
}

#[derive(Debug, clap::Subcommand)]
enum SecretVerb {
    /// Make a secret of 256 bits.
    New {
        /// File to write to, which only its owner can read. Default: stdout.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

const SECRET_BYTES: usize = 32;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let SecretVerb::New { out } = args.verb;
    let mut bytes = [0; SECRET_BYTES];
    rand_core::OsRng.fill_bytes(&mut bytes);
    let secret = format!("{}\n", URL_SAFE_NO_PAD.encode(bytes));

    let Some(path) = out else {
        put(&secret)?;
        return Ok(CommandExit::Done.into());
    };

    durable_file::write_new_private(&path, secret.as_bytes()).map_err(|error| {
        let file = path.display();
        let text = match error.kind() {
            ErrorKind::AlreadyExists => {
                format!("{file} exists, and a secret is never overwritten; name another file")
            }
            _ => format!("cannot write {file}: {}", io_reason(&error)),
        };
        CommandFailure::new(exit::of_written_file(&error), text)
    })?;
    note!("{}: wrote a secret; name it in secret_file of a client", path.display());
    Ok(CommandExit::Done.into())
}
