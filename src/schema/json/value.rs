//! Simple values: numbers and booleans are JSON's own where both write them alike, everything
//! else is a string with the characters of the XML.

use serde_json::{Number, Value as Json};

use super::raw;
use crate::schema::outline::Value;
use crate::xml::escape::is_xml_char;

/// What a simple type is in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Flag,
    Integer,
    Number,
    Text,
}

/// Why a JSON value is no text of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Of a list, the item it is about.
    pub item: Option<usize>,
    /// What it is, and what is expected.
    pub message: String,
}

impl From<String> for Wrong {
    fn from(message: String) -> Self {
        Self { item: None, message }
    }
}

/// Largest whole number that every reader of JSON keeps exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

pub fn sort(value: &Value) -> Sort {
    if !value.choices().is_empty() {
        return Sort::Text;
    }

    match value.builtin.as_str() {
        "boolean" => Sort::Flag,
        "decimal" | "float" | "double" => Sort::Number,
        "int" | "integer" | "long" | "short" | "byte" | "positiveInteger"
        | "nonNegativeInteger" | "unsignedInt" | "unsignedLong" | "unsignedShort"
        | "unsignedByte" | "negativeInteger" | "nonPositiveInteger" => Sort::Integer,
        _ => Sort::Text,
    }
}

/// The JSON that stands for a text of this type. What JSON would write otherwise stays a string.
pub fn to_json(value: &Value, text: &str) -> Json {
    if let Some(item) = &value.list_of {
        return Json::Array(text.split_whitespace().map(|one| to_json(item, one)).collect());
    }

    let typed = match (sort(value), text) {
        (Sort::Flag, "true") => Some(Json::Bool(true)),
        (Sort::Flag, "false") => Some(Json::Bool(false)),
        (Sort::Integer, _) if text.contains(['.', 'e', 'E']) => None,
        (Sort::Integer | Sort::Number, _) => number(text).map(Json::Number),
        _ => None,
    };

    typed.unwrap_or_else(|| Json::String(text.to_owned()))
}

fn number(text: &str) -> Option<Number> {
    let number: Number = serde_json::from_str(text).ok()?;
    (number.to_string() == text).then_some(number)
}

/// The text of a JSON value of this type.
///
/// # Errors
/// What it is, and what is expected.
pub fn to_text(value: &Value, json: &raw::Json<'_>) -> Result<String, Wrong> {
    match &value.list_of {
        Some(item) => list(item, json),
        None => one(value, json).map_err(Wrong::from),
    }
}

fn one(value: &Value, json: &raw::Json<'_>) -> Result<String, String> {
    let wrong = |expected: &str| Err(format!("is {}; {expected} is expected", json.kind()));
    match (sort(value), json) {
        (Sort::Text, raw::Json::Text(text)) => characters(text),
        (Sort::Text, _) => match plain(value, json) {
            Some(text) => Ok(text),
            None => wrong("a string"),
        },
        (Sort::Flag, raw::Json::Flag(flag)) => Ok(flag.to_string()),
        (Sort::Flag, raw::Json::Text(text)) => match text.trim() {
            "true" | "false" | "1" | "0" => Ok(text.clone()),
            _ => wrong("true or false"),
        },
        (Sort::Flag, _) => wrong("true or false"),
        (Sort::Integer, raw::Json::Number(written)) => integer(written),
        (Sort::Integer, raw::Json::Text(text)) if is_integer(text.trim()) => Ok(text.clone()),
        (Sort::Integer, _) => wrong("a whole number"),
        (Sort::Number, raw::Json::Number(written)) => decimal(&value.builtin, written),
        (Sort::Number, raw::Json::Text(text)) if is_number(text.trim()) => Ok(text.clone()),
        (Sort::Number, _) => wrong("a number"),
    }
}

/// A number or boolean where one of several texts is meant, or one of several types.
fn plain(value: &Value, json: &raw::Json<'_>) -> Option<String> {
    let text = match json {
        raw::Json::Flag(flag) => flag.to_string(),
        raw::Json::Number(written) => (*written).to_owned(),
        _ => return None,
    };

    let fits = |member: &Value| sort(member) != Sort::Text && one(member, json).is_ok();
    let chosen = value.choices().iter().any(|choice| choice.value == text);
    (chosen || value.union_of.iter().any(fits)).then_some(text)
}

fn list(item: &Value, json: &raw::Json<'_>) -> Result<String, Wrong> {
    let raw::Json::List(items) = json else {
        return Err(format!("is {}; an array is expected", json.kind()).into());
    };

    let mut texts = Vec::new();
    for (index, item_json) in items.iter().enumerate() {
        let wrong = |message: String| Wrong { item: Some(index), message };
        let read = raw::Json::read(item_json).map_err(|error| wrong(error.to_string()))?;
        let text = one(item, &read).map_err(wrong)?;
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

/// `xs:decimal` knows no exponents.
fn decimal(builtin: &str, written: &str) -> Result<String, String> {
    if builtin != "decimal" || !written.contains(['e', 'E']) {
        return Ok(written.to_owned());
    }

    match written.parse::<f64>() {
        Ok(number) if number.is_finite() && number.abs() < EXACT => Ok(number.to_string()),
        _ => Err("is a number with an exponent; write all of its digits".to_owned()),
    }
}
