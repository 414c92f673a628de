//! `organism schema from`: writes a schema that corresponds to a JSON Schema or to an example
//! payload.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::super::exit::{CommandExit, CommandFailure};
use super::super::output::put;
use super::super::startup;
use crate::limits;
use crate::schema::{
    ConversionError, ConvertedSchema, SchemaCompiler, SchemaOrigin, convert_schema, origin_of,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A JSON Schema (also one that Pydantic or Zod exports), or an example payload in JSON or XML.
    /// `-` is standard input.
    file: PathBuf,
    /// Name of the payload. Default: the title of a JSON Schema, or the name of the file. An XML
    /// payload keeps the name of its root.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Target namespace. Default: for XML, the namespace of its root; for JSON, urn:example:NAME.
    #[arg(long, value_name = "URI")]
    namespace: Option<String>,
    /// Treat JSON as an example payload even if its form suggests a JSON Schema.
    #[arg(long, conflicts_with = "json_schema")]
    example: bool,
    /// Treat JSON as a JSON Schema even if its form suggests an example payload.
    #[arg(long)]
    json_schema: bool,
    /// Write the short form for a config, [payloads.NAME], in place of XSD. It has the namespace of
    /// all payloads of a config.
    #[arg(long)]
    short: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let bytes = startup::bytes(&args.file)?;
    if bytes.len() > limits::SCHEMA_BYTES_MAX {
        let text = format!("more than {} bytes", limits::SCHEMA_BYTES_MAX);
        return Err(CommandFailure::new(CommandExit::InvalidData, text).into());
    }

    let text = String::from_utf8(bytes).map_err(|_| {
        CommandFailure::new(CommandExit::InvalidData, "this is not UTF-8 text; save it as UTF-8")
    })?;
    let text = text.trim_start_matches('\u{feff}');
    let origin = match origin_of(text) {
        SchemaOrigin::JsonSchema if args.example => SchemaOrigin::ExampleJson,
        SchemaOrigin::ExampleJson if args.json_schema => SchemaOrigin::JsonSchema,
        found => found,
    };
    if origin == SchemaOrigin::ExampleXml && args.json_schema {
        let text = "this is XML; leave out --json-schema";
        return Err(CommandFailure::usage(text).into());
    }
    if origin == SchemaOrigin::ExampleXml && args.name.is_some() {
        let text = "XML has the name of its root; leave out --name";
        return Err(CommandFailure::usage(text).into());
    }

    let name = args.name.clone().unwrap_or_else(|| name_of(text, origin, &args.file));
    let namespace = args.namespace.as_deref();
    let made = convert_schema(text, origin, &name, namespace, &mut SchemaCompiler::default());
    let made = made.map_err(refused)?;
    note!("{}", description(origin));
    show(made, args.short)?;
    Ok(CommandExit::Done.into())
}

/// Describes whether the command has read the file as a JSON Schema or as an example. For a JSON
/// file, also names the option that selects the other reading.
fn description(origin: SchemaOrigin) -> &'static str {
    match origin {
        SchemaOrigin::JsonSchema => "read as a JSON Schema; --example reads it as an example",
        SchemaOrigin::ExampleJson => {
            "read as an example in JSON; --json-schema reads it as a JSON Schema"
        }
        SchemaOrigin::ExampleXml => "read as an example in XML",
    }
}

fn refused(error: ConversionError) -> CommandFailure {
    CommandFailure::new(CommandExit::InvalidData, error.to_string())
}

/// Returns the default name of the payload: the title of a JSON Schema or, without a title, the
/// name of the file without its extension.
fn name_of(text: &str, origin: SchemaOrigin, file: &Path) -> String {
    let json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let title = json.get("title").filter(|_| origin == SchemaOrigin::JsonSchema);
    let title = title.and_then(|title| title.as_str()).map(str::to_owned);
    let stem = file.file_name().and_then(|name| name.to_str());
    let stem = stem.and_then(|name| name.split('.').next());
    let stem = stem.filter(|stem| !stem.is_empty() && *stem != "-").map(str::to_owned);
    title.filter(|title| !title.is_empty()).or(stem).unwrap_or_else(|| "payload".to_owned())
}

fn show(made: ConvertedSchema, is_short: bool) -> anyhow::Result<()> {
    let mut losses = made.losses;
    if is_short {
        let short = made.short.map_err(refused)?;
        put(&short.text)?;
        losses.extend(short.losses);
    } else {
        put(&made.xsd)?;
    }

    if losses.is_empty() {
        note!("nothing was lost");
        return Ok(());
    }
    note!("not in it:");
    for loss in &losses {
        note!("  {loss}");
    }
    Ok(())
}
