//! Remembers the `--config` of this command, so that the commands that it advises name it, too.

use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;

/// The config that this command was given.
static GIVEN: OnceLock<String> = OnceLock::new();

/// Verbs of commands that get the `--config` of this command when a message advises them, besides
/// `key trust`. `key show` gets none, because it is advised for another host.
const VERBS: [&str; 29] = [
    "adopt",
    "answer",
    "approvals",
    "approve",
    "backup",
    "cancel",
    "check",
    "config",
    "diff",
    "export",
    "fork",
    "host",
    "models",
    "nats-config",
    "promote",
    "prompt",
    "record",
    "refuse",
    "repair",
    "run",
    "search",
    "send",
    "sql",
    "stats",
    "tail",
    "thread",
    "threads",
    "verify",
    "workflow",
];

const PROGRAM: &str = "organism ";

/// Remembers the config that this command was given.
pub fn remember(given: Option<&Path>) {
    if let Some(path) = given {
        // A command has one config.
        GIVEN.set(path.display().to_string()).ok();
    }
}

/// Returns the option that names the config of this command, after a space; empty if none was
/// named.
pub fn option() -> String {
    GIVEN.get().map(|path| option_of(path)).unwrap_or_default()
}

/// Adds the `--config` of this command to each command between backticks that takes the option.
pub fn with_option(text: &str) -> Cow<'_, str> {
    match GIVEN.get() {
        Some(path) if text.contains(PROGRAM) => Cow::Owned(with_option_of(text, path)),
        _ => Cow::Borrowed(text),
    }
}

fn option_of(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,:=".contains(c);
    if path.chars().all(is_plain) {
        format!(" --config {path}")
    } else {
        format!(" --config '{}'", path.replace('\'', "'\\''"))
    }
}

fn with_option_of(text: &str, path: &str) -> String {
    let option = option_of(path);
    let mut out = String::new();
    for (at, part) in text.split('`').enumerate() {
        if at > 0 {
            out.push('`');
        }
        out.push_str(part);
        // Every second part stands between backticks.
        if at % 2 == 1 && takes_config(part) {
            out.push_str(&option);
        }
    }
    out
}

/// Whether the text is a command that takes `--config` and does not have that option yet.
fn takes_config(command: &str) -> bool {
    let Some(rest) = command.strip_prefix(PROGRAM) else { return false };
    let mut words = rest.split_whitespace();
    let takes = match words.next() {
        Some("key") => words.next() == Some("trust"),
        Some(verb) => VERBS.contains(&verb),
        None => false,
    };
    takes && !words.any(|word| ["--config", "--data", "test"].contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_advised_names_the_config_of_this_one() {
        for (text, expected) in [
            ("`organism adopt --new` begins", "`organism adopt --new --config a/b.toml` begins"),
            (
                "`organism run`, `organism run --new`",
                "`organism run --config a/b.toml`, `organism run --new --config a/b.toml`",
            ),
            ("run `organism key show` there", "run `organism key show` there"),
            ("or run `organism key trust`", "or run `organism key trust --config a/b.toml`"),
            (
                "`organism key trust KEY --note N`",
                "`organism key trust KEY --note N --config a/b.toml`",
            ),
            ("`organism nats-config` writes", "`organism nats-config --config a/b.toml` writes"),
            ("`organism host` takes turns", "`organism host --config a/b.toml` takes turns"),
            ("`organism key`", "`organism key`"),
            ("`organism `", "`organism `"),
            ("`organism thread x --data d`", "`organism thread x --data d`"),
            ("an organism run by others", "an organism run by others"),
            ("`organism runs`", "`organism runs`"),
        ] {
            assert_eq!(with_option_of(text, "a/b.toml"), expected);
        }
        let quoted = with_option_of("`organism run`", "it's here.toml");
        assert_eq!(quoted, "`organism run --config 'it'\\''s here.toml'`");
    }
}
