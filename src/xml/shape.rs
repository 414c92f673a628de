//! Shapes of payloads: the part of a schema that the extraction from model text needs.

use std::sync::Arc;

use crate::ids::PayloadName;

/// Name of an element or attribute. A name without a namespace is unqualified.
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

    /// Returns the namespace of the name; empty for an unqualified name.
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

/// Index of an [`ElementShape`] in its [`ShapeArena`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShapeId(pub u32);

/// The shape of an element: its name, and the attributes and the content that it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementShape {
    pub name: QName,
    pub attributes: Vec<QName>,
    pub content: ShapeContent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeContent {
    /// The element contains only text. In a model's text, a raw `<` or `&` in the element is part
    /// of its value.
    Text,
    /// The element contains child elements, possibly none, in any order. The schema checks their
    /// order later.
    Elements(Vec<ShapeId>),
    /// The element may have any well-formed content, because its schema has a wildcard or mixed
    /// content. The content is parsed as strict XML.
    Any {
        /// Whether the schema declares child elements, all without a namespace.
        unqualified: bool,
    },
}

/// The shapes of all elements, and the roots, which are the shapes of those elements that can be
/// actions. Shapes refer to each other by index, so a recursive type has a finite number of shapes.
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
