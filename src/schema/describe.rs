//! Describes a payload for prompts, help and docs.

use std::fmt;

use super::model::{ContentParticle, ElementDecl, ParticleTerm, SchemaModel};
use super::outline::{ElementOutline, SimpleTypeOutline};
use super::sample;
use crate::ids::PayloadName;
use crate::xml::shape::QName;
use crate::xml::write::XML_NAMESPACE;

/// Maximum nesting of described parameters.
pub const DEPTH_MAX: usize = 4;
/// Number of names that are listed of parts that are not described.
const NAMES_SHOWN: usize = 8;

/// The description of a payload: its purpose and its parameters.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PayloadDescription {
    #[serde(rename = "name")]
    pub name: PayloadName,
    /// Documentation on one line; empty if the schema has none.
    #[serde(rename = "doc")]
    pub doc: String,
    /// The permitted text, if the content of the payload is text.
    #[serde(rename = "text", skip_serializing_if = "Option::is_none")]
    pub text: Option<TextContent>,
    #[serde(rename = "parameters")]
    pub parameters: Vec<PayloadParameter>,
    /// States what an outline leaves out, in sentences.
    #[serde(rename = "left_out", skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// The description of permitted text.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TextContent {
    /// Name of the type in prose, such as `integer` or `true or false`.
    #[serde(rename = "kind")]
    pub kind: String,
    #[serde(rename = "choices", skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// The permitted range, such as `1 to 9` or `at most 58 characters`.
    #[serde(rename = "range", skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PayloadParameter {
    #[serde(rename = "name")]
    pub name: String,
    /// Name of the parameter as written in a payload.
    #[serde(skip)]
    pub written: QName,
    #[serde(rename = "attribute")]
    pub attribute: bool,
    #[serde(rename = "required")]
    pub required: bool,
    /// Whether the parameter may occur more than once.
    #[serde(rename = "repeated")]
    pub repeated: bool,
    /// Whether the parameter is one of several alternatives.
    #[serde(rename = "alternative")]
    pub alternative: bool,
    #[serde(rename = "content")]
    pub content: TextContent,
    #[serde(rename = "doc", skip_serializing_if = "Option::is_none")]
    pub doc: Option<String>,
    #[serde(rename = "default", skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    #[serde(rename = "parameters", skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<PayloadParameter>,
    /// Names of the parts inside that are not described.
    #[serde(rename = "undescribed", skip_serializing_if = "Vec::is_empty")]
    pub undescribed: Vec<String>,
}

impl PayloadParameter {
    /// The parts inside that are not described, in prose. `None` if everything is described.
    pub fn undescribed_parts(&self) -> Option<String> {
        parts_in_prose(&self.undescribed)
    }
}

/// Parts that are not described, in prose. `None` if there are none.
pub fn parts_in_prose(names: &[String]) -> Option<String> {
    let shown = names.iter().take(NAMES_SHOWN).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        count if count <= NAMES_SHOWN => Some(format!("with {shown} (not described here)")),
        count => {
            let more = count - NAMES_SHOWN;
            Some(format!("with {shown} and {more} more (not described here)"))
        }
    }
}

/// Describes a global element. An unknown element has neither documentation nor parameters.
pub fn payload(model: &SchemaModel, name: &PayloadName) -> PayloadDescription {
    payload_to_depth(model, name, DEPTH_MAX)
}

/// Describes a global element with `depth` levels of parameters.
pub fn payload_to_depth(
    model: &SchemaModel,
    name: &PayloadName,
    depth: usize,
) -> PayloadDescription {
    let Some(element) = model.element(name) else {
        return PayloadDescription {
            name: name.clone(),
            doc: String::new(),
            text: None,
            parameters: Vec::new(),
            left_out: None,
        };
    };

    let outline = model.outline(&element.kind);
    let doc = element.notes.doc.clone().or_else(|| outline.notes.doc.clone());
    PayloadDescription {
        name: name.clone(),
        doc: doc.unwrap_or_default(),
        text: outline.is_text().then(|| content(&outline)),
        parameters: parameters(
            DescribedModel { model, depth },
            &outline,
            &mut vec![element.name.clone()],
        ),
        left_out: None,
    }
}

/// A model that is described to a depth.
#[derive(Clone, Copy)]
struct DescribedModel<'a> {
    model: &'a SchemaModel,
    depth: usize,
}

/// The name of an attribute as it is written in a payload.
fn attribute_name(name: &QName) -> String {
    let prefix = if name.namespace() == XML_NAMESPACE { "xml:" } else { "" };
    format!("{prefix}{}", name.local)
}

fn parameters(
    within: DescribedModel<'_>,
    outline: &ElementOutline,
    above: &mut Vec<QName>,
) -> Vec<PayloadParameter> {
    let attributes = outline.attributes.iter().map(|a| PayloadParameter {
        name: attribute_name(&a.name),
        written: a.name.clone(),
        attribute: true,
        required: a.required,
        repeated: false,
        alternative: false,
        content: of_value(&a.value),
        doc: a.notes.doc.clone().or_else(|| a.value.notes.doc.clone()),
        default: a.fixed.clone().or_else(|| a.default.clone()),
        parameters: Vec::new(),
        undescribed: Vec::new(),
    });
    let mut out: Vec<PayloadParameter> = attributes.collect();
    let place = ParticlePlace { required: true, repeated: false, alternative: false };
    particles(within, &outline.content, place, above, &mut out);
    out
}

/// The place of a particle in its content model.
#[derive(Clone, Copy)]
struct ParticlePlace {
    required: bool,
    repeated: bool,
    alternative: bool,
}

fn particles(
    within: DescribedModel<'_>,
    particles_here: &[ContentParticle],
    place: ParticlePlace,
    above: &mut Vec<QName>,
    out: &mut Vec<PayloadParameter>,
) {
    for particle in particles_here {
        let place = ParticlePlace {
            required: place.required && particle.min > 0,
            repeated: place.repeated || particle.max.is_none_or(|max| max > 1),
            ..place
        };

        match &particle.term {
            ParticleTerm::Element(element) => out.push(parameter(within, element, place, above)),
            ParticleTerm::ElementRef(name) => {
                let all = within.model.standing_for(name);
                let place = if all.len() > 1 { one_of(place) } else { place };
                out.extend(all.iter().map(|element| parameter(within, element, place, above)));
            }
            ParticleTerm::Sequence(inner) | ParticleTerm::All(inner) => {
                particles(within, inner, place, above, out);
            }
            ParticleTerm::Choice(inner) => {
                let place = if inner.len() > 1 { one_of(place) } else { place };
                particles(within, inner, place, above, out);
            }
            ParticleTerm::GroupRef(name) => {
                if let Some(inner) = within.model.groups.get(name).filter(|_| above.len() < 32) {
                    above.push(name.clone());
                    particles(within, inner, place, above, out);
                    above.pop();
                }
            }
            ParticleTerm::Any(_) => out.push(PayloadParameter {
                name: "*".into(),
                written: QName::new(None, "*"),
                attribute: false,
                required: place.required,
                repeated: place.repeated,
                alternative: place.alternative,
                content: plain("any element"),
                doc: None,
                default: None,
                parameters: Vec::new(),
                undescribed: Vec::new(),
            }),
        }
    }
}

fn one_of(place: ParticlePlace) -> ParticlePlace {
    ParticlePlace { required: false, alternative: true, ..place }
}

fn parameter(
    within: DescribedModel<'_>,
    element: &ElementDecl,
    place: ParticlePlace,
    above: &mut Vec<QName>,
) -> PayloadParameter {
    let outline = within.model.outline(&element.kind);
    let again = above.contains(&element.name);
    let is_too_deep = above.len() >= within.depth;
    let mut inner = Vec::new();
    let mut undescribed = Vec::new();
    if is_too_deep && !again {
        undescribed = parts_of(within.model, &outline);
    } else if !again {
        above.push(element.name.clone());
        inner = parameters(within, &outline, above);
        above.pop();
    }

    let value_doc = outline.text.as_ref().and_then(|text| text.notes.doc.clone());
    let doc = element.notes.doc.clone().or_else(|| outline.notes.doc.clone()).or(value_doc);
    PayloadParameter {
        name: element.name.local.to_string(),
        written: element.name.clone(),
        attribute: false,
        required: place.required,
        repeated: place.repeated,
        alternative: place.alternative,
        content: content(&outline),
        doc,
        default: element.fixed.clone().or_else(|| element.default.clone()),
        parameters: inner,
        undescribed,
    }
}

/// The built-in type `xs:boolean` in prose.
pub(super) const BOOLEAN_WORDS: &str = "true or false";

/// Names of the attributes and children of an element.
pub fn parts_of(model: &SchemaModel, outline: &ElementOutline) -> Vec<String> {
    let attributes = outline.attributes.iter().map(|attribute| attribute_name(&attribute.name));
    let (children, _) = model.elements_in(&outline.content);
    let mut names: Vec<String> = Vec::new();
    for name in attributes.chain(children.iter().map(|child| child.name.local.to_string())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }

    names
}

fn plain(kind: &str) -> TextContent {
    TextContent { kind: kind.to_owned(), choices: Vec::new(), range: None }
}

fn content(outline: &ElementOutline) -> TextContent {
    match &outline.text {
        Some(value) => of_value(value),
        None if outline.anything => plain("anything"),
        None if outline.mixed => plain("text"),
        None if outline.content.is_empty() => plain("empty"),
        None => plain("elements"),
    }
}

fn of_value(value: &SimpleTypeOutline) -> TextContent {
    if let Some(item) = &value.list_of {
        let kind = format!("list, separated by blanks, of {}", of_value(item));
        return TextContent { kind, choices: Vec::new(), range: range(value) };
    }

    let mut choices: Vec<String> = value.choices().into_iter().map(|c| c.value).collect();
    // An enumeration of the empty text alone stands for an empty element.
    if choices == [""] {
        return plain("empty");
    }

    for choice in choices.iter_mut().filter(|choice| choice.is_empty()) {
        "\"\" (nothing)".clone_into(choice);
    }

    let kind = match value.builtin.as_str() {
        _ if !choices.is_empty() => "one of".to_owned(),
        builtin if is_dated(builtin) => dated(value),
        "union" => {
            let members: Vec<String> =
                value.union_of.iter().map(|m| of_value(m).to_string()).collect();
            members.join(" or ")
        }
        builtin => words(builtin).to_owned(),
    };

    TextContent { kind, choices, range: range(value) }
}

/// Whether the prose for the built-in type gives an example value.
fn is_dated(builtin: &str) -> bool {
    matches!(builtin, "date" | "dateTime" | "time" | "duration")
}

/// A date, a time or a duration in prose, with an example that fits the facets of the type.
fn dated(value: &SimpleTypeOutline) -> String {
    let noun = match value.builtin.as_str() {
        "dateTime" => "date and time",
        builtin => builtin,
    };
    match sample::fitting(value) {
        Some(example) => format!("{noun} such as {example}"),
        None => noun.to_owned(),
    }
}

/// The name of a built-in type in prose.
fn words(builtin: &str) -> &str {
    match builtin {
        "string" | "normalizedString" | "token" | "anySimpleType" | "" => "text",
        "boolean" => BOOLEAN_WORDS,
        "int" | "integer" | "long" | "short" | "byte" => "whole number",
        "positiveInteger" => "whole number from 1",
        "nonNegativeInteger" | "unsignedInt" | "unsignedLong" | "unsignedShort"
        | "unsignedByte" => "whole number from 0",
        "decimal" | "float" | "double" => "number",
        "anyURI" => "address",
        "base64Binary" => "base64",
        "hexBinary" => "hexadecimal digits",
        other => other,
    }
}

fn range(value: &SimpleTypeOutline) -> Option<String> {
    let facets = &value.facets;
    let mut parts: Vec<String> = Vec::new();
    match (&facets.min_inclusive, &facets.max_inclusive) {
        (Some(low), Some(high)) => parts.push(format!("{low} to {high}")),
        (Some(low), None) => parts.push(format!("at least {low}")),
        (None, Some(high)) => parts.push(format!("at most {high}")),
        (None, None) => {}
    }

    parts.extend(facets.min_exclusive.iter().map(|low| format!("more than {low}")));
    parts.extend(facets.max_exclusive.iter().map(|high| format!("less than {high}")));
    let unit = if value.list_of.is_some() { "items" } else { "characters" };
    parts.extend(facets.length.map(|n| format!("exactly {n} {unit}")));

    match (facets.min_length, facets.max_length) {
        (Some(low), Some(high)) => parts.push(format!("{low} to {high} {unit}")),
        (Some(1), None) => parts.push("not empty".to_owned()),
        (Some(low), None) => parts.push(format!("at least {low} {unit}")),
        (None, Some(high)) => parts.push(format!("at most {high} {unit}")),
        (None, None) => {}
    }

    parts.extend(facets.fraction_digits.map(|n| format!("at most {n} decimals")));
    parts.extend(facets.total_digits.map(|n| format!("at most {n} digits")));
    for step in &value.pattern_steps {
        parts.push(format!("matching {}", step.join(" or ")));
    }

    (!parts.is_empty()).then(|| parts.join(", "))
}

impl fmt::Display for TextContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.choices.is_empty() {
            write!(f, " {}", self.choices.join(", "))?;
        }

        match &self.range {
            Some(range) => write!(f, " ({range})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PayloadDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name.local)?;
        if !self.doc.is_empty() {
            write!(f, ": {}", self.doc)?;
        }

        writeln!(f)?;
        if let Some(text) = &self.text {
            writeln!(f, "  content: {text}")?;
        }

        self.parameters.iter().try_for_each(|parameter| line(parameter, f, 1))?;
        match &self.left_out {
            Some(left_out) => writeln!(f, "  {left_out}"),
            None => Ok(()),
        }
    }
}

fn line(parameter: &PayloadParameter, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
    let need = match (parameter.required, parameter.alternative) {
        (true, _) => "required",
        (false, true) => "alternative",
        (false, false) => "optional",
    };

    write!(
        f,
        "{:indent$}- {}: {}, {need}",
        "",
        parameter.name,
        parameter.content,
        indent = depth * 2
    )?;
    if parameter.attribute {
        f.write_str(", attribute")?;
    }

    if parameter.repeated {
        f.write_str(", may repeat")?;
    }

    if let Some(default) = &parameter.default {
        write!(f, ", default {default}")?;
    }

    if let Some(parts) = parameter.undescribed_parts() {
        write!(f, ", {parts}")?;
    }

    if let Some(doc) = &parameter.doc {
        write!(f, ". {doc}")?;
    }

    writeln!(f)?;
    parameter.parameters.iter().try_for_each(|inner| line(inner, f, depth + 1))
}
