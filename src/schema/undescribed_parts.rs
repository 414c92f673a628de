//! The attributes and children of an element that a description only lists by name.

use std::collections::HashSet;

use super::describe::attribute_name;
use super::model::SchemaModel;
use super::outline::ElementOutline;

/// Maximum number of undescribed attributes and children that the description of an element names.
const NAMES_SHOWN: usize = 8;

/// The attributes and children of an element that a description only lists by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct UndescribedParts {
    /// Names of the first undescribed attributes and children.
    #[serde(rename = "undescribed", skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Number of undescribed attributes and children whose names are not in `names`.
    #[serde(rename = "more_undescribed", skip_serializing_if = "super::describe::is_zero")]
    pub more: usize,
}

impl UndescribedParts {
    pub fn of(names: impl IntoIterator<Item = String>) -> Self {
        let mut names = names.into_iter();
        let shown = names.by_ref().take(NAMES_SHOWN).collect();
        Self { names: shown, more: names.count() }
    }

    /// Returns the undescribed parts in prose; `None` if everything is described.
    pub fn in_prose(&self) -> Option<String> {
        let shown = self.names.join(", ");
        match self.more {
            0 if shown.is_empty() => None,
            0 => Some(format!("with {shown} (not described here)")),
            more => Some(format!("with {shown} and {more} more (not described here)")),
        }
    }
}

/// Returns the names of the attributes and children of an element. Each name occurs once.
pub fn parts_of(model: &SchemaModel, outline: &ElementOutline) -> UndescribedParts {
    let attributes = outline.attributes.iter().map(|attribute| attribute_name(&attribute.name));
    let (children, _) = model.elements_in(&outline.content);
    let children = children.iter().map(|child| child.name.local.to_string());
    let mut seen = HashSet::new();
    UndescribedParts::of(attributes.chain(children).filter(|name| seen.insert(name.clone())))
}
