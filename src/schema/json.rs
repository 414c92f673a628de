//! A payload as a JSON Schema, for native tool calls.
//!
//! Child elements and attributes are properties under their local names (an attribute that
//! shares a child's name is written with an `@`); text beside attributes is the property
//! `content`; what may repeat is an array.

use serde_json::{Map, Value as Json, json};

use super::model::{ElementDecl, Model, Name, Particle, Term};
use super::outline::{Outline, Value};
use crate::ids::PayloadName;

const DEPTH_MAX: usize = 8;
const NODES_MAX: usize = 2_000;

/// The schema of a payload's parameters; an open object for a name the model does not know.
pub fn payload(model: &Model, name: &PayloadName) -> Json {
    let key = Name { namespace: name.namespace.clone(), local: name.local.clone() };
    let Some(element) = model.elements.get(&key) else { return json!({"type": "object"}) };
    let mut build = Build { model, above: Vec::new(), nodes: 0 };
    let outline = model.outline(&element.kind);
    build.above.push(key);
    let mut schema = build.object(&outline);
    let doc = element.notes.doc.clone().or(outline.notes.doc);
    describe(&mut schema, doc.as_deref());
    schema
}

struct Build<'a> {
    model: &'a Model,
    above: Vec<Name>,
    nodes: usize,
}

#[derive(Default)]
struct Properties {
    map: Map<String, Json>,
    required: Vec<Json>,
}

impl Build<'_> {
    fn object(&mut self, outline: &Outline) -> Json {
        let mut properties = Properties::default();
        self.particles(&outline.content, true, false, &mut properties);
        for attribute in &outline.attributes {
            let local = attribute.name.local.to_string();
            let taken = properties.map.contains_key(&local);
            let name = if taken { format!("@{local}") } else { local };
            let mut schema = text(&attribute.value);
            describe(&mut schema, attribute.notes.doc.as_deref());
            let fixed = typed(&schema, attribute.fixed.as_deref());
            put(&mut schema, "const", fixed);
            let default = typed(&schema, attribute.default.as_deref());
            put(&mut schema, "default", default);
            if attribute.required {
                properties.required.push(Json::String(name.clone()));
            }
            properties.map.insert(name, schema);
        }
        if outline.is_text() {
            let schema = outline.text.as_ref().map_or_else(|| json!({"type": "string"}), text);
            properties.required.push(Json::String("content".into()));
            properties.map.insert("content".into(), schema);
        }
        let mut object = json!({"type": "object", "properties": properties.map});
        if !properties.required.is_empty() {
            put(&mut object, "required", Some(Json::Array(properties.required)));
        }
        put(&mut object, "additionalProperties", Some(Json::Bool(outline.anything)));
        object
    }

    fn particles(
        &mut self,
        particles: &[Particle],
        required: bool,
        repeated: bool,
        out: &mut Properties,
    ) {
        for particle in particles {
            let required = required && particle.min > 0;
            let repeated = repeated || particle.max.is_none_or(|max| max > 1);
            match &particle.term {
                Term::Element(element) => self.property(element, required, repeated, out),
                Term::ElementRef(name) => {
                    let all = self.model.standing_for(name);
                    let required = required && all.len() == 1;
                    for element in all {
                        self.property(&element, required, repeated, out);
                    }
                }
                Term::Sequence(inner) | Term::All(inner) => {
                    self.particles(inner, required, repeated, out);
                }
                Term::Choice(inner) => {
                    self.particles(inner, required && inner.len() == 1, repeated, out);
                }
                Term::GroupRef(name) => {
                    self.nodes += 1;
                    if let Some(inner) =
                        self.model.groups.get(name).filter(|_| self.nodes < NODES_MAX)
                    {
                        self.particles(&inner.clone(), required, repeated, out);
                    }
                }
                Term::Any(_) => {}
            }
        }
    }

    fn property(
        &mut self,
        element: &ElementDecl,
        required: bool,
        repeated: bool,
        out: &mut Properties,
    ) {
        self.nodes += 1;
        let name = element.name.local.to_string();
        let schema = self.element(element);
        // The same name twice in one model is a list, too.
        let repeated = repeated || out.map.contains_key(&name);
        let schema = if repeated { json!({"type": "array", "items": schema}) } else { schema };
        if required && !out.required.contains(&Json::String(name.clone())) {
            out.required.push(Json::String(name.clone()));
        }
        out.map.insert(name, schema);
    }

    fn element(&mut self, element: &ElementDecl) -> Json {
        let outline = self.model.outline(&element.kind);
        let beyond = self.above.contains(&element.name)
            || self.above.len() >= DEPTH_MAX
            || self.nodes >= NODES_MAX;
        let mut schema = match &outline.text {
            Some(value) if outline.attributes.is_empty() => text(value),
            None if outline.is_text() && outline.attributes.is_empty() => json!({"type": "string"}),
            _ if beyond => json!({"type": "object"}),
            _ => {
                self.above.push(element.name.clone());
                let schema = self.object(&outline);
                self.above.pop();
                schema
            }
        };
        let doc = element.notes.doc.clone().or(outline.notes.doc);
        describe(&mut schema, doc.as_deref());
        let fixed = typed(&schema, element.fixed.as_deref());
        put(&mut schema, "const", fixed);
        let default = typed(&schema, element.default.as_deref());
        put(&mut schema, "default", default);
        schema
    }
}

fn describe(schema: &mut Json, doc: Option<&str>) {
    put(schema, "description", doc.map(|doc| Json::String(doc.to_owned())));
}

/// Sets a key that is not there yet.
fn put(schema: &mut Json, key: &str, value: Option<Json>) {
    if let (Some(object), Some(value)) = (schema.as_object_mut(), value) {
        object.entry(key).or_insert(value);
    }
}

/// A value written in a schema, as what its own JSON Schema says it is.
fn typed(schema: &Json, text: Option<&str>) -> Option<Json> {
    let text = text?;
    let plain =
        matches!(schema.get("type").and_then(Json::as_str), Some("boolean" | "integer" | "number"));
    let value = if plain { serde_json::from_str(text.trim()).ok() } else { None };
    Some(value.unwrap_or_else(|| Json::String(text.to_owned())))
}

/// A simple type. Numbers and booleans are JSON's own; everything else is a string.
fn text(value: &Value) -> Json {
    if let Some(item) = &value.list_of {
        return json!({"type": "array", "items": text(item)});
    }
    let choices: Vec<Json> = value.choices().into_iter().map(|c| Json::String(c.value)).collect();
    if !choices.is_empty() {
        return json!({"type": "string", "enum": choices});
    }
    let mut schema = match value.builtin.as_str() {
        "boolean" => return json!({"type": "boolean"}),
        "decimal" | "float" | "double" => json!({"type": "number"}),
        "int" | "integer" | "long" | "short" | "byte" => json!({"type": "integer"}),
        "positiveInteger" => json!({"type": "integer", "minimum": 1}),
        "nonNegativeInteger" | "unsignedInt" | "unsignedLong" | "unsignedShort"
        | "unsignedByte" => json!({"type": "integer", "minimum": 0}),
        "negativeInteger" => json!({"type": "integer", "maximum": -1}),
        "nonPositiveInteger" => json!({"type": "integer", "maximum": 0}),
        _ => return string(value),
    };
    let facets = &value.facets;
    let bounds = [
        ("minimum", &facets.min_inclusive),
        ("maximum", &facets.max_inclusive),
        ("exclusiveMinimum", &facets.min_exclusive),
        ("exclusiveMaximum", &facets.max_exclusive),
    ];
    for (key, bound) in bounds {
        let number =
            bound.as_ref().and_then(|b| serde_json::from_str::<serde_json::Number>(b.trim()).ok());
        if let (Some(object), Some(number)) = (schema.as_object_mut(), number) {
            object.insert(key.to_owned(), Json::Number(number));
        }
    }
    schema
}

fn string(value: &Value) -> Json {
    let mut schema = json!({"type": "string"});
    let facets = &value.facets;
    put(&mut schema, "minLength", facets.length.or(facets.min_length).map(Json::from));
    put(&mut schema, "maxLength", facets.length.or(facets.max_length).map(Json::from));
    let format = match value.builtin.as_str() {
        "date" => Some("date"),
        "dateTime" => Some("date-time"),
        "duration" => Some("duration"),
        "anyURI" => Some("uri-reference"),
        _ => None,
    };
    put(&mut schema, "format", format.map(Json::from));
    if let [one] = value.pattern_steps.as_slice() {
        // Patterns of the schema language match the whole text.
        put(&mut schema, "pattern", Some(Json::String(format!("^(?:{})$", one.join("|")))));
    }
    schema
}
