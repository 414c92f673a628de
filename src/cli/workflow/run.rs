//! `organism workflow run`: starts a run, shows its goals, and prints its output.

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;

use crate::service::{BearerSecret, SubmitRequest};
use crate::workflow::{dry_run, fit_children, input_payload};

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
    let input = input_payload(&definition, &values, args.dry_run)
        .map_err(|error| CommandFailure::usage(error.to_string()))?;
    let input = fit_children(&config.schemas, input);
    if args.dry_run {
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

/// Parses the inputs as names and values. A value that begins with `@` names a file with the value;
/// `@@` stands for `@`.
fn values(inputs: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let mut values = Vec::new();
    for input in inputs {
        let Some((name, value)) = input.split_once('=') else {
            let message = format!("`{input}` is not an input; write NAME=VALUE");
            return Err(CommandFailure::usage(message).into());
        };
        let value = match value.strip_prefix('@') {
            None => value.to_owned(),
            Some(text) if text.starts_with('@') => text.to_owned(),
            Some(path) => {
                let bytes = startup::bytes(path.as_ref())?;
                String::from_utf8(bytes).map_err(|_| {
                    let message = format!("{path} is not UTF-8");
                    CommandFailure::new(CommandExit::InvalidData, message)
                })?
            }
        };
        values.push((name.to_owned(), value));
    }

    Ok(values)
}
