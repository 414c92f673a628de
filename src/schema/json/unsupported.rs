//! Parts of a payload that JSON cannot express.

use std::collections::HashMap;
use std::fmt;

use super::element_plan::{ChildProperty, ElementPlan, PlanContent};
use super::json_schema::JsonSchemaForm;
use crate::ids::PayloadName;
use crate::limits;
use crate::schema::model::{ElementDecl, SchemaModel};

/// A part of a payload that JSON cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnsupportedPart {
    /// Content that the model must write as XML in a string: text between child elements, or
    /// elements that only a wildcard permits.
    Markup { path: String },
    /// An element with an abstract type, which needs an `xsi:type`. No native tool call can contain
    /// such an element. `required` states whether the payload requires the element.
    Abstract { path: String, required: bool },
}

impl UnsupportedPart {
    /// Whether no native tool call can produce the payload, because this part is required and JSON
    /// cannot express it.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Abstract { required: true, .. })
    }
}

impl fmt::Display for UnsupportedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Markup { path } => {
                write!(f, "{path} holds markup of any kind: native calls give it as XML text")
            }
            Self::Abstract { path, .. } => {
                write!(f, "{path} has an abstract type: native calls cannot give it")
            }
        }
    }
}

/// Returns the parts of a payload that JSON cannot express, up to a maximum number. Searches each
/// element declaration once. If a declaration is first found as optional, and later as required,
/// searches this declaration a second time.
pub fn gaps(model: &SchemaModel, name: &PayloadName) -> Vec<UnsupportedPart> {
    let Some(declared) = model.element(name) else { return Vec::new() };
    let mut search = GapSearch { model, seen: HashMap::new(), found: Vec::new() };
    search.element(declared, &format!("/{}", name.local), true);
    search.found
}

struct GapSearch<'a> {
    model: &'a SchemaModel,
    /// The declarations that were already searched. The value is true if the payload requires the
    /// element of the declaration. The key is an address, because two declarations of the same name
    /// may differ.
    seen: HashMap<*const ElementDecl, bool>,
    found: Vec<UnsupportedPart>,
}

impl GapSearch<'_> {
    fn element(&mut self, declared: &ElementDecl, path: &str, required: bool) {
        let key = std::ptr::from_ref(declared);
        let known = self.seen.get(&key).copied();
        let is_visited = known.is_some_and(|was_required| was_required || !required);
        if is_visited || self.found.len() >= limits::FINDINGS_MAX {
            return;
        }

        self.seen.insert(key, required);
        let (plan, _) = ElementPlan::of(self.model, declared, JsonSchemaForm::Current);

        match &plan.content {
            PlanContent::Markup { .. } if known.is_some() => {}
            PlanContent::Markup { .. } => {
                self.found.push(UnsupportedPart::Markup { path: path.to_owned() })
            }
            PlanContent::Abstract => {
                self.found.push(UnsupportedPart::Abstract { path: path.to_owned(), required });
            }
            PlanContent::Keyed { slots, .. } | PlanContent::Listed { slots, .. } => {
                self.slots(slots, path, required);
            }
            PlanContent::Nothing | PlanContent::Text { .. } => {}
        }
    }

    fn slots(&mut self, slots: &[ChildProperty], path: &str, required: bool) {
        for slot in slots {
            let at = format!("{path}/{}", slot.element.name.local);
            self.element(&slot.element, &at, required && slot.required);
        }
    }
}
