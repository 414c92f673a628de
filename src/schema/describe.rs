//! Describes a payload for prompts, help and docs.

use std::cell::Cell;
use std::fmt;

use super::described_types::DescribedTypes;
use super::model::{ContentParticle, ElementDecl, ParticleTerm, SchemaModel};
use super::outline::{ElementOutline, SimpleTypeOutline};
use super::part_coverage::PartCoverage;
use super::particle_place::{ChoiceBranch, ParticlePlace};
use super::sample;
use super::sample_time;
use super::undescribed_parts::UndescribedParts;
use crate::ids::PayloadName;
use crate::limits;
use crate::xml::shape::QName;
use crate::xml::write::XML_NAMESPACE;

/// Maximum number of levels of parameters that a description contains.
pub const DEPTH_MAX: usize = 4;
/// Maximum number of child elements that are described with their own attributes and children. For
/// all further child elements, a description only lists some names of attributes and children.
pub const PARAMETERS_MAX: usize = 50_000;

/// The description of a payload: its purpose and its parameters, which are its attributes and child
/// elements.
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
    /// The value that applies if the text is empty; `None` if the schema states no such value, or
    /// the content is not text.
    #[serde(rename = "default", skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether the schema permits no other value than `default`.
    #[serde(rename = "fixed", skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
    #[serde(rename = "parameters")]
    pub parameters: Vec<PayloadParameter>,
    /// Whether `parameters` contains all attributes and children that the payload may have.
    #[serde(skip)]
    pub coverage: PartCoverage,
    /// Sentences that state which parts an outline leaves out; `None` if there are no such parts.
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
    /// Number of further choices that `choices` leaves out.
    #[serde(rename = "more_choices", skip_serializing_if = "is_zero")]
    pub more_choices: usize,
    /// The permitted range, such as `1 to 9` or `at most 58 characters`; `None` if there is no
    /// limit.
    #[serde(rename = "range", skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde demands")]
pub(super) const fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl TextContent {
    /// Returns the choices as one text, such as `red, green, and 3 more`. Empty if there are none.
    pub fn choices_in_prose(&self) -> String {
        let shown = |choice: &String| match choice.as_str() {
            "" => "\"\" (nothing)".to_owned(),
            choice => choice.to_owned(),
        };
        let shown = self.choices.iter().map(shown).collect::<Vec<_>>().join(", ");
        match self.more_choices {
            0 => shown,
            more => format!("{shown}, and {more} more"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PayloadParameter {
    #[serde(rename = "name")]
    pub name: String,
    /// Name of the attribute or child element as written in a payload.
    #[serde(skip)]
    pub written: QName,
    #[serde(rename = "attribute")]
    pub attribute: bool,
    #[serde(rename = "required")]
    pub required: bool,
    /// Whether the parameter may occur more than once.
    #[serde(rename = "repeated")]
    pub repeated: bool,
    /// Whether the parameter belongs to a repeated group of several elements. Its occurrences may
    /// then stand between those of the other elements of the group.
    #[serde(skip)]
    pub interleaved: bool,
    /// Whether the parameter belongs to a choice, so that a payload may contain another branch of
    /// this choice instead.
    #[serde(rename = "alternative")]
    pub alternative: bool,
    /// The choice to which the parameter belongs as an alternative; `None` if it is no alternative.
    #[serde(skip)]
    pub choice: Option<ChoiceBranch>,
    #[serde(rename = "content")]
    pub content: TextContent,
    #[serde(rename = "doc", skip_serializing_if = "Option::is_none")]
    pub doc: Option<String>,
    /// The value that applies if the parameter is left out or empty; `None` if the schema states no
    /// such value.
    #[serde(rename = "default", skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether the schema permits no other value than `default`.
    #[serde(rename = "fixed", skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
    #[serde(rename = "parameters", skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<PayloadParameter>,
    /// Whether `parameters` contains all attributes and children that the element may have.
    #[serde(skip)]
    pub coverage: PartCoverage,
    /// The attributes and children of this parameter that are only listed by name.
    #[serde(flatten)]
    pub undescribed: UndescribedParts,
}

impl PayloadParameter {
    /// Whether the parameter stands for an element of any name.
    pub fn is_any_element(&self) -> bool {
        self.content.kind == "any element"
    }

    /// Whether the parameter is required where it may occur: in every case, or in each payload that
    /// contains its branch of a choice.
    pub fn is_needed(&self) -> bool {
        self.required || self.choice.is_some_and(|own| own.is_needed)
    }

    /// Returns the key by which settings and commands name the parameter: the name of a child, or
    /// `@` and the name of an attribute.
    pub fn key(&self) -> String {
        let mark = if self.attribute { "@" } else { "" };
        format!("{mark}{}", self.name)
    }
}

/// The form of a description in prompts. A recorded prompt is rebuilt with the form that belongs to
/// its version of the prompt renderer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptionForm {
    /// Before version 8: some texts have another wording, and the description has no maximum
    /// length.
    Early,
    /// Versions 8 to 14: a named group takes one of the levels of the description. Inside of a
    /// group with the name of one of its elements, the parameters of this element are missing.
    GroupsAsLevels,
    /// Since version 15: the children in a named group are described like all others.
    Current,
}

/// Describes a global element in the given form. An unknown element has neither documentation nor
/// parameters.
pub fn payload(
    model: &SchemaModel,
    name: &PayloadName,
    form: DescriptionForm,
) -> PayloadDescription {
    let types = DescribedTypes::new(model);
    DescribedModel::new(&types, DEPTH_MAX, PARAMETERS_MAX).in_form(form).payload(name)
}

/// A describer of the elements of a schema model, down to a limited depth.
pub struct DescribedModel<'a> {
    types: &'a DescribedTypes<'a>,
    depth: usize,
    /// Number of child elements that may still be described with their attributes and children.
    /// Each such description reduces the number by one.
    left: Cell<usize>,
    form: DescriptionForm,
}

impl<'a> DescribedModel<'a> {
    /// Creates a describer for `depth` levels of parameters. At most `most` child elements are
    /// described with their own attributes and children.
    pub fn new(types: &'a DescribedTypes<'a>, depth: usize, most: usize) -> Self {
        Self { types, depth, left: Cell::new(most), form: DescriptionForm::Current }
    }

    #[must_use]
    pub fn in_form(self, form: DescriptionForm) -> Self {
        Self { form, ..self }
    }

    fn is_early(&self) -> bool {
        self.form == DescriptionForm::Early
    }

    /// Whether the maximum number of child elements has been described with their attributes and
    /// children. The description then only lists some names for each further child element.
    pub fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    pub fn payload(&self, name: &PayloadName) -> PayloadDescription {
        let Some(element) = self.types.model().element(name) else {
            return PayloadDescription {
                name: name.clone(),
                doc: String::new(),
                text: None,
                default: None,
                fixed: false,
                parameters: Vec::new(),
                coverage: PartCoverage::Partial,
                left_out: None,
            };
        };

        let kind = self.types.get(&element.kind);
        let outline = &kind.outline;
        let doc = element.notes.doc.clone().or_else(|| outline.notes.doc.clone());
        let (parameters, is_whole) = parameters(self, outline, &mut vec![element.name.clone()]);
        let is_text = outline.is_text();
        let value = element.fixed.as_ref().or(element.default.as_ref());
        PayloadDescription {
            name: name.clone(),
            doc: doc.unwrap_or_default(),
            text: is_text.then(|| self.content(outline)),
            default: value.filter(|_| is_text).cloned(),
            fixed: is_text && element.fixed.is_some(),
            parameters,
            coverage: if is_whole { kind.coverage } else { PartCoverage::Partial },
            left_out: None,
        }
    }

    fn attribute_name(&self, name: &QName) -> String {
        if self.is_early() { name.local.to_string() } else { attribute_name(name) }
    }

    fn content(&self, outline: &ElementOutline) -> TextContent {
        match &outline.text {
            Some(value) => self.of_value(value),
            None if outline.anything => plain("anything"),
            None if outline.mixed => plain("text"),
            None if outline.content.is_empty() => plain("empty"),
            None => plain("elements"),
        }
    }

    fn of_value(&self, value: &SimpleTypeOutline) -> TextContent {
        if let Some(item) = &value.list_of {
            let kind = format!("list, separated by blanks, of {}", self.of_value(item));
            return TextContent { range: range(value), ..plain(&kind) };
        }

        let choices: Vec<String> = value.choices().into_iter().map(|c| c.value).collect();
        // An enumeration of the empty text alone stands for an empty element.
        if choices == [""] && !self.is_early() {
            return plain("empty");
        }

        let kind = match value.builtin.as_str() {
            _ if !choices.is_empty() => "one of".to_owned(),
            builtin if is_dated(builtin) => self.dated(value),
            "union" => {
                let members: Vec<String> =
                    value.union_of.iter().map(|m| self.of_value(m).to_string()).collect();
                members.join(" or ")
            }
            builtin => words(builtin).to_owned(),
        };

        TextContent { kind, choices, more_choices: 0, range: range(value) }
    }

    /// Describes a type for dates, times or durations, with an example if there is one. Except in
    /// the early wording, the example fits the facets of the type.
    fn dated(&self, value: &SimpleTypeOutline) -> String {
        let builtin = value.builtin.as_str();
        let noun = if builtin == "dateTime" { "date and time" } else { builtin };
        let example = if self.is_early() {
            sample_time::usual(builtin).map(str::to_owned)
        } else {
            sample::fitting(value)
        };
        match example {
            Some(example) => format!("{noun} such as {example}"),
            None => noun.to_owned(),
        }
    }
}

/// Returns the name of an attribute as it is written in a payload.
pub(super) fn attribute_name(name: &QName) -> String {
    let prefix = if name.namespace() == XML_NAMESPACE { "xml:" } else { "" };
    format!("{prefix}{}", name.local)
}

/// Returns the parameters of an element, and whether they are all of its attributes and children,
/// see [`particles`].
fn parameters(
    within: &DescribedModel<'_>,
    outline: &ElementOutline,
    above: &mut Vec<QName>,
) -> (Vec<PayloadParameter>, bool) {
    let attributes = outline.attributes.iter().map(|a| PayloadParameter {
        name: within.attribute_name(&a.name),
        written: a.name.clone(),
        attribute: true,
        required: a.required,
        repeated: false,
        interleaved: false,
        alternative: false,
        choice: None,
        content: within.of_value(&a.value),
        doc: a.notes.doc.clone().or_else(|| a.value.notes.doc.clone()),
        default: a.fixed.clone().or_else(|| a.default.clone()),
        fixed: a.fixed.is_some(),
        parameters: Vec::new(),
        coverage: PartCoverage::Complete,
        undescribed: UndescribedParts::default(),
    });
    let mut out: Vec<PayloadParameter> = attributes.collect();
    let is_whole = particles(within, &outline.content, ParticlePlace::ROOT, above, &mut out);
    (out, is_whole)
}

/// Adds the parameters of `particles_here` to `out`. Returns false if this leaves out the children
/// in a named group, because the group is nested too deep in other groups.
fn particles(
    within: &DescribedModel<'_>,
    particles_here: &[ContentParticle],
    place: ParticlePlace,
    above: &mut Vec<QName>,
    out: &mut Vec<PayloadParameter>,
) -> bool {
    let model = within.types.model();
    let mut is_whole = true;
    for particle in particles_here {
        let place = place.of_particle(model, particle, particles_here.len());
        match &particle.term {
            ParticleTerm::Element(element) => out.push(parameter(within, element, place, above)),
            ParticleTerm::ElementRef(name) => {
                let all = model.standing_for(name);
                let place = if all.len() > 1 { place.one_of(out) } else { place };
                for element in &all {
                    let place = place.next_branch(out);
                    out.push(parameter(within, element, place, above));
                }
            }
            ParticleTerm::Sequence(inner) | ParticleTerm::All(inner) => {
                is_whole &= particles(within, inner, place, above, out);
            }
            ParticleTerm::Choice(inner) => {
                let place = if inner.len() > 1 { place.one_of(out) } else { place };
                for branch in inner {
                    let place = place.next_branch(out);
                    let branch = std::slice::from_ref(branch);
                    is_whole &= particles(within, branch, place, above, out);
                }
            }
            ParticleTerm::GroupRef(name) => {
                is_whole &= named_group(within, name, place, above, out);
            }
            ParticleTerm::Any(_) => out.push(PayloadParameter {
                name: "*".into(),
                written: QName::new(None, "*"),
                attribute: false,
                required: place.required,
                repeated: place.repeated,
                interleaved: place.interleaved,
                alternative: place.alternative,
                choice: place.choice,
                content: plain("any element"),
                doc: None,
                default: None,
                fixed: false,
                parameters: Vec::new(),
                coverage: PartCoverage::Complete,
                undescribed: UndescribedParts::default(),
            }),
        }
    }

    is_whole
}

/// Adds the parameters in a named group to `out`. The result is that of [`particles`].
fn named_group(
    within: &DescribedModel<'_>,
    name: &QName,
    place: ParticlePlace,
    above: &mut Vec<QName>,
    out: &mut Vec<PayloadParameter>,
) -> bool {
    let Some(inner) = within.types.model().groups.get(name) else { return false };
    if within.form == DescriptionForm::Current {
        let is_near = place.groups <= limits::OUTLINE_GROUPS_MAX;
        return is_near && particles(within, inner, place, above, out);
    }

    if above.len() >= limits::OUTLINE_GROUPS_MAX {
        return false;
    }
    above.push(name.clone());
    let is_whole = particles(within, inner, place, above, out);
    above.pop();
    is_whole
}

fn parameter(
    within: &DescribedModel<'_>,
    element: &ElementDecl,
    place: ParticlePlace,
    above: &mut Vec<QName>,
) -> PayloadParameter {
    let kind = within.types.get(&element.kind);
    let outline = &kind.outline;
    let again = above.contains(&element.name);
    let is_too_deep = above.len() >= within.depth || within.is_spent();
    let has_parts = !outline.attributes.is_empty() || !outline.content.is_empty();
    let mut is_left_out = has_parts && (again || is_too_deep);
    within.left.set(within.left.get().saturating_sub(1));
    let mut inner = Vec::new();
    let mut undescribed = UndescribedParts::default();
    if is_too_deep && !again && !within.is_early() {
        undescribed = kind.parts.clone();
    } else if !is_too_deep && !again {
        above.push(element.name.clone());
        let (parameters, is_whole) = parameters(within, outline, above);
        inner = parameters;
        is_left_out |= !is_whole;
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
        interleaved: place.interleaved,
        alternative: place.alternative,
        choice: place.choice,
        content: within.content(outline),
        doc,
        default: element.fixed.clone().or_else(|| element.default.clone()),
        fixed: element.fixed.is_some(),
        parameters: inner,
        coverage: if is_left_out { PartCoverage::Partial } else { kind.coverage },
        undescribed,
    }
}

/// The built-in type `xs:boolean` in prose.
pub const BOOLEAN_WORDS: &str = "true or false";

fn plain(kind: &str) -> TextContent {
    TextContent { kind: kind.to_owned(), choices: Vec::new(), more_choices: 0, range: None }
}

/// Whether the description of a value of this built-in type contains an example.
fn is_dated(builtin: &str) -> bool {
    matches!(builtin, "date" | "dateTime" | "time" | "duration")
}

/// Returns the name of a built-in type in prose.
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
    // XSD counts the bytes of a binary value, not its characters.
    let unit = match value.builtin.as_str() {
        _ if value.list_of.is_some() => "items",
        "hexBinary" => "bytes of two digits",
        "base64Binary" => "bytes before the encoding",
        _ => "characters",
    };
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
            write!(f, " {}", self.choices_in_prose())?;
        }

        match &self.range {
            Some(range) => write!(f, " ({range})"),
            None => Ok(()),
        }
    }
}

impl PayloadDescription {
    /// Returns the fixed value or the default of the payload's own text, such as `, exactly 42`.
    /// Empty if there is none.
    fn value_in_prose(&self) -> String {
        let word = if self.fixed { "exactly" } else { "default" };
        self.default.as_ref().map_or_else(String::new, |value| format!(", {word} {value}"))
    }

    /// Returns the length of the description without the fixed value or default of the payload's
    /// own text. Prompts do not contain this value, so it must not decide what an outline leaves
    /// out.
    pub(super) fn outline_length(&self) -> usize {
        self.to_string().len() - self.value_in_prose().len()
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
            writeln!(f, "  content: {text}{}", self.value_in_prose())?;
        }

        self.parameters.iter().try_for_each(|parameter| line(parameter, f, 1))?;
        match &self.left_out {
            Some(left_out) => writeln!(f, "  {left_out}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PayloadParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(self, f, 1)
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
        // Both words have the same length. A description that is too long for a prompt is
        // shortened, so another length would change the prompts of earlier versions.
        let word = if parameter.fixed { "exactly" } else { "default" };
        write!(f, ", {word} {default}")?;
    }

    if let Some(parts) = parameter.undescribed.in_prose() {
        write!(f, ", {parts}")?;
    }

    if let Some(doc) = &parameter.doc {
        write!(f, ". {doc}")?;
    }

    writeln!(f)?;
    parameter.parameters.iter().try_for_each(|inner| line(inner, f, depth + 1))
}
