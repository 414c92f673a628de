//! Shapes of payloads: the part of a schema that extraction from model text needs.

use std::sync::Arc;

use crate::ids::PayloadName;

/// Name of an element or attribute. Without a namespace it is an unqualified name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QName {
    pub namespace: Option<Arc<str>>,
    pub local: Arc<str>,
}

impl QName {
    pub fn new(namespace: Option<&str>, local: &str) -> Self {
        let namespace = namespace.filter(|ns| !ns.is_empty()).map(Arc::from);
        Self { namespace, local: local.into() }
    }

    /// The namespace, empty for an unqualified name.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

impl From<&PayloadName> for QName {
    fn from(name: &PayloadName) -> Self {
        let namespace = Some(&name.namespace).filter(|uri| !uri.is_empty());
        Self { namespace: namespace.cloned(), local: name.local.clone() }
    }
}

impl From<&QName> for PayloadName {
    fn from(name: &QName) -> Self {
        Self::new(name.namespace(), &name.local)
    }
}

/// Index of a [`ElementShape`] in its [`ShapeArena`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShapeId(pub u32);

/// The content that one element may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementShape {
    pub name: QName,
    pub attributes: Vec<QName>,
    pub content: ShapeContent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeContent {
    /// Text only: raw `<` and `&` in a model's text are data.
    Text,
    /// Child elements only (possibly none), in any order; the schema checks the rest.
    Elements(Vec<ShapeId>),
    /// Any well-formed content: wildcards and mixed content, read as strict XML.
    Any,
}

/// An arena of shapes, in which recursive types are finite. The roots are the names that may be
/// actions.
#[derive(Debug, Clone, Default)]
pub struct ShapeArena {
    pub nodes: Vec<ElementShape>,
    pub roots: Vec<ShapeId>,
}

impl ShapeArena {
    pub fn add(&mut self, shape: ElementShape) -> ShapeId {
        let id = ShapeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(shape);
        id
    }

    pub fn get(&self, id: ShapeId) -> Option<&ElementShape> {
        self.nodes.get(id.0 as usize)
    }
}
