//! Reads the passphrase of an operator's key: from a file, from a terminal without echo, or from
//! standard input.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::Path;

use pkcs8::der::zeroize::Zeroizing;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::config::PASSPHRASE_FILE;
use crate::limits;
use crate::service::signing::read_private;

use super::exit::CommandFailure;

/// Reads the passphrase of the key in `path`.
pub(super) fn of_key(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    read(&format!("passphrase of {}: ", path.display()))
}

/// Asks for the passphrase of a new key. On a terminal, asks twice.
pub(super) fn of_new_key(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let passphrase = read(&format!("new passphrase of {}: ", path.display()))?;
    let least = limits::PASSPHRASE_CHARS_MIN;
    if passphrase.chars().count() < least {
        let text = format!("a passphrase has at least {least} characters");
        return Err(CommandFailure::usage(text).into());
    }

    if is_typed() && *read("the same again: ")? != *passphrase {
        return Err(CommandFailure::usage("the two passphrases differ; no key was made").into());
    }

    Ok(passphrase)
}

/// Whether the passphrase comes from a person at a terminal.
fn is_typed() -> bool {
    std::env::var_os(PASSPHRASE_FILE).is_none() && std::io::stdin().is_terminal()
}

fn read(prompt: &str) -> anyhow::Result<Zeroizing<String>> {
    let text = match std::env::var_os(PASSPHRASE_FILE) {
        Some(path) => {
            let text = read_private(Path::new(&path));
            text.map_err(|error| CommandFailure::usage(format!("{PASSPHRASE_FILE}: {error}")))?
        }
        None if is_typed() => hidden_line(prompt)?,
        None => line()?,
    };

    let passphrase = text.lines().next().unwrap_or_default();
    if passphrase.is_empty() {
        let text = format!(
            "no passphrase was given: type it at a terminal, name its file in {PASSPHRASE_FILE}, \
             or write it to standard input"
        );
        return Err(CommandFailure::usage(text).into());
    }

    Ok(Zeroizing::new(passphrase.to_owned()))
}

fn line() -> anyhow::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::new());
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line)
}

/// Reads a line from the terminal without echo.
fn hidden_line(prompt: &str) -> anyhow::Result<Zeroizing<String>> {
    let shown = HiddenInput::begin()?;
    note_part!("{prompt}");
    let line = line();
    drop(shown);
    note_part!("\n");
    line
}

/// Settings that the terminal had before the echo was switched off. Dropping this value restores
/// them.
struct HiddenInput(Termios);

impl HiddenInput {
    fn begin() -> anyhow::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // The call fails if the terminal is gone, and then nothing needs to be restored.
        tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0).ok();
    }
}
