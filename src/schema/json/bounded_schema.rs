//! Shortens the JSON Schema of a payload to its maximum length.

use std::collections::HashSet;

use serde_json::{Map, Value as Json, json};

use super::json_schema::{XML_NAME, put};
use crate::limits;

/// Maximum number of enumerated values in a shortened schema.
const CHOICES: usize = 12;
/// Maximum length, in characters, of a payload's documentation in its JSON Schema.
const DOC_CHARS: usize = 1_000;
/// Maximum length, in bytes, of the schema of each property if the whole JSON Schema is too long. A
/// property with a longer schema is reduced to its type.
const PROPERTY_BYTES: usize = 512;
/// Number of bytes that a schema reserves for the comment about left-out parts.
const COMMENT_BYTES: usize = 512;

pub fn fits(schema: &Json) -> bool {
    excess(schema) == 0
}

/// Returns the number of bytes by which a schema is longer than the maximum.
fn excess(schema: &Json) -> usize {
    let bound = limits::TOOL_SCHEMA_BYTES_MAX - COMMENT_BYTES;
    schema.to_string().len().saturating_sub(bound)
}

/// Cuts the documentation of a payload to `DOC_CHARS` characters.
pub fn shorten_doc(doc: &mut String) {
    if let Some((end, _)) = doc.char_indices().nth(DOC_CHARS) {
        doc.truncate(end);
        doc.push('\u{2026}');
    }
}

/// Shortens the JSON Schema of an element to the maximum length. Returns the number of removed
/// properties. Takes these measures in this order, until the schema is short enough:
///
/// - Cuts long enumerations, and removes documentation.
/// - Reduces long properties to their types.
/// - Removes optional properties, then kinds of list items, then required properties. Within each
///   of these groups, begins with the last one.
///
/// `content` is the name of the property that holds the content of the element, such as the list of
/// its children. This property is never removed.
pub fn shorten(schema: &mut Json, content: Option<&str>) -> usize {
    if fits(schema) {
        return 0;
    }

    simplify(schema);
    if fits(schema) {
        return 0;
    }

    simplify_properties(schema);
    let required = names_of(schema.get("required"));
    let stays = |name: &str| content == Some(name);
    let mut excess = excess(schema);
    let mut removed =
        remove_last(schema, &mut excess, |name| !required.contains(name) && !stays(name));

    let items =
        content.and_then(|content| schema.pointer_mut(&format!("/properties/{content}/items")));
    if let Some(items) = items {
        removed += remove_last(items, &mut excess, |_| true);
    }

    removed + remove_last(schema, &mut excess, |name| !stays(name))
}

/// Removes properties of `object`, beginning with the last one, until `excess` is 0. Returns the
/// number of removed properties. `excess` is the number of bytes by which the whole schema is too
/// long, and is updated at each removal. A property stays if `may_go` returns false for its name.
fn remove_last(object: &mut Json, excess: &mut usize, may_go: impl Fn(&str) -> bool) -> usize {
    let required = names_of(object.get("required"));
    let Some(properties) = object.get_mut("properties").and_then(Json::as_object_mut) else {
        return 0;
    };

    let mut gone = HashSet::new();
    for (name, schema) in properties.iter().rev().filter(|(name, _)| may_go(name)) {
        if *excess == 0 {
            break;
        }
        // Two pairs of quotation marks, a colon and a comma surround the name and the schema.
        let property = name.len() + schema.to_string().len() + 4;
        let needed = if required.contains(name) { name.len() + 3 } else { 0 };
        *excess = excess.saturating_sub(property + needed);
        gone.insert(name.clone());
    }

    if gone.is_empty() {
        return 0;
    }

    properties.retain(|name, _| !gone.contains(name));
    if let Some(required) = object.get_mut("required").and_then(Json::as_array_mut) {
        required.retain(|name| name.as_str().is_none_or(|name| !gone.contains(name)));
    }
    if let Some(object) = object.as_object_mut() {
        object.shift_remove("additionalProperties");
    }
    gone.len()
}

/// Returns the strings in a JSON array.
fn names_of(list: Option<&Json>) -> HashSet<String> {
    let names = list.and_then(Json::as_array).into_iter().flatten();
    names.filter_map(Json::as_str).map(str::to_owned).collect()
}

/// Replaces long enumerations by a few of their values, and removes documentation.
fn simplify(schema: &mut Json) {
    match schema {
        Json::Object(object) => {
            object.retain(|key, value| key != "description" || states_the_form(value));
            replace_choices(object);
            object.values_mut().for_each(simplify);
        }
        Json::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// Whether a `description` states the form in which a value must be written. Any other description
/// is documentation, which may be removed.
fn states_the_form(description: &Json) -> bool {
    let begins = |text: &str| {
        ["well-formed XML", "with ", "in order, "].iter().any(|start| text.starts_with(start))
    };
    description.as_str().is_none_or(begins)
}

fn replace_choices(object: &mut Map<String, Json>) {
    let choices = object.get("enum").and_then(Json::as_array).map(Vec::as_slice);
    let choices = choices.unwrap_or_default();
    if choices.len() <= CHOICES {
        return;
    }

    let shown = choices.iter().take(CHOICES).filter_map(Json::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    let description = format!("one of {shown}, and {} more", choices.len() - CHOICES);
    object.shift_remove("enum");
    object.insert("description".to_owned(), Json::String(description));
}

/// Replaces each property with a schema longer than `PROPERTY_BYTES` by the type of its value. If a
/// property is a list of child elements, replaces the long properties of the list's items instead.
fn simplify_properties(schema: &mut Json) {
    let Some(properties) = schema.get_mut("properties").and_then(Json::as_object_mut) else {
        return;
    };

    for (_, property) in properties.iter_mut() {
        let items = property.get_mut("items").filter(|items| items.get("maxProperties").is_some());
        if let Some(items) = items {
            simplify_properties(items);
        } else if property.to_string().len() > PROPERTY_BYTES {
            let kind = property.get("type").cloned().unwrap_or_else(|| json!("object"));
            let name = property.get(XML_NAME).cloned();
            *property = json!({"type": kind});
            put(property, XML_NAME, name);
        }
    }
}
