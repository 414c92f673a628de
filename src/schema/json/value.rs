//! Values of simple types in JSON. A number or boolean becomes a number or boolean of JSON if both
//! XML and JSON write it in the same way. Every other value becomes a string with its text in XML.

use serde_json::{Number, Value as Json};

use super::raw_json;
use crate::schema::outline::SimpleTypeOutline;
use crate::xml::escape::is_xml_char;

/// The JSON type in which a value of a simple type is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonType {
    Flag,
    Integer,
    Number,
    Text,
}

/// Why a JSON value does not fit a simple type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongValue {
    /// Index of the wrong item, if the JSON value is a list; `None` if the whole value is wrong.
    pub item: Option<usize>,
    /// Text that states which value was found and which value was expected.
    pub message: String,
}

impl From<String> for WrongValue {
    fn from(message: String) -> Self {
        Self { item: None, message }
    }
}

/// Largest number up to which a double represents every integer exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

pub fn sort(value: &SimpleTypeOutline) -> JsonType {
    if !value.choices().is_empty() {
        return JsonType::Text;
    }

    match value.builtin.as_str() {
        "boolean" => JsonType::Flag,
        "decimal" | "float" | "double" => JsonType::Number,
        "int" | "integer" | "long" | "short" | "byte" | "positiveInteger"
        | "nonNegativeInteger" | "unsignedInt" | "unsignedLong" | "unsignedShort"
        | "unsignedByte" | "negativeInteger" | "nonPositiveInteger" => JsonType::Integer,
        _ => JsonType::Text,
    }
}

/// Converts a text of the simple type `value` to JSON. The result is a string if JSON would not
/// write the value with exactly this text.
pub fn to_json(value: &SimpleTypeOutline, text: &str) -> Json {
    if let Some(item) = &value.list_of {
        return Json::Array(text.split_whitespace().map(|one| to_json(item, one)).collect());
    }

    let typed = match (sort(value), text) {
        (JsonType::Flag, "true") => Some(Json::Bool(true)),
        (JsonType::Flag, "false") => Some(Json::Bool(false)),
        (JsonType::Integer, _) if text.contains(['.', 'e', 'E']) => None,
        (JsonType::Integer | JsonType::Number, _) => number(text).map(Json::Number),
        _ => None,
    };

    typed.unwrap_or_else(|| Json::String(text.to_owned()))
}

fn number(text: &str) -> Option<Number> {
    let number: Number = serde_json::from_str(text).ok()?;
    (number.to_string() == text).then_some(number)
}

/// Converts a JSON value to a text of the simple type `value`.
///
/// # Errors
///
/// Returns a description of the found value and of the expected value.
pub fn to_text(
    value: &SimpleTypeOutline,
    json: &raw_json::RawJson<'_>,
) -> Result<String, WrongValue> {
    match &value.list_of {
        Some(item) => list(item, json),
        None => value_text(value, json).map_err(WrongValue::from),
    }
}

fn value_text(value: &SimpleTypeOutline, json: &raw_json::RawJson<'_>) -> Result<String, String> {
    let wrong = |expected: &str| Err(format!("is {}; {expected} is expected", json.kind()));

    match (sort(value), json) {
        (JsonType::Text, raw_json::RawJson::Text(text)) => characters(text),
        (JsonType::Text, _) => match plain(value, json) {
            Some(text) => Ok(text),
            None => wrong("a string"),
        },
        (JsonType::Flag, raw_json::RawJson::Flag(flag)) => Ok(flag.to_string()),
        (JsonType::Flag, raw_json::RawJson::Text(text)) => match text.trim() {
            "true" | "false" | "1" | "0" => Ok(text.clone()),
            _ => wrong("true or false"),
        },
        (JsonType::Flag, _) => wrong("true or false"),
        (JsonType::Integer, raw_json::RawJson::Number(written)) => integer(written),
        (JsonType::Integer, raw_json::RawJson::Text(text)) if is_integer(text.trim()) => {
            Ok(text.clone())
        }
        (JsonType::Integer, _) => wrong("a whole number"),
        (JsonType::Number, raw_json::RawJson::Number(written)) => decimal(&value.builtin, written),
        (JsonType::Number, raw_json::RawJson::Text(text)) if is_number(text.trim()) => {
            Ok(text.clone())
        }
        (JsonType::Number, _) => wrong("a number"),
    }
}

/// Converts a JSON number or boolean to text, for a simple type whose values are normally strings
/// in JSON. Returns the text if it is an enumerated value of the type, or if the number or boolean
/// fits a member type of a union. Otherwise, returns `None`.
fn plain(value: &SimpleTypeOutline, json: &raw_json::RawJson<'_>) -> Option<String> {
    let text = match json {
        raw_json::RawJson::Flag(flag) => flag.to_string(),
        raw_json::RawJson::Number(written) => (*written).to_owned(),
        _ => return None,
    };

    let fits = |member: &SimpleTypeOutline| {
        sort(member) != JsonType::Text && value_text(member, json).is_ok()
    };
    let chosen = value.choices().iter().any(|choice| choice.value == text);
    (chosen || value.union_of.iter().any(fits)).then_some(text)
}

fn list(item: &SimpleTypeOutline, json: &raw_json::RawJson<'_>) -> Result<String, WrongValue> {
    let raw_json::RawJson::List(items) = json else {
        return Err(format!("is {}; an array is expected", json.kind()).into());
    };

    let mut texts = Vec::new();
    for (index, item_json) in items.iter().enumerate() {
        let wrong = |message: String| WrongValue { item: Some(index), message };
        let read = raw_json::RawJson::read(item_json).map_err(|error| wrong(error.to_string()))?;
        let text = value_text(item, &read).map_err(wrong)?;
        if text.is_empty() || text.contains(char::is_whitespace) {
            return Err(wrong("is empty or holds white space, which separates items".to_owned()));
        }
        texts.push(text);
    }

    Ok(texts.join(" "))
}

fn characters(text: &str) -> Result<String, String> {
    match text.chars().find(|c| !is_xml_char(*c)) {
        None => Ok(text.to_owned()),
        Some(c) => Err(format!("holds the character U+{:04X}, which XML cannot", u32::from(c))),
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

fn is_number(text: &str) -> bool {
    matches!(text, "INF" | "-INF" | "NaN") || text.parse::<f64>().is_ok_and(f64::is_finite)
}

fn integer(written: &str) -> Result<String, String> {
    if is_integer(written) {
        return Ok(written.to_owned());
    }

    match written.parse::<f64>() {
        Ok(number) if number.fract() == 0.0 && number.abs() < EXACT => Ok(format!("{number:.0}")),
        _ => Err("is no whole number; a whole number is expected".to_owned()),
    }
}

/// Converts a decimal to its text. Expands an exponent, because `xs:decimal` permits none.
fn decimal(builtin: &str, written: &str) -> Result<String, String> {
    if builtin != "decimal" || !written.contains(['e', 'E']) {
        return Ok(written.to_owned());
    }

    match written.parse::<f64>() {
        Ok(number) if number.is_finite() && number.abs() < EXACT => Ok(number.to_string()),
        _ => Err("is a number with an exponent; write all of its digits".to_owned()),
    }
}
