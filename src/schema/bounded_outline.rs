//! Outlines of payloads for prompts. An outline is a description of bounded length, which states
//! how much of the payload it leaves out.

use super::describe::{
    DEPTH_MAX, DescribedModel, DescriptionForm, PARAMETERS_MAX, PayloadDescription,
    PayloadParameter, TextContent,
};
use super::described_types::DescribedTypes;
use super::model::SchemaModel;
use crate::ids::PayloadName;
use crate::limits;

/// Maximum length, in characters, of a payload's documentation in a shortened outline.
const DOC_CHARS: usize = 1_000;
/// Maximum length, in characters, of a parameter's documentation, range or default in a shortened
/// outline.
const NOTE_CHARS: usize = 120;
/// Maximum number of enumerated values in a shortened outline.
const CHOICES: usize = 12;
/// Number of bytes that an outline reserves for sentences about left-out parts.
const LEFT_OUT_BYTES: usize = 512;
/// Maximum number of child elements that an attempt at an outline describes. An attempt that
/// reaches this number is given up, because no outline has room for so many elements.
const PARAMETERS_TRIED: usize = limits::OUTLINE_BYTES_MAX / 16;

/// Returns the description of a payload, with as many levels of parameters as the maximum length
/// permits.
pub fn outline(
    model: &SchemaModel,
    name: &PayloadName,
    form: DescriptionForm,
) -> PayloadDescription {
    let types = DescribedTypes::new(model);
    let mut best = None;
    for depth in 1..=DEPTH_MAX {
        let within = DescribedModel::new(&types, depth, PARAMETERS_TRIED).in_form(form);
        let mut description = within.payload(name);
        if within.is_spent() {
            break;
        }
        if !fits(&description) {
            shorten(&mut description);
        }
        if !fits(&description) {
            break;
        }
        best = Some(description);
    }

    let mut outline = best.unwrap_or_else(|| first_parameters(&types, name, form));
    let undescribed = undescribed(&outline.parameters);
    if undescribed > 0 && outline.left_out.is_none() {
        outline.left_out = Some(format!(
            "This outline leaves out the parts of {undescribed} elements that are marked as not described. {NARROW}"
        ));
    }

    outline
}

const NARROW: &str = "The schema checks them all the same, and a refusal names what it expects. To \
    narrow the outline, let the config accept an element with fewer parts.";

/// Describes the payload with as many of its parameters as the maximum length permits. Required
/// parameters get room first. All parameters stay in the order of the schema.
fn first_parameters(
    types: &DescribedTypes<'_>,
    name: &PayloadName,
    form: DescriptionForm,
) -> PayloadDescription {
    let within = DescribedModel::new(types, 1, PARAMETERS_MAX).in_form(form);
    let mut description = within.payload(name);
    shorten(&mut description);
    let parameters = std::mem::take(&mut description.parameters);
    let all = parameters.len();
    let mut room = bound().saturating_sub(description.outline_length());
    let mut keeps = |parameter: &PayloadParameter| {
        let length = parameter.to_string().len();
        let fits = length <= room;
        room = if fits { room - length } else { 0 };
        fits
    };

    let mut kept = vec![false; all];
    for is_required in [true, false] {
        for (parameter, kept) in parameters.iter().zip(&mut kept) {
            *kept |= parameter.required == is_required && keeps(parameter);
        }
    }

    let shown = parameters.into_iter().zip(kept).filter(|(_, kept)| *kept);
    description.parameters = shown.map(|(parameter, _)| parameter).collect();
    let left = all - description.parameters.len();
    if left > 0 {
        description.left_out =
            Some(format!("This outline leaves out {left} of {all} parameters. {NARROW}"));
    }
    description
}

const fn bound() -> usize {
    limits::OUTLINE_BYTES_MAX - LEFT_OUT_BYTES
}

fn fits(description: &PayloadDescription) -> bool {
    description.outline_length() <= bound()
}

/// Returns the number of parameters, at all levels, that are not fully described: some of their
/// attributes or children are only listed by name.
fn undescribed(parameters: &[PayloadParameter]) -> usize {
    let of_one = |parameter: &PayloadParameter| {
        let own = usize::from(!parameter.undescribed.names.is_empty());
        own + undescribed(&parameter.parameters)
    };
    parameters.iter().map(of_one).sum()
}

/// Shortens the documentation and the enumerations in a description.
fn shorten(description: &mut PayloadDescription) {
    cut(&mut description.doc, DOC_CHARS);
    description.text.iter_mut().for_each(shorten_content);
    description.parameters.iter_mut().for_each(shorten_parameter);
}

fn shorten_parameter(parameter: &mut PayloadParameter) {
    parameter.doc.iter_mut().for_each(|doc| cut(doc, NOTE_CHARS));
    // A default is a value to copy, so a long one is left out instead of cut.
    parameter.default.take_if(|default| default.chars().count() > NOTE_CHARS);
    shorten_content(&mut parameter.content);
    parameter.parameters.iter_mut().for_each(shorten_parameter);
}

fn shorten_content(content: &mut TextContent) {
    let all = content.choices.len();
    content.choices.retain(|choice| choice.chars().count() <= NOTE_CHARS);
    if all > CHOICES + 1 {
        content.choices.truncate(CHOICES);
    }
    content.more_choices += all - content.choices.len();
    content.range.iter_mut().for_each(|range| cut(range, NOTE_CHARS));
    cut(&mut content.kind, 2 * NOTE_CHARS);
}

/// Cuts a text to `most` characters, for display.
fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push('\u{2026}');
    }
}
