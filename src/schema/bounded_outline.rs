//! Outlines of payloads for prompts: descriptions with a bound on their length. An outline states
//! what it leaves out.

use super::describe::{self, DEPTH_MAX, PayloadDescription, PayloadParameter, TextContent};
use super::model::SchemaModel;
use crate::ids::PayloadName;
use crate::limits;

/// Maximum characters of the documentation of a parameter in a shortened outline.
const DOC_CHARS: usize = 120;
/// Number of enumerated values in a shortened outline.
const CHOICES: usize = 12;

/// The description of a payload with as many levels of parameters as fit into the bound.
pub fn outline(model: &SchemaModel, name: &PayloadName) -> PayloadDescription {
    let mut best = None;
    for depth in 1..=DEPTH_MAX {
        let mut description = describe::payload_to_depth(model, name, depth);
        if !fits(&description) {
            shorten(&mut description);
        }
        if !fits(&description) {
            break;
        }
        best = Some(description);
    }

    let mut outline = best.unwrap_or_else(|| first_parameters(model, name));
    let mut undescribed = Vec::new();
    collect_undescribed(&outline.parameters, &mut undescribed);
    if !undescribed.is_empty() && outline.left_out.is_none() {
        let count = undescribed.len();
        outline.left_out = Some(format!(
            "This outline leaves out the parts of {count} elements that are marked as not described. {NARROW}"
        ));
    }

    outline
}

const NARROW: &str = "The schema checks them all the same, and a refusal names what it expects. To \
    narrow the outline, let the config accept an element with fewer parts.";

/// The first parameters, as many as fit into the bound.
fn first_parameters(model: &SchemaModel, name: &PayloadName) -> PayloadDescription {
    let mut description = describe::payload_to_depth(model, name, 1);
    shorten(&mut description);
    let all = description.parameters.len();
    while !fits(&description) && !description.parameters.is_empty() {
        let kept = description.parameters.len() * 3 / 4;
        description.parameters.truncate(kept);
    }

    let left = all - description.parameters.len();
    description.left_out =
        Some(format!("This outline leaves out {left} of {all} parameters. {NARROW}"));
    description
}

fn fits(description: &PayloadDescription) -> bool {
    description.to_string().len() <= limits::OUTLINE_BYTES_MAX
}

fn collect_undescribed<'a>(parameters: &'a [PayloadParameter], out: &mut Vec<&'a str>) {
    for parameter in parameters {
        if !parameter.undescribed.is_empty() {
            out.push(&parameter.name);
        }
        collect_undescribed(&parameter.parameters, out);
    }
}

/// Shortens documentation and enumerations.
fn shorten(description: &mut PayloadDescription) {
    description.text.iter_mut().for_each(shorten_content);
    description.parameters.iter_mut().for_each(shorten_parameter);
}

fn shorten_parameter(parameter: &mut PayloadParameter) {
    if let Some(doc) = &mut parameter.doc
        && doc.chars().count() > DOC_CHARS
    {
        *doc = doc.chars().take(DOC_CHARS).collect::<String>() + "\u{2026}";
    }

    shorten_content(&mut parameter.content);
    parameter.parameters.iter_mut().for_each(shorten_parameter);
}

fn shorten_content(content: &mut TextContent) {
    let all = content.choices.len();
    if all > CHOICES + 1 {
        content.choices.truncate(CHOICES);
        content.choices.push(format!("and {} more", all - CHOICES));
    }
}
