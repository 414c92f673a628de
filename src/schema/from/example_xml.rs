//! Declares elements from one example in XML, and permits only what the example shows.

use std::collections::{BTreeMap, HashMap};

use super::declaration::{
    AttributeDeclaration, ContentType, ElementDeclaration, FieldsType, UNKNOWN, ValueType,
};
use super::{ConversionError, DEPTH_MAX, Losses, check_count};
use crate::xml::element::Element;

/// The declaration that was made from an example in XML.
pub(super) struct ReadExample {
    pub root: ElementDeclaration,
    /// Whether the example's child elements are in the namespace of the root.
    pub is_qualified: bool,
}

pub(super) fn read(root: &Element, losses: &mut Losses) -> Result<ReadExample, ConversionError> {
    let target = root.name.namespace.as_deref().unwrap_or_default();
    let is_qualified =
        root.children().next().is_none_or(|child| child.name.namespace == root.name.namespace);
    let expected = if is_qualified { target } else { "" };
    losses.add("", "everything that this one example does not show");
    let path = format!("/{}", root.name.local);
    let declared = element(root, expected, &path, 0, losses)?;
    Ok(ReadExample { root: declared, is_qualified })
}

fn element(
    source: &Element,
    expected: &str,
    path: &str,
    depth: usize,
    losses: &mut Losses,
) -> Result<ElementDeclaration, ConversionError> {
    let refuse = |what: String| Err(ConversionError::Unsupported(format!("{path}: {what}")));
    if depth >= DEPTH_MAX {
        return refuse(format!("more than {DEPTH_MAX} levels"));
    }

    let attributes = attributes_of(source, path)?;
    let name = source.name.local.to_string();
    if source.children().next().is_none() {
        let of = value_of(&source.text());
        let of = if attributes.is_empty() {
            ContentType::Value(of)
        } else {
            ContentType::Fields(FieldsType { attributes, text: Some(of), ..FieldsType::default() })
        };
        return Ok(ElementDeclaration::new(name, of));
    }

    if !source.own_text().trim().is_empty() {
        return refuse("text between elements; write its XSD by hand".to_owned());
    }
    let mut fields = FieldsType { attributes, ..FieldsType::default() };
    let mut last = String::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for child in source.children() {
        if child.name.namespace.as_deref().unwrap_or_default() != expected {
            let local = &child.name.local;
            let namespace = child.name.namespace.as_deref().unwrap_or_default();
            return refuse(format!(
                "`{local}` is in another namespace ({namespace:?}); one schema has one, so write \
                 this XSD by hand"
            ));
        }
        let path = format!("{path}/{}", child.name.local);
        let next = element(child, expected, &path, depth + 1, losses)?;
        let next_name = next.name.clone();
        let place = places.get(&next_name).copied();
        match place.and_then(|place| fields.children.get_mut(place)) {
            None => {
                places.insert(next_name.clone(), fields.children.len());
                fields.children.push(next);
                check_count(fields.children.len())?;
            }
            Some(known) => {
                fields.is_unordered |= last != next_name;
                let before = std::mem::replace(known, next.clone());
                *known = merge(before, next, &path, losses);
                known.max = None;
            }
        }
        last = next_name;
    }
    if fields.is_unordered {
        losses.add(path, "the order and number of its children");
    }
    Ok(ElementDeclaration::new(name, ContentType::Fields(fields)))
}

fn attributes_of(
    source: &Element,
    path: &str,
) -> Result<Vec<AttributeDeclaration>, ConversionError> {
    let declared = source.attributes.iter().map(|(name, value)| {
        let local = &name.local;
        if name.namespace.is_some() {
            return Err(ConversionError::Unsupported(format!(
                "{path}: the attribute `{local}` has a namespace; write its XSD by hand"
            )));
        }
        let name = local.to_string();
        Ok(AttributeDeclaration { name, is_required: true, of: value_of(value) })
    });
    declared.collect()
}

/// Merges two declarations of the same element, for example from two places in the example. The
/// result accepts every element that one of them accepts, with one exception: if only one of them
/// permits text, the result permits no text, and a loss is recorded.
pub(super) fn merge(
    one: ElementDeclaration,
    other: ElementDeclaration,
    path: &str,
    losses: &mut Losses,
) -> ElementDeclaration {
    let min = one.min.min(other.min);
    let max = match (one.max, other.max) {
        (Some(a), Some(b)) => Some(a.max(b)),
        _ => None,
    };
    let of = match (one.of, other.of) {
        (ContentType::Value(a), ContentType::Value(b)) => ContentType::Value(common(&a, &b)),
        (of, ContentType::Value(unknown)) | (ContentType::Value(unknown), of)
            if unknown.base == UNKNOWN =>
        {
            of
        }
        (ContentType::Fields(a), ContentType::Fields(b)) => {
            ContentType::Fields(merge_fields(a, b, path, losses))
        }
        (ContentType::Fields(fields), ContentType::Value(of))
        | (ContentType::Value(of), ContentType::Fields(fields)) => {
            ContentType::Fields(with_text(fields, of, path, losses))
        }
    };
    ElementDeclaration {
        min,
        max,
        of,
        ..ElementDeclaration::new(one.name, ContentType::Fields(FieldsType::default()))
    }
}

/// Merges two declarations of the same element: one with the attributes and children `fields`, and
/// one with only a text of the type `of`. All attributes and children become optional. If `fields`
/// has no text, the result permits no text, and a loss is recorded.
fn with_text(mut fields: FieldsType, of: ValueType, path: &str, losses: &mut Losses) -> FieldsType {
    for attribute in &mut fields.attributes {
        attribute.is_required = false;
    }
    for child in &mut fields.children {
        child.min = 0;
    }
    if let Some(text) = &mut fields.text {
        *text = common(text, &of);
    } else {
        losses.add(path, "text in place of children");
    }
    fields
}

fn merge_fields(a: FieldsType, b: FieldsType, path: &str, losses: &mut Losses) -> FieldsType {
    let text = match (a.text, b.text) {
        (Some(a), Some(b)) => Some(common(&a, &b)),
        (None, None) => None,
        _ => {
            losses.add(path, "text in place of children");
            None
        }
    };
    let mut attributes = a.attributes;
    for known in &mut attributes {
        known.is_required &= b.attributes.iter().any(|other| other.name == known.name);
    }
    for other in b.attributes {
        match attributes.iter_mut().find(|known| known.name == other.name) {
            Some(known) => known.of = common(&known.of, &other.of),
            None => attributes.push(AttributeDeclaration { is_required: false, ..other }),
        }
    }

    let (children, is_mixed_up) = merge_children(a.children, b.children, path, losses);
    let is_unordered = a.is_unordered || b.is_unordered || is_mixed_up;
    if is_unordered {
        losses.add(path, "the order and number of its children");
    }
    FieldsType { attributes, children, is_unordered, text }
}

/// Maximum number of names that are looked up by a search through a list. For more names, a map is
/// built.
const FEW: usize = 8;

/// Returns for each of `names` its index in `known`, or `None` if `known` lacks the name. Builds a
/// map only if there are many names and their order is not that of `known`.
fn places(known: &[ElementDeclaration], names: &[ElementDeclaration]) -> Vec<Option<usize>> {
    let mut map: Option<HashMap<&str, usize>> = None;
    let mut next = 0;
    let mut found = Vec::with_capacity(names.len());
    for name in names.iter().map(|child| child.name.as_str()) {
        let is_next = known.get(next).is_some_and(|child| child.name == name);
        let place = if is_next {
            Some(next)
        } else if names.len() <= FEW {
            known.iter().position(|child| child.name == name)
        } else {
            let pairs = || known.iter().enumerate().map(|(at, child)| (child.name.as_str(), at));
            map.get_or_insert_with(|| pairs().collect()).get(name).copied()
        };
        next = place.map_or(next, |place| place + 1);
        found.push(place);
    }
    found
}

/// Merges two lists of child elements. Returns the merged list, and whether the order of the
/// children differs between the two lists.
fn merge_children(
    mut known: Vec<ElementDeclaration>,
    others: Vec<ElementDeclaration>,
    path: &str,
    losses: &mut Losses,
) -> (Vec<ElementDeclaration>, bool) {
    let places = places(&known, &others);
    let mut is_shared = vec![false; known.len()];
    // Children that only the second list has, by the index of the child that precedes them.
    let mut added: BTreeMap<usize, Vec<ElementDeclaration>> = BTreeMap::new();
    let mut at = 0;
    let mut is_mixed_up = false;
    for (other, place) in others.into_iter().zip(places) {
        let Some((place, child)) = place.and_then(|place| Some((place, known.get_mut(place)?)))
        else {
            added.entry(at).or_default().push(ElementDeclaration { min: 0, ..other });
            continue;
        };
        let path = format!("{path}/{}", other.name);
        let before = std::mem::replace(child, other.clone());
        *child = merge(before, other, &path, losses);
        if let Some(shared) = is_shared.get_mut(place) {
            *shared = true;
        }
        is_mixed_up |= place + 1 < at;
        at = place + 1;
    }

    for (child, is_shared) in known.iter_mut().zip(is_shared) {
        if !is_shared {
            child.min = 0;
        }
    }
    if added.is_empty() {
        return (known, is_mixed_up);
    }
    let mut children = added.remove(&0).unwrap_or_default();
    for (place, child) in known.into_iter().enumerate() {
        children.push(child);
        children.extend(added.remove(&(place + 1)).unwrap_or_default());
    }
    (children, is_mixed_up)
}

/// Returns a type that accepts the values of `a` and the values of `b`.
fn common(a: &ValueType, b: &ValueType) -> ValueType {
    let is_number = |of: &ValueType| matches!(of.base, "integer" | "decimal");
    if a.base == b.base || b.base == UNKNOWN {
        a.clone()
    } else if a.base == UNKNOWN {
        b.clone()
    } else if is_number(a) && is_number(b) {
        ValueType::plain("decimal")
    } else {
        ValueType::plain("string")
    }
}

/// Infers the type of a value from its text.
pub(super) fn value_of(text: &str) -> ValueType {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    // A number with leading zeros is a code, such as a postcode.
    let is_code = unsigned.len() > 1 && unsigned.starts_with('0') && !unsigned.starts_with("0.");
    let is_integer = digits(unsigned) && !is_code && unsigned.len() <= 18;
    let is_decimal =
        unsigned.split_once('.').is_some_and(|(a, b)| digits(a) && digits(b)) && !is_code;
    ValueType::plain(match text {
        "true" | "false" => "boolean",
        _ if is_integer => "integer",
        _ if is_decimal && unsigned.len() <= 24 => "decimal",
        _ if is_date_time(text) => "dateTime",
        _ if is_date(text) => "date",
        _ => "string",
    })
}

/// Whether `text` is a date in the form of XSD, which has no year 0.
fn is_date(text: &str) -> bool {
    let shape = text.replace(|c: char| c.is_ascii_digit(), "0");
    let is_known = text.parse::<jiff::civil::Date>().is_ok();
    shape == "0000-00-00" && !text.starts_with("0000") && is_known
}

/// Whether `text` is a date and time in the form of XSD, with `Z` or an offset from UTC.
fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else { return false };
    let clock = time.split(['Z', '+', '-']).next().unwrap_or_default();
    let zone = time.get(clock.len()..).unwrap_or_default();
    let shape = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "0");
    let (whole, part) = clock.split_once('.').unwrap_or((clock, "0"));
    let is_part = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_clock = shape(whole) == "00:00:00" && is_part && !whole.ends_with(":60");
    // XSD permits offsets of at most 14 hours.
    let is_far = zone.get(1..3).is_some_and(|hours| hours > "13");
    let is_zone = zone == "Z" || matches!(&*shape(zone), "+00:00" | "-00:00") && !is_far;
    is_date(date) && is_clock && is_zone && text.parse::<jiff::Timestamp>().is_ok()
}
