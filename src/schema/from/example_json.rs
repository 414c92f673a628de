//! Declarations from one JSON value: what it shows, and no more.

use serde_json::Value as Json;

use super::declaration::{ContentType, ElementDeclaration, FieldsType, ValueType};
use super::example_xml::{merge, value_of};
use super::{ConversionError, DEPTH_MAX, Losses, count, element_name};

/// Declares the payload `name` for this example.
pub(super) fn read(
    example: &Json,
    name: &str,
    losses: &mut Losses,
) -> Result<ElementDeclaration, ConversionError> {
    let name = element_name(name, "", losses);
    losses.add("", "everything that this one example does not show");
    let mut elements = 0;
    let declared = element(name, example, "", 0, (losses, &mut elements))?;
    if declared.max == Some(1) {
        return Ok(declared);
    }

    let child = ElementDeclaration { name: "item".to_owned(), ..declared.clone() };
    let fields = FieldsType { children: vec![child], ..FieldsType::default() };
    Ok(ElementDeclaration::new(declared.name, ContentType::Fields(fields)))
}

fn element(
    name: String,
    value: &Json,
    path: &str,
    depth: usize,
    (losses, elements): (&mut Losses, &mut usize),
) -> Result<ElementDeclaration, ConversionError> {
    count(elements)?;
    if depth > DEPTH_MAX {
        let text = format!("{path}: more than {DEPTH_MAX} levels");
        return Err(ConversionError::Unsupported(text));
    }

    let of = match value {
        Json::Null => {
            losses.add(path, "null: text that may be absent");
            let of = ContentType::Value(ValueType::plain("string"));
            return Ok(ElementDeclaration { min: 0, ..ElementDeclaration::new(name, of) });
        }
        Json::Bool(_) => ContentType::Value(ValueType::plain("boolean")),
        Json::Number(number) => ContentType::Value(value_of(&number.to_string())),
        // A text that looks like a number is a text.
        Json::String(text) => {
            let guessed = value_of(text);
            let is_time = matches!(guessed.base, "date" | "dateTime");
            ContentType::Value(if is_time { guessed } else { ValueType::plain("string") })
        }
        Json::Array(items) => {
            let path = format!("{path}[]");
            let mut all: Option<ElementDeclaration> = None;
            for item in items {
                let next = element(name.clone(), item, &path, depth + 1, (losses, elements))?;
                all = Some(match all {
                    None => next,
                    Some(known) => merge(known, next, &path, losses),
                });
            }
            let of = all.map_or_else(
                || {
                    losses.add(&path, "an empty list: its items become text");
                    ContentType::Value(ValueType::plain("string"))
                },
                |item| item.of,
            );
            return Ok(ElementDeclaration {
                min: 0,
                max: None,
                ..ElementDeclaration::new(name, of)
            });
        }
        Json::Object(object) => {
            let mut children: Vec<ElementDeclaration> = Vec::new();
            for (key, value) in object {
                let path = format!("{path}/{key}");
                let mut name = element_name(key, &path, losses);
                while children.iter().any(|child| child.name == name) {
                    name.push('_');
                    losses.add(&path, format_args!("the name {key:?} becomes `{name}`"));
                }
                children.push(element(name, value, &path, depth + 1, (losses, elements))?);
            }
            ContentType::Fields(FieldsType { children, ..FieldsType::default() })
        }
    };
    Ok(ElementDeclaration::new(name, of))
}
