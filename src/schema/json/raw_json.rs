//! Parses JSON one level at a time. Keeps numbers as they are written, and keeps all members of an
//! object, even if two have the same name.

use std::collections::HashSet;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// One JSON value. The values inside an object or array are not parsed yet.
#[derive(Debug)]
pub enum RawJson<'a> {
    Null,
    Flag(bool),
    /// A number as written.
    Number(&'a str),
    Text(String),
    List(Vec<&'a RawValue>),
    /// Members in the order of the text. A name may occur twice.
    Object(Vec<(String, &'a RawValue)>),
}

impl<'a> RawJson<'a> {
    pub fn read(raw: &'a RawValue) -> Result<Self, serde_json::Error> {
        let text = raw.get();
        Ok(match text.as_bytes().first() {
            Some(b'{') => Self::Object(serde_json::from_str::<ObjectMembers<'_>>(text)?.0),
            Some(b'[') => Self::List(serde_json::from_str(text)?),
            Some(b'"') => Self::Text(serde_json::from_str(text)?),
            Some(b't') => Self::Flag(true),
            Some(b'f') => Self::Flag(false),
            Some(b'n') => Self::Null,
            _ => Self::Number(text),
        })
    }

    /// Returns the kind of the value, in the words that findings use.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Flag(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// Returns the members of a JSON object in order, with unparsed values; `None` if `text` is not a
/// JSON object.
pub fn members(text: &str) -> Option<Vec<(String, &RawValue)>> {
    serde_json::from_str::<ObjectMembers<'_>>(text).ok().map(|members| members.0)
}

/// Returns the path of a member whose name occurs twice in its object, such as `$.items[2].id`;
/// `None` if no object in `text` contains a name twice, or if `text` is not JSON. Usual JSON
/// readers keep only one of two members with the same name, and differ in which of the two they
/// keep.
pub fn repeated_member(text: &str) -> Option<String> {
    // Bounds the depth of the text.
    serde_json::from_str::<serde_json::Value>(text).ok()?;
    repeated_beneath(serde_json::from_str(text).ok()?, "$")
}

fn repeated_beneath(raw: &RawValue, path: &str) -> Option<String> {
    match RawJson::read(raw).ok()? {
        RawJson::Object(members) => {
            let mut seen = HashSet::new();
            members.iter().find_map(|(key, value)| {
                let at = format!("{path}.{key}");
                if seen.insert(key) { repeated_beneath(value, &at) } else { Some(at) }
            })
        }
        RawJson::List(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| repeated_beneath(item, &format!("{path}[{index}]")))
        }
        RawJson::Null | RawJson::Flag(_) | RawJson::Number(_) | RawJson::Text(_) => None,
    }
}

struct ObjectMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for ObjectMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectMembersVisitor)
    }
}

struct ObjectMembersVisitor;

impl<'de> Visitor<'de> for ObjectMembersVisitor {
    type Value = ObjectMembers<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
            members.push(member);
        }
        Ok(ObjectMembers(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_name_is_found_in_any_object() {
        let cases = [
            (r#"{"a":9,"a":1}"#, Some("$.a")),
            (r#"[1,{"a":{"b":1,"c":2,"b":1}}]"#, Some("$[1].a.b")),
            (r#"{"a":1,"\u0061":1}"#, Some("$.a")),
            (r#"[{"a":1},{"a":1,"b":{"a":1}}]"#, None),
            ("\"{\"", None),
            ("{\"a\":", None),
        ];
        for (text, path) in cases {
            assert_eq!(repeated_member(text).as_deref(), path, "{text}");
        }
    }
}
