//! Makes a schema from a JSON Schema or an example payload.
//!
//! The result is XSD text that a person continues to edit. Everything that XSD cannot express is
//! reported as a loss. This module must not know files. It knows only one part of a config: the
//! short form in which a config declares a payload.

mod declaration;
mod example_json;
mod example_xml;
mod json_schema;
mod pattern;
mod short;

use std::collections::{HashMap, HashSet};

use declaration::{ElementDeclaration, FACETS, FacetDefect};
use serde_json::Value as Json;

use super::costly_values::is_too_costly;
use super::file::{SchemaFile, SchemaVerdict};
use super::libxml2::ParsedDocument;
use super::pattern_cost;
use super::trial_compile::SchemaCompiler;
use crate::limits;
use crate::xml::element::Element;
use crate::xml::scan::{BrokenRule, scan_within};

/// Maximum number of elements that one conversion declares. References could otherwise multiply the
/// elements endlessly.
const ELEMENTS_MAX: usize = 2_000;
/// Maximum depth of elements.
const DEPTH_MAX: usize = 32;
/// Maximum number of optional children of an element whose children have a fixed order in the
/// schema. The time to compile a fixed order grows with the square of this number. If an element
/// has more optional children, the schema permits its children in any order and number.
const OPTIONAL_MAX: usize = 300;
/// Maximum number of losses that the result of a conversion lists.
const LOSSES_MAX: usize = 500;

/// The kind of text that is converted to a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaOrigin {
    JsonSchema,
    ExampleJson,
    ExampleXml,
}

/// A generated schema.
#[derive(Debug)]
pub struct ConvertedSchema {
    /// Name of the payload that the schema declares.
    pub name: String,
    pub xsd: String,
    /// The payload in the short form that a config can contain, or the reason why this is
    /// impossible.
    pub short: Result<ShortPayload, ConversionError>,
    /// Parts of the source that the XSD does not express, each with its path.
    pub losses: Vec<String>,
}

/// A payload in the short form, as a section for a config.
#[derive(Debug)]
pub struct ShortPayload {
    pub text: String,
    /// Parts of the payload that the XSD expresses, but the short form in a config
    /// (`[payloads.NAME]`) cannot express.
    pub losses: Vec<String>,
}

/// Why a text cannot be converted to a schema.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    #[error("this is neither JSON nor XML: {0}")]
    Unreadable(String),
    #[error("{0}")]
    Unsupported(String),
    #[error("no schema can be made of it; the generated one is refused: {0}")]
    Refused(String),
}

/// Determines the kind of this text: XML, a JSON Schema, or another JSON value as an example.
pub fn origin_of(text: &str) -> SchemaOrigin {
    if text.trim_start().starts_with('<') {
        return SchemaOrigin::ExampleXml;
    }

    let json: Json = serde_json::from_str(text).unwrap_or_default();
    let is_schema = json.as_object().is_some_and(|root| {
        let has = |key: &str| root.contains_key(key);
        let names_type = root.get("type").and_then(Json::as_str).is_some_and(is_type);
        // A GeoJSON feature has `properties` too, but its `type` is unknown to JSON Schema.
        let is_other_type = root.get("type").and_then(Json::as_str).is_some_and(|of| !is_type(of));
        let has_parts = root.get("properties").is_some_and(Json::is_object) && !is_other_type;
        let refers = has("$defs") || has("$ref") && has("definitions");
        let is_union = ["allOf", "anyOf", "oneOf"]
            .iter()
            .any(|key| root.get(*key).is_some_and(Json::is_array));
        has("$schema") || has_parts || refers || is_union || names_type && constrains_values(root)
    });
    if is_schema { SchemaOrigin::JsonSchema } else { SchemaOrigin::ExampleJson }
}

/// Whether an object with a `type` has a further keyword of JSON Schema that describes the values
/// of this type. Pydantic exports such objects for models without fields, such as enumerations and
/// dictionaries.
fn constrains_values(root: &serde_json::Map<String, Json>) -> bool {
    let bounds = ["minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"];
    bounds.iter().any(|key| root.get(*key).is_some_and(Json::is_number))
        || root.contains_key("items")
        || root.contains_key("const")
        || root.get("enum").is_some_and(Json::is_array)
        || root.get("prefixItems").is_some_and(Json::is_array)
        || root.get("patternProperties").is_some_and(Json::is_object)
        || root.get("additionalProperties").is_some_and(|of| of.is_object() || of.is_boolean())
}

fn is_type(word: &str) -> bool {
    matches!(word, "object" | "array" | "string" | "integer" | "number" | "boolean" | "null")
}

/// Converts `text` to a schema. If `text` is XML, the payload has the name of the root element. If
/// `text` is JSON, the payload has the name `name`, in which characters that are not permitted are
/// replaced. The schema uses `namespace`. If `namespace` is `None`, the schema uses the namespace
/// of the root element for XML, and a generated namespace for JSON.
pub fn convert(
    text: &str,
    origin: SchemaOrigin,
    name: &str,
    namespace: Option<&str>,
    compiler: &mut SchemaCompiler,
) -> Result<ConvertedSchema, ConversionError> {
    let mut losses = Losses::default();
    let mut qualified = true;
    let mut target = namespace.map(str::to_owned);
    let mut root = match origin {
        SchemaOrigin::ExampleXml => {
            let element = parsed_xml(text)?;
            let example = example_xml::read(&element, &mut losses)?;
            qualified = example.is_qualified;
            let own = element.name.namespace.as_deref().unwrap_or_default().to_owned();
            target = target.or_else(|| (!own.is_empty()).then_some(own));
            example.root
        }
        SchemaOrigin::JsonSchema => json_schema::read(&json(text)?, name, &mut losses)?,
        SchemaOrigin::ExampleJson => example_json::read(&json(text)?, name, &mut losses)?,
    };
    check_count(root.size())?;

    root.min = 1;
    root.max = Some(1);
    root.loosen("", &mut losses);
    let target = target.unwrap_or_else(|| match origin {
        SchemaOrigin::ExampleXml => String::new(),
        SchemaOrigin::JsonSchema | SchemaOrigin::ExampleJson => {
            format!("urn:example:{}", root.name)
        }
    });
    let written = |root: &ElementDeclaration| declaration::xsd(&target, qualified, root);
    let (xsd, file) = compiled(&mut root, &written, &mut losses, compiler)?;
    if origin == SchemaOrigin::ExampleXml && namespace.is_none() {
        accepts(&file, text)?;
    }

    // A generated namespace is none that the source or the user names.
    let own_namespace = (origin == SchemaOrigin::ExampleXml || namespace.is_some())
        .then_some(short::OwnNamespace { namespace: &target, is_qualified: qualified });
    let short = short::payload(&root, own_namespace);
    Ok(ConvertedSchema { name: root.name, xsd, short, losses: losses.texts })
}

/// Writes `root` as XSD and loads the result as a schema. If this fails, removes facets from `root`
/// and tries again: first the patterns that are too long or too slow to match, then all patterns,
/// then all facets. The conversion checks fewer rules for facets than libxml2 does.
fn compiled(
    root: &mut ElementDeclaration,
    written: &dyn Fn(&ElementDeclaration) -> String,
    losses: &mut Losses,
    compiler: &mut SchemaCompiler,
) -> Result<(String, SchemaFile), ConversionError> {
    let mut work = limits::SCHEMA_PATTERN_WORK_MAX;
    let mut analysed = HashMap::new();
    let mut is_costly = |value: &str| {
        let analyse = || pattern_cost::check(value).is_err() || is_too_costly(value, &mut work);
        *analysed.entry(value.to_owned()).or_insert_with(analyse)
    };
    let mut costly = |facet: &str, value: &str| {
        (facet == "pattern" && is_costly(value)).then_some("which is too long or too slow to match")
    };
    let unsupported = "which XSD cannot say here";
    let mut pattern = |facet: &str, _: &str| (facet == "pattern").then_some(unsupported);
    let mut any = |facet: &str, _: &str| FACETS.contains(&facet).then_some(unsupported);

    let defects: [&mut FacetDefect<'_>; 3] = [&mut costly, &mut pattern, &mut any];
    let mut xsd = written(root);
    let mut file = SchemaFile::draft(compiler, "the generated schema", &xsd);
    for defect in defects {
        if file.is_err() && root.drop_facets(defect, "", losses) {
            xsd = written(root);
            file = SchemaFile::draft(compiler, "the generated schema", &xsd);
        }
    }

    let file = file.map_err(|found| {
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        ConversionError::Refused(texts.join("; "))
    })?;
    Ok((xsd, file))
}

/// Checks that the schema made from an example accepts this example.
fn accepts(file: &SchemaFile, text: &str) -> Result<(), ConversionError> {
    match file.validate(None, text.trim().as_bytes()) {
        SchemaVerdict::Valid => Ok(()),
        SchemaVerdict::Invalid(found) | SchemaVerdict::Malformed(found) => {
            let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
            Err(ConversionError::Refused(texts.join("; ")))
        }
    }
}

fn json(text: &str) -> Result<Json, ConversionError> {
    if text.trim_ascii().is_empty() {
        let text = "the text is empty; write JSON or XML";
        return Err(ConversionError::Unsupported(text.to_owned()));
    }
    serde_json::from_str(text).map_err(|error| ConversionError::Unreadable(error.to_string()))
}

fn parsed_xml(text: &str) -> Result<Element, ConversionError> {
    if has_doctype(text) {
        let text = "this XML has a DOCTYPE; remove it, and entities with it";
        return Err(ConversionError::Unsupported(text.to_owned()));
    }
    // The limits are checked first, because the parser takes long for a text that exceeds them.
    scan_within(text.as_bytes(), limits::SCHEMA_BYTES_MAX).map_err(|violation| {
        let before = text.get(..violation.offset).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let text = format!("{} at line {line}", violation.message);
        match violation.breach {
            BrokenRule::Form | BrokenRule::Roots => ConversionError::Unreadable(text),
            _ => ConversionError::Unsupported(text),
        }
    })?;
    if let Err(found) = ParsedDocument::parse(text.as_bytes()) {
        let first = found.into_iter().next();
        let text = first.map(|d| format!("{} at line {}", d.message.trim(), d.line));
        return Err(ConversionError::Unreadable(text.unwrap_or_default()));
    }

    let read = Element::read_document(text);
    read.ok_or_else(|| ConversionError::Unreadable("no XML 1.0 with namespaces".to_owned()))
}

/// Whether a DOCTYPE precedes the root element. The text need not be well-formed.
fn has_doctype(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        let end = match rest {
            _ if rest.starts_with("<!--") => "-->",
            _ if rest.starts_with("<?") => "?>",
            _ => return rest.starts_with("<!DOCTYPE"),
        };
        let Some((_, after)) = rest.split_once(end) else { return false };
        rest = after.trim_start();
    }
}

/// The parts of a source that its conversion could not keep, each with its path.
#[derive(Debug, Default)]
struct Losses {
    texts: Vec<String>,
    known: HashSet<String>,
}

impl Losses {
    fn add(&mut self, path: &str, what: impl std::fmt::Display) {
        if self.texts.len() > LOSSES_MAX {
            return;
        }
        let place = if path.is_empty() { "/" } else { path };
        let text = format!("{place}: {what}");
        if !self.known.insert(text.clone()) {
            return;
        }
        let is_last = self.texts.len() == LOSSES_MAX;
        self.texts.push(if is_last { "and more than are listed here".to_owned() } else { text });
    }
}

/// Makes an element name from any text. The name is permitted in XML and in the short form of
/// schemas.
fn element_name(text: &str, path: &str, losses: &mut Losses) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut name: String = text.chars().map(|c| if fits(c) { c } else { '_' }).take(60).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    if name != text {
        losses.add(path, format_args!("the name {text:?} becomes `{name}`"));
    }
    name
}

/// Refuses a conversion that would declare too many elements.
fn check_count(elements: usize) -> Result<(), ConversionError> {
    if elements > ELEMENTS_MAX {
        let text = format!("the schema would declare more than {ELEMENTS_MAX} elements");
        return Err(ConversionError::Unsupported(text));
    }
    Ok(())
}
