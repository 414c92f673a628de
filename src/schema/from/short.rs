//! Writes the declaration of an element in the short form that a config can contain.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::super::short_form::{NAMESPACE, is_element_name};
use super::declaration::{ContentType, ElementDeclaration, FieldsType, ValueType};
use super::{ConversionError, Losses, ShortPayload};

/// The namespace that the source or the user names for a payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnNamespace<'a> {
    /// Empty for a payload without a namespace.
    pub namespace: &'a str,
    /// Whether the children of the payload are in this namespace too.
    pub is_qualified: bool,
}

/// Returns the config lines that declare `root` in the short form. The losses describe everything
/// in `root` that the short form cannot express, and `own_namespace`, which it does not keep.
pub(super) fn payload(
    root: &ElementDeclaration,
    own_namespace: Option<OwnNamespace<'_>>,
) -> Result<ShortPayload, ConversionError> {
    check_names(root)?;
    let mut losses = Losses::default();
    if let Some(own) = own_namespace {
        note_namespace(own, &mut losses);
    }
    let name = key(&root.name);
    let text = match &root.of {
        ContentType::Value(of) => {
            format!("[payloads]\n{name} = \"{}\"\n", value(of, "", &mut losses))
        }
        ContentType::Fields(fields) => {
            let mut out = format!("[payloads.{name}]\n");
            note_attributes(fields, "", &mut losses);
            for child in text_and_children(fields) {
                if let Some(text) = &child.documentation {
                    let line = text.replace(char::is_control, " ");
                    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
                    let _ = writeln!(out, "# {line}");
                }
                let of = field(&child, "", &mut losses);
                let _ = writeln!(out, "{} = {of}", key(&child.name));
            }
            out
        }
    };
    Ok(ShortPayload { text, losses: losses.texts })
}

/// Checks that the short form of schemas in a config (`[payloads.NAME]`) can declare the names of
/// an element and its children.
fn check_names(element: &ElementDeclaration) -> Result<(), ConversionError> {
    let name = &element.name;
    if !is_element_name(name) {
        let text = format!("the short form cannot write the name `{name}`; leave out --short");
        return Err(ConversionError::Unsupported(text));
    }
    let ContentType::Fields(fields) = &element.of else { return Ok(()) };
    fields.children.iter().try_for_each(check_names)
}

fn key(name: &str) -> String {
    if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() }
}

/// Returns the children that the short form declares for an element with attributes or children. In
/// the short form, such an element has no text of its own, so its text becomes a child with the
/// name `text`.
fn text_and_children(fields: &FieldsType) -> Vec<ElementDeclaration> {
    let text = fields.text.iter();
    let text =
        text.map(|of| ElementDeclaration::new("text".to_owned(), ContentType::Value(of.clone())));
    text.chain(fields.children.iter().cloned()).collect()
}

fn note_namespace(own: OwnNamespace<'_>, losses: &mut Losses) {
    let namespace = own.namespace;
    if namespace != NAMESPACE {
        losses.add("", format_args!("the namespace {namespace:?} becomes {NAMESPACE:?}"));
    } else if !own.is_qualified {
        losses.add("", format_args!("its children without a namespace are in {NAMESPACE:?}"));
    }
}

fn note_attributes(fields: &FieldsType, path: &str, losses: &mut Losses) {
    for attribute in &fields.attributes {
        losses.add(path, format_args!("the attribute `{}`", attribute.name));
    }
    if fields.text.is_some() {
        losses.add(path, "its text stands in an element `text`");
    }
    if fields.is_unordered {
        losses.add(path, "its children in any order");
    }
}

fn field(element: &ElementDeclaration, path: &str, losses: &mut Losses) -> String {
    let path = format!("{path}/{}", element.name);
    let of = match &element.of {
        ContentType::Value(of) => value(of, &path, losses),
        ContentType::Fields(fields) => {
            note_attributes(fields, &path, losses);
            let children = text_and_children(fields);
            let parts: Vec<_> = children
                .iter()
                .map(|child| format!("{} = {}", key(&child.name), field(child, &path, losses)))
                .collect();
            let table = format!("{{ {} }}", parts.join(", "));
            return match (element.min, element.max) {
                (1, Some(1)) => table,
                (0, Some(1)) => {
                    losses.add(&path, "at most one: a table that may be absent is a list");
                    format!("[{table}]")
                }
                (min, max) => {
                    note_bounds(min, max, &path, losses);
                    format!("[{table}]")
                }
            };
        }
    };

    match (element.min, element.max) {
        (1, Some(1)) => format!("\"{of}\""),
        (0, Some(1)) => format!("\"{of}?\""),
        (min, max) => {
            note_bounds(min, max, &path, losses);
            format!("[\"{of}\"]")
        }
    }
}

fn note_bounds(min: u64, max: Option<u64>, path: &str, losses: &mut Losses) {
    if min > 0 {
        losses.add(path, format_args!("at least {min}"));
    }
    if let Some(max) = max {
        losses.add(path, format_args!("at most {max}"));
    }
}

fn value(of: &ValueType, path: &str, losses: &mut Losses) -> String {
    let words = of.words();
    let is_word = |word: &&str| {
        let is_other = matches!(*word, "text" | "integer" | "decimal" | "boolean" | "date");
        !word.is_empty()
            && !word.contains(['|', '?', '"', '\\', '$'])
            && !word.contains(|c: char| c.is_whitespace() || c.is_control())
            && !is_other
    };
    let mut once = HashSet::new();
    let are_once = words.iter().all(|word| once.insert(word));
    let are_words = are_once && words.iter().all(is_word);
    for (facet, value) in &of.facets {
        if !(*facet == "enumeration" && are_words && words.len() > 1) {
            losses.add(path, format_args!("{facet} {value}"));
        }
    }
    if are_words && words.len() > 1 {
        return words.join(" | ");
    }

    let name = match of.base {
        "string" => "text",
        "integer" => "integer",
        "decimal" => "decimal",
        "boolean" => "boolean",
        "date" => "date",
        other => {
            losses.add(path, format_args!("the type xs:{other} is text"));
            "text"
        }
    };
    name.to_owned()
}
