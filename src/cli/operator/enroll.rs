//! `organism operator enroll`: writes the public key of an operator's browser into the config file.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{self, BrowserKeyChange, Config, ConfigEnvironment, with_browser_key};
use crate::thread::OperatorPublicKey;

use super::super::config_error_carets;
use super::super::exit::{CommandExit, CommandFailure};
use super::config_file::ConfigFile;

/// Number of characters in the text of a public key, without its prefix `ed25519:`.
const KEY_CHARS: usize = 43;
const ALGORITHM: &str = "ed25519:";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the operator, as in `[operators.NAME]`.
    name: String,
    /// The public key, as the page "The key of this browser" shows it: ed25519:…
    key: String,
    /// Config file. Default: ORGANISM_CONFIG, ./organism.toml, or the only ./config/*.toml.
    config: Option<PathBuf>,
    /// Replace the browser key that the operator already has in the config.
    #[arg(long)]
    replace: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let key = key_of(&args.key).map_err(CommandFailure::usage)?;
    let around = ConfigEnvironment::of_process();
    let located = config::locate(args.config.as_deref(), &around);
    let loaded = located.and_then(|path| {
        let config = config::load_without_keys(&path, &around)?;
        Ok((path, config))
    });
    let (path, config) = loaded.map_err(|problems| {
        config_error_carets::report(&problems);
        CommandFailure::silent(CommandExit::Config)
    })?;
    refuse_known_key(&config, &args.name, &key).map_err(CommandFailure::usage)?;

    let file = ConfigFile::lock(&path)?;
    let edit = with_browser_key(file.text(), &args.name, &key, args.replace);
    let edit =
        edit.map_err(|error| CommandFailure::usage(format!("{}: {error}", path.display())))?;
    let shown = path.display();
    match edit {
        BrowserKeyChange::Unchanged => {
            note!("{shown} has this key of {} already; nothing was changed", args.name);
            return Ok(CommandExit::Done.into());
        }
        BrowserKeyChange::Added(text) => {
            file.replace(&text)?;
            note!("{shown}: {} may sign in the browser with {key}", args.name);
        }
        BrowserKeyChange::Replaced { text, earlier } => {
            file.replace(&text)?;
            note!("{shown}: {} may sign in the browser with {key}", args.name);
            note!(
                "from then on no longer with {earlier}, which the organism that runs still accepts"
            );
        }
    }
    note!(
        "an operator's key counts from the next start: end `organism run`, and start it again \
         (`organism reload` takes no keys)"
    );
    Ok(CommandExit::Done.into())
}

/// Parses the key. Returns an explanation if it is invalid.
fn key_of(text: &str) -> Result<OperatorPublicKey, String> {
    if let Some(key) = OperatorPublicKey::parse(text) {
        return Ok(key);
    }
    let copy = "copy it whole from the page \"The key of this browser\"";
    let Some(digits) = text.strip_prefix(ALGORITHM) else {
        return Err(format!("`{text}` is no key: one begins with `{ALGORITHM}`; {copy}"));
    };
    let chars = digits.chars().count();
    if chars != KEY_CHARS {
        return Err(format!(
            "`{text}` has {chars} characters after `{ALGORITHM}`, and a key has {KEY_CHARS}; {copy}"
        ));
    }
    Err(format!("`{text}` is no public key of Ed25519; {copy}"))
}

/// Refuses a key that belongs to another operator of the config, because a key must identify one
/// operator.
fn refuse_known_key(config: &Config, name: &str, key: &OperatorPublicKey) -> Result<(), String> {
    match config.operators.owner(key) {
        Some(owner) if owner.as_str() != name => Err(format!(
            "this is a key of the operator `{owner}`, and each operator has keys of their own; the \
             page of the key shows for whom it was made"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_key_is_refused_with_what_is_wrong() {
        let good = "ed25519:iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w";
        assert!(key_of(good).is_ok());
        for (text, expected) in [
            (&good[8..], "begins with `ed25519:`"),
            (&good[..good.len() - 1], "has 42 characters"),
            ("ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "no public key of Ed25519"),
        ] {
            let error = key_of(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
