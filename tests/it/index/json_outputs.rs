//! The JSON of commands follows its JSON Schema (`organism schema output`).

use std::collections::{BTreeMap, BTreeSet};

use clap::CommandFactory as _;
use organism::cli::CommandLine;
use serde_json::Value as Json;

use super::timelines::nested;
use super::waiting::waiting;
use super::{organism, rows, text};
use crate::fixtures::stored_journals;
use crate::journal::Place;
use crate::journal::script::Script;
use crate::organism::kill::torture;

/// Commands that read the journal of a stopped organism. Other tests compare the outputs of all
/// other commands with their schemas: see [`crate::json_schemas`].
const READS_RECORD: [&str; 11] = [
    "answer",
    "approvals",
    "export",
    "message",
    "search",
    "sql",
    "stats",
    "tail",
    "thread",
    "threads",
    "verify",
];

/// A short run reads one in this many stored journals. With this number, the sample contains
/// journals of each generation.
const STORED_EVERY: usize = 13;

fn schema_of(place: &Place, command: &str) -> Json {
    let words: Vec<&str> = command.split(' ').collect();
    let output = organism_alone(place, &[&["schema", "output"], &words[..]].concat());
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// Output of a command that takes no journal.
fn organism_alone(place: &Place, args: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_organism"));
    let output = command.args(args).current_dir(place.home.path()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Collects the paths of `command` and of its subcommands that take `--json`. Ignores hidden
/// commands.
fn commands_with_json(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
    if command.is_hide_set() {
        return;
    }
    let is_json = |argument: &clap::Arg| argument.get_long() == Some("json");
    if command.get_arguments().any(is_json) {
        found.insert(path.to_owned());
    }
    for verb in command.get_subcommands() {
        commands_with_json(verb, format!("{path} {}", verb.get_name()).trim(), found);
    }
}

/// Issue 17, 4.7: each command with JSON output has a schema for this output.
#[test]
fn every_command_with_json_has_a_schema() {
    let place = Place::new();
    let listed = organism_alone(&place, &["schema", "output"]);
    let described: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    for command in &described {
        let schema = schema_of(&place, command);
        assert_eq!(schema["title"], format!("organism {command}"));
        jsonschema::meta::validate(&schema).unwrap_or_else(|error| panic!("{command}: {error}"));
    }

    let mut commands = BTreeSet::from(["export".to_owned()]);
    let mut program = CommandLine::command();
    program.build();
    commands_with_json(&program, "", &mut commands);
    let missing: Vec<&String> = commands.difference(&described).collect();
    assert_eq!(missing, [""; 0], "commands with --json and without a schema");
    let unknown: Vec<&String> = described.difference(&commands).collect();
    assert_eq!(unknown, [""; 0], "schemas of commands without --json");

    let refused = organism(&place, &["schema", "output", "run"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// The keys of `organism stats`.
const KEYS: [&str; 6] = ["agent", "model", "listener", "rule", "day", "agent,rule,day"];
/// Number of threads and of messages that a short run shows of a stored journal.
const SHOWN: usize = 3;

/// Commands to run on one journal, each with its arguments. In a short run, the commands for a
/// stored journal use one key of the statistics, and at most [`SHOWN`] threads and [`SHOWN`]
/// messages.
fn runs(place: &Place, stored: Option<usize>) -> Vec<Vec<String>> {
    let mut runs = Vec::new();
    let mut add = |args: &[&str]| runs.push(args.iter().map(|arg| (*arg).to_owned()).collect());
    add(&["approvals", "--json"]);
    add(&["answer", "--json"]);
    add(&["export", "--format", "jsonl"]);
    add(&["threads", "--json", "--all"]);
    add(&["verify", "--json"]);
    add(&["tail", "--json", "--no-follow", "-n", "1000"]);
    add(&["search", "--json", "--since", "2000-01-01", "--limit", "1000"]);
    add(&["sql", "--json", "SELECT * FROM message LIMIT 20"]);
    add(&["sql", "--json", "SELECT * FROM tree LIMIT 20"]);
    let is_short = stored.is_some() && !torture();
    let (keys, shown) = if is_short { (1, SHOWN) } else { (KEYS.len(), usize::MAX) };
    for key in KEYS.into_iter().cycle().skip(stored.unwrap_or(0)).take(keys) {
        add(&["stats", "--json", "--by", key]);
    }
    let threads = rows(&place.data(), "SELECT thread FROM tree");
    for (number, thread) in threads.iter().take(shown).enumerate() {
        add(&["thread", thread, "--json"]);
        if number < 2 || torture() {
            add(&["thread", thread, "--json", "--limit", "3"]);
            add(&["approvals", "--json", "--all-from", thread]);
        }
    }
    let some = "SELECT id FROM message WHERE position % 7 = 1 OR kind = 'note' LIMIT 6";
    for message in rows(&place.data(), some).iter().take(shown) {
        add(&["message", message, "--json"]);
    }
    runs
}

fn output_of(place: &Place, args: &[&str]) -> String {
    if args[0] == "answer" {
        // It takes no state directory.
        return organism_alone(
            place,
            &[args, &["--data", place.data().to_str().unwrap()]].concat(),
        );
    }
    text(&organism(place, args).stdout)
}

/// Issue 17, 4.7: the output of each command fits its schema, and the schema describes every part
/// of the output.
#[test]
fn the_json_of_every_command_is_what_its_schema_says() {
    let mut script = Script::default();
    let held = waiting(&mut script, 12);
    let written = [nested(), held].map(|mut records| Place::with(&mut records));
    let mut schemas: BTreeMap<String, jsonschema::Validator> = BTreeMap::new();
    let mut values: BTreeMap<String, usize> = BTreeMap::new();

    let step = if torture() { 1 } else { STORED_EVERY };
    let stored = stored_journals().map(|(_, place)| place).step_by(step);
    let stored = stored.enumerate().map(|(number, place)| (Some(number), place));
    let written = written.into_iter().map(|place| (None, place));
    for (number, place) in written.chain(stored) {
        for args in runs(&place, number) {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let command = args[0];
            let schema = schemas
                .entry(command.to_owned())
                .or_insert_with(|| jsonschema::validator_for(&schema_of(&place, command)).unwrap());
            let output = output_of(&place, &args);
            for value in serde_json::Deserializer::from_str(&output).into_iter::<Json>() {
                let mut value = value.unwrap_or_else(|error| panic!("{args:?}: {error}"));
                let wrong: Vec<String> =
                    schema.iter_errors(&value).map(|error| error.to_string()).collect();
                assert!(wrong.is_empty(), "{args:?}: {wrong:?}\n{value}");
                *values.entry(command.to_owned()).or_default() += 1;

                // A member that is new must be added to the schema.
                value["member_of_tomorrow"] = Json::Bool(true);
                assert!(!schema.is_valid(&value), "{args:?} permits any member");
            }
        }
    }

    for command in READS_RECORD {
        assert!(values.contains_key(command), "no output of `{command}` was seen");
    }
}
