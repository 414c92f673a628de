//! `organism schema`: validates texts against a schema, and derives descriptions from it.

mod from;
mod output;

use std::collections::HashMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{ArgGroup, Subcommand};
use serde::{Deserialize, Serialize};

use super::config_error_carets;
use super::exit::{CommandExit, CommandFailure};
use super::output::{is_closed, put};
use super::render::put_json;
use crate::config::{self, Config, ConfigEnvironment};
use crate::ids::PayloadName;
use crate::schema::{SchemaCompiler, SchemaFile, SchemaProblem, SchemaVerdict};
use crate::xml::findings::Finding;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: SchemaVerb,
}

#[derive(Debug, Subcommand)]
enum SchemaVerb {
    /// Check a schema, and texts against it.
    Validate(ValidateArgs),
    /// Describe each payload in the words of an agent's prompt.
    Describe(SchemaArgs),
    /// Write a valid example.
    Example(SchemaArgs),
    /// Write the JSON Schema for native tool calls.
    Json(SchemaArgs),
    /// Write the JSON Schema of what a command writes with --json.
    Output(output::Args),
    /// Convert a JSON Schema or an example payload to a schema.
    From(from::Args),
    /// Show the schemas that declare the named payloads of the config, including schemas that are
    /// generated from the config.
    Show(SchemaShowArgs),
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("schemas").required(true))]
struct ValidateArgs {
    /// The schema file.
    #[arg(group = "schemas")]
    schema: Option<PathBuf>,
    /// Files with the texts to validate. Without a text, the command checks only the schema.
    texts: Vec<PathBuf>,
    /// Write verdicts as JSON lines. Without a text, write one line, which is about the schema and
    /// names its payloads.
    #[arg(long)]
    json: bool,
    /// A folder from which the schemas may import, beside their own folders. May be repeated.
    #[arg(long, value_name = "DIR")]
    catalogue: Vec<PathBuf>,
    /// Read JSON lines `{"id","schema","instance"}` from stdin; write one verdict line for each.
    #[arg(long, group = "schemas", conflicts_with = "texts")]
    batch: bool,
}

#[derive(Debug, clap::Args)]
struct SchemaArgs {
    /// The schema file.
    schema: PathBuf,
    /// Local name or `{namespace}local` of one payload. Default: all.
    payload: Option<String>,
    /// A folder from which the schema may import, beside its own folder. May be repeated.
    #[arg(long, value_name = "DIR")]
    catalogue: Vec<PathBuf>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct SchemaShowArgs {
    /// Names of the payloads whose schemas are shown, each as `local` or `{namespace}local`.
    #[arg(required = true)]
    payloads: Vec<String>,
    /// Config file. Default: ORGANISM_CONFIG, ./organism.toml, or the only ./config/*.toml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.verb {
        SchemaVerb::Validate(args) if args.batch => batch(&args.catalogue),
        SchemaVerb::Validate(args) => validate(&args),
        SchemaVerb::Describe(args) => describe(&args),
        SchemaVerb::Example(args) => example(&args),
        SchemaVerb::Json(args) => json(&args),
        SchemaVerb::Output(args) => output::run(&args),
        SchemaVerb::From(args) => from::run(&args),
        SchemaVerb::Show(args) => show(&args),
    }
}

/// Makes a schema compiler whose schemas may also import from the folders of `catalogue`.
fn compiler_with(catalogue: &[PathBuf]) -> anyhow::Result<SchemaCompiler> {
    let real = |folder: &PathBuf| {
        let failed = |reason: String| {
            let message = format!("the catalogue {} cannot be read: {reason}", folder.display());
            CommandFailure::usage(message)
        };
        let real = folder.canonicalize().map_err(|error| failed(error.to_string()))?;
        if real.is_dir() { Ok(real) } else { Err(failed("it is no directory".to_owned())) }
    };
    let catalogue = catalogue.iter().map(real).collect::<Result<Vec<_>, _>>()?;
    Ok(SchemaCompiler::with_catalogue(catalogue))
}

/// Loads a schema, which may also import from the folders of `catalogue`. Fails with all problems
/// of the schema.
fn open(path: &Path, catalogue: &[PathBuf]) -> anyhow::Result<SchemaFile> {
    let mut compiler = compiler_with(catalogue)?;
    let file = SchemaFile::open(&mut compiler, path).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        CommandFailure::new(
            CommandExit::Config,
            format!("the schema is refused\n{}", lines.join("\n")),
        )
    })?;
    for warning in file.warnings() {
        note!("warning: {warning}");
    }

    Ok(file)
}

/// One output line: the verdict on a text or a schema.
#[derive(Debug, Serialize)]
struct SchemaAnswer {
    #[serde(rename = "id")]
    id: serde_json::Value,
    #[serde(rename = "verdict")]
    verdict: &'static str,
    #[serde(rename = "code", skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(rename = "path", skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(rename = "line", skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(rename = "message", skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Names of the payloads that the schema declares. `None` for the verdict on a text.
    #[serde(rename = "payloads", skip_serializing_if = "Option::is_none")]
    payloads: Option<Vec<PayloadName>>,
}

impl SchemaAnswer {
    fn new(id: serde_json::Value, verdict: &'static str) -> Self {
        Self { id, verdict, code: None, path: None, line: None, message: None, payloads: None }
    }

    fn of_verdict(id: serde_json::Value, verdict: &SchemaVerdict) -> Self {
        match verdict {
            SchemaVerdict::Valid => Self::new(id, "valid"),
            SchemaVerdict::Invalid(findings) => Self::new(id, "invalid").because(findings.first()),
            SchemaVerdict::Malformed(findings) => {
                Self::new(id, "malformed").because(findings.first())
            }
        }
    }

    fn because(self, finding: Option<&Finding>) -> Self {
        let Some(finding) = finding else { return self };
        Self {
            code: Some(finding.code.clone()),
            path: finding.place.path.clone(),
            line: Some(finding.place.line).filter(|line| *line > 0),
            message: Some(finding.message.clone()),
            ..self
        }
    }

    fn refused(id: serde_json::Value, problem: Option<&SchemaProblem>) -> Self {
        let answer = Self::new(id, "schema-refused");
        let Some(problem) = problem else { return answer };
        Self {
            code: Some(problem.code.clone()),
            path: Some(problem.file.clone()),
            line: Some(problem.line).filter(|line| *line > 0),
            message: Some(problem.message.clone()),
            ..answer
        }
    }

    /// Makes the output for an input line that could not be processed and so has no verdict.
    fn bad(id: serde_json::Value, code: &str, message: String) -> Self {
        let answer = Self::new(id, "error");
        Self { code: Some(code.to_owned()), message: Some(message), ..answer }
    }
}

fn validate(args: &ValidateArgs) -> anyhow::Result<ExitCode> {
    let schema = args.schema.as_deref().context("no schema named")?;
    let file = open(schema, &args.catalogue)?;
    if args.texts.is_empty() {
        if args.json {
            let id = serde_json::Value::String(schema.display().to_string());
            let payloads = Some(file.names().to_vec());
            put_json(&SchemaAnswer { payloads, ..SchemaAnswer::new(id, "valid") })?;
        } else {
            file.names().iter().for_each(|name| put_line!("{name}"));
        }
        note!("{}: the schema is good; {} payload names", file.label(), file.names().len());
        return Ok(CommandExit::Done.into());
    }

    let mut exit = CommandExit::Done;

    for text in &args.texts {
        let shown = text.display().to_string();
        let bytes = std::fs::read(text).map_err(|e| {
            CommandFailure::new(CommandExit::InvalidData, format!("cannot read {shown}: {e}"))
        })?;
        let verdict = file.validate(None, &bytes);
        if args.json {
            let answer = SchemaAnswer::of_verdict(serde_json::Value::String(shown), &verdict);
            put_line!("{}", serde_json::to_string(&answer)?);
        } else {
            print_verdict(&shown, &verdict);
        }
        if verdict != SchemaVerdict::Valid {
            exit = CommandExit::InvalidData;
        }
    }

    Ok(exit.into())
}

fn print_verdict(text: &str, verdict: &SchemaVerdict) {
    let (word, findings): (_, &[Finding]) = match verdict {
        SchemaVerdict::Valid => ("valid", &[]),
        SchemaVerdict::Invalid(findings) => ("invalid", findings),
        SchemaVerdict::Malformed(findings) => ("malformed", findings),
    };

    put_line!("{text}: {word}");
    for finding in findings {
        put_line!("  {finding}");
    }
}

#[derive(Debug, Deserialize)]
struct SchemaQuestion {
    #[serde(rename = "id", default)]
    id: serde_json::Value,
    #[serde(rename = "schema")]
    schema: PathBuf,
    /// File with the text to validate. Without a file, the command checks only the schema.
    #[serde(rename = "instance")]
    instance: Option<PathBuf>,
}

type OpenedSchema = Result<Arc<SchemaFile>, Option<SchemaProblem>>;

/// Writes one output line for every input line, even for an invalid one.
fn batch(catalogue: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let mut compiler = compiler_with(catalogue)?;
    let mut opened: HashMap<PathBuf, OpenedSchema> = HashMap::new();
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = match serde_json::from_slice::<SchemaQuestion>(&line) {
            Ok(question) => answer(&mut compiler, &mut opened, question),
            Err(error) => {
                let id = serde_json::from_slice(&line)
                    .ok()
                    .and_then(|mut v: serde_json::Value| v.get_mut("id").map(std::mem::take));
                SchemaAnswer::bad(id.unwrap_or_default(), "bad-line", error.to_string())
            }
        };
        put_json(&answer)?;
        // The command only produces output, so it ends when the output is closed.
        if is_closed() {
            break;
        }
    }

    Ok(CommandExit::Done.into())
}

fn answer(
    compiler: &mut SchemaCompiler,
    opened: &mut HashMap<PathBuf, OpenedSchema>,
    question: SchemaQuestion,
) -> SchemaAnswer {
    // Compiled schemas are forgotten beyond a bound, because a batch may name any number of them.
    if opened.len() >= crate::limits::GRAMMARS_MAX {
        opened.clear();
    }

    let file = opened.entry(question.schema).or_insert_with_key(|path| {
        SchemaFile::open(compiler, path).map(Arc::new).map_err(|p| p.into_iter().next())
    });
    let file = match file {
        Ok(file) => file.clone(),
        Err(problem) => return SchemaAnswer::refused(question.id, problem.as_ref()),
    };

    let Some(instance) = question.instance else { return SchemaAnswer::new(question.id, "valid") };
    match std::fs::read(&instance) {
        Ok(text) => SchemaAnswer::of_verdict(question.id, &file.validate(None, &text)),
        Err(error) => SchemaAnswer::bad(question.id, "unreadable", error.to_string()),
    }
}

/// Returns the names of the payloads that the command must show: the payload `wanted`, or all
/// payloads of the schema.
fn chosen(file: &SchemaFile, wanted: Option<&str>) -> anyhow::Result<Vec<PayloadName>> {
    let Some(wanted) = wanted else { return Ok(file.names().to_vec()) };
    let fits = |name: &&PayloadName| &*name.local == wanted || name.to_string() == wanted;
    let found: Vec<PayloadName> = file.names().iter().filter(fits).cloned().collect();
    if found.is_empty() {
        let names: Vec<&str> = file.names().iter().map(|name| &*name.local).collect();
        let message =
            format!("{} has no payload `{wanted}`; it has {}", file.label(), names.join(", "));
        return Err(CommandFailure::usage(message).into());
    }

    Ok(found)
}

fn describe(args: &SchemaArgs) -> anyhow::Result<ExitCode> {
    let file = open(&args.schema, &args.catalogue)?;
    let chosen = chosen(&file, args.payload.as_deref())?;
    let all: Vec<_> = chosen.iter().map(|name| file.outline(name)).collect();
    if args.json {
        put_line!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        put(&texts.join("\n"))?;
    }

    Ok(CommandExit::Done.into())
}

fn example(args: &SchemaArgs) -> anyhow::Result<ExitCode> {
    let file = open(&args.schema, &args.catalogue)?;
    let mut exit = CommandExit::Done;
    for name in chosen(&file, args.payload.as_deref())? {
        match file.example(&name) {
            Some(example) if args.json => {
                let line = serde_json::json!({"name": name, "example": example});
                put_line!("{line}");
            }
            Some(example) => put_line!("{example}"),
            None => {
                note!(
                    "{}: no example of `{name}` could be generated; give one in \
                     <xs:appinfo><example>",
                    file.label()
                );
                exit = CommandExit::InvalidData;
            }
        }
    }

    Ok(exit.into())
}

fn json(args: &SchemaArgs) -> anyhow::Result<ExitCode> {
    let file = open(&args.schema, &args.catalogue)?;
    let chosen = chosen(&file, args.payload.as_deref())?;
    if let ([name], true) = (chosen.as_slice(), args.payload.is_some()) {
        put_line!("{}", serde_json::to_string_pretty(&file.json(name))?);
        return Ok(CommandExit::Done.into());
    }

    let all: serde_json::Map<String, serde_json::Value> =
        chosen.iter().map(|name| (name.to_string(), file.json(name))).collect();
    put_line!("{}", serde_json::to_string_pretty(&all)?);
    Ok(CommandExit::Done.into())
}

/// Writes the text of each schema that declares one of the payloads in `args`.
fn show(args: &SchemaShowArgs) -> anyhow::Result<ExitCode> {
    let around = ConfigEnvironment::of_process();
    let path = config::locate(args.config.as_deref(), &around);
    let config = match path.and_then(|path| config::load_without_keys(&path, &around)) {
        Ok(config) => config,
        Err(found) => return Ok(config_error_carets::report(&found)),
    };

    let mut shown: Vec<&str> = Vec::new();
    for wanted in &args.payloads {
        let name = payload_of(&config, wanted)?;
        let file = config.schemas.file_of(name).context("a registered payload has a schema")?;
        let text = file.documents().next().context("the schema has a text")?.text.as_str();
        // One schema may declare several of the payloads.
        if !shown.contains(&text) {
            shown.push(text);
        }
    }
    put(&shown.join("\n"))?;
    Ok(CommandExit::Done.into())
}

/// Finds the payload of the config whose local name or full name is `wanted`. Fails unless exactly
/// one payload has this name.
fn payload_of<'c>(config: &'c Config, wanted: &str) -> anyhow::Result<&'c PayloadName> {
    let fits = |name: &&PayloadName| &*name.local == wanted || name.to_string() == wanted;
    let found: Vec<_> = config.schemas.names().filter(fits).collect();
    match found.as_slice() {
        [name] => Ok(*name),
        [] => {
            let names: Vec<_> = config.schemas.names().map(|name| &*name.local).collect();
            let near = config::nearest(wanted, names.iter().copied());
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it has {}", names.join(", ")),
            };
            let message = format!("{} has no payload `{wanted}`; {hint}", config.name);
            Err(CommandFailure::usage(message).into())
        }
        several => {
            let names: Vec<_> = several.iter().map(ToString::to_string).collect();
            let message =
                format!("`{wanted}` is several payloads; write one of {}", names.join(", "));
            Err(CommandFailure::usage(message).into())
        }
    }
}
