//! Declares elements from a JSON Schema, including one that Pydantic or Zod exports.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::declaration::{ContentType, ElementDeclaration, FieldsType, ValueType};
use super::{ConversionError, DEPTH_MAX, Losses, check_count, element_name, pattern};
use crate::shorten::shorten;

/// Derives the declaration of a payload from `schema`. `name` becomes the name of the payload.
pub(super) fn read(
    schema: &Json,
    name: &str,
    losses: &mut Losses,
) -> Result<ElementDeclaration, ConversionError> {
    let mut reader =
        JsonSchemaReader { root: schema, losses, elements: 0, words: 0, open: Vec::new() };
    let name = element_name(name, "", reader.losses);
    let mut declared = reader.element(name, schema, "", 0)?;
    if declared.max != Some(1) {
        // The list itself has no element: each of its items becomes a child.
        let child = ElementDeclaration { name: "item".to_owned(), ..declared.clone() };
        let fields = FieldsType { children: vec![child], ..FieldsType::default() };
        declared = ElementDeclaration::new(declared.name, ContentType::Fields(fields));
    }
    Ok(declared)
}

/// Maximum number of nested references.
const REFERENCES_MAX: usize = 200;
/// Largest value of `minItems` and `maxItems` that a conversion keeps.
const ITEMS_MAX: u64 = 10_000;

struct JsonSchemaReader<'a> {
    root: &'a Json,
    losses: &'a mut Losses,
    elements: usize,
    /// Number of values in the enumerations that have been read so far. If several references lead
    /// to one enumeration, its values count for each reference.
    words: usize,
    /// References that the reader is following at present, the outermost first. A reference that is
    /// already in this list leads back to itself.
    open: Vec<String>,
}

/// A JSON Schema after its references were followed and null was removed from its permitted types.
struct ResolvedSchema {
    keys: Map<String, Json>,
    is_nullable: bool,
    /// Number of references that were followed.
    followed: usize,
}

/// Keywords that are not reported as a loss, because they do not constrain the value, or because
/// another part of the conversion uses them. However, a conflict between two values of `type` is
/// reported.
const SILENT: [&str; 11] = [
    "$schema",
    "$id",
    "$defs",
    "definitions",
    "$comment",
    "$anchor",
    "title",
    "description",
    "type",
    "deprecated",
    "readOnly",
];

/// Maximum number of values in all enumerations of a schema.
const WORDS_MAX: usize = 200_000;

/// Returns the keywords of JSON Schema that the conversion can express for a value of the JSON type
/// `base`.
fn known(base: &str) -> &'static [&'static str] {
    match base {
        "object" => &["properties", "required", "additionalProperties"],
        "array" => &["items", "minItems", "maxItems"],
        "string" => &["enum", "const", "format", "minLength", "maxLength", "pattern"],
        "integer" | "number" => {
            &["enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
        }
        _ => &["enum", "const"],
    }
}

impl JsonSchemaReader<'_> {
    fn element(
        &mut self,
        name: String,
        schema: &Json,
        path: &str,
        depth: usize,
    ) -> Result<ElementDeclaration, ConversionError> {
        let resolved = self.resolve(schema, path)?;
        let keys = &resolved.keys;
        let mut declared = match self.type_of(keys, path) {
            _ if depth > DEPTH_MAX => {
                self.losses.add(path, format_args!("more than {DEPTH_MAX} levels become text"));
                text(name)
            }
            "object" => {
                let fields = self.fields(keys, path, depth)?;
                ElementDeclaration::new(name, ContentType::Fields(fields))
            }
            "array" => self.list(name, keys, path, depth)?,
            base => ElementDeclaration::new(name, ContentType::Value(self.value(base, keys, path))),
        };
        if resolved.is_nullable {
            if declared.min > 1 {
                self.losses.add(path, format_args!("at least {} where any", declared.min));
            }
            declared.min = 0;
            self.losses.add(path, "null becomes an absent element");
        }
        if let Some(text) = keys.get("description").and_then(Json::as_str) {
            declared.documentation = Some(xml_text(text));
        }
        self.open.truncate(self.open.len() - resolved.followed);
        Ok(declared)
    }

    fn check_size(&self) -> Result<(), ConversionError> {
        if self.words > WORDS_MAX {
            let text = format!("the schema would list more than {WORDS_MAX} values");
            return Err(ConversionError::Unsupported(text));
        }
        check_count(self.elements)
    }

    /// Resolves a schema: follows its references, merges the schemas of `allOf`, and removes null
    /// from `anyOf` and `oneOf`.
    fn resolve(&mut self, schema: &Json, path: &str) -> Result<ResolvedSchema, ConversionError> {
        self.elements += 1;
        self.check_size()?;
        let mut keys = schema.as_object().cloned().unwrap_or_default();
        let mut is_nullable = false;
        let mut followed = 0;
        loop {
            if let Some(reference) = taken(&mut keys, "$ref", Json::as_str) {
                let target = reference.strip_prefix('#').and_then(|at| self.root.pointer(at));
                match target.and_then(Json::as_object) {
                    Some(_) if self.open.contains(&reference) => {
                        self.losses.add(
                            path,
                            format_args!("{reference} holds itself, or is here twice: left out"),
                        );
                        keys = Map::new();
                    }
                    Some(_) if self.open.len() >= REFERENCES_MAX => {
                        let text =
                            format!("{path}/: more than {REFERENCES_MAX} references in a row");
                        return Err(ConversionError::Unsupported(text));
                    }
                    Some(found) => {
                        self.open.push(reference);
                        followed += 1;
                        self.note_conflicts("$ref", found, &keys, path);
                        keys = merged(found.clone(), keys);
                    }
                    None => {
                        let what = format_args!("{reference} is not in this document: text here");
                        self.losses.add(path, what);
                    }
                }
            } else if let Some(parts) = taken(&mut keys, "allOf", Json::as_array) {
                // Earlier parts precede later ones, and all precede the keywords beside `allOf`.
                for part in parts.iter().rev() {
                    let part = self.resolve(part, path)?;
                    is_nullable |= part.is_nullable;
                    followed += part.followed;
                    self.note_conflicts("allOf", &part.keys, &keys, path);
                    keys = merged(part.keys, keys);
                }
            } else if let Some((word, parts)) = union(&mut keys) {
                let all = parts.len();
                let mut rest: Vec<_> = parts.into_iter().filter(|part| !is_null(part)).collect();
                is_nullable |= rest.len() < all;
                if rest.len() == 1 {
                    let only = rest.pop().and_then(|part| part.as_object().cloned());
                    let only = only.unwrap_or_default();
                    self.note_conflicts(word, &only, &keys, path);
                    keys = merged(only, keys);
                } else if let Some(words) = words_of(&rest) {
                    let words = Map::from_iter([("enum".to_owned(), words)]);
                    self.note_conflicts(word, &words, &keys, path);
                    keys = merged(words, keys);
                } else if ["type", "properties", "items"].iter().any(|key| keys.contains_key(*key))
                {
                    self.losses.add(path, format_args!("{word} of {} alternatives", rest.len()));
                } else {
                    keys.insert("type".to_owned(), Json::from("string"));
                    let what = format_args!("{word} of {} types becomes text", rest.len());
                    self.losses.add(path, what);
                }
            } else {
                is_nullable |= takes_null(&keys);
                return Ok(ResolvedSchema { keys, is_nullable, followed });
            }
        }
    }

    /// Records a loss for each keyword that `part` and `over` both have with different values. Both
    /// schemas apply to the same JSON value, and the conversion keeps the keyword's value in
    /// `over`. There are three exceptions:
    ///
    /// - For `properties`, records a loss for each property whose two schemas differ.
    /// - For `required`, records no loss, because the contents are merged.
    /// - For keywords that do not constrain the value, such as `title`, records no loss.
    ///
    /// `word` is the keyword that contains or refers to `part`, such as `allOf`.
    fn note_conflicts(
        &mut self,
        word: &str,
        part: &Map<String, Json>,
        over: &Map<String, Json>,
        path: &str,
    ) {
        for (key, value) in part {
            let Some(kept) = over.get(key).filter(|kept| *kept != value) else { continue };
            match (value.as_object(), kept.as_object()) {
                (Some(one), Some(other)) if key == "properties" => {
                    for (name, _) in one.iter().filter(|(name, schema)| {
                        other.get(*name).is_some_and(|known| known != *schema)
                    }) {
                        let what = format_args!("{word}: one of its schemas for {name:?}");
                        self.losses.add(path, what);
                    }
                }
                _ if key == "required" || SILENT.contains(&key.as_str()) && key != "type" => {}
                _ => self.losses.add(path, format_args!("{word}: {key} {}", short(value))),
            }
        }
    }

    /// Returns the name of the JSON type that the conversion uses for a schema. If the schema
    /// permits several types or any value, returns `string` and records a loss. Also records a loss
    /// for each keyword that the chosen type cannot express.
    fn type_of(&mut self, keys: &Map<String, Json>, path: &str) -> &'static str {
        let named = match keys.get("type") {
            Some(Json::String(name)) => vec![name.as_str()],
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
            _ => Vec::new(),
        };
        let named: Vec<_> = named.into_iter().filter(|name| *name != "null").collect();
        let base = match named.as_slice() {
            ["object"] => "object",
            ["array"] => "array",
            ["integer"] => "integer",
            ["number"] => "number",
            ["boolean"] => "boolean",
            ["string"] => "string",
            [] if keys.contains_key("properties") => "object",
            [] if keys.contains_key("items") => "array",
            [] if keys.contains_key("enum") || keys.contains_key("const") => "string",
            [] => {
                self.losses.add(path, "any value becomes text");
                "string"
            }
            several => {
                let what = format_args!("{} becomes text", several.join(" or "));
                self.losses.add(path, what);
                "string"
            }
        };

        for (key, value) in keys {
            let is_known = SILENT.contains(&key.as_str()) || known(base).contains(&key.as_str());
            // The value of such a keyword has a kind that JSON Schema does not permit there.
            let is_malformed = match key.as_str() {
                "enum" => !value.is_array(),
                "properties" => !value.is_object(),
                "required" => !value.is_array(),
                _ => false,
            };
            if !is_known || is_malformed {
                self.losses.add(path, format_args!("{key} {}", short(value)));
            }
        }
        base
    }

    fn fields(
        &mut self,
        keys: &Map<String, Json>,
        path: &str,
        depth: usize,
    ) -> Result<FieldsType, ConversionError> {
        if let Some(more) =
            keys.get("additionalProperties").filter(|more| **more != Json::Bool(false))
        {
            let what = format_args!("additionalProperties {}", short(more));
            self.losses.add(path, what);
        }

        let required: BTreeSet<&str> = match keys.get("required") {
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
            _ => BTreeSet::new(),
        };
        let mut children: Vec<ElementDeclaration> = Vec::new();
        let properties = keys.get("properties").and_then(Json::as_object);
        for (property, schema) in properties.into_iter().flatten() {
            let path = format!("{path}/{property}");
            let mut name = element_name(property, &path, self.losses);
            while children.iter().any(|child| child.name == name) {
                name.push('_');
                self.losses.add(&path, format_args!("the name {property:?} becomes `{name}`"));
            }
            let mut child = self.element(name, schema, &path, depth + 1)?;
            if !required.contains(property.as_str()) {
                if child.min > 1 {
                    self.losses.add(&path, format_args!("at least {} where any", child.min));
                }
                child.min = 0;
            }
            children.push(child);
        }
        for name in required {
            if !properties.is_some_and(|known| known.contains_key(name)) {
                self.losses.add(path, format_args!("{name:?} is required, but not declared"));
            }
        }
        Ok(FieldsType { children, ..FieldsType::default() })
    }

    /// Declares a list as an element that occurs once for each item.
    fn list(
        &mut self,
        name: String,
        keys: &Map<String, Json>,
        path: &str,
        depth: usize,
    ) -> Result<ElementDeclaration, ConversionError> {
        let items = keys.get("items").cloned().unwrap_or(Json::Bool(true));
        let path = format!("{path}[]");
        let mut item = self.element(name, &items, &path, depth + 1)?;
        if item.max != Some(1) {
            let name = item.name.clone();
            let child = ElementDeclaration { name: "item".to_owned(), ..item };
            let fields = FieldsType { children: vec![child], ..FieldsType::default() };
            item = ElementDeclaration::new(name, ContentType::Fields(fields));
            self.losses.add(&path, "a list of lists: the inner items are elements `item`");
        }
        let bound = |key: &str| keys.get(key).and_then(Json::as_u64);
        for key in ["minItems", "maxItems"] {
            if keys.get(key).is_some_and(|at| at.as_u64().is_none_or(|n| n > ITEMS_MAX)) {
                let what = format_args!(
                    "{key} {}, which is above {ITEMS_MAX}",
                    keys.get(key).map(short).unwrap_or_default()
                );
                self.losses.add(&path, what);
            }
        }
        item.min = bound("minItems").filter(|min| *min <= ITEMS_MAX).unwrap_or_default();
        item.max = bound("maxItems").filter(|max| *max <= ITEMS_MAX);
        if item.max.is_some_and(|max| max < item.min.max(1)) {
            self.losses.add(&path, "maxItems below minItems, or of 0");
            item.max = None;
        }
        Ok(item)
    }

    fn value(&mut self, base: &'static str, keys: &Map<String, Json>, path: &str) -> ValueType {
        let words = self.words(keys, path);
        let mut of = ValueType::plain(match base {
            "integer" => "integer",
            "number" => "decimal",
            "boolean" => "boolean",
            // Enumerated values are texts, whatever their format is.
            _ if !words.is_empty() => {
                if let Some(format) = keys.get("format") {
                    self.losses.add(path, format_args!("the format {}", shown(format)));
                }
                "string"
            }
            _ => self.format(keys, path),
        });
        if !words.is_empty() && base == "boolean" {
            self.losses.add(path, "one value of a boolean");
        } else if words.iter().all(|word| is_word_of(of.base, word)) {
            for word in &words {
                let text = word.as_str().map_or_else(|| word.to_string(), str::to_owned);
                of.facets.push(("enumeration", text));
            }
        } else if matches!(base, "integer" | "number") {
            self.losses.add(path, format_args!("an enumeration of other values than {base}s"));
        } else {
            self.losses.add(path, "an enumeration of other values than texts and numbers");
        }
        if matches!(base, "integer" | "number") {
            self.bounds(keys, path, &mut of);
        } else if base == "string" {
            self.text_facets(keys, path, &mut of);
        }
        of
    }

    /// Returns the values that the JSON Schema permits, without null. These are the value of
    /// `const` or, without `const`, the values of `enum`. If `enum` lacks the value of `const`,
    /// returns the values of `enum`, and records `const` as a loss.
    fn words(&mut self, keys: &Map<String, Json>, path: &str) -> Vec<Json> {
        let listed = keys.get("enum").and_then(Json::as_array);
        let words = match (listed, keys.get("const")) {
            (Some(words), Some(only)) if !words.contains(only) => {
                self.losses.add(path, format_args!("const {}, which enum lacks", short(only)));
                words.clone()
            }
            (_, Some(only)) => {
                if only.is_null() {
                    self.losses.add(path, "const null: any text here");
                }
                vec![only.clone()]
            }
            (Some(words), None) => words.clone(),
            (None, None) => Vec::new(),
        };
        self.words += words.len();
        words.into_iter().filter(|word| !word.is_null()).collect()
    }

    fn bounds(&mut self, keys: &Map<String, Json>, path: &str, of: &mut ValueType) {
        for (key, facet) in [
            ("minimum", "minInclusive"),
            ("exclusiveMinimum", "minExclusive"),
            ("maximum", "maxInclusive"),
            ("exclusiveMaximum", "maxExclusive"),
        ] {
            let Some(bound) = keys.get(key) else { continue };
            // XSD permits one lower and one upper bound.
            let is_taken = of.facets.iter().any(|(known, _)| known.get(..3) == facet.get(..3));
            if bound.is_number() && is_word_of(of.base, bound) && !is_taken {
                of.facets.push((facet, bound.to_string()));
            } else {
                self.losses.add(path, format_args!("{key} {}", short(bound)));
            }
        }
    }

    fn text_facets(&mut self, keys: &Map<String, Json>, path: &str, of: &mut ValueType) {
        for key in ["minLength", "maxLength"] {
            let Some(bound) = keys.get(key) else { continue };
            match bound.as_u64().filter(|bound| *bound <= 1_000_000 && of.base == "string") {
                Some(bound) => of.facets.push((key, bound.to_string())),
                None => self.losses.add(path, format_args!("{key} {}", short(bound))),
            }
        }
        if let Some(written) = keys.get("pattern") {
            let read = written.as_str().filter(|_| of.base == "string");
            let obstacle = read.map_or("only plain strings can have one", pattern::obstacle);
            match read.and_then(pattern::of_json_schema) {
                Some(pattern) => of.facets.push(("pattern", pattern)),
                None => {
                    self.losses
                        .add(path, format_args!("the pattern {}: {obstacle}", shown(written)));
                }
            }
        }
    }

    /// Returns the XSD type for strings of the `format` in `keys`. If there is no format, returns
    /// `string`. If XSD has no type for the format, also returns `string`, and records the format
    /// as a loss.
    fn format(&mut self, keys: &Map<String, Json>, path: &str) -> &'static str {
        let Some(format) = keys.get("format") else { return "string" };
        match format.as_str() {
            Some("date") => "date",
            Some("date-time") => "dateTime",
            Some("uri" | "uri-reference" | "iri") => "anyURI",
            _ => {
                self.losses.add(path, format_args!("the format {}", shown(format)));
                "string"
            }
        }
    }
}

/// Removes a keyword and returns its value. If the keyword is missing, returns `None`. If its value
/// does not have the expected JSON type, also returns `None`, and keeps the keyword.
fn taken<T: ToOwned + ?Sized>(
    keys: &mut Map<String, Json>,
    keyword: &str,
    kind: fn(&Json) -> Option<&T>,
) -> Option<T::Owned> {
    let value = keys.get(keyword).and_then(kind)?.to_owned();
    keys.remove(keyword);
    Some(value)
}

fn text(name: String) -> ElementDeclaration {
    ElementDeclaration::new(name, ContentType::Value(ValueType::plain("string")))
}

/// Merges the keywords of two schemas that both apply to one value. The contents of `properties`
/// and `required` are merged. If another keyword is in both schemas, the result has its value from
/// `over`.
fn merged(under: Map<String, Json>, over: Map<String, Json>) -> Map<String, Json> {
    let mut all = under;
    for (key, value) in over {
        match (all.get_mut(&key), value) {
            (Some(Json::Object(known)), Json::Object(more)) if key == "properties" => {
                known.extend(more);
            }
            (Some(Json::Array(known)), Json::Array(more)) if key == "required" => {
                known.extend(more)
            }
            (_, value) => {
                all.insert(key, value);
            }
        }
    }
    all
}

fn union(keys: &mut Map<String, Json>) -> Option<(&'static str, Vec<Json>)> {
    for word in ["anyOf", "oneOf"] {
        if let Some(parts) = taken(keys, word, Json::as_array) {
            return Some((word, parts));
        }
    }
    None
}

fn is_null(schema: &Json) -> bool {
    schema.get("type").and_then(Json::as_str) == Some("null")
}

/// Whether this JSON Schema permits null: null must be among its types or, if it has no `type`,
/// among the values of `enum`.
fn takes_null(keys: &Map<String, Json>) -> bool {
    match keys.get("type") {
        Some(Json::Array(types)) => types.iter().any(|one| one == "null"),
        Some(one) => one == "null",
        None => keys.get("enum").and_then(Json::as_array).is_some_and(|w| w.contains(&Json::Null)),
    }
}

/// Whether `value` is valid for the built-in XSD type `base`, such as `integer`.
fn is_word_of(base: &str, value: &Json) -> bool {
    let text = match value {
        Json::String(text) if base == "string" => text.clone(),
        Json::Number(number) => number.to_string(),
        _ => return false,
    };
    let unsigned = text.strip_prefix('-').unwrap_or(&text);
    match base {
        "integer" => unsigned.bytes().all(|b| b.is_ascii_digit()),
        "decimal" => unsigned.bytes().all(|b| b.is_ascii_digit() || b == b'.'),
        _ => text.chars().all(crate::xml::escape::is_xml_char),
    }
}

/// Returns all strings that a union permits. Returns `None` if a part of the union is neither a
/// constant string nor an enumeration of strings.
fn words_of(parts: &[Json]) -> Option<Json> {
    let mut words = Vec::new();
    for part in parts {
        match (part.get("const"), part.get("enum")) {
            (Some(word @ Json::String(_)), _) => words.push(word.clone()),
            (_, Some(Json::Array(more))) if more.iter().all(Json::is_string) => {
                words.extend(more.iter().cloned());
            }
            _ => return None,
        }
    }
    (!words.is_empty()).then_some(Json::Array(words))
}

fn short(value: &Json) -> String {
    shorten(&value.to_string(), 60)
}

/// Returns the text that stands for a value in a message: a string without quotes, or the shortened
/// JSON of any other value.
fn shown(value: &Json) -> String {
    value.as_str().map_or_else(|| short(value), str::to_owned)
}

/// Returns the text without characters that XML cannot hold.
fn xml_text(text: &str) -> String {
    text.chars().filter(|c| crate::xml::escape::is_xml_char(*c)).collect()
}
