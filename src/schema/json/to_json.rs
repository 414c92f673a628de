//! Converts a payload to the arguments of the native tool call that would produce the payload.

use serde_json::{Map, Value as Json};

use super::element_plan::{ChildProperty, ElementPlan, ElementPlans, PlanContent, named};
use super::json_schema::JsonSchemaForm;
use super::value;
use crate::ids::PayloadName;
use crate::limits;
use crate::schema::model::{ElementDecl, SchemaModel};
use crate::schema::xsd::XSI;
use crate::xml::element::{Element, Node};
use crate::xml::findings::{Finding, TextLocation};
use crate::xml::write;

/// Converts a valid payload to JSON that fits the JSON Schema of the given form.
///
/// # Errors
///
/// Returns a finding for each part that JSON cannot express, with the part's location in the XML.
pub fn payload(
    model: &SchemaModel,
    name: &PayloadName,
    text: &str,
    form: JsonSchemaForm,
) -> Result<Json, Vec<Finding>> {
    let failed =
        |message: String| Err(vec![Finding::new("json-gap", TextLocation::default(), message)]);
    let Some(declared) = model.element(name) else {
        return failed(format!("there is no schema for `{name}`"));
    };

    let node = Element::read_document(text).filter(|node| node.name == declared.name);
    let Some(node) = node else { return failed(format!("this is no `{name}`")) };
    let mut reader = JsonBuilder { plans: ElementPlans::new(model, form), findings: Vec::new() };
    let planned = reader.plans.get(declared);
    let json = reader.object(&planned.plan, &node, &format!("/{}", name.local));
    if reader.findings.is_empty() { Ok(json) } else { Err(reader.findings) }
}

struct JsonBuilder<'a> {
    plans: ElementPlans<'a>,
    findings: Vec<Finding>,
}

impl JsonBuilder<'_> {
    fn report(&mut self, path: &str, message: &str) {
        if self.findings.len() < limits::FINDINGS_MAX {
            let place = TextLocation { path: Some(path.to_owned()), ..TextLocation::default() };
            self.findings.push(Finding::new("json-gap", place, format!("`{path}` {message}")));
        }
    }

    fn element(&mut self, declared: &ElementDecl, node: &Element, path: &str) -> Json {
        let planned = self.plans.get(declared);
        let plan = &planned.plan;
        if !plan.is_bare() {
            return self.object(plan, node, path);
        }

        self.attributes(plan, node, path, &mut Map::new());
        match &plan.content {
            PlanContent::Text { value, .. } => self.text(value, node, path),
            content => markup(content, node),
        }
    }

    fn text(
        &mut self,
        value: &crate::schema::outline::SimpleTypeOutline,
        node: &Element,
        path: &str,
    ) -> Json {
        if node.children().next().is_some() {
            self.report(path, "holds an element where its schema has text");
        }
        value::to_json(value, &node.own_text())
    }

    fn object(&mut self, plan: &ElementPlan, node: &Element, path: &str) -> Json {
        let mut members = Map::new();
        match &plan.content {
            PlanContent::Nothing => self.only_blank(node, path),
            PlanContent::Abstract => {
                self.report(path, "has a type of its own, which JSON cannot name")
            }
            PlanContent::Text { key, value } => {
                let text = self.text(value, node, path);
                members.insert(key.clone(), text);
            }
            PlanContent::Markup { key, .. } => {
                members.insert(key.clone(), markup(&plan.content, node));
            }
            PlanContent::Keyed { slots, .. } => self.keyed(slots, node, path, &mut members),
            PlanContent::Listed { key, slots, required } => {
                let list = self.listed(slots, node, path);
                if *required || list.as_array().is_some_and(|items| !items.is_empty()) {
                    members.insert(key.clone(), list);
                }
            }
        }

        self.attributes(plan, node, path, &mut members);
        Json::Object(members)
    }

    fn attributes(
        &mut self,
        plan: &ElementPlan,
        node: &Element,
        path: &str,
        out: &mut Map<String, Json>,
    ) {
        for (name, text) in &node.attributes {
            let known = plan.attributes.iter().find(|(_, declared)| declared.name == *name);
            match known {
                Some((key, declared)) => {
                    out.insert(key.clone(), value::to_json(&declared.value, text));
                }
                None if name.namespace() == XSI && name.local.ends_with("chemaLocation") => {}
                None => self.report(&format!("{path}/@{}", name.local), "has no place in JSON"),
            }
        }
    }

    fn only_blank(&mut self, node: &Element, path: &str) {
        for part in &node.content {
            match part {
                Node::Text(text) if text.trim().is_empty() => {}
                _ => return self.report(path, "holds something where its schema has nothing"),
            }
        }
    }

    /// Returns the children of an element, each with the JSON property that holds it. Text between
    /// the children is reported as a finding.
    fn children<'n, 's>(
        &mut self,
        slots: &'s [ChildProperty],
        node: &'n Element,
        path: &str,
    ) -> Vec<(&'s ChildProperty, &'n Element)> {
        let mut found = Vec::new();
        for part in &node.content {
            match part {
                Node::Text(text) if text.trim().is_empty() => {}
                Node::Text(_) => self.report(path, "holds text beside its elements"),
                Node::Element(child) => match named(slots, &child.name) {
                    Some((_, slot)) => found.push((slot, child)),
                    None => {
                        let at = format!("{path}/{}", child.name.local);
                        self.report(&at, "is not in the schema");
                    }
                },
            }
        }

        found
    }

    fn keyed(
        &mut self,
        slots: &[ChildProperty],
        node: &Element,
        path: &str,
        out: &mut Map<String, Json>,
    ) {
        for (slot, child) in self.children(slots, node, path) {
            let at = format!("{path}/{}", child.name.local);
            let json = self.element(&slot.element, child, &at);
            if !slot.many {
                if out.insert(slot.key.clone(), json).is_some() {
                    self.report(&at, "is there twice");
                }
                continue;
            }
            let list = out.entry(slot.key.clone()).or_insert_with(|| Json::Array(Vec::new()));
            if let Some(items) = list.as_array_mut() {
                items.push(json);
            }
        }
    }

    fn listed(&mut self, slots: &[ChildProperty], node: &Element, path: &str) -> Json {
        let children = self.children(slots, node, path).into_iter();
        let items = children.map(|(slot, child)| {
            let at = format!("{path}/{}", child.name.local);
            let json = self.element(&slot.element, child, &at);
            Json::Object(Map::from_iter([(slot.key.clone(), json)]))
        });
        Json::Array(items.collect())
    }
}

/// Returns the content of `node` as a string of XML. In this string, a name without a prefix has no
/// namespace if `content` is `unqualified`. Otherwise, such a name has the namespace of `node`.
fn markup(content: &PlanContent, node: &Element) -> Json {
    let is_unqualified = matches!(content, PlanContent::Markup { unqualified: true, .. });
    let default = if is_unqualified { "" } else { node.name.namespace() };
    Json::String(write::content(node, default))
}
