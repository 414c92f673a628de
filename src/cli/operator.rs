//! `organism operator`: makes the keys with which operators sign decisions, and enters the keys of
//! their browsers in the config.

mod config_file;
mod enroll;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::ConfigEnvironment;
use crate::ids::ListenerName;
use crate::organism::operator::this_user;
use crate::service::signing::{self, OperatorSigner};

use super::exit::{self, CommandExit, CommandFailure};
use super::passphrase;
use super::render::put;
use super::startup;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: OperatorCommand,
}

#[derive(Debug, clap::Subcommand)]
enum OperatorCommand {
    /// Make an Ed25519 key, encrypted with a passphrase, and print its line for the config.
    Key {
        /// File for the key. Default: organism/operator.key beneath XDG_CONFIG_HOME.
        file: Option<PathBuf>,
    },
    /// Write the public key of an operator's browser into the config file. The browser signs the
    /// operator's decisions.
    Enroll(enroll::Args),
}

const OWNER_ALONE: u32 = 0o700;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.verb {
        OperatorCommand::Key { file } => make_key(file),
        OperatorCommand::Enroll(args) => enroll::run(&args),
    }
}

fn make_key(file: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let is_named = file.is_some();
    let path = file.or_else(|| ConfigEnvironment::of_process().operator_key());
    let path = path.ok_or_else(|| {
        CommandFailure::usage(
            "this user has no home directory: set HOME, or name the file of the key",
        )
    })?;
    // Checked before a person invents a passphrase for nothing.
    if path.exists() {
        let text =
            format!("{} exists, and a key is never overwritten; name another file", path.display());
        return Err(CommandFailure::usage(text).into());
    }

    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // A named directory that is missing may be a disk that is not mounted.
    if let Some(parent) = parent.filter(|parent| is_named && !parent.is_dir()) {
        let text = format!("there is no directory {}", parent.display());
        return Err(CommandFailure::usage(text).into());
    }

    startup::hide_memory();
    let passphrase = passphrase::of_new_key(&path)?;
    if let Some(parent) = parent {
        let made = std::fs::DirBuilder::new().recursive(true).mode(OWNER_ALONE).create(parent);
        made.map_err(|error| {
            CommandFailure::usage(format!("cannot make {}: {error}", parent.display()))
        })?;
    }

    let signer = OperatorSigner::create(&path, &passphrase);
    let signer = signer.map_err(|error| {
        let exit = match &error {
            signing::Error::NotWritten { source, .. } => exit::of_written_file(source),
            _ => CommandExit::Usage,
        };
        CommandFailure::new(exit, error.to_string())
    })?;

    let login = this_user().login.filter(|login| ListenerName::parse(login).is_ok());
    let name = login.as_deref().unwrap_or("NAME");
    put(&format!("[operators.{name}]\nkey = \"{}\"\n", signer.public()))?;
    note!("{}: an operator's key, for --sign; keep its passphrase elsewhere", path.display());
    Ok(CommandExit::Done.into())
}
