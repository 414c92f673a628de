//! What of a payload JSON cannot say.

use std::fmt;

use super::plan::{Content, Plan, Slot};
use crate::ids::PayloadName;
use crate::limits;
use crate::schema::model::{ElementDecl, Model};
use crate::xml::shape::QName;

/// One place of a payload that is not told as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gap {
    /// Text with markup, or elements of others: given as XML in a string.
    Markup { path: String },
    /// Its type is chosen with `xsi:type`: it cannot be given at all.
    Abstract { path: String, required: bool },
}

impl Gap {
    /// No native call can make such a payload.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Abstract { required: true, .. })
    }
}

impl fmt::Display for Gap {
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

/// Every such place, each element of the schema looked at once.
pub fn gaps(model: &Model, name: &PayloadName) -> Vec<Gap> {
    let Some(declared) = model.element(name) else { return Vec::new() };
    let mut search = GapSearch { model, seen: Vec::new(), found: Vec::new() };
    search.element(declared, &format!("/{}", name.local), true);
    search.found
}

struct GapSearch<'a> {
    model: &'a Model,
    seen: Vec<QName>,
    found: Vec<Gap>,
}

impl GapSearch<'_> {
    fn element(&mut self, declared: &ElementDecl, path: &str, required: bool) {
        if self.seen.contains(&declared.name) || self.found.len() >= limits::FINDINGS_MAX {
            return;
        }

        self.seen.push(declared.name.clone());
        let (plan, _) = Plan::of(self.model, declared);

        match &plan.content {
            Content::Markup { .. } => self.found.push(Gap::Markup { path: path.to_owned() }),
            Content::Abstract => {
                self.found.push(Gap::Abstract { path: path.to_owned(), required });
            }
            Content::Keyed { slots, .. } | Content::Listed { slots, .. } => {
                self.slots(slots, path, required);
            }
            Content::Nothing | Content::Text { .. } => {}
        }
    }

    fn slots(&mut self, slots: &[Slot], path: &str, required: bool) {
        for slot in slots {
            let at = format!("{path}/{}", slot.element.name.local);
            self.element(&slot.element, &at, required && slot.required);
        }
    }
}
