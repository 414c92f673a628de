//! The JSON Schema of a payload, for native tool calls.

use serde_json::{Map, Value as Json, json};

use super::element_plan::{ChildProperty, ElementPlan, PlanContent};
use super::value::{JsonType, sort};
use crate::ids::PayloadName;
use crate::schema::model::{ElementDecl, SchemaModel};
use crate::schema::outline::{ElementOutline, SimpleTypeOutline};
use crate::xml::shape::QName;

const DEPTH_MAX: usize = 8;
const NODES_MAX: usize = 2_000;

/// Returns the JSON Schema for the arguments of a payload. An unknown payload name gets a schema
/// that permits every object.
pub fn payload(model: &SchemaModel, name: &PayloadName) -> Json {
    let Some(element) = model.element(name) else { return json!({"type": "object"}) };
    let mut build = SchemaBuilder { model, above: vec![element.name.clone()], nodes: 0 };
    let (plan, outline) = ElementPlan::of(model, element);
    let mut schema = build.object(&plan);
    describe(&mut schema, doc_of(element, &outline).as_deref());
    schema
}

fn doc_of(element: &ElementDecl, outline: &ElementOutline) -> Option<String> {
    element.notes.doc.clone().or_else(|| outline.notes.doc.clone())
}

struct SchemaBuilder<'a> {
    model: &'a SchemaModel,
    above: Vec<QName>,
    nodes: usize,
}

impl SchemaBuilder<'_> {
    fn object(&mut self, plan: &ElementPlan) -> Json {
        let mut properties = Map::new();
        let mut required: Vec<Json> = Vec::new();
        if let PlanContent::Keyed { slots, .. } = &plan.content {
            for slot in slots {
                let schema = self.slot(slot);
                let many = slot.many.then(|| json!({"type": "array", "items": schema}));
                properties.insert(slot.key.clone(), many.unwrap_or(schema));
                if slot.required {
                    required.push(Json::String(slot.key.clone()));
                }
            }
        }

        for (key, attribute) in &plan.attributes {
            let mut schema = text(&attribute.value);
            describe(&mut schema, attribute.notes.doc.as_deref());
            let fixed = typed(&schema, attribute.fixed.as_deref());
            put(&mut schema, "const", fixed);
            let default = typed(&schema, attribute.default.as_deref());
            put(&mut schema, "default", default);
            if attribute.required {
                required.push(Json::String(key.clone()));
            }
            properties.insert(key.clone(), schema);
        }

        if let Some((key, schema, needed)) = self.content(&plan.content) {
            if needed {
                required.push(Json::String(key.clone()));
            }
            properties.insert(key, schema);
        }

        let mut object = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            put(&mut object, "required", Some(Json::Array(required)));
        }

        put(&mut object, "additionalProperties", Some(Json::Bool(false)));
        object
    }

    /// The property for the content of an element: its name, its schema, and whether it is
    /// required.
    fn content(&mut self, content: &PlanContent) -> Option<(String, Json, bool)> {
        match content {
            PlanContent::Text { key, value } => Some((key.clone(), text(value), true)),
            PlanContent::Markup { key } => Some((key.clone(), markup(), true)),
            PlanContent::Listed { key, slots, required } => {
                let children: Map<String, Json> =
                    slots.iter().map(|slot| (slot.key.clone(), self.slot(slot))).collect();

                let item = json!({
                    "type": "object",
                    "properties": children,
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": false,
                });
                let list = json!({
                    "type": "array",
                    "description": "in order, each with exactly one property",
                    "items": item,
                });

                Some((key.clone(), list, *required))
            }
            PlanContent::Nothing | PlanContent::Keyed { .. } | PlanContent::Abstract => None,
        }
    }

    fn slot(&mut self, slot: &ChildProperty) -> Json {
        self.nodes += 1;
        let element = &slot.element;
        let (plan, outline) = ElementPlan::of(self.model, element);
        let beyond = self.above.contains(&element.name)
            || self.above.len() >= DEPTH_MAX
            || self.nodes >= NODES_MAX;
        let mut schema = match &plan.content {
            PlanContent::Text { value, .. } if plan.is_bare() => text(value),
            PlanContent::Markup { .. } if plan.is_bare() => markup(),
            _ if beyond => json!({"type": "object"}),
            _ => {
                self.above.push(element.name.clone());
                let schema = self.object(&plan);
                self.above.pop();
                schema
            }
        };

        describe(&mut schema, doc_of(element, &outline).as_deref());
        let fixed = typed(&schema, element.fixed.as_deref());
        put(&mut schema, "const", fixed);
        let default = typed(&schema, element.default.as_deref());
        put(&mut schema, "default", default);
        schema
    }
}

fn markup() -> Json {
    json!({"type": "string", "description": "well-formed XML"})
}

fn describe(schema: &mut Json, doc: Option<&str>) {
    put(schema, "description", doc.map(|doc| Json::String(doc.to_owned())));
}

/// Sets a key of the schema unless the key is already present.
fn put(schema: &mut Json, key: &str, value: Option<Json>) {
    if let (Some(object), Some(value)) = (schema.as_object_mut(), value) {
        object.entry(key).or_insert(value);
    }
}

/// Converts a default or enumerated value to the JSON type of its schema.
fn typed(schema: &Json, text: Option<&str>) -> Option<Json> {
    let text = text?;
    let plain =
        matches!(schema.get("type").and_then(Json::as_str), Some("boolean" | "integer" | "number"));
    let value = if plain { serde_json::from_str(text.trim()).ok() } else { None };
    Some(value.unwrap_or_else(|| Json::String(text.to_owned())))
}

/// The JSON Schema of a simple type. Numbers and booleans are native JSON. All other values are
/// strings.
fn text(value: &SimpleTypeOutline) -> Json {
    if let Some(item) = &value.list_of {
        return json!({"type": "array", "items": text(item)});
    }

    let choices: Vec<Json> = value.choices().into_iter().map(|c| Json::String(c.value)).collect();
    if !choices.is_empty() {
        return json!({"type": "string", "enum": choices});
    }

    let mut schema = match (sort(value), value.builtin.as_str()) {
        (JsonType::Text, _) => return string(value),
        (JsonType::Flag, _) => return json!({"type": "boolean"}),
        (JsonType::Number, _) => json!({"type": "number"}),
        (JsonType::Integer, "positiveInteger") => json!({"type": "integer", "minimum": 1}),
        (JsonType::Integer, "negativeInteger") => json!({"type": "integer", "maximum": -1}),
        (JsonType::Integer, "nonPositiveInteger") => json!({"type": "integer", "maximum": 0}),
        (JsonType::Integer, builtin)
            if builtin.starts_with("unsigned") || builtin.starts_with("non") =>
        {
            json!({"type": "integer", "minimum": 0})
        }
        (JsonType::Integer, _) => json!({"type": "integer"}),
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

fn string(value: &SimpleTypeOutline) -> Json {
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
        // A pattern in XSD matches the whole text. In JSON Schema, only anchors do that.
        put(&mut schema, "pattern", Some(Json::String(format!("^(?:{})$", one.join("|")))));
    }

    schema
}
