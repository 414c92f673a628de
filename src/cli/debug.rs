//! Hidden command that runs parts of the engine alone, for test corpora and experiments.

mod gate;

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::CommandExit;
use super::output;
use super::render::put_json;
use crate::xml::element::{Element, Node};
use crate::xml::extract::{ActionGrammar, ExtractLimits, Extraction, Extractor};
use crate::xml::shape::{ElementShape, QName, ShapeArena, ShapeContent, ShapeId};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    part: DebugVerb,
}

#[derive(Debug, clap::Subcommand)]
enum DebugVerb {
    /// Extract the actions from texts of models. Reads one JSON line for each text, and writes the
    /// actions and errors that it finds as one JSON line.
    Extract,
    /// Read file names as JSON lines. For each file, write whether the gate, which validates all
    /// payloads of an organism, accepts the file's content from the given sender.
    Gate(gate::Args),
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.part {
        DebugVerb::Extract => extract()?,
        DebugVerb::Gate(args) => gate::run(&args)?,
    }
    Ok(CommandExit::Done.into())
}

fn extract() -> anyhow::Result<()> {
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let answer = answer(&line?).with_context(|| format!("line {}", number + 1))?;
        put_json(&answer)?;
        if output::is_closed() {
            break;
        }
    }

    Ok(())
}

/// Input of the extractor for one model turn: the elements that the extractor knows, and the text
/// in chunks.
///
/// `known_tags` maps the name of each known element to a description:
///
/// - If the element contains only text, the description is `"text"`.
/// - Otherwise, the description is an object. It maps the name of each child element to a
///   description of the child, and has a key `@NAME` for each attribute. The key `#` means that the
///   element contains text instead of child elements.
#[derive(Debug, Deserialize)]
pub struct ExtractTurn {
    #[serde(rename = "known_tags")]
    known_tags: Map<String, Json>,
    #[serde(rename = "reasoning")]
    reasoning: Option<Vec<String>>,
    #[serde(rename = "reserved")]
    reserved: Option<Vec<String>>,
    #[serde(rename = "limits")]
    limits: Option<TurnLimits>,
    /// Chunks of the text in base64. A chunk may end inside a character.
    #[serde(rename = "chunks", default)]
    chunks: Vec<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct TurnLimits {
    #[serde(rename = "max_leaf_bytes")]
    max_leaf_bytes: Option<usize>,
    #[serde(rename = "max_turn_bytes")]
    max_turn_bytes: Option<usize>,
}

fn answer(line: &str) -> anyhow::Result<Json> {
    let turn: ExtractTurn = serde_json::from_str(line)?;
    let mut extractor = Extractor::new(Arc::new(turn.grammar()));
    for chunk in &turn.chunks {
        extractor.push(&STANDARD.decode(chunk)?);
    }
    Ok(describe(&extractor.finish()))
}

impl ExtractTurn {
    /// Builds the grammar by which the extractor finds actions: the elements of `known_tags`, the
    /// names of reasoning and reserved elements, and the limits.
    pub fn grammar(&self) -> ActionGrammar {
        let mut shapes = ShapeArena::default();
        for (name, spec) in &self.known_tags {
            let id = shape(&mut shapes, name, spec);
            shapes.roots.push(id);
        }

        let mut limits = ExtractLimits::default();
        if let Some(given) = self.limits {
            limits.max_leaf_bytes = given.max_leaf_bytes.unwrap_or(limits.max_leaf_bytes);
            limits.max_turn_bytes = given.max_turn_bytes.unwrap_or(limits.max_turn_bytes);
        }

        let names = |names: &Option<Vec<String>>| names.clone().unwrap_or_default();
        ActionGrammar::new(shapes, names(&self.reasoning), names(&self.reserved), limits)
    }
}

fn shape(shapes: &mut ShapeArena, name: &str, spec: &Json) -> ShapeId {
    let braced = name.strip_prefix('{').and_then(|rest| rest.rsplit_once('}'));
    let name = match braced {
        Some((namespace, local)) => QName::new(Some(namespace), local),
        None => QName::new(None, name),
    };

    let mut attributes = Vec::new();
    let mut children = Vec::new();
    let mut is_text = !spec.is_object();

    for (key, child) in spec.as_object().into_iter().flatten() {
        match key.strip_prefix('@') {
            Some(attribute) => attributes.push(QName::new(None, attribute)),
            None if key == "#" => is_text = true,
            None => children.push(shape(shapes, key, child)),
        }
    }

    let content = if is_text { ShapeContent::Text } else { ShapeContent::Elements(children) };
    shapes.add(ElementShape { name, attributes, content })
}

/// Returns the extraction as JSON, in the format of the test corpus.
pub fn describe(extraction: &Extraction) -> Json {
    let action = |element: &Element| {
        let name = match &element.name.namespace {
            Some(namespace) => format!("{{{namespace}}}{}", element.name.local),
            None => element.name.local.to_string(),
        };
        json!({ "name": name, "value": value(element) })
    };

    let actions: Vec<Json> = extraction.actions().map(|found| action(&found.element)).collect();
    let errors: Vec<&str> = extraction.defects().map(|finding| finding.code.as_str()).collect();
    let harmless = extraction.unknown_elements().filter(|unknown| !unknown.holds_action);
    let notices = harmless.map(|unknown| &unknown.finding).chain(&extraction.notices);
    let notices: Vec<&str> = notices.map(|finding| finding.code.as_str()).collect();
    json!({ "actions": actions, "errors": errors, "notices": notices, "text": extraction.text() })
}

fn value(element: &Element) -> Json {
    let mut members: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for (name, value) in &element.attributes {
        members.insert(format!("@{}", name.local), vec![json!(value)]);
    }

    if let Some(inner) = &element.verbatim {
        members.insert("#".to_owned(), vec![json!(inner.xml)]);
    }

    for node in &element.content {
        match node {
            Node::Text(text) if members.is_empty() => return json!(text),
            Node::Text(text) => {
                members.insert("#".to_owned(), vec![json!(text)]);
            }
            Node::Element(child) => {
                let name = child.local_name().to_owned();
                members.entry(name).or_default().push(value(child));
            }
        }
    }

    let single = |mut values: Vec<Json>| match values.len() {
        1 => values.pop().unwrap_or_default(),
        _ => Json::Array(values),
    };

    members.into_iter().map(|(name, values)| (name, single(values))).collect()
}
