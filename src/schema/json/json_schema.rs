//! The JSON Schema of a payload, for native tool calls.

use serde_json::{Map, Number, Value as Json, json};

use super::bounded_schema;
use super::element_plan::{ChildProperty, ElementPlan, ElementPlans, PlanContent, PlannedType};
use super::pattern;
use super::value::{JsonType, sort};
use crate::ids::PayloadName;
use crate::schema::bounded_outline;
use crate::schema::describe::DescriptionForm;
use crate::schema::model::{ElementDecl, SchemaModel};
use crate::schema::outline::{ElementOutline, SimpleTypeOutline};
use crate::schema::undescribed_parts::UndescribedParts;
use crate::xml::shape::QName;

const DEPTH_MAX: usize = 8;
const NODES_MAX: usize = 2_000;

/// Temporary keyword for the XML name of a property, used while the JSON Schema is built.
/// `describe_names` finally moves the name to the description. The keyword is longer than
/// `description`, so a schema that is short enough stays short enough.
pub(super) const XML_NAME: &str = "xml-name-of-it";

/// The JSON Schema keyword `$comment`. In a generated schema, it states that parts are left out.
pub const COMMENT: &str = "$comment";

/// The form of a generated JSON Schema. A recorded prompt is rebuilt with the form that belongs to
/// its version of the prompt renderer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JsonSchemaForm {
    /// Before version 8: the schema has no maximum length.
    Early,
    /// Versions 8 to 13: no description contains the XML name of its property.
    WithoutXmlNames,
    /// Version 14: if a property does not have its XML name, its description begins with this name.
    WithXmlNames,
    /// Since version 15:
    /// - A default or fixed value has the JSON type of its property. If JSON cannot write a fixed
    ///   number or boolean with the text of the XSD, the property is a string. The property for the
    ///   text of an element states these values, too.
    /// - The children of a content such as `(a,(a,b)*)` are a list, which keeps their order.
    /// - The description of a string of XML describes children in named groups like all others.
    Current,
}

impl JsonSchemaForm {
    /// Returns the form of the outline in the description of a string of XML.
    fn of_outline(self) -> DescriptionForm {
        if self == Self::Current {
            DescriptionForm::Current
        } else {
            DescriptionForm::GroupsAsLevels
        }
    }
}

/// Returns the JSON Schema for the arguments of a tool call that sends the payload `name`. A schema
/// that would be too long leaves out deeper levels, and states so in `$comment`. A schema of the
/// form [`JsonSchemaForm::Early`] has no maximum length. The schema for an unknown payload name
/// permits every object.
pub fn payload(model: &SchemaModel, name: &PayloadName, form: JsonSchemaForm) -> Json {
    if form == JsonSchemaForm::Early {
        return early_payload(model, name);
    }

    let Some(element) = model.element(name) else { return json!({"type": "object"}) };
    let mut plans = ElementPlans::new(model, form);
    let mut best = None;
    for depth in 1..=DEPTH_MAX {
        let mut build = SchemaBuilder::new(&mut plans, element, depth, form);
        let schema = build.payload(element);
        let left_out = build.left_out;
        let fits = bounded_schema::fits(&schema);
        if !fits && best.is_some() {
            break;
        }
        best = Some((schema, left_out));
        if !fits || left_out == 0 {
            break;
        }
    }

    let (mut schema, left_out) = best.unwrap_or_else(|| (json!({"type": "object"}), 0));
    let planned = plans.get(element);
    let content = planned.plan.content_key();
    let removed = bounded_schema::shorten(&mut schema, content);
    if left_out > 0 || removed > 0 {
        let comment = format!(
            "The definition leaves out {} parts. The schema checks them all the same, and a refusal \
             names what it expects. To narrow the definition, let the config accept an element with \
             fewer parts.",
            left_out + removed
        );
        put(&mut schema, COMMENT, Some(Json::String(comment)));
    }

    if let PlanContent::Markup { key, .. } = &planned.plan.content
        && !planned.outline.content.is_empty()
        && let Some(content) = schema.pointer_mut(&format!("/properties/{key}"))
    {
        let outline = bounded_outline::outline(model, name, form.of_outline()).to_string();
        let (_, parameters) = outline.split_once('\n').unwrap_or_default();
        *content = markup(&format!(" inside <{}>, by this outline:\n{parameters}", name.local));
    }

    describe_names(&mut schema);
    let mut doc = doc_of(element, &planned.outline);
    doc.iter_mut().for_each(bounded_schema::shorten_doc);
    add_description(&mut schema, doc.as_deref());
    schema
}

fn early_payload(model: &SchemaModel, name: &PayloadName) -> Json {
    let Some(element) = model.element(name) else { return json!({"type": "object"}) };
    let form = JsonSchemaForm::Early;
    let mut plans = ElementPlans::new(model, form);
    let mut schema = SchemaBuilder::new(&mut plans, element, DEPTH_MAX, form).payload(element);
    let doc = doc_of(element, &plans.get(element).outline);
    add_description(&mut schema, doc.as_deref());
    schema
}

fn doc_of(element: &ElementDecl, outline: &ElementOutline) -> Option<String> {
    element.notes.doc.clone().or_else(|| outline.notes.doc.clone())
}

struct SchemaBuilder<'p, 'm> {
    plans: &'p mut ElementPlans<'m>,
    above: Vec<QName>,
    nodes: usize,
    /// Maximum number of levels of child elements that the schema describes.
    depth: usize,
    /// Number of elements whose attributes and children the schema does not describe.
    left_out: usize,
    form: JsonSchemaForm,
}

impl<'p, 'm> SchemaBuilder<'p, 'm> {
    fn new(
        plans: &'p mut ElementPlans<'m>,
        element: &ElementDecl,
        depth: usize,
        form: JsonSchemaForm,
    ) -> Self {
        let above = vec![element.name.clone()];
        Self { plans, above, nodes: 0, depth, left_out: 0, form }
    }

    fn payload(&mut self, element: &ElementDecl) -> Json {
        let planned = self.plans.get(element);
        self.object(element, &planned.plan)
    }

    fn object(&mut self, element: &ElementDecl, plan: &ElementPlan) -> Json {
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
            add_description(&mut schema, attribute.notes.doc.as_deref());
            self.add_values(&mut schema, attribute.fixed.as_deref(), attribute.default.as_deref());
            self.add_xml_name(&mut schema, key, &attribute.name.local);
            if attribute.required {
                required.push(Json::String(key.clone()));
            }
            properties.insert(key.clone(), schema);
        }

        if let Some((key, schema, needed)) = self.content(element, &plan.content) {
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

    /// Returns the property for the whole content of an element: its name, its schema, and whether
    /// it is required. Returns `None` if there is no such property.
    fn content(
        &mut self,
        element: &ElementDecl,
        content: &PlanContent,
    ) -> Option<(String, Json, bool)> {
        match content {
            PlanContent::Text { key, value } => {
                let mut schema = text(value);
                if self.form >= JsonSchemaForm::Current {
                    let ElementDecl { fixed, default, .. } = element;
                    self.add_values(&mut schema, fixed.as_deref(), default.as_deref());
                }
                Some((key.clone(), schema, true))
            }
            PlanContent::Markup { key, .. } => Some((key.clone(), markup(""), true)),
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

    /// Returns a shorter schema for an element. The shorter schema accepts every JSON value that
    /// the full schema accepts. For an element with children, the schema only lists the names of
    /// attributes and children. For any other element, the schema leaves out the optional
    /// attributes.
    fn undescribed(&mut self, element: &ElementDecl, planned: &PlannedType) -> Json {
        let plan = &planned.plan;
        let is_leaf = matches!(plan.content, PlanContent::Text { .. } | PlanContent::Nothing);
        if is_leaf && plan.attributes.iter().all(|(_, attribute)| attribute.required) {
            return self.object(element, plan);
        }

        self.left_out += 1;
        let form = self.form;
        let required = plan.attributes.iter().filter(|(_, attribute)| attribute.required);
        let required: Vec<_> = required.cloned().collect();
        let content = match &plan.content {
            PlanContent::Text { key, value } => {
                PlanContent::Text { key: key.clone(), value: value.clone() }
            }
            PlanContent::Nothing => PlanContent::Nothing,
            content => {
                let schema =
                    planned.undescribed.get_or_init(|| undescribed_children(plan, content, form));
                return schema.clone();
            }
        };

        let plan = ElementPlan { attributes: required, content };
        let mut schema = self.object(element, &plan);
        if let Some(object) = schema.as_object_mut() {
            object.shift_remove("additionalProperties");
        }
        schema
    }

    fn slot(&mut self, slot: &ChildProperty) -> Json {
        self.nodes += 1;
        let element = &slot.element;
        let planned = self.plans.get(element);
        let PlannedType { plan, outline, parts, .. } = &*planned;
        let is_early = self.form == JsonSchemaForm::Early;
        let is_too_deep = self.above.len() >= self.depth || self.nodes >= NODES_MAX;
        let mut schema = match &plan.content {
            PlanContent::Text { value, .. } if plan.is_bare() => text(value),
            PlanContent::Markup { .. } if plan.is_bare() && is_early => markup(""),
            PlanContent::Markup { .. } if plan.is_bare() => markup_with(parts),
            _ if self.above.contains(&element.name) => json!({"type": "object"}),
            _ if is_too_deep && is_early => json!({"type": "object"}),
            _ if is_too_deep => self.undescribed(element, &planned),
            _ => {
                self.above.push(element.name.clone());
                let schema = self.object(element, plan);
                self.above.pop();
                schema
            }
        };

        add_description(&mut schema, doc_of(element, outline).as_deref());
        // The text of an element with attributes is one of its properties.
        if schema.get("type").and_then(Json::as_str) != Some("object") {
            self.add_values(&mut schema, element.fixed.as_deref(), element.default.as_deref());
        }
        self.add_xml_name(&mut schema, &slot.key, &element.name.local);
        schema
    }

    /// Adds the fixed value and the default of a property to its schema.
    fn add_values(&self, schema: &mut Json, fixed: Option<&str>, default: Option<&str>) {
        if self.form < JsonSchemaForm::Current {
            let fixed = fixed.map(|text| early_typed(schema, text));
            put(schema, "const", fixed);
            let default = default.map(|text| early_typed(schema, text));
            put(schema, "default", default);
            return;
        }

        if let Some(text) = fixed {
            put_fixed(schema, text);
        }
        let default = default.and_then(|text| typed(schema, text));
        put(schema, "default", default);
    }

    /// Adds the XML name of the property `key`, if the property does not have this name. Until
    /// [`describe_names`] moves the XML name to the description, a separate keyword holds it. So
    /// shortening the description does not remove the XML name.
    fn add_xml_name(&self, schema: &mut Json, key: &str, local: &str) {
        if self.form >= JsonSchemaForm::WithXmlNames && !has_xml_name(key, local) {
            put(schema, XML_NAME, Some(Json::String(local.to_owned())));
        }
    }
}

/// Whether the property name `key` is `local` or `attribute.` and `local`. `local` is the XML name
/// of the property's element or attribute.
fn has_xml_name(key: &str, local: &str) -> bool {
    key.strip_prefix("attribute.").unwrap_or(key) == local
}

/// Moves each XML name in a schema to the beginning of the description.
fn describe_names(schema: &mut Json) {
    let Some(object) = schema.as_object_mut() else { return };
    // A property of this name would be a schema instead of a text.
    if let Some(local) = object.get(XML_NAME).and_then(Json::as_str).map(str::to_owned) {
        object.shift_remove(XML_NAME);
        let about = object.get("description").and_then(Json::as_str);
        let about = about.map_or_else(|| local.clone(), |about| format!("{local}: {about}"));
        object.insert("description".to_owned(), Json::String(about));
    }
    object.values_mut().for_each(describe_names);
}

/// Returns a schema for an element with children. The schema lists only names: those of the
/// attributes and children. If the content is a string of XML, it lists only the names of the
/// attributes.
fn undescribed_children(plan: &ElementPlan, content: &PlanContent, form: JsonSchemaForm) -> Json {
    let named = |key: &str, local: &str| {
        if form >= JsonSchemaForm::WithXmlNames && !has_xml_name(key, local) {
            format!("{key} ({local})")
        } else {
            key.to_owned()
        }
    };
    let of_slot = |slot: &ChildProperty| {
        let list = if slot.many { " (a list)" } else { "" };
        format!("{}{list}", named(&slot.key, &slot.element.name.local))
    };
    let in_prose = |names: UndescribedParts| names.in_prose().unwrap_or_default();
    let attributes = || {
        let attributes = plan.attributes.iter();
        attributes.map(|(key, attribute)| named(key, &attribute.name.local))
    };
    match content {
        PlanContent::Keyed { slots, .. } => {
            let mut slots: Vec<&ChildProperty> = slots.iter().collect();
            slots.sort_by_key(|slot| !slot.required);
            let names = attributes().chain(slots.into_iter().map(of_slot));
            json!({"type": "object", "description": in_prose(UndescribedParts::of(names))})
        }
        PlanContent::Listed { key, slots, .. } => {
            let names = slots.iter().map(|slot| named(&slot.key, &slot.element.name.local));
            let names = in_prose(UndescribedParts::of(names));
            let about = format!("in order, each an object with exactly one property, {names}");
            let content = json!({"type": "array", "description": about});
            with_content(key, content, &in_prose(UndescribedParts::of(attributes())))
        }
        PlanContent::Markup { key, .. } => {
            with_content(key, markup(""), &in_prose(UndescribedParts::of(attributes())))
        }
        _ => json!({"type": "object"}),
    }
}

/// Returns the JSON Schema of an object whose property `key` has the schema `content`. `about` is
/// the description of the object, and lists the names of the object's other properties.
fn with_content(key: &str, content: Json, about: &str) -> Json {
    let mut schema = json!({"type": "object", "properties": {key: content}});
    add_description(&mut schema, Some(about).filter(|about| !about.is_empty()));
    schema
}

/// Returns the JSON Schema of a string that contains XML. The schema's description lists the
/// elements and attributes in `parts`.
fn markup_with(parts: &UndescribedParts) -> Json {
    markup(&parts.in_prose().map(|parts| format!(" {parts}")).unwrap_or_default())
}

/// Returns the JSON Schema of a string that contains XML. `about` is the end of the schema's
/// description.
fn markup(about: &str) -> Json {
    json!({"type": "string", "description": format!("well-formed XML{about}")})
}

fn add_description(schema: &mut Json, doc: Option<&str>) {
    put(schema, "description", doc.map(|doc| Json::String(doc.to_owned())));
}

/// Adds the keyword `key` to the schema, if `value` is given and the schema lacks the keyword.
pub(super) fn put(schema: &mut Json, key: &str, value: Option<Json>) {
    if let (Some(object), Some(value)) = (schema.as_object_mut(), value) {
        object.entry(key).or_insert(value);
    }
}

/// Adds the fixed value `text` to the schema of its property. If JSON writes this value in another
/// way than `text`, the property becomes a string, or a list of strings: an element is only valid
/// with the same text as in the XSD.
fn put_fixed(schema: &mut Json, text: &str) {
    let is_same = |json: &Json, text: &str| match json {
        Json::String(own) => own == text,
        json => {
            let written = json.to_string();
            written == text.trim()
        }
    };
    let items = || text.split_ascii_whitespace();
    let value = typed(schema, text).filter(|value| match value {
        Json::Array(own) => own.iter().zip(items()).all(|(own, item)| is_same(own, item)),
        value => is_same(value, text),
    });
    if value.is_some() {
        return put(schema, "const", value);
    }

    if schema.get("type").and_then(Json::as_str) == Some("array") {
        put(schema, "const", Some(items().map(Json::from).collect()));
        if let Some(kind) = schema.get_mut("items") {
            *kind = json!({"type": "string"});
        }
    } else {
        put(schema, "const", Some(Json::from(text.trim())));
        if let Some(kind) = schema.get_mut("type") {
            *kind = Json::from("string");
        }
    }
}

/// Converts a default or fixed value from its text in XSD to the JSON type in `schema`. The items
/// of a list are separated by white space. Returns `None` if the JSON type has no such value, for
/// example for the number `INF`.
fn typed(schema: &Json, text: &str) -> Option<Json> {
    let of_item = |part| schema.get("items").and_then(|item| typed(item, part));
    match schema.get("type").and_then(Json::as_str) {
        Some("array") => {
            let items = text.split_ascii_whitespace().map(of_item);
            items.collect::<Option<Vec<_>>>().map(Json::Array)
        }
        Some("boolean") => match text.trim() {
            "true" | "1" => Some(Json::Bool(true)),
            "false" | "0" => Some(Json::Bool(false)),
            _ => None,
        },
        Some("integer") => whole_number(text.trim()),
        Some("number") => {
            let number = text.trim();
            let fraction = || number.parse::<f64>().ok().and_then(Number::from_f64);
            whole_number(number).or_else(|| fraction().map(Json::Number))
        }
        _ => Some(Json::String(text.to_owned())),
    }
}

/// Converts an integer from its text in XSD, which may have a plus sign and leading zeros.
fn whole_number(text: &str) -> Option<Json> {
    let negative = || text.parse::<i64>().ok().map(Json::from);
    text.parse::<u64>().ok().map(Json::from).or_else(negative)
}

/// Converts a default or fixed value as forms before [`JsonSchemaForm::Current`] do. A number or
/// boolean that JSON writes in another way than XSD becomes a string or another type.
fn early_typed(schema: &Json, text: &str) -> Json {
    let kind = schema.get("type").and_then(Json::as_str);
    if kind == Some("array") {
        let of_item = |part| schema.get("items").map(|item| early_typed(item, part));
        return Json::Array(text.split_ascii_whitespace().filter_map(of_item).collect());
    }

    let plain = matches!(kind, Some("boolean" | "integer" | "number"));
    let value = if plain { serde_json::from_str(text.trim()).ok() } else { None };
    value.unwrap_or_else(|| Json::String(text.to_owned()))
}

/// Returns the JSON Schema of a simple type. A list becomes an array. A number or boolean keeps its
/// type, unless the type enumerates its values. Everything else becomes a string.
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

/// Returns the number of characters of text for one unit of a value's length. In XSD, the length of
/// a binary value is its number of bytes, and each byte may take several characters. The length of
/// a string is its number of characters. Returns `None` if the number of characters per unit
/// varies.
fn characters_per_unit(builtin: &str) -> Option<u64> {
    match builtin {
        "hexBinary" => Some(2),
        "base64Binary" => None,
        _ => Some(1),
    }
}

fn string(value: &SimpleTypeOutline) -> Json {
    let mut schema = json!({"type": "string"});
    let facets = &value.facets;
    if let Some(size) = characters_per_unit(&value.builtin) {
        let least = facets.length.or(facets.min_length).and_then(|n| n.checked_mul(size));
        let most = facets.length.or(facets.max_length).and_then(|n| n.checked_mul(size));
        put(&mut schema, "minLength", least.map(Json::from));
        put(&mut schema, "maxLength", most.map(Json::from));
    }
    let format = match value.builtin.as_str() {
        "date" => Some("date"),
        "dateTime" => Some("date-time"),
        "duration" => Some("duration"),
        "anyURI" => Some("uri-reference"),
        _ => None,
    };

    put(&mut schema, "format", format.map(Json::from));
    if let [one] = value.pattern_steps.as_slice() {
        let converted: Option<Vec<_>> =
            one.iter().map(|pattern| pattern::of_xsd(pattern)).collect();
        // A pattern in XSD matches the whole text. In JSON Schema, only anchors do that.
        let anchored = converted.map(|patterns| format!("^(?:{})$", patterns.join("|")));
        put(&mut schema, "pattern", anchored.map(Json::String));
    }

    schema
}
