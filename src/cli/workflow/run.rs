//! `organism workflow run`: starts a run, shows its goals, and prints its output.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;

use crate::schema::Schemas;
use crate::service::{BearerSecret, SubmitRequest};
use crate::workflow::{
    WorkflowDefinition, WorkflowInput, dry_run, fit_children, input_name, input_payload,
    with_stand_ins,
};
use crate::xml::element::{Element, Node};
use crate::xml::escape::is_xml_char;

use super::super::exit::{CommandExit, CommandFailure};
use super::super::render::put_json;
use super::super::startup::{self, ConfigArg};
use super::named;
use super::shown_run::{RunOutputForm, show_run};

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Name of the workflow.
    name: String,
    #[command(flatten)]
    config: ConfigArg,
    /// One input of the workflow. For `NAME=@FILE`, the value is the content of the file. For a
    /// value that begins with `@`, write `NAME=@@…`. For a list, repeat the option with each value.
    /// The input of a payload that is a text has the name of this payload.
    #[arg(long = "input", value_name = "NAME=VALUE")]
    inputs: Vec<String>,
    /// Print the document that the agent of each goal would get, with placeholders for the outputs
    /// of other goals. No model is called.
    #[arg(long)]
    dry_run: bool,
    /// Client in whose name the run is started. Required if the config has several clients.
    #[arg(long = "as", value_name = "CLIENT")]
    client: Option<String>,
    /// Id of the run's thread.
    #[arg(long, value_name = "ID")]
    new: Option<String>,
    /// A key of your choice. Running with the same key again returns the recorded output and runs
    /// nothing twice.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// Return as soon as the journal has recorded the beginning of the run.
    #[arg(long)]
    no_wait: bool,
    /// Show nothing but the output.
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
    /// Write goals and output, or the documents of a dry run, as JSON lines.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let config =
        if args.dry_run { args.config.load_to_read()? } else { args.config.load_without_keys()? };
    let definition = named(&config, &args.name)?.clone();
    let values = values(&args.inputs)?;
    let schemas = &config.schemas;
    let input = input_payload(schemas, &definition, &values, args.dry_run);
    let input = input.map_err(|error| CommandFailure::usage(error.to_string()))?;
    let input = if args.dry_run { with_stand_ins(schemas, input) } else { input };
    let input = fit_children(schemas, input);
    if args.dry_run {
        check_given(schemas, &definition, &values, &input)?;
        for document in dry_run(&definition, &input) {
            if args.json {
                put_json(&document)?;
            } else {
                put_line!("== {}", document.title);
                put_line!("{}", document.text);
            }
        }
        return Ok(CommandExit::Done.into());
    }

    let client = startup::client(&config, args.client.as_deref())?;
    let secret = config.secret_of(&client).as_ref().map(BearerSecret::of);
    let submission = SubmitRequest {
        client,
        thread: None,
        suggested: args.new.clone(),
        key: args.key.clone(),
        payload: input.to_xml().into_bytes(),
        wait: !args.no_wait,
        trace: None,
        secret,
    };
    let output = RunOutputForm { quiet: args.quiet, json: args.json, no_wait: args.no_wait };
    startup::runtime()?.block_on(show_run(config, &definition, None, submission, output))
}

/// Checks the given values of a dry run against the schema of the workflow's input. For an input
/// without a given value, uses the value in a valid example. If a schema file declares the
/// workflow's payload, checks nothing, because the example may contain elements that exclude the
/// given ones.
fn check_given(
    schemas: &Schemas,
    definition: &WorkflowDefinition,
    values: &[(String, String)],
    input: &Element,
) -> anyhow::Result<()> {
    let name = input_name(definition);
    let example = match &definition.input {
        WorkflowInput::Types(_) => schemas.example(&name),
        WorkflowInput::Payload(_) => None,
    };
    let Some(example) = example.and_then(|text| Element::read_document(&text)) else {
        return Ok(());
    };

    let is_given = |child: &Node| match child {
        Node::Element(child) => values.iter().any(|(given, _)| given == child.local_name()),
        Node::Text(_) => false,
    };
    let mut payload = input.clone();
    payload.content.retain(is_given);
    payload.content.extend(example.content.into_iter().filter(|child| !is_given(child)));
    let payload = fit_children(schemas, payload).to_xml();

    let Err(findings) = schemas.validate(&name, payload.as_bytes()) else { return Ok(()) };
    let findings = findings.iter().map(|finding| format!("{}: {}", finding.code, finding.message));
    let text = format!("a run refuses this input: {}", findings.collect::<Vec<_>>().join("; "));
    Err(CommandFailure::new(CommandExit::InvalidData, text).into())
}

/// Parses the inputs as names and values. A value that begins with `@` names a file with the value;
/// `@@` stands for `@`.
fn values(inputs: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let mut values = Vec::new();
    for input in inputs {
        let Some((name, value)) = input.split_once('=') else {
            let message = format!("`--input {input}` has no value; write `--input {input}=VALUE`");
            return Err(CommandFailure::usage(message).into());
        };
        let value = match value.strip_prefix('@') {
            None => value.to_owned(),
            Some(text) if text.starts_with('@') => text.to_owned(),
            Some("") => {
                let message = format!(
                    "the input `{name}` names no file behind `@`; `@@` begins a value with `@`"
                );
                return Err(CommandFailure::usage(message).into());
            }
            Some(path) => {
                let stdin = format!("`{name}=@-`");
                let bytes = startup::bytes_or_stdin(path.as_ref(), &stdin);
                let bytes = bytes.with_context(|| format!("the input `{name}`"))?;
                String::from_utf8(bytes).map_err(|_| {
                    let message = format!("the input `{name}`: {path} is not UTF-8");
                    CommandFailure::new(CommandExit::InvalidData, message)
                })?
            }
        };
        check_characters(name, &value)?;
        values.push((name.to_owned(), value));
    }

    Ok(values)
}

/// Fails if a value has a character that XML does not allow. Such a character could reach neither
/// the record nor a prompt.
fn check_characters(name: &str, value: &str) -> anyhow::Result<()> {
    for (line, text) in (1..).zip(value.split('\n')) {
        let illegal = (1..).zip(text.chars()).find(|(_, character)| !is_xml_char(*character));
        if let Some((column, character)) = illegal {
            let message = format!(
                "the input `{name}` has a character that XML does not allow, U+{:04X} at line \
                 {line}, column {column}",
                u32::from(character)
            );
            return Err(CommandFailure::new(CommandExit::InvalidData, message).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(input: &str) -> Result<Vec<(String, String)>, String> {
        values(&[input.to_owned()]).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_value_that_begins_with_an_at_sign_is_a_file_or_written_with_two() {
        let value = |text: &str| vec![("topic".to_owned(), text.to_owned())];
        assert_eq!(parsed("topic=@@home"), Ok(value("@home")));
        let empty = parsed("topic=@").unwrap_err();
        assert!(empty.contains("the input `topic` names no file behind `@`"), "{empty}");
        let missing = parsed("topic=@not-there.txt").unwrap_err();
        assert!(missing.starts_with("the input `topic`: not-there.txt cannot be"), "{missing}");
        assert!(missing.ends_with("name an existing file, or `topic=@-` for standard input"));
        let bare = parsed("topic").unwrap_err();
        assert_eq!(bare, "`--input topic` has no value; write `--input topic=VALUE`");
    }

    #[test]
    fn a_character_that_xml_does_not_allow_is_refused_with_its_place() {
        let refused = parsed("topic=a\nb\u{1}c").unwrap_err();
        assert!(refused.starts_with("the input `topic` has a character"), "{refused}");
        assert!(refused.ends_with("U+0001 at line 2, column 2"), "{refused}");
        assert!(parsed("topic=a\tb\r\n\u{1F375}").is_ok());
    }
}
