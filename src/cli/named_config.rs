//! Adds the `--config` of this command to each command that the output recommends to the user.

use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;

use clap::CommandFactory as _;

use super::CommandLine;
use crate::config::in_shell;

/// The config file that the option `--config` of this command names.
static GIVEN: OnceLock<String> = OnceLock::new();

/// Recommended commands to which the `--config` of this command is never added. `demo` has a config
/// of its own, `key show` is for another machine, and `workflow test` uses the config that its case
/// file names.
const FOR_OTHER_CONFIGS: [&[&str]; 3] = [&["demo"], &["key", "show"], &["workflow", "test"]];

const PROGRAM: &str = "organism ";

/// Remembers the config that `--config` of this command names.
pub fn remember(given: Option<&Path>) {
    if let Some(path) = given {
        // The first call counts: a command may load a second config later.
        GIVEN.set(path.display().to_string()).ok();
    }
}

/// Returns the config file that `--config` of this command names. Returns `None` if the command
/// line has no `--config`, or if the command does not load this config.
pub fn given() -> Option<&'static Path> {
    GIVEN.get().map(Path::new)
}

/// Returns a space and the option `--config` of this command. Returns an empty text if [`given`]
/// returns `None`.
pub fn option() -> String {
    GIVEN.get().map(|path| option_of("config", path)).unwrap_or_default()
}

/// Returns a space and the option that makes another command use the journal of this command. If
/// `data` is given, this option is `--data`. Otherwise, returns the result of [`option`].
pub fn option_or_data(data: Option<&Path>) -> String {
    data.map_or_else(option, |data| option_of("data", &data.display().to_string()))
}

/// Whether the command that this process carries out has the option `--data`.
pub fn takes_data() -> bool {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.collect();
    has_option(&words.iter().map(String::as_str).collect::<Vec<_>>(), "data")
}

/// Whether the command line of this process gives the option `--data`.
pub fn gives_data() -> bool {
    std::env::args_os().any(|word| {
        let word = word.to_string_lossy();
        word == "--data" || word.starts_with("--data=")
    })
}

/// Adds the `--config` of this command to each recommended command in `text` that accepts the
/// option. Backticks mark the recommended commands.
pub fn with_option(text: &str) -> Cow<'_, str> {
    match GIVEN.get() {
        Some(path) if text.contains(PROGRAM) => Cow::Owned(with_option_of(text, path)),
        _ => Cow::Borrowed(text),
    }
}

fn option_of(name: &str, path: &str) -> String {
    format!(" --{name} {}", in_shell(path))
}

fn with_option_of(text: &str, path: &str) -> String {
    let option = option_of("config", path);
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

/// Whether `--config` can be added to `command`, a text between backticks. This requires all of the
/// following:
///
/// - The text is a command that accepts `--config`.
/// - The text contains neither `--config` nor `--data`.
/// - The command is not one of [`FOR_OTHER_CONFIGS`].
fn takes_config(command: &str) -> bool {
    let Some(rest) = command.strip_prefix(PROGRAM) else { return false };
    let words: Vec<_> = rest.split_whitespace().collect();
    let is_named = words.iter().any(|word| ["--config", "--data"].contains(word));
    let is_for_other_config = FOR_OTHER_CONFIGS.iter().any(|other| words.starts_with(other));
    !is_named && !is_for_other_config && has_option(&words, "config")
}

/// Whether `words` begin with a command that has the option `name`.
fn has_option(words: &[&str], name: &str) -> bool {
    let is_declared = |command: &clap::Command| {
        command.get_arguments().any(|argument| argument.get_long() == Some(name))
    };
    let mut program = CommandLine::command();
    // Declares the arguments of all commands.
    program.build();
    let mut command = &program;
    let mut has = false;
    for word in words {
        let Some(inner) = command.find_subcommand(word) else { break };
        command = inner;
        has |= is_declared(command);
    }
    has
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
            ("`organism retry --all` tries", "`organism retry --all --config a/b.toml` tries"),
            (
                "`organism serve --operate` shows",
                "`organism serve --operate --config a/b.toml` shows",
            ),
            ("`organism workflow show w`", "`organism workflow show w --config a/b.toml`"),
            ("`organism workflow test w.toml`", "`organism workflow test w.toml`"),
            ("`organism demo`", "`organism demo`"),
            ("`organism init`", "`organism init`"),
            ("`organism key`", "`organism key`"),
            ("`organism `", "`organism `"),
            ("`organism thread x --data d`", "`organism thread x --data d`"),
            ("an organism run by others", "an organism run by others"),
            ("`organism runs`", "`organism runs`"),
        ] {
            assert_eq!(with_option_of(text, "a/b.toml"), expected);
        }
        assert_eq!(option_or_data(Some(Path::new("my data"))), " --data 'my data'");
        let quoted = with_option_of("`organism run`", "it's here.toml");
        assert_eq!(quoted, "`organism run --config 'it'\\''s here.toml'`");
    }

    #[test]
    fn an_option_belongs_to_the_command_that_the_words_begin_with() {
        assert!(has_option(&["thread", "sess-x", "--json"], "data"));
        assert!(has_option(&["approvals"], "data"));
        assert!(!has_option(&["workflow", "show", "sess-x"], "data"));
        assert!(!has_option(&["check"], "data"));
    }
}
