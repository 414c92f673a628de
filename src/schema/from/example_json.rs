//! Declares elements from one example in JSON, and permits only what the example shows.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::declaration::{ContentType, ElementDeclaration, FieldsType, UNKNOWN, ValueType};
use super::example_xml::{merge, value_of};
use super::{ConversionError, DEPTH_MAX, Losses, check_count, element_name};

/// Derives the declaration of a payload from `example`. `name` becomes the name of the payload.
pub(super) fn read(
    example: &Json,
    name: &str,
    losses: &mut Losses,
) -> Result<ElementDeclaration, ConversionError> {
    let name = element_name(name, "", losses);
    losses.add("", "everything that this one example does not show");
    let mut declared = element(name, example, "", 0, losses)?;
    settle(&mut declared, "", losses);
    let is_list = declared.max != Some(1);
    Ok(if is_list { with_items(declared) } else { declared })
}

/// Wraps a list in an element. The element contains one child `item` for each item of the list.
fn with_items(list: ElementDeclaration) -> ElementDeclaration {
    let name = list.name.clone();
    let child = ElementDeclaration { name: "item".to_owned(), ..list };
    let fields = FieldsType { children: vec![child], ..FieldsType::default() };
    ElementDeclaration::new(name, ContentType::Fields(fields))
}

fn unknown() -> ContentType {
    ContentType::Value(ValueType::plain(UNKNOWN))
}

/// Declares a value as text if the example does not show its type.
fn settle(declared: &mut ElementDeclaration, path: &str, losses: &mut Losses) {
    match &mut declared.of {
        ContentType::Value(of) if of.base == UNKNOWN => {
            *of = ValueType::plain("string");
            match declared.max {
                Some(_) => losses.add(path, "null: text that may be absent"),
                None => losses.add(&format!("{path}[]"), "an empty list: its items become text"),
            }
        }
        ContentType::Value(_) => {}
        ContentType::Fields(fields) => {
            for child in &mut fields.children {
                settle(child, &format!("{path}/{}", child.name), losses);
            }
        }
    }
}

fn element(
    name: String,
    value: &Json,
    path: &str,
    depth: usize,
    losses: &mut Losses,
) -> Result<ElementDeclaration, ConversionError> {
    if depth > DEPTH_MAX {
        let text = format!("{path}: more than {DEPTH_MAX} levels");
        return Err(ConversionError::Unsupported(text));
    }

    let of = match value {
        Json::Null => {
            return Ok(ElementDeclaration { min: 0, ..ElementDeclaration::new(name, unknown()) });
        }
        Json::Bool(_) => ContentType::Value(ValueType::plain("boolean")),
        Json::Number(number) => ContentType::Value(value_of(&number.to_string())),
        // A JSON string that looks like a number stays a text.
        Json::String(text) => {
            let guessed = value_of(text);
            let is_time = matches!(guessed.base, "date" | "dateTime");
            ContentType::Value(if is_time { guessed } else { ValueType::plain("string") })
        }
        Json::Array(items) => return list(name, items, path, depth, losses),
        Json::Object(object) => {
            let mut children: Vec<ElementDeclaration> = Vec::new();
            let mut names = HashSet::new();
            for (key, value) in object {
                let path = format!("{path}/{key}");
                let mut name = element_name(key, &path, losses);
                while !names.insert(name.clone()) {
                    name.push('_');
                    losses.add(&path, format_args!("the name {key:?} becomes `{name}`"));
                }
                children.push(element(name, value, &path, depth + 1, losses)?);
            }
            ContentType::Fields(FieldsType { children, ..FieldsType::default() })
        }
    };
    Ok(ElementDeclaration::new(name, of))
}

/// Declares a list as an element that occurs once for each item. Every item of the example fits the
/// declaration.
fn list(
    name: String,
    items: &[Json],
    path: &str,
    depth: usize,
    losses: &mut Losses,
) -> Result<ElementDeclaration, ConversionError> {
    let path = format!("{path}[]");
    let mut all = ElementDeclaration::new(name.clone(), unknown());
    for item in items {
        if item.is_null() {
            losses.add(&path, "null becomes an absent element");
            continue;
        }
        let mut next = element(name.clone(), item, &path, depth + 1, losses)?;
        if item.is_array() {
            losses.add(&path, "a list of lists: the inner items are elements `item`");
            next = with_items(next);
        }
        all = merge(all, next, &path, losses);
        check_count(all.size())?;
    }
    Ok(ElementDeclaration { min: 0, max: None, ..all })
}
