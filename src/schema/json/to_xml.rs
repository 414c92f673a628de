//! Converts the arguments of a native tool call to a payload.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::element_plan::{ChildProperty, ElementPlan, ElementPlans, PlanContent};
use super::json_schema::JsonSchemaForm;
use super::raw_json::RawJson;
use super::value;
use crate::ids::PayloadName;
use crate::limits;
use crate::schema::model::{ElementDecl, SchemaModel};
use crate::xml::element::{Element, Node, Verbatim};
use crate::xml::findings::{Finding, TextLocation, offset_in};
use crate::xml::scan::scan;

/// Prefix for the name of an element with a namespace. Used if the content of the element is a
/// string of XML in which names without a prefix have no namespace. A default namespace would also
/// apply to these names.
const PREFIX: &str = "p";

/// Converts the arguments of a native tool call to a payload as canonical XML. The caller must
/// still validate the payload.
///
/// # Errors
///
/// Returns at least one finding, and at most [`limits::FINDINGS_MAX`]. Each reports a part of
/// `arguments` that is not JSON or does not fit the JSON Schema.
pub fn payload(
    model: &SchemaModel,
    name: &PayloadName,
    arguments: &str,
) -> Result<String, Vec<Finding>> {
    let Some(declared) = model.element(name) else {
        let message = format!("there is no schema for `{name}`");
        return Err(vec![Finding::new("json-unknown", TextLocation::default(), message)]);
    };

    let raw: &RawValue = match serde_json::from_str(arguments) {
        Ok(raw) => raw,
        Err(error) => return Err(vec![unreadable(arguments, &error)]),
    };

    let plans = ElementPlans::new(model, JsonSchemaForm::Current);
    let mut writer = PayloadBuilder { plans, text: arguments, findings: Vec::new(), depth: 0 };
    let planned = writer.plans.get(declared);
    let element = writer.object(declared, &planned.plan, raw, "$");
    if writer.findings.is_empty() { Ok(element.to_xml()) } else { Err(writer.findings) }
}

fn unreadable(text: &str, error: &serde_json::Error) -> Finding {
    let line = u32::try_from(error.line()).unwrap_or(u32::MAX).max(1);
    let column = u32::try_from(error.column()).unwrap_or(u32::MAX).max(1);
    let offset = if error.is_eof() { text.len() } else { 0 };
    let place = TextLocation { line, column, offset, path: None };
    let reason = error.to_string();
    let reason = reason.split(" at line ").next().unwrap_or_default();
    Finding::new("json-malformed", place, format!("the arguments are no JSON: {reason}"))
}

struct PayloadBuilder<'a> {
    plans: ElementPlans<'a>,
    text: &'a str,
    findings: Vec<Finding>,
    depth: usize,
}

impl<'a> PayloadBuilder<'a> {
    fn report(&mut self, code: &str, raw: &RawValue, path: &str, message: &str) {
        if self.findings.len() < limits::FINDINGS_MAX {
            let offset = offset_in(self.text, raw.get());
            let mut place = TextLocation::at(self.text.as_bytes(), offset);
            place.path = Some(path.to_owned());
            self.findings.push(Finding::new(code, place, format!("`{path}` {message}")));
        }
    }

    /// Reports a value of the wrong type. If the value is a list with wrong items, reports only the
    /// first of these items.
    fn wrong(&mut self, raw: &RawValue, path: &str, wrong: &value::WrongValue) {
        let path = match wrong.item {
            Some(index) => format!("{path}[{index}]"),
            None => path.to_owned(),
        };
        self.report("json-type", raw, &path, &wrong.message);
    }

    fn read(&mut self, raw: &'a RawValue, path: &str) -> Option<RawJson<'a>> {
        match RawJson::read(raw) {
            Ok(json) => Some(json),
            Err(error) => {
                self.report("json-malformed", raw, path, &format!("cannot be read: {error}"));
                None
            }
        }
    }

    fn element(&mut self, declared: &ElementDecl, raw: &'a RawValue, path: &str) -> Element {
        let planned = self.plans.get(declared);
        let plan = &planned.plan;
        let is_plain = plan.is_text_with_optional_attributes() && !raw.get().starts_with('{');
        if !plan.is_bare() && !is_plain {
            return self.object(declared, plan, raw, path);
        }

        let mut element = Element::new(declared.name.clone());
        self.fill(&mut element, &plan.content, raw, path);
        element
    }

    /// Sets the content of an element from a JSON value that holds the whole content: a text, XML
    /// as a string, or a list of ordered children.
    fn fill(
        &mut self,
        element: &mut Element,
        content: &PlanContent,
        raw: &'a RawValue,
        path: &str,
    ) {
        let Some(json) = self.read(raw, path) else { return };
        match content {
            PlanContent::Text { value, .. } => match value::to_text(value, &json) {
                Ok(text) => element.content = vec![Node::Text(text)],
                Err(wrong) => self.wrong(raw, path, &wrong),
            },
            PlanContent::Listed { slots, .. } => {
                element.content = self.listed(slots, &json, raw, path);
            }
            PlanContent::Markup { unqualified, .. } => match json {
                RawJson::Text(xml) => self.markup(element, xml, *unqualified, raw, path),
                other => {
                    let message = format!("is {}; XML in a string is expected", other.kind());
                    self.report("json-type", raw, path, &message);
                }
            },
            PlanContent::Nothing | PlanContent::Keyed { .. } | PlanContent::Abstract => {}
        }
    }

    /// Sets the content of an element to the string `xml`. If `unqualified` is set, names without a
    /// prefix have no namespace in this string. In this case, an element with a namespace gets a
    /// prefix.
    fn markup(
        &mut self,
        element: &mut Element,
        xml: String,
        unqualified: bool,
        raw: &RawValue,
        path: &str,
    ) {
        if let Err(wrong) = scan(format!("<content>{xml}</content>").as_bytes()) {
            self.report("json-markup", raw, path, &format!("is no well-formed XML: {wrong}"));
        }
        let namespace = element.name.namespace().to_owned();
        let has_prefix = unqualified && !namespace.is_empty();
        let prefix = if has_prefix { PREFIX } else { "" };
        let written = has_prefix.then(|| format!("{PREFIX}:{}", element.name.local));
        let bindings = vec![(prefix.to_owned(), namespace)];
        element.verbatim = Some(Box::new(Verbatim { xml, written, bindings }));
    }

    fn listed(
        &mut self,
        slots: &[ChildProperty],
        json: &RawJson<'a>,
        raw: &'a RawValue,
        path: &str,
    ) -> Vec<Node> {
        let mut children = Vec::new();
        let RawJson::List(items) = json else {
            let message = format!("is {}; an array is expected", json.kind());
            self.report("json-type", raw, path, &message);
            return children;
        };

        for (index, item) in items.iter().enumerate() {
            let at = format!("{path}[{index}]");
            let Some(json) = self.read(item, &at) else { continue };
            let RawJson::Object(members) = &json else {
                let message =
                    format!("is {}; an object with one property is expected", json.kind());
                self.report("json-type", item, &at, &message);
                continue;
            };
            let [(key, value)] = members.as_slice() else {
                let message = format!("has {} properties; exactly one is expected", members.len());
                self.report("json-type", item, &at, &message);
                continue;
            };
            let at = format!("{at}.{key}");
            match slots.iter().find(|slot| slot.key == *key) {
                Some(slot) => children.push(Node::Element(self.deeper(slot, value, &at))),
                None => self.unknown(slots.iter().map(|s| s.key.as_str()), key, value, &at),
            }
        }

        children
    }

    fn deeper(&mut self, slot: &ChildProperty, raw: &'a RawValue, path: &str) -> Element {
        if self.depth >= limits::XML_DEPTH_MAX {
            self.report("json-type", raw, path, "is nested deeper than a payload may be");
            return Element::new(slot.element.name.clone());
        }

        self.depth += 1;
        let element = self.element(&slot.element, raw, path);
        self.depth -= 1;
        element
    }

    fn object(
        &mut self,
        declared: &ElementDecl,
        plan: &ElementPlan,
        raw: &'a RawValue,
        path: &str,
    ) -> Element {
        let mut element = Element::new(declared.name.clone());
        if matches!(plan.content, PlanContent::Abstract) {
            self.report("json-type", raw, path, "needs a type chosen with xsi:type; JSON has none");
            return element;
        }

        let Some(json) = self.read(raw, path) else { return element };
        let RawJson::Object(members) = json else {
            let message = format!("is {}; an object is expected", json.kind());
            self.report("json-type", raw, path, &message);
            return element;
        };

        let mut seen: HashSet<&str> = HashSet::new();
        let mut children: Vec<(usize, Element)> = Vec::new();

        for (key, value) in &members {
            let at = format!("{path}.{key}");
            if seen.contains(key.as_str()) {
                self.report("json-duplicate", value, &at, "is given twice");
                continue;
            }
            // An optional value may be null.
            let is_optional = || plan.properties().contains(&(key.as_str(), false));
            if value.get() == "null" && is_optional() {
                continue;
            }
            seen.insert(key);
            self.member(plan, key, value, &at, &mut element, &mut children);
        }

        self.missing(plan, &seen, raw, path);
        if let PlanContent::Keyed { ordered, .. } = &plan.content {
            if *ordered {
                children.sort_by_key(|(slot, _)| *slot);
            }
            element.content = children.into_iter().map(|(_, child)| Node::Element(child)).collect();
        }

        element
    }

    /// Converts one property of a JSON object: to an attribute, to all child elements of one name,
    /// or to the content of the element.
    fn member(
        &mut self,
        plan: &ElementPlan,
        key: &str,
        raw: &'a RawValue,
        path: &str,
        element: &mut Element,
        children: &mut Vec<(usize, Element)>,
    ) {
        if let Some((_, attribute)) = plan.attributes.iter().find(|(known, _)| known == key) {
            let Some(json) = self.read(raw, path) else { return };
            match value::to_text(&attribute.value, &json) {
                Ok(text) => element.attributes.push((attribute.name.clone(), text)),
                Err(wrong) => self.wrong(raw, path, &wrong),
            }
            return;
        }

        match &plan.content {
            PlanContent::Text { key: known, .. }
            | PlanContent::Listed { key: known, .. }
            | PlanContent::Markup { key: known, .. }
                if known == key =>
            {
                self.fill(element, &plan.content, raw, path);
            }
            PlanContent::Keyed { slots, .. } => {
                match slots.iter().enumerate().find(|(_, slot)| slot.key == key) {
                    Some((at, slot)) => self.slot(at, slot, raw, path, children),
                    None => self.unknown(keys(plan), key, raw, path),
                }
            }
            _ => self.unknown(keys(plan), key, raw, path),
        }
    }

    fn slot(
        &mut self,
        at: usize,
        slot: &ChildProperty,
        raw: &'a RawValue,
        path: &str,
        children: &mut Vec<(usize, Element)>,
    ) {
        if !slot.many {
            children.push((at, self.deeper(slot, raw, path)));
            return;
        }

        match self.read(raw, path) {
            Some(RawJson::List(items)) => {
                for (index, item) in items.iter().enumerate() {
                    children.push((at, self.deeper(slot, item, &format!("{path}[{index}]"))));
                }
            }
            Some(other) => {
                let message = format!("is {}; an array is expected", other.kind());
                self.report("json-type", raw, path, &message);
            }
            None => {}
        }
    }

    fn missing(&mut self, plan: &ElementPlan, seen: &HashSet<&str>, raw: &RawValue, path: &str) {
        for (key, is_required) in plan.properties() {
            if is_required && !seen.contains(key) {
                let at = format!("{path}.{key}");
                self.report("json-missing", raw, &at, "is required and not there");
            }
        }
    }

    fn unknown<'k>(
        &mut self,
        known: impl Iterator<Item = &'k str>,
        key: &str,
        raw: &RawValue,
        path: &str,
    ) {
        let known: Vec<&str> = known.collect();
        let distance = |name: &&&str| strsim::osa_distance(name, key);
        // A name is similar to one of about its own length. Comparing long keys would take long.
        let similar = known.iter().filter(|name| name.len().abs_diff(key.len()) <= 8);
        let near = similar.min_by_key(distance).filter(|name| distance(name) <= 2);
        let message = match near {
            Some(near) => format!("is no parameter; did you mean `{near}`?"),
            None if known.is_empty() => "is no parameter; there are none".to_owned(),
            None => format!("is no parameter; there are {}", known.join(", ")),
        };

        self.report("json-unknown", raw, path, &message);
    }
}

/// Returns the names of all JSON properties of the element that `plan` describes.
fn keys(plan: &ElementPlan) -> impl Iterator<Item = &str> {
    plan.properties().into_iter().map(|(key, _)| key)
}
